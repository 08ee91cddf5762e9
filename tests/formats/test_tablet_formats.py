"""What tablets have written stays readable: log entries, segments, the state of a directory, messages to a service."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from replitree.errors import StoreError, UnsupportedFormat
from replitree.tablet.core.entries import Entry, LogEntry, ZeroEntry, decode, encode
from replitree.tablet.core.losses import LossRecord, decode_record, encode_record
from replitree.tablet.group.admission import Admit, Answer, AskStanding, AskStreams, Question, Remember
from replitree.tablet.group.effects import Collection, Fence, Overtaken
from replitree.tablet.group.ids import NOTHING, BlobId, Channel, Generation, Step
from replitree.tablet.group.member import (
    AskBarrier,
    AskFence,
    Barrier,
    BarrierIs,
    Conflict,
    Contents,
    Done,
    Failed,
    FenceIs,
    Holdings,
    Look,
    Raise,
    Scan,
    Sweep,
    Swept,
    Write,
)
from replitree.tablet.members.folders import GroupFile
from replitree.tablet.members.frames import frame_of, scan
from replitree.tablet.members.member import Standing, Streams
from replitree.tablet.members.places import MemberPlace
from replitree.tablet.members.state import DirectoryState, decode_state, encode_state
from replitree.tablet.members.wire import decode_message, encode_message
from tests.tablet.building import GROUP, TABLET, at, data_id, entry_id

FROZEN = Path(__file__).parent / "tablet"

ENTRIES: dict[str, tuple[BlobId, Entry]] = {
    "entry": (
        entry_id(2, 7),
        LogEntry(
            snapshot=at(1, 3),
            confirmed=Step(4),
            depends_on=(Step(5), Step(6)),
            references=(data_id(1, 2), data_id(2, 7, 1)),
            gc_discovered=(data_id(2, 7, 1),),
            gc_left=(data_id(1, 2),),
            metadata=((1, b"lease"),),
        ),
    ),
    "body": (entry_id(2, 8), LogEntry(at(1, 3), Step(4), (Step(7),), body=b"set a 1")),
    "total": (
        entry_id(2, 9),
        LogEntry(at(1, 3), Step(4), references=(data_id(2, 9),), is_snapshot=True, is_total=True),
    ),
    "sync": (entry_id(2, 9, 1), LogEntry(at(2, 9), Step(9))),
    "zero": (entry_id(3, 0), ZeroEntry(at(2, 9), at(2, 9), 66, (1 << 63, 2))),
    "first": (entry_id(1, 0), ZeroEntry(NOTHING, NOTHING)),
}

BARRIER = Barrier((Generation(2), 3), at(2, 1), at(1, 0), frozenset({data_id(1, 2), data_id(2, 1)}))
STATE = DirectoryState("g", 1, "6d65", 5, (5, 5, 4)).with_holdings(
    Holdings(fences=((TABLET, Fence(Generation(2), "c1")),), barriers=((TABLET, Channel(1), BARRIER),))
)


def frozen(name: str) -> bytes:
    """Read frozen bytes."""
    return bytes.fromhex((FROZEN / f"{name}.hex").read_text(encoding="ascii"))


@pytest.mark.parametrize("name", ENTRIES)
def test_log_entry_is_frozen(name: str) -> None:
    blob, entry = ENTRIES[name]
    assert encode(blob, entry) == frozen(name)
    assert decode(blob, frozen(name)) == entry


LOSS = LossRecord(
    1,
    "ann",
    "2026-02-01T10:00:00+00:00",
    "two disks died",
    at(2, 7),
    ("entry 2:8 is damaged",),
    (at(2, 8), at(2, 9)),
    (2,),
)


def test_record_of_an_accepted_loss_is_frozen() -> None:
    blob = data_id(3, 0, channel=2)
    assert encode_record(blob, LOSS) == frozen("loss")
    assert decode_record(blob, frozen("loss")) == LOSS


def test_file_of_a_group_is_frozen() -> None:
    places = (
        MemberPlace(folder="0", incarnation="a0"),
        MemberPlace(store="s3://bucket/one", incarnation="a1"),
        MemberPlace(service="host:7070", token_file="/etc/token", incarnation="a2"),
    )
    file = GroupFile(2, GROUP, 2, places)
    data = (FROZEN / "group.json").read_bytes()
    assert msgspec.json.format(msgspec.json.encode(file)) == data
    assert msgspec.json.decode(data, type=GroupFile) == file
    of_directories = b'{"format": 1, "group": "g", "write": 1, "members": [{"folder": "0", "incarnation": "a0"}]}'
    assert msgspec.json.decode(of_directories, type=GroupFile) == GroupFile(1, GROUP, 1, places[:1])


def test_segment_is_frozen() -> None:
    frames = [(entry_id(2, 5), b"payload"), (data_id(2, 5), b"")]
    assert b"".join(frame_of(*each) for each in frames) == frozen("segment")
    assert [frame.blob for frame in scan(frozen("segment")).frames] == [blob for blob, _ in frames]


def test_state_is_frozen() -> None:
    assert encode_state(STATE) == frozen("state")
    found = decode_state(frozen("state"), FROZEN)
    assert found == STATE
    assert found.holdings().barrier(TABLET, Channel(1)) == BARRIER


@pytest.mark.parametrize("position", range(len(encode_state(STATE))))
def test_changed_state_is_not_believed(position: int) -> None:
    data = bytearray(encode_state(STATE))
    data[position] ^= 0x10
    with pytest.raises(StoreError, match="damaged"):
        decode_state(bytes(data), FROZEN)


MESSAGES: tuple[Question | Answer, ...] = (
    Write(((entry_id(2, 7), b"x"),), Fence(Generation(1), "c1")),
    Raise(TABLET, Fence(Generation(1), "c1")),
    AskFence(TABLET),
    Look((entry_id(2, 7), data_id(2, 7))),
    Scan(entry_id(1, 0), entry_id(2, 7), Fence(Generation(2), "c2"), newest=True),
    Sweep(Collection(TABLET, Channel(1), (Generation(2), 3), at(2, 1), (data_id(1, 2),), (), is_hard=True)),
    AskStanding(),
    Admit(5),
    Remember((5, 5, 4)),
    Done(),
    Overtaken(Generation(3)),
    Conflict(entry_id(2, 7)),
    Swept(entry_id(2, 7)),
    FenceIs(None),
    FenceIs(Fence(Generation(1), "c1")),
    Contents(((entry_id(2, 7), b"x"),), (entry_id(2, 8),), ((entry_id(1, 0), entry_id(1, 9)),)),
    Failed("it is full"),
    Standing("6d65", 5, (5, 5, 4)),
    AskStreams(),
    Streams(((TABLET, Channel(0)), (TABLET, Channel(2)))),
    AskBarrier(TABLET, Channel(0)),
    BarrierIs(at(2, 1)),
)


def test_messages_of_a_blob_service_are_frozen() -> None:
    lines = (FROZEN / "messages.hex").read_text(encoding="ascii").split()
    assert [encode_message(each).hex() for each in MESSAGES] == lines
    assert tuple(decode_message(bytes.fromhex(line)) for line in lines) == MESSAGES


def test_opening_by_an_earlier_version_is_understood() -> None:
    """It did not say how the member stood."""
    assert decode_message(bytes.fromhex("92a541646d697481a773657373696f6e05d50efadb3df0239e")) == Admit(5)


def test_newer_state_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.tablet.members.state.FORMAT", 2)
    data = encode_state(STATE)
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        decode_state(data, FROZEN)
