"""How concurrent requests form groups."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import pytest

from replitree.protocol.core.effects import BlockId, Inserted, LogIndex, NotInserted, RequestId
from replitree.replica.insert import group_commit
from replitree.replica.insert.group_commit import WAITING_REQUESTS_MAX, GroupCommitter, PendingInsert
from tests.replica.inprocess import wait_for


class Recorder:
    """Commits nothing: notes the groups, and holds the first one until it is told to go on."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.go_on = threading.Event()
        self.answered: list[PendingInsert] = []
        self.problems: list[BaseException | None] = []

    def commit(self, group: Sequence[PendingInsert]) -> None:
        self.groups.append([pending.block for pending in group])
        assert self.go_on.wait(60)
        if any(pending.payload == "bad" for pending in group):
            raise ValueError("bad")
        for pending in group:
            pending.give(Inserted(LogIndex(len(self.groups))))

    def on_error(self, left: Sequence[PendingInsert], problem: BaseException | None) -> None:
        self.problems.append(problem)
        for pending in left:
            pending.give(NotInserted("bad"))

    def pending(self, number: int, block: str, rows: int = 1, alone: bool = False, payload: str = "") -> PendingInsert:
        return PendingInsert(RequestId(number), BlockId(block), payload, rows, 1, alone, self.answered.append)


def groups_of(requests: Sequence[tuple[str, int, bool]], rows_max: int = 100) -> list[list[str]]:
    """Submit a first request, the others while it is on its way, and return the groups that formed."""
    recorder = Recorder()
    committer = GroupCommitter("test", recorder.commit, recorder.on_error, rows_max, 1000)
    assert committer.submit(recorder.pending(0, "first"))
    wait_for(lambda: recorder.groups, "the first group began")
    for number, (block, rows, alone) in enumerate(requests, 1):
        assert committer.submit(recorder.pending(number, block, rows, alone))
    recorder.go_on.set()
    assert committer.close(10)
    assert len(recorder.answered) == len(requests) + 1
    assert recorder.groups[0] == ["first"]
    return recorder.groups[1:]


def test_requests_that_wait_become_one_group() -> None:
    assert groups_of([("a", 1, False), ("b", 1, False), ("c", 1, False)]) == [["a", "b", "c"]]


def test_equal_block_ids_never_share_a_group() -> None:
    assert groups_of([("a", 1, False), ("b", 1, False), ("a", 1, False)]) == [["a", "b"], ["a"]]


def test_a_group_ends_at_its_limit_of_rows() -> None:
    assert groups_of([("a", 60, False), ("b", 40, False), ("c", 1, False)]) == [["a", "b"], ["c"]]


def test_parts_are_counted_only_when_a_group_has_more_rows_than_it_may_have_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "PARTS_MAX", 10)
    recorder, counted = Recorder(), list[str]()
    committer = GroupCommitter("test", recorder.commit, recorder.on_error, 100, 1000)
    assert committer.submit(recorder.pending(0, "first"))
    wait_for(lambda: recorder.groups, "the first group began")

    def count(block: str, parts: int) -> int:
        counted.append(block)
        return parts

    for number, (block, parts) in enumerate([("a", 1), ("b", 6), ("c", 6), ("d", 4)], 1):
        pending = recorder.pending(number, block, rows=6)
        pending.count_parts = partial(count, block, parts)
        assert committer.submit(pending)
    recorder.go_on.set()
    assert committer.close(10)
    assert recorder.groups == [["first"], ["a", "b"], ["c", "d"]]
    assert counted == ["a", "b", "c", "c", "d"], "the first one alone has too few rows"


def test_a_staged_request_goes_alone() -> None:
    assert groups_of([("a", 1, False), ("up", 1, True), ("b", 1, False)]) == [["a"], ["up"], ["b"]]


def test_a_failing_commit_answers_everybody_and_the_committer_lives_on() -> None:
    recorder = Recorder()
    recorder.go_on.set()
    committer = GroupCommitter("test", recorder.commit, recorder.on_error, 100, 1000)
    assert committer.submit(recorder.pending(0, "a", payload="bad"))
    wait_for(lambda: recorder.answered, "answered")
    assert committer.submit(recorder.pending(1, "b"))
    assert committer.close(10)
    assert [type(pending.answer) for pending in recorder.answered] == [NotInserted, Inserted]
    assert [type(problem) for problem in recorder.problems] == [ValueError]


def test_a_closed_committer_takes_nothing_and_a_full_one_neither() -> None:
    recorder = Recorder()
    committer = GroupCommitter("test", recorder.commit, recorder.on_error, 100, WAITING_REQUESTS_MAX)
    assert committer.submit(recorder.pending(0, "first"))
    wait_for(lambda: recorder.groups, "the first group began")
    taken = sum(committer.submit(recorder.pending(i, f"b{i}")) for i in range(WAITING_REQUESTS_MAX + 5))
    assert taken == WAITING_REQUESTS_MAX
    recorder.go_on.set()
    assert committer.close(20)
    assert not committer.submit(recorder.pending(1, "late"))


def test_only_the_first_answer_counts() -> None:
    recorder = Recorder()
    pending = recorder.pending(0, "a")
    pending.give(Inserted(LogIndex(1)))
    pending.give(NotInserted("no"))
    assert pending.answer == Inserted(LogIndex(1))
    assert len(recorder.answered) == 1


def group_after_two(monkeypatch: pytest.MonkeyPatch, quiet_s: float, submit_later: bool) -> list[list[str]]:
    """Let two requests be around a group, then one come back, and another one later; return the groups after the first."""
    monkeypatch.setattr(group_commit, "LINGER_S", 3600.0)
    monkeypatch.setattr(group_commit, "QUIET_S", quiet_s)
    monkeypatch.setattr(group_commit, "QUIET_SHARE", 0.0)
    recorder = Recorder()
    committer = GroupCommitter("test", recorder.commit, recorder.on_error, 100, 1000)
    assert committer.submit(recorder.pending(0, "first"))
    wait_for(lambda: recorder.groups, "the first group began")
    assert committer.submit(recorder.pending(1, "a"))
    recorder.go_on.set()
    wait_for(lambda: recorder.answered, "the first group was answered")
    if submit_later:
        assert committer.submit(recorder.pending(2, "b"))
    wait_for(lambda: len(recorder.groups) == 2, "the second group began")
    assert committer.close(10)
    return recorder.groups[1:]


def test_a_group_waits_for_a_client_that_is_expected_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert group_after_two(monkeypatch, quiet_s=3600.0, submit_later=True) == [["a", "b"]]


def test_a_group_goes_when_nobody_comes_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert group_after_two(monkeypatch, quiet_s=0.0, submit_later=False) == [["a"]]


def test_rows_that_wait_are_bounded_in_bytes() -> None:
    recorder = Recorder()
    committer = GroupCommitter("test", recorder.commit, recorder.on_error, 100, 1000)
    requests = [recorder.pending(number, f"b{number}") for number in range(8)]
    for request in requests:
        request.bytes = 1000
    assert committer.submit(requests[0])
    wait_for(lambda: recorder.groups, "the first group began")
    assert [committer.submit(request) for request in requests[1:]] == [True] * 4 + [False] * 3
    recorder.go_on.set()
    wait_for(lambda: len(recorder.answered) == 5, "all that wait are answered")
    assert committer.submit(recorder.pending(9, "later"))
    assert committer.close(10)
    assert len(recorder.answered) == 6
