"""An errand: a procedure of a client that only asks coordination, in a session of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import Replica, TablePlace
from replitree_verify.outcomes.branch import Request
from replitree_verify.simulation.cluster import Cluster, Reply

NO_TABLE = TablePlace("/errand")
"""A client acts for no replica; this stands in for the table of one."""


class Errand:
    """Runs one procedure to its end, unless the client dies, or a read can't be had.

    Parameters
    ----------
    cluster
        The world.
    name
        Of the client.
    procedure
        What it runs.
    on_end
        Is called with what the procedure has found out; with None when a read could not be had.
    """

    def __init__(
        self, cluster: Cluster, name: str, procedure: fx.Procedure[Any], on_end: Callable[[Any], None]
    ) -> None:
        self._cluster, self._name, self._procedure, self._on_end = cluster, name, procedure, on_end
        self._session, self._is_alive = cluster.open_session(name), True
        self._go_on(None)

    @property
    def is_alive(self) -> bool:
        """Whether it has neither died nor come to its end."""
        return self._is_alive

    def die(self) -> None:
        """Stop; what is on its way may still arrive."""
        self._is_alive = False

    def _performs(self, _effect: Any) -> bool:
        """Whether this client performs an effect itself; then it goes on later."""
        return False

    def _go_on(self, outcome: Any) -> None:
        while True:
            try:
                effect = self._procedure.send(outcome)
            except StopIteration as stop:
                self._is_alive = False
                self._on_end(stop.value)
                return
            if self._performs(effect):
                return
            if not isinstance(effect, fx.CurrentSession):
                break
            outcome = self._session.number
        asked: Any = effect
        if isinstance(effect, fx.Commit):
            me = self._name.encode()
            asked = Request(Replica(NO_TABLE, self._name), me, self._session.number, None, effect.operations)
        self._cluster.ask(self._session, asked, self._hear)

    def _hear(self, reply: Reply) -> None:
        if not self._is_alive:
            return
        if reply.lost:
            self._is_alive = False
            self._on_end(None)
            return
        self._cluster.note(self._name, type(reply.outcome).__name__)
        self._go_on(reply.outcome)
