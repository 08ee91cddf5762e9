"""Each insert is followed by itself: what is wrong is said of it, can be taken back, and what is over is forgotten."""

from __future__ import annotations

import pytest

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core.effects import EntryId, StagingId
from replitree.protocol.core.entries import DropEntry, Entry, GetEntry, MutateEntry
from replitree_published.bridge.lives import PIECES_MAX, Lives
from tests.verify.bridge.test_replication import GET, NAMES, PARTS, TABLE, tree_of

DROPPED = DropEntry("r1", EntryId("d"), "*")
HERE = {"p_0_0_0": b"p:1", "q_0_0_0": b"q:1"}


def mutation(number: int) -> MutateEntry:
    return MutateEntry("r1", EntryId(f"m{number}"), "p", "x")


def looked(*trees: Tree) -> Lives:
    lives = Lives.of(TABLE, NAMES)
    for tree in trees:
        assert lives.look(tree) is None
    return lives


def test_an_insert_is_followed_from_its_commit_to_its_drop() -> None:
    trees = tree_of(), tree_of(GET), tree_of(GET, pointer=1, parts=HERE), tree_of(GET, DROPPED, pointer=1, parts=HERE)
    lives = looked(*trees, tree_of(GET, DROPPED, pointer=2))
    assert set(lives.follower.taken) == {"Insert", "Execute", "Drop", "LetGo"}


def test_what_is_wrong_is_said_of_one_insert() -> None:
    other = GetEntry("r1", StagingId("s1"), PARTS[:1], ())
    both = {**HERE, "p_1_1_0": b"p:1"}
    lives = looked(tree_of(), tree_of(GET, other, pointer=2, parts=both))
    wrong = lives.look(tree_of(GET, other, pointer=2, parts=HERE))
    assert wrong is not None
    assert wrong.endswith("(the insert at 1)")
    assert "r1 has {}, executed {0}" in wrong


def test_what_was_looked_at_can_be_taken_back() -> None:
    lives = looked(tree_of(), tree_of(GET, pointer=1, parts=HERE))
    lives.stay()
    assert lives.look(tree_of(GET, mutation(1), pointer=1)) is not None
    lives.go_back()
    assert lives.look(tree_of(GET, mutation(1), pointer=1)) is not None
    lives.go_back()
    mutated = {"p_0_0_0_1": b"p:1~x", "q_0_0_0": b"q:1"}
    assert lives.look(tree_of(GET, mutation(1), pointer=2, parts=mutated)) is None


def test_what_is_over_is_forgotten_and_what_somebody_waits_for_is_not() -> None:
    lives, log, mutated = looked(tree_of(), tree_of(GET, pointer=1, parts=HERE)), list[Entry]([GET]), HERE
    for number in range(1, PIECES_MAX + 10):
        log.append(mutation(number))
        mutated = {f"p_0_0_0_{number}": b"p:1~x", "q_0_0_0": b"q:1"}
        assert lives.look(tree_of(*log, pointer=len(log), parts=mutated)) is None
    log += (mutation(number) for number in range(PIECES_MAX))
    with pytest.raises(BadInput, match="the insert at 0 is too much to be followed"):
        lives.look(tree_of(*log, pointer=PIECES_MAX + 10, parts=mutated))
