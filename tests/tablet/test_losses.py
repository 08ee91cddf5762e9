"""An operator accepts that confirmed entries are lost: what stays, what does not, and that it is written down for good."""

from __future__ import annotations

import pytest

from replitree.tablet.core.commit import Draft
from replitree.tablet.core.election import NotElected, Won
from replitree.tablet.core.lease import Tenure, metadata
from replitree.tablet.core.losses import (
    FORMAT,
    Assessment,
    LossRecord,
    accept,
    assess,
    decode_record,
    read_records,
    record_id,
)
from replitree.tablet.core.recovery import MissingEntries
from replitree.tablet.group.effects import Collection, Fence, NotKnown
from replitree.tablet.group.ids import Generation, GenStep
from replitree.tablet.group.member import Done, Raise, Sweep, Write, with_blobs
from replitree.tablet.group.quorum import HIDDEN
from tests.tablet.building import GROUP, TABLET, at, data_id, entry_id
from tests.tablet.cluster import EVERYBODY, Cluster

TOTAL = Draft(is_snapshot=True, is_total=True)


def assessed(cluster: Cluster) -> Assessment:
    """Look what would stay."""
    found = cluster.run(assess(cluster.channels))
    assert isinstance(found, Assessment), found
    return found


def record_of(found: Assessment) -> LossRecord:
    """Write down what is given up."""
    return LossRecord(FORMAT, "ann", "a Sunday", "two disks died", found.kept, found.unreadable, found.given_up)


def accepted(cluster: Cluster, found: Assessment) -> Won | NotElected:
    """Accept a loss."""
    return cluster.run(accept(cluster.channels, "operator", found, record_of(found)))


def five_entries(cluster: Cluster) -> None:
    """Commit entries, the last of which says that the four before are confirmed."""
    ledger = cluster.lead()[0]
    for _ in range(5):
        ledger = cluster.commit(ledger)


def leased(duration_ns: int) -> Draft:
    """Return an entry that speaks of a lease."""
    return Draft(b"x", metadata=metadata(Tenure(duration_ns)))


def test_longest_lease_of_any_entry_that_can_be_read_is_told() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    for duration_ns in (9, 4, 0, 0, 0):
        ledger = cluster.commit(ledger, leased(duration_ns))
    cluster.rot(entry_id(1, 4))
    assert assessed(cluster).lease_ns == 9


@pytest.mark.parametrize("how", ["rot", "forget"])
def test_lease_of_a_leader_of_whom_no_entry_can_be_read_is_not_known(how: str) -> None:
    cluster = Cluster()
    cluster.commit(cluster.lead()[0], leased(9))
    cluster.commit(cluster.lead()[0], leased(11))
    cluster.lead()  # so that it is known that there was an entry of the second
    assert assessed(cluster).lease_ns == 11
    getattr(cluster, how)(entry_id(2, 1))
    assert assessed(cluster).lease_ns is None


def test_lease_of_a_log_of_which_nothing_can_be_read_is_not_known() -> None:
    cluster = Cluster()
    assert assessed(cluster).lease_ns == 0
    cluster.commit(cluster.lead()[0], leased(9))
    for step in (0, 1):
        cluster.rot(entry_id(1, step))
    assert assessed(cluster).lease_ns is None


@pytest.mark.parametrize("how", ["rot", "forget"])
def test_what_counted_before_the_first_lost_entry_stays_for_all_later_leaders(how: str) -> None:
    cluster = Cluster()
    five_entries(cluster)
    whole = dict(zip(cluster.held[GROUP][0].names, cluster.held[GROUP][0].data, strict=True))[entry_id(1, 3)]
    assert whole is not None
    getattr(cluster, how)(entry_id(1, 3))
    assert isinstance(cluster.stand(), NotElected)
    found = assessed(cluster)
    assert found.kept == at(1, 2)
    assert found.unreadable == ("entry 1:3 was confirmed and is not there",)
    assert at(1, 5) in found.given_up
    result = accepted(cluster, found)
    assert isinstance(result, Won)
    assert (result.generation, result.zero.predecessor) == (3, at(1, 2))
    for number in EVERYBODY:  # a disk comes back with what was lost
        held = cluster.held[GROUP][number]
        cluster.held[GROUP][number] = with_blobs(held, {entry_id(1, 3): whole})
    for _ in range(3):
        assert cluster.lead()[1] == ["1:1", "1:2"]


