from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replitree.errors import BadInput, CorruptPart, StoreError
from replitree.storage.files import durable
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts import encode
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import MANIFEST_FILE, data_file, read_manifest
from replitree.storage.parts.order import sort_rows
from replitree.storage.rewrite.merge import MergeCancelled, final_batches, merge_parts
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table
from replitree.storage.sql.evolve import AddColumn, Alter, DropColumn, RenameColumn, WidenColumn, apply_alter
from tests.examples import examples
from tests.storage.merging import final_rows, stage_all
from tests.storage.support import PLAIN_TYPES, types, values

MEMORY = 1 << 20
KEYED = define_table("t", "k bigint, s string", order_by="k")


def _rows(keys: list[Any], definition: TableDefinition = KEYED) -> pa.Table:
    texts = [f"{number}" for number in range(len(keys))]
    return pa.table({"k": pa.array(keys, pa.int64()), "s": texts}).cast(definition.arrow_schema)


@st.composite
def _tables(draw: st.DrawFn) -> tuple[TableDefinition, list[pa.Table]]:
    """A table with up to three key columns of any plain type and a payload of any type, and rows of some parts."""
    keys = draw(st.lists(st.sampled_from(PLAIN_TYPES), max_size=3))
    fields = [*((f"k{number}", arrow) for number, arrow in enumerate(keys)), ("p", draw(types())), ("n", pa.int64())]
    definition = define_table("t", pa.schema(fields), order_by=[name for name, _ in fields[:-2]])
    few = {name: draw(st.lists(values(arrow), min_size=1, max_size=4)) for name, arrow in fields[:-2]}
    drawn = {name: st.sampled_from(some) for name, some in few.items()} | {"p": values(fields[-2][1])}
    tables = draw(st.lists(st.lists(st.fixed_dictionaries(drawn), min_size=1, max_size=8), min_size=1, max_size=5))
    numbered = [[{**row, "n": 100 * part + i} for i, row in enumerate(rows)] for part, rows in enumerate(tables)]
    return definition, [pa.Table.from_pylist(rows, definition.arrow_schema) for rows in numbered]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(16))
