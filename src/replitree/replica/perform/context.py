"""What the collaborators of one table replica share: what they are part of, its disk, and when it takes writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replitree.errors import ReadOnly
from replitree.protocol.core.effects import Epoch
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


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """When one table replica takes requests that append to the log, and under which epoch.

    Attributes
    ----------
    active_epoch
        Returns the epoch while the replica is active, else None.
    why_not_active
        Returns why it takes nothing now.
    pull_now
        Lets the puller read the log at once: a client waits for what was appended.
    """

    active_epoch: Callable[[], Epoch | None]
    why_not_active: Callable[[], str]
    pull_now: Callable[[], None]

    def epoch(self) -> Epoch:
        """Return the epoch to write under.

        Raises
        ------
        ReadOnly
            The replica is not active.
        """
        epoch = self.active_epoch()
        if epoch is None:
            raise ReadOnly(self.why_not_active())
        return epoch
