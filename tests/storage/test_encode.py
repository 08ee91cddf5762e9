from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from replitree.errors import BadInput, StoreError
from replitree.storage.files import durable
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts import encode
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.encodings import choose_encodings, leaf_types, leaves
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest, read_manifest
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import TableDefinition, define_table
from tests.storage.support import arrays, bench_table


def _rows(definition: TableDefinition, rows: int, **columns: Any) -> pa.Table:
    fields = {
        "d": pa.array(np.full(rows, 17532, np.int32)).cast(pa.date32()),
        "k": np.arange(rows),
        "v": np.arange(rows) / 3,
    }
    fields |= {"s": pa.array([f"r{i}" for i in range(rows)], pa.string()), **columns}
    return pa.table(fields).cast(definition.arrow_schema)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=arrays())
def test_values_of_every_type_come_back_from_disk(array: pa.Array, tmp_path_factory: pytest.TempPathFactory) -> None:
    definition = define_table("t", pa.schema([("c", array.type)]))
    table = pa.table({"c": array}).cast(definition.arrow_schema)
    folder = tmp_path_factory.mktemp("staged")
    parts = stage_table(table, definition, folder / "s1", sync=False)
    found = read_parts([folder / "s1" / part.partition for part in parts], definition)
    assert found.schema.equals(definition.arrow_schema)
    assert repr(found.column("c").to_pylist()) == repr(table.column("c").to_pylist())
    assert all(part.content_hash == content_hash(found, definition.arrow_schema) for part in parts)


def test_a_staged_part_is_what_its_manifest_says(tmp_path: Path) -> None:
    definition = bench_table()
    table = _rows(definition, 1000)
    shuffled = table.take(np.random.default_rng(1).permutation(1000))
    (part,) = stage_table(shuffled, definition, tmp_path / "s1")
    folder = tmp_path / "s1" / "2018-01"
    assert read_manifest(folder) == part
    assert (part.partition, part.partition_values, part.rows) == ("2018-01", (576,), 1000)
    (file,) = part.files
    assert file.checksum == file_checksum(folder / file.name)
    assert file.bytes == part.bytes == (folder / file.name).stat().st_size
    assert part.content_hash == content_hash(table, definition.arrow_schema)
    assert read_parts([folder], definition).equals(table)


def test_each_partition_becomes_a_part(tmp_path: Path) -> None:
    definition = bench_table(partition_by=["bucket(3,k)"])
    table = _rows(definition, 100)
    parts = stage_table(table, definition, tmp_path / "s1")
    assert [part.partition for part in parts] == ["0", "1", "2"]
    assert sum(part.rows for part in parts) == 100
    found = read_parts([tmp_path / "s1" / part.partition for part in parts], definition)
    assert found.sort_by("k").equals(table)


def test_no_rows_make_no_part(tmp_path: Path) -> None:
    definition = bench_table()
    assert stage_table(definition.arrow_schema.empty_table(), definition, tmp_path / "s1") == ()


def test_a_large_part_is_cut_where_row_groups_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "FILE_ROWS_MIN", 1000)
    monkeypatch.setattr(encode, "MEMORY_BYTES_MAX", 1000)
    from replitree.storage.schema.definition import TableSettings

    definition = bench_table(settings=TableSettings(row_group_rows=300))
    table = _rows(definition, 3500)
    (part,) = stage_table(table, definition, tmp_path / "s1", files_max=3)
    assert [file.rows for file in part.files] == [1200, 1200, 1100]
    folder = tmp_path / "s1" / part.partition
    assert [file.checksum for file in part.files] == [file_checksum(folder / file.name) for file in part.files]
    assert read_parts([folder], definition).equals(table)
    assert pq.read_metadata(folder / "data-0.parquet").num_row_groups == 4
    (one,) = stage_table(table, definition, tmp_path / "s2", files_max=1)
    assert one.content_hash == part.content_hash
    assert len(one.files) == 1


def test_equal_rows_make_equal_parts_however_they_come(tmp_path: Path) -> None:
    definition = bench_table()
    table = _rows(definition, 5000)
    chunked = pa.concat_tables([table.slice(start, 7) for start in range(0, 5000, 7)])
    one, other = (stage_table(t, definition, tmp_path / name) for t, name in ((table, "a"), (chunked, "b")))
    assert one == other


