"""Pull: copy the log's next entries into the replica's queue.

A replica decides at the pull of an entry, from its fold, whether it applies; what does not apply never enters the queue.

The pointer and the queue entries move in one commit, which is conditional on the pointer's version: an entry enters the queue
exactly once, whatever is repeated.  So an unknown outcome needs no new epoch here: the caller reads the pointer again, and
of a late and a repeated commit one is refused.

Entries are dense, so they are read by their numbers and the next one is watched: the cost does not grow with the log.

Where the log begins is read after the entries: one that was not found and lies below was removed.  Either this replica is
lost and has not noticed, or its place is one of the past, because a pull in doubt took place after the pointer was read.  So
what was not found and does not lie below is the tail of the log.

A gap (an entry is missing and a later one is there) means the same, also in a log that is damaged.  A gap in one batch of reads
is not proof, because the reads are not one moment; the missing entry is read again after the later one was seen, and then
it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, RollEntry, decode_entry
from replitree.protocol.core.fold import Change, apply, maximal, open_after, restore
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.log import begins_after, next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part

PULL_ENTRIES_MAX = 64
"""Log entries copied in one commit."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A replica's log pointer as it was read: the index of the next entry to pull, and the node's version.

    `open` are the indexes of the inserts below it whose quorum is neither reached nor given up there, ascending.
    """

    index: fx.LogIndex
    version: fx.Version
    open: tuple[fx.LogIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica stands: its pointer, and the parts that the table has there (the fold of the log below it)."""

    pointer: Pointer
    parts: PartSet

    @property
    def open(self) -> tuple[fx.LogIndex, ...]:
        """The indexes of the inserts that are open there."""
        return self.pointer.open


@dataclass(frozen=True, slots=True)
class Queued:
    """An entry that was pulled, and what it changes; it is in the queue if that is anything."""

    index: fx.LogIndex
    entry: Entry
    change: Change


