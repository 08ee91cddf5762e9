"""Virtual time, virtual coordination, virtual links.

*Time* is a number of microseconds; whatever happens later waits in one heap, ordered by time and then by the order of asking.

*Coordination* is the in-memory tree with sessions.  A request takes a while, may be lost, or so slow that its sender has
given it up (the outcome is unknown) when it is applied.  A session reads from a server that lags, never behind what the
session has written or synced.  A session of which nothing is heard for its timeout ends, and its ephemeral nodes with it;
its process finds out when it is heard again.

*Links* between a replica and coordination, and between two replicas, can be cut in either direction.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from xxhash import xxh3_64

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core.effects import Many, Sync, Unknown
from replitree_verify.outcomes.branch import Request
from replitree_verify.outcomes.branches import deliver
from replitree_verify.simulation.options import Options
from replitree_verify.world.disk import Disk
from replitree_verify.world.windows import timed

COORDINATION = "coordination"

Then: TypeAlias = Callable[[], None]


@dataclass(slots=True)
class Session:
    """A session of a process: alive or not, how far its server lags, and what it has seen at least."""

    number: int
    owner: str
    lag: int
    floor: int
    alive: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """What becomes of a request: an outcome, or nothing (`lost`) until the sender gives up."""

    outcome: Any
    lost: bool = False
    fate: str = ""


class Cluster:
    """The world in which processes run.

    Parameters
    ----------
    options, random
        What the seed drew, and where further draws come from.
    tree
        Coordination at the beginning.
    disks
        The disk of each replica.
    on_change
        Called with every new tree, who changed it, and what that broke (invariant I9).
    """

    def __init__(
        self,
        options: Options,
        random: Random,
        tree: Tree,
        disks: dict[str, Disk],
        on_change: Callable[[Tree, str, str | None], None],
    ) -> None:
        self.options = options
        self.random = random
        self.now = 0
        self.disks = disks
        self.faulty = True
        self.digest = xxh3_64()
        self.events = 0
        self._on_change = on_change
        self._heap: list[tuple[int, int, Then]] = []
        self._asked = 0
        self._trees = [tree]
        self._times = [0]
        self._cut: dict[tuple[str, str], int] = {}
        self._sessions = 0

    # --- time -----------------------------------------------------------------------------------------------------------

    def after(self, delay: int, then: Then) -> None:
        """Let something happen later."""
        self._asked += 1
        heapq.heappush(self._heap, (self.now + delay, self._asked, then))

    def run_until(self, end: int, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass up to `end`, or until `done` says so; return whether it did."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            if done is not None and done():
                return True
            self.now, _, then = heapq.heappop(heap)
            self.events += 1
            then()
        self.now = max(self.now, end)
        return done is not None and done()

    def note(self, who: str, what: str) -> None:
        """Add to the rolling hash of everything that happened."""
        self.digest.update(f"{self.now} {who} {what}\n".encode())

    def spread(self, mean: int) -> int:
        """Draw a time around a mean."""
        return int(mean * (0.2 + self.random.expovariate(1.0)))

    def chance(self, share: float) -> bool:
        """Draw whether a fault happens; none does after the cluster was healed."""
        return self.faulty and share > 0 and self.random.random() < share

    # --- links ------------------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Cut one direction of a link."""
        self._cut[source, target] = self._cut.get((source, target), 0) + 1

    def mend(self, source: str, target: str) -> None:
        """Mend one direction of a link."""
        left = self._cut.get((source, target), 0) - 1
        if left > 0:
            self._cut[source, target] = left
        else:
            self._cut.pop((source, target), None)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether messages from one to the other are lost."""
        return (source, target) in self._cut

    def heal(self) -> None:
        """Mend every link, and let no further message be lost or late."""
        self._cut.clear()
        self.faulty = False

    # --- coordination -----------------------------------------------------------------------------------------------------

    @property
    def tree(self) -> Tree:
        """Coordination as it is now."""
        return self._trees[-1]

    def open_session(self, owner: str) -> Session:
        """Begin a session; its view is not older than now."""
        self._sessions += 1
        lag = self.random.randint(0, self.options.lag) if self.faulty and self.options.lag else 0
        return Session(self._sessions, owner, lag, len(self._trees) - 1)

    def end_session(self, session: Session) -> None:
        """End a session: its ephemeral nodes go, and its requests are refused from now on."""
        if session.alive:
            session.alive = False
            self.note(session.owner, "session ends")
            self.become(self.tree.expire(session.number), session.owner)

    def ask(self, session: Session, effect: Any, hear: Callable[[Reply], None]) -> None:
        """Send a read or a commit (`Request`); `hear` is called when the outcome is known, or when the sender gives up."""
        options, owner = self.options, session.owner
        there = self.spread(options.delay)
        slow = self.chance(options.tail)
        if slow:
            there += self.random.randint(0, 2 * options.session_timeout)
        if self.is_cut(owner, COORDINATION) or self.chance(options.loss):
            self._give_up(effect, hear, 0, "no answer")
        elif there >= options.request_timeout:
            self._give_up(effect, hear, 0, "no answer")
            self.after(there, lambda: self._late(session, effect))
        else:
            self.after(there, lambda: self._arrive(session, effect, hear, there))

    def _late(self, session: Session, effect: Any) -> None:
        if session.alive and isinstance(effect, Request):
            before = self.tree
            self._perform(session, effect)
            self.note(session.owner, "late" if self.tree is not before else "late, refused")

    def _arrive(self, session: Session, effect: Any, hear: Callable[[Reply], None], there: int) -> None:
        if not session.alive:
            self._give_up(effect, hear, there, "the session is over")
            return
        before = self.tree
        outcome, floor, fate = self._perform(session, effect)
        back = self.spread(self.options.delay)
        if self.is_cut(COORDINATION, session.owner) or self.chance(self.options.loss):
            applied = self.tree is not before
            self._give_up(effect, hear, there, "applied, answer lost" if applied else "answer lost")
            return
        session.floor = max(session.floor, floor)
        self.after(back, lambda: hear(Reply(outcome, fate=fate)))

    def _give_up(self, effect: Any, hear: Callable[[Reply], None], passed: int, fate: str) -> None:
        """Let the sender hear nothing: unknown for a commit, for a read that it can't be had."""
        outcome = Unknown() if isinstance(effect, Request) else None
        reply = Reply(outcome, lost=not isinstance(effect, Request), fate=fate)
        self.after(max(0, self.options.request_timeout - passed), lambda: hear(reply))

    def _perform(self, session: Session, effect: Any) -> tuple[Any, int, str]:
        """Perform a request now; return its outcome, the number of the tree that the session has seen with it, and its fate."""
        last = len(self._trees) - 1
        if isinstance(effect, Request):
            tree, outcome, breach = deliver(effect, self.tree)
            self.become(tree, session.owner, breach)
            return outcome, len(self._trees) - 1, ""
        if isinstance(effect, Sync):
            return None, last, ""
        lagging = session.lag if self.faulty else 0
        seen = max(session.floor, bisect_right(self._times, self.now - lagging) - 1)
        outcome, fate = timed(self._trees[seen], effect, answer(self._trees[seen], effect)), ""
        now = timed(self.tree, effect, answer(self.tree, effect)) if seen < last else outcome
        if outcome != now:
            fate = "stale"
            if isinstance(outcome, Many) and isinstance(now, Many) and self.chance(0.2):
                # The server's view moves on in the middle of a batch of reads.
                cut = self.random.randint(0, len(outcome.nodes))
                outcome, seen, fate = Many((*outcome.nodes[:cut], *now.nodes[cut:]), now.watched), last, "torn"
        session.floor = seen
        return outcome, seen, fate

    def become(self, tree: Tree, who: str, breach: str | None = None) -> None:
        """Let coordination be another tree from now on."""
        if tree is not self.tree:
            self._trees.append(tree)
            self._times.append(self.now)
            self._on_change(tree, who, breach)
