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
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeVar

from replitree.coordination.port import Coordination
from replitree.errors import CorruptPart, ReplicaBusy, ReplicaReplaced, ReplitreeError, Unavailable
from replitree.protocol.activate import Activated, Busy, NotJoined, Replaced, Unsettled, activate, renew_epoch
from replitree.protocol.effects import (
    Cancelled,
    ClientAnswer,
    Epoch,
    Link,
    Made,
    Merge,
    Mutate,
    Owner,
    Procedure,
    RequestId,
    StagingId,
    StoreFailed,
)
from replitree.protocol.entries import MergeEntry
from replitree.protocol.fetch import refetch
from replitree.protocol.layout import Replica
from replitree.protocol.pull import Fenced, Gap, Place, Queued, load
from replitree.protocol.start import (
    CaughtUp,
    catch_up,
    compare_parts,
    forget_covered,
    list_idle_staging,
    sweep_staging,
)
from replitree.protocol.table import Outcome, join_table, leave_table
from replitree.replica.commands import Commands
from replitree.replica.config import ServerConfig
from replitree.replica.definitions import Definitions
from replitree.replica.exchange import Exchange, Peer
from replitree.replica.identity import Identity, decode_identity
from replitree.replica.inserts import Inserts, Payload
from replitree.replica.leader import Leader
from replitree.replica.logs import Log
from replitree.replica.making import Maker
from replitree.replica.merges import Merges
from replitree.replica.metrics import Metrics
from replitree.replica.old_parts import OldParts
from replitree.replica.orphans import Orphans
from replitree.replica.progress import Lane, Progress
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
ORPHANS_S = 30.0
"""How often the disk is looked through for parts that nobody will register."""


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
        self.uploads = Uploads(root / "uploads")
        self.progress = Progress(replica.name)
        self._exchange = Exchange(
            self.store, lambda name, fresh: peer(definition.name, name, fresh), config.fetch_threads
        )
        self.old_parts = OldParts(self.store, config.old_parts_lifetime_s)
        self._orphans, self._looked_at = Orphans(self), time.monotonic()
        self.maker = Maker(self)
        self.store_performer = StorePerformer(self.store, self._exchange, self.old_parts, self)
        self.performer = Performer(coordination, self.store_performer.perform, self._answer)
        self._changed = threading.Condition()
        self._state, self._reason = State.STARTING, "it has not activated yet"
        self._trouble: str | None = None
        self._swept = False
        self.on_end: Callable[[], object] = lambda: None
        self.lacking: dict[str, str] = {}
        self._setting_aside = threading.Lock()
        self.inserts = Inserts(self, config.group_rows_max, config.group_bytes_max)
        self.puller = Puller(self, self.is_stopping)
        lanes = (Lane.SMALL, Lane.LARGE, *(Lane.MAKING for _ in range(config.merge_threads)))
        self._executors = [
            Executor(self, self.is_stopping, self.puller.reload, lane, number) for number, lane in enumerate(lanes)
        ]
        self.merges = Merges(self)
        self.leader = Leader(self, self.is_stopping)
        self.commands = Commands(self)
        self._life = threading.Thread(target=self._live, name=f"life-{definition.name}", daemon=True)
        self._maintenance = threading.Thread(target=self._maintain, name=f"mend-{definition.name}", daemon=True)

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
        waits = config.merge == "fetch"
        if not waits and item.entry.replica != self.replica.name:
            held = [part for part in item.change.removed if part in self.progress.held]
            waits = sum(self.store.manifest(part.name).bytes for part in held) > config.fetch_above_bytes
        return not waits or self.progress.waited_s(item.index) > config.fetch_wait_s

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

    def status(self) -> dict[str, object]:
        """Return what an operator wants to know."""
        index, parts = self.progress.visible()
        manifests = [self._manifest(part) for part in parts]
        place = self.progress.place
        return {
            "table": self.definition.name,
            "replica": self.replica.name,
            "state": self._state.value,
            "reason": self._reason,
            "epoch": self.performer.epoch.current,
            "index": index,
            "log_pointer": place.pointer.index if place is not None else None,
            "schema_version": self.definition.schema_version,
            "queue": self.progress.queue_length(),
            "postponed": self.progress.postponed()[:20],
            "parts": len(parts),
            "rows": sum(manifest.rows for manifest in manifests if manifest is not None),
            "bytes": sum(manifest.bytes for manifest in manifests if manifest is not None),
            "lacking": sorted(self.lacking),
            "merges_paused": self.maker.is_paused,
            "leader": self.leader.leader,
            "running": self._making(),
            **self.old_parts.sizes(),
        }

    def _making(self) -> list[dict[str, object]]:
        """Return what is being merged and mutated."""
        index_of = {part.name: item.index for item in self.progress.queue() for part in item.change.added}
        return [
            {
                "index": index_of.get(result),
                "kind": running.kind,
                "result": result,
                "rows_done": running.rows_done,
                "rows_total": running.rows_total,
            }
            for result, running in sorted(self.maker.running().items())
        ]

    def _manifest(self, part: str) -> PartManifest | None:
        try:
            return self.store.manifest(part)
        except CorruptPart:
            return None  # it has just left, or is being fetched again

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

    def is_stopping(self) -> bool:
        """Whether it has stopped, or is about to."""
        return self._state is State.STOPPED

    # --- life ---

    def start(self) -> None:
        """Begin to live."""
        for thread in (self._life, self._maintenance):
            thread.start()
        self.puller.start()
        for executor in self._executors:
            executor.start()
        self.leader.start()

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
        self.progress.wake()
        self.leader.join(timeout_s)
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
        while not self.is_stopping():
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
                self._changed.wait_for(lambda: self._trouble is not None or self.is_stopping())

    def _become_active(self) -> None:
        """Go through the steps of `protocol.start`; on return the replica is active."""
        self._forget_trouble()
        self._check_disk()
        idle = self._run(list_idle_staging())
        epoch = self._own_epoch()
        if not self._swept:
            self.store.sweep()  # nobody else acts for this replica from now on
            self._swept = True
        place = self._catch_up(epoch)
        self._tidy_up(epoch, idle)
        self.definitions.refresh()
        self.log.info("activated", epoch=epoch, pointer=place.pointer.index, queue=self.progress.queue_length())
        with self._changed:
            if self._trouble is None and not self.is_stopping():
                self._set(State.ACTIVE, "")
        self.progress.retry_now()
        self.puller.wake()
        self.leader.wake()

    def _tidy_up(self, epoch: Epoch, idle: tuple[StagingId, ...]) -> None:
        """Go through steps 4 to 6 of `protocol.start`, and take over what was loaded."""
        begun = self.progress.begin_load()
        loaded = self._run(load(self.replica))
        swept = self._run(sweep_staging(idle, loaded))
        if swept:
            self.log.info("swept", stagings=swept)
        if not self._run(forget_covered(self.replica, epoch, loaded)):
            raise Unavailable("the registration of covered parts could not be taken back")
        on_disk = frozenset(self.store.parts())
        self.progress.hide(part.name for part in loaded.held if part.name not in on_disk)
        left = self.progress.take_over(loaded, begun)
        if left is None:
            self.puller.reload()
        self.old_parts.retire(left or ())
        missing = dict(self._run(compare_parts(self.replica, loaded)).missing)
        self.lacking.update(missing)
        self.progress.has_strays = False

    def _forget_trouble(self) -> None:
        with self._changed:
            self._trouble = None

    def _catch_up(self, epoch: Epoch) -> Place:
        """Pull up to the log's tail."""
        match self._run(catch_up(self.replica, epoch)):
            case Fenced():
                raise Unavailable("the epoch was taken over while catching up")
            case Gap(index):
                self.halt(f"log entry {index} is gone although this replica had not pulled it: it is lost")
                raise Unavailable(self._reason)
            case CaughtUp(place):
                return place

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

    def stage(self, staging: StagingId, payloads: Sequence[Payload]) -> tuple[PartManifest, ...]:
        """Write the payloads of requests as the parts of a staging id."""
        return self.inserts.stage(staging, payloads)

    def make(self, effect: Merge | Mutate | Link) -> Made | StoreFailed | Cancelled:
        """Make a merged, mutated or linked part under a staging id."""
        return self.maker.perform(effect)

    def reveal(self, shown: tuple[str, ...], gone: tuple[str, ...]) -> tuple[str, ...]:
        """Show parts to reads and no longer show others; return the names of those that nobody needs any more."""
        return self.progress.reveal(shown, gone)

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
        while not self.is_stopping():
            with self._changed:
                self._changed.wait_for(self.is_stopping, MAINTENANCE_S)
            if self._state is State.ACTIVE:
                try:
                    self._check_disk()
                    self._mend()
                    self._let_go()
                    self.uploads.sweep()
                    self.definitions.catch_up()
                except (ReplitreeError, OSError) as error:
                    self.trouble(str(error))
            self._measure()

    def _mend(self) -> None:
        """Fetch again what is registered and not whole on disk."""
        with self._setting_aside:  # a part that is noted is out of the way by then: the fetch must not find it
            held = frozenset(part.name for part in self.progress.held) if self.lacking else frozenset()
            for name in [name for name in self.lacking if name not in held]:
                del self.lacking[name]  # a later form took its place
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

    def _let_go(self) -> None:
        """Take back the registration of parts that others cover, then remove the old parts whose time is over."""
        epoch = self.active_epoch()
        if self.progress.has_strays and epoch is not None:
            self.progress.has_strays = False
            if not self._run(forget_covered(self.replica, epoch, self._run(load(self.replica)))):
                self.progress.has_strays = True
        if time.monotonic() - self._looked_at >= ORPHANS_S:
            self._looked_at = time.monotonic()
            self._orphans.look()
        if not self.progress.has_strays:
            self.old_parts.remove_due()

    def suspect(self, part: str) -> bool:
        """Verify a part that somebody found broken; a broken one is set aside and fetched again.  True: it was whole."""
        content = self.store.manifest(part).content_hash
        try:
            self.store.verify(part)
        except CorruptPart as error:
            problem = str(error)
        else:
            return True
        self.progress.hide((part,))
        with self._setting_aside:
            self.lacking[part] = content
            self.store.quarantine(part, problem)
        self.metrics.broken.labels(self.definition.name).inc()
        self.log.error("part broken", part=part, problem=problem)
        return False

    def _measure(self) -> None:
        name = self.definition.name
        place = self.progress.place
        self.metrics.queue.labels(name).set(self.progress.queue_length())
        self.metrics.parts.labels(name).set(self.progress.visible_count())
        self.metrics.pointer.labels(name).set(place.pointer.index if place is not None else 0)
        self.metrics.leading.labels(name).set(self.leader.is_leading)
        self.metrics.making.labels(name).set(len(self.maker.running()))
        sizes = self.old_parts.sizes()
        self.metrics.old_parts.labels(name).set(sizes["old_parts"])
        self.metrics.old_bytes.labels(name).set(sizes["old_bytes"])
        self.metrics.leases.labels(name).set(sizes["leases"])
