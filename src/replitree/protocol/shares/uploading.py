"""Uploads into the object store: a process other than the registering replica may put the objects of a part.

The replica has the attempt; another process, such as a task of Spark, puts the objects:

1. *begin*   the replica names a share, notes on its disk that an upload has it, and notes the attempt (`begin_attempts`);
             only then it tells the name to the uploader
2. *put*     the uploader puts objects, at any time, also when the rest is over
3. *take*    the replica makes sure that the attempts are still noted and that the objects exist (`take_attempts`); it stages
             the parts with manifests that name the shares, and goes on as with objects that it has put itself

So a share passes through the same states as any other (`protocol.shares.sharing`).  From 1 on the attempt is this replica's.
No process gives it up while the replica's disk or process has the share: not an activation, which asks the disk, nor fsck,
which fences the replica and asks.  A share that an upload did not need, or whose upload is gone, is given up by
`letting_go.let_go_of`.

An object that is put after the attempt was given up and its garbage deleted belongs to no replica: fsck finds and deletes it.
"""

from __future__ import annotations

from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.shares.share import LookAtObjects, ObjectsInDoubt, ObjectsThere, ShareId, Sharing
from replitree.protocol.shares.share_effects import Sharer


class AttemptLost(Enum):
    """Why nothing can be taken, besides objects that are not there."""

    GIVEN_UP = "an attempt is not noted any more: its objects are deleted, or will be"


def begin_attempts(sharer: Sharer, epoch: fx.Epoch, shares: tuple[ShareId, ...]) -> fx.Procedure[bool]:
    """Note attempts; whether that was certainly done.

    Parameters
    ----------
    sharer, epoch
        The replica that has them, and its epoch.
    shares
        Their names, at least one; its disk has them.

    Returns
    -------
    If not, some may still be noted later: no uploader gets the names, and they are given up with the next epoch.
    """
    table = sharer.replica.table
    outcome = yield fx.Commit(
        fx.Check(layout.host(sharer.replica), epoch),
        *(fx.Create(layout.writing(table, each), sharer.signature) for each in shares),
    )
    return isinstance(outcome, fx.Applied)


def noted_attempts(sharer: Sharer, shares: tuple[ShareId, ...]) -> fx.Procedure[tuple[ShareId, ...]]:
    """Return those of the shares whose attempts coordination has noted for this replica.  Parameters as of `begin_attempts`."""
    table = sharer.replica.table
    yield fx.Sync(layout.all_writing(table))
    many: fx.Many = yield fx.GetMany(tuple(layout.writing(table, each) for each in shares))
    found = zip(shares, many.nodes, strict=True)
    return tuple(share for share, node in found if node is not None and node.value == sharer.signature)


def take_attempts(sharer: Sharer, shares: tuple[ShareId, ...]) -> Sharing[ObjectsThere | ObjectsInDoubt | AttemptLost]:
    """Find out whether parts can be made of the objects that an uploader has put.

    Parameters
    ----------
    sharer, shares
        As in `begin_attempts`.

    Returns
    -------
    `ObjectsThere`: all of them.
    """
    # The attempts stay noted until the parts are registered, because only this replica gives them up.
    if (yield from noted_attempts(sharer, shares)) != shares:
        return AttemptLost.GIVEN_UP
    looked: ObjectsThere | ObjectsInDoubt = yield LookAtObjects(shares)
    return looked


__all__ = ["AttemptLost", "begin_attempts", "noted_attempts", "take_attempts"]
