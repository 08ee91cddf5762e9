"""The threads of one table replica that move it along the log: one pulls, the others execute, each in its lane.

They work only while the replica is active.  Whatever stops them is reported to the life thread (`trouble`), which activates
again; they never try to mend the session themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from replitree.errors import CoordinationUnavailable, ReplitreeError, UnsupportedFormat
from replitree.protocol import layout
from replitree.protocol.effects import Effect, Epoch, Exists, GetMany, LogIndex
from replitree.protocol.entries import AlterEntry, FailEntry, MergeEntry, MutateEntry, SettleEntry, StorageEntry
from replitree.protocol.execute import EXECUTE_ENTRIES_MAX, execute
from replitree.protocol.layout import Replica
from replitree.protocol.pull import (
    PULL_ENTRIES_MAX,
    Fenced,
    Gap,
    PointerMoved,
    Pulled,
    Queued,
    load,
    pull_log,
)
from replitree.protocol.quorum import rejoin
from replitree.protocol.registration import Executed, QueueMoved
from replitree.protocol.run import run
from replitree.protocol.share_effects import Sharer
from replitree.replica.appends import Appends, Perform
from replitree.replica.config import ServerConfig
from replitree.replica.definitions import Definitions
from replitree.replica.logs import Log
from replitree.replica.look_ahead import LookAhead
from replitree.replica.metrics import Metrics
from replitree.replica.old_parts import OldParts
from replitree.replica.progress import Lane, Progress
from replitree.replica.runner import Performer
from replitree.replica.store_performer import StorePerformer

POLL_S = 10.0
"""The log's tail is looked at this often even if no watch fires."""

RETRY_S = 0.5

GATHER_S = 0.04
"""Shortest time from one pull to the next.  An entry after a pause is pulled at once; of a stream several are pulled, fetched
and registered together, which costs all replicas less and each entry at most this long.  Whoever waits for an entry does not
wait for that (`Puller.hurry`)."""

FOLLOW_S = 0.04
"""How long an entry of ours waits to be pulled together with the one that follows it (`replica.appends`)."""


class Host(Protocol):
    """What the workers need of the replica they work for."""

    replica: Replica
    config: ServerConfig
    performer: Performer
    progress: Progress
    store_performer: StorePerformer
    look_ahead: LookAhead
    appends: Appends
    old_parts: OldParts
    definitions: Definitions
    lacking: dict[str, str]
    metrics: Metrics
    log: Log

    def makes(self, item: Queued) -> bool:
        """Whether this replica merges and mutates by itself now."""

    def maker_for_all(self) -> Sharer | None:
        """Return who this replica is where one makes results for all; None: each makes its own."""

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""

    def trouble(self, reason: str) -> None:
        """Report that the replica must activate again."""

    def halt(self, reason: str) -> None:
        """Report that the replica can't go on until an operator does something."""


def pull_count(expected: int) -> int:
    """Return how many entries a pull asks for; who catches up may have gathered many more than one pull takes.

    >>> pull_count(0), pull_count(7), pull_count(1_000)
    (1, 7, 64)
    """
    return max(1, min(PULL_ENTRIES_MAX, expected))


