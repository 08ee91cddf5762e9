"""A set of parts is the sorted list of them, however it is cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.protocol.core import part_set
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(part_set, "CHUNK_PARTS", 4)
    yield
    patch.undo()


def free(random: Random, model: list[Part]) -> list[Part]:
    """Draw parts that share no block with those of the model nor with each other."""
    found: list[Part] = []
    for _ in range(random.randint(1, 6)):
        first = random.randrange(40)
        part = Part(random.choice("abc"), first, first + random.choice((0, 0, 0, 2)), random.randrange(3))
        if not any(part.intersects(other) for other in (*model, *found)):
            found.append(part)
    return found


@given(seed=st.integers(0, 1 << 32))
def test_changes_and_looks_are_those_of_a_sorted_list(seed: int) -> None:
    random = Random(seed)
    found, model = PartSet(), list[Part]()
    for _ in range(30):
        removed = random.sample(model, min(len(model), random.choice((0, 1, 1, 3, 9))))
        model = [part for part in model if part not in removed]
        added = free(random, model)
        before, listed = found, list(found)
        found = found.replace(removed, added)
        model = sorted((*model, *added))
        assert (list(found), len(found)) == (model, len(model))
        assert list(before) == listed
        assert found == PartSet.of(reversed(model))
        assert hash(found) == hash(PartSet.of(model))
        _assert_looks(random, found, model)


def _assert_looks(random: Random, found: PartSet, model: list[Part]) -> None:
    partition, first = random.choice("abc"), random.randrange(40)
    last = first + random.randrange(6)
    inside = [p for p in model if p.partition == partition]
    assert list(found.in_partition(partition)) == inside
    assert list(found.between(partition, first, last)) == [
        p for p in inside if p.block_min <= last and first <= p.block_max
    ]
    asked = Part(partition, first, first, 0)
    assert found.covering(asked) == next((p for p in inside if p.covers(asked)), None)
    assert (asked in found) is (asked in model)


def test_chunks_stay_few_when_most_parts_are_gone() -> None:
    full = PartSet.of(Part("a", index, index, 0) for index in range(400))
    left = full
    for part in list(full)[::2] + list(full)[1:300:2]:
        left = left.replace((part,), ())
    assert len(left) == 50
    assert len(left._chunks) <= part_set.SPARSE_FACTOR * (50 // 4 + 1)  # noqa: SLF001 - what it costs can't be seen otherwise


def test_what_is_merged_over_a_hole_is_not_covered_by_a_part_in_the_hole() -> None:
    held = PartSet.of(map(parse_part, ("p_0_2_1", "p_4_4_0", "p_6_6_0_9")))
    assert held.covered_by(parse_part("p_1_1_0_9")) == ()
    assert [part.name for part in held.covered_by(parse_part("p_4_5_1_9"))] == ["p_4_4_0"]
