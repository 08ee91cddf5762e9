"""Changed rows: with the rows before they give the rows after, whatever the types, and images stand in pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import CorruptPart
from replitree.storage.rewrite import changed_rows
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


def mutated(before: pa.Table, after: pa.Table) -> pa.Table:
    """What a mutation has changed, from batches that are cut in different places."""
    found = mutated_rows(
        before.to_batches(max_chunksize=3),
        after.to_batches(max_chunksize=2),
        before.schema,
        deletes=after.num_rows < before.num_rows,
    )
    none = before.schema.append(pa.field(CHANGE_TYPE, pa.string())).empty_table()
    return pa.concat_tables([none, *found])


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """Parts are compared some rows at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changed_rows, "CHUNK_ROWS", 4)
        patch.setattr(changed_rows, "WINDOW_ROWS", 2)
        yield


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
    found = changes(mutated(taken(pool, places), taken(pool, others)))
    rows = texts(pool)
    wanted = [(rows[a], rows[b]) for a, b in zip(places, others, strict=True) if rows[a] != rows[b]]
    assert found == [each for a, b in wanted for each in ((PREIMAGE, a), (POSTIMAGE, b))]


@given(pools(), st.data())
def test_a_delete_gives_the_rows_that_are_missing(pool: pa.Table, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=pool.num_rows, max_size=pool.num_rows))
    after = pool.filter(pa.array(kept))
    found = changes(mutated(pool, after))
    assert {kind for kind, _ in found} <= {DELETE}
    assert Counter(row for _, row in found) == Counter(texts(pool)) - Counter(texts(after))


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_a_delete_among_many_equal_rows_gives_as_many_as_are_missing(rows: list[tuple[int, bool]]) -> None:
    before = pa.table({"k": pa.array([key for key, _ in rows], pa.int64())})
    after = before.filter(pa.array([is_kept for _, is_kept in rows], pa.bool_()))
    found = mutated(before, after).drop_columns([CHANGE_TYPE])
    assert Counter(texts(found)) == Counter(texts(before)) - Counter(texts(after))


def test_parts_of_different_rows_are_refused() -> None:
    for after in ([1, 7], [3, 1], [2, 2]):
        with pytest.raises(CorruptPart, match="verify both"):
            mutated(pa.table({"k": [1, 2, 3]}), pa.table({"k": after}))


def test_parts_without_rows_have_no_changes() -> None:
    empty = pa.table({"k": pa.array([], pa.int64()), "l": pa.array([], pa.list_(pa.string()))})
    assert mutated(empty, empty).num_rows == 0
    some = pa.table({"k": pa.array([1], pa.int64()), "l": pa.array([None], pa.list_(pa.string()))})
    assert changes(mutated(some, empty)) == [(DELETE, "{'k': 1, 'l': None}")]
