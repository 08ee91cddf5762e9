"""The extent of an Arrow IPC stream: how much its rows are once they are decoded, before anything is decoded.

A body of a few kilobytes can describe gigabytes: compressed buffers, arrays without buffers, many references to one name,
buffers that lie over each other.  So the metadata of every message is read here first, in memory of a constant size, and a
stream that exceeds a limit is refused before Arrow allocates anything.

What is counted as decoded bytes: every buffer with its length, a compressed one with the length that it begins with (Arrow
allocates exactly that, and refuses a buffer that decompresses to another length); one byte for each slot of each array; a
constant for each array; and, for each piece of a dictionary that extends an earlier one, everything that the dictionary has by
then, because Arrow makes a new one.

Guarantees: `measure` raises `BadInput` for bytes that are not an IPC stream in this machine's byte order, that have a type that
no column takes, or that exceed a limit.  A stream that it accepts may still be damaged: Arrow's own reader and
`replitree.storage.parts.conform` refuse that.

Absent on purpose: the content of the buffers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from replitree.errors import BadInput
from replitree.storage.files import flatbuffer as fb

ARRAY_BYTES = 512
"""Bytes that an array takes beside its buffers, about."""

FIELDS_MAX = 20_000
"""Fields of a schema, those inside of others included."""

DEPTH_MAX = 64
"""Levels of types inside of types; Arrow's reader has the same limit."""

TEXT_BYTES_MAX = 4 << 20
"""Bytes of all names and metadata of a schema; each reference counts."""

_SCHEMA, _DICTIONARIES, _ROWS = 1, 2, 3
"""Message.header_type."""

_PLAIN = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 15, 16, 17, 19, 20, 21})
"""Types, by their numbers in Schema.fbs, whose decoded size is that of their buffers: numbers, text, dates, lists and so on."""

_EXPANDED = frozenset({22, 23, 24, 25, 26})
"""Run-end encoded, views of text and lists: they may expand when they are made plain."""

_REFUSED = {9: "time", 11: "interval", 14: "union", 18: "duration"}
_TIMESTAMP = 10
REMEMBERED_BYTES_MAX = 64 << 10
"""A schema of at most so many bytes is remembered: most inserts have one of a few, and a client may send any number of them."""

