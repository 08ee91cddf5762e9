"""The threads of one table replica that move it along the log: one pulls, the others execute, each in its lane.

They work only while the replica is active.  Whatever stops them is reported to the life thread (`trouble`), which activates
again; they never try to mend the session themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

from replitree.errors import CoordinationUnavailable, ReplitreeError, UnsupportedFormat
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Effect, Epoch, Exists, GetMany, LogIndex
from replitree.protocol.core.entries import AlterEntry, FailEntry, MergeEntry, MutateEntry, SettleEntry, StorageEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.execute.execute import EXECUTE_ENTRIES_MAX
from replitree.protocol.program import executor, puller
from replitree.protocol.program.stages import (
    AskReload,
    AwaitPull,
    AwaitWork,
    BeginLoad,
    GiveBack,
    MemoryEffect,
    Missed,
    PullTurn,
    ReportTrouble,
    TakeIn,
    TakeOver,
    Then,
    WorkTurn,
)
from replitree.protocol.state.pull import PULL_ENTRIES_MAX, Pulled, Queued
from replitree.protocol.state.registration import Postponed
from replitree.replica.insert.appends import Appends
from replitree.replica.kit.evidence import Evidence, Hindrance
from replitree.replica.parts.making import Maker
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.look_ahead import LookAhead
from replitree.replica.perform.progress import Lane
from replitree.replica.perform.store_performer import StorePerformer
from replitree.wire import tracing
from replitree.wire.tracing import TracedSpan

POLL_S = 10.0
"""The log's tail is looked at this often even if no watch fires."""

RETRY_S, RETRY_S_MAX = 0.5, 5.0

GATHER_S = 0.04
"""Shortest time from one pull to the next.  An entry after a pause is pulled at once; of a stream several are pulled, fetched
and registered together, which costs all replicas less and each entry at most this long.  A request that waits for an entry
does not wait for that (`PullSignal.hurry`)."""

FOLLOW_S = 0.04
"""How long an entry of ours waits to be pulled together with the one that follows it (`replica.insert.appends`)."""


def pull_count(expected: int) -> int:
    """Return how many entries a pull asks for.

    >>> pull_count(0), pull_count(7), pull_count(1_000)
    (1, 7, 64)
    """
    # A replica that catches up may expect many more entries than one pull takes.
    return max(1, min(PULL_ENTRIES_MAX, expected))


