"""Performing procedures: effects go to their performers, outcomes go back into the generator.

One `Performer` belongs to one table replica.  It may be used by several threads at once; a procedure runs in one thread.

The performer watches the commits of each procedure for those that a `Check` has refused.  It reports them when the procedure
has ended: the procedure may have taken a newer epoch by itself, and then the refusal is no evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from replitree.coordination.port import Coordination
from replitree.coordination.stamped import StampedCoordination
from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import GetStamped
from replitree.wire import tracing
from replitree.wire.identity import probe_owner

T = TypeVar("T")

_READS = (
    fx.Get, fx.GetMany, fx.Exists, fx.Children, fx.ChildrenMany, fx.NextNumber, fx.Sync, fx.CurrentEpoch, fx.CurrentSession,
    GetStamped,
)  # fmt: skip


class Wrap(Protocol):
    """Wraps a procedure in another one, which returns the same value."""

    def __call__(self, procedure: fx.Procedure[T], /) -> fx.Procedure[T]:
        """Return the procedure to run."""


class EpochHolder:
    """The highest epoch that this process has adopted; forgotten when its session is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch: fx.Epoch | None = None

    @property
    def current(self) -> fx.Epoch | None:
        """The epoch, or None before the first activation."""
        return self._epoch

    def adopt(self, epoch: fx.Epoch) -> None:
        """Take `epoch` unless a higher one is known."""
        with self._lock:
            if self._epoch is None or epoch > self._epoch:
                self._epoch = epoch

    def forget(self) -> None:
        """Know no epoch any more: the replica was dropped, and a replica that is added under its name begins anew."""
        with self._lock:
            self._epoch = None


class Performer:
    """Performs the effects of one table replica.

    Parameters
    ----------
    coordination
        Performs what touches znodes.
    store
        Performs every other effect: what touches parts, and what `wrap` adds, such as that of shares.
    answer
        Called with every answer to a client.
    wrap
        Makes of a procedure what is run instead (`replitree.protocol.shares.sharing`).
    commit
        Performs a commit; None: coordination does, and nothing else is to be done.
    refused
        Called with every `Check` that refused a commit of a procedure, when the procedure has ended, however it ended.
    """

    def __init__(
        self,
        coordination: Callable[[], Coordination],
        store: Callable[[Any], object],
        answer: Callable[[fx.RequestId, fx.ClientAnswer], None],
        wrap: Wrap = lambda procedure: procedure,
        commit: Callable[[fx.Commit], fx.Committed] | None = None,
        refused: Callable[[fx.Check], None] = lambda _: None,
    ) -> None:
        self._coordination = coordination
        self._store = store
        self._answer = answer
        self._wrap = wrap
        self._commit = commit or (lambda commit: coordination().perform(commit))
        self._refused = refused
        self.epoch = EpochHolder()

    def run(self, procedure: fx.Procedure[T], perform: Callable[[fx.Effect], Any] | None = None) -> T:
        """Run a procedure to its end and return its value.

        Parameters
        ----------
        perform
            Performs effects instead of `perform` of this object, which it calls.

        Raises
        ------
        CoordinationUnavailable
            A read could not be had; the procedure was closed, as a crash would.
        """
        return self._run(self._wrap(procedure), perform or self.perform)

    def run_plain(self, procedure: fx.Procedure[T]) -> T:
        """Run a procedure as it is.  Raises as `run`."""
        return self._run(procedure, self.perform)

    def look_up(self, procedure: fx.Procedure[T]) -> T:
        """Run a procedure that changes nothing, and return its value.  Raises as `run`."""

        def look(effect: fx.Effect) -> Any:
            checks = isinstance(effect, fx.Commit) and all(isinstance(each, fx.Check) for each in effect.operations)
            assert checks or isinstance(effect, _READS), f"{effect} is not only a look"
            return self.perform(effect)

        # It needs no stage, because no other thread or replica can tell that it ran: a commit of checks changes nothing.
        return self._run(procedure, look)

    def _run(self, procedure: fx.Procedure[T], perform: Callable[[fx.Effect], Any]) -> T:
        # The loop of `procedures.run`, with a look at each outcome: the threads perform some 50 effects for an insert,
        # and each would go through one function more.
        refused: list[fx.Check] = []
        outcome: Any = None
        try:
            while True:
                outcome = perform(procedure.send(outcome))
                match outcome:
                    case fx.Refused(operation=fx.Check() as check):
                        refused.append(check)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            # An error of `perform` ends the procedure as a crash would.
            procedure.close()
            for check in refused:
                self._refused(check)

    def perform(self, effect: fx.Effect) -> Any:
        """Perform one effect and return its outcome; within a span, what takes time is a span, too."""
        if not tracing.is_inside() or (step := _traced(effect)) is None:
            return self._perform(effect)
        name, parts = step
        with tracing.begin(name) as span:
            span.note(parts=parts)
            outcome = self._perform(effect)
            span.note(outcome=None if isinstance(outcome, tuple) else type(outcome).__name__.lower())
            return outcome

    def _perform(self, effect: fx.Effect) -> Any:
        match effect:
            case (
                fx.Get() | fx.GetMany() | fx.Exists() | fx.Children() | fx.ChildrenMany() | fx.NextNumber() | fx.Sync()
            ):
                return self._coordination().perform(effect)
            case GetStamped():
                # Every provider tells transactions.
                return cast("StampedCoordination", self._coordination()).perform(effect)
            case fx.Commit():
                return self._commit(effect)
            case fx.CurrentEpoch():
                return self.epoch.current
            case fx.CurrentSession():
                return self._coordination().session_id
            case fx.AdoptEpoch(epoch):
                self.epoch.adopt(epoch)
                return None
            case fx.ProbeOwner(value):
                return probe_owner(value)
            case fx.Answer(request, answer):
                if isinstance(answer, fx.Inserted):
                    tracing.note(index=answer.index)
                self._answer(request, answer)
                return None
        return self._store(effect)


def _traced(effect: fx.Effect) -> tuple[str, tuple[str, ...] | None] | None:
    """Return the name of the span of an effect, and the parts that it is about; None: it gets none."""
    match effect:
        case fx.Stage():
            return "stage", None
        case fx.Commit():
            return "commit", None
        case fx.Publish(_, names):
            return "publish", tuple(name for _, name in names)
        case fx.FetchPart(part):
            return "fetch", (part,)
        case fx.FetchMany(fetches):
            return "fetch", tuple(each.part for each in fetches)
    return None
