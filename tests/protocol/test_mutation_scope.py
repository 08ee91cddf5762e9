"""A mutation with a scope changes the rows that the same mutation of all parts changes, however old the proposer's view is."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.protocol.core import fold as fold_module
from replitree.protocol.core.effects import EntryId, LogIndex, StagedPart, StagingId, Version
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    Entry,
    GetEntry,
    MergeEntry,
    MutateEntry,
    decode_entry,
    encode_entry,
)
from replitree.protocol.core.fold import apply
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.state.mutation_scope import SCOPE_BYTES_MAX, partitions_to_list, scoped
from replitree.protocol.state.pull import Place, Pointer
from replitree_verify.world.disk import is_covered, mutated_content, rows_in

PARTITIONS = ("a", "b", "c")


def place_at(index: int, parts: PartSet) -> Place:
    return Place(Pointer(LogIndex(index), Version(1)), parts)


def mutation(command: str = "x", partition: str = EVERY_PARTITION) -> MutateEntry:
    return MutateEntry("r1", EntryId("m"), partition, command)


@dataclass
class World:
    """A log with the rows of every part that the table has had; `states` are the parts at each position."""

    rows: dict[Part, tuple[str, ...]] = field(default_factory=dict)
    states: list[PartSet] = field(default_factory=lambda: [PartSet()])
    renamed: int = 0

    def append(self, entry: Entry) -> None:
        index = LogIndex(len(self.states) - 1)
        parts, change = apply(self.states[-1], index, entry)
        if isinstance(entry, GetEntry):
            self.rows |= {
                part: rows_in(each.content_hash) for part, each in zip(change.added, entry.parts, strict=True)
            }
        elif isinstance(entry, MergeEntry) and not change.is_empty:
            self.rows[change.added[0]] = tuple(sorted(row for part in change.removed for row in self.rows[part]))
        elif isinstance(entry, MutateEntry):
            self.renamed += len(change.removed)
            for source, result in zip(change.removed, change.added, strict=True):
                content = f":{'+'.join(self.rows[source])}"
                self.rows[result] = rows_in(mutated_content("", content, entry.command))
        self.states.append(parts)

    def scoped(self, entry: MutateEntry, seen: int, unknown: frozenset[Part]) -> MutateEntry:
        """Find the scope of a mutation at an earlier position, where some parts are not executed yet."""

        def is_left(part: Part) -> bool:
            return part not in unknown and not any(is_covered(row, entry.command) for row in self.rows[part])

        return scoped(entry, place_at(seen, self.states[seen]), is_left)

    def content(self) -> dict[str, tuple[str, ...]]:
        """Return the rows of each partition."""
        return {
            partition: tuple(sorted(row for part in self.states[-1].in_partition(partition) for row in self.rows[part]))
            for partition in PARTITIONS
        }


def get(index: int, *partitions: str) -> GetEntry:
    parts = tuple(StagedPart(partition, 1, 1, f"{partition}:{index}") for partition in partitions)
    return GetEntry("r1", StagingId(f"s{index}"), parts, ())


def two_worlds(random: Random, length: int) -> tuple[World, World]:
    """Draw one log for two tables: mutations of the first have a scope, those of the second have none."""
    scoped_world, plain_world = World(), World()
    for index in range(length):
        kind = random.random()
        if kind < 0.45:
            partitions = random.sample(PARTITIONS, random.randint(1, 3))
            for world in (scoped_world, plain_world):
                world.append(get(index, *partitions))
        elif kind < 0.7:
            partition, first, count = random.choice(PARTITIONS), random.randrange(3), random.randint(2, 3)
            for world in (scoped_world, plain_world):
                sources = world.states[-1].in_partition(partition)[first : first + count]
                world.append(MergeEntry("r1", tuple(part.name for part in sources) or (f"{partition}_0_0_9",)))
        else:
            covered = [str(random.randrange(index + 1)) for _ in range(2)] + [f"~m{random.randrange(index + 1)}"]
            entry = mutation(f"m{index}@{','.join(random.sample(covered, random.randint(1, 3)))}")
            seen = random.randint(max(0, index - 4), index)
            unknown = frozenset(part for part in scoped_world.states[seen] if random.random() < 0.2)
            scoped_world.append(scoped_world.scoped(entry, seen, unknown))
            plain_world.append(entry)
    return scoped_world, plain_world


@given(seed=st.integers(0, 1 << 32), length=st.integers(2, 16))
def test_rows_are_those_after_a_mutation_of_all_parts(seed: int, length: int) -> None:
    with_scope, without = two_worlds(Random(seed), length)
    assert with_scope.content() == without.content()
    assert with_scope.renamed <= without.renamed


@pytest.mark.parametrize("rule", ["inserted only", "mutated only", "nothing"])
def test_each_half_of_the_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = {
        "inserted only": lambda part, since: part.block_max >= since,
        "mutated only": lambda part, since: part.mutation >= since,
        "nothing": lambda _part, _since: False,
    }
    monkeypatch.setattr(fold_module, "is_changed_since", halves[rule])
    drawn = (two_worlds(Random(seed), 16) for seed in range(500))
    assert any(with_scope.content() != without.content() for with_scope, without in drawn)


def test_delete_in_one_partition_of_a_thousand_renames_one_part() -> None:
    parts = PartSet.of(parse_part(f"{number}_0_0_0") for number in range(1_000))
    entry = scoped(mutation(), place_at(1, parts), lambda part: part.partition != "77")
    assert (entry.format, entry.partitions, entry.since) == (2, ("77",), 1)
    _, change = apply(parts, LogIndex(1), entry)
    assert [part.name for part in change.added] == ["77_0_0_0_1"]


def test_partition_is_listed_once_however_many_parts_it_has() -> None:
    parts = PartSet.of(map(parse_part, ("a_0_0_0", "a_1_1_0", "b_0_0_0", "b_1_1_0")))
    assert partitions_to_list(parts, lambda part: part.partition == "a" and part.block_min == 0) == ("a", "b")


def test_list_that_is_too_long_means_all_parts() -> None:
    parts = PartSet.of(parse_part(f"{number:020}_0_0_0") for number in range(SCOPE_BYTES_MAX // 20))
    entry = mutation()
    assert scoped(entry, place_at(1, parts), lambda _: False) is entry
    longest = scoped(entry, place_at(1, parts), lambda part: int(part.partition) >= 700)
    assert len(encode_entry(longest)) < SCOPE_BYTES_MAX + 1_000


def test_mutation_of_one_partition_needs_no_scope() -> None:
    entry = mutation(partition="a")
    assert scoped(entry, place_at(1, PartSet()), lambda _: True) is entry


def test_scope_of_no_partition_is_written_and_read() -> None:
    entry = scoped(mutation(), place_at(7, PartSet()), lambda _: True)
    assert decode_entry(encode_entry(entry), "here") == entry
    assert (entry.partitions, entry.since) == ((), 7)
