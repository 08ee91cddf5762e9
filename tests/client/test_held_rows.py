"""Rows of a joint insert: few stay in memory, many lie in files, and both are split alike."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.sharded.insert import held_rows
from replitree.client.sharded.insert.held_rows import HeldRows
from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.schema.row_buckets import ShardRows

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": list(numbers), "s": [f"text {k}" for k in numbers]}, schema=SCHEMA)


def slices(*counts: int) -> Iterator[pa.Table]:
    first = 0
    for count in counts:
        yield rows(first, count)
        first += count


def by_remainder(some: pa.Table) -> Iterator[ShardRows]:
    for shard in (1, 0):
        taken = some.filter(pa.array([k % 3 == shard for k in some["k"].to_pylist()]))
        if taken.num_rows:
            yield ShardRows(Shard(shard), taken)


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Rows in memory are few, and files go here."""
    monkeypatch.setattr(held_rows, "SLICE_ROWS_MAX", 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize("counts", [(7,), (3, 4), (1, 1, 1, 1, 1, 1, 1)])
def test_slices_are_split_as_one_table_is(counts: tuple[int, ...]) -> None:
    held = HeldRows(slices(*counts), SCHEMA)
    assert not held.is_in_memory
    assert held.rows.equals(rows(0, 7))
    assert pa.concat_tables(held.slices()).equals(held.rows)
    split = held.split(by_remainder)
    assert {int(shard): some["k"].to_pylist() for shard, some in split.items()} == {0: [0, 3, 6], 1: [1, 4]}
    assert all(some.schema.equals(SCHEMA) for some in split.values())
    # A changed map splits them once more.
    assert [some.num_rows for some in held.split(lambda some: [ShardRows(Shard(5), some)]).values()] == [7]


def test_few_rows_stay_in_memory() -> None:
    held = HeldRows(slices(3, 4), SCHEMA)
    assert held.is_in_memory
    assert [some.num_rows for some in held.slices()] == [7]
    assert held.split(by_remainder)[Shard(1)]["k"].to_pylist() == [1, 4]


@pytest.mark.usefixtures("in_files")
def test_a_shard_that_only_a_later_slice_has_gets_its_rows() -> None:
    held = HeldRows(slices(1, 4), SCHEMA)
    assert held.split(by_remainder)[Shard(1)]["k"].to_pylist() == [1, 4]


def test_no_rows_are_no_error() -> None:
    held = HeldRows(iter(()), SCHEMA)
    assert held.rows.num_rows == 0
    assert held.rows.schema.equals(SCHEMA)


def test_many_rows_are_not_in_memory_and_leave_no_file(in_files: Path) -> None:
    before = pa.total_allocated_bytes()
    held = HeldRows(slices(20_000, 20_000, 20_000), SCHEMA)
    split = held.split(by_remainder)
    assert pa.total_allocated_bytes() - before < held.rows.nbytes // 20
    assert sum(some.num_rows for some in split.values()) == 40_000
    assert list(in_files.iterdir()) == []


def test_an_error_of_the_source_passes_and_leaves_no_file(in_files: Path) -> None:
    def broken() -> Iterator[pa.Table]:
        yield rows(0, 3)
        raise ValueError("the source has failed")

    with pytest.raises(ValueError, match="the source has failed"):
        HeldRows(broken(), SCHEMA)
    assert list(in_files.iterdir()) == []
