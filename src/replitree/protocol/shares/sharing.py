"""Sharing: what a replica of a table on an object store does besides what every replica does.

Every procedure of such a replica runs through `with_shares` (one that began before the table had a store, through
`with_shares_once_open`), which leaves the procedure unchanged and adds to its effects:

=====================  ====================================================================================================
a part is staged       note the attempt (`writing/<share>`), then put the objects; a part that can't be put was not staged.
                       A result that each replica makes for itself is not put: every replica would store a copy
a commit registers     in the same commit: a share that this replica wrote gets its node and its mark, and the attempt's node
                       is deleted; a share that it took over gets its mark
=====================  ====================================================================================================

Three duties are its own:

* `letting_go.let_go_of`: release a share whose part has left the disk.  So a mark lives as long as the part is on its replica's
  disk: also while the part is old, and kept for readers.
* `letting_go.give_up_attempts`: attempts without anything on the disk, because a crash came in between, become garbage.
* `share.work_off`: any replica deletes the garbage.

So a share whose objects may be in the store is in exactly one state, at every moment: being written, owned, or garbage; each
transition is one commit that deletes the node of the state before.

*Too late.*  A replica that takes a part over when the last owner has released it is refused, since there is no node to mark.
The part was never registered; its folder is moved away (`ForgetParts`), and the procedure gets the outcome that its commit was
refused.

Where to look: the effects on process, disk and store are in `protocol.shares.share_effects`; marks in `protocol.shares.owning`;
releasing in `protocol.shares.letting_go`; the identity of the store in `protocol.shares.table_store`.

Source: design 6; ``spec/zero_copy.md`` 1.5, 1.8, 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.run import translate
from replitree.protocol.shares.letting_go import give_up
from replitree.protocol.shares.owning import own, own_registered
from replitree.protocol.shares.share import ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import (
    LocalSharing,
    NameShares,
    PutShares,
    SharedPart,
    Sharer,
    SharesOf,
    SharesSettled,
)

_T = TypeVar("_T")


def with_shares(sharer: Sharer, procedure: fx.Procedure[_T]) -> fx.Procedure[_T]:
    """Return a procedure that does the same, and keeps the shares of the parts that it stages and registers.

    Parameters
    ----------
    sharer
        The replica that runs it.
    procedure
        Any procedure of a replica.
    """

    def each(effect: fx.Effect) -> LocalSharing[object]:
        match effect:
            case fx.Stage() | fx.Merge() | fx.Mutate() | fx.Link():
                outcome = yield effect
                if not isinstance(outcome, fx.Staged | fx.Made) or not (isinstance(effect, fx.Stage) or effect.for_all):
                    return outcome
                return (yield from _put(sharer, effect.staging)) or outcome
            case fx.Commit():
                return (yield from _committed(sharer, effect))
        return (yield effect)

    # The result yields effects on objects, too, and the interpreter must perform them.
    return translate(procedure, each)


def with_shares_once_open(sharer: Callable[[], Sharer | None], procedure: fx.Procedure[_T]) -> fx.Procedure[_T]:
    """Return a procedure that does as `with_shares` from the moment that its table has a store, even if it runs already.

    A part that it fetches after that comes with a share, and is registered with its mark.

    Parameters
    ----------
    sharer
        Returns the replica that runs it; None: the replica has not opened a store.
    procedure
        Any procedure of a replica that has none when the procedure begins.
    """
    outcome: object = None
    known: Sharer | None = None
    try:
        while True:
            effect = procedure.send(outcome)
            # What was staged with a share is registered with its mark, even if the store is not used any more.
            known = known or sharer()
            outcome = (yield effect) if known is None else (yield from with_shares(known, _alone(effect)))
    except StopIteration as stop:
        return cast("_T", stop.value)
    finally:
        procedure.close()


def _alone(effect: fx.Effect) -> fx.Procedure[object]:
    return (yield effect)


def _put(sharer: Sharer, staging: fx.StagingId) -> LocalSharing[fx.StoreFailed | None]:
    named: tuple[ShareId, ...] = yield NameShares(staging)
    if not named:
        return None
    table, epoch = sharer.replica.table, (yield fx.CurrentEpoch())
    if epoch is None:
        yield SharesSettled(named)
        return fx.StoreFailed("the replica is not active any more; try again")
    proof = fx.Check(layout.host(sharer.replica), epoch)
    noted = yield fx.Commit(proof, *(fx.Create(layout.writing(table, each), sharer.signature) for each in named))
    if not isinstance(noted, fx.Applied):
        yield SharesSettled(named)
        return fx.StoreFailed("coordination did not take note of what is to be put into the object store; try again")
    put = yield PutShares(staging)
    if isinstance(put, ObjectsThere):
        return None
    for each in named:
        yield from give_up(proof, sharer, each)
    return fx.StoreFailed(f"the object store did not take the part: {put.problem}")


def _committed(sharer: Sharer, effect: fx.Commit) -> LocalSharing[fx.Committed]:
    """Commit, and in the same commit own the shares of the parts that it registers."""
    prefix = f"{layout.parts(sharer.replica)}/"
    # A node that is created and deleted in one commit proves only that it was not there (`not_registered`).
    again = frozenset(each.path for each in effect.operations if isinstance(each, fx.Delete))
    # A registration that gets other content does so because the part was made anew: its rows may lie in another share.
    named = (each for each in effect.operations if isinstance(each, fx.Create | fx.Set))
    paths = (each.path for each in named if each.path not in again)
    registered = tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix))
    shared: tuple[SharedPart, ...] = (yield SharesOf(registered)) if registered else ()
    if not shared:
        plain: fx.Committed = yield effect
        return plain
    outcome = yield from own(sharer, effect.operations, shared)
    # An earlier try has registered the part, perhaps with other objects.
    if (
        isinstance(outcome, fx.Refused)
        and outcome.reason is fx.Reason.NODE_EXISTS
        and outcome.operation.path.startswith(f"{layout.parts(sharer.replica)}/")
    ):
        late = tuple(part for part in shared if outcome.operation.path == layout.part(sharer.replica, part.part))
        yield from own_registered(sharer, late)
    return outcome


__all__ = ["with_shares", "with_shares_once_open"]
