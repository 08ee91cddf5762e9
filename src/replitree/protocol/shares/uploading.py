"""Uploads into the object store: who puts the objects of a part need not be the replica that registers it.

A replica has the attempt, somebody else, such as a task of Spark, puts the objects:

1. *begin*   the replica names a share, notes on its disk that an upload has it, and notes the attempt (`begin_attempts`);
             only then the name is told
2. *put*     whoever was told puts objects, at any time, also when all the rest is over
3. *take*    the replica makes sure that the attempts are still noted and that the objects are there (`take_attempts`); it
             stages the parts with manifests that name the shares, and goes on as with what it has put itself

So there is no new way from one place of a share to another (`protocol.shares.sharing`).  From 1 on the attempt is this
replica's.  No process gives it up while the replica's disk or process has the share: not an activation, which asks the disk,
nor fsck, which fences the replica and asks.  A share that an upload did not need, or whose upload is gone, is given up by
`letting_go.let_go_of`.

What is put when the attempt was given up and its garbage worked off belongs to no replica: fsck finds and deletes it.
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
        Who has them.
    shares
        Their names, at least one; its disk has them.

    Returns
    -------
    If not, some may come to be noted: nobody is told the names, and they are given up with the next epoch.
    """
    table = sharer.replica.table
    outcome = yield fx.Commit(
        fx.Check(layout.host(sharer.replica), epoch),
        *(fx.Create(layout.writing(table, each), sharer.signature) for each in shares),
    )
    return isinstance(outcome, fx.Applied)


def take_attempts(sharer: Sharer, shares: tuple[ShareId, ...]) -> Sharing[ObjectsThere | ObjectsInDoubt | AttemptLost]:
    """Find out whether parts can be made of what somebody else has put.

    Who stages them now finds the attempts noted when it registers them: only this replica gives them up.

    Parameters
    ----------
    sharer, shares
        As in `begin_attempts`.

    Returns
    -------
    `ObjectsThere`: all of them.
    """
    table = sharer.replica.table
    yield fx.Sync(layout.all_writing(table))
    many: fx.Many = yield fx.GetMany(tuple(layout.writing(table, each) for each in shares))
    if any(node is None or node.value != sharer.signature for node in many.nodes):
        return AttemptLost.GIVEN_UP
    looked: ObjectsThere | ObjectsInDoubt = yield LookAtObjects(shares)
    return looked


__all__ = ["AttemptLost", "begin_attempts", "take_attempts"]
