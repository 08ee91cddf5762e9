"""The threads of one table replica that move it along the log: one pulls, two execute.

They work only while the replica is active.  Whatever stops them is reported to the life thread (`trouble`), which activates
again; they never try to mend the session themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from replitree.errors import CoordinationUnavailable, ReplitreeError, UnsupportedFormat
from replitree.protocol.effects import Epoch, LogIndex
from replitree.protocol.execute import EXECUTE_ENTRIES_MAX, Executed, QueueMoved, execute
from replitree.protocol.layout import Replica
from replitree.protocol.pull import (
    PULL_ENTRIES_MAX,
    Fenced,
    Gap,
    PointerMoved,
    Pulled,
    Queued,
    load_queue,
    pull_log,
    read_pointer,
)
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.progress import Progress
from replitree.replica.runner import Performer

POLL_S = 10.0
"""The log's tail is looked at this often even if no watch fires."""

RETRY_S = 0.5

GATHER_S = 0.02
"""Shortest time from one pull to the next.  An entry after a pause is pulled at once; of a stream several are pulled, fetched
and registered together, which costs all replicas less and each entry at most this long."""


class Host(Protocol):
    """What the workers need of the replica they work for."""

    replica: Replica
    performer: Performer
    progress: Progress
    metrics: Metrics
    log: Log

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""

    def trouble(self, reason: str) -> None:
        """Report that the replica must activate again."""

    def halt(self, reason: str) -> None:
        """Report that the replica can't go on until an operator does something."""


class Puller:
    """Pulls whenever the watched entry appears."""

    def __init__(self, host: Host, stopping: Callable[[], bool]) -> None:
        self._host = host
        self._stopping = stopping
        self._wake = threading.Event()
        self._reload_asked = threading.Event()
        self._last_count, self._pulled_at = 1, 0.0
        self._thread = threading.Thread(target=self._run, name=f"pull-{host.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the log now."""
        self._wake.set()

    def reload(self) -> None:
        """Read pointer and queue again before the next pull: somebody found them different."""
        self._reload_asked.set()
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._wake.set()
        self._thread.join(timeout_s)

    def _gather(self) -> int:
        """Wait until it is time for the next pull; return how many entries are to be expected."""
        self._wake.wait(POLL_S)
        early_s = self._pulled_at + GATHER_S - time.monotonic()
        if early_s <= 0 or self._stopping():
            return 1
        time.sleep(early_s)
        return max(1, self._last_count)

    def _run(self) -> None:
        count, more = 1, False
        while not self._stopping():
            count = min(PULL_ENTRIES_MAX, count * 2) if more else self._gather()
            self._wake.clear()
            epoch = self._host.active_epoch()
            if epoch is None or self._stopping():
                more = False
                continue
            try:
                more = self._pull(epoch, count)
            except CoordinationUnavailable:
                more = False
                self._wake.wait(RETRY_S)
            except UnsupportedFormat as error:
                more = False
                self._host.halt(str(error))
            except ReplitreeError as error:
                more = False
                self._host.trouble(str(error))

    def _pull(self, epoch: Epoch, count: int) -> bool:
        """Pull once; True when there is more already."""
        host, progress = self._host, self._host.progress
        if progress.pointer is None or self._reload_asked.is_set():
            self._reload_asked.clear()
            self._reload()
        assert progress.pointer is not None
        outcome = host.performer.run(pull_log(host.replica, epoch, progress.pointer, count))
        match outcome:
            case Pulled(pointer, entries, more):
                progress.pulled(pointer, entries)
                self._last_count, self._pulled_at = len(entries), time.monotonic()
                host.metrics.pulled.labels(host.replica.table.name).inc(len(entries))
                return more
            case PointerMoved():
                self._reload()
                return True
            case Fenced():
                host.trouble("the epoch was taken over")
            case Gap(index):
                host.halt(f"log entry {index} is gone although this replica had not pulled it: it is lost")
        return False

    def _reload(self) -> None:
        """Take pointer and queue from coordination; what was executed unnoticed becomes visible."""
        host = self._host
        pointer = host.performer.run(read_pointer(host.replica))
        queue = host.performer.run(load_queue(host.replica))
        host.progress.reveal(host.progress.reload(pointer, queue))


class Executor:
    """Executes queue entries of one lane, a batch at a time."""

    def __init__(self, host: Host, stopping: Callable[[], bool], reload: Callable[[], None], large: bool) -> None:
        self._host = host
        self._stopping = stopping
        self._reload = reload
        self._large = large
        lane = "large" if large else "small"
        self._thread = threading.Thread(target=self._run, name=f"execute-{lane}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        progress = self._host.progress
        while not self._stopping():
            epoch = self._host.active_epoch()
            if epoch is None:
                with progress.changed:
                    progress.changed.wait(RETRY_S)
                continue
            batch = progress.take(self._large, 1 if self._large else EXECUTE_ENTRIES_MAX, self._stopping, RETRY_S)
            if batch:
                self._execute(epoch, batch)

    def _execute(self, epoch: Epoch, batch: tuple[Queued, ...]) -> None:
        """Execute a batch and give it back, whatever happens."""
        host = self._host
        done: tuple[LogIndex, ...] = ()
        reasons: dict[LogIndex, str] = {}
        try:
            outcome = host.performer.run(execute(host.replica, epoch, batch))
            match outcome:
                case Executed(executed, postponed):
                    done = executed
                    reasons = {item.index: item.reason for item in postponed}
                case QueueMoved():
                    reasons = {item.index: "the queue is read again" for item in batch}
                    self._reload()
                case Fenced():
                    host.trouble("the epoch was taken over")
        except (ReplitreeError, OSError) as error:
            reasons = {item.index: str(error) for item in batch}
        finally:
            host.progress.release(batch, done, reasons)
        host.metrics.executed.labels(host.replica.table.name).inc(len(done))
        host.metrics.postponed.labels(host.replica.table.name).inc(len(reasons))
