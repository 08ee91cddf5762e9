"""A frame that can't be read is torn, damaged or in doubt, and these are told apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replitree.tablet.group.member import Write
from replitree.tablet.members.frames import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    FramedWrite,
    Scanned,
    frame_of,
    framed,
    scan,
)
from tests.storage.blob_providers import blob_id

PAYLOADS = (b"first", b"", b"\0" * 600, b"last")
FRAMES = [frame_of(blob_id(1, step), payload) for step, payload in enumerate(PAYLOADS)]
SEGMENT = b"".join(FRAMES)
ENDS = [sum(len(frame) for frame in FRAMES[: count + 1]) for count in range(len(FRAMES))]


def steps(scanned: Scanned) -> list[int]:
    """The steps of whole frames."""
    return [frame.blob.step for frame in scanned.frames if frame.is_whole]


def test_frame_is_frozen() -> None:
    frame = frame_of(blob_id(2, 5), b"payload")
    assert frame.hex() == (
        "52544246000000000000000700000000020000000500000000000007d8eed5696e1721027061796c6f6164814f3036cb4f40e4"
    )


def test_whole_segment() -> None:
    scanned = scan(SEGMENT)
    assert steps(scanned) == [0, 1, 2, 3]
    assert (scanned.end, scanned.is_in_doubt) == (len(SEGMENT), False)
    assert [SEGMENT[each.offset : each.offset + each.bytes] for each in scanned.frames] == list(PAYLOADS)


@given(st.integers(0, len(SEGMENT) - 1), st.sampled_from([0, 5, 4096]))
def test_what_was_not_written_to_its_end_is_torn_or_at_worst_damaged(kept: int, zeros: int) -> None:
    count = sum(end <= kept for end in ENDS)
    begin, end = ([0, *ENDS][count], ENDS[count])
    scanned = scan(SEGMENT[:kept] + bytes(zeros))
    assert steps(scanned) == list(range(count))
    ends_in_checksum = end - 8 < kept and kept + zeros >= end
    if ends_in_checksum:
        assert [frame.blob.step for frame in scanned.frames if not frame.is_whole] == [count]
    else:
        assert len(scanned.frames) == count
    assert (scanned.end, scanned.is_in_doubt) == (end if ends_in_checksum else begin, False)


@given(st.integers(0, len(SEGMENT) * 8 - 1))
def test_changed_bit_never_makes_a_blob_absent(bit: int) -> None:
    data = bytearray(SEGMENT)
    data[bit // 8] ^= 1 << bit % 8
    scanned = scan(bytes(data))
    hit = sum(end <= bit // 8 for end in ENDS)
    assert steps(scanned) == [step for step in range(4) if step != hit]
    damaged = [frame.blob.step for frame in scanned.frames if not frame.is_whole]
    in_header = bit // 8 - [0, *ENDS][hit] < HEADER_BYTES
    assert (damaged, scanned.is_in_doubt) == (([], True) if in_header else ([hit], False))
    assert scanned.end == len(SEGMENT)


def test_reading_goes_on_where_it_ended() -> None:
    scanned = scan(SEGMENT[ENDS[1] :], ENDS[1])
    assert [frame.offset for frame in scanned.frames] == [ENDS[1] + HEADER_BYTES, ENDS[2] + HEADER_BYTES]
    assert scanned.end == len(SEGMENT)


def test_payload_that_looks_like_a_frame_is_no_frame() -> None:
    outer = frame_of(blob_id(1, 9), FRAMES[0])
    assert [frame.blob.step for frame in scan(outer).frames] == [9]
    assert len(outer) == len(FRAMES[0]) + OVERHEAD_BYTES


def test_checksums_that_are_reckoned_for_all_members_are_those_of_the_frames() -> None:
    blobs = tuple((blob_id(1, step), payload) for step, payload in enumerate(PAYLOADS))
    write = Write(blobs)
    first, second = framed((write, write))
    assert isinstance(first, FramedWrite)
    assert first is second
    assert first.plain == write
    around = [(first.framings[blob], payload) for blob, payload in blobs]
    assert [header + payload + checksum for (header, checksum), payload in around] == FRAMES


def test_requests_that_differ_are_let_through_as_they_are() -> None:
    requests = (Write(((blob_id(1, 1), b"x"),)), None)
    assert framed(requests) is requests
