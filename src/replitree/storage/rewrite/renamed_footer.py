"""Data files of an older layout under today's names: the names of columns in a Parquet footer are exchanged.

A column that was renamed keeps its stored name in every data file (`replitree.storage.schema.columns`).  Arrow's datasets find
columns by the names in the footer, so a reader that hands a dataset to another engine shows each file with a footer in which
the columns, and the fields inside structs, have the names that readers see.  The pages are the file's own, at the same places.

The footer is a struct in Thrift's compact protocol.  Its second field is the list of schema elements, depth first; nothing but
the names in this list is changed, all other bytes are copied.  Arrow finds pages by the position of their column in that list.

A column or field that was dropped keeps a name that no reader asks for.

Guarantees: a footer that is not understood raises `StoreError`; the number of bytes that are looked at is bounded by the
footer's length.

Absent on purpose: types.  Arrow casts a column that was widened, and fills in one that was added later
(`replitree.storage.rewrite.dataset`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from typing_extensions import override

from replitree.errors import StoreError
from replitree.storage.files.binary_file import BinaryFile
from replitree.storage.schema.layout import Layout
from replitree.storage.schema.nested import children
from replitree.storage.schema.types import is_nested, parse_type

TAIL_BYTES = 8
"""The footer's length and Parquet's magic number, at the end of a file."""

DEPTH_MAX = 64
"""Structs inside structs; a deeper footer is damaged."""

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
"""Types of Thrift's compact protocol."""

_FIXED = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}
"""Bytes of a value, beside the head of its field, which has the booleans."""

_SCHEMA = 2
"""The schema's field of Parquet's FileMetaData."""

_NAME, _CHILDREN = 4, 5
"""Fields of Parquet's SchemaElement."""


@dataclass(frozen=True, slots=True)
class _Element:
    """One schema element: where its name's bytes and their length stand, the name, and how many children it has."""

    begin: int
    end: int
    name: str
    children: int


def renamed_tail(tail: bytes, layout: Layout) -> bytes:
    """Return the end of a Parquet file with the names that readers see.

    Parameters
    ----------
    tail
        The footer and the eight bytes behind it.
    layout
        Of the file.

    Raises
    ------
    StoreError
        It is not the end of a Parquet file of this layout.
    """
    footer = tail[:-TAIL_BYTES]
    try:
        elements = list(_schema_elements(footer))
        names = _shown_names(elements, layout)
    except (IndexError, ValueError, StopIteration) as error:
        raise StoreError(f"the footer of a data file can't be read ({error}); verify the part") from error
    found, done = bytearray(), 0
    for element, name in zip(elements, names, strict=True):
        encoded = name.encode()
        found += footer[done : element.begin] + _varint(len(encoded)) + encoded
        done = element.end
    found += footer[done:]
    return bytes(found) + struct.pack("<I", len(found)) + tail[-4:]


def footer_bytes(last: bytes) -> int:
    """Return the length of a footer, from the last eight bytes of its file.

    Raises
    ------
    StoreError
        They are not those of a Parquet file.
    """
    if len(last) != TAIL_BYTES or last[-4:] != b"PAR1":
        raise StoreError("a data file does not end as Parquet files do; verify the part")
    (length,) = struct.unpack("<I", last[:4])
    return int(length)


# --- names ------------------------------------------------------------------------------------------------------------------


def _shown_names(elements: list[_Element], layout: Layout) -> list[str]:
    """Return the new name of each schema element."""
    columns = {}
    for origin in layout:
        if origin.stored_type is not None:
            types = parse_type(origin.column.stored_type), origin.column.arrow_type
            columns[origin.column.stored_name] = (origin.column.name, *types)
    left = iter(elements)
    root = next(left)
    names = [root.name]
    # Also the names of columns that the file does not have: it must not show a dropped column for one that was added since.
    _rename(left, root.children, columns, {origin.column.name for origin in layout}, names)
    if len(names) != len(elements):
        raise ValueError("elements without a parent")
    return names


def _rename(
    left: Iterator[_Element],
    count: int,
    known: Mapping[str, tuple[str, pa.DataType, pa.DataType]],
    taken: set[str],
    names: list[str],
) -> None:
    """Name the next `count` siblings and all that is inside of them.

    `known`: shown name and both types by stored name; `taken`: names that a dropped column must not have.
    """
    for _ in range(count):
        element = next(left)
        found = known.get(element.name)
        if found is None:
            # Dropped since.  Another column may have its name by now.
            name = element.name
            while name in taken:
                name += "~"
            taken.add(name)
            names.append(name)
            _keep(left, element.children, names)
            continue
        shown, stored_type, shown_type = found
        names.append(shown)
        if not is_nested(shown_type):
            _keep(left, element.children, names)
            continue
        inside = element.children
        if not pa.types.is_struct(shown_type):
            # Between a list and its element, and between a map and its key and value, Parquet has one more element.
            group = next(left)
            names.append(group.name)
            inside = group.children
        pairs = zip(children(stored_type), children(shown_type), strict=True)
        fields = {old.name: (new.name, old.type, new.type) for old, new in pairs}
        _rename(left, inside, fields, {field.name for field in children(shown_type)}, names)


