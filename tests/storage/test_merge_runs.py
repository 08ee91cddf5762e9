from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import CorruptPart
from replitree.storage.parts.order import sort_rows
from replitree.storage.rewrite.merge_order import sort_runs
from replitree.storage.rewrite.merge_runs import (
    RUNS_MAX,
    Merging,
    RunFile,
    merge_runs,
    read_run,
    reader_bytes,
    side_by_side,
)
from tests.storage.support import PLAIN_TYPES, values

KEYS = [None, -math.inf, -1.0, 0.0, -0.0, 1.0, 2.0, math.inf, math.nan]


def _file(path: Path, table: pa.Table, held: int = 0, **options: Any) -> RunFile:
    pq.write_table(table, path, **options)
    return RunFile(path, path.parent, tuple(table.column_names), lambda rows: rows.cast(table.schema), held)


def _merging(tmp_path: Path, memory: int, asked: list[int]) -> Merging:
    numbers = iter(range(1000))
    return Merging(
        ("k",), memory, lambda: tmp_path / f"scratch-{next(numbers)}.parquet", lambda: asked.append(len(asked))
    )


# --- order ------------------------------------------------------------------------------------------------------------------


@given(st.data(), st.lists(st.sampled_from(PLAIN_TYPES), min_size=1, max_size=3), st.integers(1, 5))
def test_runs_are_sorted_as_any_rows_are(data: st.DataObject, kinds: list[pa.DataType], count: int) -> None:
    names = [f"k{number}" for number in range(len(kinds))]
    few = [data.draw(st.lists(values(kind), min_size=1, max_size=5)) for kind in kinds]
    rows = st.fixed_dictionaries({name: st.sampled_from(some) for name, some in zip(names, few, strict=True)})
    schema = pa.schema([*zip(names, kinds, strict=True), ("n", pa.int64())])
    runs = []
    for run in range(count):
        drawn = data.draw(st.lists(rows, max_size=8))
        numbered = [{**row, "n": 100 * run + number} for number, row in enumerate(drawn)]
        runs.append(sort_rows(pa.Table.from_pylist(numbered, schema), names))
    table = pa.concat_tables(runs)
    assert sort_runs(table, names).column("n").to_pylist() == sort_rows(table, names).column("n").to_pylist()


def test_keys_of_which_not_all_fit_into_one_number_are_sorted_too() -> None:
    ends = [-(2**63), 2**63 - 1, 0]
    table = pa.table({"a": ends * 3, "b": sorted(ends) * 3})
    assert sort_runs(table, ["a", "b"]).equals(sort_rows(table, ["a", "b"]))


# --- windows ----------------------------------------------------------------------------------------------------------------


@given(
    runs=st.lists(st.lists(st.sampled_from(KEYS), max_size=30), min_size=1, max_size=6),
    group=st.integers(1, 7),
    memory=st.sampled_from([1, 500, 5000, 1 << 20]),
    held=st.sampled_from([0, 200]),
)
def test_windows_are_sorted_stable_and_none_is_below_the_one_before(
    runs: list[list[float | None]], group: int, memory: int, held: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    schema = pa.schema([("k", pa.float64()), ("n", pa.int64())])
    tables = [
        sort_rows(pa.table({"k": keys, "n": [100 * i + j for j in range(len(keys))]}, schema=schema), ["k"])
        for i, keys in enumerate(runs)
    ]
    files = [_file(folder / f"{i}.parquet", t, held, row_group_size=group) for i, t in enumerate(tables)]
    asked: list[int] = []
    found = list(merge_runs(files, _merging(folder, memory, asked)))
    assert all(window.num_rows for window in found)
    assert len(asked) >= len(found)
    joined = pa.concat_tables([schema.empty_table(), *found])
    assert joined.column("n").equals(sort_rows(pa.concat_tables(tables), ["k"]).column("n"))


def test_a_key_that_fills_whole_runs_is_read_run_by_run(tmp_path: Path) -> None:
    rows = 20_000
    tables = [pa.table({"k": np.zeros(rows, np.int64), "n": np.full(rows, run)}) for run in range(3)]
    files = [_file(tmp_path / f"{i}.parquet", table) for i, table in enumerate(tables)]
    windows = list(merge_runs(files, _merging(tmp_path, 160_000, [])))
    assert max(window.nbytes for window in windows) <= 160_000 // 8
    assert pa.concat_tables(windows).column("n").to_pylist() == [0] * rows + [1] * rows + [2] * rows


def test_too_many_runs_are_merged_in_passes(tmp_path: Path) -> None:
    tables = [pa.table({"k": [run % 7, 7], "n": [run, run]}) for run in range(RUNS_MAX * 2 + 1)]
    files = [_file(tmp_path / f"{i}.parquet", table) for i, table in enumerate(tables)]
    found = pa.concat_tables(merge_runs(files, _merging(tmp_path, 8 << 20, [])))
    assert found.equals(sort_rows(pa.concat_tables(tables), ["k"]))
    scratch = sorted(path.name for path in tmp_path.glob("scratch-*"))
    assert scratch == ["scratch-0.parquet", "scratch-1.parquet"]  # the last run is alone, and read where it is


@given(st.lists(st.integers(0, 400), min_size=1, max_size=200), st.integers(0, 4000))
def test_runs_side_by_side_have_room_or_are_two(held: list[int], memory: int) -> None:
    files = [RunFile(Path(str(number)), Path(), (), lambda rows: rows, size) for number, size in enumerate(held)]
    groups = side_by_side(files, memory)
    assert [file for group in groups for file in group] == files
    assert all(len(group) <= RUNS_MAX for group in groups)
    assert all(len(group) >= 2 for group in groups[:-1])
    for group in groups:
        assert len(group) <= 2 or sum(file.reader_bytes for file in group) <= memory // 4


# --- reading ----------------------------------------------------------------------------------------------------------------


def test_rows_that_a_dictionary_makes_look_narrow_are_measured_first(tmp_path: Path) -> None:
    texts = pa.array(["x" * 1000, "y" * 1000]).take(pa.array(np.arange(20_000) % 2))
    file = _file(tmp_path / "f.parquet", pa.table({"k": range(20_000), "s": texts}))
    assert file.path.stat().st_size < 300_000
    batches = list(read_run(file, 200_000))
    assert max(batch.nbytes for batch in batches) < 250_000
    assert sum(batch.num_rows for batch in batches) == 20_000


def test_a_reader_holds_a_page_of_each_column(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(1_000_000), "b": np.arange(1_000_000)})
    small = _file(tmp_path / "small.parquet", table.slice(0, 10))
    large = _file(tmp_path / "large.parquet", table, use_dictionary=False, compression="none")
    assert reader_bytes(pq.read_metadata(small.path)) < 2000
    assert 2 << 20 < reader_bytes(pq.read_metadata(large.path)) < 3 << 20


def test_a_file_that_is_not_parquet_names_its_part(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"nonsense")
    with pytest.raises(CorruptPart, match=tmp_path.name):
        list(read_run(RunFile(path, tmp_path, ("k",), lambda rows: rows, 0), 1000))
