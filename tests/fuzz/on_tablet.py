"""Targets: what tablets have on disks and in object stores, and what members of blob groups send each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from replitree.errors import BadInput, StoreError, UnsupportedFormat
from replitree.tablet.core.bodies import decode_commands
from replitree.tablet.core.entries import LogEntry, decode, encode
from replitree.tablet.core.envelope import BadEntry
from replitree.tablet.core.envelope import seal as seal_entry
from replitree.tablet.core.losses import decode_record, encode_record
from replitree.tablet.group.ids import PACKED_BYTES, BlobId, unpack
from replitree.tablet.members.frames import HEADER_BYTES, OVERHEAD_BYTES, frame_of, scan, whole_payload
from replitree.tablet.members.segments import Segments
from replitree.tablet.members.state import decode_state, encode_state
from replitree.tablet.members.wire import decode_question, encode_message
from tests.fuzz.mutate import Sealed, Shape
from tests.fuzz.target import Read, Target, reads

_SUM = 8
_MAGIC_AND_FORMAT = 6


def _blob_of(data: bytes) -> BlobId:
    """Return the id that an entry's header names, so that inputs of several ids can stand in one corpus."""
    packed = data[_MAGIC_AND_FORMAT : _MAGIC_AND_FORMAT + PACKED_BYTES]
    if len(packed) < PACKED_BYTES:
        raise BadEntry("too short")
    return unpack(packed)


def _entry(data: bytes) -> None:
    blob = _blob_of(data)
    entry = decode(blob, data)
    assert decode(blob, encode(blob, entry)) == entry
    if isinstance(entry, LogEntry):
        decode_commands(entry.body)


def _loss(data: bytes) -> None:
    blob = _blob_of(data)
    record = decode_record(blob, data)
    assert decode_record(blob, encode_record(blob, record)) == record


def _state(data: bytes) -> None:
    state = decode_state(data, "state")
    assert decode_state(encode_state(state), "again") == state
    state.with_holdings(state.holdings())


def _message(data: bytes) -> None:
    message, admission = decode_question(data)
    assert decode_question(encode_message(message, admission)) == (message, admission)


def _frames(data: bytes) -> bool:
    """Scan a segment; what was found has to lie within it, and whole frames have to be what they were written as."""
    scanned = scan(data)
    assert 0 <= scanned.end <= len(data)
    for frame in scanned.frames:
        begin, end = frame.offset - HEADER_BYTES, frame.offset - HEADER_BYTES + OVERHEAD_BYTES + frame.bytes
        assert 0 <= begin <= end <= len(data) or not frame.is_whole
        if frame.is_whole:
            payload = whole_payload(data[begin:end])
            assert payload is not None
            assert frame_of(frame.blob, payload) == data[begin:end]
    return not scanned.is_in_doubt and all(frame.is_whole for frame in scanned.frames)


@contextmanager
def _segments(folder: Path) -> Iterator[Read]:
    """Open a directory with a segment, read what is in it, and append to it."""
    place = folder / f"{7:016x}" / "00" / f"{2:08x}-000000.seg"
    place.parent.mkdir(parents=True)

    def one(data: bytes) -> None:
        place.write_bytes(data)
        segments = Segments(folder)
        segments.refresh(lambda _: False)
        blobs = segments.between(BlobId(0, 0, 0, 0, 0), BlobId(2**63, 255, 2**31, 2**31, 2**40))  # type: ignore[arg-type]
        list(segments.payloads(blobs))
        list(segments.doubts())
        segments.close()

    yield one


def _opened(data: bytes) -> bytes:
    return data[_MAGIC_AND_FORMAT + PACKED_BYTES + 4 : -_SUM]


def _sealed(whole: bytes, payload: bytes) -> bytes:
    return seal_entry(_blob_of(whole), payload)


def _with_sum(head: int) -> Sealed:
    """Return how a file is sealed that has bytes of its own at its begin, a payload, and the checksum of both."""

    def sealed(whole: bytes, payload: bytes) -> bytes:
        body = whole[:head] + payload
        return body + xxhash.xxh3_64_digest(body)

    return Sealed(lambda data: data[head:-_SUM], sealed)


def _reframed(whole: bytes, payload: bytes) -> bytes:
    """Put a payload into the first frame of a segment."""
    return frame_of(unpack(whole[4 : 4 + PACKED_BYTES]), payload) + whole


_ENTRY = Sealed(_opened, _sealed)

TARGETS = (
    Target("tablet-entry", reads(_entry), (BadEntry, UnsupportedFormat), Shape.MSGPACK, seal=_ENTRY, share=1000),
    Target("tablet-loss", reads(_loss), (BadEntry, UnsupportedFormat), Shape.MSGPACK, seal=_ENTRY, share=500),
    Target("blob-state", reads(_state), (StoreError, UnsupportedFormat), Shape.MSGPACK, seal=_with_sum(6), share=800),
    Target("blob-message", reads(_message), (BadInput,), Shape.MSGPACK, seal=_with_sum(0), share=1000),
    Target("blob-frames", reads(_frames), (), seal=Sealed(lambda data: data, _reframed), share=1000),
    Target("blob-segments", _segments, (StoreError,), share=60),
)
