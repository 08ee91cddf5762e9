"""The cleaner's thread: it keeps the log short, and forgets deduplication ids that are too many or too old.

The leader cleans.  If no replica stands for leader, because merges are paused everywhere or each replica waits for results
of others, any replica does.  Two at once are safe, so nothing depends on knowing that for sure.  Pauses are jittered: replicas
that were started together do not clean together.

Which entries are removed, and which replicas are given up for it, is decided by `protocol.upkeep.clean_log` and
`protocol.upkeep.clean_blocks`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

from replitree.errors import ReplitreeError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Epoch
from replitree.protocol.core.layout import Replica
from replitree.protocol.upkeep.clean_blocks import Blocks, Window, clean_blocks
from replitree.protocol.upkeep.clean_log import Cleaned, Keep, clean_log
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer
from replitree.replica.table.leader import Leader


class Host(Protocol):
    """What the cleaner needs of the replica."""

    replica: Replica
    config: ServerConfig
    performer: Performer
    progress: Progress
    leader: Leader
    metrics: Metrics
    log: Log

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""


class Cleaner:
    """Cleans now and then, while this replica is the one to do it."""

    def __init__(self, host: Host, stopping: Callable[[], bool]) -> None:
        self._host = host
        self._stopping = stopping
        self._wake = threading.Event()
        self._blocks: Blocks = {}
        self.first: int | None = None
        config = host.config
        self._keep = Keep(config.min_replicated_logs_to_keep, config.max_replicated_logs_to_keep)
        self._window = Window(config.deduplication_window, round(config.deduplication_window_s * 1000))
        self._thread = threading.Thread(target=self._run, name=f"clean-{host.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Clean now, if it is this replica's turn."""
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        config = self._host.config
        while not self._stopping():
            jitter = random.uniform(0.0, config.clean_log_delay_random_s)  # noqa: S311 - not a secret
            self._wake.wait(config.clean_log_delay_s + jitter)
            self._wake.clear()
            if self._stopping():
                return
            try:
                self.turn()
            except ReplitreeError as error:
                self._host.log.warning("cleaner", problem=str(error))
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and let the replica live
                self._host.log.defect("cleaner failed")

    def turn(self) -> bool:
        """Clean once, if it is this replica's turn; say whether it was.

        Raises
        ------
        CoordinationUnavailable
            A read could not be had.
        """
        epoch = self._host.active_epoch()
        if epoch is None or not self._is_due():
            return False
        self.clean(epoch)
        return True

    def _is_due(self) -> bool:
        host = self._host
        if host.leader.leader is not None:
            return host.leader.is_leading
        return not host.performer.perform(Children(layout.leader_election(host.replica.table)))

    def clean(self, epoch: Epoch) -> None:
        """Clean the deduplication ids and the log."""
        self._clean_blocks(epoch)
        self._clean_log(epoch)

    def _clean_log(self, epoch: Epoch) -> None:
        host, name, begun = self._host, self._host.replica.table.name, time.monotonic()
        outcome = host.performer.run(clean_log(host.replica, epoch, self._keep))
        if outcome.lost:
            host.metrics.marked_lost.labels(name).inc(len(outcome.lost))
            host.log.warning("replicas marked lost", replicas=list(outcome.lost), keep=self._keep.at_most)
        if not isinstance(outcome, Cleaned):
            host.log.info("log not cleaned", reason="replicas or the log have changed meanwhile")
            return
        self.first = outcome.first
        place = host.progress.place
        if place is not None:
            host.metrics.log_entries.labels(name).set(max(0, place.pointer.index - outcome.first))
        if outcome.removed:
            host.metrics.cleaned.labels(name).inc(outcome.removed)
            seconds = round(time.monotonic() - begun, 3)
            host.log.info("log cleaned", removed=outcome.removed, first=outcome.first, seconds=seconds)

    def _clean_blocks(self, epoch: Epoch) -> None:
        host = self._host
        outcome = host.performer.run(clean_blocks(host.replica, epoch, self._window, self._blocks))
        self._blocks = outcome.blocks
        if outcome.removed or outcome.notes:
            host.metrics.cleaned_blocks.labels(host.replica.table.name).inc(outcome.removed)
            host.log.info(
                "block ids cleaned", removed=outcome.removed, left=len(outcome.blocks), drops=len(outcome.notes)
            )
