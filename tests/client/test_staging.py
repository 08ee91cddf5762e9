from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from replitree.errors import SchemaMismatch
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts.conform import conform
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite import slices as slices_module
from replitree.storage.rewrite.read import read_parts
from replitree.storage.rewrite.slices import Slice, cut, is_stream
from replitree.storage.rewrite.staging import SliceStager, stage_slices
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.sql.evolve import AddColumn, Alter, DropColumn, RenameColumn, apply_alter

DEFINITION = define_table("t", "d date, k bigint not null, s string", order_by=["k"], partition_by=["month(d)"])


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    days = pa.array([17_532 + (k * 7) % 90 for k in numbers], pa.int32()).cast(pa.date32())
    return pa.table(
        {
            "d": days,
            "k": pa.array([-k for k in numbers], pa.int64()),
            "s": [f"s{k}" if k % 3 else None for k in numbers],
        },
        schema=DEFINITION.arrow_schema,
    )


def read(folder: Path, manifest: PartManifest, definition: TableDefinition = DEFINITION) -> pa.Table:
    part = folder / manifest.partition
    (part / "manifest.json").write_bytes(manifest.encode())
    return read_parts([part], definition)


def test_slices_become_one_part_per_partition_with_the_hash_of_all_rows(tmp_path: Path) -> None:
    pieces = [Slice(rows(start, 50), last=False) for start in (0, 50, 100)]
    manifests = stage_slices(iter(pieces), DEFINITION, tmp_path / "u")
    assert [manifest.partition for manifest in manifests] == ["2018-01", "2018-02", "2018-03"]
    assert sum(manifest.rows for manifest in manifests) == 150
    assert {path.name for path in (tmp_path / "u").iterdir()} == {"2018-01", "2018-02", "2018-03"}
    for manifest in manifests:
        found = read(tmp_path / "u", manifest)
        assert manifest.content_hash == content_hash(found, DEFINITION.arrow_schema)
        assert manifest.rows == found.num_rows
        keys = found["k"].to_pylist()
        assert (manifest.columns["k"].min, manifest.columns["k"].max) == (min(keys), max(keys))
        for file in manifest.files:
            assert file.checksum == file_checksum(tmp_path / "u" / manifest.partition / file.name)


def test_each_slice_is_a_sorted_run_of_its_own(tmp_path: Path) -> None:
    stager = SliceStager(DEFINITION, tmp_path)
    stager.add(rows(0, 200))
    stager.add(rows(200, 200))
    manifest = stager.finish()[0]
    found = read(tmp_path, manifest)["k"].to_pylist()
    first = manifest.files[0].rows
    assert found[:first] == sorted(found[:first])
    assert found[first:] == sorted(found[first:])


def test_one_slice_is_staged_as_storage_does_it(tmp_path: Path) -> None:
    (manifest,) = stage_slices(iter([Slice(rows(0, 3), last=True)]), DEFINITION, tmp_path / "u")[:1]
    assert manifest.files[0].name == "data-0.parquet"
    assert stage_slices(iter([]), DEFINITION, tmp_path / "v") == ()


@given(sizes=st.lists(st.integers(0, 30), max_size=6), limit=st.integers(1, 25))
def test_slices_are_the_rows_in_their_order(sizes: list[int], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices_module, "SLICE_ROWS_MAX", limit)
        batches = [rows(sum(sizes[:i]), size).to_batches() for i, size in enumerate(sizes)]
        flat = [batch for some in batches for batch in some]
        whole = pa.Table.from_batches(flat, DEFINITION.arrow_schema)
        reader = pa.RecordBatchReader.from_batches(DEFINITION.arrow_schema, iter(flat))
        for pieces in (list(cut(reader, DEFINITION)), list(cut(whole, DEFINITION))):
            assert all(0 < piece.rows.num_rows <= limit for piece in pieces)
            assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True] * bool(pieces)
            joined = pa.concat_tables([DEFINITION.arrow_schema.empty_table(), *(piece.rows for piece in pieces)])
            assert joined.equals(whole)


def test_large_rows_make_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices_module, "SLICE_BYTES_MAX", 1000)
    pieces = list(cut(rows(0, 200), DEFINITION))
    assert len(pieces) > 3
    reader = pa.RecordBatchReader.from_batches(DEFINITION.arrow_schema, iter(rows(0, 200).to_batches()))
    assert all(piece.rows.nbytes <= 1500 for piece in cut(reader, DEFINITION))


def test_streams_are_told_from_data_in_memory() -> None:
    table = rows(0, 3)
    assert not is_stream(table)
    assert not is_stream(table.to_batches()[0])
    assert not is_stream({"k": [1]})
    assert is_stream(table.to_reader())


def test_wrong_columns_are_an_error_even_without_rows() -> None:
    with pytest.raises(SchemaMismatch):
        list(cut(pa.table({"x": pa.array([], pa.int64())}), DEFINITION))
    with pytest.raises(SchemaMismatch):
        list(cut(pa.table({"x": pa.array([], pa.int64())}).to_reader(), DEFINITION))


def test_slices_of_an_altered_table_have_its_stored_names(tmp_path: Path) -> None:
    some = (RenameColumn("k", "id"), RenameColumn("d", "day"), DropColumn("s"), AddColumn("s", "int", default=7))
    altered = apply_alter(DEFINITION, Alter(some))
    pieces = [
        piece.rows.select(["d", "k"]).rename_columns(["day", "id"]) for piece in (Slice(rows(0, 40), last=False),)
    ]
    both = [Slice(conform(piece, altered), last=False) for piece in (*pieces, *pieces)]
    manifests = stage_slices(iter(both), altered, tmp_path / "u")
    assert {manifest.schema_version for manifest in manifests} == {2}
    assert set(manifests[0].columns) == {"k", "d"}
    found = pa.concat_tables([read(tmp_path / "u", manifest, altered) for manifest in manifests])
    assert sorted(found["id"].to_pylist()) == sorted([-k for k in range(40)] * 2)
    assert set(found["s"].to_pylist()) == {7}
