"""How far a replica is: its log pointer, its queue, and the parts that reads may show.

This is memory only, a copy of what coordination and the disk say; the pull, execute and life threads change it under one lock.
Everything below `index` is executed: present and visible.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from replitree.protocol.effects import LogIndex
from replitree.protocol.entries import part_names
from replitree.protocol.parts import parse_part
from replitree.protocol.pull import Pointer, Queued

POSTPONE_S_MIN = 0.004
"""First pause of an entry that could not be executed; it doubles with every try.  Mostly the writer has only just committed and
publishes its part within milliseconds."""

POSTPONE_S_MAX = 10.0
LARGE_ENTRY_BYTES = 32 << 20
"""Entries at least this large are executed in a lane of their own, so that small ones need not wait."""


@dataclass(slots=True)
class _Waiting:
    """A queue entry that could not be executed: why, how often, and when it is tried again (monotonic seconds)."""

    reason: str
    tries: int
    again_at: float


class Progress:
    """The state that one table replica's threads share."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self.changed = threading.Condition()
        self.pointer: Pointer | None = None
        self._queue: dict[LogIndex, Queued] = {}
        self._running: set[LogIndex] = set()
        self._waiting: dict[LogIndex, _Waiting] = {}
        self._visible: dict[str, None] = {}
        self._per_partition: Counter[str] = Counter()
        self._listeners: list[Callable[[], None]] = []

    # --- pull ---

    def pulled(self, pointer: Pointer, entries: Iterable[Queued]) -> None:
        """Take over what a pull brought."""
        with self.changed:
            self.pointer = pointer
            for item in entries:
                self._queue[item.index] = item
            self._tell()

    def reload(self, pointer: Pointer, queue: tuple[Queued, ...]) -> tuple[str, ...]:
        """Take over pointer and queue as coordination has them; return the parts of entries that were executed unnoticed.

        A reading that is older than what another thread brought meanwhile is ignored.
        """
        with self.changed:
            if self.pointer is not None and self.pointer.version > pointer.version:
                return ()
            now = {item.index: item for item in queue}
            gone = [item for index, item in self._queue.items() if index not in now]
            self.pointer = pointer
            self._queue = now
            self._waiting = {index: waiting for index, waiting in self._waiting.items() if index in now}
            self._tell()
        return tuple(name for item in gone for _, name in part_names(item.entry, item.index))

    # --- execute ---

    def take(self, large: bool, count: int, stopping: Callable[[], bool], wait_s: float) -> tuple[Queued, ...]:
        """Take up to `count` entries of one lane to execute, waiting up to `wait_s` for some."""
        with self.changed:
            deadline = time.monotonic() + wait_s
            while not stopping() and not self._ready(large, 1):
                now = time.monotonic()
                if now >= deadline:
                    break
                self.changed.wait(max(0.0, min(deadline, self._next_try(large)) - now))
            batch = () if stopping() else self._ready(large, count)
            self._running.update(item.index for item in batch)
            return batch

    def _ready(self, large: bool, count: int) -> tuple[Queued, ...]:
        now = time.monotonic()
        found: list[Queued] = []
        for index, item in self._queue.items():  # in ascending order: entries come by pulls and by sorted reloads
            waiting = self._waiting.get(index)
            if index in self._running or (waiting is not None and waiting.again_at > now):
                continue
            if self._is_large(item) is large:
                found.append(item)
                if len(found) == count:
                    break
        return tuple(found)

    def _next_try(self, large: bool) -> float:
        """Return when the next waiting entry of a lane is due (monotonic seconds)."""
        waiting = (
            (self._queue.get(index), entry) for index, entry in self._waiting.items() if index not in self._running
        )
        due = (entry.again_at for item, entry in waiting if item is not None and self._is_large(item) is large)
        return min(due, default=float("inf"))

    def _is_large(self, item: Queued) -> bool:
        return item.entry.replica != self._replica and sum(part.bytes for part in item.entry.parts) >= LARGE_ENTRY_BYTES

    def release(self, batch: Iterable[Queued], done: Iterable[LogIndex], reasons: dict[LogIndex, str]) -> None:
        """Give a batch back: `done` entries leave the queue, those with a reason wait."""
        with self.changed:
            for item in batch:
                self._running.discard(item.index)
            for index in done:
                self._queue.pop(index, None)
                self._waiting.pop(index, None)
            for index, reason in reasons.items():
                tries = self._waiting[index].tries + 1 if index in self._waiting else 1
                pause = min(POSTPONE_S_MAX, POSTPONE_S_MIN * 2 ** min(tries - 1, 20))
                self._waiting[index] = _Waiting(reason, tries, time.monotonic() + pause)
            self._tell()

    def retry_now(self) -> None:
        """Let everything that waits be tried at once: something changed for the better."""
        with self.changed:
            for waiting in self._waiting.values():
                waiting.again_at = 0.0
            self._tell()

    # --- what reads show ---

    def reveal(self, parts: Iterable[str]) -> None:
        """Make parts visible."""
        with self.changed:
            for name in parts:
                if name not in self._visible:
                    self._visible[name] = None
                    self._per_partition[parse_part(name).partition] += 1
            self._tell()

    def hide(self, part: str) -> None:
        """Make a part invisible: its files are broken."""
        with self.changed:
            if part in self._visible:
                del self._visible[part]
                self._per_partition[parse_part(part).partition] -= 1

    def visible(self) -> tuple[LogIndex, tuple[str, ...]]:
        """Return the index below which everything is executed, and the visible parts, in one look."""
        with self.changed:
            return self._index(), tuple(self._visible)

    @property
    def index(self) -> LogIndex:
        """Everything below this index is executed here."""
        with self.changed:
            return self._index()

    def _index(self) -> LogIndex:
        pointer = self.pointer.index if self.pointer is not None else LogIndex(0)
        return next(iter(self._queue), pointer)

    def partition_parts_max(self) -> int:
        """Return the number of parts, visible or queued, of the partition that has the most."""
        with self.changed:
            queued = Counter(part.partition for item in self._queue.values() for part in item.entry.parts)
            if not queued:
                return max(self._per_partition.values(), default=0)
            return max((self._per_partition + queued).values(), default=0)

    # --- looking and waiting ---

    def queue_length(self) -> int:
        """Return how many entries are pulled and not executed."""
        return len(self._queue)

    def visible_count(self) -> int:
        """Return how many parts are visible."""
        return len(self._visible)

    def postponed(self) -> list[dict[str, object]]:
        """Return the entries that wait: index, reason and number of tries of each."""
        with self.changed:
            return [
                {"index": index, "reason": waiting.reason, "tries": waiting.tries}
                for index, waiting in sorted(self._waiting.items())
            ]

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every change; it must return at once.  Returns it, for `unlisten`."""
        with self.changed:
            self._listeners.append(listener)
            return listener

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call `listener` no more."""
        with self.changed:
            self._listeners.remove(listener)

    def _tell(self) -> None:
        self.changed.notify_all()
        for listener in self._listeners:
            listener()
