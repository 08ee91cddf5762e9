"""What is collected: never what a recovery could still need, and everything that nobody needs."""

from __future__ import annotations

import pytest
from msgspec import structs

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.collecting import begun, heard, next_commands
from replitree.tablet.core.collection import bound_of, collect, inherited, log_collection, noted, said_again, take, told
from replitree.tablet.core.commit import Draft, Ledger, open_ledger
from replitree.tablet.core.election import Won
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.recovery import MissingEntries, RecoveredLog, recover
from replitree.tablet.group.effects import Collected, Collection, NotKnown, Overtaken
from replitree.tablet.group.ids import NOTHING, STEP_MAX, BlobId, Channel, Generation, GroupId, Step
from replitree.tablet.group.quorum import Quorum, carry_out
from tests.tablet.building import GROUP, TABLET, at, data_id, entry_id
from tests.tablet.cluster import Cluster

DATA = (Channel(1),)
A, B, C = data_id(1, 1), data_id(1, 2), data_id(2, 1)


def entry(created: tuple[BlobId, ...] = (), left: tuple[BlobId, ...] = ()) -> LogEntry:
    """An entry that speaks of blobs."""
    return LogEntry(NOTHING, Step(0), gc_discovered=created, gc_left=left)


def test_first_barrier_keeps_what_entries_that_count_created() -> None:
    garbage = inherited(TABLET, Generation(2), ((at(1, 1), entry((A,))), (at(1, 2), entry((B,), (A,)))))
    garbage, commands = take(garbage, NOTHING, DATA)
    assert commands == (
        Collection(TABLET, Channel(1), (Generation(2), 1), at(2, 0), keep=(A, B)),
        Collection(TABLET, Channel(1), (Generation(2), 2), at(1, 0), is_hard=True),
    )
    assert take(told(garbage), NOTHING, DATA)[1] == ()
    garbage, commands = take(told(garbage), at(1, 2), DATA)
    assert commands == (
        Collection(TABLET, Channel(1), (Generation(2), 3), at(2, 0)),
        Collection(TABLET, Channel(1), (Generation(2), 4), at(1, 1), is_hard=True),  # A is below B
    )
    assert take(told(garbage), at(1, 2), DATA)[1] == ()


def test_blob_that_an_accepted_entry_left_stays_until_a_snapshot_takes_its_place() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    ledger = cluster.commit(ledger, Draft(parallel=((A, b"body"),), gc_discovered=(A,)))
    cluster.commit(ledger, Draft(b"x", gc_left=(A,)))
    result = cluster.stand()
    assert isinstance(result, Won)
    known = begun(TABLET, result.generation, result.recovered.accepted)
    ledger = open_ledger(TABLET, result)
    known, commands = next_commands(known, ledger, DATA)
    assert sent(cluster, *commands)
    assert cluster.copies(A) == [0, 1, 2]  # whoever leads next reads the entry again, and what it refers to
    after = cluster.commit(ledger, Draft(is_snapshot=True))
    known, commands = next_commands(heard(known, ledger, after), cluster.commit(after), DATA)
    assert sent(cluster, *commands)
    assert cluster.copies(A) == []


def test_snapshot_says_again_what_is_needed_and_what_not_everybody_knows_to_be_gone() -> None:
    garbage, _ = take(inherited(TABLET, Generation(2), ((at(1, 1), entry((A, B))),)), NOTHING, DATA)
    assert said_again(garbage, []) == ((A, B), ())
    garbage, _ = take(noted(garbage, at(2, 1), entry((C,), (B,))), at(2, 1), DATA)
    assert said_again(garbage, [entry((), (C,))]) == ((A,), (B, C))
    assert said_again(told(garbage), []) == ((A, C), ())


