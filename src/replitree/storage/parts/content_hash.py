"""The content hash: 128 bits that two parts share exactly when they hold the same rows in the same order.

Guarantees: the hash depends on column names, types and values only.  It does not depend on how rows are cut into chunks or
files, on offsets and padding of buffers, on what lies under a null, on dictionary encoding, or on the version of any library.

The canonical form (frozen by `tests/formats`; all numbers little-endian).  Each column is a fixed set of streams, concatenated
over all rows and hashed with XXH3-128:

=========  ==========================================================================================
*nulls*    u64 position of each null, from 0 on
*lengths*  i32 length of each value that is not null: bytes of a string or binary, elements of a list or map
*values*   each value that is not null: the bytes of a number (a boolean is one byte, a decimal 16), or of a string
=========  ==========================================================================================

A plain column has *nulls, values*; a string or binary *nulls, lengths, values*; a list *nulls, lengths* and its elements'
streams; a map is a list of structs; a struct has *nulls* and its fields' streams, each over the rows whose struct is not null.
The content hash is the XXH3-128 of a header (magic, each column's name and type, number of rows) and the streams' digests in
this order.

Floating-point values are compared by their bits: 0.0 and -0.0 differ, and so do two kinds of NaN.

If several processes have written the files of a part, each into the object store, no process has read all rows: the hash of
such a part is `joined_hash`, of the files' hashes.  Parts with the same one have the same rows; not every part with these rows
has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from replitree.storage.schema.types import format_type

MAGIC = b"replitree content 1\n"
JOINED_MAGIC = b"replitree joined content 1\n"


def content_hash(data: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Hash rows.

    Parameters
    ----------
    data
        Rows whose columns have the names, in any order, and the types of `schema`; a dictionary-encoded column is taken for
        its values.
    schema
        The table's schema.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    batches = data.to_batches() if isinstance(data, pa.Table) else data
    if isinstance(batches, list) and len(batches) == 1:
        # Most inserts are one small batch: the streaming form would make some objects for each column of it.
        found = _hash_one(batches[0], schema)
        if found is not None:
            return found
    hasher = ContentHasher(schema)
    for batch in batches:
        hasher.update(batch)
    return hasher.hexdigest()


def joined_hash(hashes: Iterable[str]) -> str:
    """Return the hash of rows that follow one another, from the content hash of each piece."""
    return xxhash.xxh3_128(JOINED_MAGIC + b"".join(map(bytes.fromhex, hashes))).hexdigest()


def _header(schema: pa.Schema) -> xxhash.xxh3_128:
    """Begin a hash with what comes before the number of rows."""
    total = xxhash.xxh3_128(MAGIC)
    for field in schema:
        total.update(_text(field.name) + _text(format_type(field.type)))
    return total


class ContentHasher:
    """Content hash of rows that come batch by batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows = 0
        self._columns = [_column_of(field.type) for field in schema]

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        self._rows += batch.num_rows
        for field, column in zip(self._schema, self._columns, strict=True):
            array = batch.column(field.name)
            column.update(array if array.type == field.type else array.cast(field.type))

    def hexdigest(self) -> str:
        """Give the hash of all rows so far: 32 hexadecimal digits."""
        total = _header(self._schema)
        total.update(self._rows.to_bytes(8, "little"))
        for column in self._columns:
            column.digest_into(total)
        return total.hexdigest()


class _Values(Protocol):
    """The streams of a column after *nulls*."""

    def update(self, array: pa.Array) -> None:
        """Add at least one value, none of them null."""

    def digest_into(self, total: Any) -> None:
        """Add the digests of the streams, in order."""


class _Column:
    """The streams of one column: *nulls*, then whatever the kind of column has."""

    def __init__(self, values: _Values) -> None:
        self._rows = 0
        self._nulls = xxhash.xxh3_128()
        self._values = values

    def update(self, array: pa.Array) -> None:
        """Add rows."""
        rows = len(array)
        if array.null_count:
            # Positions count from the first row of all batches, so the cut into batches does not change the hash.
            positions = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            self._nulls.update((positions + self._rows).astype("<u8").data)
            # What lies under a null is whatever the writer left there.
            array = array.drop_null()
        self._rows += rows
        if len(array):
            self._values.update(array)

    def digest_into(self, total: Any) -> None:
        """Add the digests of all streams, in order."""
        total.update(self._nulls.digest())
        self._values.digest_into(total)


