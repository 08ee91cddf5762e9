"""What a snapshot is made of gives the state back, with what was on its way when it was made."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from replitree.tablet.core import snapshots
from replitree.tablet.core.commit import Ledger, form
from replitree.tablet.core.entries import LogEntry, decode
from replitree.tablet.core.envelope import BadEntry
from replitree.tablet.core.snapshots import COMMANDS_AND_BLOBS, Begun, bytes_of, draft_of, pieces_of, restored, since_of
from replitree.tablet.group.ids import NOTHING, BlobId, Generation, Step
from tests.tablet.building import TABLET, at, data_id, entry_id
from tests.tablet.machine import Words

LEDGER = Ledger(TABLET, Generation(2), NOTHING, last=Step(5))
MACHINE = Words()


def snapshot(since: Sequence[bytes], rest: Sequence[bytes]) -> tuple[LogEntry, list[tuple[BlobId, bytes]]]:
    """Make a snapshot of two words, and of commands since that are stored before it and with it; return entry and blobs."""
    pieces = pieces_of(LEDGER, MACHINE.snapshot(("a", "b")), first=3, piece_bytes=2)
    assert [blob for blob, _ in pieces] == [data_id(2, 6, 3), data_id(2, 6, 4)]
    before = since_of(LEDGER, since, first=5)
    begun = Begun(2, tuple(blob for blob, _ in pieces), tuple(blob for blob, _ in before))
    _, blobs = form(LEDGER, draft_of(LEDGER, begun, rest, [data_id(1, 1)], first=5 + len(before)))
    entry = decode(*blobs[-1])
    assert isinstance(entry, LogEntry)
    assert (entry.is_total, entry.gc_left) == (True, (data_id(1, 1),))
    assert entry.gc_discovered == entry.references
    assert len(set(entry.references)) == len(entry.references)
    return entry, [*pieces, *before, *blobs]


@pytest.mark.parametrize(
    ("since", "rest", "blobs"),
    [((), (b"c",), 1), ((), (), 1), ((), (b"c", b"d", b"e"), 2), ((b"c",), (), 2), ((b"c", b"d", b"e"), (b"f",), 3)],
    ids=["one", "none", "many", "before", "before and with it"],
)
def test_snapshot_gives_state_and_number_of_commands_back(
    since: tuple[bytes, ...], rest: tuple[bytes, ...], blobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SINCE_BYTES", bytes_of((b"c", b"d")))
    entry, stored = snapshot(since, rest)
    assert len(entry.references) == 2 + blobs
    number, many = (2).to_bytes(8, "big"), blobs.to_bytes(8, "big")
    assert entry.metadata == (((2, number),) if blobs == 1 else ((3, number + many),))
    words = ("a", "b", *(each.decode() for each in (*since, *rest)))
    assert restored(MACHINE, entry, at(2, 6), stored) == (words, len(words))


def test_commands_that_have_no_bytes_fill_a_blob_too() -> None:
    ((_, data),) = since_of(LEDGER, [b""] * 100, first=1)
    assert len(data) <= bytes_of([b""] * 100)
    ((_, data),) = since_of(LEDGER, [bytes(1 << 16)], first=1)
    assert len(data) <= bytes_of([bytes(1 << 16)]) + 5


def test_snapshot_that_lacks_a_piece_is_not_restored() -> None:
    entry, stored = snapshot((), ())
    with pytest.raises(BadEntry, match="lacks"):
        restored(MACHINE, entry, at(2, 6), stored[1:])


@pytest.mark.parametrize("said", [b"", bytes(8), bytes(8) + (4).to_bytes(8, "big"), bytes(16)])
def test_snapshot_that_says_nothing_of_its_blobs_is_refused(said: bytes) -> None:
    entry, stored = snapshot((), ())
    with pytest.raises(BadEntry, match="lacks what it stands for"):
        restored(MACHINE, structs.replace(entry, metadata=((COMMANDS_AND_BLOBS, said),)), at(2, 6), stored)


def test_entry_that_is_no_such_snapshot_is_refused() -> None:
    with pytest.raises(BadEntry, match="lacks what it stands for"):
        restored(MACHINE, LogEntry(NOTHING, Step(0), is_snapshot=True), entry_id(2, 6).place, ())
