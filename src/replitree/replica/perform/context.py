"""What the collaborators of one table replica share: what they are part of, and the parts on the replica's disk."""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core.layout import Replica
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.definitions import Definitions
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer
from replitree.storage.disk.store import PartStore


@dataclass(frozen=True, slots=True)
class TableContext:
    """One table of one server: where it lies, how its effects are performed, and where to report.

    Attributes
    ----------
    config
        The server's settings.
    definitions
        The table's definition, which follows the log.
    performer
        Performs effects, under the epoch that it holds.
    progress
        How far this replica is in the table's log.
    """

    config: ServerConfig
    definitions: Definitions
    performer: Performer
    progress: Progress
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
    """

    store: PartStore
    progress: Progress
    old_parts: OldParts
