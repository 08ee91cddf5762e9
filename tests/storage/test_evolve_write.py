"""Writers: defaults for what is left out, stored names in what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.errors import SchemaMismatch
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.sql.evolve import AddColumn, Alter, RenameColumn, SetDefault, apply_alter


def altered() -> TableDefinition:
    """Renamed order key and partition column; one column that may not be null and has a default."""
    one = define_table("t", "k bigint not null, v int", order_by="k", partition_by="truncate(10,v)")
    some = (RenameColumn("k", "id"), RenameColumn("v", "k"), AddColumn("n", "int", nullable=False, default=1))
    return apply_alter(one, Alter((*some, SetDefault("n", 2))))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"id": [1, 2], "k": [5, 6]}, [2, 2]),
        ({"id": [1, 2], "n": [8, 9]}, [8, 9]),
        ([{"id": 1, "n": 8}, {"id": 2}], [8, 2]),
        (pa.table({"id": [1, 2]}), [2, 2]),
        (pa.table({"id": pa.array([], pa.int64())}), []),
    ],
)
def test_what_an_insert_leaves_out_is_the_default(data: Any, shown: list[int]) -> None:
    rows = conform(data, altered())
    assert rows.schema.equals(altered().arrow_schema)
    assert rows["n"].to_pylist() == shown


def test_null_that_is_given_is_not_left_out() -> None:
    with pytest.raises(SchemaMismatch, match="may not be null"):
        conform([{"id": 1, "n": None}], altered())
    nullable = apply_alter(define_table("t", "k int"), Alter((AddColumn("n", "int", default=1),)))
    assert conform([{"k": 1, "n": None}, {"k": 2}, {}], nullable)["n"].to_pylist() == [None, 1, 1]
    assert conform([{}, {}], nullable).to_pylist() == [{"k": None, "n": 1}] * 2


def test_column_without_a_default_must_still_be_given() -> None:
    with pytest.raises(SchemaMismatch, match="'id' is missing"):
        conform({"n": [1]}, altered())
    with pytest.raises(SchemaMismatch, match="no column 'v'"):
        conform({"id": [1], "v": [1]}, altered())


def test_part_is_written_with_stored_names_in_everything(tmp_path: Path) -> None:
    definition = altered()
    rows = conform({"id": [3, 1, 2], "k": [14, 13, 12]}, definition)
    [part] = stage_table(rows, definition, tmp_path / "s1", sync=False)
    assert (part.partition, part.schema_version, set(part.columns)) == ("10", 2, {"k", "v"})
    assert (part.columns["k"].min, part.columns["k"].max) == (1, 3)
    file = tmp_path / "s1" / "10" / "data-0.parquet"
    assert pq.read_schema(file).names == ["k", "v", "n"]
    assert read_parts([file.parent], definition)["id"].to_pylist() == [1, 2, 3]
    [again] = stage_table(
        rows.rename_columns(definition.stored.arrow_schema.names), definition.stored, tmp_path / "s2", sync=False
    )
    assert again == part == read_manifest(file.parent)


def test_files_are_adopted_by_their_stored_names(tmp_path: Path) -> None:
    definition = altered()
    rows = conform({"id": [1, 2, 3], "k": [14, 13, 12]}, definition)
    [staged] = stage_table(rows, definition, tmp_path / "s1", sync=False)
    pq.write_table(rows.rename_columns(definition.stored.arrow_schema.names), tmp_path / "stored.parquet")
    pq.write_table(rows, tmp_path / "shown.parquet")
    adopted = adopt_files([tmp_path / "stored.parquet"], definition, tmp_path / "s2")
    assert (adopted.content_hash, adopted.columns, adopted.partition) == (
        staged.content_hash,
        staged.columns,
        staged.partition,
    )
    with pytest.raises(SchemaMismatch, match="column 'k': expected int64, found int32"):
        adopt_files([tmp_path / "shown.parquet"], definition, tmp_path / "s3")
