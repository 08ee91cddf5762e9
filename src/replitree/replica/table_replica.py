"""One table on one replica: its life from activation to the end, and the threads that do its work.

The life thread owns the state.  It activates (see `protocol.start` for the order), then waits for trouble: a lost session, an
epoch that was taken over, a full disk.  After trouble the replica is read-only until the next activation succeeds; what is
local stays readable all the time.

    starting ──▶ active ◀──▶ read_only          recovering: it is lost and takes over another one's state
        │           ▲            │              halted: an operator must act (newer format)
        └──▶ recovering ◀────────┘              stopped: replaced by another process, or shut down
                    └──▶ halted, stopped
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeVar

from replitree.coordination.port import Coordination
from replitree.errors import ReplicaBusy, ReplicaReplaced, ReplitreeError, Unavailable
from replitree.protocol import layout, work_mark
from replitree.protocol.effects import (
    Cancelled,
    ClientAnswer,
    Epoch,
    Link,
    Made,
    MakeEmpty,
    Merge,
    Mutate,
    Procedure,
    RequestId,
    StagingId,
    StoreEffect,
    StoreFailed,
    Untouched,
)
from replitree.protocol.entries import MergeEntry
from replitree.protocol.layout import Replica
from replitree.protocol.parts import Part
from replitree.protocol.pull import Queued
from replitree.protocol.share_effects import Sharer
from replitree.protocol.table import leave_table
from replitree.replica.activation import Activation
from replitree.replica.appends import Appends
from replitree.replica.checker import Checker
from replitree.replica.cleaner import Cleaner
from replitree.replica.commands import Commands
from replitree.replica.config import ServerConfig
from replitree.replica.definitions import Definitions
from replitree.replica.end_of_log import EndOfLog
from replitree.replica.exchange import Exchange, Peer
from replitree.replica.followed_storage import FollowedStorage
from replitree.replica.identity import Identity
from replitree.replica.inserts import Inserts
from replitree.replica.leader import Leader
from replitree.replica.logs import Log
from replitree.replica.look_ahead import LookAhead
from replitree.replica.lost_parts import LostParts
from replitree.replica.maintenance import Maintenance
from replitree.replica.making import Maker
from replitree.replica.mending import Mending
from replitree.replica.merges import Merges
from replitree.replica.metrics import Metrics
from replitree.replica.mover import Mover
from replitree.replica.old_parts import OldParts
from replitree.replica.payloads import Payload
from replitree.replica.prepared import Prepared
from replitree.replica.progress import Lane, Progress
from replitree.replica.quorums import Quorums
from replitree.replica.recovery import Recovery
from replitree.replica.report import manifest_if_there, measure, status_of
from replitree.replica.runner import Performer
from replitree.replica.sharing import Sharing
from replitree.replica.store_performer import StorePerformer
from replitree.replica.uploads import Uploads
from replitree.replica.workers import Executor, Puller
from replitree.storage.definition import TableDefinition
from replitree.storage.disk import PartStore
from replitree.storage.manifest import PartManifest

T = TypeVar("T")

RETRY_S_MIN = 0.2
RETRY_S_MAX = 5.0
MAINTENANCE_S = 1.0


class State(Enum):
    """What a table replica is able to do."""

    STARTING = "starting"
    ACTIVE = "active"
    READ_ONLY = "read_only"
    RECOVERING = "recovering"
    HALTED = "halted"
    STOPPED = "stopped"


class TableReplica:
    """One table on this replica.

    Parameters
    ----------
    definition, replica
        The table, and its place in coordination.
    config, identity
        The server's.
    coordination
        Returns the present session.
    peer
        Finds another replica: which one, and whether to look afresh.
    """

    _has_new_session = False
    """Whether a session began since the replica last began to activate."""

    def __init__(
        self,
        definition: TableDefinition,
        replica: Replica,
        config: ServerConfig,
        identity: Identity,
        coordination: Callable[[], Coordination],
        peer: Callable[[Replica, bool], Peer | None],
        metrics: Metrics,
        log: Log,
    ) -> None:
        self.definitions = Definitions(replica.table, definition, coordination)
        self.replica = replica
        self.config = config
        self.me = identity.encode()
        self.incarnation = identity.incarnation
        self.metrics = metrics
        self.meter = metrics.meter(definition.name)
        self.log = log.bind(table=definition.name)
        root = Path(config.data) / "tables" / definition.folder_name
        self.store = PartStore(root)
        self.definitions.keep_in(root)
        self.uploads = Uploads(root / "uploads")
        self.progress = Progress(replica.name)
        self.progress.listen(self._follow_log)
        self.appends = Appends()
        self.exchange = Exchange(
            self.store,
            lambda name, fresh: peer(Replica(replica.table, name), fresh),
            config.fetch_threads,
        )
        self.old_parts = OldParts(self.store, config.old_parts_lifetime_s)
        self.maker = Maker(self)
        self.lost_parts = LostParts(self)
        self.mending = Mending(self)
        self.lacking = self.mending.lacking
        self.recovery = Recovery(self)
        self.store_performer = StorePerformer(self.store, self.exchange, self.old_parts, self)
        self.sharing: Sharing | None = None
        self.followed_storage = FollowedStorage(self)
        self.followed_storage.use(None)
        self.performer = Performer(coordination, self._perform_here, self._answer, self._wrap)
        self._changed = threading.Condition()
        self._state, self._reason = State.STARTING, "it has not activated yet"
        self._trouble: str | None = None
        self.on_end: Callable[[], object] = lambda: None
        self.on_answer: Callable[[ClientAnswer], object] = lambda _: None
        self.inserts = Inserts(self, config.group_rows_max, config.group_bytes_max)
        self.quorums = Quorums(self, self.is_stopping, self._answer)
        self.look_ahead = LookAhead(replica.name, self.exchange.begin, self.quorums.heard)
        self.puller = Puller(self, self.is_stopping)
        lanes = (Lane.SMALL, Lane.LARGE, *(Lane.MAKING for _ in range(config.merge_threads)))
        self._executors = [
            Executor(self, self.is_stopping, self.puller.reload, lane, number) for number, lane in enumerate(lanes)
        ]
        self.merges = Merges(self)
        self.prepared = Prepared(self)
        self.leader = Leader(self, self.is_stopping)
        self.cleaner = Cleaner(self, self.is_stopping)
        self.checker = Checker(self, self.is_stopping)
        self.commands = Commands(self)
        self.end_of_log = EndOfLog(self)
        self.mover = Mover(self, self.is_stopping)
        self._maintenance = Maintenance(self)
        self._activation = Activation(self)
        self._life = threading.Thread(target=self._live, name=f"life-{definition.name}", daemon=True)
        self._mend = threading.Thread(target=self._maintain, name=f"mend-{definition.name}", daemon=True)

    def _perform_here(self, effect: StoreEffect) -> object:
        sharing, perform = self.sharing, self.store_performer.perform
        return perform(effect) if sharing is None else sharing.perform_beside(effect, perform)

    def _wrap(self, procedure: Procedure[T], /) -> Procedure[T]:
        sharing = self.sharing
        return procedure if sharing is None else sharing.wrap(procedure)

    # --- what others ask ---

    @property
    def definition(self) -> TableDefinition:
        """The table's definition, as new as this replica knows it."""
        return self.definitions.current

    def definition_at(self, version: int) -> TableDefinition:
        """Return the table with the columns of a schema version."""
        return self.definitions.at(version)

    def pull_now(self) -> None:
        """Look at the log at once: somebody waits."""
        self.puller.hurry()

    def makes(self, item: Queued) -> bool:
        """Whether this replica makes the result of an entry by itself, now; otherwise it waits for another to have it."""
        config = self.config
        if isinstance(item.entry, MergeEntry) and self.maker.is_paused:
            return False
        if isinstance(item.entry, MergeEntry) and self.prepared.has(item.entry):
            return True
        is_other = item.entry.replica != self.replica.name
        waits = config.merge == "fetch"
        if not waits and is_other and self.maker_for_all() is None:
            held = [manifest_if_there(self, part.name) for part in item.change.removed if part in self.progress.held]
            waits = sum(manifest.bytes for manifest in held if manifest is not None) > config.fetch_above_bytes
        return not waits or self.progress.waited_s(item.index) > config.fetch_wait_s

    def maker_for_all(self) -> Sharer | None:
        """Return who this replica is where one makes results for all: they go into the store.  None: each makes its own."""
        sharing = self.sharing
        return sharing.sharer if sharing is not None and sharing.is_for_new_parts else None

    def make_for_all(self, epoch: Epoch, result: str) -> None:
        """Let no other replica make a result that all will own, since it is here already."""
        sharer = self.maker_for_all()
        if sharer is not None:
            self.performer.run_plain(work_mark.take(sharer, epoch, result))

    def reserved(self) -> frozenset[Part]:
        """Return the parts that somebody else merges."""
        return self.prepared.reserved()

    def pause_merges(self, *, paused: bool) -> None:
        """Merge no more on this replica, and do not lead; or go on."""
        self.maker.is_paused = paused
        self.progress.retry_now()
        self.leader.wake()

    @property
    def state(self) -> State:
        """What the replica is able to do now."""
        return self._state

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""
        return self.performer.epoch.current if self._state is State.ACTIVE else None

    def why_not_active(self) -> str:
        """Return why the replica takes no inserts."""
        return f"replica {self.replica.name} of table {self.definition.name} is {self._state.value}: {self._reason}"

    @property
    def reason(self) -> str:
        """Why it is in its state."""
        return self._reason

    def status(self) -> dict[str, object]:
        """Return what an operator wants to know."""
        return status_of(self)

    def _follow_log(self) -> None:
        """Append below the parent that the log has reached."""
        place, table = self.progress.place, self.replica.table
        if place is not None and layout.parent_of(place.pointer.index) != table.parent:
            self.replica = Replica(table.below(layout.parent_of(place.pointer.index)), self.replica.name)

    # --- trouble ---

    def trouble(self, reason: str) -> None:
        """Report that the replica must activate again; it is read-only at once."""
        with self._changed:
            if self._state in (State.ACTIVE, State.STARTING, State.READ_ONLY, State.RECOVERING):
                self._trouble = reason
                if self._state is State.ACTIVE:
                    self._set(State.READ_ONLY, reason)
                self._changed.notify_all()

    def session_began(self) -> None:
        """Report that a new coordination session began: the replica must activate again, at once if it is just failing to."""
        with self._changed:
            self._has_new_session = True
            self.trouble("a new coordination session began")

    def halt(self, reason: str) -> None:
        """Report that the replica can't go on until an operator does something."""
        with self._changed:
            if self._state is not State.STOPPED:
                self.log.error("halted", reason=reason)
                self._set(State.HALTED, reason)

    def disk_failed(self, reason: str) -> None:
        """Report that the disk took no more: read-only until there is room."""
        self.trouble(f"disk: {reason}")

    def _set(self, state: State, reason: str) -> None:
        if (state, reason) != (self._state, self._reason):
            self.log.info("state", state=state.value, reason=reason, epoch=self.performer.epoch.current)
        self._state, self._reason = state, reason
        self.metrics.active.labels(self.definition.name).set(state is State.ACTIVE)
        self.metrics.recovering.labels(self.definition.name).set(state is State.RECOVERING)
        self._changed.notify_all()

    def is_stopping(self) -> bool:
        """Whether it has stopped, or is about to."""
        return self._state is State.STOPPED

    # --- recovering ---

    def is_recovering(self) -> bool:
        """Whether it takes over another replica's state."""
        return self._state is State.RECOVERING

    def say_recovering(self, reason: str) -> None:
        """Show that the replica recovers, and how far it is or what it waits for."""
        with self._changed:
            if self._state is State.RECOVERING:
                self._reason = reason
            elif not self.is_stopping():
                self._set(State.RECOVERING, reason)

    def is_interrupted(self) -> bool:
        """Whether the replica stops, or must activate again."""
        return self._trouble is not None or self.is_stopping()

    def wait_interrupted(self, timeout_s: float) -> bool:
        """Wait up to some seconds until the replica stops or must activate again; True when it must."""
        with self._changed:
            return self._changed.wait_for(self.is_interrupted, timeout_s)

    def why_unreadable(self) -> str | None:
        """Say why what is here is no state of the table, or None."""
        if self.recovery.unreadable is not None:
            return f"{self.recovery.unreadable} ({self._reason})"
        if self.progress.place is None:
            return f"replica {self.replica.name} of table {self.definition.name} is {self._state.value}: {self._reason}"
        return None

    # --- life ---

    def start(self) -> None:
        """Begin to live."""
        for thread in (self._life, self._mend):
            thread.start()
        self.puller.start()
        for executor in self._executors:
            executor.start()
        self.quorums.start()
        self.leader.start()
        self.cleaner.start()
        self.checker.start()
        self.mover.start()

    def wait_started(self, timeout_s: float) -> State:
        """Wait until the first activation has ended, well or not."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not State.STARTING, timeout_s)
            return self._state

    def wait_settled(self, timeout_s: float) -> None:
        """Wait until it is neither starting nor recovering."""
        with self._changed:
            self._changed.wait_for(lambda: self._state not in (State.STARTING, State.RECOVERING), timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Finish the inserts that wait, then stop every thread."""
        self.inserts.close(timeout_s)
        with self._changed:
            self._set(State.STOPPED, "shut down")
        self.progress.wake()
        self.quorums.join(timeout_s)
        self.leader.join(timeout_s)
        self.cleaner.join(timeout_s)
        self.checker.close(timeout_s)
        self.mover.join(timeout_s)
        self.puller.join(timeout_s)
        for executor in self._executors:
            executor.join(timeout_s)
        self._life.join(timeout_s)
        self.exchange.close()

    def drop(self, timeout_s: float) -> None:
        """Stop, take this replica out of the table, and delete its local data."""
        self.stop(timeout_s)
        if self.sharing is not None:
            self.sharing.leave()
        self.performer.run_plain(leave_table(self.replica, shared=self.sharing is not None))
        self.store.destroy()

    def lacks(self, part: str, content: str) -> None:
        """Note that a part that may be registered is not on the disk: it is fetched again if it is."""
        self.progress.hide((part,))
        self.lacking[part] = content

    def _live(self) -> None:
        pause = RETRY_S_MIN
        while not self.is_stopping():
            try:
                self._become_active()
                pause = RETRY_S_MIN
            except (ReplicaBusy, ReplicaReplaced) as error:
                with self._changed:
                    self._set(State.STOPPED, str(error))
                self.on_end()
                return
            except Exception as error:  # noqa: BLE001 - also a defect of ours: the replica says so, and tries again
                reason = str(error)
                if not isinstance(error, ReplitreeError | OSError):
                    self.log.defect("activation failed")
                    reason = f"activation failed: {type(error).__name__}; the log of this server has the reason"
                with self._changed:
                    if self._state not in (State.HALTED, State.STOPPED):
                        self._set(State.READ_ONLY, reason)
                        if not self._has_new_session:
                            self._changed.wait(pause)
                pause = min(RETRY_S_MAX, pause * 2)
                continue
            with self._changed:
                self._changed.wait_for(self.is_interrupted)

    def _become_active(self) -> None:
        """Activate; on return the replica is active, unless there was trouble meanwhile."""
        self._forget_trouble()
        self.check_disk()
        self.followed_storage.use(None)
        epoch, place = self._activation.activate()
        self.recovery.finished()
        self.definitions.refresh()
        self.log.info("activated", epoch=epoch, pointer=place.pointer.index, queue=self.progress.queue_length())
        with self._changed:
            if self._trouble is None and not self.is_stopping():
                self._set(State.ACTIVE, "")
        self.progress.retry_now()
        self.puller.wake()
        self.leader.wake()

    def _forget_trouble(self) -> None:
        with self._changed:
            self._trouble, self._has_new_session = None, False

    def _run(self, procedure: Procedure[T]) -> T:
        return self.performer.run(procedure)

    def stage(self, staging: StagingId, payloads: Sequence[Payload]) -> tuple[PartManifest, ...]:
        """Write the payloads of requests as the parts of a staging id."""
        return self.inserts.stage(staging, payloads)

    def give_back(self, staging: StagingId) -> bool:
        """Put what an upload has staged back, so that it can be staged again; False: it is of no upload that is at work."""
        return self.inserts.give_back(staging)

    def make(self, effect: Merge | Mutate | Link | MakeEmpty) -> Made | StoreFailed | Cancelled:
        """Make a merged, mutated, linked or empty part under a staging id."""
        return self.maker.make_empty(effect) if isinstance(effect, MakeEmpty) else self.maker.perform(effect)

    def leaves_as_it_is(self, effect: Untouched) -> bool:
        """Whether a mutation certainly leaves a part as it is."""
        return self.maker.leaves_as_it_is(effect)

    def marked_ahead(self) -> frozenset[str]:
        """Return the names of results that this replica will make as soon as their entries are executed."""
        return self.prepared.results()

    def reveal(self, shown: tuple[str, ...], gone: tuple[str, ...]) -> tuple[str, ...]:
        """Show parts to reads and no longer show others; return the names of those that nobody needs any more."""
        for name in shown:
            self.lacking.pop(name, None)
        return self.progress.reveal(shown, gone)

    def _answer(self, request: RequestId, answer: ClientAnswer) -> None:
        self.on_answer(answer)
        self.inserts.answer(request, answer)

    # --- maintenance ---

    def check_disk(self) -> None:
        """Do nothing while there is room on the disk.

        Raises
        ------
        Unavailable
            There is not.
        """
        free = self.store.free_bytes()
        if free < self.config.disk_reserve_bytes:
            raise Unavailable(
                f"disk full: {free >> 20} MiB are free, {self.config.disk_reserve_bytes >> 20} MiB are kept in reserve; "
                "make room, the replica goes on by itself"
            )

    def _maintain(self) -> None:
        while not self.is_stopping():
            with self._changed:
                self._changed.wait_for(self.is_stopping, MAINTENANCE_S)
            if self._state is State.ACTIVE:
                try:
                    self._maintenance.work()
                except (ReplitreeError, OSError) as error:
                    self.trouble(str(error))
            measure(self)

    def suspect(self, part: str) -> bool:
        """Verify a part that somebody found broken; a broken one is set aside and fetched again.  True: it was whole."""
        return self.mending.suspect(part)

    def check_part(self, part: str, content: str) -> str | None:
        """Verify a registered part; set it aside and say why when it is not what it should be."""
        return self.mending.check(part, content)
