"""Pieces of one part become the part, without reading a row: its bounds hold, its hash is of the pieces."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from replitree.errors import BadInput
from replitree.storage.parts.content_hash import joined_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.joined import joined_manifest
from replitree.storage.parts.manifest import PartManifest, data_file, decode_manifest
from replitree.storage.parts.statistics import table_statistics
from replitree.storage.schema.definition import TableDefinition, define_table

SHARE = "a" * 32


@pytest.fixture
def definition() -> TableDefinition:
    return define_table("t", "k bigint, s string, x double", order_by=("k", "s", "x"))


def rows(keys: list[int | None], texts: list[str | None], numbers: list[float | None]) -> pa.Table:
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "s": pa.array(texts, pa.string()), "x": pa.array(numbers, pa.float64())}
    )


def pieces(definition: TableDefinition, folder: Path, *tables: pa.Table) -> list[PartManifest]:
    """Pieces as tasks put them: each has a name of its own for its file."""
    made = []
    for number, table in enumerate(tables):
        (manifest,) = stage_table(table, definition, folder / f"{number}", sync=False)
        (file,) = manifest.files
        named = msgspec.structs.replace(file, name=data_file(number))
        made.append(msgspec.structs.replace(manifest, files=(named,)).shared_as(SHARE))
    return made


TABLES = (
    rows([5, 9], ["b", "z" * 100], [0.5, 1.5]),
    rows([None, 7], ["a", None], [float("nan"), 2.0]),
    rows([None, None], [None, None], [None, None]),
)


def test_statistics_are_those_of_all_rows(definition: TableDefinition, tmp_path: Path) -> None:
    found = joined_manifest(pieces(definition, tmp_path, *TABLES))
    assert found.columns == table_statistics(pa.concat_tables(TABLES), definition)
    assert (found.columns["k"].min, found.columns["k"].max, found.columns["k"].nulls) == (5, 9, 3)
    assert (found.columns["x"].min, found.columns["x"].max) == (None, None), "NaN has no bounds"
    assert (found.rows, found.bytes) == (6, sum(file.bytes for file in found.files))
    assert [file.name for file in found.files] == ["data-0.parquet", "data-1.parquet", "data-2.parquet"]
    assert decode_manifest(found.encode()) == found


def test_one_piece_is_the_part(definition: TableDefinition, tmp_path: Path) -> None:
    (piece,) = pieces(definition, tmp_path, TABLES[0])
    assert joined_manifest([piece]) == piece


def test_the_hash_is_of_the_pieces_in_their_order(definition: TableDefinition, tmp_path: Path) -> None:
    first, second, _ = pieces(definition, tmp_path, *TABLES)
    assert joined_manifest([first, second]).content_hash == joined_hash([first.content_hash, second.content_hash])
    assert joined_manifest([first, second]).content_hash != joined_manifest([second, first]).content_hash


@pytest.mark.parametrize(
    "change", [{"partition": "other"}, {"share": "b" * 32}, {"schema_version": 2}, {"columns": {}}], ids=str
)
def test_pieces_of_different_parts_are_refused(
    definition: TableDefinition, tmp_path: Path, change: dict[str, object]
) -> None:
    first, second, _ = pieces(definition, tmp_path, *TABLES)
    with pytest.raises(BadInput, match="for one schema"):
        joined_manifest([first, msgspec.structs.replace(second, **change)])