class _FixedWidth:
    """Values of `width` bytes each: *values*."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._values = xxhash.xxh3_128()

    def update(self, array: pa.Array) -> None:
        self._values.update(array.buffers()[1].slice(array.offset * self._width, len(array) * self._width))

    def digest_into(self, total: Any) -> None:
        total.update(self._values.digest())


class _Boolean:
    """Arrow packs eight booleans into a byte; a chunk may end anywhere in it, so each becomes a byte."""

    def __init__(self) -> None:
        self._bytes = _FixedWidth(1)
        self.digest_into = self._bytes.digest_into

    def update(self, array: pa.Array) -> None:
        self._bytes.update(array.cast(pa.uint8()))


class _Bytes:
    """Strings and binaries: *lengths, values*."""

    def __init__(self) -> None:
        self._lengths = xxhash.xxh3_128()
        self._values = xxhash.xxh3_128()

    def update(self, array: pa.Array) -> None:
        _, positions, values = array.buffers()
        # Offsets of a slice do not begin at zero; lengths are the same wherever the values lie.
        offsets = np.frombuffer(positions, "<i4", len(array) + 1, array.offset * 4)
        self._lengths.update((offsets[1:] - offsets[:-1]).data)
        first, last = int(offsets[0]), int(offsets[-1])
        # Arrow may leave out the buffer of values when all of them are empty.
        if last > first:
            self._values.update(values.slice(first, last - first))

    def digest_into(self, total: Any) -> None:
        total.update(self._lengths.digest())
        total.update(self._values.digest())


class _List:
    """Lists: *lengths*, then the streams of the elements."""

    def __init__(self, element: _Column) -> None:
        self._lengths = xxhash.xxh3_128()
        self._element = element

    def update(self, array: pa.Array) -> None:
        self._lengths.update(np.diff(array.offsets.to_numpy()).data)
        # `flatten` honours the slice; `values` would hash elements that belong to other rows.
        self._element.update(array.flatten())

    def digest_into(self, total: Any) -> None:
        total.update(self._lengths.digest())
        self._element.digest_into(total)


class _Map:
    """Maps: lists of structs of key and value, in the order in which they stand."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._list_type = pa.list_(pa.struct([("key", arrow.key_type), ("value", arrow.item_type)]))
        self._list = _List(_column_of(self._list_type.value_type))
        self.digest_into = self._list.digest_into

    def update(self, array: pa.Array) -> None:
        self._list.update(array.cast(self._list_type))


class _Struct:
    """Structs: the streams of the fields."""

    def __init__(self, fields: list[_Column]) -> None:
        self._fields = fields

    def update(self, array: pa.Array) -> None:
        for field, values in zip(self._fields, array.flatten(), strict=True):
            field.update(values)

    def digest_into(self, total: Any) -> None:
        for field in self._fields:
            field.digest_into(total)


def _column_of(arrow: pa.DataType) -> _Column:
    kinds = pa.types
    values: _Values
    if kinds.is_boolean(arrow):
        values = _Boolean()
    elif kinds.is_string(arrow) or kinds.is_binary(arrow):
        values = _Bytes()
    elif kinds.is_map(arrow):
        values = _Map(arrow)
    elif kinds.is_list(arrow):
        values = _List(_column_of(arrow.value_type))
    elif kinds.is_struct(arrow):
        values = _Struct([_column_of(field.type) for field in arrow])
    else:
        values = _FixedWidth(arrow.bit_width // 8)
    return _Column(values)


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "little") + data


# --- one batch of plain columns: the same hash with a tenth of the objects, for inserts of a hundred rows -----------------

_NOTHING = xxhash.xxh3_128_digest(b"")
_digest = xxhash.xxh3_128_digest
_Digests: TypeAlias = Callable[[pa.Array], bytes]
"""Gives the digests of all streams of a column that has at least one value and no nulls."""

PLANS_MAX = 64


class _HashPlan:
    """How the rows of one schema are hashed in one go: the hash of the header, and each column's digests."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.header = _header(schema)
        self.columns = tuple(_digests_of(field.type) for field in schema)


_plans: dict[int, _HashPlan] = {}
"""By the id of a schema: a table's definition always has the same object."""


def _hash_one(batch: pa.RecordBatch, schema: pa.Schema) -> str | None:
    """Hash a batch, or None when it takes more than digests of whole buffers."""
    plan = _plans.get(id(schema))
    # An id is used again once its object is collected: the plan holds its schema, and the identity is compared.
    if plan is None or plan.schema is not schema:
        # Dropping all is enough: a replica has few tables, and a plan costs microseconds.
        if len(_plans) >= PLANS_MAX:
            _plans.clear()
        plan = _plans[id(schema)] = _HashPlan(schema)
    # Without rows Arrow may leave buffers out.
    if not batch.num_rows or not batch.schema.equals(schema):
        return None
    pieces = [batch.num_rows.to_bytes(8, "little")]
    for array, digests in zip(batch.columns, plan.columns, strict=True):
        if digests is None or array.null_count:
            return None
        pieces.append(digests(array))
    total = plan.header.copy()
    total.update(b"".join(pieces))
    return total.hexdigest()


def _digests_of(arrow: pa.DataType) -> _Digests | None:
    """Give the digests of a plain column's streams; None for a column of another kind."""
    kinds = pa.types
    if kinds.is_string(arrow) or kinds.is_binary(arrow):
        return _bytes_digests
    if kinds.is_nested(arrow) or kinds.is_boolean(arrow) or kinds.is_dictionary(arrow):
        return None
    width = arrow.bit_width // 8
    return lambda array: _NOTHING + _digest(array.buffers()[1].slice(array.offset * width, len(array) * width))


def _bytes_digests(array: pa.Array) -> bytes:
    _, positions, values = array.buffers()
    offsets = np.frombuffer(positions, "<i4", len(array) + 1, array.offset * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = _digest((offsets[1:] - offsets[:-1]).data)
    return _NOTHING + lengths + (_digest(values.slice(first, last - first)) if last > first else _NOTHING)
