"""One table on one replica: its life from activation to the end, and the threads that do its work.

The life thread owns the state.  It activates (see `protocol.start` for the order), then waits for trouble: a lost session, an
epoch that was taken over, a full disk.  After trouble the replica is read-only until the next activation succeeds; what is
local stays readable all the time.

    starting ──▶ active ◀──▶ read_only          halted: an operator must act (newer format, lost entries)
                    │                           stopped: replaced by another process, or shut down
                    └──▶ halted, stopped
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeVar

from replitree.coordination.port import Coordination
from replitree.errors import CorruptPart, ReplicaBusy, ReplicaReplaced, ReplitreeError, Unavailable
from replitree.protocol.activate import Activated, Busy, NotJoined, Replaced, Unsettled, activate, renew_epoch
from replitree.protocol.effects import ClientAnswer, Epoch, Owner, Procedure, RequestId, StagingId
from replitree.protocol.execute import refetch
from replitree.protocol.layout import Replica
from replitree.protocol.pull import Fenced, Gap, Pointer, load_queue
from replitree.protocol.start import CaughtUp, catch_up, compare_parts, list_idle_staging, sweep_staging
from replitree.protocol.table import Outcome, join_table, leave_table
from replitree.replica.config import ServerConfig
from replitree.replica.exchange import Exchange, Peer
from replitree.replica.identity import Identity, decode_identity
from replitree.replica.inserts import Inserts
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.progress import Progress
from replitree.replica.runner import Performer
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
        Finds the address of another replica: its name, and whether to look afresh.
    """

    def __init__(
        self,
        definition: TableDefinition,
        replica: Replica,
        config: ServerConfig,
        identity: Identity,
        coordination: Callable[[], Coordination],
        peer: Callable[[str, str, bool], Peer | None],
        metrics: Metrics,
        log: Log,
    ) -> None:
        self.definition = definition
        self.replica = replica
        self.config = config
        self.me = identity.encode()
        self.incarnation = identity.incarnation
        self.metrics = metrics
        self.meter = metrics.meter(definition.name)
        self.log = log.bind(table=definition.name)
        root = Path(config.data) / "tables" / definition.folder_name
        self.store = PartStore(root)
        self.uploads = Uploads(root / "uploads")
        self.progress = Progress(replica.name)
        self._exchange = Exchange(
            self.store, lambda name, fresh: peer(definition.name, name, fresh), config.fetch_threads
        )
        self.store_performer = StorePerformer(self.store, self._exchange, self._stage, self.progress.reveal)
        self.performer = Performer(coordination, self.store_performer.perform, self._answer)
        self._changed = threading.Condition()
        self._state, self._reason = State.STARTING, "it has not activated yet"
        self._trouble: str | None = None
        self.on_end: Callable[[], object] = lambda: None
        self.lacking: dict[str, str] = {}
        self._setting_aside = threading.Lock()
        self.inserts = Inserts(self, config.group_rows_max, config.group_bytes_max)
        self.puller = Puller(self, self._is_stopping)
        self._executors = [
            Executor(self, self._is_stopping, self.puller.reload, large=large) for large in (False, True)
        ]
        self._life = threading.Thread(target=self._live, name=f"life-{definition.name}", daemon=True)
        self._maintenance = threading.Thread(target=self._maintain, name=f"mend-{definition.name}", daemon=True)

    # --- what others ask ---

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

    def status(self) -> dict[str, object]:
        """Return what an operator wants to know."""
        index, parts = self.progress.visible()
        manifests = [self.store.manifest(part) for part in parts]
        pointer = self.progress.pointer
        return {
            "table": self.definition.name,
            "replica": self.replica.name,
            "state": self._state.value,
            "reason": self._reason,
            "epoch": self.performer.epoch.current,
            "index": index,
            "log_pointer": pointer.index if pointer is not None else None,
            "queue": self.progress.queue_length(),
            "postponed": self.progress.postponed()[:20],
            "parts": len(parts),
            "rows": sum(manifest.rows for manifest in manifests),
            "bytes": sum(manifest.bytes for manifest in manifests),
            "lacking": sorted(self.lacking),
        }

    # --- trouble ---

    def trouble(self, reason: str) -> None:
        """Report that the replica must activate again; it is read-only at once."""
        with self._changed:
            if self._state in (State.ACTIVE, State.STARTING, State.READ_ONLY):
                self._trouble = reason
                if self._state is State.ACTIVE:
                    self._set(State.READ_ONLY, reason)
                self._changed.notify_all()

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
        self.metrics.active.labels(self.definition.name).set(1 if state is State.ACTIVE else 0)
        self._changed.notify_all()

    def _is_stopping(self) -> bool:
        return self._state is State.STOPPED

    # --- life ---

    def start(self) -> None:
        """Begin to live."""
        for thread in (self._life, self._maintenance):
            thread.start()
        self.puller.start()
        for executor in self._executors:
            executor.start()

    def wait_started(self, timeout_s: float) -> State:
        """Wait until the first activation has ended, well or not."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not State.STARTING, timeout_s)
            return self._state

    def stop(self, timeout_s: float) -> None:
        """Finish the inserts that wait, then stop every thread."""
        self.inserts.close(timeout_s)
        with self._changed:
            self._set(State.STOPPED, "shut down")
        with self.progress.changed:
            self.progress.changed.notify_all()
        self.puller.join(timeout_s)
        for executor in self._executors:
            executor.join(timeout_s)
        self._life.join(timeout_s)
        self._exchange.close()

    def drop(self, timeout_s: float) -> None:
        """Stop, take this replica out of the table, and delete its local data."""
        self.stop(timeout_s)
        self.performer.run(leave_table(self.replica))
        self.store.destroy()

    def _live(self) -> None:
        pause = RETRY_S_MIN
        while not self._is_stopping():
            try:
                self._become_active()
                pause = RETRY_S_MIN
            except (ReplicaBusy, ReplicaReplaced) as error:
                with self._changed:
                    self._set(State.STOPPED, str(error))
                self.on_end()
                return
            except (ReplitreeError, OSError) as error:
                with self._changed:
                    if self._state is not State.HALTED:
                        self._set(State.READ_ONLY, str(error))
                    self._changed.wait(pause)
                pause = min(RETRY_S_MAX, pause * 2)
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._trouble is not None or self._is_stopping())

    def _become_active(self) -> None:
        """Go through the steps of `protocol.start`; on return the replica is active."""
        self._forget_trouble()
        self._check_disk()
        idle = self._run(list_idle_staging())
        epoch = self._own_epoch()
        pointer = self._catch_up(epoch)
        swept = self._run(sweep_staging(self.replica, idle))
        self.lacking.update(self._run(compare_parts(self.replica)).missing)
        queue = self._run(load_queue(self.replica))
        self.progress.reveal(self.progress.reload(pointer, queue))
        self.log.info("activated", epoch=epoch, pointer=pointer.index, queue=len(queue), swept=swept)
        with self._changed:
            if self._trouble is None and not self._is_stopping():
                self._set(State.ACTIVE, "")
        self.progress.retry_now()
        self.puller.wake()

    def _forget_trouble(self) -> None:
        with self._changed:
            self._trouble = None

    def _catch_up(self, epoch: Epoch) -> Pointer:
        """Pull up to the log's tail."""
        match self._run(catch_up(self.replica, epoch)):
            case Fenced():
                raise Unavailable("the epoch was taken over while catching up")
            case Gap(index):
                self.halt(f"log entry {index} is gone although this replica had not pulled it: it is lost")
                raise Unavailable(self._reason)
            case CaughtUp(pointer):
                return pointer

    def _own_epoch(self) -> Epoch:
        """Activate for the first time, or renew the epoch that this process has."""
        known = self.performer.epoch.current
        outcome = self._run(
            activate(self.replica, self.me) if known is None else renew_epoch(self.replica, self.me, None)
        )
        match outcome:
            case Activated(epoch):
                self.metrics.epoch.labels(self.definition.name).set(epoch)
                return epoch
            case NotJoined():
                if self._run(join_table(self.replica)) not in (Outcome.DONE, Outcome.EXISTS):
                    raise Unavailable("the table is being dropped")
                raise Unavailable("the replica has just been added to the table")
            case Busy(holder, owner):
                raise self._busy(holder, owner)
            case Replaced():
                raise ReplicaReplaced(f"another process took over replica {self.replica.name}; this one stops")
            case Unsettled():
                raise Unavailable("the activation was refused several times")

    def _busy(self, holder: bytes, owner: Owner) -> ReplitreeError:
        identity = decode_identity(holder)
        who = f"process {identity.pid} at {identity.address}" if identity else "another process"
        if owner is Owner.ALIVE:
            return ReplicaBusy(
                f"{who} is running as replica {self.replica.name}: stop it, or give this one another name"
            )
        return Unavailable(f"{who} held replica {self.replica.name}; waiting until its session expires")

    def _run(self, procedure: Procedure[T]) -> T:
        return self.performer.run(procedure)

    def _stage(self, staging: StagingId, payloads: Sequence[object]) -> tuple[PartManifest, ...]:
        return self.inserts.stage(staging, payloads)

    def _answer(self, request: RequestId, answer: ClientAnswer) -> None:
        self.inserts.answer(request, answer)

    # --- maintenance ---

    def _check_disk(self) -> None:
        free = self.store.free_bytes()
        if free < self.config.disk_reserve_bytes:
            raise Unavailable(
                f"disk full: {free >> 20} MiB are free, {self.config.disk_reserve_bytes >> 20} MiB are kept in reserve; "
                "make room, the replica goes on by itself"
            )

    def _maintain(self) -> None:
        while not self._is_stopping():
            with self._changed:
                self._changed.wait_for(self._is_stopping, MAINTENANCE_S)
            if self._state is State.ACTIVE:
                try:
                    self._check_disk()
                    self._mend()
                    self.uploads.sweep()
                except (ReplitreeError, OSError) as error:
                    self.trouble(str(error))
            self._measure()

    def _mend(self) -> None:
        """Fetch again what is registered and not whole on disk."""
        with self._setting_aside:  # a part that is noted is out of the way by then: the fetch must not find it
            wanted = tuple(sorted(self.lacking.items()))
        if not wanted:
            return
        still = self._run(refetch(self.replica, wanted))
        for name, _ in wanted:
            if name not in still:
                self.lacking.pop(name, None)
        fetched = len(wanted) - len(still)
        if fetched:
            self.metrics.refetched.labels(self.definition.name).inc(fetched)
            self.log.info("parts fetched again", parts=fetched)

    def suspect(self, part: str) -> bool:
        """Verify a part that somebody found broken; a broken one is set aside and fetched again.  True: it was whole."""
        content = self.store.manifest(part).content_hash
        try:
            self.store.verify(part)
        except CorruptPart as error:
            problem = str(error)
        else:
            return True
        self.progress.hide(part)
        with self._setting_aside:
            self.lacking[part] = content
            self.store.quarantine(part, problem)
        self.metrics.broken.labels(self.definition.name).inc()
        self.log.error("part broken", part=part, problem=problem)
        return False

    def _measure(self) -> None:
        name = self.definition.name
        pointer = self.progress.pointer
        self.metrics.queue.labels(name).set(self.progress.queue_length())
        self.metrics.parts.labels(name).set(self.progress.visible_count())
        self.metrics.pointer.labels(name).set(pointer.index if pointer is not None else 0)
