"""The failure scenarios of the specification, one by one; their numbers are those of `docs/tablet-failures.md`.

Number 34 is in `test_quick_restarts.py`, 40 in `tests/storage/test_full_members.py`.
"""

from __future__ import annotations

import random

import pytest
from typing_extensions import override

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.collection import collect, inherited, take
from replitree.tablet.core.commit import Draft, form, sync_entry
from replitree.tablet.core.election import Candidate, NotElected, Won, stand
from replitree.tablet.core.recovery import MissingEntries
from replitree.tablet.group import member
from replitree.tablet.group.effects import Collected, Fence, NotKnown, Overtaken
from replitree.tablet.group.ids import GENERATION_MAX, NOTHING, Channel, Generation, GroupId
from replitree.tablet.group.member import Done, Raise, Write
from tests.tablet.building import GROUP, TABLET, at, data_id, entry_id
from tests.tablet.cluster import EVERYBODY, Cluster

SNAPSHOT = Draft(is_snapshot=True)
TOTAL = Draft(is_snapshot=True, is_total=True)


def with_reference(generation: int, step: int) -> Draft:
    """A commit whose body is a blob of its own."""
    return Draft(parallel=((data_id(generation, step), b"body"),))


def test_first_leader_has_nothing() -> None:
    cluster = Cluster()
    ledger, accepted = cluster.lead()
    assert (ledger.generation, accepted) == (1, [])


def test_01_entry_on_a_member_that_is_away_is_declined_for_ever() -> None:
    cluster = Cluster()
    cluster.commit(cluster.commit(cluster.lead()[0]), at=(0,))
    assert cluster.lead(reachable=(1, 2))[1] == ["1:1"]
    for _ in range(3):
        assert cluster.lead()[1] == ["1:1"]


def test_02_entry_on_one_member_that_answers_is_restored() -> None:
    cluster = Cluster()
    cluster.commit(cluster.lead()[0], at=(0,))
    assert cluster.lead(reachable=(0, 1))[1] == ["1:1"]
    assert cluster.copies(entry_id(1, 1)) == [0, 1]
    assert cluster.lead(reachable=(1, 2))[1] == ["1:1"]


def test_03_a_candidate_that_died_before_its_zero_entry_decided_nothing() -> None:
    cluster = Cluster()
    cluster.commit(cluster.lead()[0], at=(0,))
    cluster.stand(2, reachable=(1, 2))
    cluster.forget(entry_id(2, 0))
    assert cluster.lead(3)[1] == ["1:1"]


def test_05_zero_entry_that_nobody_finds_is_passed_by() -> None:
    cluster = Cluster()
    cluster.commit(cluster.lead()[0])
    cluster.lead(2)
    cluster.forget(entry_id(2, 0), at=(0, 1))
    assert cluster.lead(3, reachable=(0, 1))[1] == ["1:1"]
    assert cluster.lead(4)[1] == ["1:1"]


def test_06_zero_entry_on_one_member_is_restored_and_obeyed() -> None:
    cluster = Cluster()
    cluster.commit(cluster.commit(cluster.lead()[0]), at=(0,))
    cluster.lead(2, reachable=(1, 2))
    cluster.forget(entry_id(2, 0), at=(1,))
    assert cluster.lead(3)[1] == ["1:1"]
    assert cluster.copies(entry_id(2, 0)) == [0, 1, 2]


@pytest.mark.parametrize("missing", [0, 1])
def test_07_entry_without_one_of_its_references_is_declined_and_the_other_one_goes(missing: int) -> None:
    cluster = Cluster()
    references = tuple((data_id(1, 1, cookie), b"body") for cookie in range(2))
    ledger, blobs = form(cluster.lead()[0], Draft(parallel=references))
    for number, blob in enumerate(blobs):
        if number != missing:
            cluster.deliver(ledger, *blob, EVERYBODY)
    assert cluster.lead()[1] == []
    first_barrier, _ = take(inherited(TABLET, Generation(2), ()), NOTHING, (Channel(1),))[1]
    assert cluster.run(collect(cluster.channels, first_barrier, everywhere=False)) == Collected()
    assert [cluster.copies(blob) for blob, _ in references] == [[], []]


def test_08_reference_on_one_member_is_restored() -> None:
    cluster = Cluster()
    ledger, blobs = form(cluster.lead()[0], with_reference(1, 1))
    cluster.deliver(ledger, *blobs[0], (2,))
    cluster.deliver(ledger, *blobs[1], (0, 1))
    assert cluster.lead()[1] == ["1:1"]
    assert cluster.copies(data_id(1, 1)) == [0, 1, 2]


def test_09_hole_ends_the_chain() -> None:
    cluster = Cluster()
    ledger, _ = form(cluster.lead()[0], Draft(b"lost"))
    cluster.commit(cluster.commit(ledger))
    assert cluster.lead()[1] == []


