"""Virtual coordination with transaction numbers: that of a tree is how many trees there were before it, and one.

A session is told of a transaction with every answer, in one of two ways (`protocol.core.stamps`): of the one whose state the
answer shows, or of the last one, which the answer may lack.  Either way no later read of the session shows an older state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import BEFORE_ALL, GetStamped, Stamped, StampedNode, Zxid
from replitree_verify.outcomes.branch import Request
from replitree_verify.simulation.cluster import Cluster, Reply, Session

MOVES_ON = 0.3
"""Share of the reads within a request before which the view of a server that is behind moves on."""

FIRST = Zxid(1)
"""The transaction of all nodes that are there at the beginning."""


class StampedCluster(Cluster):
    """A cluster whose coordination answers `GetStamped`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._stamps: dict[str, list[tuple[Zxid, Zxid]]] = {}
        """Of each node that was written: (created, changed), one after the other."""
        self._told: dict[int, Zxid] = {}
        self._header = FIRST

    @property
    def zxid(self) -> Zxid:
        """The last transaction."""
        return Zxid(len(self._trees))

    @override
    def ask(self, session: Session, effect: Any, hear: Callable[[Reply], None]) -> None:
        told = self._told.get(session.number, BEFORE_ALL)

        def heard(reply: Reply) -> None:
            found = reply.outcome
            hear(replace(reply, outcome=replace(found, seen=told)) if isinstance(found, Stamped) else reply)

        super().ask(session, effect, heard)

    @override
    def _arrive(self, session: Session, effect: Any, hear: Callable[[Reply], None], there: int) -> None:
        header = list[Zxid]()

        def heard(reply: Reply) -> None:
            if header and not reply.lost and not isinstance(reply.outcome, fx.Unknown):
                self._told[session.number] = max(self._told.get(session.number, BEFORE_ALL), header[0])
            hear(reply)

        is_open = session.alive
        super()._arrive(session, effect, heard, there)
        # The answer is heard later; what it tells is known now.
        header += [self._header] if is_open else []

    @override
    def _perform(self, session: Session, effect: Any) -> tuple[Any, int, str]:
        before = self.tree
        outcome, seen, fate = (
            self._stamped(session, effect) if isinstance(effect, GetStamped) else super()._perform(session, effect)
        )
        if isinstance(effect, Request):
            if self.tree is not before:
                assert isinstance(outcome, fx.Applied)
                self._stamp(effect.operations, outcome)
        elif self.chance(0.5):
            seen = len(self._trees) - 1
        session.floor = max(session.floor, seen)
        self._header = Zxid(seen + 1)
        return outcome, seen, fate

    def _stamp(self, operations: tuple[fx.Operation, ...], outcome: fx.Applied) -> None:
        created = iter(outcome.created)
        for operation in operations:
            match operation:
                case fx.Create():
                    self._stamps.setdefault(next(created), []).append((self.zxid, self.zxid))
                case fx.Set(path):
                    known = self._stamps.setdefault(path, [(FIRST, FIRST)])
                    known.append((known[-1][0], self.zxid))

    def _stamped(self, session: Session, effect: GetStamped) -> tuple[Stamped, int, str]:
        """Read nodes one after the other; the server's view may move on between two of them."""
        last = len(self._trees) - 1
        lagging = session.lag if self.faulty else 0
        at = max(session.floor, bisect_right(self._times, self.now - lagging) - 1)
        nodes, first = list[StampedNode | None](), at
        for path in effect.paths:
            if at < last and self.chance(MOVES_ON):
                # Often to what was written just now: that is what a reader must not mistake for all that came before.
                at = last if self.chance(0.5) else self.random.randint(at, last)
            nodes.append(self._node(self._trees[at], path, Zxid(at + 1)))
        return Stamped(tuple(nodes), BEFORE_ALL), at, "" if first == last else "stale" if at == first else "torn"

    def _node(self, tree: Tree, path: str, zxid: Zxid) -> StampedNode | None:
        node = tree.get(path)
        if node is None:
            return None
        stamps = [each for each in self._stamps.get(path, ()) if each[1] <= zxid] or [(FIRST, FIRST)]
        return StampedNode(node.value, node.version, *stamps[-1], tree.next_sequence(path) or 0)
