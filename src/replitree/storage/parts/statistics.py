"""Statistics of a part's key and partition columns: bounds that hold for every row.

Guarantees: no value is below `min` or above `max`; a bound that JSON can't hold exactly is made wider or left out (None means
"not known"), never narrower.  A column of which every value is null has no bounds and as many nulls as rows.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from replitree.storage.files.whole_numbers import whole_numbers
from replitree.storage.parts.manifest import ColumnStats
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.types import format_type

STRING_CHARACTERS_MAX = 64
BINARY_BYTES_MAX = 64

_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def table_statistics(table: pa.Table, definition: TableDefinition) -> dict[str, ColumnStats]:
    """Give the statistics of the key and partition columns of the rows that a part holds."""
    return {
        name: column_statistics(table.column(name))
        for name in definition.key_columns
        if not pa.types.is_nested(table.schema.field(name).type)
    }


def column_statistics(values: pa.ChunkedArray) -> ColumnStats:
    """Give the statistics of one plain column."""
    collector = StatisticsCollector()
    collector.update(values)
    return collector.stats(values.type)


class StatisticsCollector:
    """Statistics of one plain column whose values come piece by piece."""

    def __init__(self) -> None:
        self._low: Any = None
        self._high: Any = None
        self._nulls = 0
        self._has_nan = False

    def update(self, values: pa.ChunkedArray) -> None:
        """Add values."""
        import pyarrow.compute as pc

        if not len(values):
            return
        # The minimum of whole numbers without nulls, without the cost of a kernel: most keys of small inserts.
        numbers = whole_numbers(values)
        if numbers is not None:
            self._widen(int(numbers.min()), int(numbers.max()))
            return
        self._nulls += values.null_count
        if values.null_count == len(values):
            return
        # Arrow's `min_max` passes over NaN: bounds would leave rows out.
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            self._has_nan = True
        ends = pc.min_max(values)
        self._widen(_value(ends["min"]), _value(ends["max"]))

    def _widen(self, low: Any, high: Any) -> None:
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def stats(self, arrow: pa.DataType) -> ColumnStats:
        """Give the statistics of all values so far."""
        kind = format_type(arrow)
        # NaN is above every number for Spark, and not comparable elsewhere: no bounds are right for both.
        if self._has_nan or self._low is None:
            return ColumnStats(kind, nulls=self._nulls)
        return ColumnStats(kind, lower_bound(self._low), upper_bound(self._high), self._nulls)


def _value(scalar: pa.Scalar) -> Any:
    # The stored number: Python's datetime ends at the year 9999.
    return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()


def lower_bound(value: Any) -> Scalar:
    """Give what stands in a manifest for a least value: the same or a lower one, or None."""
    if isinstance(value, str):
        return value[:STRING_CHARACTERS_MAX]
    if isinstance(value, bytes):
        return value[:BINARY_BYTES_MAX].hex()
    return _exact(value)


def upper_bound(value: Any) -> Scalar:
    """Give what stands in a manifest for a greatest value: the same or a higher one, or None."""
    if isinstance(value, str) and len(value) > STRING_CHARACTERS_MAX:
        # The least string of this length above everything that begins with the prefix: a bound may be wider, never narrower.
        prefix = value[:STRING_CHARACTERS_MAX]
        for end in range(len(prefix) - 1, -1, -1):
            following = ord(prefix[end]) + 1
            # Half a character: UTF-8 has no bytes for a surrogate.
            if following in _SURROGATES:
                following = _SURROGATES.stop
            if following <= _LAST_CHARACTER:
                return prefix[:end] + chr(following)
        return None
    if isinstance(value, bytes):
        if len(value) <= BINARY_BYTES_MAX:
            return value.hex()
        # Nothing of this length is above a prefix of 0xff only: then the bound is not known.
        kept = value[:BINARY_BYTES_MAX].rstrip(b"\xff")
        return (kept[:-1] + bytes([kept[-1] + 1])).hex() if kept else None
    return _exact(value)


def _exact(value: Any) -> Scalar:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    assert isinstance(value, bool | int | float | str)
    return value
