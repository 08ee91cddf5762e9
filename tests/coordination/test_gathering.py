"""Commits and reads of several threads in one request: each ends as if it had been sent by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from replitree.coordination.gathering import AT_ONCE, Gathering, gathered_commits
from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.errors import BadInput
from replitree.protocol.core.effects import ANY_VERSION, Applied, Check, Commit, Committed, Create, Refused, Unknown
from tests.waiting import wait_for

TIME_S_MAX = 60.0


class Gate:
    """Sends commits, once it is open; the first `AT_ONCE` are on their way meanwhile, and what comes after them waits."""

    def __init__(self, answer: Callable[[Commit], Committed]) -> None:
        self.sent: list[Commit] = []
        self._answer = answer
        self._open = threading.Event()
        session = MemoryCoordination(SharedTree())
        session.perform = self._send  # type: ignore[method-assign, assignment]
        self._gathering = gathered_commits(session)

    def _send(self, commit: Commit) -> Committed:
        self.sent.append(commit)
        assert self._open.wait(TIME_S_MAX)
        return self._answer(commit)

    def perform(self, *commits: Commit) -> list[Committed | Exception]:
        """Perform commits by threads of their own, which come in this order, while others are on their way."""
        with ThreadPoolExecutor(AT_ONCE + len(commits)) as pool:
            first = [pool.submit(self._gathering.ask, Commit(Check("/", ANY_VERSION))) for _ in range(AT_ONCE)]
            wait_for(lambda: len(self.sent) == AT_ONCE, "the first commits are on their way")
            asked: list[Future[Committed]] = []
            for commit in commits:
                asked.append(pool.submit(self._gathering.ask, commit))
                wait_for(lambda: self._gathering.waiting == len(asked), "it waits")
            self._open.set()
            assert [each.result(TIME_S_MAX) for each in first] == [Applied()] * AT_ONCE
            return [each.exception(TIME_S_MAX) or each.result() for each in asked]  # type: ignore[misc]


@pytest.fixture
def tree() -> MemoryCoordination:
    return MemoryCoordination(SharedTree())


def test_commits_that_wait_go_together_and_each_hears_what_it_created(tree: MemoryCoordination) -> None:
    gate = Gate(tree.perform)
    found = gate.perform(
        Commit(Create("/a"), Check("/a", ANY_VERSION)), Commit(Create("/b"), Create("/b/n-", b"", sequential=True))
    )
    assert found == [Applied(("/a",)), Applied(("/b", "/b/n-0000000000"))]
    assert len(gate.sent) == AT_ONCE + 1


def test_one_that_is_refused_is_left_out_and_the_others_are_applied(tree: MemoryCoordination) -> None:
    gate = Gate(tree.perform)
    check = Check("/missing", ANY_VERSION)
    first, refused, last = gate.perform(Commit(Create("/a")), Commit(Create("/b"), check), Commit(Create("/c")))
    assert isinstance(refused, Refused)
    assert refused.operation is check
    assert (first, last) == (Applied(("/a",)), Applied(("/c",)))
    assert len(gate.sent) == AT_ONCE + 2


def test_of_two_with_an_equal_operation_the_first_one_is_applied(tree: MemoryCoordination) -> None:
    first, second = Gate(tree.perform).perform(Commit(Create("/a")), Commit(Create("/a")))
    assert first == Applied(("/a",))
    assert isinstance(second, Refused)


def test_a_lost_answer_leaves_all_unknown() -> None:
    gate = Gate(lambda commit: Applied() if isinstance(commit.operations[0], Check) else Unknown())
    assert gate.perform(Commit(Create("/a")), Commit(Create("/b"))) == [Unknown(), Unknown()]


def test_an_error_is_that_of_the_commit_which_has_it(tree: MemoryCoordination) -> None:
    def answer(commit: Commit) -> Committed:
        if any(each.path == "/bad" for each in commit.operations):
            raise BadInput("too large")
        return tree.perform(commit)

    bad, good = Gate(answer).perform(Commit(Create("/bad")), Commit(Create("/good")))
    assert isinstance(bad, BadInput)
    assert good == Applied(("/good",))


def test_what_is_too_large_together_goes_one_after_the_other() -> None:
    asked, entered, is_open = list[list[int]](), threading.Semaphore(0), threading.Event()

    def together(numbers: list[int]) -> list[int]:
        asked.append(numbers)
        entered.release()
        assert is_open.wait(TIME_S_MAX)
        return [2 * each for each in numbers]

    gathering = Gathering(together, lambda size: size, 10)
    with ThreadPoolExecutor(AT_ONCE + 3) as pool:
        first = [pool.submit(gathering.ask, 1) for _ in range(AT_ONCE)]
        assert all(entered.acquire(timeout=TIME_S_MAX) for _ in first)
        later: list[Future[int]] = []
        for size in (6, 4, 30):
            later.append(pool.submit(gathering.ask, size))
            wait_for(lambda: gathering.waiting == len(later), "it waits")
        is_open.set()
        assert [each.result(TIME_S_MAX) for each in (*first, *later)] == [2] * AT_ONCE + [12, 8, 60]
    assert sorted(asked) == [[1]] * AT_ONCE + [[6, 4], [30]]
