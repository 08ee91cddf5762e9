"""Data files whose manifest is gone: written anew when they have the registered rows, and never otherwise."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from replitree.storage.disk.bare_files import write_anew
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.joined import joined_manifest
from replitree.storage.parts.manifest import SEALED_FORMAT, PartManifest, data_file, read_manifest
from replitree.storage.parts.part_folder import verify_files
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.sql.evolve import AddColumn, Alter, DropColumn, apply_alter

DEFINITION = define_table(
    "t", "k bigint not null, v double, s string", order_by="k", partition_by="truncate(100,k)", table_id="0" * 32
)
ROWS = pa.table(
    {
        "k": pa.array(range(9), pa.int64()),
        "v": pa.array([0.5, math.nan, None, -0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        "s": pa.array(["a", None, "ß", "", "b", "c", "d", "e", "f"]),
    }
)


def bare(folder: Path, rows: pa.Table = ROWS, definition: TableDefinition = DEFINITION) -> tuple[Path, PartManifest]:
    """Write a part and remove its manifest."""
    (manifest,) = stage_table(rows, definition, folder, sync=False)
    (folder / manifest.partition / "manifest.json").unlink()
    return folder / manifest.partition / "data-0.parquet", manifest


def anew(
    files: list[Path], manifest: PartManifest, folder: Path, definition: TableDefinition = DEFINITION
) -> PartManifest | None:
    """Write it anew; what is returned is in the folder, verified."""
    found = write_anew(files, manifest.partition, manifest.content, definition, folder)
    assert folder.exists() == (found is not None)
    if found is not None:
        assert read_manifest(folder) == found
        verify_files(folder, found)
    return found


def test_a_part_is_written_anew_of_its_data_file(tmp_path: Path) -> None:
    path, manifest = bare(tmp_path / "s")
    found = anew([path], manifest, tmp_path / "p")
    assert found is not None
    assert replace(found, files=manifest.files, bytes=manifest.bytes) == manifest
    rows = read_parts([tmp_path / "p"], DEFINITION)
    assert content_hash(rows, DEFINITION.arrow_schema) == manifest.content_hash
    assert rows.drop_columns("v").equals(ROWS.drop_columns("v").cast(rows.drop_columns("v").schema))


def test_a_part_of_an_earlier_version_is_written_anew_with_the_content_that_is_registered(tmp_path: Path) -> None:
    path, manifest = bare(tmp_path / "s")
    old = replace(manifest, format=SEALED_FORMAT)
    found = anew([path], old, tmp_path / "p")
    assert found is not None
    assert (found.format, found.content) == (SEALED_FORMAT, manifest.content_hash)


def test_the_schema_version_is_found_by_the_content(tmp_path: Path) -> None:
    path, manifest = bare(tmp_path / "s")
    altered = apply_alter(DEFINITION, Alter((AddColumn("w", "bigint"),)))
    altered = apply_alter(altered, Alter((DropColumn("w"),)))  # version 3 has the columns of version 1
    for definition, version in ((DEFINITION, 1), (altered, 1)):
        found = anew([path], manifest, tmp_path / f"p{definition.schema_version}", definition)
        assert found is not None
        assert found.schema_version == version
    path, manifest = bare(tmp_path / "s3", definition=altered)
    found = anew([path], manifest, tmp_path / "q", altered)
    assert found is not None
    assert found.schema_version == altered.schema_version == manifest.schema_version


@pytest.mark.parametrize("count", [2, 3, 11])
def test_files_are_taken_in_the_order_of_their_numbers(tmp_path: Path, count: int) -> None:
    pieces, files = [], list[Path]()
    for number in range(count):
        path, piece = bare(tmp_path / f"s{number}", ROWS.slice(number % 9, 1))
        name = data_file(number)
        pieces.append(replace(piece, files=(replace(piece.files[0], name=name),)))
        files.append(path.rename(tmp_path / name))
    manifest = joined_manifest(pieces)
    found = anew(sorted(files), manifest, tmp_path / "p")
    assert found is not None
    assert (found.content_hash, len(found.files)) == (manifest.content_hash, count)
    assert anew(files[1:], manifest, tmp_path / "q") is None


def test_other_rows_other_columns_and_damaged_files_are_not_taken_for_the_part(tmp_path: Path) -> None:
    path, manifest = bare(tmp_path / "s")
    assert anew([path], bare(tmp_path / "o", ROWS.slice(1))[1], tmp_path / "p") is None
    renamed = define_table(
        "t", "k bigint not null, u double, s string", order_by="k", partition_by="truncate(100,k)", table_id="0" * 32
    )
    assert anew([path], manifest, tmp_path / "p", renamed) is None
    good = path.read_bytes()
    for place in range(4, len(good), 97):
        data = bytearray(good)
        data[place] ^= 1
        path.write_bytes(data)
        found = anew([path], manifest, tmp_path / f"p{place}")
        assert found is None or found.content == manifest.content
    path.write_bytes(good[:-10])
    assert anew([path], manifest, tmp_path / "p") is None
