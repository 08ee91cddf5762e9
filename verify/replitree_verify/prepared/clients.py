"""Clients that make the result of a merge elsewhere: a driver asks one replica, and a task puts the objects.

The replica runs the stages of `replitree.protocol.program` for the driver, then executes the merge.  That it has a result is
memory: after a crash the driver does not ask again, and the replica merges by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Get
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.program import executor, leader, uploader
from replitree.protocol.program.stages import End, Then
from replitree.protocol.shares.share import ObjectsThere, ShareId
from replitree_verify.merging.processes import Task
from replitree_verify.merging.world import ITEM
from replitree_verify.shared_tables.replicas import go_on
from replitree_verify.shared_tables.world import TABLE, replica_of, sharer_of
from replitree_verify.world.objects import PutObjects


@dataclass(frozen=True, slots=True)
class NameUpload:
    """Outcome: a share that no replica has."""


@dataclass(frozen=True, slots=True)
class KeepResult:
    """The process has a result of the merge in this share; it is lost with the process.  Outcome: None."""

    share: ShareId


def first_share_of(name: str) -> ShareId:
    """Return the share that the first upload of a replica has."""
    return ShareId(f"{name}-0")


def prepare(name: str, is_put: bool = False) -> Task:
    """Begin an upload for the result at a replica whose process began before all this; `is_put`: the result is put at once."""
    epoch = yield from go_on()
    share: ShareId = yield NameUpload()
    begun = yield from uploader.begin_upload(sharer_of(name), epoch, (share,))
    if is_put:
        yield PutObjects(share)
    next_stage = (publish, (name, share)) if begun == End(outcome=True) else (executor.make_next, (replica_of(name),))
    return Then(*next_stage)


def publish(name: str, share: ShareId) -> Task:
    """Publish the result, if what was put is there by then; the replica proposes the merge, as another one has done."""
    sealed = yield from uploader.seal_upload(sharer_of(name), (share,))
    if sealed == End(ObjectsThere()):
        yield KeepResult(share)
        assert isinstance(ITEM.entry, MergeEntry)
        yield from leader.lead(replica_of(name), (ITEM.entry,), sharer_of(name))
    return Then(executor.make_next, (replica_of(name),))


def put(name: str) -> Task:
    """Put the objects of a replica's first upload, once coordination has noted it, at any time."""
    share = first_share_of(name)
    if (yield Get(layout.writing(TABLE, share))) is not None:
        yield PutObjects(share)
    return None


__all__ = ["KeepResult", "NameUpload", "first_share_of", "prepare", "publish", "put"]