def test_10_entry_that_depends_on_nothing_survives_a_hole_and_restarts() -> None:
    cluster = Cluster()
    ledger, _ = form(cluster.lead()[0], Draft(b"lost"))
    cluster.commit(ledger, Draft(b"free", depends_on=()))
    for _ in range(4):
        assert cluster.lead()[1] == ["1:2"]


def test_11_snapshot_over_a_hole_is_declined() -> None:
    cluster = Cluster()
    ledger, _ = form(cluster.lead()[0], Draft(b"lost"))
    cluster.commit(ledger, SNAPSHOT)
    assert cluster.lead()[1] == []


def test_12_total_snapshot_over_a_hole_is_the_new_begin() -> None:
    cluster = Cluster()
    ledger, _ = form(cluster.commit(cluster.lead()[0]), Draft(b"lost"))
    cluster.commit(cluster.commit(ledger, TOTAL))
    assert cluster.lead()[1] == ["1:3", "1:4"]


def confirmed_entries(cluster: Cluster, count: int) -> None:
    """Commit entries of generation 1, and one more that says that they are confirmed."""
    ledger = cluster.lead()[0]
    for _ in range(count + 1):
        ledger = cluster.commit(ledger)


@pytest.mark.parametrize("how", ["rot", "forget"])
def test_13_confirmed_entry_that_can_not_be_read_ends_the_recovery(how: str) -> None:
    cluster = Cluster()
    confirmed_entries(cluster, 3)
    getattr(cluster, how)(entry_id(1, 2))
    before = cluster.held[GROUP][0].names
    result = cluster.stand()
    assert result == NotElected(Generation(2), MissingEntries((at(1, 2),)))
    assert cluster.held[GROUP][0].names == before


@pytest.mark.parametrize("how", ["rot", "forget"])
def test_14_total_snapshot_in_the_tail_heals_it(how: str) -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    for _ in range(3):
        ledger = cluster.commit(ledger)
    cluster.commit(ledger, TOTAL)
    getattr(cluster, how)(entry_id(1, 2))
    assert cluster.lead()[1] == ["1:4"]
    assert cluster.lead()[1] == ["1:4"]


@pytest.mark.parametrize(("barrier", "is_fine"), [(2, True), (4, False)])
def test_15_and_16_log_collected_up_to_a_snapshot_that_no_entry_names(barrier: int, is_fine: bool) -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.commit(cluster.lead()[0]))
    ledger, first = form(ledger, Draft(b"late"))
    ledger = cluster.commit(ledger, Draft(b"later"))
    ledger = cluster.commit(ledger, SNAPSHOT)
    ledger = cluster.deliver(ledger, *first[0], EVERYBODY)
    assert (ledger.snapshot, ledger.barrier) == (at(1, 5), at(1, 2))
    for step in range(barrier + 1):
        cluster.forget(entry_id(1, step))
    result = cluster.stand()
    assert isinstance(result, Won) == is_fine
    if isinstance(result, Won):
        assert [str(place) for place, _ in result.recovered.accepted] == ["1:5"]


def two_groups() -> Cluster:
    """Generation 1 writes to `g`, generation 2 moves the log to `h`."""
    history = ((Generation(1), GROUP), (Generation(2), GroupId("h")))
    return Cluster(Channels(TABLET, (history,)))


class LastFirst(Channels):
    """The same channels; their groups are fenced in the other order."""

    @override
    def groups(self) -> tuple[GroupId, ...]:
        return super().groups()[::-1]


def two_candidates(cluster: Cluster) -> tuple[Candidate, Candidate]:
    """Return two candidates of one generation that begin at different groups."""
    channels = cluster.channels
    others = LastFirst(channels.tablet, channels.histories)
    return Candidate(channels, "x", Generation(3)), Candidate(others, "y", Generation(3))


def zero_entries(cluster: Cluster, generation: int) -> list[GroupId]:
    """Return the groups in which some member has the zero entry of a generation."""
    zero = entry_id(generation, 0)
    return [group for group, members in cluster.held.items() if any(each.index(zero) is not None for each in members)]


def test_17_two_candidates_that_each_win_a_group_both_lose() -> None:
    cluster = two_groups()
    lost = NotElected(Generation(3), Overtaken(Generation(2)))
    assert cluster.run_in_turn(*map(stand, two_candidates(cluster))) == [lost, lost]
    assert zero_entries(cluster, 3) == []
    assert cluster.stand(3) == lost
    assert cluster.lead(4)[1] == []
    assert zero_entries(cluster, 4) == [GroupId("h")]


