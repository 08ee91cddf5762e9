"""The format of blobs in a segment: one frame after another, each with its id and checksums.

::

    "RTBF"  blob id (20 bytes)  payload bytes (4)  XXH3-64 of these (8)  payload  XXH3-64 of header and payload (8)

A frame that can't be read is in one of three states, which must not be confused:

* *torn*: the segment ends within it, or from some place within it only zeros follow up to the segment's end.  It was never
  synced, so it was never acknowledged, and may be cut off
* *damaged*: its header is whole.  The blob was stored here and can't be read
* *in doubt*: neither.  No reader can tell which blobs were here

Damage by a disk leaves neither a shorter file nor zeros up to its end, because a frame ends with a checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec
import xxhash

from replitree.tablet.group.ids import PACKED_BYTES, PACKED_FIELDS, BlobId, unpack
from replitree.tablet.group.member import Request, Write

MAGIC = b"RTBF"
_SUM_BYTES = 8
_CHUNK_BYTES = 1 << 16
_PLAIN = struct.Struct(f">4s{PACKED_BYTES}sI")
_PLAIN_BYTES = _PLAIN.size
_FIELDS = struct.Struct(f">4s{PACKED_FIELDS}I")
_SUM = struct.Struct(">Q")
HEADER_BYTES = _PLAIN_BYTES + _SUM_BYTES
OVERHEAD_BYTES = HEADER_BYTES + _SUM_BYTES


class Frame(NamedTuple):
    """A blob in a segment: where its payload begins, how long it is, and whether it matches its checksum."""

    blob: BlobId
    offset: int
    bytes: int
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Scanned:
    """The frames of a segment.

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


Framing: TypeAlias = tuple[bytes, bytes]
"""The header before a payload, and the checksum after it."""

NO_FRAMINGS: Mapping[BlobId, Framing] = {}
"""No framing was computed before."""


def framing_of(blob: BlobId, payload: bytes) -> Framing:
    """Compute the header and the checksum that are written around a blob."""
    plain = _PLAIN.pack(MAGIC, blob.pack(), len(payload))
    header = plain + xxhash.xxh3_64_digest(plain)
    checksum = xxhash.xxh3_64(header)
    checksum.update(payload)
    return header, checksum.digest()


class FramedWrite(Write, frozen=True):
    """A write with the framings of its blobs, and their bytes: computed once for all members.  It is never sent."""

    framings: Mapping[BlobId, Framing] = msgspec.field(default_factory=dict)
    bytes: int = 0

    @property
    def plain(self) -> Write:
        """The write alone."""
        return Write(self.blobs, self.restorer)


def framed(requests: tuple[Request | None, ...]) -> tuple[Request | None, ...]:
    """Return requests to some members; a write that is the same for all of them has what frames its blobs."""
    first = requests[0]
    if not isinstance(first, Write) or requests.count(first) < len(requests):
        return requests
    framings: dict[BlobId, Framing] = {}
    size = 0
    for blob, data in first.blobs:
        framings[blob] = framing_of(blob, data)
        size += len(data)
    return (FramedWrite(first.blobs, first.restorer, framings, size),) * len(requests)


def bytes_of(request: Request) -> int:
    """Return the bytes of the blobs that a request carries."""
    if isinstance(request, FramedWrite):
        return request.bytes
    return sum(len(data) for _, data in request.blobs) if isinstance(request, Write) else 0


def joined(writes: Sequence[Write]) -> Write:
    """Return several writes as one; those without a restorer can be joined."""
    blobs = tuple(blob for each in writes for blob in each.blobs)
    known = [each for each in writes if isinstance(each, FramedWrite)]
    if len(known) < len(writes):
        return Write(blobs)
    framings = dict[BlobId, Framing]()
    for each in known:
        framings |= each.framings
    return FramedWrite(blobs, None, framings, sum(each.bytes for each in known))


