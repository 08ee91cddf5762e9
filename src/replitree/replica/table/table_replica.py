"""One table on one replica: its life from activation to the end, and the threads that do its work.

The life thread owns the state.  It activates (see `protocol.state.start` for the order), then waits for trouble: a lost
session, an epoch that was taken over (`replica.kit.evidence` has the list).  After trouble the replica is read-only
until the next activation succeeds, and while something hinders it, a full disk or a silent coordination, until that is
over; what is local stays readable all the time.

    starting ──▶ active ◀──▶ read_only          recovering: it is lost and takes over another one's state
        │           ▲            │              halted: an operator must act (newer format)
        └──▶ recovering ◀────────┘              stopped: replaced by another process, or shut down
                    └──▶ halted, stopped
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TypeVar

from replitree.coordination.port import Coordination
from replitree.errors import ReplicaBusy, ReplicaReplaced, ReplitreeError, StoreError, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part
from replitree.protocol.membership.table import leave_table
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import registered_by
from replitree.replica.insert.appends import Appends
from replitree.replica.insert.inserts import Inserts
from replitree.replica.insert.quorums import Quorums
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.definitions import Definitions
from replitree.replica.kit.evidence import Evidence, Health, Hindrance, Trouble
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.parts.checker import Checker
from replitree.replica.parts.commands import Commands
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.making import Maker
from replitree.replica.parts.merges import Merges
from replitree.replica.parts.prepared import PreparedMerges
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.context import LocalParts, TableContext, WriteAccess
from replitree.replica.perform.exchange import Exchange, Peer
from replitree.replica.perform.look_ahead import LookAhead
from replitree.replica.perform.progress import Lane, Progress
from replitree.replica.perform.runner import Performer
from replitree.replica.perform.store_performer import StorePerformer
from replitree.replica.table.activation import Activation
from replitree.replica.table.cleaner import Cleaner
from replitree.replica.table.end_of_log import EndOfLog
from replitree.replica.table.leader import Leader
from replitree.replica.table.lost_parts import LostParts
from replitree.replica.table.maintenance import Keepers, Maintenance, check_room
from replitree.replica.table.mending import Mending
from replitree.replica.table.mover import Mover
from replitree.replica.table.recovery import Recovery
from replitree.replica.table.report import manifest_if_there, measure, status_of
from replitree.replica.table.snapshots import Snapshots
from replitree.replica.table.workers import Executor, Puller
from replitree.replica.uploads.uploads import Uploads
from replitree.storage.disk.store import PartStore
from replitree.storage.schema.definition import TableDefinition
from replitree.wire.identity import Identity

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
        self.replica, self.config = replica, config
        self.me, self.incarnation = identity.encode(), identity.incarnation
        self.metrics, self.meter = metrics, metrics.meter(definition.name)
        self.log = log.bind(table=definition.name)
        root = Path(config.data) / "tables" / definition.folder_name
        self.store = PartStore(root)
        self.definitions.keep_in(root)
        self.uploads = Uploads(root / "uploads")
        self.progress = Progress(replica)
        self.progress.listen(self._follow_log)
        self.appends = Appends()
        self.exchange = Exchange(
            self.store, lambda name, fresh: peer(Replica(replica.table, name), fresh), config.fetch_threads
        )
        self.old_parts = OldParts(self.store, config.old_parts_lifetime_s)
        self.performer = Performer(
            coordination, self._perform_here, self._answer, self._wrap, self._committing, self._check_refused
        )
        context = self.context = TableContext(
            config, self.definitions, self.performer, self.progress, metrics, self.log
        )
        parts = self.local_parts = LocalParts(self.store, self.progress, self.old_parts)
        self.followed_storage = FollowedStorage(context, self.store, self.exchange, self._new_sharing)
        self.snapshots = Snapshots(replica.name, parts, self.why_unreadable)
        self.inserts = Inserts(self, config.group_rows_max, config.group_bytes_max)
        self.merges = Merges(context, self.store, self.reserved)
        self.access = WriteAccess(self.active_epoch, self.why_not_active, self.pull_now)
        self.prepared = PreparedMerges(context, parts, self.uploads, self.merges, self.followed_storage, self.access)
        self.maker = Maker(context, parts, self.prepared, self.followed_storage, self.suspect, self._why_makes_nothing)
        self.lost_parts = LostParts(self)
        self.mending = Mending(self, self.lost_parts.given_up)
        self.lacking = self.mending.lacking
        self.recovery = Recovery(self)
        self.store_performer = StorePerformer(parts, self.exchange, self.inserts, self.maker, self._reveal)
        self.followed_storage.use(None)
        self._changed, self._trouble = threading.Condition(), Trouble()
        self._state, self._reason = State.STARTING, "it has not activated yet"
        self._hindrances: dict[Hindrance, str] = {}
        self.on_end: Callable[[], object] = lambda: None
        self.on_answer: Callable[[fx.ClientAnswer], object] = lambda _: None
        self.quorums = Quorums(self, self.is_stopping, self._answer)
        self.look_ahead = LookAhead(replica.name, self.exchange.begin, self.quorums.heard)
        self.puller = Puller(self, self.is_stopping)
        lanes = (Lane.SMALL, Lane.LARGE, *(Lane.MAKING for _ in range(config.merge_threads)))
        self._executors = [
            Executor(self, self.is_stopping, self.puller.reload, lane, number) for number, lane in enumerate(lanes)
        ]
        self.leader = Leader(self, self.is_stopping)
        self.cleaner = Cleaner(self, self.is_stopping)
        self.checker = Checker(context, parts, self.lacking, self.check_part, self.is_stopping)
        self.commands = Commands(self)
        self.end_of_log = EndOfLog(self.performer, lambda: self.progress.replica)
        self.mover = Mover(self, self.is_stopping)
        self._maintenance = self._new_maintenance()
        self._activation = Activation(self)
        self._life = threading.Thread(target=self._live, name=f"life-{definition.name}", daemon=True)
        self._mend = threading.Thread(target=self._maintain, name=f"mend-{definition.name}", daemon=True)

    def _new_maintenance(self) -> Maintenance:
        health = Health(self.check_disk, self.disk_failed, self.hinder, self.trouble)
        keepers = Keepers(self.mending, self.lost_parts, self.prepared, self.uploads, self.followed_storage)
        return Maintenance(self.context, self.local_parts, health, self.access, keepers)

    def _new_sharing(self, definition: TableDefinition) -> Sharing:
        return Sharing(self, definition)

    def _perform_here(self, effect: fx.StoreEffect) -> object:
        sharing, perform = self.sharing, self.store_performer.perform
        return perform(effect) if sharing is None else sharing.perform_beside(effect, perform)

    @contextmanager
    def _committing(self) -> Iterator[Callable[[fx.Commit], None]]:
        with self.store.expecting() as expect:
            yield lambda commit: expect(registered_by(self.replica, commit))

    def _wrap(self, procedure: fx.Procedure[T], /) -> fx.Procedure[T]:
        sharing = self.sharing
        return procedure if sharing is None else sharing.wrap(procedure)

    # --- what others ask ---

    @property
    def sharing(self) -> Sharing | None:
        """The table's shares; None for a table that has no store."""
        return self.followed_storage.sharing

    @property
    def definition(self) -> TableDefinition:
        """The table's definition, as new as this replica knows it."""
        return self.definitions.current

    def definition_at(self, version: int) -> TableDefinition:
        """Return the table with the columns of a schema version."""
        return self.definitions.at(version)

    def pull_now(self) -> None:
        """Look at the log at once: a request waits."""
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
        return self.followed_storage.maker_for_all()

    def reserved(self) -> frozenset[Part]:
        """Return the parts that another process merges."""
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

    def active_epoch(self) -> fx.Epoch | None:
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
        self.replica = self.progress.replica

    # --- trouble ---

    def trouble(self, evidence: Evidence, reason: str) -> None:
        """Report that the replica must activate again; it is read-only at once."""
        with self._changed:
            if self._state in (State.ACTIVE, State.STARTING, State.READ_ONLY, State.RECOVERING):
                self._trouble.add(evidence, reason)
                if self._state is State.ACTIVE:
                    self._set(State.READ_ONLY, reason)
                self._changed.notify_all()

    def fenced(self, epoch: fx.Epoch) -> None:
        """Report that coordination refused a commit under an epoch: trouble, unless the replica has a newer one by now."""
        with self._changed:
            if self._trouble.is_fenced(epoch, self.performer.epoch.current):
                self.trouble(Evidence.FENCED, "the epoch was taken over")

    def _check_refused(self, check: fx.Check) -> None:
        if check.path == layout.host(self.replica):
            self.fenced(fx.Epoch(check.version))

    def session_began(self) -> None:
        """Report that a new coordination session began: the replica must activate again, at once if it is just failing to."""
        with self._changed:
            self._trouble.has_new_session = True
            self.trouble(Evidence.SESSION, "a new coordination session began")

    def halt(self, reason: str) -> None:
        """Report that the replica can't go on until an operator does something."""
        with self._changed:
            if self._state is not State.STOPPED:
                self.log.error("halted", reason=reason)
                self._set(State.HALTED, reason)

    def hinder(self, hindrance: Hindrance, reason: str) -> None:
        """Be read-only until this is over, and go on under the same epoch then."""
        with self._changed:
            if hindrance in self._hindrances and self._state is not State.ACTIVE:
                return
            self._hindrances[hindrance] = reason
            if self._state is State.ACTIVE or (self._state is State.READ_ONLY and self._trouble.reason is None):
                self._set(State.READ_ONLY, reason)

    def unhinder(self, hindrance: Hindrance) -> None:
        """Report that a hindrance is over."""
        with self._changed:
            if self._hindrances.pop(hindrance, None) is not None:
                self._changed.notify_all()

    def disk_failed(self, reason: str) -> None:
        """Report that a write failed: the replica is read-only until there is room, unless others can write all the same."""
        try:
            self._probe_disk()
        except (Unavailable, StoreError) as error:
            self.hinder(Hindrance.DISK, f"disk: {error}")
        else:
            self.log.warning("a write failed, and the disk takes others", problem=reason)

    def _probe_disk(self) -> None:
        self.check_disk()
        self.store.probe()

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

    def _why_makes_nothing(self) -> str | None:
        """Return why the replica makes no results now, or None."""
        if self.is_stopping():
            return "the replica shuts down"
        return "the replica is lost, and recovers" if self.is_recovering() else None

    def say_recovering(self, reason: str) -> None:
        """Show that the replica recovers, and how far it is or what it waits for."""
        with self._changed:
            if self._state is State.RECOVERING:
                self._reason = reason
            elif not self.is_stopping():
                self._set(State.RECOVERING, reason)

    def is_interrupted(self) -> bool:
        """Whether the replica stops, or must activate again."""
        return self._trouble.reason is not None or self.is_stopping()

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
        pause, has_epoch = RETRY_S_MIN, False
        while self._may_go_on():
            try:
                has_epoch = has_epoch and self._trouble.reason is None
                if has_epoch:
                    self._go_on()
                else:
                    self._activation.activate()
                    has_epoch = True
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
                        if not self._trouble.has_new_session:
                            self._changed.wait(pause)
                pause = min(RETRY_S_MAX, pause * 2)
                continue
            with self._changed:
                self._changed.wait_for(self._has_duty)

    def _may_go_on(self) -> bool:
        """Wait for ever while it is halted; False: it stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not State.HALTED)
            return not self.is_stopping()

    def _has_duty(self) -> bool:
        """Whether the life thread must do something: activate, stop, look at the disk, or go on after a hindrance."""
        is_hindered = bool(self._hindrances) and Hindrance.DISK not in self._hindrances
        return self.is_interrupted() or (self._state is State.READ_ONLY and not is_hindered)

    def _go_on(self) -> None:
        """Be active again under the same epoch when what hindered it is over."""
        if Hindrance.DISK in self._hindrances:
            self._probe_disk()
            self.unhinder(Hindrance.DISK)
        self._be_active()

    def _be_active(self) -> None:
        with self._changed:
            if self._trouble.reason is None and self._state not in (State.HALTED, State.STOPPED):
                reason = next(iter(self._hindrances.values()), "")
                self._set(State.READ_ONLY if reason else State.ACTIVE, reason)
        self.progress.retry_now()
        self.puller.wake()
        self.leader.wake()

    def begin_activation(self) -> None:
        """Forget the trouble: an activation begins, which deals with it.

        Raises
        ------
        Unavailable
            There is no room on the disk.
        """
        with self._changed:
            self._trouble.begin_activation()
        self.check_disk()
        self.followed_storage.use(None)

    def serve(self, epoch: fx.Epoch) -> None:
        """Be active under an epoch, unless there was trouble meanwhile."""
        with self._changed:
            self._trouble.end_activation(epoch)
        self.recovery.finished()
        self.definitions.refresh()
        pointer, queue, evidence = self.progress.pointer, self.progress.queue_length(), self._trouble.answered.value
        self.log.info("activated", epoch=epoch, pointer=pointer, queue=queue, evidence=evidence)
        self.metrics.activations.labels(self.definition.name, evidence).inc()
        self.unhinder(Hindrance.DISK)
        self._be_active()

    def _reveal(self, shown: tuple[str, ...], gone: tuple[str, ...]) -> tuple[str, ...]:
        for name in shown:
            self.lacking.pop(name, None)
        return self.progress.reveal(shown, gone)

    def _answer(self, request: fx.RequestId, answer: fx.ClientAnswer) -> None:
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
        check_room(self.store, self.config.disk_reserve_bytes)

    def _maintain(self) -> None:
        while not self.is_stopping():
            with self._changed:
                self._changed.wait_for(self.is_stopping, MAINTENANCE_S)
            if self._state is State.ACTIVE:
                self._maintenance.round()
            measure(self)

    def suspect(self, part: str) -> bool:
        """Verify a part that a reader found broken; a broken one is set aside and fetched again.  True: it was whole."""
        return self.mending.suspect(part)

    def check_part(self, part: str, content: str) -> str | None:
        """Verify a registered part; set it aside and say why when it is not what it should be."""
        return self.mending.check(part, content)
