"""What the tables of one server share, and what the collaborators of one table replica share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from replitree.coordination.port import Coordination
from replitree.protocol.core.effects import Commit, Committed
from replitree.protocol.core.layout import Replica
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.definitions import Definitions
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.perform.exchange import Peer
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.pull_signal import PullSignal
from replitree.replica.perform.runner import Performer
from replitree.replica.perform.versions import Versions
from replitree.storage.disk.store import PartStore
from replitree.wire.identity import Identity


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One server: what its process is, how it reaches coordination and other replicas, and where to report.

    Attributes
    ----------
    config
        The server's settings.
    identity
        What the server's process writes about itself.
    coordination
        Returns the present session.
    peer
        Finds another replica: which one, and whether to look afresh.
    table
        Returns a table of this server by its name; raises `TableNotFound` when there is none.
    gathered
        Performs a commit that concerns one replica's own nodes, maybe together with those of other tables.
    """

    config: ServerConfig
    identity: Identity
    coordination: Callable[[], Coordination]
    peer: Callable[[Replica, bool], Peer | None]
    metrics: Metrics
    log: Log
    table: Callable[[str], Any]
    gathered: Callable[[Commit], Committed]


@dataclass(frozen=True, slots=True)
class TableContext:
    """One table of one server: where it lies, how its effects are performed, and where to report.

    Attributes
    ----------
    config
        The server's settings.
    identity
        What the server's process writes about itself.
    definitions
        The table's definition, which follows the log.
    performer
        Performs effects, under the epoch that it holds.
    progress
        How far this replica is in the table's log.
    pull_signal
        Wakes the thread that reads the log.
    """

    config: ServerConfig
    identity: Identity
    definitions: Definitions
    performer: Performer
    progress: Progress
    pull_signal: PullSignal
    metrics: Metrics
    log: Log

    @property
    def replica(self) -> Replica:
        """The replica's place in coordination, below the parent that the log has reached: entries are appended there."""
        return self.progress.replica


@dataclass(frozen=True, slots=True)
class LocalParts:
    """The parts of one table on one disk.

    Attributes
    ----------
    store
        Their files.
    progress
        Which of them the table has, and what is still to be executed.
    old_parts
        Those that left the table, which stay for readers, and the readers' leases.
    versions
        Which of all these parts the table had at earlier indexes.
    lacking
        The registered parts that are not whole here, each with the content hash that it should have.
    """

    store: PartStore
    progress: Progress
    old_parts: OldParts
    versions: Versions
    lacking: dict[str, str] = field(default_factory=dict)

    def lacks(self, part: str, content: str) -> None:
        """Note that a part that may be registered is not on the disk: it is fetched again if it is."""
        self.progress.hide((part,))
        self.lacking[part] = content

    def reveal(self, shown: tuple[str, ...], gone: tuple[str, ...]) -> tuple[str, ...]:
        """Show parts to reads and hide others; return the names of the hidden ones that the table does not need any longer."""
        for name in shown:
            self.lacking.pop(name, None)
        return self.progress.reveal(shown, gone)
