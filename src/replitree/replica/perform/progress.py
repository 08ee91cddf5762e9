"""How far a replica is: its place in the log, its queue, the parts that it has registered, and what reads may show.

This is memory only, a copy of what coordination and the disk say; the pull, execute and life threads change it under one lock.

Reads show the parts that are *held* (registered, and covered by no other) but for those that are *hidden* because their files
are broken, and those of inserts that are known to have failed.  Every insert and drop below `index` is executed: its rows are
there, or gone.  Merges and mutations do not hold the index back: the rows of a merge are the same before and after, and who
waits for a mutation waits for its own index (`is_executed`, `is_mutated`).

A *loading* takes the whole state from coordination again.  It is not taken over when parts were shown or hidden since it began,
because it may have been read before that.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import FailEntry, GetEntry, LostEntry, MergeEntry, MutateEntry, RewriteEntry
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.execute.drop import removes
from replitree.protocol.execute.execute import goes_alone
from replitree.protocol.program.stages import PulledTurn
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.atomicity import shown_partly
from replitree.protocol.state.pull import Loaded, Place, Queued
from replitree.protocol.state.read import is_readable, shown_now
from replitree.protocol.state.registration import View, blockers, to_be_detached, to_be_fed, to_be_kept
from replitree.replica.kit.history import History
from replitree.replica.perform.commit_size import PARTS_MAX

POSTPONE_S_MIN = 0.004
"""First pause of an entry that could not be executed; it doubles with every try.  Mostly the writer has only just committed and
publishes its part within milliseconds."""

POSTPONE_S_MAX = 10.0
POSTPONE_OPEN_S_MAX = 0.25
"""The longest pause of an insert whose quorum is open: its client waits, and its writer may publish the part at any moment."""

IDLE_LOOK_S = 0.5
"""The period, in seconds, in which a thread that waits until nothing is executed looks whether to go on waiting."""

LARGE_ENTRY_BYTES = 32 << 20
"""Inserts of others at least this large are executed in a lane of their own, so that small ones need not wait."""


class Lane(Enum):
    """Which executor takes an entry: nothing small waits for something large, and no insert for a merge."""

    SMALL = "small"
    LARGE = "large"
    MAKING = "making"


@dataclass(slots=True)
class _PostponedEntry:
    """A queue entry that could not be executed: why, how often, since when, and when it is tried again (monotonic seconds).

    `for_others`: it waits for other entries, and is tried again as soon as one is executed.  `is_told`: it waits for something
    that is watched, and is tried again when that has changed (`Progress.tell`).
    """

    reason: str
    tries: int
    since: float
    again_at: float
    for_others: bool
    is_told: bool = False


class Progress:
    """The state that one table replica's threads share.

    Parameters
    ----------
    replica
        Its place in coordination; new entries go below the parent of its table.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        """The replica's place, below the parent that the log has reached."""
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self._lanes = {lane: threading.Condition(lock) for lane in Lane}
        self.place: Place | None = None
        self.history = History()
        self.has_strays = False
        self.is_torn = False
        self._queue: dict[LogIndex, Queued] = {}
        self._running: set[LogIndex] = set()
        self._waiting: dict[LogIndex, _PostponedEntry] = {}
        self._told, self._told_before = 0, dict[LogIndex, int]()
        """How often `tell` was said; and before each entry was taken."""
        self._held = PartSet()
        self._hidden: set[Part] = set()
        self._shown = 0
        self._names: tuple[str, ...] | None = None
        self._per_partition: Counter[str] = Counter()
        self._listeners: list[Callable[[], None]] = []

    # --- pull ---

    def pulled(self, place: Place, entries: Iterable[Queued]) -> None:
        """Take over what a pull brought; entries that do not apply are only remembered."""
        with self.changed:
            self._reach(place, is_torn=False)
            entries = tuple(entries)
            self.history.pulled(entries)
            for item in entries:
                if isinstance(item.entry, FailEntry):
                    self._names = None
                if not item.change.is_empty:
                    self._queue[item.index] = item
                    self._per_partition.subtract(part.partition for part in item.change.removed)
                    self._per_partition.update(part.partition for part in item.change.added)
                    self._lanes[self.lane(item)].notify()
            self._notify()

    def begin_load(self) -> int:
        """Begin to load the replica's state; returns what `take_over` asks for."""
        with self.changed:
            return self._shown

    def take_over(self, loaded: Loaded, begun: int) -> tuple[str, ...] | None:
        """Take the state as coordination has it; return the names of the parts that left unnoticed.

        None: it was read too early, and must be loaded again.
        """
        with self.changed:
            # A part was shown or removed after the load had begun, so the load may be older than that.
            if self._shown != begun:
                return None
            if self.place is not None and self.place.pointer.version > loaded.place.pointer.version:
                # A pull has moved the pointer since the load was read.
                return ()
            # What runs stays until it is released, also if it was executed and its queue node is gone by now.
            now = {index: item for index, item in self._queue.items() if index in self._running}
            now.update((item.index, item) for item in loaded.queue)
            left = tuple(part.name for part in self._held if part not in loaded.held)
            if self.place is None or self.place.pointer.index != loaded.place.pointer.index:
                self.history.begin(loaded.place.pointer.index, loaded.place.open)
            self.history.loaded(loaded.queue)
            self._reach(loaded.place, is_torn=loaded.is_torn)
            self._queue = {index: now[index] for index in sorted(now)}
            self._waiting = {index: waiting for index, waiting in self._waiting.items() if index in now}
            self._held = loaded.held
            # The commit that registered the cover may be in doubt: then no part is revealed that could show the stray.
            self.has_strays |= bool(loaded.covered)
            self._per_partition = Counter(part.partition for part in loaded.place.parts)
            self._names = None
            self.wake()
        return left

    def _reach(self, place: Place, *, is_torn: bool) -> None:
        """Have read the log up to here; entries are appended below the parent of the next index."""
        self.place, self.is_torn = place, is_torn
        if layout.parent_of(place.pointer.index) != self.replica.table.parent:
            self.replica = layout.at_pointer(self.replica, place.pointer.index)

    def forget(self) -> None:
        """Begin anew, with nothing: the replica was dropped, and is added again under the same name."""
        with self.changed:
            self.place = None
            self.has_strays = False
            self._queue.clear()
            self._waiting.clear()
            self._held, self._names = PartSet(), None
            self._hidden.clear()
            self._per_partition.clear()
            self._shown += 1
            self.history.begin(LogIndex(0))
            self.wake()

    # --- execute ---

    def lane(self, item: Queued) -> Lane:
        """Return who executes an entry."""
        if isinstance(item.entry, MergeEntry | MutateEntry):
            return Lane.MAKING
        if not isinstance(item.entry, GetEntry | RewriteEntry) or item.entry.replica == self.replica.name:
            return Lane.SMALL
        size = sum(
            part.bytes for part in (item.entry.parts if isinstance(item.entry, GetEntry) else item.entry.inserts)
        )
        size += sum(part.bytes for part in item.entry.results) if isinstance(item.entry, RewriteEntry) else 0
        return Lane.LARGE if size >= LARGE_ENTRY_BYTES else Lane.SMALL

    def take(self, lane: Lane, count: int, stopping: Callable[[], bool], wait_s: float) -> tuple[Queued, ...]:
        """Take up to `count` entries of one lane to execute, waiting up to `wait_s` for some."""
        with self.changed:
            deadline = time.monotonic() + wait_s
            while not stopping() and not self._ready(lane, 1):
                now = time.monotonic()
                if now >= deadline:
                    break
                waiting = (
                    (self._queue.get(index), postponed)
                    for index, postponed in self._waiting.items()
                    if index not in self._running
                )
                due = (each.again_at for queued, each in waiting if queued is not None and self.lane(queued) is lane)
                self._lanes[lane].wait(max(0.0, min(deadline, min(due, default=float("inf"))) - now))
            batch = () if stopping() else self._ready(lane, count)
            self._running.update(item.index for item in batch)
            self._told_before.update((item.index, self._told) for item in batch)
            return batch

    def _ready(self, lane: Lane, count: int) -> tuple[Queued, ...]:
        """Return the first entry of a lane that can be tried, with others like it if it does not go alone."""
        now, parts = time.monotonic(), 0
        found: list[Queued] = []
        # The dict is in ascending order, because pulls append and loads are sorted.
        for index, item in self._queue.items():
            waiting = self._waiting.get(index)
            if index in self._running or (waiting is not None and waiting.again_at > now) or self.lane(item) != lane:
                continue
            if not goes_alone(item):
                parts += len(item.change.added)
                # One commit registers the batch, and must not be too large.
                if found and parts > PARTS_MAX:
                    break
                found.append(item)
            elif not found:
                return (item,)
            if len(found) == count:
                break
        return tuple(found)

    def view(
        self,
        batch: tuple[Queued, ...],
        *,
        makes: bool,
        sharer: Sharer | None = None,
        patience_s: float = float("inf"),
        feeds: bool = False,
    ) -> View:
        """Return what an execution of entries that were taken goes by.

        Parameters
        ----------
        patience_s
            After so many seconds they are overdue.
        feeds
            Whether the rows that the change feed needs are brought, also where a later entry removes them.
        """
        with self.changed:
            assert self.place is not None
            item, queue, opened = batch[0], self._queue.values(), self.place.open
            broken, overdue = frozenset(self._hidden), self.waited_s(item.index) > patience_s
            waits = removes(item) or isinstance(item.entry, LostEntry | RewriteEntry)
            before = blockers(queue, self._running, item.index) if waits else ()
            kept, detached = to_be_kept(queue), to_be_detached(queue)
            fed = to_be_fed(queue, opened) if feeds else PartSet()
            return View(
                self.place.parts, self._held, before, makes, kept, broken, opened, sharer, overdue, detached, fed
            )

    def release(
        self,
        batch: Iterable[Queued],
        done: Iterable[LogIndex],
        reasons: dict[LogIndex, str],
        told: Collection[LogIndex] = (),
    ) -> None:
        """Give a batch back: `done` entries leave the queue, those with a reason wait; those of `told` until `tell`."""
        with self.changed:
            batch = tuple(batch)
            for item in batch:
                self._running.discard(item.index)
            done = tuple(done)
            for index in done:
                self._queue.pop(index, None)
                self._waiting.pop(index, None)
            now = time.monotonic()
            for index, reason in reasons.items():
                tries = 1 if (known := self._waiting.get(index)) is None else known.tries + 1
                longest = POSTPONE_OPEN_S_MAX if self.place and index in self.place.open else POSTPONE_S_MAX
                pause = min(longest, POSTPONE_S_MIN * 2 ** min(tries - 1, 20))
                # News that came while the entry ran makes it due at once.
                if is_told := index in told:
                    pause = POSTPONE_S_MAX if self._told_before.get(index) == self._told else 0.0
                since = known.since if known is not None and known.is_told == is_told else now
                # Whether earlier entries are the reason, as far as can be seen.
                for_others = index in self._queue and (
                    any(part not in self._held for part in self._queue[index].change.removed)
                    if isinstance(self._queue[index].entry, MergeEntry | MutateEntry | RewriteEntry)
                    else removes(self._queue[index])
                )
                self._waiting[index] = _PostponedEntry(reason, tries, since, now + pause, for_others, is_told)
            for item in batch:
                self._told_before.pop(item.index, None)
            # Entries that waited for earlier ones are due at once.
            if done:
                self._retry(lambda waiting: waiting.for_others)
            self._notify()

    def losing(self) -> tuple[tuple[str, str], ...]:
        """Return the parts that entries of the queue declare lost, with the content of the empty part that each becomes."""
        with self.changed:
            entries = [item.entry for item in self._queue.values()]
        return tuple((each.part, each.content_hash) for each in entries if isinstance(each, LostEntry))

    def wait_idle(self, interrupted: Callable[[], bool]) -> bool:
        """Wait until no entry is being executed; False when `interrupted` says so before."""
        with self.changed:
            while self._running:
                if interrupted():
                    return False
                self.changed.wait(IDLE_LOOK_S)
            return True

    def waited_s(self, index: LogIndex) -> float:
        """Return for how many seconds an entry has been tried in vain, or has waited for a watched node."""
        with self.changed:
            return time.monotonic() - waiting.since if (waiting := self._waiting.get(index)) is not None else 0.0

    def retry_now(self) -> None:
        """Let everything that waits be tried at once: something changed for the better."""
        with self.changed:
            self._retry(lambda _: True)
            self.wake()

    def tell(self, result: str = "") -> None:
        """Let entries be tried that wait for something that is watched: it may have changed; `result`: for this part."""
        with self.changed:
            self._told += 1
            self._retry(lambda waiting: waiting.is_told, result)

    def _retry(self, which: Callable[[_PostponedEntry], bool], result: str = "") -> None:
        for index, waiting in self._waiting.items():
            item = self._queue.get(index)
            # A mutation may add thousands of parts, so they are not looked up for the one that has come.
            if result and item is not None and isinstance(item.entry, MergeEntry):
                may_bring = any(each.name == result for each in item.change.added)
            else:
                may_bring = True
            if which(waiting) and may_bring:
                waiting.again_at = 0.0
                if item is not None:
                    self._lanes[self.lane(item)].notify()

    # --- what reads show ---

    def reveal(self, shown: Iterable[str], gone: Iterable[str] = ()) -> tuple[str, ...]:
        """Show parts and no longer show others, at once; return the names of those that are needed no longer.

        A part that a shown one covers is not shown, and is a *stray* if it was registered:
        `protocol.state.start.forget_covered` takes it back.
        """
        with self.changed:
            parts = [parse_part(name) for name in shown]
            here = tuple(parts)
            left = [parse_part(name) for name in gone]
            held = self._held.replace([part for part in left if part in self._held], ())
            if not held:
                held, parts = PartSet.of(maximal(parts)), []
            for part in parts:
                cover = held.covering(part)
                if cover is not None:
                    strays: tuple[Part, ...] = () if cover == part else (part,)
                else:
                    strays = held.between(part.partition, part.block_min, part.block_max)
                    held = held.replace(strays, (part,))
                left += strays
                self.has_strays |= bool(strays)
            self._hidden.difference_update((*here, *left))
            self._held, self._names = held, None
            self._shown += 1
            self._notify()
            return tuple(part.name for part in left)

    def hide(self, names: Iterable[str]) -> None:
        """Make parts invisible: their files are broken or missing."""
        with self.changed:
            self._hidden.update(map(parse_part, names))
            self._names = None
            self._notify()

    def unhide(self, names: Iterable[str]) -> None:
        """End the hiding of parts whose files are whole again; what has left meanwhile stays away."""
        with self.changed:
            self._hidden.difference_update(map(parse_part, names))
            self._names = None
            self._notify()

    def visible(self) -> tuple[LogIndex, tuple[str, ...]]:
        """Return the index below which every insert and drop is executed, and the visible parts, in one look."""
        with self.changed:
            if self._names is None:
                now = shown_now(self._held, self._queue.values())
                self._names = tuple(part.name for part in now if part not in self._hidden)
            return self._index(), self._names

    def shown(self) -> tuple[LogIndex, tuple[str, ...], tuple[str, ...]]:
        """Return what `visible` returns, and the names of the parts that would be visible if their files were whole here."""
        with self.changed:
            index, names = self.visible()
            if not self._hidden:
                return index, names, ()
            now = shown_now(self._held, self._queue.values())
            return index, names, tuple(part.name for part in now if part in self._hidden)

    def shown_partly(self) -> LogIndex | None:
        """Return an insert or a rewrite that is visible in one of its parts, and not yet in another; None: there is none."""
        with self.changed:
            return None if self.place is None else shown_partly(self._held, self.place.parts, self._queue.values())

    @property
    def held(self) -> PartSet:
        """The parts that are registered and that no other one covers."""
        return self._held

    def hidden(self) -> tuple[str, ...]:
        """Return the names of registered parts that can't be shown, because their files are broken or missing."""
        with self.changed:
            return tuple(sorted(part.name for part in self._hidden if part in self._held))

    @property
    def index(self) -> LogIndex:
        """Every insert and drop below this index is executed here."""
        with self.changed:
            return self._index()

    def _index(self) -> LogIndex:
        pointer = self.place.pointer.index if self.place is not None else LogIndex(0)
        return next((index for index, item in self._queue.items() if self.lane(item) is not Lane.MAKING), pointer)

    def is_executed(self, index: LogIndex) -> bool:
        """Whether the entry at `index` is pulled and is not, or no longer, in the queue."""
        with self.changed:
            return self.place is not None and index < self.place.pointer.index and index not in self._queue

    def await_pulled(self, index: LogIndex, wait_s: float) -> PulledTurn:
        """Wait until the entry at `index` is pulled, for up to `wait_s`; return what is known of it."""
        deadline = time.monotonic() + wait_s
        with self.changed:
            while self.place is None or self.is_torn or self.place.pointer.index <= index:
                left = deadline - time.monotonic()
                if left <= 0:
                    return PulledTurn(None)
                self.changed.wait(left)
            return PulledTurn(self.place, True if index in self._queue else self.history.applies(index))

    def is_mutated(self, index: LogIndex) -> bool:
        """Whether every mutation up to `index`, this one included, is executed here."""
        with self.changed:
            if self.place is None or index >= self.place.pointer.index:
                return False
            return not any(item.index <= index and isinstance(item.entry, MutateEntry) for item in self.queue())

    def is_readable(self, position: LogIndex) -> bool:
        """Whether everything below a position is executed here; merges and the inserts that are open there excepted."""
        with self.changed:
            if self.place is None or self.is_torn:
                return False
            return is_readable(self.place.pointer.index, self._queue.values(), position, self.history.open_at(position))

    @property
    def executed_end(self) -> LogIndex | None:
        """The highest position that is readable: see `is_readable`; None while that is not known."""
        with self.changed:
            if self.place is None or self.is_torn:
                return None
            opened, pointer = self.place.open, self.place.pointer.index
            waiting = (
                index
                for index, item in self._queue.items()
                if index not in opened and not isinstance(item.entry, MergeEntry)
            )
            return next(waiting, pointer)

    def at_rest(self, end: LogIndex) -> tuple[str, ...] | None:
        """Return the names of the table's parts if the log up to `end` is executed, no more is pulled and no insert is open.

        None: something is pulled and not executed, an insert is open, or not all of the log is pulled.
        """
        with self.changed:
            place = self.place
            if place is None or self.is_torn or self._queue or self._hidden or place.open or place.pointer.index != end:
                return None
            return tuple(part.name for part in place.parts)

    def awaited(self, position: LogIndex) -> tuple[LogIndex, str, str] | None:
        """Return index and kind of the first entry below a position that is not executed, and why it waits; merges excepted.

        None: all of them are, as far as they are pulled.
        """
        with self.changed:
            for index, item in self._queue.items():
                if index < position and not isinstance(item.entry, MergeEntry):
                    return index, str(type(item.entry).__struct_config__.tag), self.why_waiting(index)[0]
            return None

    def open_at(self, position: LogIndex) -> tuple[LogIndex, ...]:
        """Return the inserts that are open at a position that was pulled."""
        with self.changed:
            return self.history.open_at(position)

    @property
    def pointer(self) -> LogIndex:
        """The next entry to pull; 0 while that is not known."""
        with self.changed:
            return self.place.pointer.index if self.place is not None else LogIndex(0)

    def partition_parts_max(self) -> int:
        """Return the number of parts of the partition that has the most, all that is pulled counted as executed."""
        with self.changed:
            return max(self._per_partition.values(), default=0)

    # --- looking and waiting ---

    def queue(self) -> tuple[Queued, ...]:
        """Return the entries that are pulled and not executed, ascending."""
        with self.changed:
            return tuple(self._queue.values())

    def queued(self, index: LogIndex) -> Queued | None:
        """Return the entry at `index` if it is in the queue."""
        return self._queue.get(index)

    def queue_length(self) -> int:
        """Return how many entries are pulled and not executed."""
        return len(self._queue)

    def visible_count(self) -> int:
        """Return how many parts are visible."""
        return len(self.visible()[1])

    def why_waiting(self, index: LogIndex) -> tuple[str, int]:
        """Return why the entry at `index` waits, and how often it was tried."""
        with self.changed:
            waiting = self._waiting.get(index)
            return (waiting.reason, waiting.tries) if waiting is not None else ("", 0)

    def postponed(self) -> list[dict[str, object]]:
        """Return the entries that wait: index, reason, number of tries, seconds, and whether each waits for a watched node."""
        with self.changed:
            now = time.monotonic()
            return [
                {
                    "index": index,
                    "reason": waiting.reason,
                    "tries": waiting.tries,
                    "since_s": round(now - waiting.since, 3),
                    "is_told": waiting.is_told,
                }
                for index, waiting in sorted(self._waiting.items())
            ]

    def postponed_s(self) -> float:
        """Return for how long the oldest entry that waits for nothing but its next try has been tried, in seconds."""
        with self.changed:
            now = time.monotonic()
            return now - min((each.since for each in self._waiting.values() if not each.is_told), default=now)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every change; it must return at once.  Returns it, for `unlisten`."""
        with self.changed:
            self._listeners.append(listener)
            return listener

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        with self.changed:
            self._listeners.remove(listener)

    def wake(self) -> None:
        """Wake every waiting thread, to look again."""
        with self.changed:
            for lane in self._lanes.values():
                lane.notify_all()
            self._notify()

    def _notify(self) -> None:
        self.changed.notify_all()
        for listener in self._listeners:
            listener()