def test_17_if_fences_had_no_issuer_both_would_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        member, "outranks", lambda fence, other: fence is not None and fence.generation > other.generation
    )
    cluster = two_groups()
    results = cluster.run_in_turn(*map(stand, two_candidates(cluster)))
    assert [isinstance(each, Won) for each in results] == [True, True]


def test_18_candidate_that_fences_again_is_fine() -> None:
    cluster = Cluster()
    fence = Fence(Generation(1), "c1")
    assert [cluster.ask(0, Raise(TABLET, fence)) for _ in range(2)] == [Done(), Done()]
    cluster.lead(2)


def test_25_group_that_was_left_is_fenced() -> None:
    cluster = two_groups()
    ledger = cluster.lead(1)[0]
    cluster.stand(2, reachable=())
    cluster.lead(3)
    assert isinstance(cluster.ask(0, Write(((entry_id(1, 1), b"late"),))), Overtaken)
    assert ledger.generation == 1


def test_26_stale_entry_in_a_group_that_came_again_is_not_the_latest() -> None:
    h = GroupId("h")
    history = ((Generation(1), GROUP), (Generation(4), h), (Generation(7), GROUP))
    cluster = Cluster(Channels(TABLET, (history,)))
    cluster.commit(cluster.lead(1)[0])
    cluster.commit(cluster.lead(4)[0])
    assert cluster.lead(7)[1] == ["1:1", "4:1"]
    cluster = Cluster(Channels(TABLET, (history,)))
    cluster.commit(cluster.lead(2)[0])
    cluster.lead(5)
    assert cluster.lead(8)[1] == ["2:1"]


def test_27_latest_entry_of_a_later_generation_ends_the_candidate() -> None:
    cluster = Cluster()
    ledger = cluster.lead(5)[0]
    cluster.commit(ledger)
    for number in EVERYBODY:
        cluster.held[GROUP][number] = type(cluster.held[GROUP][number])(
            names=cluster.held[GROUP][number].names, data=cluster.held[GROUP][number].data
        )
    assert cluster.stand(3) == NotElected(Generation(3), Overtaken(Generation(5)))


def test_35_generations_without_entries_are_passed_in_one_step() -> None:
    cluster = Cluster()
    cluster.commit(cluster.lead()[0])
    for generation in range(2, 7):
        assert cluster.lead(generation)[1] == ["1:1"]
    result = cluster.stand(7)
    assert isinstance(result, Won)
    assert result.zero.predecessor == at(1, 1)


@pytest.mark.parametrize("count", [63, 64, 65, 66, 200])
def test_36_tail_with_holes_is_exact_where_words_meet(count: int) -> None:
    cluster, chance = Cluster(), random.Random(count)
    ledger, kept = cluster.lead()[0], set[int]()
    for step in range(1, count + 1):
        if step in (1, 64, count) or chance.random() < 0.5:
            ledger = cluster.commit(ledger, Draft(b"kept", depends_on=()))
            kept.add(step)
        else:
            ledger, _ = form(ledger, Draft(b"lost"))
    for _ in range(2):
        assert cluster.lead()[1] == [f"1:{step}" for step in sorted(kept)]


def test_37_last_generation_is_refused_clearly() -> None:
    result = Cluster().stand(GENERATION_MAX + 1)
    assert isinstance(result, NotElected)
    assert isinstance(result.reason, NotKnown)
    assert "used up" in result.reason.reason


def test_43_sync_entry_confirms_what_the_last_entry_does_not() -> None:
    cluster = Cluster()
    ledger = cluster.commit(cluster.commit(cluster.lead()[0]))
    sync = sync_entry(ledger)
    assert sync is not None
    for number in EVERYBODY:
        cluster.ask(number, Write((sync,)))
    cluster.rot(entry_id(1, 2), at=(0,))
    assert cluster.lead()[1] == ["1:1", "1:2"]
    cluster.forget(entry_id(1, 2))
    assert isinstance(cluster.stand(), NotElected)


def test_51_generation_that_is_given_out_twice_has_one_leader() -> None:
    cluster = Cluster()
    cluster.lead(5)
    assert cluster.stand(5) == NotElected(Generation(5), Overtaken(Generation(4)))


def test_52_recovery_that_fails_and_is_tried_again_ends_the_same() -> None:
    cluster = Cluster()
    confirmed_entries(cluster, 2)
    names = [held.names for held in cluster.held[GROUP]]
    for generation in range(2, 6):
        assert isinstance(cluster.stand(generation, reachable=(generation % 3,)), NotElected)
    assert [held.names for held in cluster.held[GROUP]] == names
    assert cluster.lead()[1] == ["1:1", "1:2", "1:3"]


def test_quick_restart_takes_five_round_trips() -> None:
    cluster = Cluster()
    cluster.commit(cluster.lead(1)[0])
    cluster.lead(2)
    cluster.asked = 0
    cluster.lead(3)
    assert cluster.asked <= 5