def framings_of(write: Write) -> Mapping[BlobId, Framing]:
    """Return the framings that were computed already, by blob."""
    return write.framings if isinstance(write, FramedWrite) else NO_FRAMINGS


def frame_of(blob: BlobId, payload: bytes) -> bytes:
    """Return the bytes of a frame."""
    header, checksum = framing_of(blob, payload)
    return header + payload + checksum


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
    view = memoryview(data)
    while position < len(data):
        # Nearly all frames are whole: one checksum over header and payload instead of two.
        whole = _whole(view, position, begin)
        if whole is not None:
            frames.append(whole)
            position += OVERHEAD_BYTES + whole.bytes
            continue
        header = _header(data, position)
        frame = None
        if header is not None:
            blob, size = header
            end = position + OVERHEAD_BYTES + size
            # A frame that is cut off has too few bytes here, and is not whole either.
            is_whole = xxhash.xxh3_64_digest(data[position : end - _SUM_BYTES]) == data[end - _SUM_BYTES : end]
            frame = Frame(blob, begin + position + HEADER_BYTES, size, is_whole)
        if frame is None or not frame.is_whole:
            # Torn first: what was never written to its end was never acknowledged, and counts as not there.
            if header is None:
                is_torn = len(data) - position < HEADER_BYTES or _is_zero(data, position + HEADER_BYTES - 1)
            else:
                end = position + OVERHEAD_BYTES + header[1]
                is_torn = end > len(data) or _is_zero(data, end - _SUM_BYTES)
            if is_torn:
                break
        if frame is None:
            is_in_doubt = True
            # Only a header with a right checksum is trusted to say where the next frame begins.
            position = data.find(MAGIC, position + 1)
            while position >= 0 and _header(data, position) is None:
                position = data.find(MAGIC, position + 1)
            position = len(data) if position < 0 else position
            continue
        frames.append(frame)
        position += OVERHEAD_BYTES + frame.bytes
    return Scanned(tuple(frames), begin + position, is_in_doubt)


def _whole(view: memoryview, position: int, begin: int) -> Frame | None:
    """Return the frame that stands here if it is whole, as nearly all are; None if it has to be looked at more closely."""
    payload = position + HEADER_BYTES
    if payload > len(view):
        return None
    magic, tablet, channel, generation, step, high, low, size = _FIELDS.unpack_from(view, position)
    end = payload + size
    if magic != MAGIC or end + _SUM_BYTES > len(view):
        return None
    if xxhash.xxh3_64_intdigest(view[position:end]) != _SUM.unpack_from(view, end)[0]:
        return None
    return Frame(BlobId(tablet, channel, generation, step, high << 16 | low), begin + payload, size)


def _header(data: bytes, position: int) -> tuple[BlobId, int] | None:
    plain = data[position : position + _PLAIN_BYTES]
    checksum = data[position + _PLAIN_BYTES : position + HEADER_BYTES]
    if xxhash.xxh3_64_digest(plain) != checksum:
        return None
    magic, blob, size = _PLAIN.unpack(plain)
    return (unpack(blob), size) if magic == MAGIC else None


def _is_zero(data: bytes, position: int) -> bool:
    """Whether there is nothing but zeros from here on; most often the first bytes tell."""
    if data[position : position + _SUM_BYTES].strip(b"\0"):
        return False
    chunks = (data[begin : begin + _CHUNK_BYTES] for begin in range(position + _SUM_BYTES, len(data), _CHUNK_BYTES))
    return all(chunk.count(0) == len(chunk) for chunk in chunks)


def whole_payload(frame: bytes) -> bytes | None:
    """Return the payload of a frame that was read again; None when it is not what it was.

    A header alone ends with a checksum of what is before it, as a frame does.
    """
    is_whole = len(frame) >= OVERHEAD_BYTES and xxhash.xxh3_64_digest(frame[:-_SUM_BYTES]) == frame[-_SUM_BYTES:]
    return frame[HEADER_BYTES:-_SUM_BYTES] if is_whole else None