def test_what_is_left_later_is_not_kept_any_more() -> None:
    garbage, _ = take(inherited(TABLET, Generation(2), ((at(1, 1), entry((A, B))),)), NOTHING, DATA)
    garbage = noted(told(garbage), at(2, 1), entry((C,)))
    garbage = noted(garbage, at(2, 2), entry((), (B, C)))
    garbage, (command, hard) = take(garbage, at(2, 1), DATA)
    assert (command.keep, command.dont_keep, command.barrier) == ((C,), (), at(2, 1))
    assert hard.barrier == at(1, 0)
    garbage, (command, hard) = take(told(garbage), at(2, 2), DATA)
    assert (command.keep, command.dont_keep, command.order) == ((), (B, C), (Generation(2), 5))
    assert hard.barrier == at(1, 0)  # A is needed
    assert (garbage.deltas, garbage.kept) == ((), frozenset({A}))


def test_command_says_what_earlier_ones_did_that_not_everybody_has_taken() -> None:
    garbage, _ = take(inherited(TABLET, Generation(2), ((at(1, 1), entry((A, B))),)), NOTHING, DATA)
    garbage, (command, _) = take(garbage, NOTHING, DATA)
    assert (command.keep, command.order) == ((A, B), (Generation(2), 3))
    garbage, (command, _) = take(noted(garbage, at(2, 1), entry((C,), (B,))), at(2, 1), DATA)
    assert (command.keep, command.dont_keep) == ((A, C), (B,))
    _, (command, _) = take(noted(garbage, at(2, 2), entry((), (C,))), at(2, 2), DATA)
    assert (command.keep, command.dont_keep) == ((A,), (B, C))
    _, (command, _) = take(noted(told(garbage), at(2, 2), entry((), (C,))), at(2, 2), DATA)
    assert (command.keep, command.dont_keep) == ((), (C,))


@pytest.mark.parametrize("has_heard", [True, False])
def test_blob_that_nobody_needs_goes_from_a_member_that_was_told_to_keep_it(*, has_heard: bool) -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    for blob in (A, B):
        cluster.deliver(ledger, blob, b"body", (0, 1, 2))
    garbage, commands = take(inherited(TABLET, Generation(1), ((at(1, 1), entry((A,))),)), at(1, 1), DATA)
    assert sent(cluster, *commands)
    if has_heard:
        _, commands = take(noted(told(garbage), at(1, 2), entry((B,), (A,))), at(1, 2), DATA)
        cluster.reachable = (0, 1)
        assert not sent(cluster, *commands)
        assert cluster.copies(A) == [2]
        cluster.reachable = (0, 1, 2)
    cluster.lead()
    _, commands = take(inherited(TABLET, Generation(2), ((at(1, 2), entry((B,))),)), NOTHING, DATA)
    assert sent(cluster, *commands)
    assert (cluster.copies(A), cluster.copies(B)) == ([], [0, 1, 2])


def test_blob_that_a_later_entry_needs_is_above_the_hard_barrier() -> None:
    garbage = noted(inherited(TABLET, Generation(2), ()), at(2, 1), entry((), (A,)))
    garbage = noted(garbage, at(2, 3), entry((C, data_id(2, 0, 1))))
    assert [command.barrier for command in take(garbage, at(2, 2), DATA)[1]] == [at(2, 2), at(1, STEP_MAX)]


def sent(cluster: Cluster, *commands: Collection) -> bool:
    """Send commands; tell whether every member has taken all of them."""
    outcomes = [cluster.run(collect(cluster.channels, each, everywhere=False)) for each in commands]
    return outcomes == [Collected()] * len(commands)


def test_blob_below_the_barrier_that_nobody_kept_is_a_mistake() -> None:
    garbage, _ = take(inherited(TABLET, Generation(2), ()), NOTHING, DATA)
    with pytest.raises(AssertionError, match="below the barrier"):
        noted(garbage, at(2, 1), entry((A,)))


def test_bound_is_the_earliest_of_what_may_be_gone_back_to() -> None:
    ledger = Ledger(TABLET, Generation(2), at(2, 9), confirmed=Step(5), snapshot_durable=at(2, 9))
    assert bound_of(ledger) == at(2, 5)
    assert bound_of(structs.replace(ledger, snapshot_durable=at(1, 7))) == at(1, 7)
    assert bound_of(ledger, [at(2, 4), at(2, 2)]) == at(2, 2)


