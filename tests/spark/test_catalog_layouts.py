"""Which parts of older columns Spark's scan reads, and what it is told of columns that files lack."""

from __future__ import annotations

import pytest

from replitree.spark.catalog.layouts import EXISTENCE_DEFAULT, INSERT_DEFAULT, field_metadata, unreadable
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter


def altered(*changes: str) -> TableDefinition:
    definition = define_table("t", "k bigint not null, v int, p struct<x: int>", order_by="k")
    for change in changes:
        definition = apply_alter(definition, parse_alter(change, definition))
    return definition


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ((), ""),
        (("ADD COLUMN w int DEFAULT 5",), ""),
        (("DROP COLUMN v",), ""),
        (("RENAME COLUMN v TO w",), "w"),
        (("ALTER COLUMN v TYPE bigint",), "v"),
        (("ADD COLUMN p.y int",), "p"),
        # The second v is another column, and files of the first version have the first one under that name.
        (("DROP COLUMN v", "ADD COLUMN v int"), "v"),
    ],
)
def test_altered_columns_are_named(changes: tuple[str, ...], found: str) -> None:
    definition = altered(*changes)
    assert unreadable(definition, {1, definition.schema_version}) == (
        f'columns that were altered ({found}): read by format("replitree")' if found else ""
    )


@pytest.mark.parametrize(
    ("kind", "default", "constant"),
    [
        ("int", "5", "CAST('5' AS int)"),
        ("boolean", "true", "true"),
        ("string", "'it\\'s'", "'it\\'s'"),
        ("decimal(10,2)", "1.5", "CAST('1.50' AS decimal(10,2))"),
        ("date", "date'2024-01-02'", "CAST('2024-01-02' AS date)"),
        ("binary", "X'0AFF'", "X'0aff'"),
        ("timestamp", "timestamp'2024-01-02 03:04:05'", "CAST('2024-01-02 03:04:05.000000+00:00' AS timestamp)"),
    ],
)
def test_added_column_shows_its_default_in_older_files(kind: str, default: str, constant: str) -> None:
    definition = altered(f"ADD COLUMN w {kind} DEFAULT {default}")
    assert field_metadata(definition.column("w")) == {EXISTENCE_DEFAULT: constant, INSERT_DEFAULT: constant}
    assert field_metadata(definition.column("k")) == {}


def test_defaults_of_inserts_and_of_older_files_are_two() -> None:
    definition = altered("ADD COLUMN w int DEFAULT 5", "ALTER COLUMN w SET DEFAULT 6", "ALTER COLUMN v SET DEFAULT 7")
    five, six, seven = (f"CAST('{number}' AS int)" for number in (5, 6, 7))
    assert field_metadata(definition.column("w")) == {EXISTENCE_DEFAULT: five, INSERT_DEFAULT: six}
    assert field_metadata(definition.column("v")) == {EXISTENCE_DEFAULT: "NULL", INSERT_DEFAULT: seven}
    assert field_metadata(altered("ADD COLUMN w int DEFAULT 5", "ALTER COLUMN w DROP DEFAULT").column("w")) == {
        EXISTENCE_DEFAULT: five
    }
