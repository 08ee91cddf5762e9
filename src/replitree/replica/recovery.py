"""Recovery: what a replica does between its activation and its first pull when the log has gone on without it.

After every activation it asks where the replica stands in the log (`protocol.recover.stand_in_log`).  A lost one takes over the
state of a good replica, tries again as long as that can't be finished now, and says why.  Meanwhile the replica is
*recovering*: active for those who clean the log, and nothing else.

* Nothing is executed: what was under way when it began is waited for, and merges and mutations are stopped.
* Nothing is read, from the first try on: parts leave and come one by one, so what is here is no state of the table.  As long
  as no other replica is good, nothing has been touched, and what was here before can still be read.

Absent on purpose: what is copied and in which order (`protocol.recover`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from replitree.errors import Unavailable
from replitree.protocol import layout
from replitree.protocol.effects import Applied, Check, Commit, Effect, Epoch, Fetched, FetchMany, Procedure, Set
from replitree.protocol.layout import Replica
from replitree.protocol.pull import Fenced
from replitree.protocol.recover import (
    Good,
    Lost,
    NoSource,
    NotYet,
    Recovered,
    choose_source,
    recover,
    stand_in_log,
)
from replitree.protocol.run import translate
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.progress import Progress
from replitree.replica.runner import Performer

RETRY_S_MIN = 0.1
RETRY_S_MAX = 5.0

T = TypeVar("T")


class Host(Protocol):
    """What the recovery needs of the replica."""

    replica: Replica
    performer: Performer
    progress: Progress
    metrics: Metrics
    log: Log

    def check_disk(self) -> None:
        """Raise Unavailable while there is no room on the disk."""

    def say_recovering(self, reason: str) -> None:
        """Show that the replica recovers, and how far it is or what it waits for."""

    def is_interrupted(self) -> bool:
        """Whether the replica stops, or must activate again."""

    def wait_interrupted(self, timeout_s: float) -> bool:
        """Wait up to some seconds until the replica stops or must activate again; True when it must."""


class Recovery:
    """Recovers one table replica; called by its life thread."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._unreadable: str | None = None
        self._source = ""
        self._fetched = 0

    @property
    def unreadable(self) -> str | None:
        """Why nothing can be read here; None when what is here is a state of the table."""
        return self._unreadable

    def finished(self) -> None:
        """Say that what was recovered has been loaded: it may be read."""
        self._unreadable = None

    def stand(self, epoch: Epoch) -> None:
        """Find out where the replica stands in the log, and recover it if it is lost.

        Raises
        ------
        Unavailable
            It can't go on now; after a while, or after the next activation, this is to be called again.
        """
        host = self._host
        standing = host.performer.run(stand_in_log(host.replica, epoch))
        match standing:
            case Good():
                return
            case Lost():
                self._recover(epoch)
            case NoSource():
                raise Unavailable(_no_source(host.replica))
            case NotYet(reason):
                raise Unavailable(reason)
            case Fenced():
                raise Unavailable("the epoch was taken over")

    def quiesce(self) -> None:
        """Wait until nothing is executed any more.

        Raises
        ------
        Unavailable
            The replica stops, or must activate again.
        """
        if not self._host.progress.wait_idle(self._host.is_interrupted):
            raise Unavailable("the recovery was interrupted")

    def _recover(self, epoch: Epoch) -> None:
        host, begun = self._host, time.monotonic()
        if host.performer.run(choose_source(host.replica)) is None:
            raise Unavailable(_no_source(host.replica))
        self._source, self._fetched = "", 0
        host.say_recovering(f"replica {host.replica.name} is lost: the log has gone on without it")
        self._unreadable = f"replica {host.replica.name} of table {host.replica.table.name} is recovering"
        self.quiesce()
        done = self._until_done(epoch)
        seconds = time.monotonic() - begun
        name = host.replica.table.name
        host.metrics.recoveries.labels(name).inc()
        host.metrics.recovery_s.labels(name).set(seconds)
        host.log.info(
            "recovered",
            source=done.source,
            pointer=done.pointer,
            fetched=self._fetched,
            detached=len(done.detached),
            parts=list(done.detached[:20]),
            seconds=round(seconds, 3),
        )

    def _until_done(self, epoch: Epoch) -> Recovered:
        """Try until it is done."""
        host, pause, said = self._host, RETRY_S_MIN, ""
        while True:
            outcome = host.performer.run(_seen(recover(host.replica, epoch), self._note))
            match outcome:
                case Recovered():
                    return outcome
                case Good():  # an operator has declared it the good one meanwhile
                    raise Unavailable(f"replica {host.replica.name} was declared good; it starts again")
                case NoSource():
                    raise Unavailable(_no_source(host.replica))
                case Fenced():
                    raise Unavailable("the epoch was taken over during the recovery")
                case NotYet(reason):
                    host.check_disk()
                    host.say_recovering(f"{self._where()}; it waits: {reason}")
                    if reason != said:
                        host.log.warning("recovery waits", reason=reason, source=self._source)
                        said = reason
            if host.wait_interrupted(pause):
                raise Unavailable("the recovery was interrupted")
            pause = min(RETRY_S_MAX, pause * 2)

    def _note(self, effect: Effect, outcome: object) -> None:
        """Follow a recovery by what it does: which source it has chosen, and how many parts it has fetched."""
        match effect, outcome:
            case Commit(), Applied():
                source = _begun_from(effect, self._host.replica)
                if source:
                    self._source = source
                    self._host.log.info("recovery begins", source=source)
            case FetchMany(), tuple():
                self._fetched += sum(isinstance(each, Fetched) for each in outcome)
            case _:
                return
        self._host.say_recovering(self._where())

    def _where(self) -> str:
        whom = f" from {self._source}" if self._source else ""
        return f"recovering{whom}: {self._fetched} parts are here"


def _begun_from(commit: Commit, replica: Replica) -> str:
    """Return the replica whose pointer a commit takes over; empty when it does something else."""
    paths = tuple(operation.path for operation in commit.operations if isinstance(operation, Set))
    for operation in commit.operations if layout.log_pointer(replica) in paths else ():
        if isinstance(operation, Check) and operation.path.endswith("/is_lost"):
            name = operation.path.split("/")[-2]
            if name != replica.name and operation.path == layout.is_lost(Replica(replica.table, name)):
                return name
    return ""


def _seen(procedure: Procedure[T], see: Callable[[Effect, Any], None]) -> Procedure[T]:
    """Run a procedure, and show each effect with its outcome to somebody."""

    def each(effect: Effect) -> Procedure[object]:
        outcome = yield effect
        see(effect, outcome)
        return outcome

    return translate(procedure, each)


def _no_source(replica: Replica) -> str:
    table = replica.table.name
    return (
        f"replica {replica.name} of table {table} is lost, and no other replica is good: start one that is, or, if there is"
        f" none, take one's state as the table's with `replitree recover {table} --from REPLICA`"
    )
