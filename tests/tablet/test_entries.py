"""Log entries survive writing and reading; what contradicts itself, is torn, changed, misplaced or too new is told apart."""

from __future__ import annotations

import msgspec
import pytest

from replitree.errors import UnsupportedFormat
from replitree.tablet.core.entries import BODY_APART, Entry, LogEntry, ZeroEntry, decode, encode, flaw
from replitree.tablet.core.envelope import BadEntry, seal
from replitree.tablet.group.ids import NOTHING, BlobId, Step
from tests.tablet.building import at, data_id, entry_id

FULL = LogEntry(
    snapshot=at(1, 3),
    confirmed=Step(4),
    depends_on=(Step(5), Step(6)),
    references=(data_id(1, 2), data_id(2, 7, 1)),
    gc_discovered=(data_id(2, 7, 1),),
    gc_left=(data_id(1, 2),),
    metadata=((1, b"lease"),),
)
SAMPLES: dict[BlobId, Entry] = {
    entry_id(2, 7): FULL,
    entry_id(2, 8): LogEntry(at(1, 3), Step(4), (Step(7),), body=b"set a 1"),
    entry_id(2, 9): LogEntry(at(1, 3), Step(4), is_snapshot=True, is_total=True, references=(data_id(2, 9),)),
    entry_id(2, 9, 1): LogEntry(at(2, 9), Step(9)),
    entry_id(3, 0): ZeroEntry(at(2, 9), at(2, 9), 66, (1 << 63, 2)),
    entry_id(1, 0): ZeroEntry(NOTHING, NOTHING),
}


@pytest.mark.parametrize("size", [0, 1, BODY_APART - 1, BODY_APART, BODY_APART + 1, 1 << 20])
@pytest.mark.parametrize("metadata", [(), ((1, b"lease"), (2, bytes(300)))])
def test_large_body_gives_the_bytes_that_every_body_gives(size: int, metadata: tuple[tuple[int, bytes], ...]) -> None:
    blob, entry = entry_id(2, 8), LogEntry(at(1, 3), Step(4), (Step(7),), body=bytes(size), metadata=metadata)
    assert encode(blob, entry) == seal(blob, msgspec.msgpack.Encoder(order="deterministic").encode(entry))
    assert decode(blob, encode(blob, entry)) == entry


@pytest.mark.parametrize("blob", SAMPLES, ids=str)
def test_entry_survives(blob: BlobId) -> None:
    assert decode(blob, encode(blob, SAMPLES[blob])) == SAMPLES[blob]


@pytest.mark.parametrize(
    ("blob", "entry"),
    [
        (entry_id(2, 7), LogEntry(NOTHING, Step(7))),
        (entry_id(2, 7), LogEntry(at(2, 7), Step(0))),
        (entry_id(2, 7), LogEntry(NOTHING, Step(0), (Step(7),))),
        (entry_id(2, 7), LogEntry(NOTHING, Step(0), (Step(0),))),
        (entry_id(2, 7), LogEntry(NOTHING, Step(0), is_total=True)),
        (entry_id(2, 7), LogEntry(NOTHING, Step(0), is_snapshot=True, body=b"b")),
        (entry_id(2, 7), LogEntry(NOTHING, Step(0), body=b"b", references=(data_id(2, 7),))),
        (entry_id(2, 7), LogEntry(NOTHING, Step(0), references=(entry_id(2, 6),))),
        (entry_id(2, 7), ZeroEntry(NOTHING, NOTHING)),
        (entry_id(2, 7, 2), LogEntry(NOTHING, Step(0))),
        (entry_id(2, 7, 1), LogEntry(NOTHING, Step(6))),
        (entry_id(2, 7, 1), LogEntry(NOTHING, Step(7), body=b"b")),
        (entry_id(2, 0), LogEntry(NOTHING, Step(0))),
        (entry_id(2, 0, 1), ZeroEntry(NOTHING, NOTHING)),
        (entry_id(2, 0), ZeroEntry(NOTHING, at(2, 0))),
        (entry_id(2, 0), ZeroEntry(at(1, 1), NOTHING)),
        (entry_id(2, 0), ZeroEntry(NOTHING, at(1, 0), 65, (1,))),
        (entry_id(2, 0), ZeroEntry(NOTHING, at(1, 0), 2, (1,))),
        (entry_id(2, 0), ZeroEntry(NOTHING, at(1, 0), 2, (6,))),
        (data_id(2, 7), LogEntry(NOTHING, Step(0))),
    ],
)
def test_entry_that_contradicts_itself_is_not_believed(blob: BlobId, entry: Entry) -> None:
    assert flaw(blob, entry) is not None
    with pytest.raises(BadEntry):
        decode(blob, seal(blob, msgspec.msgpack.encode(entry)))


@pytest.mark.parametrize("position", range(len(encode(entry_id(2, 7), FULL))))
def test_changed_byte_is_found(position: int) -> None:
    blob = entry_id(2, 7)
    data = bytearray(encode(blob, FULL))
    data[position] ^= 0x40
    with pytest.raises(BadEntry):
        decode(blob, bytes(data))


@pytest.mark.parametrize("count", [0, 3, 30, 41, 60])
def test_torn_entry_is_found(count: int) -> None:
    with pytest.raises(BadEntry):
        decode(entry_id(2, 7), encode(entry_id(2, 7), FULL)[:count])


def test_entry_of_another_id_is_found() -> None:
    with pytest.raises(BadEntry, match="another id"):
        decode(entry_id(2, 8), encode(entry_id(2, 7), FULL))


def test_payload_that_is_no_entry_is_found() -> None:
    with pytest.raises(BadEntry, match="can't be read"):
        decode(entry_id(2, 7), seal(entry_id(2, 7), b"\xc1"))


def test_newer_format_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.tablet.core.envelope.FORMAT", 2)
    data = encode(entry_id(2, 7), FULL)
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        decode(entry_id(2, 7), data)


def test_unknown_fields_at_the_end_are_let_through() -> None:
    blob = entry_id(2, 8)
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(SAMPLES[blob]))
    assert decode(blob, seal(blob, msgspec.msgpack.encode([*fields, "later"]))) == SAMPLES[blob]
