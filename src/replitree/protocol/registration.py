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
from replitree.protocol.entries import GetEntry
from replitree.protocol.layout import Replica
from replitree.protocol.part_set import PartSet
from replitree.protocol.parts import Part
from replitree.protocol.pull import Fenced, Queued


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
    """

    parts: PartSet
    held: PartSet
    blockers: tuple[Queued, ...] = ()
    makes: bool = True

    def wants(self, part: Part) -> bool:
        """Whether the table still has a part's rows, and the replica has them neither as this part nor as a later one."""
        return self.parts.covering(part) is not None and self.held.covering(part) is None


def blockers(queue: Iterable[Queued], running: Container[LogIndex], index: LogIndex) -> tuple[Queued, ...]:
    """Return the entries before `index` that may still bring something which the entry at `index` removes.

    Parameters
    ----------
    queue
        The replica's queue in ascending order of index.
    running
        The entries that are being executed by this process: they may have begun before the removal was known.  Of those that
        are not, merges and mutations need parts that are there, and only inserts bring what was not there before.
    """
    return tuple(
        item for item in queue if item.index < index and (isinstance(item.entry, GetEntry) or item.index in running)
    )


@dataclass(frozen=True, slots=True)
class Postponed:
    """An entry that could not be executed now, and why."""

    index: LogIndex
    reason: str


@dataclass(frozen=True, slots=True)
class Executed:
    """`done` left the queue, what they brought is registered and visible; `postponed` stay in it."""

    done: tuple[LogIndex, ...]
    postponed: tuple[Postponed, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueMoved:
    """The replica's state is not what the caller believed; load it again."""


ExecuteOutcome: TypeAlias = Executed | QueueMoved | Fenced


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
) -> Procedure[ExecuteOutcome]:
    """Commit what an execution has brought, take its entries out of the queue, and let reads see it."""
    committed = yield Commit(
        Check(layout.host(replica), epoch), *operations, *(leave_queue(replica, index) for index in done)
    )
    if isinstance(committed, Applied) and (shown or gone):
        yield Reveal(tuple(part.name for part in shown), tuple(part.name for part in gone))
    return Executed(done) if isinstance(committed, Applied) else failure(committed)


def failure(committed: Committed) -> QueueMoved | Fenced:
    """Return what a commit that was not applied means for the caller."""
    match committed:
        case Refused(operation=Check()):
            return Fenced()
    return QueueMoved()


def postpone(index: LogIndex, reason: str) -> Executed:
    """Return the outcome of an execution that has to wait."""
    return Executed((), (Postponed(index, reason),))
