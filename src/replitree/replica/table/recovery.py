"""Recovery: what a replica does between its activation and its first pull when the log has gone on without it.

After every activation it asks where the replica stands in the log (`protocol.rescue.recover.stand_in_log`).  A lost one
takes over the state of a good replica, tries again as long as that can't be finished now, and says why.  Meanwhile the
replica is
*recovering*: active for those who clean the log, and nothing else.

* Nothing is executed: what was under way when it began is waited for, and merges and mutations are stopped.
* Nothing is read, from the first try on: parts leave and come one by one, so what is here is no state of the table.  As long
  as no other replica is good, nothing has been touched, and what was here before can still be read.

Absent on purpose: what is copied and in which order (`protocol.rescue.recover`).
"""

from __future__ import annotations

import time

from replitree.errors import Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.rescue.recover import Recovered, choose_source
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext

RETRY_S_MIN = 0.1
RETRY_S_MAX = 5.0


class Recovery:
    """Recovers one table replica; called by its life thread."""

    def __init__(self, context: TableContext, availability: Availability) -> None:
        self._context = context
        self._availability = availability
        self._unreadable: str | None = None
        self._begun: float | None = None
        self._pause = RETRY_S_MIN
        self._source = self._said = ""
        self._fetched = 0

    @property
    def unreadable(self) -> str | None:
        """Why nothing can be read here; None when what is here is a state of the table."""
        return self._unreadable

    def finished(self) -> None:
        """Say that what was recovered has been loaded: it may be read."""
        self._unreadable = None

    def quiesce(self) -> None:
        """Wait until nothing is executed any more.

        Raises
        ------
        Unavailable
            The replica stops, or must activate again.
        """
        if not self._context.progress.wait_idle(self._availability.is_interrupted):
            raise Unavailable("the recovery was interrupted")

    def begin(self) -> None:
        """Prepare a try: nothing is read any more, unless there is no replica to recover from.

        Raises
        ------
        Unavailable
            No other replica is good.
        """
        replica = self._context.replica
        if self._availability.is_recovering():
            # This is another try of the same recovery.
            return
        if self._context.performer.look_up(choose_source(replica)) is None:
            raise Unavailable(no_source(replica))
        self._begun, self._source, self._fetched = time.monotonic(), "", 0
        self._pause, self._said = RETRY_S_MIN, ""
        self._availability.say_recovering(f"replica {replica.name} is lost: the log has gone on without it")
        self._unreadable = f"replica {replica.name} of table {replica.table.name} is recovering"

    def wait(self, reason: str) -> None:
        """Pause after a try that could not be finished.

        Raises
        ------
        Unavailable
            The replica stops, must activate again, or has no room on its disk.
        """
        self._availability.check_disk()
        self._availability.say_recovering(f"{self._where()}; it waits: {reason}")
        if reason != self._said:
            self._context.log.warning("recovery waits", reason=reason, source=self._source)
            self._said = reason
        if self._availability.wait_interrupted(self._pause):
            raise Unavailable("the recovery was interrupted")
        self._pause = min(RETRY_S_MAX, self._pause * 2)

    def done(self, recovered: Recovered) -> None:
        """Report that the state of another replica was taken over."""
        context, name = self._context, self._context.replica.table.name
        assert self._begun is not None, "a recovery has begun"
        seconds, self._begun = time.monotonic() - self._begun, None
        context.metrics.recoveries.labels(name).inc()
        context.metrics.recovery_s.labels(name).set(seconds)
        context.log.info(
            "recovered",
            source=recovered.source,
            pointer=recovered.pointer,
            fetched=self._fetched,
            detached=len(recovered.detached),
            parts=list(recovered.detached[:20]),
            seconds=round(seconds, 3),
        )

    def see(self, effect: fx.Effect, outcome: object) -> None:
        """Follow a recovery by what it does: which source it has chosen, and how many parts it has fetched."""
        match effect, outcome:
            case _ if self._begun is None:
                return
            case fx.Commit(), fx.Applied():
                source = _begun_from(effect, self._context.replica)
                if source:
                    self._source = source
                    self._context.log.info("recovery begins", source=source)
            case fx.FetchMany(), tuple():
                self._fetched += sum(isinstance(each, fx.Fetched) for each in outcome)
            case _:
                return
        self._availability.say_recovering(self._where())

    def _where(self) -> str:
        whom = f" from {self._source}" if self._source else ""
        return f"recovering{whom}: {self._fetched} parts are here"


def _begun_from(commit: fx.Commit, replica: Replica) -> str:
    """Return the replica whose pointer a commit takes over; empty when it does something else."""
    paths = tuple(operation.path for operation in commit.operations if isinstance(operation, fx.Set))
    for operation in commit.operations if layout.log_pointer(replica) in paths else ():
        if isinstance(operation, fx.Check) and operation.path.endswith("/is_lost"):
            name = operation.path.split("/")[-2]
            if name != replica.name and operation.path == layout.is_lost(Replica(replica.table, name)):
                return name
    return ""


def no_source(replica: Replica) -> str:
    """Return why a lost replica can't recover while no other one is good, and what to do."""
    table = replica.table.name
    return (
        f"replica {replica.name} of table {table} is lost, and no other replica is good: start one that is, or, if there is"
        f" none, take one's state as the table's with `replitree recover {table} --from REPLICA`"
    )
