"""What one replica of a shard knows of cuts: the end of its log, the clock and the id of the ensemble.

Each is asked for once for all readers that come at once.

Guarantees:

* What a reader hears of the end of the log, or of the clock, was asked of coordination after the reader came
  (`replitree.replica.perform.end_of_log`), or tells of everything up to the reader's cut.
* The transactions of entries are kept in memory, those of the last few: an entry never changes while it is there.
* An answer is of one session, and so of one ensemble: the session is the same before and after it.  What an earlier session has
  told is forgotten: below one address another ensemble may answer the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast
from uuid import uuid4

from replitree.coordination.stamped import StampedCoordination
from replitree.errors import CoordinationUnavailable, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.stamps import BEFORE_ALL, GetStamped, Stamped, StampedNode
from replitree.protocol.sharded.cut import (
    WINDOW,
    Cut,
    CutEnd,
    ShardsSeen,
    advance_clock,
    name_ensemble,
    read_end,
    see_shards,
)
from replitree.replica.perform.end_of_log import ATTEMPTS_MAX, SharedQuestion
from replitree.replica.perform.progress import Progress

T = TypeVar("T")

STAMPS_MAX = 4 * WINDOW
"""Entries at the end of the log whose transactions are kept in memory."""

GROUPS_MAX = 16
"""Groups of shards for which readers share a question: most readers want all shards, or those of one condition."""


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """Where the log ended when a session asked.

    Attributes
    ----------
    session, ensemble
        The session, and the id of its ensemble.
    end
        What it was told; None: there is no such table.
    """

    session: int
    ensemble: str
    end: CutEnd | None


@dataclass(frozen=True, slots=True)
class SessionCut:
    """A cut of several shards, and what a session was told of them; `session` and `ensemble` as of `SessionEnd`."""

    session: int
    ensemble: str
    told: ShardsSeen

    @property
    def at(self) -> Cut:
        """The cut."""
        return Cut(self.ensemble, self.told.cut)


class Cuts:
    """Asks coordination about the cuts of one table.  Used from one event loop.

    Parameters
    ----------
    coordination
        Returns what asks coordination; every provider tells transaction numbers.
    progress
        Knows the replica's place, below the parent of the log that it has reached.
    asked
        Is called for each question to coordination.
    """

    def __init__(
        self, coordination: Callable[[], object], progress: Progress, asked: Callable[[], object] = lambda: None
    ) -> None:
        self._coordination = cast("Callable[[], StampedCoordination]", coordination)
        self._progress = progress
        self._asked = asked
        name = progress.replica.name
        self._ends = SharedQuestion(self._look, name, "the end of the log")
        self._clocked_ends = SharedQuestion(
            partial(self._look, by_clock=True), name, "the clock and the end of the log"
        )
        self._clock = SharedQuestion(self._advance, name, "a write to the clock")
        self._groups: dict[tuple[bool, tuple[Cuts, ...]], SharedQuestion[SessionCut | None]] = {}
        self._named: tuple[int, str] | None = None
        self._newest: SessionEnd | None = None
        self._stamps: tuple[int, dict[str, StampedNode]] = (-1, {})

    @property
    def session(self) -> int:
        """The session with coordination; an answer of another one counts for nothing."""
        return self._coordination().session_id

    @property
    def place(self) -> TablePlace:
        """The table, below the parent of the log that the replica has reached."""
        return self._progress.replica.table

    def note(self, end: SessionEnd) -> None:
        """Remember where the log ended, for readers of cuts that were seen then."""
        # An answer that is older by a moment does no harm: a reader who needs more asks again.
        self._newest = end

    async def end(self, wait_s: float) -> SessionEnd:
        """Return where the log ends now; `wait_s` and errors as of `SharedQuestion.ask`."""
        return await self._ends.ask(wait_s)

    async def clock(self, wait_s: float) -> Cut:
        """Return a cut that has everything which was acknowledged before.

        Parameters
        ----------
        wait_s
            How long to wait, in seconds.

        Raises
        ------
        CoordinationUnavailable
            Coordination does not answer, or the table is no shard.
        """
        return await self._clock.ask(wait_s)

    async def known(self, at: Cut, wait_s: float, *, by_clock: bool) -> SessionEnd:
        """Return the end of the log for a reader of a cut: `CutEnd.seen` is not below the cut, if that can be told at once.

        Parameters
        ----------
        at
            The cut.
        wait_s
            How long to wait, in seconds.
        by_clock
            Whether the clock tells of the cut.

        Raises
        ------
        SnapshotExpired
            The cut is of another ensemble.
        CoordinationUnavailable
            Coordination does not answer.
        """
        found = self._newest
        if found is None or found.end is None or found.session != self.session or found.end.seen < at.zxid:
            found = await (self._clocked_ends if by_clock else self._ends).ask(wait_s)
        if found.ensemble != at.ensemble:
            raise SnapshotExpired(f"the cut {at} is of an ensemble that was replaced since; take a new snapshot")
        return found

    async def of_shards(self, shards: tuple[Cuts, ...], wait_s: float, *, by_clock: bool) -> SessionCut | None:
        """Return a cut of several shards, and where their logs end, by one question for all of them.

        None: in doubt, or the log of one goes on below another parent; the shards are to be asked one by one.

        Parameters
        ----------
        shards
            Those of other replicas of this process, which has one session.
        wait_s
            How long to wait, in seconds.
        by_clock
            Whether the cut must have everything that was acknowledged before.

        Raises
        ------
        CoordinationUnavailable
            Coordination does not answer.
        """
        groups, key = self._groups, (by_clock, shards)
        if key not in groups:
            # The oldest one goes; who waits for it holds it.
            for oldest in list(groups)[: len(groups) - GROUPS_MAX + 1]:
                del groups[oldest]
            look = partial(self.look_at, shards, by_clock=by_clock)
            groups[key] = SharedQuestion(look, self._progress.replica.name, "the ends of the logs of several shards")
        return await groups[key].ask(wait_s)

    def look_at(self, shards: tuple[Cuts, ...], *, by_clock: bool) -> SessionCut | None:
        """Ask what `of_shards` asks; it waits for the answers."""
        self._asked()
        session, ensemble = self._session()
        tables = [each.place for each in shards]
        found = self.run(see_shards(tables, layout.sharded_of(tables[0]), by_clock=by_clock))
        if found is None or self.session != session:
            return None
        for each, end in zip(shards, found.ends, strict=True):
            each.note(SessionEnd(session, ensemble, end))
        return SessionCut(session, ensemble, found)

    def _look(self, *, by_clock: bool = False) -> SessionEnd:
        table = self._progress.replica.table
        place = layout.sharded_of(table) if by_clock else None
        for _ in range(ATTEMPTS_MAX):
            self._asked()
            session, ensemble = self._session()
            end = self.run(read_end(table, place))
            if self.session == session:
                found = SessionEnd(session, ensemble, end)
                self.note(found)
                return found
        raise CoordinationUnavailable(
            f"the session of replica {self._progress.replica.name} with coordination has changed {ATTEMPTS_MAX} times; try"
            " again"
        )

    def _advance(self) -> Cut:
        place = layout.sharded_of(self._progress.replica.table)
        for _ in range(ATTEMPTS_MAX):
            self._asked()
            session, ensemble = self._session()
            zxid = self.run(advance_clock(place))
            if zxid is not None and self.session == session:
                return Cut(ensemble, zxid)
        raise CoordinationUnavailable(
            f"the clock at {place} could not be written: {ATTEMPTS_MAX} times the answer was lost, or the table is no shard of"
            " a sharded table; try again, or ask another replica"
        )

    def _session(self) -> tuple[int, str]:
        """Return the session, and the id of its ensemble, which is read once in a session."""
        named, session = self._named, self.session
        if named is not None and named[0] == session:
            return named
        root = layout.root_of(self._progress.replica.table)
        ensemble = self.run(name_ensemble(root, uuid4().hex))
        if ensemble is None or self.session != session:
            raise CoordinationUnavailable(f"the id of the ensemble at {root} could not be read; try again")
        self._named = session, ensemble
        return self._named

    def run(self, procedure: fx.Procedure[T]) -> T:
        """Run a procedure that asks nothing but coordination; it waits for the answers.

        Raises
        ------
        CoordinationUnavailable
            A read could not be had.
        """
        outcome: Any = None
        try:
            while True:
                outcome = self.perform(procedure.send(outcome))
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            procedure.close()

    def perform(self, effect: Any) -> Any:
        """Perform an effect of coordination; errors as `run`."""
        session = self._coordination()
        if isinstance(effect, fx.CurrentSession):
            return session.session_id
        if isinstance(effect, GetStamped) and all("/log-" in path for path in effect.paths):
            return self._entries(session, effect)
        return session.perform(effect)

    def _entries(self, session: StampedCoordination, effect: GetStamped) -> Stamped:
        """Read the stamps of entries of the log, but for those that this session has read: entries never change."""
        number = session.session_id
        known = self._stamps[1] if self._stamps[0] == number else {}
        missing = tuple(path for path in effect.paths if path not in known)
        if missing:
            found = session.perform(GetStamped(missing)).nodes
            # Without their values, which may be long.  What is not there is asked for again.
            known = known | {
                path: replace(node, value=b"") for path, node in zip(missing, found, strict=True) if node is not None
            }
            # Threads that read at once may forget what the other has read.
            self._stamps = number, dict(list(known.items())[-STAMPS_MAX:])
        return Stamped(tuple(map(known.get, effect.paths)), BEFORE_ALL)


__all__ = ["Cuts", "SessionCut", "SessionEnd"]
