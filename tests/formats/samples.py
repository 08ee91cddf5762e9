"""What the frozen bytes hold: rows of every type, and a definition that uses everything."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table

FROZEN = Path(__file__).parent / "storage"

DEFINITION = define_table(
    "every_type",
    "b boolean not null, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, x double, m decimal(12,2), s string, "
    "y binary, d date, t timestamp, n timestamp_ntz, l array<string>, r struct<a: bigint, `odd name`: array<decimal(38,10)>>, "
    "p map<string, array<struct<q: timestamp, w: boolean>>>",
    order_by=["i64", "s"],
    partition_by=["month(t)", "bucket(16, s)", "b"],
    settings=TableSettings(parts_max=5000, compression_level=3),
    table_id="00112233445566778899aabbccddeeff",
)

FULL: dict[str, Any] = {
    "b": True,
    "i8": -128,
    "i16": 32767,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "f": 0.5,
    "x": -1e300,
    "m": Decimal("-1234567890.12"),
    "s": "größe",
    "y": b"\x00\xff",
    "d": dt.date(2018, 1, 31),
    "t": dt.datetime(2018, 1, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    "n": dt.datetime.fromisoformat("1969-12-31 23:59:59"),
    "l": ["a", None, ""],
    "r": {"a": -1, "odd name": [Decimal("0.0000000001"), None]},
    "p": [("k", [{"q": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "w": None}, None]), ("", None)],
}
EMPTY: dict[str, Any] = {"b": True, "l": [], "r": {"a": None, "odd name": []}, "p": [], "s": "größe", "t": FULL["t"]}
NULLS: dict[str, Any] = {"b": True, "s": "größe", "t": FULL["t"]}


def rows(definition: TableDefinition = DEFINITION) -> pa.Table:
    """All of one partition, in the order of the key."""
    return conform([NULLS, EMPTY, FULL], definition)
