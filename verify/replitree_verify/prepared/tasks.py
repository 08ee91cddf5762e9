"""What the processes do: a task of somebody else puts a result, a replica takes it for the merge, or merges by itself.

The replica's disk has the upload, with its share, from before the attempt is noted until the part is staged.  That the result
is prepared is memory: who comes after a crash merges by itself.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from replitree.protocol.core import layout
from replitree.protocol.core.effects import AdoptEpoch, Children, Epoch, Get, Merge
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.core.run import translate
from replitree.protocol.execute.merge import execute_merge
from replitree.protocol.program.stages import Then
from replitree.protocol.shares import letting_go, sharing, uploading
from replitree.protocol.shares.share import (
    ObjectsThere,
    ShareId,
)
from replitree.protocol.state import work_mark
from replitree.protocol.state.pull import Fenced
from replitree.protocol.state.registration import Executed, View
from replitree_verify.merging import tasks as merging
from replitree_verify.merging.tasks import ITEM, RESULT, Task
from replitree_verify.shared_tables import activation
from replitree_verify.shared_tables.world import TABLE, replica_of, sharer_of
from replitree_verify.world.objects import PutObjects


@dataclass(frozen=True, slots=True)
class BeginUpload:
    """Note an upload on the disk, with a share that nobody has.  Outcome: the share."""


@dataclass(frozen=True, slots=True)
class ListUploads:
    """Outcome: the shares of the uploads that the disk has."""


@dataclass(frozen=True, slots=True)
class ForgetUpload:
    """Forget an upload: nothing is left of it.  Outcome: None."""

    share: ShareId


@dataclass(frozen=True, slots=True)
class TakePrepared:
    """Stage what was prepared, with the share that its upload has.  Outcome: as of a merge."""

    share: ShareId


def first_share_of(name: str) -> ShareId:
    """Return the share that the first upload of a replica has."""
    return ShareId(f"{name}-0")


def prepare(name: str) -> Task:
    """Take an upload's objects for the result, if they are there by then; execute the merge with them, or without."""
    if (yield ListUploads()):  # of a process that was killed
        return Then(begin, (name, None))
    epoch = Epoch(0)
    yield AdoptEpoch(epoch)
    share: ShareId = yield BeginUpload()
    prepared = None
    if (yield from uploading.begin_attempts(sharer_of(name), epoch, (share,))):
        taken = yield from uploading.take_attempts(sharer_of(name), (share,))
        prepared = share if isinstance(taken, ObjectsThere) else None
    if prepared is not None:
        yield from work_mark.take(sharer_of(name), epoch, RESULT.name)
    return Then(attempt, (name, epoch, prepared))


def begin(name: str, prepared: ShareId | None) -> Task:
    """Begin a process, or an epoch of one that has something prepared; execute the merge if it is still in the queue."""
    epoch = yield from activation.begin(name)
    return None if epoch is None else Then(attempt, (name, epoch, prepared))


def attempt(name: str, epoch: Epoch, prepared: ShareId | None) -> Task:
    """Execute the merge, once, with what is prepared; then wait for what it waits for, or try again."""
    replica, sharer = replica_of(name), sharer_of(name)
    if not (yield Children(layout.queue(replica))):
        return None
    held: tuple[str, ...] = yield Children(layout.parts(replica))
    view = View(PartSet.of((RESULT,)), PartSet.of(map(parse_part, held)), makes=True, sharer=sharer)
    executing = sharing.with_shares(sharer, execute_merge(replica, epoch, view, ITEM))
    outcome, left = yield from _with_prepared(executing, prepared)
    match outcome:
        case Fenced():
            return Then(begin, (name, left))
        case Executed(done=(), postponed=(postponed,)) if postponed.is_told:
            yield from merging.wait_for_mark()
    return Then(attempt, (name, epoch, left))


def _with_prepared(
    procedure: Generator[Any, Any, Any], prepared: ShareId | None
) -> Generator[Any, Any, tuple[Any, ShareId | None]]:
    """Run a procedure that merges, and give it what is prepared, once; return its outcome, and what is still prepared."""
    left = prepared

    def each(effect: Any) -> Generator[Any, Any, Any]:
        nonlocal left
        if isinstance(effect, Merge) and left is not None:
            effect, left = TakePrepared(left), None
        return (yield effect)

    outcome = yield from translate(procedure, each)
    return outcome, left


def put(name: str) -> Task:
    """Put the objects of a replica's first upload, once it has told its share, at any time."""
    share = first_share_of(name)
    if (yield Get(layout.writing(TABLE, share))) is not None:
        yield PutObjects(share)
    return None


def forget(name: str) -> Task:
    """Give up what was put and is not needed; the upload is gone by then."""
    for _ in range(2):
        if not (yield ListUploads()):
            return None
        epoch = yield from activation.begin(name)
        if epoch is None:
            return None
        for share in (yield ListUploads()):
            if (yield from letting_go.let_go_of(sharer_of(name), epoch, "", share)):
                yield ForgetUpload(share)
    return None


__all__ = [
    "BeginUpload",
    "ForgetUpload",
    "ListUploads",
    "TakePrepared",
    "attempt",
    "begin",
    "first_share_of",
    "forget",
    "prepare",
    "put",
]
