"""The duty that moves parts between this disk and the object store, as the table's storage policy says.

Once a second the parts that are not where they belong are looked for (`replitree.replica.parts.placement`) and moved,
what has lain on the disk longest first, a few at a time.  What could not be moved is tried again later and later, and
`status` says why it waits.  Parts that an entry of the queue is about to replace are left alone.

A table that was switched to local disks leaves its store when nothing is left there: no node, no object, and nothing that was
begun.  The leader then appends the entry that forgets the store.

Absent on purpose: how a part moves (`replitree.protocol.shares.moving`), and what readers still need
(`replitree.replica.parts.moving`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from replitree.errors import CorruptPart, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.protocol.program import mover
from replitree.protocol.program.stages import AwaitMove, MemoryEffect, MoveEnded, MoveTurn, ReportTrouble, Then
from replitree.protocol.shares.moving import Moved, MoveOutcome, NotMoved
from replitree.protocol.shares.share import ShareId
from replitree.replica.kit.evidence import Evidence
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.parts.commands import Commands
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.placement import Placed, to_move
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.table.leader import Leader
from replitree.storage.parts.manifest import MANIFEST_FILE
from replitree.storage.schema.storage_policy import StorageKind, StoragePolicy

ROUND_S = 1.0
ROUND_PARTS_MAX = 256
"""Parts that are moved in one round."""

KNOWN_S = 600.0
"""How long it is taken for granted where a part is, in seconds: only moves change that, and mending."""

RETRY_S_MIN, RETRY_S_MAX = 1.0, 60.0
EMPTY_S = 5.0
"""How often it is looked whether a store that is left is empty, in seconds."""

EVICT_S = 10.0
"""How often copies are taken away while there is too little room, in seconds."""

WAITING_MAX = 20
"""Parts that wait which a status names."""


@dataclass(frozen=True, slots=True)
class WaitingMove:
    """A part that could not be moved: why, how often it was tried, and when it is tried again (monotonic seconds)."""

    reason: str
    tries: int
    until: float


class Mover:
    """Moves the parts of one table replica.

    Parameters
    ----------
    storage
        The table's object store.
    leader
        While it leads, this replica forgets a store in which nothing is left.
    commands
        Appends the entry that forgets the store.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        storage: FollowedStorage,
        leader: Leader,
        commands: Commands,
    ) -> None:
        self._context = context
        self._parts = parts
        self._availability = availability
        self._storage = storage
        self._leader = leader
        self._commands = commands
        self._wake = threading.Event()
        self._known: dict[str, Placed] = {}
        self._again: set[str] = set()
        self._known_until = self._empty_after = self._evict_after = float("-inf")
        self._copies: dict[str, int] = {}
        self._left: tuple[Placed, ...] = ()
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._waiting: dict[str, WaitingMove] = {}
        self._thread = threading.Thread(target=self._run, name=f"move-{context.replica.table.name}", daemon=True)
        self._not_forgotten = ""
        self.to_store = self.to_disk = 0
        """How many parts this process has moved."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._wake.set()
        self._thread.join(timeout_s)

    def look_again(self, parts: Iterable[str]) -> None:
        """Look in the next round where these parts are: they were made whole, and may have files of their own now."""
        with self._lock:
            self._again.update(parts)

    def status(self) -> dict[str, object] | None:
        """Return the parts that have still to move and why they wait; None for a table that has no store."""
        if not self._context.definitions.current.is_shared:
            return None
        with self._lock:
            running = sorted(self._running)
        waiting = sorted(self._waiting.copy().items())
        return {
            "storage": self._context.definitions.current.storage,
            "problem": self.problem(),
            "parts_left": len(self._left),
            "bytes_left": sum(each.bytes for each in self._left),
            "running": running,
            "waiting": [
                {"part": part, "reason": each.reason, "tries": each.tries} for part, each in waiting[:WAITING_MAX]
            ],
            "moved_to_store": self.to_store,
            "moved_to_disk": self.to_disk,
        }

    def problem(self) -> str:
        """Return why the table's object store can't be used from here; empty: it can, or the table has none."""
        return self._storage.problem or self._not_forgotten if self._context.definitions.current.is_shared else ""

    def tries_max(self) -> int:
        """Return how often the part that was tried most could not be moved."""
        return max((each.tries for each in self._waiting.copy().values()), default=0)

    def _run(self) -> None:
        while not self._availability.is_stopping():
            self._wake.wait(ROUND_S)
            self._wake.clear()
            sharing = self._storage.sharing
            if sharing is None or self._availability.active_epoch() is None or self._availability.is_stopping():
                continue
            try:
                self.work(sharing)
            except (ReplitreeError, OSError) as error:
                self._context.log.warning("parts could not be moved", reason=str(error))
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and go on
                self._context.log.defect("moving parts failed")

    # --- a round --------------------------------------------------------------------------------------------------------

    def work(self, sharing: Sharing) -> None:
        """Do one round."""
        context, store, placement = self._context, self._parts.store, self._context.definitions.current.placement
        free = store.free_bytes()
        placed = self._placed()
        # Copies of parts that are in the store by now count as free: they can be deleted at any time.
        self._copies = {part: size for part, size in self._copies.items() if store.moved.has_files(part)}
        found = to_move(placement, placed, time.time(), free + sum(self._copies.values()))
        wants_store = placement.kind is not StorageKind.LOCAL
        self._left = () if wants_store and not context.config.zero_copy else found
        parts = {each.part for each in self._left}
        self._waiting = {part: each for part, each in self._waiting.items() if part in parts}
        sharing.moves.still_to_move(parts)
        now = time.monotonic()
        later = {part for part, each in self._waiting.items() if now < each.until}
        due = [each for each in self._left if each.part not in later][:ROUND_PARTS_MAX]
        self._move_all(sharing, placement, due)
        if free < placement.free_bytes and time.monotonic() >= self._evict_after:
            self._evict_after = time.monotonic() + EVICT_S
            store.evict_copies(0, sharing.moves.is_read)
        if placement.kind is StorageKind.LOCAL and not found:
            self._leave_store(sharing)
        else:
            self._not_forgotten = ""

    def _placed(self) -> list[Placed]:
        """Return where the registered parts are that nothing in the queue replaces."""
        progress, now = self._context.progress, time.monotonic()
        if now >= self._known_until:
            self._known, self._known_until = {}, now + KNOWN_S
        # These are taken before the manifests are read: a part that becomes whole now is looked at in the next round.
        with self._lock:
            again, self._again = self._again, set()
        for part in again:
            self._known.pop(part, None)
        store, known = self._parts.store, self._known
        self._known = {}
        for part in (each.name for each in progress.held):
            # A part that is broken, or is leaving, is looked at in a later round.
            with suppress(CorruptPart, OSError):
                if part not in known:
                    manifest = store.manifest(part)
                    since = store.file_path(part, MANIFEST_FILE).stat().st_mtime
                    known[part] = Placed(part, manifest.share_id, manifest.bytes, since)
                self._known[part] = known[part]
        busy = {part.name for item in progress.queue() for part in item.change.removed}
        return [placed for part, placed in self._known.items() if part not in busy]

    def _move_all(self, sharing: Sharing, placement: StoragePolicy, due: Sequence[Placed]) -> None:
        """Move parts, several at once."""
        waiting = SimpleQueue[Placed]()
        for each in due:
            waiting.put(each)

        def move() -> None:
            with suppress(Empty):
                while not self._availability.is_stopping() and self._context.definitions.current.placement == placement:
                    self._move(sharing, waiting.get_nowait())

        # The threads are daemons: when the process ends, a move is cut off as by a crash.
        count = min(len(due), self._context.config.move_threads)
        threads = [threading.Thread(target=move, name=f"move-part-{number}", daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # --- one part -------------------------------------------------------------------------------------------------------

    def _move(self, sharing: Sharing, placed: Placed) -> None:
        """Move one part; a lease keeps it, and its files stay, while it is under way."""
        parts, part = self._parts, placed.part
        if self._availability.active_epoch() is None:
            return
        with self._lock:
            self._running.add(part)
        lease = parts.old_parts.lease((part,), LEASE_S_MAX)
        try:
            with parts.store.shared.pinning((part,)):
                self._run_stage(sharing, placed)
        finally:
            parts.old_parts.release(lease)
            with self._lock:
                self._running.discard(part)
            self._known.pop(part, None)

    def _run_stage(self, sharing: Sharing, placed: Placed) -> None:
        context = self._context
        free = self._parts.store.free_bytes() - context.config.disk_reserve_bytes
        if placed.share is not None and placed.bytes > free:
            needs, has = f"{placed.bytes >> 20} MiB", f"{max(0, free) >> 20} MiB"
            self._note(placed, NotMoved(f"the disk has no room for its {needs}: {has} are free beside the reserve"))
            return

        def remember(effect: MemoryEffect) -> MoveTurn | None:
            match effect:
                case AwaitMove():
                    return MoveTurn(
                        sharing.sharer, placed.part, None if placed.share is None else ShareId(placed.share)
                    )
                case MoveEnded(_, outcome):
                    self._note(placed, outcome)
                case ReportTrouble():
                    self._availability.trouble(Evidence.UNKNOWN, "the answer to the move of a part was lost")
            return None

        try:
            Driver(context.performer, remember).run(Then(mover.move_next, (context.replica,)))
        except (ReplitreeError, OSError) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a defect of ours: say so, and let the other parts go on
            context.log.defect("moving a part failed", part=placed.part)
            reason = f"defect: {error!r}"
        else:
            return
        sharing.moves.broken_off(placed.part)
        # An activation settles what the move has begun.
        self._availability.trouble(Evidence.BEGUN, "the move of a part was broken off")
        self._note(placed, NotMoved(reason))

    def _note(self, placed: Placed, outcome: MoveOutcome) -> None:
        match outcome:
            case Moved():
                self._waiting.pop(placed.part, None)
                if placed.share is None:
                    self.to_store += 1
                    self._copies[placed.part] = placed.bytes
                else:
                    self.to_disk += 1
            case NotMoved(reason):
                before = self._waiting.get(placed.part, WaitingMove("", 0, 0.0))
                pause = min(RETRY_S_MAX, RETRY_S_MIN * 2**before.tries)
                self._waiting[placed.part] = WaitingMove(reason, before.tries + 1, time.monotonic() + pause)
            case fx.InDoubt():
                self._waiting[placed.part] = WaitingMove("an answer of coordination was lost", 1, time.monotonic())

    # --- the end of a store ---------------------------------------------------------------------------------------------

    def _leave_store(self, sharing: Sharing) -> None:
        """Forget the store that the table has left, when it has no object of the table any more, orphans included."""
        now = time.monotonic()
        if not self._leader.is_leading:
            self._not_forgotten = ""
            return
        if now < self._empty_after:
            return
        self._empty_after = now + EMPTY_S
        table, reason = self._context.replica.table, ""
        parents = layout.shares(table), layout.all_writing(table), layout.all_garbage(table)
        # Replicas with nodes there are about to leave the store: that is no reason for a log line.
        is_left = not any(self._context.performer.perform(Children(parent)) for parent in parents)
        if not is_left and self._parts.old_parts.tags.tags:
            names = ", ".join(name for name, _ in self._parts.old_parts.tags.tags)
            reason = f"tags may keep parts in it: {names}"
        try:
            if is_left and self._has_left_nothing(sharing):
                self._commands.forget_store()
            elif is_left:
                reason = f"it has objects without an owner: replitree fsck {table.name} --repair deletes old ones"
        except ReplitreeError as error:
            reason = str(error)
        if reason and reason != self._not_forgotten:
            self._context.log.info("the object store is not forgotten yet", reason=reason)
        self._not_forgotten = reason

    def _has_left_nothing(self, sharing: Sharing) -> bool:
        """Whether the store has nothing of the table."""
        from replitree.storage.objects.bucket_uploads import UploadsNotListed
        from replitree.storage.shares.inventory import inventory_of

        objects = sharing.objects
        objects.check_store()
        try:
            return inventory_of(objects.store, self._context.definitions.current.table_id).is_empty()
        except UploadsNotListed:
            # A rule of such a bucket ends uploads that were not finished.
            return True


__all__ = ["Mover"]