@given(drawn=_tables(), memory=st.sampled_from([1, 1000, MEMORY]))
def test_a_merge_is_what_one_insert_of_all_the_rows_would_be(
    drawn: tuple[TableDefinition, list[pa.Table]], memory: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    definition, tables = drawn
    folder = tmp_path_factory.mktemp("merge")
    sources = stage_all(tables, definition, folder)
    found = merge_parts(sources, definition, folder / "m", memory_bytes=memory, sync=False)
    runs = [sort_rows(table, definition.order_by) for table in tables]
    (expected,) = stage_table(pa.concat_tables(runs), definition, folder / "e", sync=False)
    assert found.content_hash == expected.content_hash
    assert (found.rows, found.columns, found.partition) == (expected.rows, expected.columns, expected.partition)
    assert read_manifest(folder / "m" / "all") == found
    merged, written = (pq.ParquetFile(folder / name / "all" / data_file(0)) for name in ("m", "e"))
    assert merged.schema.equals(written.schema)
    assert merged.metadata.metadata is None
    if memory == MEMORY:
        assert merged.metadata.num_row_groups == 1
        assert _encodings(merged) == _encodings(written)
    assert file_checksum(folder / "m" / "all" / data_file(0)) == found.files[0].checksum


def _encodings(file: pq.ParquetFile) -> list[Any]:
    """Encodings and bounds of the leaf columns."""
    group = file.metadata.row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    return [(leaf.path_in_schema, leaf.encodings, leaf.compression, _bounds(leaf)) for leaf in leaves]


def _bounds(leaf: pq.ColumnChunkMetaData) -> Any:
    if leaf.physical_type in {"FLOAT", "DOUBLE"}:  # a merge leaves out those that it can't be sure of
        return None
    return (leaf.statistics.min_raw, leaf.statistics.max_raw) if leaf.statistics.has_min_max else None


def test_equal_keys_keep_the_order_of_the_parts(tmp_path: Path) -> None:
    definition = define_table("t", "k double, p int, n int", order_by="k")
    rng = np.random.default_rng(7)
    keys = np.array([0.0, -0.0, math.nan, 1.0, -1.0])
    tables = [
        pa.table({"k": keys[rng.integers(0, 5, 2000)], "p": [part] * 2000, "n": range(2000)}).cast(
            definition.arrow_schema
        )
        for part in range(6)
    ]
    sources = stage_all(tables, definition, tmp_path)
    merge_parts(sources, definition, tmp_path / "m", memory_bytes=60_000, sync=False)
    found = read_parts([tmp_path / "m" / "all"], definition).to_pydict()
    seen: dict[Any, tuple[int, int]] = {}
    for key, part, number in zip(found["k"], found["p"], found["n"], strict=True):
        name = "nan" if math.isnan(key) else key + 0.0
        assert seen.get(name, (-1, -1)) < (part, number)
        seen[name] = (part, number)
    assert sum(1 for _ in found["k"]) == 12_000


def test_without_an_order_key_parts_come_one_after_the_other(tmp_path: Path) -> None:
    definition = define_table("t", "k bigint, s string")
    tables = [_rows([3, 1], definition), _rows([2, None], definition)]
    sources = stage_all(tables, definition, tmp_path)
    merge_parts(sources, definition, tmp_path / "m", sync=False)
    assert read_parts([tmp_path / "m" / "all"], definition).equals(pa.concat_tables(tables))


def test_every_file_of_a_part_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "FILE_ROWS_MIN", 100)
    definition = define_table("t", "k bigint, s string", order_by="k", settings=TableSettings(row_group_rows=50))
    tables = [_rows(list(range(part, 1000, 3)), definition) for part in range(3)]
    sources = stage_all(tables, definition, tmp_path)
    assert len(read_manifest(sources[0]).files) == 2
    seen: list[int] = []
    found = merge_parts(sources, definition, tmp_path / "m", progress=seen.append, sync=False)
    assert read_parts([tmp_path / "m" / "all"], definition).column("k").to_pylist() == list(range(1000))
    assert pq.read_metadata(tmp_path / "m" / "all" / data_file(0)).row_group(0).num_rows == 50
    assert len(found.files) == 1
    assert seen == sorted(seen)
    assert seen[-1] == 1000


def test_the_rows_are_the_same_whatever_memory_there_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tables = [_rows(rng.integers(0, 500, 3000).tolist()) for _ in range(9)]
    sources = stage_all(tables, KEYED, tmp_path)
    expected = content_hash(
        sort_rows(pa.concat_tables([sort_rows(t, ["k"]) for t in tables]), ["k"]), KEYED.arrow_schema
    )
    found = {
        memory: merge_parts(sources, KEYED, tmp_path / f"m{memory}", memory_bytes=memory, sync=False).content_hash
        for memory in (50_000, 300_000, 64 << 20)
    }
    assert set(found.values()) == {expected}
    again = merge_parts(sources, KEYED, tmp_path / "again", memory_bytes=50_000, sync=False)
    assert again == read_manifest(tmp_path / "m50000" / "all")  # the same bytes, not only the same rows


# --- memory -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeated", [False, True], ids=["different keys", "one key"])
def test_memory_is_bounded_and_goes_back(tmp_path: Path, repeated: bool) -> None:
    definition = define_table(
        "t", "k bigint, v double, s string", order_by="k", settings=TableSettings(row_group_rows=8192)
    )
    rng = np.random.default_rng(1)
    rows = 60_000
    for part in range(6):
        keys = np.zeros(rows, np.int64) if repeated else rng.integers(0, 1 << 40, rows)
        texts = pa.array(rng.integers(0, 1 << 60, rows)).cast(pa.string())
        table = pa.table({"k": keys, "v": rng.random(rows), "s": texts}).cast(definition.arrow_schema)
        stage_table(table, definition, tmp_path / f"s{part}", sync=False)
        del table, texts, keys
    before = pa.total_allocated_bytes()
    peaks: list[int] = []
    merge_parts(
        [tmp_path / f"s{part}" / "all" for part in range(6)],
        definition,
        tmp_path / "m",
        memory_bytes=8 << 20,
        progress=lambda _: peaks.append(pa.total_allocated_bytes() - before),
        sync=False,
    )
    assert len(peaks) > 10
    assert max(peaks) < 8 << 20  # all rows together take 14 MB
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_more_parts_than_can_be_read_side_by_side(tmp_path: Path) -> None:
    tables = [_rows([number, number + 300, number]) for number in range(150)]
    sources = stage_all(tables, KEYED, tmp_path)
    merge_parts(sources, KEYED, tmp_path / "m", memory_bytes=MEMORY, sync=False)
    found = read_parts([tmp_path / "m" / "all"], KEYED)
    expected = sort_rows(pa.concat_tables([sort_rows(table, ["k"]) for table in tables]), ["k"])
    assert found.equals(expected)
    assert sorted(path.name for path in (tmp_path / "m" / "all").iterdir()) == [data_file(0), MANIFEST_FILE]


