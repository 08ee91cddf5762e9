"""Changed rows: with the rows before they give the rows after, whatever the types, and images stand in pairs."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import CorruptPart
from replitree.storage.rewrite.changed_rows import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    mutated_rows,
    rewritten_rows,
    row_classes,
)
from tests.storage.support import arrays, types, values


def texts(table: pa.Table) -> list[str]:
    """The rows as texts: 0.0 and -0.0 differ, and two NaNs of one kind do not."""
    return [repr(row) for row in table.to_pylist()]


def changes(table: pa.Table) -> list[tuple[str, str]]:
    kinds = table.column(CHANGE_TYPE).to_pylist()
    return list(zip(kinds, texts(table.drop_columns([CHANGE_TYPE])), strict=True))


@st.composite
def pools(draw: st.DrawFn) -> pa.Table:
    """Some rows of two columns of any types, some of them equal."""
    drawn = [draw(types()) for _ in range(2)]
    columns = [pa.array(draw(st.lists(values(each), min_size=3, max_size=3)), each) for each in drawn]
    pool = pa.table({f"c{i}": column for i, column in enumerate(columns)})
    return taken(pool, draw(st.lists(st.integers(0, 2), min_size=1, max_size=8)))


def taken(table: pa.Table, places: list[int]) -> pa.Table:
    return table.take(pa.array(places, pa.int64()))


@given(arrays())
def test_rows_have_the_same_number_exactly_when_they_are_equal(array: pa.Array) -> None:
    found, told = row_classes([array], len(array)), [repr(value) for value in array.to_pylist()]
    for i, one in enumerate(told):
        for j, other in enumerate(told):
            assert (found[i] == found[j]) == (one == other), (one, other)


@given(pools(), st.data())
def test_a_rewrite_is_the_difference_of_two_multisets(pool: pa.Table, data: st.DataObject) -> None:
    places = st.lists(st.integers(0, pool.num_rows - 1), max_size=8)
    before, after = taken(pool, data.draw(places)), taken(pool, data.draw(places))
    found = changes(rewritten_rows(before, after))
    old, new = Counter(texts(before)), Counter(texts(after))
    assert Counter(row for kind, row in found if kind == DELETE) == old - new
    assert Counter(row for kind, row in found if kind == INSERT) == new - old
    assert len(found) == (old - new).total() + (new - old).total()


@given(pools(), st.data())
def test_an_update_gives_each_row_that_differs_before_and_after(pool: pa.Table, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, pool.num_rows - 1), min_size=1, max_size=8))
    others = [data.draw(st.sampled_from([place, 0])) for place in places]
    found = changes(mutated_rows(taken(pool, places), taken(pool, others)))
    rows = texts(pool)
    wanted = [(rows[a], rows[b]) for a, b in zip(places, others, strict=True) if rows[a] != rows[b]]
    assert found == [each for a, b in wanted for each in ((PREIMAGE, a), (POSTIMAGE, b))]


@given(pools(), st.data())
def test_a_delete_gives_the_rows_that_are_missing(pool: pa.Table, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=pool.num_rows, max_size=pool.num_rows))
    after = pool.filter(pa.array(kept))
    found = changes(mutated_rows(pool, after))
    assert {kind for kind, _ in found} <= {DELETE}
    assert Counter(row for _, row in found) == Counter(texts(pool)) - Counter(texts(after))


def test_parts_of_different_rows_are_refused() -> None:
    with pytest.raises(CorruptPart, match="verify both"):
        mutated_rows(pa.table({"k": [1, 2, 3]}), pa.table({"k": [1, 7]}))


def test_parts_without_rows_have_no_changes() -> None:
    empty = pa.table({"k": pa.array([], pa.int64()), "l": pa.array([], pa.list_(pa.string()))})
    assert mutated_rows(empty, empty).num_rows == 0
    some = pa.table({"k": pa.array([1], pa.int64()), "l": pa.array([None], pa.list_(pa.string()))})
    assert changes(mutated_rows(some, empty)) == [(DELETE, "{'k': 1, 'l': None}")]
