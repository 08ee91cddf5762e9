"""Partitions: which rows belong together, and what a partition is called.

Guarantees: every row is in exactly one partition; rows of one partition keep their order; the partitions come in the order of
their ids; equal partition values have one id and different ones different ids (up to a collision of 128-bit hashes).

A partition's id is the texts of its values, joined by ``-``.  Its characters are ``A-Z a-z 0-9 . ~ = + -``, at most 80, never
``_`` or ``/``, and it does not begin with a dot, so it is a safe name of a folder and of a node.  An unpartitioned table has
the one partition ``all``.

============================  =======================  =====================================================================
value                         text                     remark
============================  =======================  =====================================================================
null                          ``~null``                ``~`` begins nothing that is written plainly
year, month, day, hour        ``2018``, ``2018-01``,   as Iceberg writes them; a ``date`` as a day; each is of fixed width,
                              ``2018-01-31``,          so that its ``-`` joins nothing
                              ``2018-01-31-05``
timestamp                     ``2018-01-31T050607.1``  UTC, always with six digits after the point
integer, bucket, decimal      ``17``, ``~m17``         ``~m`` for minus
boolean                       ``true``, ``false``
string                        itself                   only if it has plain characters (``-`` only in the last value)
anything else                 ``~h`` and 32 digits     XXH3-128 of the value's canonical text
more than 80 characters       ``~w`` and 32 digits     XXH3-128 of the whole
============================  =======================  =====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from replitree.errors import BadInput
from replitree.storage.files.whole_numbers import whole_numbers
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition, Transform, TransformKind
from replitree.storage.schema.transforms import apply_transform

UNPARTITIONED = "all"
ID_CHARACTERS_MAX = 80
PLAIN_CHARACTERS_MAX = 40
"""Longer strings are hashed, so that most ids of several values stay readable."""

CODES_COUNTED_MAX = 1 << 20
"""Up to so many possible combinations are counted in a table; more are sorted."""

VALUES_REMEMBERED = 4096
"""Partition values, and texts of them, that are kept: small inserts go to the same few partitions again and again."""

_Numbers: TypeAlias = NDArray[np.int64]

_PLAIN = re.compile(r"[A-Za-z0-9=+][A-Za-z0-9.=+]*")
_PLAIN_LAST = re.compile(r"[A-Za-z0-9=+][A-Za-z0-9.=+-]*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONOTONIC = frozenset(TransformKind) - {TransformKind.BUCKET}


class PartitionRows(NamedTuple):
    """One partition of a table: its id, the values of the transforms, and its rows."""

    partition: str
    values: tuple[Scalar, ...]
    rows: pa.Table


def count_partitions(table: pa.Table, definition: TableDefinition) -> int:
    """Return how many partitions rows belong to, without splitting them.

    Parameters
    ----------
    table
        Rows in the definition's schema.

    Raises
    ------
    BadInput
        They are more than `partitions_per_insert_max`.
    """
    if not table.num_rows or not definition.partition_by:
        return 1 if table.num_rows else 0
    columns = [_partition_column(table, transform) for transform in definition.partition_by]
    # Only the groups are counted: no row is moved for an insert that may be refused.
    _, firsts = _codes(columns, table.num_rows)
    if len(firsts) > definition.settings.partitions_per_insert_max:
        raise BadInput(_too_many(len(firsts), definition))
    return len(firsts)


def split_by_partition(
    table: pa.Table, definition: TableDefinition, partitions_max: int | None = None
) -> list[PartitionRows]:
    """Split rows by the table's partition transforms.

    Parameters
    ----------
    table
        Rows in the definition's schema.
    partitions_max
        How many partitions they may belong to; by default `partitions_per_insert_max` of the table.

    Returns
    -------
    list
        By partition id; empty when there are no rows.

    Raises
    ------
    BadInput
        There are more partitions than `partitions_max`.
    """
    if not table.num_rows:
        return []
    if not definition.partition_by:
        return [PartitionRows(UNPARTITIONED, (), table)]
    columns = [_partition_column(table, transform) for transform in definition.partition_by]
    codes, firsts = _codes(columns, table.num_rows)
    if len(firsts) > (partitions_max or definition.settings.partitions_per_insert_max):
        raise BadInput(_too_many(len(firsts), definition))
    keys = [tuple(_value_at(column, int(row)) for column in columns) for row in firsts]
    pieces = rows_by_code(table, codes, len(firsts))
    parts = [
        PartitionRows(partition_id(key, definition), tuple(_scalar(v) for v in key), rows)
        for key, rows in zip(keys, pieces, strict=True)
    ]
    return sorted(parts, key=lambda part: part.partition)


def _too_many(count: int, definition: TableDefinition) -> str:
    transforms = ", ".join(t.text for t in definition.partition_by)
    return (
        f"the rows belong to {count} partitions by {transforms}, and one insert may write to "
        f"{definition.settings.partitions_per_insert_max}: insert in slices, or partition more coarsely"
    )


# --- grouping ---------------------------------------------------------------------------------------------------------------


def _partition_column(table: pa.Table, transform: Transform) -> pa.Array:
    """Give the partition value of each row, or a single value when all rows have the same."""
    import pyarrow.compute as pc

    column = table.column(transform.column)
    kinds = pa.types
    has_order = kinds.is_integer(column.type) or kinds.is_date(column.type) or kinds.is_timestamp(column.type)
    if len(column) and has_order and not column.null_count and transform.kind in _MONOTONIC:
        # An insert mostly has one partition, and the lowest and the highest value prove it without a look at the others.
        # numpy first: a kernel of Arrow's is most of the cost for a small insert (`whole_numbers`).
        numbers = whole_numbers(column)
        if numbers is not None:
            low, high = int(numbers.min()), int(numbers.max())
        else:
            ends = pc.min_max(column)
            low, high = _number(ends["min"]), _number(ends["max"])
        only = _only_value(transform, column.type, low, high)
        if only is not None:
            return only
    chunks = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return apply_transform(transform, chunks)


@lru_cache(maxsize=VALUES_REMEMBERED)
def _only_value(transform: Transform, arrow: pa.DataType, low: int, high: int) -> pa.Array | None:
    """Give the partition value that all values from `low` to `high` have; None when they have several."""
    # A monotonic transform that gives both ends one value gives it to everything between them.
    whole = arrow if not pa.types.is_temporal(arrow) else pa.int32() if arrow.bit_width == 32 else pa.int64()
    both = apply_transform(transform, pa.array([low, high], pa.int64()).cast(whole).view(arrow))
    return both.slice(0, 1) if both[0].equals(both[1]) else None


def _number(value: pa.Scalar) -> int:
    return int(value.value if pa.types.is_temporal(value.type) else value.as_py())


def _value_at(column: pa.Array, row: int) -> Any:
    value = column[row if len(column) > 1 else 0]
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return value.value
    return value.as_py()


def _codes(columns: Sequence[pa.Array], rows: int) -> tuple[_Numbers, _Numbers]:
    """Give each row's group number, and a row of each group."""
    codes = np.zeros(rows, np.int64)
    # A column of one value is in every group: it multiplies nothing.
    varied = [column for column in columns if len(column) == rows and rows > 1]
    firsts = codes[:1]
    for column in varied:
        # Null is a partition, too; without the option it would have no code.
        encoded = column.dictionary_encode(null_encoding="encode")
        different = len(encoded.dictionary)
        codes, limit = codes * different + encoded.indices.to_numpy(), len(firsts) * different
        # Made dense after each column: otherwise the product of the numbers of values could exceed 64 bits.
        if limit > CODES_COUNTED_MAX:
            _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
            continue
        where = np.full(limit, -1, np.int64)
        # Backwards: of several rows with one code numpy keeps the last one written, which is the first row.
        where[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        present = where >= 0
        codes, firsts = (np.cumsum(present) - 1)[codes], where[present]
    return codes, firsts


def rows_by_code(table: pa.Table, codes: _Numbers, groups: int) -> list[pa.Table]:
    """Give the rows of each group in their order, as slices of the table when they lie together already.

    Parameters
    ----------
    codes
        The group of each row, a number from 0 on; every group has rows.
    groups
        How many there are.
    """
    if groups == 1:
        return [table]
    # As many changes as groups mean that each group lies together: slices share the table's buffers, `take` copies.
    changes = np.flatnonzero(np.diff(codes)) + 1
    if len(changes) == groups - 1:
        starts = [0, *changes.tolist()]
        found = {int(codes[start]): (start, end) for start, end in zip(starts, [*starts[1:], len(codes)], strict=True)}
        return [table.slice(start, end - start) for start, end in (found[group] for group in range(groups))]
    # numpy sorts 16 bits by radix, and wider numbers by comparisons.
    narrow = codes.astype(np.uint16) if groups <= 1 << 16 else codes
    grouped = table.take(pa.array(np.argsort(narrow, kind="stable")))
    ends = np.cumsum(np.bincount(codes, minlength=groups)).tolist()
    return [grouped.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


# --- names ----------------------------------------------------------------------------------------------------------------


def partition_id(values: Sequence[Any], definition: TableDefinition) -> str:
    """Name the partition with these values of the table's transforms.

    Parameters
    ----------
    values
        One per transform: int (dates in days, timestamps in microseconds since 1970), Decimal, str, bytes, bool or None.
    """
    if not definition.partition_by:
        return UNPARTITIONED
    last = len(values) - 1
    texts = []
    for i, (transform, value) in enumerate(zip(definition.partition_by, values, strict=True)):
        # A cache of long values would be memory that a client fills.
        is_long = isinstance(value, str | bytes) and len(value) > PLAIN_CHARACTERS_MAX
        text = _new_text if is_long else _known_text
        texts.append(text(transform, definition.column(transform.column).arrow_type, value, last=i == last))
    joined = "-".join(texts)
    return joined if len(joined) <= ID_CHARACTERS_MAX else f"~w{xxhash.xxh3_128_hexdigest(joined.encode())}"


def _new_text(transform: Transform, arrow: pa.DataType, value: Any, *, last: bool) -> str:
    if value is None:
        return "~null"
    plain = _plain_text(transform, arrow, value, last=last)
    if plain is not None:
        return plain
    return f"~h{xxhash.xxh3_128_hexdigest(value if isinstance(value, bytes) else str(value).encode())}"


_known_text = lru_cache(maxsize=VALUES_REMEMBERED)(_new_text)
"""Long values are not kept: a client may insert any number of megabytes of them."""


def _plain_text(transform: Transform, arrow: pa.DataType, value: Any, *, last: bool) -> str | None:
    """Give the value's own text, or None when it must be hashed."""
    calendar = _CALENDAR_UNITS.get(transform.kind)
    # A date by itself is named like its day.
    if calendar is None and transform.kind is TransformKind.IDENTITY and pa.types.is_date(arrow):
        calendar = _CALENDAR_UNITS[TransformKind.DAY]
    if calendar is not None:
        unit, characters = calendar
        moment = np.array(value, np.int64).astype(f"datetime64[{unit}]")
        # Outside of the years 1 to 9999 the text would be of another width.
        if not _YEAR_1 <= moment < _YEAR_10000:
            return None
        return str(moment.astype("datetime64[h]"))[:characters].replace("T", "-")
    if transform.kind is TransformKind.IDENTITY and pa.types.is_timestamp(arrow):
        try:
            time = _EPOCH + timedelta(microseconds=value)
        except OverflowError:
            return None
        # Not `%Y`: the C library writes the year 33 without zeros before it.
        return f"{time.year:04d}-{time.month:02d}-{time.day:02d}T{time:%H%M%S}.{time.microsecond:06d}"
    # Before integers: True is an int in Python.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        digits = f"{value:f}" if isinstance(value, Decimal) else str(value)
        return f"~m{digits[1:]}" if digits.startswith("-") else digits
    if isinstance(value, str) and len(value) <= PLAIN_CHARACTERS_MAX:
        # A dash joins values, so a value with one is readable only at the end.
        return value if (_PLAIN_LAST if last else _PLAIN).fullmatch(value) else None
    return None


def value_text(transform: Transform, arrow: pa.DataType, value: Scalar) -> str | None:
    """Write a partition value for people; times are in UTC.

    Parameters
    ----------
    transform
        What gave the value.
    arrow
        The type of its column.
    value
        As in a manifest.

    Returns
    -------
    str or None
        ``2018-01`` for a month, ``-17`` for an integer; None for null.
    """
    # Manifests have decimals, and bytes in hexadecimal digits, as texts already.
    if value is None or isinstance(value, str):
        return value
    is_calendar = transform.kind in _CALENDAR_UNITS or pa.types.is_temporal(arrow)
    text = _plain_text(transform, arrow, value, last=True) if isinstance(value, bool) or is_calendar else None
    return str(value) if text is None else text


_CALENDAR_UNITS = {
    TransformKind.YEAR: ("Y", 4),
    TransformKind.MONTH: ("M", 7),
    TransformKind.DAY: ("D", 10),
    TransformKind.HOUR: ("h", 13),
}
"""Unit, and how many characters of ``2018-01-31T05`` say it."""


_YEAR_1 = np.datetime64("0001", "Y")
_YEAR_10000 = np.datetime64("10000", "Y")


def _scalar(value: Any) -> Scalar:
    """Give a partition value as it stands in a manifest."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    assert value is None or isinstance(value, bool | int | str)
    return value
