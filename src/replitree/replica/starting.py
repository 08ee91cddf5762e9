"""The server as HTTP requests see it before it has connected: its port must be known before its session begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.errors import CoordinationUnavailable
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.table.table_replica import TableReplica

if TYPE_CHECKING:
    from replitree.replica.server import Server


class StartingServer:
    """Stands before the server until it has connected; implements `replitree.replica.http.gate.Tables`."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self._metrics = Metrics()
        self._log = Log()

    @property
    def metrics(self) -> Metrics:
        """The metrics: those of the server when it is there."""
        return self.server.metrics if self.server else self._metrics

    @property
    def log(self) -> Log:
        """The log."""
        return self.server.log if self.server else self._log

    def table(self, name: str) -> TableReplica:
        """Return a hosted table, or raise `CoordinationUnavailable`."""
        if self.server is None:
            raise CoordinationUnavailable("the replica is starting; try again")
        return self.server.table(name)

    def health(self) -> dict[str, object]:
        """Return the state in a word."""
        return self.server.health() if self.server else {"state": "starting"}

    def waiting(self) -> dict[str, str]:
        """Return why tables do not serve reads yet, by table."""
        return self.server.waiting() if self.server else {"*": "the server connects to coordination"}

    def check_store(self, url: str, table: str) -> dict[str, object]:
        """Try an object store, or raise `CoordinationUnavailable`."""
        if self.server is None:
            raise CoordinationUnavailable("the replica is starting; try again")
        return self.server.check_store(url, table)

    def status(self) -> dict[str, object]:
        """Return the status."""
        return self.server.status() if self.server else {"state": "starting", "tables": []}


__all__ = ["StartingServer"]
