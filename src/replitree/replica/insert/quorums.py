"""Quorums on the running replica: who waits for one, who gives up, and what is asked before an insert begins.

One thread answers those who wait.  It looks whenever this replica has come further in the log, and when somebody's patience is
over: then it lets the insert fail, and answers by the entry that says so, as for every other.  The puller tells of such an
entry as soon as it has read it (`replica.perform.look_ahead`).  Any number may wait.  When
coordination does not answer, or the replica is not active, clients hear "outcome unknown": the same insert with the same token
settles it.

The leader gives up inserts whose writers are gone (`ABANDONED_S`).

The counterpart in the checker: `replitree_verify.process.threads`, `replitree_verify.process.quorums`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from replitree.errors import BadInput, ReplitreeError, TooFewReplicas
from replitree.protocol.core.effects import ClientAnswer, Epoch, LogIndex, OutcomeUnknown, RequestId
from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.quorum import (
    Awaited,
    QuorumEnded,
    Replicas,
    answer_awaited,
    count_replicas,
    give_up,
    give_up_overdue,
)
from replitree.replica.kit.live_replicas import LiveReplicas
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer
from replitree.storage.schema.definition import TableDefinition

PATIENCE_S = 10.0
"""How long an insert waits for its quorum, unless its client says otherwise."""

PATIENCE_S_MAX = 300.0

ABANDONED_S = 2 * PATIENCE_S_MAX
"""An insert that nobody has joined for so long, by the clock of coordination, has no writer any more."""

GRACE_S = 5.0
"""How long the end of an insert may take to be pulled after it was given up."""

LOOK_S = 5.0
"""How often the leader looks for inserts whose writers are gone."""

ENDED_MAX = 1_000
"""Ends of inserts that are remembered: of who waits for an older one, the log is asked."""

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


def _size(wish: Wish, replicas: Replicas | None) -> int:
    """Return how many of these replicas are wished for; for a number it does not matter which there are."""
    if isinstance(wish.size, int):
        return wish.size
    assert replicas is not None
    return replicas.count // 2 + 1 if wish.size == MAJORITY else replicas.count


def _can_reach(wish: Wish, replicas: Replicas) -> bool:
    return len(replicas.live) >= _size(wish, replicas)


class Host(Protocol):
    """What quorums need of the replica."""

    replica: Replica
    performer: Performer
    progress: Progress
    metrics: Metrics
    log: Log

    @property
    def definition(self) -> TableDefinition:
        """The table's definition."""

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""

    def pull_now(self) -> None:
        """Look at the log at once."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """An insert that is waited for: until when (monotonic seconds), whether it was given up since, when it is tried again."""

    awaited: Awaited
    until: float
    given_up: bool = False
    again_at: float = 0.0


class Quorums:
    """The inserts of one table replica that wait for a quorum.

    Parameters
    ----------
    answer
        Gives a request its answer.
    """

    def __init__(
        self, host: Host, stopping: Callable[[], bool], answer: Callable[[RequestId, ClientAnswer], None]
    ) -> None:
        self._host = host
        self._stopping = stopping
        self._answer = answer
        self.replicas = LiveReplicas(lambda: host.performer.run(count_replicas(host.replica.table)))
        self._waiting: list[_Waiting] = []
        self._ended: OrderedDict[LogIndex, QuorumEnded] = OrderedDict()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._looked_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"quorum-{host.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._host.progress.listen(self._look)
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
            known = self.replicas.ask()  # nobody is refused by what may be a moment old
            if not _can_reach(wish, known):
                raise TooFewReplicas(
                    f"table {self._host.definition.name}: a quorum of {_size(wish, known)} was asked for, and of"
                    f" {known.count} replicas {len(known.live)} can take part now ({', '.join(known.live) or 'none'});"
                    " nothing was inserted: start the others, or ask for fewer"
                )
        size = _size(wish, known)
        return size if size > 1 else 0

    def checked(self, wish: Wish) -> Wish | None:
        """Return what a wish means now, if that can be told without a question to coordination; it never waits."""
        known = self.replicas.known
        if known is None or not _can_reach(wish, known):
            return None
        return Wish(_size(wish, known), wish.patience_s, is_checked=True)

    def wait(self, awaited: Sequence[Awaited], patience_s: float) -> None:
        """Answer requests when it is known what became of their inserts, and at the latest after some seconds."""
        if not awaited:
            return
        until = time.monotonic() + patience_s
        with self._lock:
            self._waiting += [_Waiting(each, until) for each in awaited]
        if any(each.is_duplicate for each in awaited):  # of what this replica has appended the puller knows
            self._host.pull_now()
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
        while not self._stopping():
            until = min((max(each.until, each.again_at) for each in self._waiting), default=None)
            self._wake.wait(LOOK_S if until is None else min(LOOK_S, max(0.0, until - time.monotonic())))
            self._wake.clear()
            for each in tuple(self._waiting):
                try:
                    over = self._settle(each)
                except ReplitreeError as error:
                    self._host.log.warning("quorum", index=each.awaited.index, problem=str(error))
                    over = self._is_too_late(each)
                except Exception:  # noqa: BLE001 - a defect of ours: say so, and let the others be answered
                    self._host.log.defect("quorum failed", index=each.awaited.index)
                    over = self._answer_unknown(each)
                if over:
                    with self._lock:
                        self._waiting.remove(each)
            self._host.metrics.quorums.labels(self._host.definition.name).set(len(self._waiting))
        for each in self._waiting:
            self._answer_unknown(each)

    def _settle(self, waiting: _Waiting) -> bool:
        """Answer if it is known what to say, give up if it is time to; True when nobody waits any more."""
        host, awaited = self._host, waiting.awaited
        ended = self._ended.get(awaited.index)
        if ended is not None or self._is_decided(awaited.index):
            host.performer.run(answer_awaited(host.replica.table, awaited, ended))
            return True
        if time.monotonic() < waiting.until:
            return False
        epoch = host.active_epoch()
        if waiting.given_up or awaited.is_duplicate or epoch is None:
            return self._answer_unknown(waiting)
        waiting.until = time.monotonic() + GRACE_S
        if not host.performer.run(give_up(host.replica, epoch, awaited.index, awaited.entry)):
            return self._answer_unknown(waiting)
        waiting.given_up = True
        host.pull_now()
        return False

    def _is_decided(self, index: LogIndex) -> bool:
        place = self._host.progress.place
        return place is not None and index < place.pointer.index and index not in place.open

    def _is_too_late(self, waiting: _Waiting) -> bool:
        """Whether so much time has passed that no answer will be found; then the clients have heard so."""
        if time.monotonic() > waiting.until + GRACE_S:
            return self._answer_unknown(waiting)
        waiting.again_at = time.monotonic() + RETRY_S
        return False

    def _answer_unknown(self, waiting: _Waiting) -> bool:
        for request in waiting.awaited.requests:
            self._answer(request, OutcomeUnknown())
        return True

    def give_up_abandoned(self, epoch: Epoch) -> int:
        """Let inserts fail whose writers are gone; return how many.  For the leader, which may ask as often as it likes."""
        host, place = self._host, self._host.progress.place
        if place is None or not place.open or time.monotonic() - self._looked_at < LOOK_S:
            return 0
        self._looked_at = time.monotonic()
        given_up = host.performer.run(give_up_overdue(host.replica, epoch, place.open, int(ABANDONED_S * 1000)))
        if given_up:
            host.log.warning("inserts were given up whose writers are gone", inserts=given_up)
        return given_up
