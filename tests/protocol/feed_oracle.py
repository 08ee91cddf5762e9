"""An oracle of the feed: random logs of every kind of entry, whose parts have rows, and what reads show at each index.

The rows are (key, version, value).  What the feed says of an entry is compared with the difference of what reads show.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from replitree.protocol.core.effects import EntryId, LogIndex, StagedPart, StagingId
from replitree.protocol.core.entries import (
    AlterEntry,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    ViewEntry,
)
from replitree.protocol.core.fold import apply, open_after, settled
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.feed import definition
from replitree.protocol.feed.definition import EntryFeed, OpenInserts, Unit, step_of
from tests.protocol.test_fold import draw

Row: TypeAlias = tuple[int, int, int]
KEYS = 6


@dataclass
class Table:
    """A table whose log is drawn entry by entry.

    `visible` is what reads show below each index; `feeds` what the definition says of each entry, with its rows:
    how often each row comes, or, below 0, leaves.
    """

    random: Random
    policy: str = "plain"
    by_key: bool = False
    """Whether only whole keys are deleted, and whole partitions dropped: what a consumer by key can follow."""
    log: list[Entry] = field(default_factory=list)
    parts: PartSet = field(default_factory=PartSet)
    opened: tuple[LogIndex, ...] = ()
    rows: dict[Part, tuple[Row, ...]] = field(default_factory=dict)
    visible: list[Counter[Row]] = field(default_factory=lambda: [Counter()])
    feeds: list[tuple[EntryFeed, Counter[Row]]] = field(default_factory=list)
    puts: list[list[tuple[str, Row]]] = field(default_factory=list)
    state: OpenInserts = field(default_factory=OpenInserts)
    seen: list[PartSet] = field(default_factory=lambda: [PartSet()])
    versions: int = 0

    def step(self) -> None:
        """Append an entry."""
        index, entry = LogIndex(len(self.log)), self.draw()
        self.parts, change = apply(self.parts, index, entry, opened=self.opened)
        self.opened = open_after(self.opened, index, entry)
        self.make_rows(entry, change.removed, change.added)
        # By the module: a mutant may have taken the function's place.
        self.state, feed = definition.advance(self.state, step_of(entry, change, self.opened))
        self.log.append(entry)
        self.seen.append(self.parts)
        found = Counter[Row]()
        puts = list[tuple[str, Row]]()
        for unit in feed.units:
            self.add_rows(unit, found, puts)
        self.feeds.append((feed, Counter({row: count for row, count in found.items() if count})))
        self.puts.append(puts)
        shown = settled(self.parts, self.opened)
        self.visible.append(Counter(row for part in shown for row in self.rows[part]))

    def add_rows(self, unit: Unit, found: Counter[Row], puts: list[tuple[str, Row]]) -> None:
        now, old = Counter(self.rows[unit.part]), Counter[Row]()
        if unit.type == "delete":
            now, old = old, now
        elif unit.before is not None:
            old = Counter(self.rows[unit.before])
        found.update(now)
        found.subtract(old)
        puts += [("delete", row) for row in sorted((old - now).elements())]
        puts += [("put", row) for row in sorted((now - old).elements())]

    # --- what is drawn ---

    def draw(self) -> Entry:
        index, chance = len(self.log), self.random.random()
        if chance < 0.1:
            names = self.random.sample("ab", self.random.randint(1, 2))
            parts = tuple(StagedPart(name, 1, 1, "h") for name in names)
            return GetEntry("r1", StagingId(f"s{index}"), parts, (), format=3, quorum=2)
        if chance < 0.2 and self.opened:
            opened = self.random.choice(self.opened)
            if self.random.random() < 0.5:
                return SettleEntry("r1", StagingId(f"s{opened}"), opened, ("r1", "r2"))
            return FailEntry("r1", StagingId(f"s{opened}"), opened, ("a", "b"))
        if chance < 0.23:
            others = (
                AlterEntry("r1", EntryId(f"a{index}"), "c", 2),
                StorageEntry("r1", EntryId(f"k{index}"), "local", 2, "7d"),
                RollEntry("r1"),
                ViewEntry("r1", EntryId(f"v{index}"), "v", "t"),
            )
            return self.random.choice(others)
        if chance < 0.25 and (settled_parts := list(settled(self.parts, self.opened))) and not self.by_key:
            return LostEntry("r1", self.random.choice(settled_parts).name, "h")
        while True:
            entry = draw(self.random, self.parts, self.seen, index)
            if not self.by_key:
                return entry
            if isinstance(entry, MutateEntry):
                # A real scope leaves out no row that the mutation changes; one that is drawn may.
                return MutateEntry(entry.replica, entry.id, entry.partition, entry.command)
            if not isinstance(entry, RewriteEntry) and not (
                isinstance(entry, DropEntry) and entry.block_min is not None
            ):
                return entry

    def new_rows(self, partition: str) -> tuple[Row, ...]:
        self.versions += 1
        # A key is in one partition.
        offset = 0 if partition == "a" else KEYS
        keys = [offset + self.random.randrange(KEYS) for _ in range(self.random.randint(1, 4))]
        if self.policy != "plain":
            keys = sorted(set(keys))
        return tuple((key, self.versions, self.random.randrange(3)) for key in keys)

    def make_rows(self, entry: Entry, removed: tuple[Part, ...], added: tuple[Part, ...]) -> None:
        match entry:
            case GetEntry():
                self.rows.update((part, self.new_rows(part.partition)) for part in added)
            case MergeEntry() if added:
                self.rows[added[0]] = self.merged([row for part in removed for row in self.rows[part]])
            case MutateEntry():
                change = self.random.choice(("delete", "update"))
                choice = self.random.randrange(3)
                for old, new in zip(removed, added, strict=True):
                    # A mutation that is killed leaves some parts as they are.
                    is_left = self.random.random() < 0.15 and not self.by_key
                    self.rows[new] = self.rows[old] if is_left else mutated(self.rows[old], change, choice)
            case RewriteEntry():
                for old, new in zip(removed, added[: len(removed)], strict=True):
                    kept = [row for row in self.rows[old] if self.random.random() < 0.8]
                    self.rows[new] = tuple(row if self.random.random() < 0.8 else (row[0], row[1], 9) for row in kept)
                self.rows.update((part, self.new_rows(part.partition)) for part in added[len(removed) :])
            case LostEntry() if added:
                self.rows[added[0]] = self.rows[parse_part(entry.part)] = ()
            case _:
                pass

    def merged(self, rows: list[Row]) -> tuple[Row, ...]:
        """What a merge makes of rows: of those of a key the newest, or their sum."""
        if self.policy == "plain":
            return tuple(rows)
        by_key: dict[int, Row] = {}
        for row in rows:
            known = by_key.get(row[0])
            if self.policy == "summing":
                by_key[row[0]] = row if known is None else (row[0], max(row[1], known[1]), row[2] + known[2])
            elif known is None or row[1] >= known[1]:
                by_key[row[0]] = row
        return tuple(by_key.values())


def mutated(rows: tuple[Row, ...], change: str, choice: int) -> tuple[Row, ...]:
    """What a mutation makes of rows: those of some keys go, or get another value."""
    if change == "delete":
        return tuple(row for row in rows if row[0] % 3 != choice)
    return tuple((key, version, 5 if key % 3 == choice else value) for key, version, value in rows)


def drawn(seed: int, length: int = 30, policy: str = "plain", *, by_key: bool = False) -> Table:
    """A table with a random log."""
    table = Table(Random(seed), policy, by_key)
    while len(table.log) < length:
        table.step()
    return table


__all__ = ["Row", "Table", "drawn"]
