"""The tree in memory against a real ZooKeeper 3.9.5: the same random commits, ends of sessions and watches on both.

After every step the outcomes are equal, and so is everything that can be read: values, versions, names, the children of every
node.  The watches that fired are compared too, and at the end the next sequence numbers, by using them up.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import READS_MAX, Coordination, Outcome, make_root
from replitree.coordination.stamped import StampedCoordination
from replitree.coordination.tree import Tree
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import GetStamped, StampedNode
from tests.coordination.waiting import Recorder
from tests.examples import examples
from tests.waiting import wait_for

pytestmark = pytest.mark.system

PLACES = ("", "/a", "/b", "/a/a", "/a/b", "/b/a", "/a/n-0000000000", "/a/a/n-0000000001")
"""Few, so that random operations meet each other; the last two are names that sequential nodes get."""

SESSIONS = (0, 1)

EXAMPLES, STEPS = examples(20), 40
"""About 10 s; in twice that time every mutant that was tried on `tree` and `memory` is found."""

places = st.sampled_from(PLACES)
sessions = st.sampled_from(SESSIONS)
kinds = st.sampled_from(
    [*["delete"] * 4, *["create"] * 3, *["set"] * 2, *["number"] * 2, "check", "ephemeral", "ephemeral number"]
)
versions = st.sampled_from([-1, 0, 1, 2])
values = st.sampled_from([b"", b"x", b"\x00\xff"])

Draft = tuple[str, str, int, bytes, bool]
"""Kind, place, version, value, and whether the operation is moved to a place and version where it holds."""

drafts = st.tuples(kinds, places, versions, values, st.sampled_from([True, True, True, True, False]))

_examples = itertools.count()


class Pair(RuleBasedStateMachine):
    """Two sessions on each side, and what both sides heard."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.root = f"/differential-{next(_examples)}"
        self.shared = SharedTree()
        self.memory = [MemoryCoordination(self.shared) for _ in SESSIONS]
        self.real = [ZooKeeperCoordination(self.url) for _ in SESSIONS]
        self.known = {""}
        self.barriers = 0
        for side in (self.memory, self.real):
            make_root(side[0], self.root)
            make_root(side[0], self.barrier)
        self.heard_in_memory = [_listen(session) for session in self.memory]
        self.heard_for_real = [_listen(session) for session in self.real]

    @property
    def barrier(self) -> str:
        return f"{self.root}-barrier"

    def both(self, session: int, effect: fx.CoordinationEffect) -> Outcome:
        """Perform an effect on both sides and return the outcome, which is the same."""
        expected = self.memory[session].perform(effect)
        assert self.real[session].perform(effect) == expected
        return expected

    @rule(session=sessions, one=drafts)
    def commit_one(self, session: int, one: Draft) -> None:
        self.commit(session, [one])

    @rule(session=sessions, some=st.lists(drafts, min_size=2, max_size=6))
    def commit_some(self, session: int, some: list[Draft]) -> None:
        self.commit(session, some)

    def commit(self, session: int, some: list[Draft]) -> None:
        operations: list[fx.Operation] = []
        tree = self.shared.tree
        for draft in some:
            operations.append(self.operation(tree, draft))
            tree = tree.commit(operations[-1:], self.memory[session].session_id)[0]
        outcome = self.both(session, fx.Commit(*operations))
        if isinstance(outcome, fx.Applied):
            self.known.update(path.removeprefix(self.root) for path in outcome.created)

    def operation(self, tree: Tree, draft: Draft) -> fx.Operation:
        kind, place, version, value, moved = draft
        wanted = PLACES.index(place)
        for candidate in (*PLACES[wanted:], *PLACES[:wanted]) if moved else ():
            node = tree.get(self.root + candidate)
            operation = self.make(kind, candidate, 0 if node is None else node.version, value)
            if isinstance(tree.commit([operation], 1)[1], fx.Applied):
                return operation
        return self.make(kind, place, version, value)

    def make(self, kind: str, place: str, version: int, value: bytes) -> fx.Operation:
        path = self.root + place
        match kind:
            case "check":
                return fx.Check(path, version)
            case "set":
                return fx.Set(path, value, version)
            case "delete" if place:
                return fx.Delete(path, version)
            case "create" | "ephemeral" | "delete":
                return fx.Create(path, value, ephemeral=kind == "ephemeral")
            case _:
                return fx.Create(f"{path}/n-", value, ephemeral=kind == "ephemeral number", sequential=True)

    @rule(session=sessions, kind=st.sampled_from(["node", "with reads", "children", "all children"]), place=places)
    def watch(self, session: int, kind: str, place: str) -> None:
        path = self.root + place
        match kind:
            case "node":
                self.both(session, fx.Exists(path, watch=True))
            case "with reads":
                self.both(session, fx.GetMany((self.root, path), watch=path))
            case "children":
                self.both(session, fx.Children(path, watch=True))
            case _:
                for anywhere in PLACES:
                    self.both(session, fx.Children(self.root + anywhere, watch=True))

    @rule(session=sessions)
    def end_session(self, session: int) -> None:
        """The ephemerals of a session go, others stay, and its watches are void.

        A real client does not wait for the end of its old session, so its ephemerals may go a moment later.
        """
        tree, ended = self.shared.tree, self.memory[session].session_id
        ephemerals = [path for path in tree if tree.owner(path) == ended]
        self.memory[session].reconnect()
        self.real[session].reconnect()
        for path in ephemerals:
            wait_for(lambda: not self.real[session].perform(fx.Exists(path)), f"{path} goes with its session")  # noqa: B023

    @invariant()
    def reads_are_equal(self) -> None:
        paths = tuple(sorted(self.root + place for place in self.known))
        self.both(1, fx.GetMany(paths))
        many = self.both(0, fx.GetMany(paths))
        assert isinstance(many, fx.Many)
        for path, node in zip(paths, many.nodes, strict=True):
            if node is not None:
                self.both(0, fx.Children(path))
        self.both(0, fx.ChildrenMany(paths))

    @invariant()
    def nodes_were_changed_in_the_same_order(self) -> None:
        """Only the order of transactions is compared: of ZooKeeper, commits that are refused have a number, too."""
        paths = tuple(sorted(self.root + place for place in self.known))
        memory, real = (_stamped(side, paths) for side in (self.memory[0], self.real[0]))
        assert _ranked(memory) == _ranked(real)

    @invariant()
    def watches_are_equal(self) -> None:
        """Events come in order: once every session heard that the barrier was set, it has heard what came before."""
        self.barriers += 1
        for session in SESSIONS:
            self.both(session, fx.Exists(self.barrier, watch=True))
        self.both(0, fx.Commit(fx.Set(self.barrier, b"", -1)))
        for memory, real in zip(self.heard_in_memory, self.heard_for_real, strict=True):
            for heard in (memory, real):
                heard.wait_until(lambda paths: paths.count(self.barrier) >= self.barriers)
            assert sorted(real.watched()) == sorted(memory.watched())

    def teardown(self) -> None:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Compare the next number under every node that is left, by using it up."""
        try:
            tree = self.shared.tree
            for path in (path for path in tree if path.startswith(self.root) and not tree.owner(path)):
                outcome = self.both(0, fx.Commit(fx.Create(f"{path}/z-", sequential=True)))
                assert outcome == fx.Applied((f"{path}/z-{tree.next_sequence(path):010d}",))
        finally:
            for memory, real in zip(self.memory, self.real, strict=True):
                memory.close()
                real.close()


def _stamped(session: StampedCoordination, paths: tuple[str, ...]) -> list[StampedNode | None]:
    pieces = (paths[first : first + READS_MAX] for first in range(0, len(paths), READS_MAX))
    return [node for piece in pieces for node in session.perform(GetStamped(piece)).nodes]


def _ranked(nodes: list[StampedNode | None]) -> list[tuple[object, ...] | None]:
    """Return the nodes with their transactions counted from the first one of them."""
    there = [node for node in nodes if node is not None]
    known = sorted({zxid for node in there for zxid in (node.created, node.changed)})
    return [None if node is None else (*_said(node), *map(known.index, (node.created, node.changed))) for node in nodes]


def _said(node: StampedNode) -> tuple[object, ...]:
    return node.value, node.version, node.number


def _listen(session: Coordination) -> Recorder:
    recorder = Recorder()
    session.add_listener(recorder)
    return recorder


def test_random_commits_have_the_same_outcomes_on_both(zookeeper: EmbeddedZooKeeper) -> None:
    class Machine(Pair):
        url = zookeeper.url

    run_state_machine_as_test(Machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
