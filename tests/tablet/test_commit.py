"""The ledger: what is committed, confirmed and sent, in whatever order answers come."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.tablet.core import commit
from replitree.tablet.core.commit import Draft, Ledger, failed, form, stored, sync_entry, synced
from replitree.tablet.core.entries import LogEntry, decode
from replitree.tablet.group.ids import NOTHING, BlobId, Generation, Step
from tests.examples import examples
from tests.tablet.building import TABLET, at, data_id, entry_id
from tests.tablet.cluster import steps

EMPTY = Ledger(TABLET, Generation(1), NOTHING)
SNAPSHOT = Draft(is_snapshot=True)


def sent(ledger: Ledger, *drafts: Draft) -> Ledger:
    """Form entries without hearing of any."""
    for draft in drafts:
        ledger, _ = form(ledger, draft)
    return ledger


def entry_of(blobs: tuple[tuple[BlobId, bytes], ...]) -> LogEntry:
    """Read the entry that was formed last."""
    entry = decode(*blobs[-1])
    assert isinstance(entry, LogEntry)
    return entry


def heard(ledger: Ledger, *numbers: int) -> tuple[Ledger, list[int]]:
    """Hear that entries are stored, in this order; return the steps that are committed, in order."""
    committed: list[int] = []
    for number in numbers:
        ledger, more = stored(ledger, entry_id(1, number))
        committed += more
    return ledger, committed


@settings(max_examples=examples(24))
@given(st.permutations(range(1, 7)))
def test_chain_is_committed_in_order_whatever_is_stored_first(order: list[int]) -> None:
    ledger, committed = sent(EMPTY, *[Draft(b"x")] * 6), list[int]()
    for count, number in enumerate(order, 1):
        ledger, more = stored(ledger, entry_id(1, number))
        committed += more
        assert ledger.confirmed == len(committed)
        assert committed == list(range(1, len(committed) + 1))
        done = order[:count]
        assert len(committed) == next(step for step in range(7) if step + 1 not in done)
        waiting = [each.bytes for each in ledger.pending if not each.is_committed]
        assert (ledger.flying, ledger.flying_bytes) == (len(waiting), sum(waiting))
    assert ledger.pending == ()


def test_free_entries_are_committed_as_they_come_and_confirmed_in_order() -> None:
    ledger, committed = heard(sent(EMPTY, *[Draft(b"x", depends_on=())] * 3), 3, 2)
    assert (committed, ledger.confirmed) == ([3, 2], 0)
    ledger, committed = heard(ledger, 1)
    assert (committed, ledger.confirmed) == ([1], 3)


def test_entry_says_what_is_confirmed_and_depends_on_what_is_not() -> None:
    ledger, _ = heard(sent(EMPTY, *[Draft(b"x")] * 3), 1)
    ledger, blobs = form(ledger, Draft(b"x"))
    assert entry_of(blobs) == LogEntry(NOTHING, Step(1), steps(3), body=b"x")
    assert entry_of(form(ledger, SNAPSHOT)[1]).depends_on == steps(2, 3, 4)
    assert entry_of(form(ledger, Draft(is_total=True))[1]).depends_on == ()
    assert entry_of(form(ledger, Draft(b"x", depends_on=steps(1, 2)))[1]).depends_on == steps(2)


def test_entry_waits_for_its_references() -> None:
    ledger, blobs = form(EMPTY, Draft(parallel=((data_id(1, 1), b"body"),)))
    assert [blob for blob, _ in blobs] == [data_id(1, 1), entry_id(1, 1)]
    ledger, committed = stored(ledger, entry_id(1, 1))
    assert committed == ()
    assert stored(ledger, data_id(1, 1))[1] == steps(1)


def test_snapshot_is_named_when_all_before_it_is_confirmed() -> None:
    ledger, _ = heard(sent(EMPTY, Draft(b"x"), Draft(is_total=True)), 2)
    assert (ledger.snapshot, ledger.barrier) == (NOTHING, None)
    ledger, _ = heard(ledger, 1)
    assert (ledger.snapshot, ledger.barrier) == (at(1, 2), at(1, 0))


def test_after_a_failure_nothing_from_it_on_is_committed() -> None:
    ledger = failed(sent(EMPTY, *[Draft(b"x", depends_on=())] * 4), Step(3))
    ledger = failed(ledger, Step(4))
    assert not ledger.is_over
    after, committed = heard(ledger, 4, 2, 3, 1)
    assert committed == [2, 1]
    assert after.is_over
    with pytest.raises(AssertionError, match="makes no more entries"):
        form(after, Draft(b"x"))


@pytest.mark.parametrize("limit", ["STEPS_MAX", "BYTES_MAX"])
def test_window_is_limited(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    ledger = sent(EMPTY, Draft(b"x"), Draft(b"x"))
    rooms = [ledger.has_room]
    monkeypatch.setattr(commit, limit, 2)
    rooms += [ledger.has_room, heard(ledger, 1, 2)[0].has_room]
    assert rooms == [True, False, True]


def test_sync_entry_is_written_when_nothing_else_says_what_is_confirmed() -> None:
    assert sync_entry(EMPTY) is None
    ledger = sent(EMPTY, Draft(b"x"))
    assert sync_entry(ledger) is None
    ledger, _ = heard(ledger, 1)
    sync = sync_entry(ledger)
    assert sync is not None
    assert (sync[0], decode(*sync)) == (entry_id(1, 1, 1), LogEntry(NOTHING, Step(1)))
    assert sync_entry(synced(ledger, sync[0], ledger.snapshot)) is None
    ledger, _ = heard(sent(ledger, Draft(b"x")), 2)
    assert ledger.confirmed_durable == 1
    assert sync_entry(failed(ledger, Step(3))) is None


@pytest.mark.parametrize("reference", [data_id(1, 2), data_id(2, 1), entry_id(1, 1)])
def test_reference_of_another_step_is_refused(reference: BlobId) -> None:
    with pytest.raises(AssertionError):
        form(EMPTY, Draft(parallel=((reference, b"body"),)))