def test_rows_too_wide_for_a_row_group_make_smaller_ones(tmp_path: Path) -> None:
    tables = [pa.table({"k": range(40), "s": ["x" * 20_000] * 40}).cast(KEYED.arrow_schema) for _ in range(3)]
    sources = stage_all(tables, KEYED, tmp_path)
    found = merge_parts(sources, KEYED, tmp_path / "m", memory_bytes=2 << 20, sync=False)
    assert found.rows == 120
    assert pq.read_metadata(tmp_path / "m" / "all" / data_file(0)).num_row_groups > 2


# --- what can go wrong ------------------------------------------------------------------------------------------------------


def test_a_merge_can_be_cancelled_before_every_window_and_leaves_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    sources = stage_all([_rows(rng.integers(0, 500, 1500).tolist()) for _ in range(3)], KEYED, tmp_path)
    asked = 0
    while True:
        limit, asked = asked, 0

        def cancelled(limit: int = limit) -> bool:
            nonlocal asked
            asked += 1
            return asked > limit

        try:
            merge_parts(sources, KEYED, tmp_path / "m", memory_bytes=80_000, cancelled=cancelled, sync=False)
        except MergeCancelled:
            assert not (tmp_path / "m").exists() or list((tmp_path / "m").iterdir()) == []
        else:
            break
    assert asked > 6
    assert read_manifest(tmp_path / "m" / "all").rows == 4500


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "no manifest"])
def test_a_damaged_source_is_named_and_nothing_is_written(tmp_path: Path, damage: str) -> None:
    sources = stage_all([_rows(list(range(100))) for _ in range(3)], KEYED, tmp_path)
    file = sources[1] / data_file(0)
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    if damage == "flipped":
        file.write_bytes(data)
    elif damage == "cut":
        os.truncate(file, 100)
    else:
        (file if damage == "missing" else sources[1] / MANIFEST_FILE).unlink()
    with pytest.raises(CorruptPart, match=r"s1/all"):
        merge_parts(sources, KEYED, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("damage", ["cut", "missing", "nonsense"])
def test_a_final_read_names_the_part_that_it_cannot_read(tmp_path: Path, damage: str) -> None:
    sources = stage_all([_rows(list(range(100))) for _ in range(3)], KEYED, tmp_path)
    file = sources[1] / data_file(0)
    if damage == "cut":
        os.truncate(file, 100)
    elif damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"PAR1" + b"\1" * 200 + file.read_bytes()[204:])
    with pytest.raises(CorruptPart, match=r"s1/all"):
        list(final_batches(sources, KEYED))


def test_a_full_disk_is_a_store_error_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = stage_all([_rows([1, 2]), _rows([1, 2])], KEYED, tmp_path)

    def refuse(descriptor: int, data: object) -> None:
        raise OSError(28, "refused")

    monkeypatch.setattr(durable, "write_all", refuse)
    with pytest.raises(StoreError, match="full"):
        merge_parts(sources, KEYED, tmp_path / "m")
    assert list((tmp_path / "m").iterdir()) == []


