"""Expressions with the value that they have for each row of a table: what `evaluate` gives, and what Spark gives."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from replitree.storage.conform import conform
from replitree.storage.definition import define_table

DEFINITION = define_table(
    "t",
    "k bigint, i int, y tinyint, v double, f float, m decimal(12,2), w decimal(38,10), s string, z binary, d date, "
    "t timestamp, n timestamp_ntz, b boolean, l array<bigint>, r struct<a: int, u: struct<x: string>>",
)

NAN, INF = math.nan, math.inf


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


ROWS: dict[str, list[Any]] = {
    "k": [7, -7, 0, None],
    "i": [2, 2, -3, None],
    "y": [127, -128, 0, None],
    "v": [1.5, NAN, -0.0, None],
    "f": [0.25, INF, -2.5, None],
    "m": [Decimal("12.34"), Decimal("-0.05"), Decimal("0.00"), None],
    "w": [Decimal("0.1"), Decimal("-12345678901234567890.5"), Decimal(3), None],
    "s": ["Ab c", "  x ", "", None],
    "z": [b"\x00ab", b"", b"\xff", None],
    "d": [dt.date(2018, 1, 31), dt.date(1969, 12, 31), dt.date(2000, 2, 29), None],
    "t": [
        _moment("2018-01-31T05:06:07.500000+00:00"),
        _moment("1969-12-31T23:59:59.999999+00:00"),
        _moment("1970-01-01T00:00:00+00:00"),
        None,
    ],
    "n": [
        _moment("2018-01-31T05:06:07.123450"),
        _moment("1969-12-31T00:00:00.000001"),
        _moment("2000-01-01T00:00:10"),
        None,
    ],
    "b": [True, False, True, None],
    "l": [[1, None], [], None, None],
    "r": [{"a": 1, "u": {"x": "in"}}, {"a": None, "u": None}, None, None],
}


def batch() -> pa.RecordBatch:
    """The rows, in one batch."""
    [found] = conform(pa.table(ROWS, schema=DEFINITION.arrow_schema), DEFINITION).combine_chunks().to_batches()
    return found


def _decimals(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


VALUES: list[tuple[str, str, list[Any] | str]] = [
    # literals
    ("1", "int", [1] * 4),
    ("-128Y", "tinyint", [-128] * 4),
    ("1L", "bigint", [1] * 4),
    ("-9223372036854775808", "bigint", [-(2**63)] * 4),
    ("2147483648", "bigint", [2**31] * 4),
    ("1.50", "decimal(12,2)", _decimals(*["1.50"] * 4)),
    ("1.5D", "double", [1.5] * 4),
    ("15e-1", "double", [1.5] * 4),
    ("'it\\'s'", "string", ["it's"] * 4),
    ("X'00ff'", "binary", [b"\x00\xff"] * 4),
    ("date'2018-01-31'", "date", [dt.date(2018, 1, 31)] * 4),
    ("timestamp'2018-01-31 05:06:07.5'", "timestamp", [ROWS["t"][0]] * 4),
    ("timestamp_ntz'2018-01-31 05:06:07'", "timestamp_ntz", [_moment("2018-01-31T05:06:07")] * 4),
    ("true", "boolean", [True] * 4),
    ("null", "string", [None] * 4),
    # columns
    ("K", "bigint", ROWS["k"]),
    ("`s`", "string", ROWS["s"]),
    ("r.a", "int", [1, None, None, None]),
    ("r.u.x", "string", ["in", None, None, None]),
    ("l", "array<bigint>", ROWS["l"]),
    ("r", "struct<a: int, u: struct<x: string>>", ROWS["r"]),
    # integers
    ("k + 1", "bigint", [8, -6, 1, None]),
    ("k - i", "bigint", [5, -9, 3, None]),
    ("k * i", "bigint", [14, -14, 0, None]),
    ("y + 1", "int", [128, -127, 1, None]),
    ("-k", "bigint", [-7, 7, 0, None]),
    ("k + null", "bigint", [None] * 4),
    ("k / i", "double", [3.5, -3.5, -0.0, None]),
    ("k % i", "bigint", [1, -1, 0, None]),
    ("k % -1", "bigint", [0, 0, 0, None]),
    ("(-9223372036854775807 - 1) % (k * 0 - 1)", "bigint", [0, 0, 0, None]),
    ("i % 2 * 3 + 1", "int", [1, 1, -2, None]),
    ("k / 0", "double", "division by zero"),
    # floating point
    ("v + 1", "double", [2.5, NAN, 1.0, None]),
    ("v * f", "double", [0.375, NAN, 0.0, None]),
    ("f + i", "double", [2.25, INF, -5.5, None]),
    ("f + f", "float", [0.5, INF, -5.0, None]),
    ("f / 4", "double", [0.0625, INF, -0.625, None]),
    ("-v", "double", [-1.5, NAN, 0.0, None]),
    ("f % 2", "double", [0.25, NAN, -0.5, None]),
    ("m * 1e0", "double", [12.34, -0.05, 0.0, None]),
    # decimals
    ("m + 1", "decimal(12,2)", _decimals("13.34", "0.95", "1.00", None)),
    ("m - 0.005", "decimal(12,2)", _decimals("12.34", "-0.06", "-0.01", None)),
    ("m * 1.1", "decimal(15,3)", _decimals("13.574", "-0.055", "0.000", None)),
    ("m * 1.1", "decimal(12,2)", _decimals("13.57", "-0.06", "0.00", None)),
    ("m / 3", "decimal(15,6)", _decimals("4.113333", "-0.016667", "0.000000", None)),
    ("m / 0.06", "decimal(12,2)", _decimals("205.67", "-0.83", "0.00", None)),
    ("2 / m", "decimal(20,6)", "division by zero"),
    ("m % 5", "decimal(12,2)", _decimals("2.34", "-0.05", "0.00", None)),
    ("m % -0.03", "decimal(12,2)", _decimals("0.01", "-0.02", "0.00", None)),
    ("k + m", "decimal(22,2)", _decimals("19.34", "-7.05", "0.00", None)),
    ("-m", "decimal(12,2)", _decimals("-12.34", "0.05", "0.00", None)),
    ("w * 1.5", "decimal(38,10)", _decimals("0.15", "-18518518351851851835.75", "4.5", None)),
    ("w / 7", "decimal(38,6)", _decimals("0.014286", "-1763668414462081127.214286", "0.428571", None)),
    # strings
    ("s || '!'", "string", ["Ab c!", "  x !", "!", None]),
    ("concat(s, k, b)", "string", ["Ab c7true", "  x -7false", "0true", None]),
    ("s || null || 'x'", "string", [None] * 4),
    ("d || ' ' || i", "string", ["2018-01-31 2", "1969-12-31 2", "2000-02-29 -3", None]),
    ("upper(s)", "string", ["AB C", "  X ", "", None]),
    ("lower(s)", "string", ["ab c", "  x ", "", None]),
    ("trim(s)", "string", ["Ab c", "x", "", None]),
    ("ltrim(s)", "string", ["Ab c", "x ", "", None]),
    ("rtrim(s)", "string", ["Ab c", "  x", "", None]),
    ("trim(LEADING FROM s)", "string", ["Ab c", "x ", "", None]),
    ("trim('\\tx \\n ')", "string", ["\tx \n"] * 4),
    ("length(s)", "int", [4, 4, 0, None]),
    ("length(z)", "int", [3, 0, 1, None]),
    ("length('äöü€😀')", "int", [5] * 4),
    ("upper('äöé')", "string", ["ÄÖÉ"] * 4),
    ("upper(null)", "string", [None] * 4),
    # branches
    ("coalesce(k, 5)", "bigint", [7, -7, 0, 5]),
    ("coalesce(null, r.a, i, 9)", "int", [1, 2, -3, 9]),
    ("nvl(m, 1)", "decimal(12,2)", _decimals("12.34", "-0.05", "0.00", "1.00")),
    ("coalesce(d, t)", "timestamp", [*(_moment(f"{day}T00:00:00+00:00") for day in ROWS["d"][:3]), None]),
    ("coalesce(k, 1 / 0)", "double", "division by zero"),
    ("coalesce(l, l)", "array<bigint>", ROWS["l"]),
    ("nullif(k, 0)", "bigint", [7, -7, None, None]),
    ("nullif(v, double('NaN'))", "double", [1.5, None, -0.0, None]),
    ("nullif(v, 0)", "double", [1.5, NAN, None, None]),
    ("nullif(m, 12.340)", "decimal(12,2)", _decimals(None, "-0.05", "0.00", None)),
    ("nullif(s, '')", "string", ["Ab c", "  x ", None, None]),
    ("nullif(null, 1)", "int", [None] * 4),
    ("10 / nullif(k, 0)", "double", [10 / 7, -10 / 7, None, None]),
    ("case when k > 0 then 'up' when k < 0 then 'down' end", "string", ["up", "down", None, None]),
    ("case k when 7 then 1 when 0 then 2 else 3 end", "int", [1, 3, 2, 3]),
    ("case when k = 0 then 0 else 14 / k end", "double", [2.0, -2.0, 0.0, None]),
    ("case when b then i else m end", "decimal(12,2)", _decimals("2", "-0.05", "-3", None)),
    ("case when s like '%x%' or d is null then l else array_is_not_here end", "array<bigint>", "no column"),
    ("case when k is null then l end", "array<bigint>", [None, None, None, None]),
    ("case when k = 7 then l when k = -7 then l end", "array<bigint>", [[1, None], [], None, None]),
    ("if(b, k, -k)", "bigint", [7, 7, 0, None]),
    # conditions
    ("k > 0", "boolean", [True, False, False, None]),
    ("not b", "boolean", [False, True, False, None]),
    ("k > 0 or b", "boolean", [True, False, True, None]),
    ("k is null", "boolean", [False, False, False, True]),
    ("s in ('', 'x')", "boolean", [False, False, True, None]),
    ("v between 0 and 2", "boolean", [True, False, True, None]),
    # casts
    ("cast(k as int)", "int", [7, -7, 0, None]),
    ("cast(v as int)", "int", "does not fit"),
    ("cast(f * 0 as bigint)", "bigint", "does not fit"),
    ("cast(coalesce(nullif(v, double('NaN')), -1.9) as bigint)", "bigint", [1, -1, 0, -1]),
    ("cast(m as int)", "int", [12, 0, 0, None]),
    ("cast(m as double)", "double", [12.34, -0.05, 0.0, None]),
    ("cast(m as decimal(12,1))", "decimal(12,1)", _decimals("12.3", "-0.1", "0.0", None)),
    ("cast(w as decimal(12,2))", "decimal(12,2)", "does not fit"),
    ("k", "decimal(3,2)", _decimals("7", "-7", "0", None)),
    ("k * 2", "decimal(3,2)", "does not fit"),
    ("9007199254740993", "double", [9007199254740992.0] * 4),
    ("v", "float", [1.5, NAN, -0.0, None]),
    ("f", "int", "does not fit"),
    ("1.9", "int", [1] * 4),
    ("cast(b as int)", "int", [1, 0, 1, None]),
    ("cast(k as boolean)", "boolean", [True, True, False, None]),
    ("k", "string", ["7", "-7", "0", None]),
    ("b", "string", ["true", "false", "true", None]),
    ("d", "string", ["2018-01-31", "1969-12-31", "2000-02-29", None]),
    ("t", "string", ["2018-01-31 05:06:07.5", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", None]),
    ("n", "string", ["2018-01-31 05:06:07.12345", "1969-12-31 00:00:00.000001", "2000-01-01 00:00:10", None]),
    ("t", "date", [dt.date(2018, 1, 31), dt.date(1969, 12, 31), dt.date(1970, 1, 1), None]),
    ("n", "date", [dt.date(2018, 1, 31), dt.date(1969, 12, 31), dt.date(2000, 1, 1), None]),
    ("d", "timestamp", [*(_moment(f"{day}T00:00:00+00:00") for day in ROWS["d"][:3]), None]),
    ("t", "timestamp_ntz", [None if m is None else m.replace(tzinfo=None) for m in ROWS["t"]]),
    ("n", "timestamp", [None if m is None else m.replace(tzinfo=dt.UTC) for m in ROWS["n"]]),
    ("cast(' 12 ' as int)", "int", [12] * 4),
    ("cast('+12' as bigint)", "bigint", [12] * 4),
    ("cast('0x1F' as int)", "int", "not a"),
    ("cast('1.5' as int)", "int", "not a"),
    ("cast(s as int)", "int", "not a"),
    ("cast('300' as tinyint)", "tinyint", "does not fit"),
    ("cast('-1.5e3' as double)", "double", [-1500.0] * 4),
    ("cast('Infinity' as double)", "double", [INF] * 4),
    ("cast('.5' as double)", "double", [0.5] * 4),
    ("cast('x' as double)", "double", "not a"),
    ("cast('2018-02-28' as date)", "date", [dt.date(2018, 2, 28)] * 4),
    ("cast(concat('2018-02-', 28 + i) as date)", "date", "does not fit"),
    ("cast(concat('2018-02-2', i) as date)", "date", "not a"),
    ("cast('Yes' as boolean)", "boolean", [True] * 4),
    ("cast('0' as boolean)", "boolean", [False] * 4),
    ("cast('2' as boolean)", "boolean", "not a"),
    ("cast('ab' as binary)", "binary", [b"ab"] * 4),
    # what does not fit
    ("y + 1", "tinyint", "does not fit"),
    ("k + 9223372036854775807", "bigint", "does not fit"),
    ("i * 2147483647", "int", "does not fit"),
    ("-(-9223372036854775807 - k / k)", "bigint", "division by zero"),
    ("-y", "tinyint", "does not fit"),
    ("v / (k * 0)", "double", "division by zero"),
    ("k % (k * 0)", "bigint", "division by zero"),
    ("f % (v * 0)", "double", "division by zero"),
    ("m % 0", "decimal(12,2)", "division by zero"),
    ("w * 1e0", "decimal(38,10)", "is a double"),
]
"""Expression, type of the column that it is put into, and the values, or what the error says."""