class Puller:
    """Pulls whenever the watched entry appears, and when the context's `PullSignal` asks it to.

    Parameters
    ----------
    appends
        The entries that this replica has appended itself.
    look_ahead
        Looks at the entries that are read, before the pull is committed.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        appends: Appends,
        look_ahead: LookAhead,
    ) -> None:
        self._context = context
        self._signal = context.pull_signal
        self._parts = parts
        self._availability = availability
        self._appends = appends
        self._look_ahead = look_ahead
        self._ending = threading.Event()
        self._gathered, self._pulled_at, self._pause_s = 0, 0.0, RETRY_S
        self._epoch, self._begun = Epoch(0), 0
        # Of the entries that were read last; with an entry the version log notes when it was written.
        self._written_ms: dict[LogIndex, int] = {}
        self._turn_ns: int | None = None
        self._driver = Driver(context.performer, self._remember, self._perform)
        self._thread = threading.Thread(target=self._run, name=f"pull-{context.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._ending.set()
        self._signal.wake()
        self._thread.join(timeout_s)

    def _gather(self) -> int:
        """Wait until it is time for the next pull; return how many entries are to be expected."""
        self._signal.awake.wait(POLL_S)
        expected, self._gathered = self._gathered, 0
        pointer = self._context.progress.pointer
        own, awaited = self._appends.from_on(pointer)
        if own:
            return min(PULL_ENTRIES_MAX, own + self._await_entry(LogIndex(pointer + own)))
        if awaited:
            return max(1, expected)
        early_s = self._pulled_at + GATHER_S - time.monotonic()
        if early_s <= 0 or self._availability.is_stopping() or self._signal.hurried.wait(early_s):
            return 1
        return max(1, expected)

    def _await_entry(self, index: LogIndex) -> bool:
        """Wait a moment for the entry that follows some of our own; say whether it is to be expected."""
        context = self._context
        self._signal.awake.clear()
        if (
            self._signal.hurried.is_set()
            or self._availability.is_stopping()
            or self._availability.active_epoch() is None
        ):
            return False
        try:
            is_there = context.performer.perform(Exists(layout.log_entry(context.replica.table, index), watch=True))
        except ReplitreeError:
            # The pull that follows meets the same error and reports it.
            return False
        return is_there or self._signal.awake.wait(FOLLOW_S)

    def _run(self) -> None:
        count, more = 1, False
        while not self._availability.is_stopping():
            count = pull_count(count * 2 if more else self._gather())
            self._signal.awake.clear()
            self._signal.hurried.clear()
            epoch = self._availability.active_epoch()
            if epoch is None or self._availability.is_stopping():
                more = False
                continue
            try:
                self._epoch = epoch
                more = self._pull(count)
            except CoordinationUnavailable:
                more = False
                self._signal.awake.wait(RETRY_S)
                # A reload that was asked for may have been cut off by the error.
                self._signal.reload()
            except UnsupportedFormat as error:
                more = False
                self._availability.halt(str(error))
            except ReplitreeError as error:
                more = False
                self._cannot_pull(str(error))
            except Exception:  # noqa: BLE001 - a defect of ours: say so, read the state again, and go on
                more = False
                self._context.log.defect("pulling failed")
                self._cannot_pull("pulling failed; the log of this server has the reason")
            else:
                self._pause_s = RETRY_S

    def _cannot_pull(self, reason: str) -> None:
        """Be read-only for a while, and pull again."""
        # The error proves nothing about the epoch, so an activation would not help: the state is read again.
        self._availability.hinder(Hindrance.LOG, reason)
        self._signal.reload()
        self._ending.wait(self._pause_s)
        self._pause_s = min(RETRY_S_MAX, 2 * self._pause_s)
        self._availability.unhinder(Hindrance.LOG)
        self._signal.wake()

    def _pull(self, count: int) -> bool:
        """Pull once, after a reload if one is asked for; True when as many entries as were asked for were there, and more."""
        then = Then(puller.pull_next, (self._context.replica, count))
        while then.outcome is None:
            if self._availability.is_stopping() or self._availability.active_epoch() is None:
                self._signal.reload()
                return True
            following = self._driver.run(then)
            assert isinstance(following, Then), "a puller goes on"
            then = following
        pulled = then.outcome
        if not isinstance(pulled, Pulled):
            return False
        if pulled.more:
            self._signal.wake()
        # Behind a batch that is not full, more was appended during the pull: it pays to gather again.
        return pulled.more and len(pulled.entries) == count

    def _remember(self, effect: MemoryEffect) -> object:
        """Perform an effect of the puller on the process's memory."""
        progress = self._context.progress
        match effect:
            case AwaitPull():
                self._turn_ns = time.time_ns() if tracing.is_on() else None
                # `_run` has waited before this turn.
                place = None if self._signal.reload_asked.is_set() else progress.place
                self._signal.reload_asked.clear()
                return PullTurn(self._epoch, place)
            case BeginLoad():
                self._begun = progress.begin_load()
            case TakeOver(loaded):
                left = progress.take_over(loaded, self._begun)
                self._parts.old_parts.retire(left or ())
                return None if left is None else self._parts.lacking
            case TakeIn(place, entries):
                if entries and tracing.is_on():
                    _span_of("pull", self._context.replica, entries, self._turn_ns).end()
                # First: what a client hears of is remembered, also when this process is killed at once.
                self._parts.versions.take_in(entries, place, self._written_ms)
                # Before an executor sees the entries: it goes by whether there is a feed.
                if any(isinstance(item.entry, StorageEntry) for item in entries):
                    # Opening a store may take long, so maintenance does it.
                    self._context.definitions.expect_storage()
                    # It may have turned the feed off, and a consumer may be newer than what was read of them.
                    self._parts.old_parts.may_be_consumed = True
                progress.pulled(place, entries)
                versions = [item.entry.schema_version for item in entries if isinstance(item.entry, AlterEntry)]
                if versions:
                    self._context.definitions.expect(versions[-1])
                    self._context.definitions.catch_up()
                self._gathered += len(entries)
                is_urgent = bool(place.open) or any(isinstance(item.entry, SettleEntry | FailEntry) for item in entries)
                # A client waits for a quorum, so the next pull must not wait to gather entries.
                self._pulled_at = 0.0 if is_urgent else time.monotonic()
                self._context.metrics.pulled.labels(self._context.replica.table.name).inc(len(entries))
            case ReportTrouble():
                self._availability.fenced(self._epoch)
            case Missed(index):
                self._availability.trouble(
                    Evidence.GAP, f"log entry {index} is gone although this replica had not pulled it"
                )
            case _:
                raise AssertionError(effect)
        return None

    def _perform(self, effect: Effect) -> object:
        """Perform an effect; the entries that a pull has read are looked at before the pull goes on."""
        context = self._context
        outcome = context.performer.perform(effect)
        if isinstance(effect, GetMany) and effect.paths[-1] == layout.log(context.replica.table):
            table, paths, nodes = context.replica.table, effect.paths[:-1], outcome.nodes[:-1]
            self._written_ms = {
                layout.index_of(table, path): node.changed_ms
                for path, node in zip(paths, nodes, strict=True)
                if node is not None
            }
            self._look_ahead.read(context.progress.pointer, paths, nodes)
        return outcome