_NOT_A_STREAM = "the body is not an Arrow IPC stream"
_SIZE = struct.Struct("<i").unpack_from
_LENGTH = struct.Struct("<q").unpack_from


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a stream's rows are.

    Attributes
    ----------
    rows
        Rows of all batches.
    bytes
        Bytes of memory that decoding takes, at most.
    is_plain
        True when no array can become larger by being made plain: no dictionaries, runs or views.
    messages
        How many messages it has, the schema included.
    schema_end
        Where the first message, which is the schema, ends.
    """

    rows: int
    bytes: int
    is_plain: bool
    messages: int
    schema_end: int


def measure(stream: bytes, *, rows_max: int, bytes_max: int) -> Extent:
    """Return the extent of a stream.

    Parameters
    ----------
    stream
        An Arrow IPC stream.
    rows_max, bytes_max
        Limits of its rows and of its decoded bytes.

    Raises
    ------
    BadInput
        It is not an IPC stream, or has a type that no column takes, or more than the limits.
    """
    meter = _Meter(stream, rows_max, bytes_max)
    try:
        meter.read()
    except (struct.error, IndexError) as error:
        raise BadInput(f"{_NOT_A_STREAM}: {error}") from error
    return Extent(meter.rows, meter.bytes, meter.is_plain, meter.messages, meter.schema_end)


class _Meter:
    """Adds up the messages of one stream."""

    def __init__(self, stream: bytes, rows_max: int, bytes_max: int) -> None:
        self._data = stream
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._dictionaries: dict[int, int] = {}
        self.rows = 0
        self.bytes = 0
        self.is_plain = True
        self.messages = 0
        self.schema_end = 0

    def read(self) -> None:
        """Read every message up to the end of the stream."""
        data, at, end = self._data, 0, len(self._data)
        while at < end:
            (size,) = _SIZE(data, at)
            at += 4
            # The marker of messages since Arrow 0.15; before, a message began with its size.
            if size == -1:
                (size,) = _SIZE(data, at)
                at += 4
            # The end-of-stream marker; whatever follows is not read by Arrow either.
            if size == 0:
                break
            # -1 is the only negative number that a message may begin with.
            if size < 0 or at + size > end:
                raise BadInput(f"{_NOT_A_STREAM}: a message ends beyond the body")
            at = self._message(at, at + size)
            self.messages += 1
        if not self.messages:
            raise BadInput(f"{_NOT_A_STREAM}: it has no schema")

    def _message(self, start: int, body: int) -> int:
        """Add one message, whose metadata end where its body begins; return where the next message begins."""
        data = self._data
        _, kind, header, length, pairs = fb.slots(data, fb.root(data, start), 5)
        kind, header, body_bytes = fb.byte(data, kind), fb.reference(data, header), fb.long(data, length)
        if not 0 <= body_bytes <= len(data) - body:
            raise BadInput(f"{_NOT_A_STREAM}: the rows of a message end beyond the body")
        if pairs:
            _count_pairs(data, fb.reference(data, pairs), _Allowance())
        if not header or (kind == _SCHEMA) != (not self.messages):
            raise BadInput(f"{_NOT_A_STREAM}: it must begin with its only schema")
        if kind == _SCHEMA:
            # A cache of schemas of any size would be memory that a client fills.
            remembered = body - start <= REMEMBERED_BYTES_MAX
            self.is_plain = (_is_known_plain if remembered else _is_plain_schema)(data[start:body])
            self.schema_end = body + body_bytes
        elif kind == _ROWS:
            self.rows += self._batch(header, body, body_bytes)
            if self.rows > self._rows_max:
                raise BadInput(
                    f"the body has more than {self._rows_max:,} rows (insert_rows_max of the server): insert in several "
                    "requests, or upload files"
                )
        elif kind == _DICTIONARIES:
            data, before = self._data, self.bytes
            name, batch, extends = fb.slots(data, header, 3)
            if not batch:
                raise BadInput(f"{_NOT_A_STREAM}: a dictionary has no values")
            self._batch(fb.reference(data, batch), body, body_bytes)
            whole, name = self.bytes - before, fb.long(data, name)
            # Of a dictionary that extends an earlier one Arrow copies the earlier one.
            if fb.byte(data, extends):
                whole += self._dictionaries.get(name, 0)
                self._add(whole)
            self._dictionaries[name] = whole
        else:
            raise BadInput(f"{_NOT_A_STREAM} of rows: it has a message of kind {kind}")
        return body + body_bytes

    def _batch(self, batch: int, body: int, body_bytes: int) -> int:
        """Add the arrays of a record batch; return its rows."""
        data = self._data
        length, nodes, buffers, compression = fb.slots(data, batch, 4)
        slots = fb.longs(data, fb.reference(data, nodes), 2)[::2]
        rows = fb.long(data, length)
        if rows < 0 or (slots and min(slots) < 0):
            raise BadInput("the body is damaged: an array has a negative length")
        total = sum(slots) + ARRAY_BYTES * len(slots)
        numbers = iter(fb.longs(data, fb.reference(data, buffers), 2))
        for offset, size in zip(numbers, numbers, strict=True):
            # Arrow's format puts every buffer at a multiple of eight bytes, and its kernels read whole words.
            if offset < 0 or size < 0 or offset + size > body_bytes or offset & 7:
                raise BadInput("the body is damaged: a buffer lies outside of its message")
            content = size
            if compression and size:
                # A compressed buffer begins with the length of its content, -1 for content that is not compressed.
                if size < 8:
                    raise BadInput("the body is damaged: a compressed buffer has no length")
                (content,) = _LENGTH(data, body + offset)
                if content < -1:
                    raise BadInput("the body is damaged: a compressed buffer has a negative length")
                content = size - 8 if content == -1 else content
            total += content
        self._add(total)
        return rows

    def _add(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self._bytes_max:
            raise BadInput(
                f"the rows of the body take more than {self._bytes_max:,} bytes once they are decoded "
                "(insert_decoded_bytes_max of the server): insert in several requests, or upload files"
            )


# --- the schema -------------------------------------------------------------------------------------------------------


class _Allowance:
    """How many fields, and how many bytes of names and metadata, a schema may still have."""

    def __init__(self) -> None:
        self._text = TEXT_BYTES_MAX
        self._fields = FIELDS_MAX

    def take_text(self, size: int) -> None:
        self._text -= size
        if self._text < 0:
            raise BadInput(f"the schema of the body has more than {TEXT_BYTES_MAX:,} bytes of names and metadata")

    def take_field(self) -> None:
        self._fields -= 1
        if self._fields < 0:
            raise BadInput(f"the schema of the body has more than {FIELDS_MAX:,} fields")


def _is_plain_schema(metadata: bytes) -> bool:
    """Check a schema, and tell whether all of its types are plain."""
    header = fb.slots(metadata, fb.root(metadata, 0), 3)[2]
    order, fields, pairs = fb.slots(metadata, fb.reference(metadata, header), 3)
    if fb.short(metadata, order):
        raise BadInput("the body is in big-endian byte order: write it in little-endian order")
    allowance = _Allowance()
    _count_pairs(metadata, fb.reference(metadata, pairs), allowance)
    return _are_plain(metadata, fb.reference(metadata, fields), allowance, DEPTH_MAX)


_is_known_plain = lru_cache(maxsize=256)(_is_plain_schema)


def _are_plain(data: bytes, fields: int, allowance: _Allowance, depth: int) -> bool:
    """Check the fields of a schema or of a field; tell whether all of them are plain."""
    if fields and not depth:
        raise BadInput(f"the schema of the body has types inside of types on more than {DEPTH_MAX} levels")
    plain = True
    for number in range(fb.count(data, fields)):
        allowance.take_field()
        name, _, kind, of_type, dictionary, children, pairs = fb.slots(data, fb.element(data, fields, number), 7)
        allowance.take_text(fb.count(data, fb.reference(data, name)))
        _count_pairs(data, fb.reference(data, pairs), allowance)
        kind = fb.byte(data, kind)
        if kind in _REFUSED:
            raise BadInput(f"the body has a column of {_REFUSED[kind]} values, which no table can have")
        if kind not in _PLAIN and kind not in _EXPANDED:
            raise BadInput(f"the body has a column of a type that this version does not know (number {kind} in Arrow)")
        if kind == _TIMESTAMP and of_type:
            zone = fb.slots(data, fb.reference(data, of_type), 2)[1]
            allowance.take_text(fb.count(data, fb.reference(data, zone)))
        # Several references may lead to one field: depth and the allowance
        # bound a walk that is exponentially longer than the bytes.
        inside = _are_plain(data, fb.reference(data, children), allowance, depth - 1)
        plain = plain and inside and kind in _PLAIN and not dictionary
    return plain


def _count_pairs(data: bytes, pairs: int, allowance: _Allowance) -> None:
    """Count metadata: pairs of a key and a value."""
    for number in range(fb.count(data, pairs)):
        key, value = fb.slots(data, fb.element(data, pairs, number), 2)
        allowance.take_text(8 + fb.count(data, fb.reference(data, key)) + fb.count(data, fb.reference(data, value)))


__all__ = ["REMEMBERED_BYTES_MAX", "Extent", "measure"]
