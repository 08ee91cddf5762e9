"""What the text form of a type says without Arrow is what Arrow says of the type."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest

from replitree.errors import BadInput
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.type_kinds import (
    DECIMAL_PRECISION_MAX,
    MOMENTS,
    NESTED,
    NUMBERS,
    SIMPLE,
    WHOLE_NUMBERS,
    is_plain_text,
    kind_of,
)
from replitree.storage.schema.types import TYPE_NAMES, format_type, is_nested, parse_type

DECIMALS = [
    f"decimal({precision},{scale})" for precision in (1, 9, 10, 38) for scale in (0, 1, 9, 10, 38) if scale <= precision
]
INSIDE = ["list<string>", "struct<a:int64>", "map<string,int64>", "list<list<date>>"]
NO_TEXT_FORMS = [
    *(
        "",
        "bigint",
        "INT64",
        " int64",
        "int64 ",
        "int64\n",
        "array<string>",
        "timestamp",
        "timestamp[ms]",
        "timestamp[us, UTC]",
    ),
    *("decimal", "decimal(12)", "decimal(12, 2)", "decimal(012,2)", "decimal(12,02)", "decimal(39,0)", "decimal(0,0)"),
    *("decimal(2,3)", "decimal(١٢,2)", "set<string>", "`int64`"),
]


def test_the_simple_types_are_those_that_arrow_has_names_for() -> None:
    assert set(TYPE_NAMES.values()) == SIMPLE


@pytest.mark.parametrize("text", [*sorted(SIMPLE), *DECIMALS, *INSIDE])
def test_a_kind_is_what_arrow_says_of_the_type(text: str) -> None:
    arrow, kind = parse_type(text), kind_of(text)
    assert format_type(arrow) == text
    assert is_plain_text(text) == (not is_nested(arrow)) == (kind not in NESTED)
    kinds = pa.types
    assert (kind in WHOLE_NUMBERS) == kinds.is_integer(arrow)
    assert (kind in NUMBERS) == (kinds.is_integer(arrow) or kinds.is_floating(arrow) or kinds.is_decimal(arrow))
    assert (kind in MOMENTS) == (kinds.is_date(arrow) or kinds.is_timestamp(arrow))
    assert (kind == "timestamp") == kinds.is_timestamp(arrow)
    assert (kind == "boolean") == kinds.is_boolean(arrow)
    assert (kind == "string") == kinds.is_string(arrow)
    assert (kind == "binary") == kinds.is_binary(arrow)


@pytest.mark.parametrize("text", NO_TEXT_FORMS)
def test_no_other_text_is_taken_for_a_text_form(text: str) -> None:
    assert not is_plain_text(text)
    with suppress(BadInput):
        assert format_type(parse_type(text)) != text


def test_every_decimal_that_spark_has_is_known() -> None:
    for precision in range(1, DECIMAL_PRECISION_MAX + 1):
        assert all(is_plain_text(f"decimal({precision},{scale})") for scale in range(precision + 1))


def test_a_definition_with_plain_columns_is_read_without_arrow() -> None:
    columns = ", ".join(f"`{text}` {text}" for text in [*sorted(SIMPLE), *DECIMALS])
    table = define_table(
        "t",
        f"{columns}, version bigint not null",
        order_by="date",
        partition_by="month(date), bucket(16,int64)",
        policy="replacing(version, boolean)",
    )
    program = (
        "import sys; from replitree.storage.schema.definition import decode_definition;"
        f" found = decode_definition({table.encode_metadata()!r}, {table.encode_columns()!r});"
        " print(len(found.columns), 'pyarrow' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(len(table.columns)), "False"]
