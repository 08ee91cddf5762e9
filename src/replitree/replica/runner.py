"""Performing procedures: effects go to whoever can perform them, outcomes go back into the generator.

One `Performer` belongs to one table replica.  It may be used by several threads at once; a procedure runs in one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from replitree.coordination.port import Coordination
from replitree.protocol.effects import (
    AdoptEpoch,
    Answer,
    Children,
    ChildrenMany,
    ClientAnswer,
    Commit,
    CurrentEpoch,
    CurrentSession,
    Effect,
    Epoch,
    Exists,
    Get,
    GetMany,
    NextNumber,
    ProbeOwner,
    Procedure,
    RequestId,
    StoreEffect,
    Sync,
)
from replitree.protocol.run import run
from replitree.replica.identity import probe_owner

T = TypeVar("T")


class Wrap(Protocol):
    """Makes of a procedure what is run instead, with the same value."""

    def __call__(self, procedure: Procedure[T], /) -> Procedure[T]:
        """Return what is run."""


def _as_it_is(procedure: Procedure[T], /) -> Procedure[T]:
    return procedure


class EpochHolder:
    """The highest epoch that this process has adopted; forgotten when its session is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch: Epoch | None = None

    @property
    def current(self) -> Epoch | None:
        """The epoch, or None before the first activation."""
        return self._epoch

    def adopt(self, epoch: Epoch) -> None:
        """Take `epoch` unless a higher one is known."""
        with self._lock:
            if self._epoch is None or epoch > self._epoch:
                self._epoch = epoch

    def forget(self) -> None:
        """Know no epoch any more: the replica was dropped, and whoever is added under its name begins anew."""
        with self._lock:
            self._epoch = None


class Performer:
    """Performs the effects of one table replica.

    Parameters
    ----------
    coordination
        Performs what touches znodes.
    store
        Performs what touches parts.
    answer
        Called with every answer to a client.
    wrap
        Makes of a procedure what is run instead (`replitree.protocol.sharing`).
    """

    def __init__(
        self,
        coordination: Callable[[], Coordination],
        store: Callable[[StoreEffect], object],
        answer: Callable[[RequestId, ClientAnswer], None],
        wrap: Wrap = _as_it_is,
    ) -> None:
        self._coordination = coordination
        self._store = store
        self._answer = answer
        self._wrap = wrap
        self.epoch = EpochHolder()

    def run(self, procedure: Procedure[T], perform: Callable[[Effect], Any] | None = None) -> T:
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
        return run(self._wrap(procedure), perform or self.perform)

    def run_plain(self, procedure: Procedure[T]) -> T:
        """Run a procedure as it is.  Raises as `run`."""
        return run(procedure, self.perform)

    def perform(self, effect: Effect) -> Any:
        """Perform one effect and return its outcome."""
        match effect:
            case Get() | GetMany() | Exists() | Children() | ChildrenMany() | NextNumber() | Sync() | Commit():
                return self._coordination().perform(effect)
            case CurrentEpoch():
                return self.epoch.current
            case CurrentSession():
                return self._coordination().session_id
            case AdoptEpoch(epoch):
                self.epoch.adopt(epoch)
                return None
            case ProbeOwner(value):
                return probe_owner(value)
            case Answer(request, answer):
                self._answer(request, answer)
                return None
        return self._store(effect)
