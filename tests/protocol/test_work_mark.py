"""Work marks, over a tree in memory: who takes one, who waits for it, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.coordination.tree import Tree, answer
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Fenced
from replitree.protocol.state.work_mark import HeldBy, MarkUnsettled, Registered, Taken, give_up, give_up_left, take

TABLE = TablePlace("/t")
RESULT = "all_0_3_1"
MARK = layout.merged(TABLE, RESULT)
FIRST, SECOND = 1, 2
"""Sessions."""


def sharer(name: str) -> Sharer:
    return Sharer(Replica(TABLE, name), "i1")


class Shared:
    """A tree with two replicas, and what they asked."""

    def __init__(self) -> None:
        paths = [layout.results(TABLE), layout.all_merged(TABLE)]
        paths += [layout.host(Replica(TABLE, name)) for name in ("r1", "r2")]
        self.tree = Tree.of(dict.fromkeys(paths, b""))
        self.asked: list[fx.Effect] = []
        self.in_work: tuple[str, ...] = ()
        self.is_lossy = False

    def run(self, procedure: Any, session: int = FIRST) -> Any:
        return run(procedure, lambda effect: self._perform(effect, session))

    def _perform(self, effect: Any, session: int) -> Any:
        self.asked.append(effect)
        match effect:
            case fx.Commit(operations):
                self.tree, outcome = self.tree.commit(operations, session)
                return fx.Unknown() if self.is_lossy else outcome
            case fx.Get() | fx.GetMany() | fx.Children():
                return answer(self.tree, effect)
            case fx.ResultsInWork():
                return self.in_work
        raise AssertionError(effect)

    def commit(self, *operations: fx.Create | fx.Delete) -> None:
        self.run(iter_commit(*operations))


def iter_commit(*operations: fx.Create | fx.Delete) -> Any:
    yield fx.Commit(*operations)


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_the_first_one_makes_it_and_the_other_watches(shared: Shared) -> None:
    assert shared.run(take(sharer("r1"), fx.Epoch(0), RESULT)) == Taken()
    assert len(shared.asked) == 1
    assert shared.run(take(sharer("r2"), fx.Epoch(0), RESULT), SECOND) == HeldBy("r1")
    assert shared.asked[-1] == fx.GetMany((MARK,), watch=MARK)


def test_the_mark_ends_with_its_session(shared: Shared) -> None:
    shared.run(take(sharer("r1"), fx.Epoch(0), RESULT))
    shared.tree = shared.tree.expire(FIRST)
    assert shared.run(take(sharer("r2"), fx.Epoch(0), RESULT), SECOND) == Taken()


def test_a_result_that_is_registered_is_not_made_again_unless_nobody_can_send_it(shared: Shared) -> None:
    shared.commit(fx.Create(layout.result(TABLE, RESULT), b"content"))
    assert shared.run(take(sharer("r1"), fx.Epoch(0), RESULT)) == Registered()
    assert shared.tree.get(MARK) is None
    assert shared.run(take(sharer("r1"), fx.Epoch(0), RESULT, anew=True)) == Taken()


def test_asking_leaves_nothing_behind_in_the_results(shared: Shared) -> None:
    shared.run(take(sharer("r1"), fx.Epoch(0), RESULT))
    assert shared.tree.children(layout.results(TABLE)) == ()


def test_a_mark_of_an_earlier_session_of_the_same_replica_is_taken_again(shared: Shared) -> None:
    shared.run(take(sharer("r1"), fx.Epoch(0), RESULT), FIRST)
    assert shared.run(take(sharer("r1"), fx.Epoch(0), RESULT), SECOND) == Taken()
    shared.tree = shared.tree.expire(FIRST)
    assert shared.tree.owner(MARK) == SECOND


def test_a_replica_of_the_same_name_that_was_created_again_is_another_one(shared: Shared) -> None:
    shared.run(take(sharer("r1"), fx.Epoch(0), RESULT), FIRST)
    assert shared.run(take(Sharer(Replica(TABLE, "r1"), "i2"), fx.Epoch(0), RESULT), SECOND) == HeldBy("r1")


def test_a_replaced_process_takes_nothing(shared: Shared) -> None:
    assert shared.run(take(sharer("r1"), fx.Epoch(7), RESULT)) == Fenced()


def test_a_lost_answer_is_not_taken_for_a_yes(shared: Shared) -> None:
    shared.is_lossy = True
    assert shared.run(take(sharer("r1"), fx.Epoch(0), RESULT)) == MarkUnsettled()


def test_a_table_that_is_older_than_marks_gets_their_parent(shared: Shared) -> None:
    shared.commit(fx.Delete(layout.all_merged(TABLE), -1))
    assert shared.run(take(sharer("r1"), fx.Epoch(0), RESULT)) == Taken()
    assert shared.tree.children(layout.all_merged(TABLE)) == (RESULT,)


def test_only_ones_own_mark_is_given_up(shared: Shared) -> None:
    shared.run(take(sharer("r1"), fx.Epoch(0), RESULT))
    assert shared.run(give_up(sharer("r2"), fx.Epoch(0), RESULT))
    assert shared.tree.get(MARK) is not None
    assert shared.run(give_up(sharer("r1"), fx.Epoch(0), RESULT))
    assert shared.tree.get(MARK) is None


def test_marks_under_which_nothing_is_made_are_given_up(shared: Shared) -> None:
    shared.run(take(sharer("r1"), fx.Epoch(0), RESULT))
    shared.run(take(sharer("r2"), fx.Epoch(0), "all_4_5_1"), SECOND)
    shared.in_work = (RESULT,)
    assert shared.run(give_up_left(sharer("r1"), fx.Epoch(0))) == 0
    shared.in_work = ()
    assert shared.run(give_up_left(sharer("r1"), fx.Epoch(0))) == 1
    assert shared.tree.children(layout.all_merged(TABLE)) == ("all_4_5_1",)


def test_looking_for_left_marks_costs_one_request_when_there_are_none(shared: Shared) -> None:
    shared.run(give_up_left(sharer("r1"), fx.Epoch(0)))
    assert shared.asked == [fx.Children(layout.all_merged(TABLE))]