def _keep(left: Iterator[_Element], count: int, names: list[str]) -> None:
    """Keep the names of the next `count` siblings and of all that is inside of them."""
    while count:
        element = next(left)
        names.append(element.name)
        count += element.children - 1


# --- Thrift's compact protocol ------------------------------------------------------------------------------------------------


def _schema_elements(footer: bytes) -> Iterator[_Element]:
    """Give the schema elements of a footer, depth first."""
    at, field = 0, 0
    while field < _SCHEMA:
        at, field, kind = _field(footer, at, field)
        if field == _SCHEMA and kind == _LIST:
            break
        at = _after(footer, at, kind)
    else:
        raise ValueError("no schema")
    at, size, kind = _list_head(footer, at)
    if kind != _STRUCT:
        raise ValueError("a schema of other things than elements")
    for _ in range(size):
        field, begin, end, count = 0, 0, 0, 0
        while True:
            at, field, kind = _field(footer, at, field)
            if kind == _STOP:
                break
            after = _after(footer, at, kind)
            if field == _NAME:
                begin, end = at, after
            elif field == _CHILDREN:
                number, _ = _read_varint(footer, at)
                count = (number >> 1) ^ -(number & 1)
            at = after
        length, start = _read_varint(footer, begin)
        if not end or start + length != end or count < 0:
            raise ValueError("an element without a name")
        yield _Element(begin, end, footer[start:end].decode(), count)


def _field(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Read the head of a field; return where its value begins, its number and its type."""
    head = data[at]
    kind, delta = head & 15, head >> 4
    if kind == _STOP:
        return at + 1, before, kind
    if delta:
        return at + 1, before + delta, kind
    number, at = _read_varint(data, at + 1)
    return at, (number >> 1) ^ -(number & 1), kind


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Read the head of a list; return where its first value begins, how many there are, and their type."""
    size, kind = data[at] >> 4, data[at] & 15
    if size < 15:
        return at + 1, size, kind
    size, at = _read_varint(data, at + 1)
    return at, size, kind


def _after(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Return where a value ends."""
    if depth > DEPTH_MAX:
        raise ValueError("too many structs inside structs")
    if kind in _FIXED:
        return at + _FIXED[kind]
    if kind in (_I16, _I32, _I64):
        return _read_varint(data, at)[1]
    if kind == _BINARY:
        length, at = _read_varint(data, at)
        return at + length
    if kind in (_LIST, _SET):
        at, size, inner = _list_head(data, at)
        for _ in range(size):
            # Booleans of a list take a byte each.
            at = at + 1 if inner in (_TRUE, _FALSE) else _after(data, at, inner, depth + 1)
            # A damaged list may claim more values than there are bytes.
            if at > len(data):
                raise IndexError("a list that does not end")
        return at
    if kind == _STRUCT:
        field = 0
        while True:
            at, field, kind = _field(data, at, field)
            if kind == _STOP:
                return at
            at = _after(data, at, kind, depth + 1)
    raise ValueError(f"a value of type {kind}")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte; return it and where the next value begins."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


# --- files --------------------------------------------------------------------------------------------------------------------


def renamed_file(inner: pa.NativeFile, layout: Layout) -> pa.NativeFile:
    """Return an open data file with the names that readers see.

    Parameters
    ----------
    inner
        The file as it is.
    layout
        Of the file.

    Raises
    ------
    StoreError
        It is not a Parquet file of this layout.
    """
    size = inner.size()
    length = footer_bytes(inner.read_at(TAIL_BYTES, max(0, size - TAIL_BYTES)))
    begin = size - TAIL_BYTES - length
    if begin < 0:
        raise StoreError("the footer of a data file is longer than the file; verify the part")
    tail = renamed_tail(inner.read_at(length + TAIL_BYTES, begin), layout)
    return pa.PythonFile(_Renamed(inner, begin, tail), mode="r")


class _Renamed(BinaryFile):
    """The first `begin` bytes of another file, and another end."""

    def __init__(self, inner: pa.NativeFile, begin: int, tail: bytes) -> None:
        super().__init__(begin + len(tail))
        self._inner, self._begin, self._tail = inner, begin, tail

    @override
    def read_range(self, begin: int, count: int) -> pa.Buffer | bytes:
        """Return bytes of the other file, and of the end.  Raises as the file itself."""
        end = begin + count
        if end <= self._begin:
            return self._inner.read_at(count, begin)
        last = self._tail[max(0, begin - self._begin) : end - self._begin]
        return last if begin >= self._begin else self._inner.read_at(self._begin - begin, begin) + last

    @override
    def close(self) -> None:
        super().close()
        self._inner.close()


__all__ = ["footer_bytes", "renamed_file", "renamed_tail"]