def test_files_have_what_readers_prune_by(tmp_path: Path) -> None:
    definition = bench_table()
    stage_table(_rows(definition, 10_000), definition, tmp_path / "s1")
    metadata = pq.read_metadata(tmp_path / "s1" / "2018-01" / "data-0.parquet")
    key = metadata.row_group(0).column(1)
    assert key.statistics.min == 0
    assert key.statistics.max == 9999
    assert key.compression == "ZSTD"
    assert key.has_column_index
    assert key.has_offset_index
    assert "DELTA_BINARY_PACKED" in key.encodings
    assert metadata.metadata is None  # no Arrow schema


def test_dictionaries_are_for_columns_that_repeat() -> None:
    definition = define_table(
        "t", "k bigint, s string, u string, l array<string>, p map<string,int>, r struct<a: string>", order_by="k"
    )
    rows = 10_000
    repeated = pa.array([f"v{i % 10}" for i in range(rows)])
    table = pa.table(
        {
            "k": np.arange(rows),
            "s": repeated,
            "u": [str(i) for i in range(rows)],
            "l": [["x", "y"]] * rows,
            "p": pa.array([[("key", i)] for i in range(rows)], pa.map_(pa.string(), pa.int32())),
            "r": pa.StructArray.from_arrays([repeated], ["a"]),
        }
    ).cast(definition.arrow_schema)
    assert choose_encodings(table, definition) == (["s", "l.list.element", "p.key_value.key", "r.a"], ["k"])
    assert choose_encodings(table.slice(0, 100), definition) == ([], ["k"])


def test_a_column_whose_type_ends_at_two_gibibytes_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "COLUMN_BYTES_MAX", 1000)
    definition = bench_table()
    with pytest.raises(BadInput, match="insert in slices"):
        stage_table(_rows(definition, 1000), definition, tmp_path / "s1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_a_full_or_failing_disk_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, memory: int
) -> None:
    def refuse(descriptor: int, data: object) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(encode, "MEMORY_BYTES_MAX", memory)
    monkeypatch.setattr(durable, "write_all", refuse)
    definition = bench_table()
    with pytest.raises(StoreError, match="full" if code == errno.ENOSPC else "failing"):
        stage_table(_rows(definition, 10), definition, tmp_path / "s1")
    assert not (tmp_path / "s1" / "2018-01" / MANIFEST_FILE).exists()


def test_everything_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    import os

    real = os.fsync

    def record(descriptor: int) -> None:
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    definition = bench_table()
    parts = stage_table(_rows(definition, 10), definition, tmp_path / "s1")
    assert isinstance(parts[0], PartManifest)
    assert sorted(seen) == sorted(["data-0.parquet", MANIFEST_FILE, "2018-01", "s1", tmp_path.name])
    seen.clear()
    stage_table(_rows(definition, 10), definition, tmp_path / "s2", sync=False)
    assert seen == []


def test_a_column_with_nan_has_no_bounds_that_spark_would_prune_by(tmp_path: Path) -> None:
    definition = define_table("t", "v double, w double, r struct<f: float, g: float>, l array<double>")
    nan = float("nan")
    rows = [{"v": nan, "w": 1.0, "r": {"f": nan, "g": 1.0}, "l": [1.0, nan]}, {"v": 0.5}]
    table = pa.Table.from_pylist(rows, definition.arrow_schema)
    stage_table(table, definition, tmp_path / "s1")
    group = pq.read_metadata(tmp_path / "s1" / "all" / "data-0.parquet").row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    assert {c.path_in_schema: bool(c.is_stats_set) for c in columns} == {
        "v": False,
        "w": True,
        "r.f": False,
        "r.g": True,
        "l.list.element": False,
    }


@given(arrays())
def test_leaf_columns_have_the_paths_that_parquet_gives_them(array: pa.Array) -> None:
    table = pa.table({"c": array})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    found = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    paths = [found.column(number).path for number in range(len(found))]
    assert [path for path, _ in leaf_types("c", array.type)] == paths
    assert [path for path, _ in leaves(table)] == paths
