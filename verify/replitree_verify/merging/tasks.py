"""What the processes of a model do, as a replica does it: they execute a merge, and give up the marks that were left.

The merge is in everybody's queue.  Who waits for a mark is told when it is gone; who makes nothing waits for the result; all
else is tried again at once.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.protocol.core import layout
from replitree.protocol.core.effects import AdoptEpoch, Children, Epoch, LogIndex
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.core.fold import Change
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import merged_part, parse_part
from replitree.protocol.execute.merge import execute_merge
from replitree.protocol.program.stages import Then
from replitree.protocol.shares import sharing
from replitree.protocol.state import work_mark
from replitree.protocol.state.pull import Fenced, Queued
from replitree.protocol.state.registration import Executed, View
from replitree_verify.shared_tables.activation import begin
from replitree_verify.shared_tables.replicas import let_go
from replitree_verify.shared_tables.world import TABLE, replica_of, sharer_of

SOURCE = parse_part("all_0_0_0")
RESULT = merged_part((SOURCE,))
ITEM = Queued(LogIndex(1), MergeEntry("r1", (SOURCE.name,), 1), Change((SOURCE,), (RESULT,)))
MARK, DONE = layout.merged(TABLE, RESULT.name), layout.result(TABLE, RESULT.name)

Task: TypeAlias = Generator[Any, Any, Then | None]


@dataclass(frozen=True, slots=True)
class AwaitGone:
    """Wait until a node that is watched is not there.  Outcome: None."""

    path: str


@dataclass(frozen=True, slots=True)
class AwaitThere:
    """Wait until a node is there.  Outcome: None."""

    path: str


@dataclass(frozen=True, slots=True)
class MayMake:
    """Outcome: whether this replica makes results."""


@dataclass(frozen=True, slots=True)
class MakesForAll:
    """Outcome: whether results go into the store, as far as the replica knows, so that one makes them for all."""


@dataclass(frozen=True, slots=True)
class AwaitLeft:
    """Wait until there is a mark of this replica under which it makes nothing.  Outcome: its epoch."""

    replica: str


def merge(name: str) -> Task:
    """Begin a process, and execute the merge if it is still in the queue."""
    epoch = yield from begin(name)
    return None if epoch is None else Then(attempt, (name, epoch))


def running(name: str) -> Task:
    """Execute the merge as a process that began before all this."""
    yield AdoptEpoch(Epoch(0))
    return Then(attempt, (name, Epoch(0)))


def come_back(name: str) -> Task:
    """Begin a process when somebody has registered the result."""
    yield AwaitThere(DONE)
    return Then(merge, (name,))


def attempt(name: str, epoch: Epoch) -> Task:
    """Execute the merge, once; then wait for what it waits for, or try again."""
    replica, sharer = replica_of(name), sharer_of(name)
    if not (yield Children(layout.queue(replica))):
        return None
    held: tuple[str, ...] = yield Children(layout.parts(replica))
    makes: bool = yield MayMake()
    for_all: bool = yield MakesForAll()
    wanted, here = PartSet.of((RESULT,)), PartSet.of(map(parse_part, held))
    view = View(wanted, here, makes=makes, sharer=sharer if for_all else None)
    match (yield from sharing.with_shares(sharer, execute_merge(replica, epoch, view, ITEM))):
        case Fenced():
            return Then(merge, (name,))
        case Executed(done=(), postponed=(postponed,)) if postponed.is_told:
            yield from wait_for_mark()
        case Executed(done=()) if not makes:
            yield AwaitThere(DONE)
    return Then(attempt, (name, epoch))


def wait_for_mark() -> Generator[Any, Any, None]:
    """Wait until the mark that was found is gone."""
    yield AwaitGone(MARK)


def restart(name: str) -> Task:
    """Begin a process that settles what is left, and let go of that; the last task of a replica."""
    epoch = yield from begin(name)
    if epoch is not None:
        yield from let_go(name, epoch)
    return None


def give_up_left(name: str) -> Task:
    """Give up the marks of a replica that were left, whenever there is one."""
    epoch = yield AwaitLeft(name)
    yield from work_mark.give_up_left(sharer_of(name), epoch)
    return Then(give_up_left, (name,))


__all__ = [
    "DONE",
    "ITEM",
    "MARK",
    "RESULT",
    "SOURCE",
    "AwaitGone",
    "AwaitLeft",
    "AwaitThere",
    "MakesForAll",
    "MayMake",
    "attempt",
    "come_back",
    "give_up_left",
    "merge",
    "restart",
    "running",
    "wait_for_mark",
]