def test_a_part_whose_name_is_not_synced_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = stage_all([_rows([1, 2]), _rows([1, 2])], KEYED, tmp_path)

    def refuse(path: Path) -> None:
        raise OSError(5, "refused")

    monkeypatch.setattr(durable, "sync_folder", refuse)
    with pytest.raises(StoreError, match="failing"):
        merge_parts(sources, KEYED, tmp_path / "m")
    assert list((tmp_path / "m").iterdir()) == []


def test_parts_of_several_partitions_are_not_merged(tmp_path: Path) -> None:
    definition = define_table("t", "k bigint, s string", order_by="k", partition_by="k")
    sources = stage_all([_rows([1], definition), _rows([2], definition)], definition, tmp_path)
    with pytest.raises(BadInput, match="not of 2: 1, 2"):
        merge_parts(sources, definition, tmp_path / "m")
    with pytest.raises(BadInput, match="not of 0"):
        merge_parts([], definition, tmp_path / "m")


def test_everything_is_synced_and_the_part_before_what_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = stage_all([_rows([1]), _rows([2])], KEYED, tmp_path)
    seen: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    merge_parts(sources, KEYED, tmp_path / "m", prefix="merge.")
    assert set(seen[:3]) == {data_file(0), MANIFEST_FILE, "merge.all"}  # all at once
    assert seen[3:] == ["m", tmp_path.name]
    seen.clear()
    merge_parts(sources, KEYED, tmp_path / "n", sync=False)
    assert seen == []


# --- policies and final reads -----------------------------------------------------------------------------------------------

SUMMING = define_table("t", "k bigint, v bigint, s string, n int", order_by="k", policy="summing(v)")
REPLACING = define_table("t", "k bigint, v bigint, s string, n int", order_by="k", policy="replacing(v)")


@pytest.mark.parametrize("definition", [SUMMING, REPLACING], ids=lambda definition: definition.policy.text)
@pytest.mark.parametrize("memory", [40_000, 64 << 20])
def test_a_policy_gives_the_same_rows_merged_final_and_streamed(
    tmp_path: Path, definition: TableDefinition, memory: int
) -> None:
    rng = np.random.default_rng(5)
    tables = [
        pa.table(
            {
                "k": rng.integers(0, 700, 2000),
                "v": rng.integers(-2, 3, 2000),
                "s": [f"{part}"] * 2000,
                "n": range(2000),
            }
        ).cast(definition.arrow_schema)
        for part in range(5)
    ]
    sources = stage_all(tables, definition, tmp_path)
    found = merge_parts(sources, definition, tmp_path / "m", memory_bytes=memory, sync=False)
    merged = read_parts([tmp_path / "m" / "all"], definition)
    assert merged.equals(final_rows(tables, definition))
    assert 0 < found.rows <= 700
    streamed = pa.Table.from_batches(final_batches(sources, definition, memory_bytes=memory))
    assert streamed.equals(merged)
    one = pa.Table.from_batches(final_batches(sources, definition, ["s"], memory_bytes=memory))
    assert one.equals(merged.select(["s"]))
    with pytest.raises(BadInput, match="at least one column"):
        next(final_batches(sources, definition, []))
    assert found.columns["k"].low == merged.column("k")[0].as_py()


def test_summing_is_the_same_merged_at_once_or_step_by_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    tables = [
        pa.table({"k": rng.integers(0, 9, 50), "v": rng.integers(1, 3, 50), "s": ["x"] * 50, "n": range(50)}).cast(
            SUMMING.arrow_schema
        )
        for _ in range(4)
    ]
    sources = stage_all(tables, SUMMING, tmp_path)
    merge_parts(sources[:2], SUMMING, tmp_path / "a", sync=False)
    merge_parts(sources[2:], SUMMING, tmp_path / "b", sync=False)
    steps = merge_parts([tmp_path / "a" / "all", tmp_path / "b" / "all"], SUMMING, tmp_path / "c", sync=False)
    once = merge_parts(sources, SUMMING, tmp_path / "d", sync=False)
    assert steps.content_hash == once.content_hash


