"""A tablet that this process leads: what it acknowledges is there for the next leader, and it acknowledges nothing after."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from replitree.errors import BadInput, CommandUnknown, NotLeader, ReplitreeError, StoreError, TabletDamaged, Unavailable
from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.core.commit import Ledger
from replitree.tablet.core.pace import Limits
from replitree.tablet.group.effects import Stored
from replitree.tablet.group.ids import NOTHING, STEP_MAX, Generation, Step, TabletId
from replitree.tablet.group.member import with_blobs
from replitree.tablet.members.folders import make_group, open_group
from replitree.tablet.runtime.answers import CommandAnswer
from replitree.tablet.runtime.commits import COMMAND_BYTES_MAX, Commits
from tests.tablet.building import GROUP, TABLET, entry_id
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET, Group
from tests.waiting import wait_for


@pytest.fixture
def group() -> Group:
    return Group()


def test_command_is_answered_when_it_is_committed_and_the_next_leader_has_it(group: Group) -> None:
    with group.open() as first:
        assert first.execute(b"a") == b"1"
        assert first.read() == ("a",)
    with group.open() as second:
        assert second.generation == 2
        assert second.execute(b"b") == b"2"
        assert second.read() == ("a", "b")


def test_tablet_is_opened_in_a_group_by_its_number(tmp_path: Path) -> None:
    make_group(tmp_path)
    group = open_group(tmp_path)
    try:
        with open_tablet(group, Words(), settings=QUIET) as first, open_tablet(group, Words(), tablet=16) as other:
            first.execute(b"a")
            other.execute(b"b")
        with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as again:
            assert again.read() == ("a",)
        with open_tablet(group, Words(), in_one_group(TabletId(16), group.group), settings=QUIET) as again:  # type: ignore[call-overload]
            assert again.read() == ("b",)
        with pytest.raises(BadInput, match="say in which of them"):
            open_tablet(group.groups, Words())  # type: ignore[call-overload]
        for number in (0, 1 << 64):
            with pytest.raises(BadInput, match="at least 1 and below 2\\^64"):
                open_tablet(group, Words(), tablet=number)
    finally:
        group.close()


def test_commands_that_come_while_an_entry_is_on_its_way_go_together(group: Group) -> None:
    with group.open(Settings(look_s=3600.0, limits=Limits(flights=1))) as tablet:
        with group.closed():
            futures = [tablet.submit(b"a")]
            wait_for(lambda: tablet.status().step == 1)
            futures += [tablet.submit(b"b") for _ in range(50)]
        assert [future.result(10) for future in futures] == [str(number).encode() for number in range(1, 52)]
        assert tablet.status().step == 2


def test_several_entries_are_on_their_way_and_answered_in_their_order(group: Group) -> None:
    limits = Limits(flights=3, batch_commands=2)
    with group.open(Settings(look_s=3600.0, limits=limits)) as tablet:
        with group.closed():
            futures = [tablet.submit(b"a") for _ in range(8)]
            wait_for(lambda: tablet.status().step == 3)
        assert [future.result(10) for future in futures] == [str(number).encode() for number in range(1, 9)]


def test_deposed_leader_learns_it_and_acknowledges_nothing(group: Group) -> None:
    first = group.open()
    first.execute(b"a")
    with group.open() as second:
        with pytest.raises(CommandUnknown, match="a leader after generation 1"):
            first.execute(b"b")
        assert not first.is_leading
        with pytest.raises(NotLeader) as refused:
            first.execute(b"c")
        assert refused.value.generation == 1
        with pytest.raises(NotLeader):
            first.read()
        assert second.read() == ("a",)
    first.close()


def test_deposed_leader_learns_it_by_a_read(group: Group) -> None:
    first = group.open()
    with group.open():
        with pytest.raises(NotLeader, match="a leader after generation 1"):
            first.read()
        assert first.status().reason is not None
    first.close()


def test_deposed_leader_learns_it_by_itself(group: Group) -> None:
    first = group.open(Settings(look_s=0.02))
    with group.open():
        wait_for(lambda: not first.is_leading)
    first.close()


def test_command_whose_entry_may_be_stored_is_unknown_and_one_that_was_not_sent_is_refused(group: Group) -> None:
    tablet = group.open(Settings(look_s=3600.0, limits=Limits(flights=1)))
    with group.closed():
        sent = tablet.submit(b"a")
        wait_for(lambda: tablet.status().step == 1)
        waiting = tablet.submit(b"b")
        group.members[0].trouble = group.members[1].trouble = "it is broken"
    with pytest.raises(CommandUnknown, match="it is broken"):
        sent.result(10)
    with pytest.raises(NotLeader, match="certainly not done"):
        waiting.result(10)
    with pytest.raises(NotLeader):
        tablet.execute(b"c")
    tablet.close()
    group.members[0].trouble = group.members[1].trouble = None
    with group.open() as second:
        assert second.read() == ("a",)  # it was stored on the third member, and so it counts


def test_command_that_takes_too_long_is_unknown_and_may_be_committed_later(group: Group) -> None:
    with group.open() as tablet:
        with group.closed(), pytest.raises(CommandUnknown, match=r"not committed within 0\.01 s"):
            tablet.execute(b"a", timeout_s=0.01)
        wait_for(lambda: tablet.read() == ("a",))


def test_too_much_that_waits_is_refused(group: Group) -> None:
    limits = Limits(flights=1, waiting_commands=2)
    with group.open(Settings(look_s=3600.0, limits=limits)) as tablet:
        with group.closed():
            futures = [tablet.submit(b"a")]
            wait_for(lambda: tablet.status().step == 1)
            futures += [tablet.submit(b"b"), tablet.submit(b"c")]
            with pytest.raises(Unavailable, match="2 commands wait already"):
                tablet.submit(b"d")
        assert futures[-1].result(10) == b"3"


def test_command_that_is_too_large_is_refused(group: Group) -> None:
    with group.open() as tablet, pytest.raises(BadInput, match="are allowed"):
        tablet.submit(bytes(COMMAND_BYTES_MAX + 1))


def test_machine_that_fails_ends_the_leader(group: Group) -> None:
    tablet = group.open()
    with pytest.raises(CommandUnknown, match="the state machine failed at command 0"):
        tablet.execute(b"fail")
    with pytest.raises(NotLeader, match="mend it"):
        tablet.execute(b"a")
    tablet.close()


def test_machine_that_fails_keeps_others_from_leading_until_it_is_mended(group: Group) -> None:
    with group.open() as tablet:
        tablet.execute(b"a")
        with pytest.raises(CommandUnknown):
            tablet.execute(b"fail")
    for _ in range(2):
        with pytest.raises(ReplitreeError, match=r"failed at command 1, .* up to 1:2: .*no such word.*; mend it"):
            group.open()
    with group.open(machine=Words(broken=frozenset())) as mended:
        assert mended.read() == ("a", "fail")


def test_machine_that_can_not_make_a_snapshot_ends_the_leader(group: Group) -> None:
    with group.open(machine=Words(broken=frozenset())) as tablet:
        tablet.execute(b"a")
    lame = Words(broken=frozenset({b"a"}))
    lame.apply = Words().apply  # type: ignore[method-assign]
    with group.open(machine=lame) as tablet:
        with pytest.raises(ReplitreeError, match=r"the state machine failed at a snapshot: .*; mend it"):
            tablet.snapshot()
        assert not tablet.is_leading
        assert "failed at a snapshot" in (tablet.status().reason or "")


class Watched:
    """A group whose members can't be let in at first, and then are back; in the end one has forgotten something."""

    def __init__(self, group: Group) -> None:
        self.groups, self.group = group.groups, GROUP
        self.forgot: str | None = None
        self.looks = 0

    def readmit(self) -> bool:
        """Fail, then succeed."""
        self.looks += 1
        if self.looks == 1:
            raise StoreError("its secret can't be read")
        return self.looks == 2


