"""The tree as a value: immutable, its hash kept up to date, equal exactly when nothing can tell two trees apart."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replitree
from replitree.coordination.tree import PERSISTENT, Tree, answer, woken
from replitree.protocol.core import effects as fx

NAMES = st.sampled_from(["a", "b", "n-0000000000"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
VALUES = st.sampled_from([b"", b"x", b"y"])
OPERATIONS = st.one_of(
    st.builds(fx.Create, PATHS, VALUES, st.booleans()),
    st.builds(
        lambda path, value: fx.Create(f"{path}/n-", value, sequential=True), st.one_of(st.just(""), PATHS), VALUES
    ),
    st.builds(fx.Set, PATHS, VALUES, st.just(fx.ANY_VERSION)),
    st.builds(fx.Delete, PATHS, st.just(fx.ANY_VERSION)),
    st.builds(fx.Check, PATHS, st.integers(-1, 1)),
)
HISTORIES = st.lists(st.tuples(st.lists(OPERATIONS, min_size=1, max_size=3), st.sampled_from([1, 2])), max_size=25)
History = list[tuple[list[fx.Operation], int]]


def play(history: History, tree: Tree | None = None) -> Tree:
    tree = Tree() if tree is None else tree
    for operations, session in history:
        tree, _ = tree.commit(operations, session)
    return tree


def content(tree: Tree) -> object:
    """Everything that a later read or commit could see, by public means."""
    nodes = [(path, tree.get(path), tree.owner(path), tree.next_sequence(path)) for path in ("/", *tree)]
    return nodes, [tree.children(path) for path in ("/", *tree)]


def rebuilt(tree: Tree) -> Tree:
    """Build an equal tree by another history: every node in another order, with its counters and versions run up."""
    copied = Tree()
    for path in ("/", *tree):
        if path != "/":
            node, owner = tree.get(path), tree.owner(path)
            assert node is not None
            ephemeral = owner != PERSISTENT
            copied, _ = copied.commit([fx.Create(path, b"other", ephemeral)], owner or 9)
            sets: list[fx.Operation] = [fx.Set(path, b"other", fx.ANY_VERSION)] * (node.version - 1)
            last: list[fx.Operation] = [fx.Set(path, node.value, fx.ANY_VERSION)] if node.version else []
            if not node.version:
                copied, _ = copied.commit([fx.Delete(path, 0), fx.Create(path, node.value, ephemeral)], owner or 9)
            copied, _ = copied.commit([*sets, *last], owner or 9)
    return copied


@given(HISTORIES)
def test_a_tree_never_changes(history: History) -> None:
    tree, seen = Tree(), []
    for step in history:
        seen.append((tree, content(tree), tree.fingerprint))
        tree = play([step], tree)
    for earlier, then, fingerprint in seen:
        assert content(earlier) == then
        assert earlier.fingerprint == fingerprint


@given(HISTORIES, HISTORIES)
def test_trees_are_equal_exactly_when_nothing_can_tell_them_apart(one: History, two: History) -> None:
    first, second = play(one), play(two)
    same = content(first) == content(second)
    assert (first == second) is same
    assert (first.fingerprint == second.fingerprint) is same
    assert (hash(first) == hash(second)) is same


@given(HISTORIES)
def test_the_hash_depends_on_the_content_and_not_on_how_it_came_about(history: History) -> None:
    tree = play(history)
    twin = rebuilt(tree)
    # The copy used other numbers of children up: bring the counters of both to the same value.
    for path in ("/", *tree):
        while (count := tree.next_sequence(path) or 0) != (other := twin.next_sequence(path) or 0):
            name = f"{path.rstrip('/')}/counts"
            step: list[fx.Operation] = [fx.Create(name), fx.Delete(name, 0)]
            if count < other:
                tree = tree.commit(step, 9)[0]
            else:
                twin = twin.commit(step, 9)[0]
    assert twin == tree
    assert twin.fingerprint == tree.fingerprint


@given(HISTORIES)
def test_what_is_undone_leaves_no_trace_in_the_hash(history: History) -> None:
    tree = play(history)
    assert play([([fx.Create("/new"), fx.Create("/new/child"), fx.Check("/new", 1)], 1)], tree) is tree
    there, _ = tree.commit([fx.Create("/new"), fx.Create("/new/child", ephemeral=True)], 3)
    again = there.expire(3).commit([fx.Delete("/new", 0)], 1)[0]
    assert content(again) != content(tree)  # the root's counter went on
    assert again.get("/new") is None
    assert again.next_sequence("/new") is None
    assert again.fingerprint == tree.commit([fx.Create("/other"), fx.Delete("/other", 0)], 1)[0].fingerprint


@given(HISTORIES)
def test_expiry_takes_the_ephemerals_of_one_session_and_nothing_else(history: History) -> None:
    tree = play(history)
    left = tree.expire(1)
    assert set(tree.paths()) - set(left.paths()) == set(tree.ephemerals(1))
    assert left.ephemerals(1) == ()
    assert left.ephemerals(2) == tree.ephemerals(2)
    assert all(left.get(path) == tree.get(path) for path in left)
    assert all(left.next_sequence(path) == tree.next_sequence(path) for path in left)


def test_a_commit_that_writes_nothing_returns_the_same_tree() -> None:
    tree = Tree.of({"/a": b"x"})
    assert tree.commit([fx.Check("/a", 0)], 1) == (tree, fx.Applied())
    assert tree.commit([fx.Check("/a", 0)], 1)[0] is tree
    assert tree.expire(1) is tree


def test_trees_survive_copies_and_pickles() -> None:
    tree = Tree.of({"/a/b": b"x", "/c": b""})
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert copy.deepcopy(tree) == tree
    assert hash(pickle.loads(pickle.dumps(tree))) == hash(tree)


def test_a_tree_differs_from_anything_else() -> None:
    assert Tree() != {}
    assert Tree() == Tree()


@pytest.mark.parametrize(
    ("name", "step"),
    {
        "value": [fx.Set("/a", b"other", 0)],
        "version": [fx.Set("/a", b"x", 0)],
        "counter": [fx.Create("/a/b"), fx.Delete("/a/b", 0)],
        "node": [fx.Create("/a/b")],
        "name": [fx.Delete("/a", 0), fx.Create("/b", b"x")],
    }.items(),
)
def test_every_kind_of_difference_shows(name: str, step: list[fx.Operation]) -> None:
    tree = Tree.of({"/a": b"x"})
    changed, outcome = tree.commit(step, 1)
    assert isinstance(outcome, fx.Applied), name
    assert changed != tree
    assert changed.fingerprint != tree.fingerprint


def test_the_owner_of_a_node_shows() -> None:
    persistent, mine, theirs = (
        Tree().commit([fx.Create("/a", ephemeral=ephemeral)], session)[0]
        for ephemeral, session in ((False, 1), (True, 1), (True, 2))
    )
    assert len({persistent, mine, theirs}) == 3
    assert (persistent.owner("/a"), mine.owner("/a"), theirs.owner("/a"), mine.owner("/b")) == (PERSISTENT, 1, 2, None)


def test_the_fingerprint_is_the_same_under_every_hash_seed_and_for_ever() -> None:
    program = (
        "from replitree.coordination.tree import Tree; from replitree.protocol.core.effects import *;"
        "t = Tree.of({'/a/b': b'x', '/c': bytes(range(256))});"
        "t, _ = t.commit([Create('/a/n-', b'y', True, True), Set('/c', b'', 0)], 7); print(t.fingerprint)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(replitree.__path__[0]).parent)}
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert printed == {b"6230960729687762008\n"}


def test_reads_of_a_tree() -> None:
    tree = Tree.of({"/a/b": b"x", "/a/a": b""})
    assert answer(tree, fx.Get("/a/b")) == fx.Node(b"x", fx.Version(0))
    assert answer(tree, fx.Get("/")) == fx.Node(b"", fx.Version(0))
    assert answer(tree, fx.GetMany(("/a/b", "/no"), "/a")) == fx.Many(
        (fx.Node(b"x", fx.Version(0)), None), watched=True
    )
    assert answer(tree, fx.GetMany(())) == fx.Many(())
    assert answer(tree, fx.Exists("/")) is True
    assert answer(tree, fx.Exists("/no")) is False
    assert answer(tree, fx.Children("/")) == ("a",)
    assert answer(tree, fx.Children("/a")) == ("a", "b")
    assert answer(tree, fx.Children("/a/a")) == ()
    assert answer(tree, fx.Children("/no")) is None
    assert answer(tree, fx.Sync("/")) is None
    assert tree.next_sequence("/") == 1
    assert tree.next_sequence("/a/a") == 0
    assert tree.next_sequence("/no") is None
    assert tuple(tree) == tree.paths() == ("/a", "/a/a", "/a/b")


def test_the_root_can_be_checked_and_not_written() -> None:
    tree = Tree()
    assert tree.commit([fx.Check("/", 0), fx.Check("/", fx.ANY_VERSION)], 1)[1] == fx.Applied()
    assert tree.commit([fx.Check("/", 1)], 1)[1] != fx.Applied()
    for operation in (fx.Create("/"), fx.Set("/", b"", 0), fx.Delete("/", 0), fx.Create("/", sequential=True)):
        with pytest.raises(AssertionError, match="name"):
            tree.commit([operation], 1)


def test_a_tree_shows_its_nodes() -> None:
    tree, _ = Tree.of({"/a/b": b"x"}).commit([fx.Create("/mine", ephemeral=True), fx.Set("/a", b"y", 0)], 7)
    assert repr(tree).splitlines() == [
        "Tree of 3 nodes",
        "  /a @1 b'y'",
        "  /a/b @0 b'x'",
        "  /mine @0 of session 7 b''",
    ]


def test_a_renamed_tree_is_what_the_same_commits_make_with_other_names() -> None:
    def made(name: str, session: int) -> Tree:
        operations: list[fx.Operation] = [
            fx.Create(f"/{name}"), fx.Create(f"/{name}/n-", name.encode(), sequential=True), fx.Set(f"/{name}", b"", 0),
            fx.Create("/mine", name.encode(), ephemeral=True), fx.Create("/gone"), fx.Delete("/gone", 0),
        ]  # fmt: skip
        return Tree().commit(operations, session)[0]

    def renamed(tree: Tree, before: str, after: str, session: int) -> Tree:
        value = (before.encode(), after.encode())
        return tree.renamed(
            lambda path: path.replace(before, after),
            lambda raw: raw.replace(*value),
            lambda owner: session if owner else PERSISTENT,
        )

    one, other = made("r1", 1), made("r2", 2)
    assert renamed(one, "r1", "r2", 2) == other != one
    assert hash(renamed(one, "r1", "r2", 2)) == hash(other)
    assert renamed(other, "r2", "r1", 1) == one
    changed = renamed(one, "r1", "r2", 2).commit((fx.Create("/r2/n-", sequential=True),), 2)
    assert changed == other.commit((fx.Create("/r2/n-", sequential=True),), 2)


def test_watches_that_a_commit_fires() -> None:
    operations: list[fx.Operation] = [
        fx.Create("/a/n-", sequential=True),
        fx.Set("/a", b"", 0),
        fx.Check("/a", 1),
        fx.Delete("/a/b", 0),
        fx.Create("/c"),
    ]
    assert list(woken(operations, fx.Applied(("/a/n-0000000000", "/c")))) == [
        (("/a/n-0000000000",), ("/a",)),
        (("/a",), ()),
        ((), ()),
        (("/a/b",), ("/a/b", "/a")),
        (("/c",), ("/",)),
    ]
