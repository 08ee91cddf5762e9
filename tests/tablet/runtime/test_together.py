"""Commands that go together: in one entry, all committed or none, and one future for all of them."""

from __future__ import annotations

import pytest

from replitree.errors import BadInput, CommandUnknown, NotLeader, Unavailable
from replitree.tablet import Settings
from replitree.tablet.core.pace import Limits
from replitree.tablet.runtime import commits
from tests.tablet.runtime.group import QUIET, Group
from tests.waiting import wait_for


@pytest.fixture
def group() -> Group:
    return Group()


def with_limits(limits: Limits) -> Settings:
    """Nothing happens by itself, and these limits."""
    return Settings(look_s=3600.0, limits=limits)


def test_commands_that_go_together_are_in_one_entry_and_answered_in_their_order(group: Group) -> None:
    with group.open(with_limits(Limits(flights=1, batch_commands=2, batch_bytes=2))) as tablet:
        assert tablet.submit_together([b"a", b"b", b"c", b"d", b"e"]).result(10) == [b"1", b"2", b"3", b"4", b"5"]
        assert tablet.status().step == 1
        with group.closed():
            first = tablet.submit(b"f")
            wait_for(lambda: tablet.status().step == 2)
            later = [tablet.submit_together([b"g", b"h", b"i"]), tablet.submit_together([b"j"])]
        assert first.result(10) == b"6"
        assert [each.result(10) for each in later] == [[b"7", b"8", b"9"], [b"10"]]
        assert tablet.status().step == 4
    with group.open() as second:
        assert second.read() == tuple("abcdefghij")


def test_commands_by_themselves_and_together_fill_one_entry(group: Group) -> None:
    with group.open(with_limits(Limits(flights=1))) as tablet:
        with group.closed():
            tablet.submit(b"a")
            wait_for(lambda: tablet.status().step == 1)
            together, one = tablet.submit_together([b"b", b"c"]), tablet.submit(b"d")
        assert (together.result(10), one.result(10)) == ([b"2", b"3"], b"4")
        assert tablet.status().step == 2


def test_nothing_together_waits_for_what_came_before(group: Group) -> None:
    with group.open(with_limits(Limits(flights=1))) as tablet:
        with group.closed():
            before = tablet.submit(b"a")
            after = tablet.submit_together(())
            wait_for(lambda: tablet.status().step == 1)
            assert not after.done()
        assert after.result(10) == []
        assert before.result(0) == b"1"
        assert tablet.status().commands == 1


def test_list_may_be_changed_once_it_is_given(group: Group) -> None:
    with group.open() as tablet:
        commands = [b"a", b"b"]
        with group.closed():
            answers = tablet.submit_together(commands)
            commands[0] = b"x"
            del commands[1]
        assert answers.result(10) == [b"1", b"2"]
        assert tablet.read() == ("a", "b")


def test_commands_together_whose_entry_may_be_stored_are_unknown_and_those_not_sent_are_refused(group: Group) -> None:
    tablet = group.open(with_limits(Limits(flights=1)))
    with group.closed():
        sent = tablet.submit_together([b"a", b"b"])
        wait_for(lambda: tablet.status().step == 1)
        waiting = tablet.submit_together([b"c", b"d"])
        group.members[0].trouble = group.members[1].trouble = "it is broken"
    with pytest.raises(CommandUnknown, match="it is broken"):
        sent.result(10)
    assert isinstance(waiting.exception(10), NotLeader)
    with pytest.raises(NotLeader):
        tablet.submit_together([b"e"])
    tablet.close()
    group.members[0].trouble = group.members[1].trouble = None
    with group.open() as second:
        assert second.read() == ("a", "b")  # stored on the third member, so both count


def test_machine_that_fails_at_one_of_them_leaves_all_of_them_unknown(group: Group) -> None:
    tablet = group.open()
    answers = tablet.submit_together([b"a", b"fail", b"b"])
    with pytest.raises(CommandUnknown, match="the state machine failed at command 1"):
        answers.result(10)
    assert not tablet.is_leading
    assert tablet.status().commands == 1
    tablet.close()


def test_too_many_or_too_large_together_is_refused(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "TOGETHER_MAX", 3)
    monkeypatch.setattr(commits, "COMMAND_BYTES_MAX", 5)
    with group.open() as tablet:
        with pytest.raises(BadInput, match="4 commands together; 3 are allowed"):
            tablet.submit_together([b""] * 4)
        with pytest.raises(BadInput, match="6 bytes; 5 are allowed"):
            tablet.submit_together([b"abc"] * 2)
        assert tablet.submit_together([b"ab", b"cd", b"e"]).result(10)[-1] == b"3"


def test_each_of_those_that_wait_together_counts(group: Group) -> None:
    with group.open(with_limits(Limits(flights=1, waiting_commands=4))) as tablet:
        with group.closed():
            tablet.submit(b"a")
            wait_for(lambda: tablet.status().step == 1)
            tablet.submit_together([b"b", b"c", b"d"])
            last = tablet.submit(b"e")
            with pytest.raises(Unavailable, match="4 commands wait already"):
                tablet.submit_together([b"f"])
        assert last.result(10) == b"5"
        assert tablet.submit_together([b"f"] * 4).result(10)[-1] == b"9"  # nothing waits any more


def test_snapshot_has_commands_that_went_together_meanwhile(group: Group) -> None:
    with group.open(with_limits(Limits(flights=2))) as tablet:
        tablet.execute(b"a")
        answers = [tablet.submit_together([b"b", b"c"]) for _ in range(10)]
        assert tablet.snapshot()
        assert answers[-1].result(10) == [b"20", b"21"]
    with group.open(QUIET) as second:
        assert second.read() == ("a", *("b", "c") * 10)
