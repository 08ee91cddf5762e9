"""The algebra of part names: covering is a partial order, and what a merge or a mutation makes covers what it was made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.protocol.core.parts import Part, merged_part, mutated_part, overlapping, parse_part


@st.composite
def parts(draw: st.DrawFn) -> Part:
    first = draw(st.integers(0, 4))
    last = draw(st.integers(first, 5))
    return Part(draw(st.sampled_from("ab")), first, last, draw(st.integers(0, 3)), draw(st.integers(0, 3)))


@given(one=parts(), other=parts(), third=parts())
def test_covering_is_a_partial_order(one: Part, other: Part, third: Part) -> None:
    assert one.covers(one)
    assert not (one.covers(other) and other.covers(one)) or one == other
    assert not (one.covers(other) and other.covers(third)) or one.covers(third)


@given(one=parts(), other=parts())
def test_what_is_covered_shares_its_blocks(one: Part, other: Part) -> None:
    if one.covers(other):
        assert one.intersects(other)
        assert other.is_within(one.block_min, one.block_max)


@given(sources=st.lists(parts(), min_size=1, max_size=5))
def test_a_merged_part_covers_its_sources(sources: list[Part]) -> None:
    neighbours = tuple(
        part._replace(partition="a", block_min=10 * n + part.block_min, block_max=10 * n + part.block_max)
        for n, part in enumerate(sources)
    )
    assert overlapping(neighbours) is None
    merged = merged_part(neighbours)
    assert all(merged.covers(source) and not source.covers(merged) for source in neighbours)
    assert merged.mutation == max(source.mutation for source in neighbours)


@given(part=parts(), index=st.integers(4, 9))
def test_a_mutated_part_covers_its_source(part: Part, index: int) -> None:
    mutated = mutated_part(part, index)
    assert mutated.covers(part)
    assert not part.covers(mutated)
    assert parse_part(mutated.name) == mutated


@pytest.mark.parametrize(
    ("one", "other", "covers"),
    [
        ("all_0_5_3", "all_0_4_2", True),
        ("all_0_5_2", "all_0_4_2", False),  # made from other sources (ClickHouse #23997)
        ("all_0_4_2", "all_0_4_1", True),
        ("all_0_4_2_7", "all_0_4_2", True),
        ("all_0_5_3", "all_0_4_2_7", False),
        ("all_0_5_3", "b_0_4_2", False),
    ],
)
def test_more_blocks_cover_fewer_only_at_a_higher_level(one: str, other: str, covers: bool) -> None:
    assert parse_part(one).covers(parse_part(other)) is covers
