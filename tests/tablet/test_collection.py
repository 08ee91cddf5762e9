"""What is collected: never what a recovery could still need, and everything that nobody needs."""

from __future__ import annotations

import pytest

from replitree.tablet.channels import Channels
from replitree.tablet.collection import bound_of, collect, inherited, log_collection, noted, take
from replitree.tablet.commit import Draft, Ledger
from replitree.tablet.effects import Collected, Collection, InDoubt, Overtaken
from replitree.tablet.election import Elected
from replitree.tablet.entries import LogEntry
from replitree.tablet.ids import NOTHING, BlobId, Channel, Generation, GroupId, Step
from replitree.tablet.quorum import Quorum, carry_out
from replitree.tablet.recovery import MissingEntries, Recovered, recover
from tests.tablet.building import GROUP, TABLET, at, data_id, entry_id
from tests.tablet.cluster import Cluster

DATA = (Channel(1),)
A, B, C = data_id(1, 1), data_id(1, 2), data_id(2, 1)


def entry(created: tuple[BlobId, ...] = (), left: tuple[BlobId, ...] = ()) -> LogEntry:
    """An entry that speaks of blobs."""
    return LogEntry(NOTHING, Step(0), gc_discovered=created, gc_left=left)


def test_first_barrier_keeps_what_entries_that_count_created() -> None:
    garbage = inherited(TABLET, Generation(2), ((at(1, 1), entry((A,))), (at(1, 2), entry((B,), (A,)))))
    garbage, (command,) = take(garbage, NOTHING, DATA)
    assert command == Collection(TABLET, Channel(1), (Generation(2), 1), at(2, 0), keep=(B,), dont_keep=(A,))
    assert take(garbage, NOTHING, DATA)[1] == ()


def test_what_is_left_later_is_not_kept_any_more() -> None:
    garbage, _ = take(inherited(TABLET, Generation(2), ((at(1, 1), entry((A,))),)), NOTHING, DATA)
    garbage = noted(garbage, at(2, 1), entry((C,)))
    garbage = noted(garbage, at(2, 2), entry((), (A, C)))
    garbage, (command,) = take(garbage, at(2, 1), DATA)
    assert (command.keep, command.dont_keep, command.barrier) == ((C,), (), at(2, 1))
    garbage, (command,) = take(garbage, at(2, 2), DATA)
    assert (command.keep, command.dont_keep, command.order) == ((), (A, C), (Generation(2), 3))
    assert (garbage.deltas, garbage.kept) == ((), frozenset())


def test_blob_below_the_barrier_that_nobody_kept_is_a_mistake() -> None:
    garbage, _ = take(inherited(TABLET, Generation(2), ()), NOTHING, DATA)
    with pytest.raises(AssertionError, match="below the barrier"):
        noted(garbage, at(2, 1), entry((A,)))


def test_bound_is_the_earliest_of_what_may_be_gone_back_to() -> None:
    ledger = Ledger(TABLET, Generation(2), at(2, 3), confirmed=Step(5))
    assert bound_of(ledger, at(2, 9)) == at(2, 5)
    assert bound_of(ledger, at(1, 7)) == at(1, 7)
    assert bound_of(ledger, at(2, 9), [at(2, 4), at(2, 2)]) == at(2, 2)


def test_log_is_collected_up_to_what_was_confirmed_before_the_snapshot() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.commit(cluster.lead()[0]))
    assert log_collection(ledger, 1) is None
    ledger = cluster.commit(ledger, Draft(is_total=True))
    command = log_collection(ledger, 1)
    assert command is not None
    assert cluster.run(collect(cluster.channels, command)) == Collected()
    assert cluster.copies(entry_id(1, 2)) == []
    assert cluster.copies(entry_id(1, 3)) == [0, 1, 2]
    assert cluster.lead()[1] == ["1:3"]


def test_31_collection_of_a_deposed_leader_is_refused_everywhere() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.commit(cluster.lead()[0]), Draft(is_total=True))
    command = log_collection(ledger, 1)
    assert command is not None
    cluster.lead()
    held = list(cluster.held[GROUP])
    assert cluster.run(collect(cluster.channels, command)) == Overtaken(Generation(1))
    assert cluster.held[GROUP] == held


