"""Reading the tables of a flatbuffer where they lie, without a schema compiler: the metadata of Arrow's messages.

A table begins with the signed distance to its vtable.  The vtable holds its own size, the table's size, and for each field the
distance from the table to the value, 0 for an absent field.  Strings, vectors and tables are referred to by a distance.

Guarantees: every read is checked against the end of the bytes; a read outside of them raises `struct.error` or `IndexError`.
Nothing is allocated in proportion to a number that stands in the bytes.

Absent on purpose: verification of the whole buffer.  A caller visits only what it needs, and bounds how much that is: several
references may lead to one table, so a walk can be exponentially longer than the bytes.
"""

from __future__ import annotations

import struct
from struct import Struct

_U16 = Struct("<H").unpack_from
_I32, _U32, _I64 = Struct("<i").unpack_from, Struct("<I").unpack_from, Struct("<q").unpack_from
_DISTANCES = tuple(Struct(f"<{number}H").unpack_from for number in range(9))


def root(data: bytes, start: int) -> int:
    """Return where the outermost table of a flatbuffer lies."""
    found: int = start + _U32(data, start)[0]
    return found


def slots(data: bytes, table: int, number: int) -> list[int]:
    """Return where the values of a table's first fields (at most 8) lie, 0 for each that the table does not have."""
    vtable: int = table - _I32(data, table)[0]
    # Python would read a negative place from the end of the bytes.
    if vtable < 0:
        raise struct.error("a vtable lies before the bytes")
    known = min(number, (_U16(data, vtable)[0] - 4) // 2)
    if known < 0:
        raise struct.error("a vtable is shorter than its head")
    found = [distance and table + distance for distance in _DISTANCES[known](data, vtable + 4)]
    return found if known == number else found + [0] * (number - known)


def byte(data: bytes, at: int) -> int:
    """Return the unsigned byte at a slot, 0 for an absent one."""
    return data[at] if at else 0


def short(data: bytes, at: int) -> int:
    """Return the unsigned number of two bytes at a slot, 0 for an absent one."""
    return int(_U16(data, at)[0]) if at else 0


def long(data: bytes, at: int) -> int:
    """Return the signed number of eight bytes at a slot, 0 for an absent one."""
    return int(_I64(data, at)[0]) if at else 0


def reference(data: bytes, at: int) -> int:
    """Return where the table, string or vector lies that a slot refers to, 0 for an absent one."""
    return int(at + _U32(data, at)[0]) if at else 0


def count(data: bytes, vector: int) -> int:
    """Return how many elements a vector has, how many bytes a string has; 0 for an absent one."""
    return int(_U32(data, vector)[0]) if vector else 0


def element(data: bytes, vector: int, number: int) -> int:
    """Return where the table lies that an element of a vector refers to."""
    return reference(data, vector + 4 + 4 * number)


def longs(data: bytes, vector: int, per_element: int) -> list[int]:
    """Return the numbers of a vector of structs, each of which has so many signed numbers of eight bytes."""
    if not vector:
        return []
    size, start = 8 * per_element * count(data, vector), vector + 4
    # Slices do not raise: a vector that ends beyond the bytes would be shorter than it says.
    if start + size > len(data):
        raise struct.error("a vector ends beyond the bytes")
    return memoryview(data)[start : start + size].cast("q").tolist()