def test_a_part_of_which_nothing_is_left_has_no_rows_and_can_be_merged_again(tmp_path: Path) -> None:
    row = {"k": 1, "v": 5, "s": "a", "n": 0}
    tables = [pa.Table.from_pylist([{**row, "v": v}], SUMMING.arrow_schema) for v in (5, -5, 7)]
    sources = stage_all(tables, SUMMING, tmp_path)
    empty = merge_parts(sources[:2], SUMMING, tmp_path / "m", sync=False)
    assert empty.rows == 0
    assert read_manifest(tmp_path / "m" / "all") == empty
    assert empty.content_hash == content_hash(SUMMING.arrow_schema.empty_table(), SUMMING.arrow_schema)
    assert read_parts([tmp_path / "m" / "all"], SUMMING).num_rows == 0
    again = merge_parts([tmp_path / "m" / "all", sources[2]], SUMMING, tmp_path / "n", sync=False)
    assert again.content_hash == read_manifest(sources[2]).content_hash
    assert list(final_batches([tmp_path / "m" / "all"], SUMMING)) == []


def test_infinities_that_make_nan_leave_no_bounds_that_spark_would_prune_by(tmp_path: Path) -> None:
    definition = define_table("t", "k int, x double, y double", order_by="k", policy="summing(x)")
    tables = [pa.table({"k": [1], "x": [x], "y": [1.0]}).cast(definition.arrow_schema) for x in (math.inf, -math.inf)]
    merge_parts(stage_all(tables, definition, tmp_path), definition, tmp_path / "m", sync=False)
    group = pq.read_metadata(tmp_path / "m" / "all" / data_file(0)).row_group(0)
    assert [bool(group.column(number).is_stats_set) for number in range(3)] == [True, False, True]
    assert math.isnan(read_parts([tmp_path / "m" / "all"], definition).column("x")[0].as_py())


def test_nan_in_one_source_is_nan_in_the_result(tmp_path: Path) -> None:
    definition = define_table("t", "k int, r struct<f: float, g: float>", order_by="k")
    tables = [
        pa.Table.from_pylist([{"k": 1, "r": {"f": f, "g": 1.0}}], definition.arrow_schema) for f in (1.0, math.nan)
    ]
    merge_parts(stage_all(tables, definition, tmp_path), definition, tmp_path / "m", sync=False)
    group = pq.read_metadata(tmp_path / "m" / "all" / data_file(0)).row_group(0)
    found = {group.column(i).path_in_schema: bool(group.column(i).is_stats_set) for i in range(3)}
    assert found == {"k": True, "r.f": False, "r.g": True}


# --- older schema versions --------------------------------------------------------------------------------------------------


def test_parts_of_older_schema_versions_become_parts_of_the_newest(tmp_path: Path) -> None:
    first = define_table("t", "k int, v int, gone string", order_by="k", policy="summing(v)")
    old = pa.table({"k": [1, 2], "v": [10, 20], "gone": ["x", "y"]}).cast(first.arrow_schema)
    second = apply_alter(first, Alter((AddColumn("extra", "double", default=0.5), DropColumn("gone"))))
    third = apply_alter(second, Alter((RenameColumn("v", "total"), WidenColumn("k", "bigint"))))
    third = apply_alter(third, Alter((WidenColumn("total", "bigint"),)))
    new = pa.table({"k": [2, 3], "total": [2**40, 1], "extra": [1.5, 2.5]}).cast(third.arrow_schema)
    sources = [*stage_all([old], first, tmp_path / "a"), *stage_all([new], third, tmp_path / "b")]
    found = merge_parts(sources, third, tmp_path / "m", sync=False)
    assert found.schema_version == third.schema_version
    rows = [(1, 10, 0.5), (2, 2**40 + 20, 0.5), (3, 1, 2.5)]
    expected = [dict(zip(("k", "total", "extra"), row, strict=True)) for row in rows]
    assert read_parts([tmp_path / "m" / "all"], third).to_pylist() == expected
    assert pa.Table.from_batches(final_batches(sources, third)).to_pylist() == expected
    some = pa.Table.from_batches(final_batches(sources, third, ["extra", "k"]))
    assert some.to_pylist() == [{"extra": row[2], "k": row[0]} for row in rows]
    with pytest.raises(StoreError, match="schema version"):
        merge_parts(sources, second, tmp_path / "n")
