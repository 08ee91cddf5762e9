from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from replitree.errors import BadInput, InvalidName, UnsupportedFormat
from replitree.storage.schema.definition import (
    TableDefinition,
    TableSettings,
    decode_definition,
    define_table,
    parse_transform,
)
from tests.storage.support import BENCH, EVERY_TYPE, bench_table


def test_a_definition_is_read_back_from_its_nodes() -> None:
    definition = define_table(
        "every_type",
        EVERY_TYPE,
        order_by=["d", "i64"],
        partition_by=["month(t)", "bucket(16, s)", "b"],
        settings=TableSettings(parts_max=5000, compression_level=3),
    )
    assert decode_definition(definition.encode_metadata(), definition.encode_columns()) == definition


def test_an_arrow_schema_and_ddl_define_the_same_table() -> None:
    schema = pa.schema([pa.field("k", pa.uint32(), nullable=False), ("s", pa.dictionary(pa.int8(), pa.large_string()))])
    by_arrow = define_table("t", schema, table_id="0" * 32)
    assert by_arrow == define_table("t", "k bigint not null, s string", table_id="0" * 32)
    assert by_arrow.arrow_schema.equals(pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string())]))


def test_key_columns_are_those_of_order_and_partition_once_each() -> None:
    definition = define_table("t", BENCH, order_by=["k", "d"], partition_by=["month(d)", "truncate(2,s)"])
    assert definition.key_columns == ("k", "d", "s")
    assert define_table("t", BENCH, order_by="k, `d`").order_by == ("k", "d")
    assert define_table("t", "`k desc` int", order_by="k desc").order_by == ("k desc",)
    assert definition.folder_name == f"t-{definition.table_id[:8]}"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a-b", "1a", "ä", "a" * 101, "a.b", "a b", "_a", "a\n"])
def test_bad_table_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="can't be a table's name"):
        define_table(name, BENCH)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"order_by": "z"}, "no column 'z'"),
        ({"order_by": ["k", "k"]}, "twice"),
        ({"order_by": "d, k desc"}, "ascending order: leave out 'desc'"),
        ({"order_by": ["k ASC"]}, "ascending order: leave out 'ASC'"),
        ({"schema": "a array<int>", "order_by": "a"}, "has no order"),
        ({"partition_by": "month(z)"}, "no column 'z'"),
        ({"partition_by": "month(k)"}, "use a date"),
        ({"partition_by": "hour(d)"}, "use a timestamp"),
        ({"partition_by": "v"}, "floating"),
        ({"partition_by": "bucket(v)"}, "takes a number"),
        ({"partition_by": "bucket(0,k)"}, "must be 1"),
        ({"partition_by": "bucket(4,v)"}, "can't take"),
        ({"partition_by": "truncate(3,d)"}, "can't take"),
        ({"partition_by": ["month(d)", "month(d)"]}, "twice"),
        ({"partition_by": "week(d)"}, "not a partition transform"),
        ({"partition_by": ["d"] * 9}, "at most 8"),
        ({"settings": TableSettings(parts_delay=10, parts_max=5)}, "must not be above"),
        ({"settings": TableSettings(parts_max=0)}, "above 0"),
        ({"settings": TableSettings(compression_level=23)}, "1 to 22"),
        ({"schema": "a int, A int"}, "upper from lower"),
        ({"schema": "` a` int"}, "column's name"),
        ({"schema": pa.schema([])}, "1 to 2000 columns"),
        ({"schema": pa.schema([("t", pa.time32("s"))])}, "column 't'"),
        ({"schema": 17}, "a schema is"),
        ({"table_id": "x"}, "table id"),
    ],
)
def test_bad_definitions_are_refused_with_a_hint(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        define_table("t", **{"schema": BENCH, **options})


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("d", "identity(d)"),
        ("Months(d)", "month(d)"),
        ("truncate( 10 , `a b`)", "truncate(10,`a b`)"),
        ("`a,b`", "identity(`a,b`)"),
    ],
)
def test_transforms_are_read_as_people_write_them(text: str, plain: str) -> None:
    transform = parse_transform(text)
    assert transform.text == plain
    assert parse_transform(plain) == transform


def _nodes(definition: TableDefinition) -> tuple[bytes, bytes]:
    return definition.encode_metadata(), definition.encode_columns()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"format":1', b'"format":8'),
        (b'"settings":{', b'"storage":"tiered(file:///x)","settings":{'),
        (b'"order_by":["k"]', b'"order_by":["gone"]'),
        (b'"month(d)"', b'"week(d)"'),
        (b'"settings":{', b'"settings":{"later":1,'),
        (b"{", b"["),
        (b'"name":"bench"', b'"name":"../x"'),
    ],
)
def test_a_definition_that_is_not_understood_is_refused(old: bytes, new: bytes) -> None:
    metadata, columns = _nodes(bench_table())
    with pytest.raises(UnsupportedFormat):
        decode_definition(metadata.replace(old, new, 1), columns)


def test_columns_of_a_newer_format_or_type_are_refused() -> None:
    metadata, columns = _nodes(bench_table())
    for old, new in ((b'"format":1', b'"format":3'), (b'"double"', b'"variant"'), (b'"id":2', b'"id":1')):
        with pytest.raises(UnsupportedFormat):
            decode_definition(metadata, columns.replace(old, new, 1))


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("memory:///", "can't share"),
        ("s3://key:secret@lake/x", "credentials"),
        ("s3://lake/x?access_key=secret", "credentials"),
        ("ftp://lake", "no URL of an object store"),
        ("disk", "no URL of an object store"),
    ],
)
def test_a_storage_policy_that_replicas_can_not_share_is_refused(storage: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        define_table("t", "k bigint", storage=storage)
    assert "secret" not in str(refused.value).replace("AWS_SECRET_ACCESS_KEY", "")


def test_a_table_is_on_local_disks_unless_it_says_otherwise() -> None:
    assert define_table("t", "k bigint").storage == "local"
    assert b"storage" not in define_table("t", "k bigint").encode_metadata()
    assert define_table("t", "k bigint", storage="file:///mnt/lake").is_shared
