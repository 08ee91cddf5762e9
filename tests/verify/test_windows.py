"""The checker's clock: ids have times, and whoever forgets one too early is told so."""

from __future__ import annotations

import pytest

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import BlockValue, GetEntry, encode_block, encode_entry
from replitree.protocol.core.layout import Replica
from replitree_verify.engine.initial import table_tree
from replitree_verify.world.model import TABLE
from replitree_verify.world.past import remember
from replitree_verify.world.windows import forgotten_between, forgotten_too_early, timed, with_clock

REPLICA = Replica(TABLE, "r1")


def after(tree: Tree, *operations: fx.Operation) -> Tree:
    """Return the tree after a commit, as the checker keeps it."""
    changed, _ = tree.commit(operations, session=1)
    return remember(operations, tree, changed, TABLE)


def insert(tree: Tree, token: str) -> Tree:
    """Return the tree after an insert with this token."""
    block = encode_block(BlockValue(fx.StagingId(token), fx.LogIndex(0), partitions=("all",)))
    entry = encode_entry(GetEntry("r1", fx.StagingId(token), (), (fx.BlockId(token),)))
    create = fx.Create(layout.log_create(TABLE), entry, sequential=True)
    return after(tree, fx.Create(layout.block(TABLE, fx.BlockId(token)), block), create)


def forget(token: str) -> fx.Delete:
    return fx.Delete(layout.block(TABLE, fx.BlockId(token)), fx.ANY_VERSION)


def with_three(count: int, age_ms: int) -> Tree:
    tree = with_clock(table_tree(("r1",)), count, age_ms)
    for token in ("a", "b", "c"):
        tree = insert(tree, token)
    return tree


def times(tree: Tree, *tokens: str) -> list[int]:
    read = fx.GetMany(tuple(layout.block(TABLE, fx.BlockId(token)) for token in tokens))
    return [node.changed_ms for node in timed(tree, read, answer(tree, read)).nodes if node is not None]


def test_an_id_has_the_time_of_its_entry() -> None:
    assert times(with_three(9, 9), "a", "b", "c") == [0, 1, 2]


def test_nodes_with_different_times_are_different() -> None:
    read = fx.GetMany((layout.block(TABLE, fx.BlockId("a")),))
    one = with_three(9, 9)
    other = insert(after(one, forget("a")), "a")
    assert answer(one, read) == answer(other, read)
    assert timed(one, read, answer(one, read)) != timed(other, read, answer(other, read))


def test_without_a_window_there_are_no_times() -> None:
    tree = insert(table_tree(("r1",)), "a")
    read = fx.GetMany((layout.block(TABLE, fx.BlockId("a")),))
    assert timed(tree, read, answer(tree, read)) == answer(tree, read)
    assert forgotten_too_early(fx.Commit(forget("a")).operations, tree, TABLE) is None


@pytest.mark.parametrize(
    ("count", "age_ms", "token", "is_early"),
    [
        (2, 9, "a", False),
        (2, 9, "b", True),
        (3, 9, "a", True),
        (9, 1, "a", False),
        (9, 1, "b", True),
        (1, 9, "c", True),
    ],
)
def test_only_what_is_outside_of_the_window_may_go(count: int, age_ms: int, token: str, *, is_early: bool) -> None:
    breach = forgotten_too_early((forget(token),), with_three(count, age_ms), TABLE)
    assert (breach is not None) is is_early


def test_when_an_id_was_forgotten_is_remembered_each_time() -> None:
    tree = insert(after(with_three(9, 9), forget("a")), "a")
    assert forgotten_between(tree, "a", 0, 3)
    assert not forgotten_between(tree, "a", 3, 4)
    assert not forgotten_between(tree, "b", 1, 4)
    tree = insert(after(tree, forget("a")), "a")
    assert forgotten_between(tree, "a", 3, 4)