@dataclass(frozen=True, slots=True)
class Pulled:
    """`entries` were pulled.  `more`: the next entry exists already; otherwise it is being watched."""

    place: Place
    entries: tuple[Queued, ...]
    more: bool

    @property
    def queued(self) -> tuple[Queued, ...]:
        """The entries that apply: they are in the queue now."""
        return tuple(item for item in self.entries if not item.change.is_empty)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A replica's state as coordination has it.

    Attributes
    ----------
    place
        Where it stands.
    queue
        What it has pulled and not executed, ascending.
    held
        The registered parts that no other one covers.
    covered
        Names of registered parts that another registered part covers: they are not needed any more.
    """

    place: Place
    queue: tuple[Queued, ...]
    held: PartSet
    covered: tuple[str, ...] = ()

    @property
    def is_torn(self) -> bool:
        """Whether a pull in doubt took place between the reads: the queue is then that of a later pointer than was read.

        The next pull is refused, and the state read again.  Until then the position of the parts is unknown.
        """
        return any(item.index >= self.place.pointer.index for item in self.queue)


@dataclass(frozen=True, slots=True)
class PointerMoved:
    """The pointer is not what the caller believed; read it and the queue again."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The epoch is not the replica's any more, or the table is gone; renew it, or stop."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The entry at `index` is gone: this replica is lost, or a pull in doubt took place after its pointer was read."""

    index: fx.LogIndex


PullOutcome: TypeAlias = Pulled | PointerMoved | Fenced | Gap


def read_pointer(replica: Replica) -> fx.Procedure[Pointer | Fenced]:
    """Read where the replica stands in the log; `Fenced`: it was dropped, and has no pointer any more."""
    node = yield fx.Get(layout.log_pointer(replica))
    if node is None:
        return Fenced()
    return Pointer(layout.pointer_index(node.value), node.version, layout.pointer_open(node.value))


def pull_log(replica: Replica, epoch: fx.Epoch, place: Place, count: int = 1) -> fx.Procedure[PullOutcome]:
    """Copy up to `count` entries from the pointer on into the queue, those that apply.

    Parameters
    ----------
    replica, epoch
        Whose queue, and the epoch under which it is active.
    place
        Where the replica stands, as it was last loaded or returned.
    count
        From 1 to `PULL_ENTRIES_MAX`.
    """
    assert 1 <= count <= PULL_ENTRIES_MAX
    table, pointer = replica.table, place.pointer
    paths = tuple(layout.log_entry(table, pointer.index + i) for i in range(count))
    many: fx.Many = yield fx.GetMany((*paths, layout.log(table)), watch=layout.log_entry(table, pointer.index + count))
    *found, log = many.nodes
    nodes = [node for node in found if node is not None]
    dense = found.index(None) if None in found else count
    if log is None:
        return Fenced()
    if dense < count and begins_after(table, log, fx.LogIndex(pointer.index + dense)):
        return Gap(fx.LogIndex(pointer.index + dense))
    later_seen = len(nodes) > dense or (many.watched and dense < count)
    if later_seen and dense == 0:
        confirmed = yield fx.Get(paths[0])
        return Gap(pointer.index) if confirmed is None else Pulled(place, (), more=True)
    raw = tuple(node.value for node in nodes[:dense])
    more = many.watched if dense == count else later_seen
    # The read set its watch behind the entries that it asked for, so the next entry gets a watch of its own.
    if not more and dense < count:
        more = yield fx.Exists(paths[dense], watch=True)
    if not raw:
        return Pulled(place, (), more)
    return (yield from _advance(replica, epoch, place, raw, more))


def _advance(
    replica: Replica, epoch: fx.Epoch, place: Place, raw: tuple[bytes, ...], more: bool
) -> fx.Procedure[PullOutcome]:
    """Move the pointer past entries, and those that apply into the queue, in one commit."""
    pointer, parts, opened = place.pointer, place.parts, place.open
    entries: list[Queued] = []
    creates: list[fx.Create] = []
    after = pointer.index
    for value in raw:
        index = after
        entry = decode_entry(value, layout.log_entry(replica.table, index))
        parts, change = apply(parts, index, entry, opened=opened)
        opened = open_after(opened, index, entry)
        entries.append(Queued(index, entry, change))
        if not change.is_empty:
            creates.append(fx.Create(layout.queue_entry(replica, index), value))
        after = next_index(index, entry)
        more = more or isinstance(entry, RollEntry)
    outcome = yield fx.Commit(
        fx.Check(layout.host(replica), epoch),
        fx.Set(layout.log_pointer(replica), layout.pointer_value(after, opened), pointer.version),
        *creates,
    )
    match outcome:
        case fx.Applied():
            return Pulled(Place(Pointer(after, fx.Version(pointer.version + 1), opened), parts), tuple(entries), more)
        case fx.Refused(operation=fx.Check()):
            return Fenced()
        case fx.Refused() | fx.Unknown():
            return PointerMoved()
    raise AssertionError(outcome)


def load(replica: Replica) -> fx.Procedure[Loaded | Fenced]:
    """Read a replica's state; it must not pull meanwhile, but it may execute.  `Fenced`: the replica was dropped."""
    pointer = yield from read_pointer(replica)
    if isinstance(pointer, Fenced):
        return pointer
    # The queue is read before the registered parts: what is executed in between moves from the queue to the parts, and is seen
    # in one of the two at least.
    names = (yield fx.Children(layout.queue(replica))) or ()
    indexes = sorted(layout.queue_index(name) for name in names)
    paths = tuple(layout.queue_entry(replica, index) for index in indexes)
    many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    entries = tuple(
        (index, decode_entry(node.value, path))
        for index, path, node in zip(indexes, paths, many.nodes, strict=True)
        if node is not None
    )
    registered: tuple[Part, ...] = tuple(parse_part(name) for name in (yield fx.Children(layout.parts(replica))) or ())
    parts, changes = restore(registered, entries)
    queue = tuple(Queued(index, entry, change) for (index, entry), change in zip(entries, changes, strict=True))
    held = PartSet.of(maximal(registered))
    covered = tuple(sorted(part.name for part in registered if part not in held))
    return Loaded(Place(pointer, parts), queue, held, covered)
