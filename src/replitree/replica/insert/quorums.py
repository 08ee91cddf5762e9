"""Quorums on the running replica: which inserts wait for one, and what an insert is asked before it begins.

Each insert that waits is at a stage of `replitree.protocol.program.quorum_waiter`, which decides what its clients hear and when
it is given up.  One thread runs these stages: when this replica has come further in the log, and when the patience of an insert
is over.  The puller reports what an entry says of an insert as soon as it has read it (`replica.perform.look_ahead`).  When
coordination does not answer, or the replica is not active, clients hear "outcome unknown": the same insert with the same token
settles it.

The leader gives up inserts whose writers are gone (`ABANDONED_S`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replitree.errors import BadInput, ReplitreeError, TooFewReplicas
from replitree.protocol.core.effects import Answer, Epoch, LogIndex, MaybeInserted
from replitree.protocol.insert.quorum import Awaited, QuorumEnded, Replicas, count_replicas
from replitree.protocol.program import quorum_waiter
from replitree.protocol.program.stages import OpenTurn, QuorumTurn, Then
from replitree.replica.kit.live_replicas import LiveReplicas
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver

PATIENCE_S = 10.0
"""How long an insert waits for its quorum, unless its client says otherwise."""

PATIENCE_S_MAX = 300.0

ABANDONED_S = 2 * PATIENCE_S_MAX
"""An insert that no replica has joined for so long, by the clock of coordination, has no writer any more, in seconds."""

GRACE_S = 5.0
"""How long the end of an insert may take to be pulled after it was given up."""

LOOK_S = 5.0
"""How often the leader looks for inserts whose writers are gone."""

ENDED_MAX = 1_000
"""Ends of inserts that are remembered: the end of an older one is read from the log."""

RETRY_S = 0.2
MAJORITY, ALL = "majority", "all"
QUORUM_DIGITS_MAX = 6


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asks for: a number of replicas, `MAJORITY` or `ALL`, and for how many seconds it waits.

    `is_checked`: it is a number, and so many were there a moment ago.
    """

    size: int | str
    patience_s: float = PATIENCE_S
    is_checked: bool = False


def parse_wish(size: str | None, patience_s: str | None) -> Wish | None:
    """Return what a request says of its quorum; None for one that counts at once, also when it asks for one replica.

    Raises
    ------
    BadInput
        Neither a number nor a word that there is, or more patience than `PATIENCE_S_MAX`.

    >>> parse_wish("majority", None)
    Wish(size='majority', patience_s=10.0, is_checked=False)
    >>> parse_wish("1", None)
    """
    if size is None or size == "":
        return None
    number = int(size) if size.isascii() and size.isdecimal() and len(size) <= QUORUM_DIGITS_MAX else 0
    if size not in (MAJORITY, ALL) and number < 1:
        raise BadInput(f"quorum={size[:100]!r}: say a number of replicas, {MAJORITY} or {ALL}")
    try:
        seconds = PATIENCE_S if patience_s is None else float(patience_s)
    except ValueError:
        raise BadInput(f"quorum_timeout_s={patience_s!r} is not a number of seconds") from None
    if not 0 < seconds <= PATIENCE_S_MAX:
        raise BadInput(f"quorum_timeout_s={patience_s}: use more than 0 and at most {PATIENCE_S_MAX:g} seconds")
    if number == 1:
        return None
    return Wish(number or size, seconds)


def wish_of(query: Mapping[str, str]) -> Wish | None:
    """Return what the query of a request says of a quorum.  Raises as `parse_wish`."""
    return parse_wish(query.get("quorum"), query.get("quorum_timeout_s"))


def quorum_size(wish: Wish, replicas: Replicas | None) -> int:
    """Return how many of these replicas are wished for; for a number it does not matter which there are."""
    if isinstance(wish.size, int):
        return wish.size
    assert replicas is not None
    return replicas.count // 2 + 1 if wish.size == MAJORITY else replicas.count


def _can_reach(wish: Wish, replicas: Replicas) -> bool:
    return len(replicas.live) >= quorum_size(wish, replicas)


@dataclass(slots=True, eq=False)
class _PendingQuorum:
    """An insert that is waited for: its next stage, until when (monotonic seconds), and when that is tried again."""

    awaited: Awaited
    then: Then
    until: float
    again_at: float = 0.0