class Executor:
    """Executes queue entries of one lane, a batch at a time.

    Parameters
    ----------
    store_performer
        Keeps what is made in staging while it is executed.
    maker
        Whether this replica makes a result by itself, and whether for all replicas.
    appends
        Takes note of the entries that are appended here.
    """

    def __init__(
        self,
        context: TableContext,
        availability: Availability,
        store_performer: StorePerformer,
        maker: Maker,
        appends: Appends,
        lane: Lane,
    ) -> None:
        self._context = context
        self._availability = availability
        self._store_performer = store_performer
        self._maker = maker
        self._appends = appends
        self._lane = lane
        self._count = EXECUTE_ENTRIES_MAX if lane is Lane.SMALL else 1
        self._epoch, self._batch, self._notes = Epoch(0), tuple[Queued, ...](), False
        self._held = ExitStack()
        self._span = tracing.OFF
        self._driver = Driver(context.performer, self._remember, self._perform)
        name = f"execute-{lane.value}-{context.replica.table.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        stage = executor.make_next if self._lane is Lane.MAKING else executor.execute_next
        while not self._availability.is_stopping():
            try:
                self._driver.run(Then(stage, (self._context.replica,)))
            except _Stopping:
                return
            except (ReplitreeError, OSError) as error:
                self._give_back(postponed=self._all(str(error)))
            except Exception as error:  # noqa: BLE001 - a defect of ours: say so, and let the other entries go on
                self._context.log.defect("execution failed", indexes=[item.index for item in self._batch])
                self._give_back(postponed=self._all(f"defect: {error!r}"))

    def _remember(self, effect: MemoryEffect) -> object:
        """Perform an effect of the executor on the process's memory."""
        match effect:
            case AwaitWork():
                # Wait until there is a batch, and take it.
                progress = self._context.progress
                while not self._availability.is_stopping():
                    epoch = self._availability.active_epoch()
                    if epoch is None:
                        with progress.changed:
                            progress.changed.wait(RETRY_S)
                        continue
                    batch = progress.take(self._lane, self._count, self._availability.is_stopping, RETRY_S)
                    if batch:
                        self._epoch, self._batch = epoch, batch
                        # The results of the batch are held, so that the cleaner of staging does not remove them.
                        item, view = batch[0], self._maker.view(batch)
                        results = item.change.added if isinstance(item.entry, MergeEntry | MutateEntry) else ()
                        self._held.enter_context(self._store_performer.holding_results(results))
                        self._notes = bool(view.opened)
                        if tracing.is_on():
                            self._span = _span_of("execute", self._context.replica, batch).attach()
                        return WorkTurn(epoch, view, batch)
                raise _Stopping
            case GiveBack(_, done, postponed):
                self._give_back(done, postponed)
            case AskReload():
                self._context.pull_signal.reload()
            case ReportTrouble():
                self._availability.fenced(self._epoch)
            case _:
                raise AssertionError(effect)
        return None

    def _give_back(self, done: tuple[LogIndex, ...] = (), postponed: tuple[Postponed, ...] = ()) -> None:
        context, batch = self._context, self._batch
        self._batch, self._notes = (), False
        self._span.end(executed=[int(index) for index in done], postponed=[int(item.index) for item in postponed])
        self._span = tracing.OFF
        try:
            self._held.close()
        except (ReplitreeError, OSError) as error:
            context.log.warning("what was made in vain is still staged", reason=str(error))
        reasons = {item.index: item.reason for item in postponed}
        context.progress.release(batch, done, reasons, frozenset(item.index for item in postponed if item.is_told))
        context.metrics.executed.labels(context.replica.table.name).inc(len(done))
        context.metrics.postponed.labels(context.replica.table.name).inc(len(reasons))

    def _all(self, reason: str) -> tuple[Postponed, ...]:
        return tuple(Postponed(item.index, reason) for item in self._batch)

    def _perform(self, effect: Effect) -> object:
        """Perform an effect; while inserts with a quorum are open, the entries that it appends are noted."""
        context = self._context
        perform = context.performer.perform
        return (self._appends.noting(context.replica.table, perform) if self._notes else perform)(effect)


def _span_of(name: str, replica: Replica, entries: Sequence[Queued], start_ns: int | None = None) -> TracedSpan:
    """Begin the span of a step of some entries, with all that finds them in the traces of other processes."""
    span = tracing.begin(name, start_ns=start_ns)
    parts = [part.name for item in entries[: tracing.LISTED_MAX] for part in item.change.added]
    indexes = [int(item.index) for item in entries]
    span.note(table=replica.table.name, replica=replica.name, indexes=indexes, parts=parts, entries=len(entries))
    return span


class _Stopping(Exception):
    """The replica stops while an executor waits for work."""