def test_log_is_collected_up_to_what_was_confirmed_before_the_snapshot() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.commit(cluster.lead()[0]))
    assert log_collection(ledger, 1) is None
    ledger = cluster.commit(ledger, Draft(is_total=True))
    command = log_collection(ledger, 1)
    assert command is not None
    assert sent(cluster, command)
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
    assert cluster.run(collect(cluster.channels, command, everywhere=True)) == Overtaken(Generation(1))
    assert cluster.held[GROUP] == held


def test_collection_that_does_not_reach_everybody_is_repeated() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.lead()[0], Draft(is_total=True))
    command = log_collection(ledger, 1)
    assert command is not None
    cluster.reachable = (0, 1)
    assert isinstance(cluster.run(collect(cluster.channels, command, everywhere=False)), NotKnown)
    cluster.reachable = (0, 1, 2)
    assert sent(cluster, command)


@pytest.mark.parametrize(("everywhere", "groups"), [(True, {"g", "h"}), (False, {"h"})])
def test_first_collections_of_a_generation_go_to_every_group(*, everywhere: bool, groups: set[str]) -> None:
    history = ((Generation(1), GROUP), (Generation(2), GroupId("h")))
    cluster = Cluster(Channels(TABLET, (history,)))
    command = Collection(TABLET, Channel(0), (Generation(2), 1), at(2, 0))
    cluster.run(collect(cluster.channels, command, everywhere=everywhere))
    assert {group for group, held in cluster.held.items() if held[0].barriers} == groups


def test_33_references_of_an_accepted_tail_survive_the_first_barrier() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    reference = data_id(1, 1)
    draft = Draft(parallel=((reference, b"body"),), gc_discovered=(reference,))
    cluster.commit(ledger, draft, at=(0, 1))
    result = cluster.stand()
    assert isinstance(result, Won)
    garbage = inherited(TABLET, Generation(2), result.recovered.accepted)
    assert sent(cluster, *take(garbage, NOTHING, DATA)[1])
    assert cluster.copies(reference) == [0, 1, 2]


def test_reference_of_a_declined_entry_goes_with_the_first_barrier() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    cluster.deliver(ledger, data_id(1, 1), b"body", (0, 1, 2))
    cluster.lead()
    command, _ = take(inherited(TABLET, Generation(2), ()), NOTHING, DATA)[1]
    assert sent(cluster, command)
    assert cluster.copies(data_id(1, 1)) == []


@pytest.mark.parametrize("is_broken", [False, True])
def test_32_what_a_declined_entry_no_longer_needs_stays(*, is_broken: bool) -> None:
    cluster = Cluster()
    ledger, kept = cluster.lead()[0], data_id(1, 1)
    ledger = cluster.commit(ledger, Draft(parallel=((kept, b"body"),), gc_discovered=(kept,)))
    cluster.commit(ledger, Draft(b"x", gc_left=(kept,)), at=(0,))
    result = cluster.stand(reachable=(1, 2))
    assert isinstance(result, Won)
    accepted = result.recovered.accepted
    assert [str(place) for place, _ in accepted] == ["1:1"]
    if is_broken:  # the declined entry is listened to
        accepted = (*accepted, (at(1, 2), entry(left=(kept,))))
    commands = take(inherited(TABLET, Generation(2), accepted), at(2, 0), DATA)[1]
    assert sent(cluster, *commands)
    assert cluster.copies(kept) == ([] if is_broken else [0, 1, 2])


def collected_between(cluster: Cluster, command: Collection, question: int) -> object:
    """Read the log as somebody who only looks; before the n-th question the log is collected."""
    asking, outcome, number = recover(cluster.channels, None), None, 0
    try:
        while True:
            effect = asking.send(outcome)
            if number == question:
                sent(cluster, command)
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
    if isinstance(found, RecoveredLog):
        assert [str(place) for place, _ in found.accepted] == ["1:4"]
    else:
        assert isinstance(found, MissingEntries | NotKnown)
    again = cluster.run(recover(cluster.channels, None))
    assert isinstance(again, RecoveredLog)
    assert [str(place) for place, _ in again.accepted] == ["1:4"]
