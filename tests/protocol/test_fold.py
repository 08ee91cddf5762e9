"""The fold and what a replica restores from registered parts and queue are the same table, whatever was executed when."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from replitree.protocol.core.effects import EntryId, LogIndex, StagedPart, StagedResult, StagingId
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    DropEntry,
    Entry,
    GetEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    Unchanged,
    dropped_partitions,
    inserted_parts,
    written_parts,
)
from replitree.protocol.core.fold import Change, apply, fold, maximal, restore, was_applied
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, overlapping, parse_part

FOLD_CPU_S_MAX = 3.0
"""For a hundred thousand entries; measured 1.5 s beside other work."""
APPLY_CPU_US_MAX = 400.0
"""For one more entry at a hundred thousand parts; measured 13 (insert) and 48 (merge) µs."""


def get(index: int, *partitions: str, drops: tuple[str, ...] = ()) -> GetEntry:
    parts = tuple(StagedPart(partition, 1, 1, "h") for partition in partitions)
    if drops:
        return GetEntry("r1", StagingId(f"s{index}"), parts, (), format=2, drops=drops)
    return GetEntry("r1", StagingId(f"s{index}"), parts, ())


def rewrite(
    *sources: str,
    inserts: tuple[str, ...] = (),
    since: int | None = None,
    relied: tuple[str, ...] = (EVERY_PARTITION,),
    opened: tuple[int, ...] = (),
) -> RewriteEntry:
    """A rewrite that relies on the partitions `relied` since a position, where it relies on anything."""
    results = tuple(StagedResult(source, 1, 1, "h") for source in sources)
    entry = RewriteEntry("r1", EntryId("w"), StagingId("s"), results, tuple(StagedPart(p, 1, 1, "h") for p in inserts))
    return entry if since is None else structs.replace(entry, unchanged=Unchanged(relied, since, opened))


@dataclass(frozen=True)
class History:
    """A log, each entry with what it changes, and the table at its end."""

    log: tuple[tuple[LogIndex, Entry, Change], ...]
    parts: PartSet


def history(random: Random, length: int) -> History:
    """Draw a log: inserts, merges of neighbours and rewrites (some of parts that have left the table), mutations, drops."""
    parts, seen, log = PartSet(), [PartSet()], list[tuple[LogIndex, Entry, Change]]()
    while len(log) < length:
        index = LogIndex(len(log))
        parts, change = apply(parts, index, entry := draw(random, parts, seen, index))
        seen.append(parts)
        log.append((index, entry, change))
    return History(tuple(log), parts)


def draw(random: Random, parts: PartSet, seen: list[PartSet], index: int) -> Entry:
    kind, partition = random.random(), random.choice(("a", "b", EVERY_PARTITION))
    if kind < 0.3 and partition != EVERY_PARTITION:
        sources = (parts if random.random() < 0.8 else random.choice(seen)).in_partition(partition)
        if len(sources) > 1:
            first = random.randrange(len(sources) - 1)
            last = random.randrange(first + 2, len(sources) + 1)
            return MergeEntry("r1", tuple(part.name for part in sources[first:last]))
    elif kind < 0.36:
        return MutateEntry("r1", EntryId(f"m{index}"), partition, "x")
    elif kind < 0.42:
        listed, since = tuple(sorted(random.sample("ab", random.randint(0, 2)))), random.randint(0, index)
        return MutateEntry("r1", EntryId(f"m{index}"), EVERY_PARTITION, "x", 1, 2, listed, since)
    elif kind < 0.5:
        return DropEntry("r1", EntryId(f"d{index}"), partition)
    elif kind < 0.55:
        first = random.randrange(index + 1)
        return DropEntry("r1", EntryId(f"d{index}"), partition, first, first + random.randrange(4))
    elif kind < 0.7:
        known = tuple(parts if random.random() < 0.8 else random.choice(seen))
        sources = tuple(sorted(random.sample(known, random.randint(0, min(3, len(known))))))
        inserts = tuple(sorted(random.sample("ab", random.randint(0 if sources else 1, 2))))
        relied_since = random.choice((None, random.randint(0, index)))
        return rewrite(*(part.name for part in sources), inserts=inserts, since=relied_since)
    drops = (partition,) if random.random() < 0.1 else ()
    return get(index, *random.sample("ab", random.randint(1, 2)), drops=drops)


class Replica:
    """A replica that has pulled everything and executes in random order, as the protocol allows it."""

    def __init__(self, random: Random, told: History) -> None:
        self.random, self.told = random, told
        self.registered: set[Part] = set()
        self.queue = {index: (entry, change) for index, entry, change in told.log if not change.is_empty}

    @property
    def held(self) -> PartSet:
        return PartSet.of(maximal(self.registered))

    def restored(self) -> PartSet:
        return restore(self.registered, [(index, self.queue[index][0]) for index in sorted(self.queue)])[0]

    def step(self) -> None:
        index = self.random.choice(sorted(self.queue))
        entry, change = self.queue[index]
        if isinstance(entry, DropEntry) or (isinstance(entry, GetEntry) and dropped_partitions(entry)):
            done = self._remove(index, entry)
        elif isinstance(entry, GetEntry):
            done = self._insert(index, entry)
        elif isinstance(entry, RewriteEntry):
            done = self._rewrite(index, entry)
        elif isinstance(entry, MergeEntry):
            done = self._make(change.removed, change.added[0])
        else:
            pairs = zip(change.removed, change.added, strict=True)
            done = sum([not self._make((source,), result) for source, result in pairs]) == 0
        if done:
            del self.queue[index]

    def _wants(self, part: Part) -> bool:
        return self.told.parts.covering(part) is not None and self.held.covering(part) is None

    def _insert(self, index: LogIndex, entry: GetEntry) -> bool:
        for part in inserted_parts(entry, index):
            cover = self.told.parts.covering(part)
            if self._wants(part) and cover is not None:
                self._take(self.random.choice((part, cover)))
        return True

    def _rewrite(self, index: LogIndex, entry: RewriteEntry) -> bool:
        """Bring all parts of a rewrite at once, as they are or as what they have become."""
        if self.random.random() < 0.2:
            return False
        for part in written_parts(entry, index):
            cover = self.told.parts.covering(part)
            if self._wants(part) and cover is not None:
                self._take(self.random.choice((part, cover)))
        return True

    def _make(self, sources: tuple[Part, ...], result: Part) -> bool:
        """Make or fetch a result; now and then put it off."""
        if not self._wants(result):
            return True
        if self.random.random() < 0.2:
            return False
        begun = self.held.between(result.partition, result.block_min, result.block_max)
        if all(source in self.held for source in sources) or (begun and self.random.random() < 0.3):
            self._take(result)
            return True
        return False

    def _take(self, part: Part) -> None:
        self.registered -= set(self.held.between(part.partition, part.block_min, part.block_max))
        self.registered.add(part)

    def _remove(self, index: LogIndex, entry: DropEntry | GetEntry) -> bool:
        if any(isinstance(self.queue[before][0], GetEntry | RewriteEntry) for before in self.queue if before < index):
            return False
        _, change = apply(self.held, index, entry, decided=True)
        self.registered -= set(change.removed)
        return self._insert(index, entry) if isinstance(entry, GetEntry) else True


@given(seed=st.integers(0, 1 << 32), length=st.integers(1, 14))
def test_a_replica_restores_the_fold_whatever_it_executes_when(seed: int, length: int) -> None:
    random = Random(seed)
    told = history(random, length)
    replica = Replica(random, told)
    for _ in range(200):
        assert replica.restored() == told.parts
        assert overlapping(replica.held) is None
        if not replica.queue:
            assert replica.held == told.parts
            return
        replica.step()


@given(seed=st.integers(0, 1 << 32), length=st.integers(1, 30))
def test_the_fold_is_its_entries_applied_one_by_one_and_never_overlaps(seed: int, length: int) -> None:
    told = history(Random(seed), length)
    assert fold((index, entry) for index, entry, _ in told.log) == told.parts
    assert overlapping(told.parts) is None
    parts = PartSet()
    for index, entry, change in told.log:
        before, (parts, _) = parts, apply(parts, index, entry)
        assert {*before} - {*parts} == {*change.removed} - {*change.added}
        assert {*parts} - {*before} == {*change.added} - {*change.removed}


@given(seed=st.integers(0, 1 << 32), length=st.integers(1, 14))
def test_an_entry_that_was_decided_changes_nothing_a_second_time(seed: int, length: int) -> None:
    told = history(Random(seed), length)
    index, entry, first = told.log[-1]
    if first.is_empty:
        return  # it does not apply: it never enters a queue, and is not decided
    again, change = apply(told.parts, index, entry, decided=True)
    assert (again, change.is_empty) == (told.parts, True)


def names(parts: PartSet) -> list[str]:
    return [part.name for part in parts]


def table(*found: str) -> PartSet:
    return PartSet.of(map(parse_part, found))


@pytest.mark.parametrize(
    ("before", "entry", "after"),
    [
        (("a_0_0_0", "a_1_1_0"), MergeEntry("r1", ("a_0_0_0", "a_1_1_0")), ["a_0_1_1"]),
        (("a_0_0_0", "a_1_1_0"), MergeEntry("r1", ("a_1_1_0", "a_2_2_0")), ["a_0_0_0", "a_1_1_0"]),
        (
            ("a_0_0_0", "a_1_1_0", "a_2_2_0"),
            MergeEntry("r1", ("a_0_0_0", "a_2_2_0")),
            ["a_0_0_0", "a_1_1_0", "a_2_2_0"],
        ),
        (("a_0_0_0_3", "a_4_4_0"), MergeEntry("r1", ("a_0_0_0_3", "a_4_4_0")), ["a_0_4_1_3"]),
        (("a_0_1_1", "b_2_2_0"), MutateEntry("r1", EntryId("m"), "a", "x"), ["a_0_1_1_9", "b_2_2_0"]),
        (
            ("a_0_1_1", "b_2_2_0", "b_5_5_0", "c_3_3_0", "c_4_4_0_6"),
            MutateEntry("r1", EntryId("m"), EVERY_PARTITION, "x", 1, 2, ("a",), 5),
            ["a_0_1_1_9", "b_2_2_0", "b_5_5_0_9", "c_3_3_0", "c_4_4_0_9"],
        ),
        (
            ("a_0_1_1", "b_2_2_0"),
            MutateEntry("r1", EntryId("m"), EVERY_PARTITION, "x", 1, 2, (), 9),
            ["a_0_1_1", "b_2_2_0"],
        ),
        (("a_0_1_1", "b_2_2_0"), DropEntry("r1", EntryId("d"), "a"), ["b_2_2_0"]),
        (("a_0_1_1", "a_2_2_0"), DropEntry("r1", EntryId("d"), "a", 2, 5), ["a_0_1_1"]),
        (("a_0_1_1", "a_2_2_0"), DropEntry("r1", EntryId("d"), "a", 1, 5), ["a_0_1_1", "a_2_2_0"]),
        (("a_0_1_1", "b_2_2_0"), get(9, "a", drops=("a",)), ["a_9_9_0", "b_2_2_0"]),
        (("a_0_1_1", "b_2_2_0"), rewrite("a_0_1_1", inserts=("b",)), ["a_0_1_1_9", "b_2_2_0", "b_9_9_0"]),
        (("a_0_1_1_4", "b_2_2_0"), rewrite("a_0_1_1_4", "b_2_2_0"), ["a_0_1_1_9", "b_2_2_0_9"]),
        # A cover will not do, nor will one source of two, nor an earlier form.
        (("a_0_1_1",), rewrite("a_0_0_0"), ["a_0_1_1"]),
        (("a_0_1_1_4",), rewrite("a_0_1_1"), ["a_0_1_1_4"]),
        (("a_0_1_1",), rewrite("a_0_1_1", "b_2_2_0", inserts=("b",)), ["a_0_1_1"]),
        # What it relies on: inserted, mutated, or not seen because it was open.
        (("a_0_1_1", "b_2_2_0"), rewrite("a_0_1_1", since=3), ["a_0_1_1_9", "b_2_2_0"]),
        (("a_0_1_1", "b_2_2_0"), rewrite("a_0_1_1", since=2), ["a_0_1_1", "b_2_2_0"]),
        (("a_0_1_1", "b_2_2_0"), rewrite("a_0_1_1", since=2, relied=("a",)), ["a_0_1_1_9", "b_2_2_0"]),
        (("a_0_1_1", "b_2_2_0_5"), rewrite("a_0_1_1", since=5), ["a_0_1_1", "b_2_2_0_5"]),
        (("a_0_1_1", "b_2_2_0"), rewrite("a_0_1_1", since=3, opened=(2,)), ["a_0_1_1", "b_2_2_0"]),
    ],
)
def test_what_an_entry_does(before: tuple[str, ...], entry: Entry, after: list[str]) -> None:
    parts, _ = apply(table(*before), LogIndex(9), entry)
    assert names(parts) == after


def test_a_rewrite_leaves_open_inserts_alone() -> None:
    parts, change = apply(table("a_0_0_0", "a_1_1_0"), LogIndex(9), rewrite("a_0_0_0"), opened=(LogIndex(0),))
    assert (names(parts), change.is_empty) == (["a_0_0_0", "a_1_1_0"], True)


@given(seed=st.integers(0, 1 << 32), length=st.integers(1, 14))
def test_the_parts_never_tell_the_wrong_thing_of_an_earlier_rewrite(seed: int, length: int) -> None:
    told = history(Random(seed), length)
    for index, entry, change in told.log:
        if isinstance(entry, RewriteEntry):
            assert was_applied(told.parts, index, entry) in (None, not change.is_empty)


@pytest.mark.parametrize(
    ("parts", "applied"),
    [(("a_0_0_0",), False), (("a_0_0_0_9",), True), (("a_0_3_1_9",), None), (("b_9_9_0",), True), ((), None)],
)
def test_what_the_parts_tell_of_a_rewrite(parts: tuple[str, ...], applied: bool | None) -> None:
    assert was_applied(table(*parts), LogIndex(9), rewrite("a_0_0_0", inserts=("b",))) is applied


@pytest.mark.slow
def test_the_fold_of_a_hundred_thousand_inserts_and_one_more_entry_are_cheap() -> None:
    begun = time.process_time()
    parts = fold((LogIndex(index), get(index, "a")) for index in range(100_000))
    assert time.process_time() - begun < FOLD_CPU_S_MAX
    begun = time.process_time()
    for more in range(1_000):
        apply(parts, LogIndex(100_000 + more), get(100_000 + more, "a"))
        apply(parts, LogIndex(100_000), MergeEntry("r1", (f"a_{more}_{more}_0", f"a_{more + 1}_{more + 1}_0")))
    assert (time.process_time() - begun) / 2_000 * 1e6 < APPLY_CPU_US_MAX