def test_nothing_is_done_when_less_would_stay_than_was_agreed_on() -> None:
    cluster = Cluster()
    five_entries(cluster)
    cluster.rot(entry_id(1, 3))
    found = assessed(cluster)
    cluster.rot(entry_id(1, 2))
    result = accepted(cluster, found)
    assert isinstance(result, NotElected)
    assert isinstance(result.reason, NotKnown)
    assert "look again" in result.reason.reason
    assert cluster.run(read_records(cluster.channels)) == ()
    assert isinstance(cluster.stand(), NotElected)


def test_log_that_can_be_read_has_nothing_to_accept() -> None:
    cluster = Cluster()
    five_entries(cluster)
    cluster.rot(entry_id(1, 3), at=(0,))
    found = assessed(cluster)
    assert (found.unreadable, found.given_up, found.kept) == ((), (), at(1, 5))


def test_entry_of_the_tail_that_can_not_be_told_is_given_up() -> None:
    cluster = Cluster()
    five_entries(cluster)
    cluster.rot(entry_id(1, 5), at=(0, 1))
    cluster.forget(entry_id(1, 5), at=(2,))
    assert isinstance(cluster.stand(), NotElected)
    found = assessed(cluster)
    assert (found.kept, found.given_up) == (at(1, 4), (at(1, 5),))
    assert isinstance(accepted(cluster, found), Won)
    assert cluster.lead()[1] == ["1:1", "1:2", "1:3", "1:4"]


def test_lost_zero_entry_takes_all_since_the_snapshot() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.commit(cluster.lead()[0]), TOTAL)
    cluster.commit(ledger)
    cluster.commit(cluster.commit(cluster.lead()[0]))
    cluster.rot(entry_id(2, 0))
    result = cluster.stand()
    assert isinstance(result, NotElected)
    assert isinstance(result.reason, MissingEntries)
    found = assessed(cluster)
    assert found.kept == at(1, 2)
    assert isinstance(accepted(cluster, found), Won)
    assert cluster.lead()[1] == ["1:2"]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (0, "blob 7/1/1:1/0 can't be read"),
        (1, "blob 7/1/1:1/0 of the snapshot 1:1, and with it everything before, can't be read"),
    ],
)
def test_snapshot_whose_blobs_are_lost_takes_everything(more: int, what: str) -> None:
    cluster = Cluster()
    blob = data_id(1, 1)
    ledger = cluster.commit(cluster.lead()[0], Draft(parallel=((blob, b"state"),), is_snapshot=True, is_total=True))
    for _ in range(more):
        cluster.commit(ledger)
    cluster.rot(blob)
    found = assessed(cluster)
    assert (found.accepted, found.unreadable) == ((), (what,))
    assert isinstance(accepted(cluster, found), Won)
    assert cluster.lead()[1] == []


def test_snapshot_whose_entry_is_lost_is_named_and_nothing_else_is_missed() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.commit(cluster.lead()[0]), TOTAL)
    cluster.commit(ledger)
    cluster.rot(entry_id(1, 2))
    result = cluster.stand()
    assert isinstance(result, NotElected)
    assert result.reason == MissingEntries((at(1, 2),))
    found = assessed(cluster)
    assert found.unreadable == ("the snapshot 1:2, and with it everything before, was confirmed and is not there",)
    assert found.kept == at(0, 0)
    assert isinstance(accepted(cluster, found), Won)
    assert cluster.lead()[1] == []


@pytest.mark.parametrize(
    ("swept", "kept", "words"),
    [
        ((), at(1, 1), "blob 7/1/1:2/0 can't be read"),
        (
            (0, 2),
            at(0, 0),
            "the snapshot 1:2, and with it everything before, can't be read, and the log is collected up to 1:1",
        ),
    ],
)
def test_what_a_snapshot_replaced_stays_if_nobody_has_deleted_it(
    swept: tuple[int, ...], kept: GenStep, words: str
) -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.lead()[0], at=(0, 1))
    state = Draft(parallel=((data_id(1, 2), b"state"),), is_snapshot=True, is_total=True)
    cluster.commit(cluster.commit(ledger, state, at=(0, 1)), at=(0, 1))
    command = Sweep(Collection(TABLET, entry_id(1, 1).channel, (Generation(1), 1), at(1, 1)))
    for number in swept:
        assert cluster.ask(number, command) == Done()
    cluster.rot(entry_id(1, 3), at=(0, 1))
    cluster.rot(data_id(1, 2), at=(0, 1))
    found = assessed(cluster)
    assert (found.kept, found.unreadable[-1]) == (kept, words)
    assert isinstance(accepted(cluster, found), Won)
    assert cluster.lead()[1] == [str(place) for place, _ in found.accepted]


