from __future__ import annotations

import pyarrow as pa
import pytest

from replitree.client.change.command import CommandResult
from replitree.client.change.merge_schema import merge_schema, schema_of
from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter


class Altered:
    """A table in memory; `others` are alters that other writers make just before ours."""

    def __init__(self, *others: str) -> None:
        self.definition = define_table("t", "k bigint not null, v int, s string", order_by="k")
        self.statements: list[str] = []
        self._others = list(others)

    def refresh(self) -> TableDefinition:
        return self.definition

    def alter(self, sql: str) -> CommandResult:
        if self._others:
            self._apply(self._others.pop(0))
        self._apply(sql)
        self.statements.append(sql)
        version = self.definition.schema_version
        return CommandResult("x", 1, applied=True, finished=True, schema_version=version)

    def _apply(self, sql: str) -> None:
        self.definition = apply_alter(self.definition, parse_alter(sql, self.definition))


def test_missing_columns_are_added_and_narrow_ones_widened_by_one_alter() -> None:
    table = Altered()
    rows = pa.schema([("v", pa.int64()), ("k", pa.int64()), ("odd name", pa.list_(pa.string()))])
    assert merge_schema(table, rows) is not None
    assert table.statements == ["ALTER COLUMN v TYPE int64, ADD COLUMN `odd name` list<string>"]
    assert merge_schema(table, rows) is None


def test_column_that_somebody_else_adds_at_the_same_time_is_added_once() -> None:
    table = Altered("ADD COLUMN x bigint")
    assert merge_schema(table, pa.schema([("k", pa.int64()), ("x", pa.int32())])) is None
    assert table.statements == []
    assert table.definition.column("x").type == "int64"


def test_rows_that_no_alter_makes_fit_are_refused() -> None:
    table = Altered()
    with pytest.raises(SchemaMismatch):
        merge_schema(table, pa.schema([("k", pa.int64()), ("s", pa.int32())]))
    assert table.statements == []


def test_schema_is_that_of_the_rows() -> None:
    table = pa.table({"k": pa.array([1], pa.int64())})
    for data in (table, table.to_batches()[0], table.to_reader(), {"k": [1], "n": [None]}, [{"k": 1}]):
        assert schema_of(data).field("k").type == pa.int64()
    assert schema_of({"k": [1], "n": [None]}).names == ["k"]
    with pytest.raises(BadInput, match="can't be told"):
        schema_of({"k": [1, "a"]})
