"""Letting go: a part that has left a replica's disk loses its mark, and an attempt that is not wanted becomes garbage.

==================  =======================================================================================================
a part has left     `let_go_of_all`: one commit for its shares, or `let_go_of` for each; it also proves that the part is not
                    registered, or, where its rows have moved (`protocol.shares.moving`), that the mark was not written
                    since the disk was read
an attempt          becomes garbage: `give_up` when its objects could not be put, `give_up_published` when its part will
                    not be registered, `give_up_attempts` in an activation, `release_attempts` when its replica is dropped
==================  =======================================================================================================

A share that has lost its last owner is garbage from the same commit on (`share.let_go`).

Absent on purpose: when a part has left the disk (`replitree.storage.disk.shared`), how a mark is created
(`protocol.shares.owning`).
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.shares.share import LetGo, ShareId, ShareOwner, let_go
from replitree.protocol.shares.share_effects import (
    HasPart,
    LocalSharing,
    SharedPart,
    Sharer,
    SharesHere,
    SharesInDoubt,
    SharesOf,
    SharesSettled,
)

# --- of what has left the disk ------------------------------------------------------------------------------------------------


def let_go_of_all(sharer: Sharer, epoch: fx.Epoch, part: str, shares: tuple[ShareId, ...]) -> fx.Procedure[bool]:
    """Let go of all shares of a part that has left this disk; what it had is forgotten only then.

    In one commit, as a rule; one after the other where that is refused, such as when an earlier try came that far for some.

    Parameters
    ----------
    sharer, epoch, part
        As of `let_go_of`.
    shares
        What it had: its own, and those that it borrowed of.

    Returns
    -------
    Whether nothing of them is left in coordination; if not, all of it is to be tried again.
    """
    # Shares that were only staged have no marks.
    is_several = bool(part) and len(shares) > 1
    if is_several and (yield from _let_go_together(sharer, epoch, part, shares)):
        return True
    for share in shares:
        if not (yield from let_go_of(sharer, epoch, part, share)):
            return False
    return True


def _let_go_together(sharer: Sharer, epoch: fx.Epoch, part: str, shares: tuple[ShareId, ...]) -> LocalSharing[bool]:
    """Let go of all shares of a part of which nothing is here any more; False: look at each."""
    here: tuple[SharedPart, ...] = yield SharesOf((part,))
    if any(each.share in shares for each in here) or (yield HasPart(part)):
        return False
    owner = ShareOwner(sharer.replica, epoch, sharer.incarnation, part)
    return isinstance((yield from let_go(owner, shares, not_registered(sharer.replica, part))), LetGo)


def let_go_of(sharer: Sharer, epoch: fx.Epoch, part: str, share: ShareId) -> fx.Procedure[bool]:
    """Let go of one share of a part that has left this disk.

    Parameters
    ----------
    sharer, epoch
        Whose part it was.
    part
        Its name; empty when it was only staged.
    share
        What it had.

    Returns
    -------
    Whether nothing of it is left in coordination; if not it is to be tried again, such as when the part is registered.
    """
    proof = fx.Check(layout.host(sharer.replica), epoch)
    if not part:
        return (yield from _has_given_up(proof, sharer, share))
    here: tuple[SharedPart, ...] = yield SharesOf((part,))
    # The same part has come again, and the mark is its own.
    if any(each.share == share for each in here):
        return True
    if (yield HasPart(part)):
        return (yield from _let_go_of_moved(proof, sharer, SharedPart(part, share, is_new=False)))
    absent = not_registered(sharer.replica, part)
    outcome = yield from let_go(ShareOwner(sharer.replica, epoch, sharer.incarnation, part), (share,), absent)
    if isinstance(outcome, LetGo):
        return True
    yield fx.Sync(layout.shares(sharer.replica.table))
    if (yield fx.Get(sharer.mark(SharedPart(part, share, is_new=False)))) is not None:
        return False
    # A commit that is still to register the share needs the attempt, so it is refused after this.
    return (yield from _has_given_up(proof, sharer, share))


def _let_go_of_moved(proof: fx.Check, sharer: Sharer, moved: SharedPart) -> LocalSharing[bool]:
    """Let go of a share whose part is here with other rows: those have moved, or were to be moved."""
    # The mark is read first.  A replica that owns the share again, because the part has come back with it, writes the mark; so
    # what is seen on the disk after this read holds as long as the mark has its version.
    yield fx.Sync(layout.shares(sharer.replica.table))
    mark = yield fx.Get(sharer.mark(moved))
    if mark is None:
        return (yield from _has_given_up(proof, sharer, moved.share))
    here: tuple[SharedPart, ...] = yield SharesOf((moved.part,))
    if any(each.share == moved.share for each in here):
        return True
    owner = ShareOwner(sharer.replica, fx.Epoch(proof.version), sharer.incarnation, moved.part)
    as_it_was = fx.Check(sharer.mark(moved), mark.version)
    outcome = yield from let_go(owner, (moved.share,), (), unless=(as_it_was,))
    # The commit may delete the mark later, when the part has the share again.
    if isinstance(outcome, fx.InDoubt):
        yield SharesInDoubt((moved.share,))
    return isinstance(outcome, LetGo)


def not_registered(replica: Replica, part: str) -> tuple[fx.Operation, ...]:
    """Return the operations that prove in a commit that a part is not registered."""
    # ZooKeeper has no check for a missing node: only a node that is missing can be created, and it is deleted again.
    path = layout.part(replica, part)
    return fx.Create(path), fx.Delete(path, fx.ANY_VERSION)


# --- of what was begun --------------------------------------------------------------------------------------------------------


def _has_given_up(proof: fx.Check, sharer: Sharer, share: ShareId) -> fx.Procedure[bool]:
    """Give an attempt up if it is this replica's; True: there is none of it any more."""
    node = yield fx.Get(layout.writing(sharer.replica.table, share))
    if node is None or node.value != sharer.signature:
        return True
    return (yield from give_up(proof, sharer, share))


