"""What a snapshot is made of gives the state back, with what was on its way when it was made."""

from __future__ import annotations

import pytest

from replitree.tablet.commit import Ledger, form
from replitree.tablet.entries import LogEntry, decode
from replitree.tablet.envelope import BadEntry
from replitree.tablet.ids import NOTHING, Generation, Step
from replitree.tablet.snapshots import draft_of, pieces_of, restored
from tests.tablet.building import TABLET, at, data_id, entry_id
from tests.tablet.machine import Words

LEDGER = Ledger(TABLET, Generation(2), NOTHING, last=Step(5))
MACHINE = Words()


def test_snapshot_gives_state_and_number_of_commands_back() -> None:
    pieces = pieces_of(LEDGER, MACHINE.snapshot(("a", "b")), first=3, piece_bytes=2)
    assert [blob for blob, _ in pieces] == [data_id(2, 5, 3), data_id(2, 5, 4)]
    draft = draft_of(LEDGER, [blob for blob, _ in pieces], 2, [b"c"], [data_id(1, 1)])
    _, blobs = form(LEDGER, draft)
    entry = decode(*blobs[-1])
    assert isinstance(entry, LogEntry)
    assert (entry.is_total, entry.gc_left) == (True, (data_id(1, 1),))
    assert entry.gc_discovered == entry.references
    assert restored(MACHINE, entry, at(2, 6), (*pieces, *blobs)) == (("a", "b", "c"), 3)


def test_snapshot_that_lacks_a_piece_is_not_restored() -> None:
    pieces = pieces_of(LEDGER, b"a b")
    draft = draft_of(LEDGER, [blob for blob, _ in pieces], 2, [], [])
    _, blobs = form(LEDGER, draft)
    entry = decode(*blobs[-1])
    assert isinstance(entry, LogEntry)
    with pytest.raises(BadEntry, match="lacks"):
        restored(MACHINE, entry, at(2, 6), blobs)


def test_entry_that_is_no_such_snapshot_is_refused() -> None:
    with pytest.raises(BadEntry, match="lacks what it stands for"):
        restored(MACHINE, LogEntry(NOTHING, Step(0), is_snapshot=True), entry_id(2, 6).place, ())