def test_collection_that_does_not_reach_everybody_is_repeated() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.lead()[0], Draft(is_total=True))
    command = log_collection(ledger, 1)
    assert command is not None
    cluster.reachable = (0, 1)
    assert isinstance(cluster.run(collect(cluster.channels, command)), InDoubt)
    cluster.reachable = (0, 1, 2)
    assert cluster.run(collect(cluster.channels, command)) == Collected()


@pytest.mark.parametrize(("number", "groups"), [(1, {"g", "h"}), (2, {"h"})])
def test_first_collection_of_a_generation_goes_to_every_group(number: int, groups: set[str]) -> None:
    history = ((Generation(1), GROUP), (Generation(2), GroupId("h")))
    cluster = Cluster(Channels(TABLET, (history,)))
    command = Collection(TABLET, Channel(0), (Generation(2), number), at(2, 0))
    cluster.run(collect(cluster.channels, command))
    assert {group for group, held in cluster.held.items() if held[0].barriers} == groups


def test_33_references_of_an_accepted_tail_survive_the_first_barrier() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    reference = data_id(1, 1)
    draft = Draft(parallel=((reference, b"body"),), gc_discovered=(reference,))
    cluster.commit(ledger, draft, at=(0, 1))
    result = cluster.stand()
    assert isinstance(result, Elected)
    garbage = inherited(TABLET, Generation(2), result.recovered.accepted)
    _, (command,) = take(garbage, NOTHING, DATA)
    assert cluster.run(collect(cluster.channels, command)) == Collected()
    assert cluster.copies(reference) == [0, 1, 2]


def test_reference_of_a_declined_entry_goes_with_the_first_barrier() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    cluster.deliver(ledger, data_id(1, 1), b"body", (0, 1, 2))
    cluster.lead()
    _, (command,) = take(inherited(TABLET, Generation(2), ()), NOTHING, DATA)
    cluster.run(collect(cluster.channels, command))
    assert cluster.copies(data_id(1, 1)) == []


@pytest.mark.parametrize("is_broken", [False, True])
def test_32_what_a_declined_entry_no_longer_needs_stays(*, is_broken: bool) -> None:
    cluster = Cluster()
    ledger, kept = cluster.lead()[0], data_id(1, 1)
    ledger = cluster.commit(ledger, Draft(parallel=((kept, b"body"),), gc_discovered=(kept,)))
    cluster.commit(ledger, Draft(b"x", gc_left=(kept,)), at=(0,))
    result = cluster.stand(reachable=(1, 2))
    assert isinstance(result, Elected)
    accepted = result.recovered.accepted
    assert [str(place) for place, _ in accepted] == ["1:1"]
    if is_broken:  # the declined entry is listened to
        accepted = (*accepted, (at(1, 2), entry(left=(kept,))))
    _, (command,) = take(inherited(TABLET, Generation(2), accepted), NOTHING, DATA)
    assert cluster.run(collect(cluster.channels, command)) == Collected()
    assert cluster.copies(kept) == ([] if is_broken else [0, 1, 2])


def collected_between(cluster: Cluster, command: Collection, question: int) -> object:
    """Read the log as somebody who only looks; before the n-th question the log is collected."""
    asking, outcome, number = recover(cluster.channels, None), None, 0
    try:
        while True:
            effect = asking.send(outcome)
            if number == question:
                cluster.run(collect(cluster.channels, command))
            number += 1
            outcome = cluster.run(carry_out(Quorum(GROUP, 3, 2), effect))
    except StopIteration as stop:
        return stop.value


@pytest.mark.parametrize("question", [0, 1, 2, 3])
def test_44_reader_without_a_fence_sees_all_or_nothing_of_a_log_that_is_collected(question: int) -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    for _ in range(3):
        ledger = cluster.commit(ledger)
    latest = cluster.commit(ledger, Draft(is_total=True))
    command = log_collection(latest, 1)
    assert command is not None
    found = collected_between(cluster, command, question)
    if isinstance(found, Recovered):
        assert [str(place) for place, _ in found.accepted] == ["1:4"]
    else:
        assert isinstance(found, MissingEntries | InDoubt)
    again = cluster.run(recover(cluster.channels, None))
    assert isinstance(again, Recovered)
    assert [str(place) for place, _ in again.accepted] == ["1:4"]