class Quorums:
    """The inserts of one table replica that wait for a quorum."""

    def __init__(self, context: TableContext, availability: Availability) -> None:
        self._context = context
        self._availability = availability
        self.replicas = LiveReplicas(lambda: context.performer.look_up(count_replicas(context.replica.table)))
        self._waiting: list[_PendingQuorum] = []
        self._ended: OrderedDict[LogIndex, QuorumEnded] = OrderedDict()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._looked_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"quorum-{context.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._context.progress.listen(self._look)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end; who still waits hears "outcome unknown"."""
        self._wake.set()
        self._thread.join(timeout_s)

    def _look(self) -> None:
        if self._waiting:
            self._wake.set()

    def needed(self, wish: Wish) -> int:
        """Return how many replicas a quorum means now.

        Raises
        ------
        TooFewReplicas
            So many are not active, or the table does not have them.
        """
        known = self.replicas.known
        if not wish.is_checked and (known is None or not _can_reach(wish, known)):
            # The known count may be a moment old, so it alone must not refuse an insert.
            known = self.replicas.ask()
            if not _can_reach(wish, known):
                raise TooFewReplicas(
                    f"table {self._context.replica.table.name}: a quorum of {quorum_size(wish, known)} was asked for, and of"
                    f" {known.count} replicas {len(known.live)} can take part now ({', '.join(known.live) or 'none'});"
                    " nothing was inserted: start the others, or ask for fewer"
                )
        size = quorum_size(wish, known)
        return size if size > 1 else 0

    def checked(self, wish: Wish) -> Wish | None:
        """Return what a wish means now, if that can be told without a question to coordination; it never waits."""
        known = self.replicas.known
        if known is None or not _can_reach(wish, known):
            return None
        return Wish(quorum_size(wish, known), wish.patience_s, is_checked=True)

    def wait(self, awaited: Sequence[Awaited], patience_s: float) -> None:
        """Answer requests when it is known what became of their inserts, and at the latest after some seconds."""
        if not awaited:
            return
        until = time.monotonic() + patience_s
        with self._lock:
            self._waiting += [
                _PendingQuorum(each, Then(quorum_waiter.await_quorum, (self._context.replica, (each,))), until)
                for each in awaited
            ]
        # The puller expects what this replica has appended, but not what another replica appended.
        if any(each.is_duplicate for each in awaited):
            self._context.pull_signal.hurry()
        self._wake.set()

    def heard(self, ended: QuorumEnded) -> None:
        """Take note of what the log says of an insert; who waits for it is answered."""
        with self._lock:
            self._ended[LogIndex(ended.verdict.index)] = ended
            while len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)
        self._look()

    @property
    def count(self) -> int:
        """How many inserts are waited for here."""
        return len(self._waiting)

    def _run(self) -> None:
        while not self._availability.is_stopping():
            until = min((max(each.until, each.again_at) for each in self._waiting), default=None)
            self._wake.wait(LOOK_S if until is None else min(LOOK_S, max(0.0, until - time.monotonic())))
            self._wake.clear()
            for each in tuple(self._waiting):
                try:
                    over = self._settle(each)
                except ReplitreeError as error:
                    self._context.log.warning("quorum", index=each.awaited.index, problem=str(error))
                    late_s = time.monotonic() - each.until
                    if late_s > GRACE_S or (late_s > 0 and self._availability.active_epoch() is None):
                        # No answer will be found in time, and the clients are told so.
                        over = self._answer_unknown(each)
                    else:
                        over, each.again_at = False, time.monotonic() + RETRY_S
                except Exception:  # noqa: BLE001 - a defect of ours: say so, and let the others be answered
                    self._context.log.defect("quorum failed", index=each.awaited.index)
                    over = self._answer_unknown(each)
                if over:
                    with self._lock:
                        self._waiting.remove(each)
            self._context.metrics.quorums.labels(self._context.replica.table.name).set(len(self._waiting))
        for each in self._waiting:
            self._answer_unknown(each)

    def _settle(self, waiting: _PendingQuorum) -> bool:
        """Run the stage of one that waits, if what it waits for is there; True when its requests have their answers."""
        context, index = self._context, waiting.awaited.index
        place = self._context.progress.place
        is_decided = place is not None and index < place.pointer.index and index not in place.open
        ended = self._ended.get(index)
        if ended is None and not is_decided and time.monotonic() < waiting.until:
            return False
        turn = QuorumTurn(is_decided, self._availability.active_epoch(), ended)
        following = Driver(context.performer, lambda _: turn).run(waiting.then)
        if not isinstance(following, Then):
            return True
        waiting.then, waiting.until = following, time.monotonic() + GRACE_S
        context.pull_signal.hurry()
        return False

    def _answer_unknown(self, waiting: _PendingQuorum) -> bool:
        for request in waiting.awaited.requests:
            self._context.performer.perform(Answer(request, MaybeInserted()))
        return True

    def give_up_abandoned(self, epoch: Epoch) -> int:
        """Give up inserts whose writers are gone; return how many.  For the leader, which may ask as often as it likes."""
        context, place = self._context, self._context.progress.place
        if place is None or not place.open or time.monotonic() - self._looked_at < LOOK_S:
            return 0
        self._looked_at = time.monotonic()
        turn = OpenTurn(epoch, place.open)
        then = Then(quorum_waiter.give_up_abandoned, (context.replica, int(ABANDONED_S * 1000)))
        following = Driver(context.performer, lambda _: turn).run(then)
        assert isinstance(following, Then), "the leader goes on"
        assert isinstance(following.outcome, int)
        given_up = following.outcome
        if given_up:
            context.log.warning("inserts were given up whose writers are gone", inserts=given_up)
        return given_up