class Puller:
    """Pulls whenever the watched entry appears."""

    def __init__(self, host: Host, stopping: Callable[[], bool]) -> None:
        self._host = host
        self._stopping = stopping
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._reload_asked = threading.Event()
        self._gathered, self._pulled_at = 0, 0.0
        self._thread = threading.Thread(target=self._run, name=f"pull-{host.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the log now."""
        self._wake.set()

    def hurry(self) -> None:
        """Somebody waits for an entry: do not gather others before the next pull."""
        self._hurry.set()
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
        expected, self._gathered = self._gathered, 0
        pointer = self._host.progress.pointer
        own, awaited = self._host.appends.from_on(pointer)
        if own:
            return min(PULL_ENTRIES_MAX, own + self._await_entry(LogIndex(pointer + own)))
        if awaited:
            return max(1, expected)
        early_s = self._pulled_at + GATHER_S - time.monotonic()
        if early_s <= 0 or self._stopping() or self._hurry.wait(early_s):
            return 1
        return max(1, expected)

    def _await_entry(self, index: LogIndex) -> bool:
        """Wait a moment for the entry that follows some of our own; say whether it is to be expected."""
        host = self._host
        self._wake.clear()
        if self._hurry.is_set() or self._stopping() or host.active_epoch() is None:
            return False
        try:
            is_there = host.performer.perform(Exists(layout.log_entry(host.replica.table, index), watch=True))
        except ReplitreeError:
            return False  # the pull will meet the same, and deal with it
        return is_there or self._wake.wait(FOLLOW_S)

    def _run(self) -> None:
        count, more = 1, False
        while not self._stopping():
            count = pull_count(count * 2 if more else self._gather())
            self._wake.clear()
            self._hurry.clear()
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
            except Exception:  # noqa: BLE001 - a defect of ours: say so, activate anew, and go on
                more = False
                self._host.log.defect("pulling failed")
                self._host.trouble("pulling failed; the log of this server has the reason")
                self._wake.wait(RETRY_S)

    def _pull(self, epoch: Epoch, count: int) -> bool:
        """Pull once; True when as many entries as were asked for were there already, and more."""
        host, progress = self._host, self._host.progress
        if progress.place is None or self._reload_asked.is_set():
            self._reload_asked.clear()
            if not self._reload():
                self.reload()
                return True
        assert progress.place is not None
        outcome = run(pull_log(host.replica, epoch, progress.place, count), self._perform)
        match outcome:
            case Pulled(place, entries, more):
                progress.pulled(place, entries)
                self._follow_columns(entries)
                self._gathered += len(entries)
                is_urgent = bool(place.open) or any(isinstance(item.entry, SettleEntry | FailEntry) for item in entries)
                self._pulled_at = 0.0 if is_urgent else time.monotonic()  # somebody waits for a quorum: gather nothing
                host.metrics.pulled.labels(host.replica.table.name).inc(len(entries))
                if more:
                    self._wake.set()
                return more and len(entries) == count  # the rest came meanwhile: there will be more in a moment
            case PointerMoved():
                self.reload()
                return True
            case Fenced():
                host.trouble("the epoch was taken over")
            case Gap(index):
                host.trouble(f"log entry {index} is gone although this replica had not pulled it")
        return False

    def _perform(self, effect: Effect) -> object:
        """Perform an effect of a pull; what was read is looked at before the pull goes on."""
        host = self._host
        outcome = host.performer.perform(effect)
        if isinstance(effect, GetMany):
            *paths, _ = effect.paths  # the last is `log` itself
            host.look_ahead.read(host.progress.pointer, paths, outcome.nodes[:-1])
        return outcome

    def _follow_columns(self, entries: tuple[Queued, ...]) -> None:
        """Read the table's definition again when an entry has changed its columns or its storage."""
        versions = [item.entry.schema_version for item in entries if isinstance(item.entry, AlterEntry)]
        if versions:
            self._host.definitions.expect(versions[-1])
            self._host.definitions.catch_up()
        if any(isinstance(item.entry, StorageEntry) for item in entries):
            self._host.definitions.expect_storage()  # opening a store may take long: maintenance follows

    def _reload(self) -> bool:
        """Take the replica's state from coordination; what was executed unnoticed becomes visible.  False: do it again."""
        host = self._host
        begun = host.progress.begin_load()
        loaded = host.performer.run(load(host.replica))
        left = host.progress.take_over(loaded, begun)
        host.old_parts.retire(left or ())
        if left is not None:
            host.performer.run(rejoin(host.replica, loaded, host.lacking))
        return left is not None


class Executor:
    """Executes queue entries of one lane, a batch at a time."""

    def __init__(
        self, host: Host, stopping: Callable[[], bool], reload: Callable[[], None], lane: Lane, number: int = 0
    ) -> None:
        self._host = host
        self._stopping = stopping
        self._reload = reload
        self._lane = lane
        self._count = EXECUTE_ENTRIES_MAX if lane is Lane.SMALL else 1
        self._thread = threading.Thread(target=self._run, name=f"execute-{lane.value}-{number}", daemon=True)

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
            batch = progress.take(self._lane, self._count, self._stopping, RETRY_S)
            if batch:
                self._execute(epoch, batch)

    def _execute(self, epoch: Epoch, batch: tuple[Queued, ...]) -> None:
        """Execute a batch and give it back, whatever happens."""
        host = self._host
        done: tuple[LogIndex, ...] = ()
        reasons: dict[LogIndex, str] = {}
        told: frozenset[LogIndex] = frozenset()
        try:
            match self._perform(epoch, batch):
                case Executed(executed, postponed):
                    done = executed
                    reasons = {item.index: item.reason for item in postponed}
                    told = frozenset(item.index for item in postponed if item.is_told)
                case QueueMoved():
                    reasons = {item.index: "the queue is read again" for item in batch}
                    self._reload()
                case Fenced():
                    host.trouble("the epoch was taken over")
        except (ReplitreeError, OSError) as error:
            reasons = {item.index: str(error) for item in batch}
        except Exception as error:  # noqa: BLE001 - a defect of ours: say so, and let the other entries go on
            host.log.defect("execution failed", indexes=[item.index for item in batch])
            reasons = {item.index: f"defect: {error!r}" for item in batch}
        finally:
            host.progress.release(batch, done, reasons, told)
        host.metrics.executed.labels(host.replica.table.name).inc(len(done))
        host.metrics.postponed.labels(host.replica.table.name).inc(len(reasons))

    def _perform(self, epoch: Epoch, batch: tuple[Queued, ...]) -> Executed | QueueMoved | Fenced:
        host, item = self._host, batch[0]
        patience_s = host.config.fetch_wait_s
        view = host.progress.view(batch, makes=host.makes(item), sharer=host.maker_for_all(), patience_s=patience_s)
        results = item.change.added if isinstance(item.entry, MergeEntry | MutateEntry) else ()
        with host.store_performer.holding_results(results):
            perform: Perform = host.performer.perform
            if view.opened:
                perform = host.appends.noting(host.replica.table, perform)
            return host.performer.run(execute(host.replica, epoch, view, batch), perform)
