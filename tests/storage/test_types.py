from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from replitree.errors import BadInput
from replitree.storage.schema.spark_types import spark_type
from replitree.storage.schema.types import NESTING_MAX, format_type, list_of, parse_schema, parse_type, storable_type
from tests.storage.support import types


@given(types())
def test_every_type_is_read_back_from_its_text(arrow: pa.DataType) -> None:
    assert parse_type(format_type(arrow)).equals(arrow)
    assert storable_type(arrow).equals(arrow)


@given(types())
def test_every_type_is_read_back_from_the_name_that_spark_has_for_it(arrow: pa.DataType) -> None:
    assert parse_type(spark_type(arrow)).equals(arrow)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BIGINT", "int64"),
        ("long", "int64"),
        ("decimal", "decimal(10,0)"),
        ("Decimal( 5 , 2 )", "decimal(5,2)"),
        ("numeric(7)", "decimal(7,0)"),
        ("timestamp", "timestamp[us,UTC]"),
        ("timestamp_ntz", "timestamp[us]"),
        ("timestamp[ns, tz=Europe/Berlin]", "timestamp[us,UTC]"),
        ("timestamp[ms]", "timestamp[us]"),
        (
            "array<map<string, struct<a int, `b c`: double not null comment 'x'>>>",
            "list<map<string,struct<a:int32,`b c`:double>>>",
        ),
        ("uint32", "int64"),
    ],
)
def test_other_words_for_types_are_understood(text: str, expected: str) -> None:
    assert format_type(parse_type(text)) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("uint64", "decimal(20,0)"),
        ("varchar(10)", "use string"),
        ("interval", "is not a column type"),
        ("decimal(39,0)", "1 to 38"),
        ("decimal(5,6)", "after the point"),
        ("struct<>", "expected a name"),
        ("struct<a:int,A:int>", "two fields"),
        ("list<int", "at the end"),
        ("list<int>>", "left over"),
        ("", "at the end"),
        ("`int`", "is not a column type"),
        ("timestamp[h]", "not a unit"),
        ("decimal(x)", "expected a number"),
        ("int 'x", "unexpected"),
        ("list<" * (NESTING_MAX + 1) + "int" + ">" * (NESTING_MAX + 1), "levels"),
    ],
)
def test_what_is_no_type_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(BadInput, match=hint.replace("(", r"\(").replace(")", r"\)")):
        parse_type(text)


def test_a_schema_is_read_from_ddl() -> None:
    fields = parse_schema("d date NOT NULL COMMENT 'the day', `odd, name` array<bigint>, s: string")
    assert [(f.name, format_type(f.type), f.nullable) for f in fields] == [
        ("d", "date", False),
        ("odd, name", "list<int64>", True),
        ("s", "string", True),
    ]


@pytest.mark.parametrize("text", ["a", "a int,", "a int b int", "int<", ", a int", "a int comment x"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_schema(text)


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary(4), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.large_list(pa.int8()), list_of(pa.int8())),
        (pa.list_(pa.int8(), 3), list_of(pa.int8())),
        (pa.decimal256(20, 3), pa.decimal128(20, 3)),
        (pa.uuid(), pa.binary()),
        (pa.struct([pa.field("a", pa.uint8(), nullable=False)]), pa.struct([("a", pa.int16())])),
    ],
)
def test_arrow_types_become_the_column_types_that_hold_them(found: pa.DataType, stored: pa.DataType) -> None:
    assert storable_type(found).equals(stored)


@pytest.mark.parametrize(
    "arrow", [pa.uint64(), pa.null(), pa.time64("us"), pa.duration("s"), pa.month_day_nano_interval()]
)
def test_arrow_types_that_spark_has_not_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(BadInput):
        storable_type(arrow)
