"""The bytes around a log entry: whose it is, how long, and a checksum.

::

    "RTLE"  format (2 bytes)  blob id (20)  payload bytes (4)  payload  XXH3-64 of all before (8)

Numbers are big endian.  A blob that was torn, misplaced or changed is `BadEntry`; one of a newer format is `UnsupportedFormat`.
Neither is ever taken for a blob that is absent.
"""

from __future__ import annotations

import struct

import xxhash

from replitree.errors import StoreError, UnsupportedFormat
from replitree.tablet.group.ids import PACKED_BYTES, BlobId

MAGIC = b"RTLE"
FORMAT = 1
_CHECKSUM_BYTES = 8
_HEADER = struct.Struct(f">4sH{PACKED_BYTES}sI")
_HEADER_BYTES = _HEADER.size


class BadEntry(StoreError):
    """A log entry can't be what was written under its id.  Nothing was changed; look at the disks, then restore a copy."""


def seal(blob: BlobId, *payload: bytes) -> bytes:
    """Return the bytes that are stored under an id; equal payloads, in one part or several, give equal bytes."""
    header = _HEADER.pack(MAGIC, FORMAT, blob.pack(), sum(map(len, payload)))
    checksum = xxhash.xxh3_64(header)
    for part in payload:
        checksum.update(part)
    return b"".join((header, *payload, checksum.digest()))


def unseal(blob: BlobId, data: bytes) -> bytes:
    """Return the payload of what was read under an id.

    Raises
    ------
    BadEntry
        It is torn or changed, or was written under another id.
    UnsupportedFormat
        A newer version wrote it.
    """
    if len(data) < _HEADER_BYTES + _CHECKSUM_BYTES or not data.startswith(MAGIC):
        raise BadEntry(f"log entry {blob} is torn or no log entry at all")
    # The checksum before the format: a damaged number must not be taken for a newer format.
    if xxhash.xxh3_64_digest(memoryview(data)[:-_CHECKSUM_BYTES]) != data[-_CHECKSUM_BYTES:]:
        raise BadEntry(f"log entry {blob} does not match its checksum")
    _, found, name, size = _HEADER.unpack_from(data)
    if found > FORMAT:
        raise UnsupportedFormat(f"log entry {blob} has format {found}, this version knows {FORMAT}: upgrade it")
    # A frame that a disk returned for another place is whole, and wrong.
    if name != blob.pack():
        raise BadEntry(f"log entry {blob} was written under another id")
    if size != len(data) - _HEADER_BYTES - _CHECKSUM_BYTES:
        raise BadEntry(f"log entry {blob} has not the length that it says")
    return data[_HEADER_BYTES:-_CHECKSUM_BYTES]
