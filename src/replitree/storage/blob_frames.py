"""How blobs lie in a segment: frame after frame, each with its id and checksums.

::

    "RTBF"  blob id (20 bytes)  payload bytes (4)  XXH3-64 of these (8)  payload  XXH3-64 of header and payload (8)

A frame that can't be read is one of three things, which must not be confused:

* *torn*: the segment ends within it, or from somewhere within it there are only zeros to the segment's end.  It was never
  synced, so nobody was told that it is stored; it may be cut off
* *damaged*: its header is whole.  The blob was here and can't be read
* *in doubt*: neither.  Whatever blobs were here, nobody can tell

Damage by a disk leaves neither a shorter file nor zeros up to its end, for a frame ends with a checksum.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from replitree.tablet.ids import PACKED_BYTES, BlobId, unpack

MAGIC = b"RTBF"
_SUM_BYTES = 8
_PLAIN_BYTES = len(MAGIC) + PACKED_BYTES + 4
HEADER_BYTES = _PLAIN_BYTES + _SUM_BYTES
OVERHEAD_BYTES = HEADER_BYTES + _SUM_BYTES


@dataclass(frozen=True, slots=True)
class Frame:
    """A blob in a segment: where its payload begins, how long it is, and whether it matches its checksum."""

    blob: BlobId
    offset: int
    bytes: int
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a segment holds.

    Attributes
    ----------
    frames
        Whole and damaged ones, in their order.
    end
        Where the next frame is to be appended; what comes after is torn.
    is_in_doubt
        Whether there was something that can't be told.
    """

    frames: tuple[Frame, ...]
    end: int
    is_in_doubt: bool = False


def frame_of(blob: BlobId, payload: bytes) -> bytes:
    """Return the bytes of a frame."""
    plain = MAGIC + blob.pack() + len(payload).to_bytes(4, "big")
    header = plain + xxhash.xxh3_64_digest(plain)
    return b"".join((header, payload, xxhash.xxh3_64_digest(header + payload)))


def scan(data: bytes, begin: int = 0) -> Scanned:
    """Find the frames of a segment.

    Parameters
    ----------
    data
        The segment's bytes from `begin` on.
    begin
        Where they begin, in bytes; offsets in the result count from the segment's own begin.
    """
    frames, position, is_in_doubt = list[Frame](), 0, False
    while position < len(data):
        if _is_torn(data, position):
            break
        blob, size = _header(data, position) or (None, 0)
        if blob is None:
            is_in_doubt = True
            position = _next_header(data, position + 1)
            continue
        end = position + OVERHEAD_BYTES + size
        body, checksum = data[position : end - _SUM_BYTES], data[end - _SUM_BYTES : end]
        is_whole = xxhash.xxh3_64_digest(body) == checksum
        frames.append(Frame(blob, begin + position + HEADER_BYTES, size, is_whole))
        position = end
    return Scanned(tuple(frames), begin + position, is_in_doubt)


def _header(data: bytes, position: int) -> tuple[BlobId, int] | None:
    plain = data[position : position + _PLAIN_BYTES]
    checksum = data[position + _PLAIN_BYTES : position + HEADER_BYTES]
    if not plain.startswith(MAGIC) or xxhash.xxh3_64_digest(plain) != checksum:
        return None
    return unpack(plain[len(MAGIC) : len(MAGIC) + PACKED_BYTES]), int.from_bytes(plain[-4:], "big")


def _is_torn(data: bytes, position: int) -> bool:
    """Whether what begins here was never written to its end."""
    found = _header(data, position)
    if found is None:
        return len(data) - position < HEADER_BYTES or not any(data[position + HEADER_BYTES - 1 :])
    end = position + OVERHEAD_BYTES + found[1]
    return end > len(data) or not any(data[end - _SUM_BYTES :])


def _next_header(data: bytes, position: int) -> int:
    while True:
        position = data.find(MAGIC, position)
        if position < 0:
            return len(data)
        if _header(data, position) is not None:
            return position
        position += 1


def payload_is_whole(header: bytes, payload: bytes, checksum: bytes) -> bool:
    """Tell whether a frame that was read again is what it was."""
    return xxhash.xxh3_64_digest(header + payload) == checksum
