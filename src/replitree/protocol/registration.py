"""What the executions of all kinds of entries share: their outcomes, and the commits that register parts.

File first, node second, visible third; a removal goes the opposite way.  So a registered part is always on disk, and a read
never shows a part that the replica could lose by a crash.

A commit with an unknown outcome needs no new epoch: a queue entry can be deleted only once and never comes back, and so can
a part's node, so a late commit and a repeated one exclude each other.  The caller loads its state again and does what is left.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Commit,
    Committed,
    Create,
    Delete,
    Epoch,
    LogIndex,
    Operation,
    Procedure,
    Refused,
    Reveal,
)
from replitree.protocol.entries import DropEntry, Entry, GetEntry, LostEntry
from replitree.protocol.fold import maximal
from replitree.protocol.layout import Replica
from replitree.protocol.part_set import PartSet
from replitree.protocol.parts import Part, parse_part
from replitree.protocol.pull import Fenced, Queued
from replitree.protocol.share_effects import Sharer


@dataclass(frozen=True, slots=True)
class View:
    """What an execution goes by: a recent state of the replica.  An older one only makes it be refused, or do too much.

    Attributes
    ----------
    parts
        The fold at the pointer: an entry whose result it does not cover is not worth executing.
    held
        What the replica has registered.
    blockers
        See `blockers`; only needed for an entry that removes.
    makes
        Whether this replica merges and mutates by itself now; otherwise it waits until it can fetch the result.
    kept, detached
        See `to_be_kept`, `to_be_detached`.
    broken
        What is held and not whole on disk: nothing can be made of it.
    opened
        The inserts whose quorum is open at the pointer, ascending.
    sharer
        Who the replica is to the others where one makes a result for all (`protocol.make_once`); None: each makes its own.
    is_overdue
        It has waited for the others long enough, and makes by itself what it can't have from them.
    """

    parts: PartSet
    held: PartSet
    blockers: tuple[Queued, ...] = ()
    makes: bool = True
    kept: PartSet = PartSet()  # noqa: RUF009 - immutable
    broken: frozenset[Part] = frozenset()
    opened: tuple[LogIndex, ...] = ()
    sharer: Sharer | None = None
    is_overdue: bool = False
    detached: PartSet = PartSet()  # noqa: RUF009 - immutable

    def wants(self, part: Part) -> bool:
        """Whether the table still has a part's rows, and the replica has them neither as this part nor as a later one.

        What a detach takes out is gone from the table, also where a part reaches over it that was merged of its neighbours
        since.  Others may have it no more, and that part is not fetched in its place while a detach waits for it.
        """
        is_there = self.parts.covering(part) is not None and self.detached.covering(part) is None
        return is_there and self.held.covering(part) is None

    def can_make_of(self, sources: Iterable[Part]) -> bool:
        """Whether this replica makes results now, and has all these parts, whole."""
        return self.makes and all(source in self.held and source not in self.broken for source in sources)

    def must_keep(self, part: Part) -> bool:
        """Whether a detach in the queue is to keep a part's rows aside, and the replica does not have them yet."""
        return self.kept.covering(part) is not None and self.held.covering(part) is None

    def hides_kept(self, result: Part) -> bool:
        """Whether a part reaches over another one that a detach in the queue is still to keep aside."""
        return bool(self.kept) and bool(self.kept.between(result.partition, result.block_min, result.block_max))


def to_be_kept(queue: Iterable[Queued]) -> PartSet:
    """Return the parts that the detaches of a queue take out of the table, to be kept aside; and those that are lost.

    The writer of an insert brings it before a detach removes it, although the table has no use for it any more: otherwise
    its rows would be kept nowhere.  And nothing takes the place of such a part before it is kept.

    The same goes for a part that is lost: nothing is made of rows of it that have turned up here all the same.
    """
    parts: list[Part] = []
    for item in queue:
        if isinstance(item.entry, LostEntry):
            parts.append(parse_part(item.entry.part))
        else:
            parts += _detached(item)
    return PartSet.of(maximal(parts))


def to_be_detached(queue: Iterable[Queued]) -> PartSet:
    """Return the parts that the detaches of a queue take out of the table."""
    return PartSet.of(maximal(part for item in queue for part in _detached(item)))


