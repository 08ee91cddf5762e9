"""Silence of coordination: a replica claims to be active only while it can prove that.

While nothing has been heard of coordination for as long as a session lives, every table of the server is hindered, whatever the
state of the connection: a port that takes connections and closes them, or answers nothing, looks like a connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from replitree.coordination.port import Coordination
from replitree.replica.kit.evidence import Hindrance
from replitree.replica.kit.logs import Log
from replitree.replica.table.table_replica import TableReplica

LISTEN_S = 0.25
"""How often it is looked whether coordination is silent, in seconds."""


class Silence:
    """Watches one server's coordination.

    Parameters
    ----------
    coordination
        The server's session.
    tables
        Returns the tables that the server hosts now.
    log
        Where the beginning and the end of a silence are written.
    """

    def __init__(self, coordination: Coordination, tables: Callable[[], Iterable[TableReplica]], log: Log) -> None:
        self._coordination = coordination
        self._tables = tables
        self._log = log
        self.reason = ""
        """Why nothing can be proved now; empty while coordination is heard."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="silence", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(LISTEN_S):
            silent_s, limit_s = self._coordination.silent_s(), self._coordination.session_timeout_s
            if silent_s > limit_s:
                if not self.reason:
                    self.reason = f"nothing was heard of coordination for {limit_s:g} s, as long as a session lives"
                    self._log.warning("coordination is silent", silent_s=round(silent_s, 1))
                # In every round, since tables may begin while coordination is silent.
                for table in self._tables():
                    table.availability.hinder(Hindrance.COORDINATION, self.reason)
            elif self.reason:
                self.reason = ""
                self._log.info("coordination is heard again")
                for table in self._tables():
                    table.availability.unhinder(Hindrance.COORDINATION)


__all__ = ["LISTEN_S", "Silence"]