def test_members_that_are_back_are_let_in_and_who_forgot_ends_the_leader(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, mended = Watched(group), list[int]()
    monkeypatch.setattr(Tablet, "mend", lambda _: mended.append(watched.looks))
    with open_tablet(watched, Words(), settings=Settings(look_s=0.01)) as tablet:
        wait_for(lambda: watched.looks > 2, "it looks again")
        assert tablet.is_leading
        assert mended == [2]
        watched.forgot = "member 1 forgot"
        wait_for(lambda: not tablet.is_leading, "it learns so")
        assert tablet.status().reason == "member 1 forgot: open the group again"


def test_tablet_that_is_closed_takes_nothing_and_has_committed_what_waited(group: Group) -> None:
    tablet = group.open()
    with group.closed():
        futures = [tablet.submit(b"a") for _ in range(10)]
    tablet.close()
    assert futures[-1].result(0) == b"10"
    with pytest.raises(NotLeader):
        tablet.submit(b"b")


def test_reads_share_probes(group: Group) -> None:
    with group.open() as tablet:
        tablet.execute(b"a")
        for _ in range(3):
            assert tablet.read() == ("a",)


def test_nobody_reads_when_no_quorum_answers(group: Group) -> None:
    with group.open() as tablet:
        group.members[0].trouble = group.members[1].trouble = "it is away"
        with pytest.raises(Unavailable, match="it is away"):
            tablet.read()
        assert tablet.is_leading
        group.members[0].trouble = None
        assert tablet.read() == ()


def test_nobody_leads_when_no_quorum_answers(group: Group) -> None:
    group.members[0].trouble = group.members[1].trouble = "it is away"
    with pytest.raises(Unavailable, match="try again"):
        group.open()


def test_confirmed_entry_that_nobody_can_read_is_an_error_of_its_own(group: Group) -> None:
    with group.open() as tablet:
        for word in (b"a", b"b", b"c"):
            tablet.execute(word)
    group.groups.close()  # who was asked last has written by now
    for member in group.members:
        names = [each for each in member.held.names if each != entry_id(1, 1)]
        data = [dict(zip(member.held.names, member.held.data, strict=True))[each] for each in names]
        member.held = with_blobs(type(member.held)(fences=member.held.fences), dict(zip(names, data, strict=True)))
    group.groups = group.again()
    with pytest.raises(TabletDamaged, match="1:1"):
        group.open()


def test_what_a_member_missed_is_restored_by_the_next_leader(group: Group) -> None:
    group.members[2].trouble = "it is away"
    with group.open() as first:
        for _ in range(3):
            first.execute(b"a")
    group.members[2].trouble = None
    with group.open(QUIET) as second:
        wait_for(lambda: second.status().is_mended)
    assert group.members[2].held.index(entry_id(1, 1)) is not None
    assert entry_id(1, 1).tablet == TABLET


def test_37_leader_that_has_used_its_last_step_commits_it_and_ends() -> None:
    before = Step(STEP_MAX - 1)
    ledger = Ledger(TABLET, Generation(1), NOTHING, last=before, confirmed=before, confirmed_durable=before)
    commits = Commits(Words(), ledger, Words().begin(), 0, QUIET)
    futures = [commits.submit(b"a"), commits.submit(b"b")]
    flight = commits.next_flight()
    assert flight is not None
    assert flight.step == STEP_MAX
    with pytest.raises(NotLeader, match="used up"):
        commits.submit(b"c")
    assert commits.next_flight() is None
    commits.landed(flight, Stored())
    assert [future.result(0) for future in futures] == [b"1", b"2"]


def test_threads_that_find_nothing_on_its_way_store_their_own_command(group: Group) -> None:
    with group.open() as tablet, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(tablet.execute, [b"a"] * 200))
        assert sorted(map(int, answers)) == list(range(1, 201))
        assert tablet.status().confirmed == tablet.status().step


def test_answer_is_waited_for_although_another_one_of_its_group_comes_first() -> None:
    turn = threading.Condition()
    first, second = CommandAnswer(turn), CommandAnswer(turn)
    assert vars(first).keys() == vars(Future()).keys(), "an answer is made without the future's own condition"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.result, 60)
        wait_for(lambda: turn._waiters)  # type: ignore[attr-defined]  # noqa: SLF001 - it waits
        first.set_result(b"1")
        wait_for(lambda: turn._waiters or waiting.done())  # type: ignore[attr-defined]  # noqa: SLF001 - it waits on
        second.set_result(b"2")
        assert (waiting.result(60), second.exception(0)) == (b"2", None)
    assert not first.cancel()
    with pytest.raises(TimeoutError):
        CommandAnswer(turn).result(0)