def _detached(item: Queued) -> tuple[Part, ...]:
    return item.change.removed if isinstance(item.entry, DropEntry) and item.entry.detach else ()


def blockers(queue: Iterable[Queued], running: Container[LogIndex], index: LogIndex) -> tuple[Queued, ...]:
    """Return the entries before `index` that may still bring something which the entry at `index` removes.

    Parameters
    ----------
    queue
        The replica's queue in ascending order of index.
    running
        The entries that are being executed by this process: they may have begun before the removal was known.  Of those that
        are not, merges and mutations need parts that are there, and only inserts bring what was not there before.  A detach
        brings nothing, but has to keep aside what is there.
    """
    return tuple(item for item in queue if item.index < index and (item.index in running or _is_waited_for(item.entry)))


def _is_waited_for(entry: Entry) -> bool:
    return isinstance(entry, GetEntry) or (isinstance(entry, DropEntry) and entry.detach)


@dataclass(frozen=True, slots=True)
class Postponed:
    """An entry that could not be executed now, and why; `is_told`: the replica will be told when to try again."""

    index: LogIndex
    reason: str
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Executed:
    """`done` left the queue, what they brought is registered and visible; `postponed` stay in it.

    `left_out`: so did all of it, but for the operations that were not certain to hold (`finish`).
    """

    done: tuple[LogIndex, ...]
    postponed: tuple[Postponed, ...] = ()
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class QueueMoved:
    """The replica's state is not what the caller believed; load it again."""


ExecuteOutcome: TypeAlias = Executed | QueueMoved | Fenced


BROKEN = b"broken "
"""Begins the value of a registered part whose files are broken on its replica, and that nobody could send."""


def broken_value(content_hash: str) -> bytes:
    """Return the value of a registered part that is broken.

    >>> broken_value("ab12")
    b'broken ab12'
    """
    return BROKEN + content_hash.encode()


def is_broken(value: bytes) -> bool:
    """Whether the value of a registered part says that its files are broken."""
    return value.startswith(BROKEN)


def content_of(value: bytes) -> str:
    """Return the content hash that a registered part should have, broken or not.

    >>> content_of(b"broken ab12"), content_of(b"ab12")
    ('ab12', 'ab12')
    """
    return value.removeprefix(BROKEN).decode()


def register(replica: Replica, part: Part, content_hash: str) -> Create:
    """Return the operation by which a replica claims to have a part."""
    return Create(layout.part(replica, part.name), content_hash.encode())


def deregister(replica: Replica, part: Part) -> Delete:
    """Return the operation by which a replica takes back that it has a part."""
    return Delete(layout.part(replica, part.name), ANY_VERSION)


def leave_queue(replica: Replica, index: LogIndex) -> Delete:
    """Return the operation that takes an entry out of the queue."""
    return Delete(layout.queue_entry(replica, index), ANY_VERSION)


def finish(
    replica: Replica,
    epoch: Epoch,
    done: tuple[LogIndex, ...],
    operations: tuple[Operation, ...] = (),
    shown: tuple[Part, ...] = (),
    gone: tuple[Part, ...] = (),
    uncertain: tuple[Operation, ...] = (),
) -> Procedure[ExecuteOutcome]:
    """Commit what an execution has brought, take its entries out of the queue, and let reads see it.

    `uncertain` go along if all of them hold; otherwise the commit is made without them.
    """
    certain = (Check(layout.host(replica), epoch), *operations, *(leave_queue(replica, index) for index in done))
    committed = yield Commit(*certain, *uncertain)
    left_out = isinstance(committed, Refused) and committed.operation in uncertain
    if left_out:
        committed = yield Commit(*certain)
    if isinstance(committed, Applied) and (shown or gone):
        yield Reveal(tuple(part.name for part in shown), tuple(part.name for part in gone))
    return Executed(done, left_out=left_out) if isinstance(committed, Applied) else failure(committed)


def failure(committed: Committed) -> QueueMoved | Fenced:
    """Return what a commit that was not applied means for the caller."""
    match committed:
        case Refused(operation=Check()):
            return Fenced()
    return QueueMoved()


def postpone(index: LogIndex, reason: str, *, is_told: bool = False) -> Executed:
    """Return the outcome of an execution that has to wait."""
    return Executed((), (Postponed(index, reason, is_told),))