@pytest.mark.parametrize("members", [(0, 1), (0, 1, 2)])
def test_zero_entry_of_the_first_generation_can_be_done_without(members: tuple[int, ...]) -> None:
    cluster = Cluster()
    five_entries(cluster)
    cluster.rot(entry_id(1, 0), at=members)
    cluster.forget(entry_id(1, 0), at=[number for number in EVERYBODY if number not in members])
    found = assessed(cluster)
    assert (found.unreadable, found.given_up, found.kept) == ((), (), at(1, 5))
    assert cluster.lead()[1] == ["1:1", "1:2", "1:3", "1:4", "1:5"]


def test_zero_entry_of_the_first_generation_that_is_gone_without_a_trace_is_missed() -> None:
    cluster = Cluster()
    five_entries(cluster)
    cluster.forget(entry_id(1, 0))
    result = cluster.stand()
    assert isinstance(result, NotElected)
    assert result.reason == MissingEntries((at(1, 0),))


def test_reference_that_is_lost_takes_its_entry_and_all_after_it_and_the_one_before_is_mended() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    for step in (1, 2, 3):
        ledger = cluster.commit(ledger, Draft(parallel=((data_id(1, step), b"body"),)))
    cluster.rot(data_id(1, 2))
    cluster.forget(data_id(1, 1), at=(0, 1))
    found = assessed(cluster)
    assert (found.kept, found.given_up) == (at(1, 1), (at(1, 2), at(1, 3)))
    assert found.unreadable == ("blob 7/1/1:2/0 of entry 1:2 can't be read",)
    assert isinstance(accepted(cluster, found), Won)
    assert cluster.lead()[1] == ["1:1"]
    assert cluster.copies(data_id(1, 1)) == [0, 1, 2]


def test_nothing_is_given_up_while_members_can_not_tell_what_they_had() -> None:
    cluster = Cluster()
    five_entries(cluster)
    for number in (0, 1):
        cluster.hide(entry_id(1, 3), at=number)
    assert cluster.run(assess(cluster.channels)) == HIDDEN
    assert isinstance(cluster.stand(), NotElected)
    cluster = Cluster()
    five_entries(cluster)
    cluster.hide(entry_id(1, 3), at=0)
    cluster.rot(entry_id(1, 3), at=(1, 2))
    found = assessed(cluster)
    assert found.unreadable == ("entry 1:3 was confirmed and is not there",)
    assert isinstance(accepted(cluster, found), Won)
    assert cluster.lead()[1] == ["1:1", "1:2"]


def test_record_is_there_for_good() -> None:
    cluster = Cluster()
    five_entries(cluster)
    cluster.rot(entry_id(1, 3))
    found = assessed(cluster)
    accepted(cluster, found)
    cluster.lead()
    for channel in (0, 1):
        order = (Generation(9), 1)
        for number in EVERYBODY:
            collection = Collection(TABLET, data_id(1, 1, channel=channel).channel, order, at(8, 8), is_hard=True)
            assert cluster.ask(number, Sweep(collection)) == Done()
    assert cluster.run(read_records(cluster.channels)) == ((Generation(2), record_of(found)),)


def test_leader_that_was_passed_over_commits_nothing_more() -> None:
    cluster = Cluster()
    five_entries(cluster)
    cluster.rot(entry_id(1, 3))
    accepted(cluster, assessed(cluster))
    assert cluster.ask(0, Write(((entry_id(1, 6), b"x"),))) != Done()
    assert cluster.ask(0, Raise(TABLET, Fence(Generation(1), "other"))) != Done()


def test_damaged_record_is_refused() -> None:
    blob = record_id(Cluster().channels, Generation(1))
    with pytest.raises(Exception, match="torn or no log entry"):
        decode_record(blob, b"?")
