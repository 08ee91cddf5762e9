"""What `ALTER TABLE` is read as, and what it is not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.storage.schema.columns import Column
from replitree.storage.schema.types import format_type
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.defaults import sql_default
from replitree.storage.sql.evolve import (
    AddColumn,
    Change,
    DropColumn,
    DropDefault,
    DropNotNull,
    RenameColumn,
    SetDefault,
    WidenColumn,
    with_defaults,
)
from tests.storage.evolving import plain_default, table
from tests.storage.support import PLAIN_TYPES, values

READ: list[tuple[str, list[Change]]] = [
    ("ADD COLUMN x int DEFAULT 0", [AddColumn("x", "int32", default=0)]),
    ("alter table t add column x int", [AddColumn("x", "int32")]),
    ("ALTER TABLE `t` ADD x: bigint;", [AddColumn("x", "int64")]),
    ("add columns (x int8, `y z` string first)", [AddColumn("x", "int8"), AddColumn("y z", "string", first=True)]),
    (
        "add column x decimal(4,2) not null default -1.5 comment 'why' after k",
        [AddColumn("x", "decimal(4,2)", nullable=False, default="-1.50", after="k")],
    ),
    ("add column x string default 'it\\'s'", [AddColumn("x", "string", default="it's")]),
    ("add column x date default date'2018-01-31'", [AddColumn("x", "date", default=17562)]),
    ("add column x binary default X'0aff'", [AddColumn("x", "binary", default="0aff")]),
    ("add column x int default null", [AddColumn("x", "int32")]),
    ("add column x struct<a: int, b: array<string>>", [AddColumn("x", "struct<a:int32,b:list<string>>")]),
    ("drop column v", [DropColumn("v")]),
    ("drop columns (v, s)", [DropColumn("v"), DropColumn("s")]),
    ("rename column k to `the key`", [RenameColumn("k", "the key")]),
    ("alter column k type bigint", [WidenColumn("k", "int64")]),
    ("alter column k set data type bigint", [WidenColumn("k", "int64")]),
    ("alter column v set default 2.5", [SetDefault("v", 2.5)]),
    ("alter column v set default 1, alter column V drop default", [SetDefault("v", 1.0), DropDefault("V")]),
    ("alter column k drop not null", [DropNotNull("k")]),
    (
        "rename column v to w, add column v int, alter column v set default 3",
        [RenameColumn("v", "w"), AddColumn("v", "int32"), SetDefault("v", 3)],
    ),
]


@pytest.mark.parametrize(("text", "changes"), READ)
def test_statement_is_read(text: str, changes: list[Change]) -> None:
    assert list(parse_alter(text, table()).changes) == changes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at the end|expected ADD COLUMN"),
        ("truncate table t", "expected ADD COLUMN"),
        ("alter table u drop column v", "the table is t, not u"),
        ("add column x", "expected a type at the end"),
        ("add column x varchar(3)", "use string instead"),
        ("add column x int default", "expected a value at the end"),
        ("add column x int default v", "can't be the default"),
        ("add column x int default current_date()", "a DEFAULT is one constant"),
        ("add column x int default 'a' or 1=1", "can't be the default"),
        ("add column x double default double'NaN'", "a default is a number, not nan"),
        ("add column x int, y int", "expected ADD COLUMN"),
        ("drop column v cascade", "'cascade' is left over"),
        ("rename column v w", "expected 'to'"),
        ("alter column v", "expected TYPE"),
        ("alter column v set not null", "add another column NOT NULL with a DEFAULT, or copy"),
        ("add column x int default 1 + 1", "a DEFAULT is one constant, and no expression: write its value"),
        ("add column x int default (1 + 1) after v", "a DEFAULT is one constant"),
        ("add column x timestamp default now()", "a DEFAULT is one constant"),
        ("alter column v set default 2 -1", "a DEFAULT is one constant"),
        ("alter column z set default 1", "no column 'z'"),
        ("alter column v set default 'a'", "can't be the default of a float column"),
        ("alter column v set default null", "has no default"),
        ("add column x int; drop column v", "'int;' is not a column type"),
        ("add column x int -- comment", "left over"),
        ("x" * 100_001, "may have 100,000 characters"),
    ],
)
def test_statement_that_is_not_understood_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_alter(text, table())


def test_new_table_has_defaults_in_its_first_version() -> None:
    definition = with_defaults(table(), {"V": "2.5"})
    assert (definition.schema_version, definition.column("v").default) == (table().schema_version, 2.5)
    assert [column.name for column in definition.columns] == [column.name for column in table().columns]
    assert with_defaults(table(), {"v": "null"}) == table()
    for name, text, problem in (
        ("z", "1", "no column 'z'"),
        ("v", "'it''s'", "for a quote in a text"),
        ("v", "'", "quote"),
    ):
        with pytest.raises(BadInput, match=problem):
            with_defaults(table(), {name: text})


# --- defaults ---------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_default_is_the_value_that_was_given(data: st.DataObject) -> None:
    arrow = data.draw(st.sampled_from(PLAIN_TYPES))
    value = data.draw(values(arrow).filter(lambda v: not isinstance(v, float) or math.isfinite(v)))
    default = plain_default(value, format_type(arrow))
    if value is None:
        assert default is None
        return
    assert default is not None
    assert Column(1, "c", format_type(arrow), default=default).default_scalar.as_py() == value


@pytest.mark.parametrize(
    ("text", "type_text", "default"),
    [
        ("0", "bigint", 0),
        ("9223372036854775807", "bigint", 2**63 - 1),
        ("1e3", "int", 1000),
        ("0.1", "double", 0.1),
        ("-0.25", "float", -0.25),
        ("true", "boolean", True),
        ("timestamp'1970-01-01 00:00:01'", "timestamp", 1_000_000),
        ("timestamp'1970-01-01 00:00:01+01:00'", "timestamp", 1_000_000 - 3_600_000_000),
        ("'1970-01-01 00:00:01'", "timestamp_ntz", 1_000_000),
        ("'ab'", "binary", "6162"),
        ("1.5", "decimal(4,2)", "1.50"),
        ("null", "string", None),
    ],
)
def test_default_in_sql_gets_the_columns_type(text: str, type_text: str, default: Any) -> None:
    found = sql_default(text, type_text)
    assert (found, type(found)) == (default, type(default))


@pytest.mark.parametrize(
    ("text", "type_text"), [("1.234", "decimal(4,2)"), ("2.5", "int"), ("1e400", "double"), ("2^3", "int")]
)
def test_default_in_sql_that_would_be_rounded_is_refused(text: str, type_text: str) -> None:
    with pytest.raises(BadInput, match="default"):
        sql_default(text, type_text)