def give_up(proof: fx.Check, sharer: Sharer, share: ShareId) -> fx.Procedure[bool]:
    """Make garbage of an attempt; return whether that was applied.  `proof`: of the replica's epoch."""
    table = sharer.replica.table
    outcome = yield fx.Commit(
        proof, fx.Delete(layout.writing(table, share), fx.ANY_VERSION), fx.Create(layout.garbage(table, share))
    )
    return isinstance(outcome, fx.Applied)


def give_up_published(sharer: Sharer, epoch: fx.Epoch, part: str) -> fx.Procedure[bool]:
    """Give up the attempt of a part that is published here and was never registered, and never will be then.

    Returns
    -------
    False: it is registered, or may be; or it has no share that this replica has written.
    """
    proof = fx.Check(layout.host(sharer.replica), epoch)
    for shared in (yield SharesOf((part,))):
        if (yield from give_up(proof, sharer, shared.share)):
            yield SharesSettled((shared.share,))
            return True
    return False


def give_up_attempts(sharer: Sharer, epoch: fx.Epoch) -> fx.Procedure[int]:
    """Make garbage of this replica's attempts of which nothing is on the disk; return how many.  For an activation."""
    # Commits of an earlier process that are still under way are refused by the new epoch.
    table = sharer.replica.table
    yield fx.Sync(layout.all_writing(table))
    names: tuple[str, ...] = (yield fx.Children(layout.all_writing(table))) or ()
    many: fx.Many = (yield fx.GetMany(tuple(layout.writing(table, name) for name in names))) if names else fx.Many(())
    mine = tuple(
        name
        for name, node in zip(names, many.nodes, strict=True)
        if node is not None and node.value == sharer.signature
    )
    here: tuple[str, ...] = (yield SharesHere()) if mine else ()
    given_up = 0
    for name in mine:
        if name not in here:
            given_up += yield from give_up(fx.Check(layout.host(sharer.replica), epoch), sharer, ShareId(name))
    return given_up


def release_attempts(replica: Replica, proof: fx.Check) -> fx.Procedure[bool]:
    """Make garbage of all attempts of a replica that is being dropped, of all its incarnations; False: do it again."""
    table = replica.table
    for name in (yield fx.Children(layout.all_writing(table))) or ():
        node = yield fx.Get(layout.writing(table, name))
        if node is None or node.value.partition(b"~")[0] != replica.name.encode():
            continue
        outcome = yield fx.Commit(
            proof, fx.Delete(layout.writing(table, name), fx.ANY_VERSION), fx.Create(layout.garbage(table, name))
        )
        if not isinstance(outcome, fx.Applied):
            return False
    return True


__all__ = [
    "give_up",
    "give_up_attempts",
    "give_up_published",
    "let_go_of",
    "let_go_of_all",
    "not_registered",
    "release_attempts",
]
