"""Moving: a registered part's rows go from this disk into the object store, or come back, while everything else goes on.

The part stays what it is: its name, its registration, its rows.  Only where the rows are changes, on one replica after another.

==============  ==============================================================================================================
into the store  a share of just these files that another replica has is taken over; where there is none, one replica at a time
                *claims* the part (an ephemeral node, so that the others wait for its share) and puts the files.  One commit
                owns the share; only then the part's manifest on this disk names it, and the files here are copies, which may go
out of it       the files are brought here, verified and synced; then the manifest says that they are here; then the share is
                let go of
==============  ==============================================================================================================

Before anything could own a share, or a share is left, the disk has a *note* of part and share, where what has left it is.
`sharing.let_go_of` works the notes off like all that is there: a part that has the share needs none; of any other the mark is
deleted, or the attempt given up.  So whatever a crash cuts off is undone, and no mark stays without something that tells of it.

*Two movers at once.*  Claims save work; nothing depends on them.  Without them both put, and both shares are owned.  A claim
that may be left of a lost answer, or of an earlier epoch, is given back under the new one, by the next activation
(`give_up_claims`), or by this replica's next try.

*No answer.*  When a replica or the store does not answer whether there is a share, the part is not put: it is tried again.  The
performer of `FindShare` limits for how long (`replica.parts.moving`).

*Several shares.*  A part has a share for each different set of files that replicas have of its rows, and one more when a claim
ends early, or when a replica takes a share over while the replica that it has asked moves the part out of the store.  Every
share has its own owners and goes with the last of them.

*In doubt.*  After a lost answer the note stays untouched until the replica has a new epoch (`SharesInDoubt`), and as long as
there is a note of a share, that is not taken over again: what is still on its way is refused by then.

*The part leaves meanwhile.*  Then its registration is gone, and later its folder: what it has by then is let go of.

Source: design 6; ``spec/zero_copy.md`` 1.10 (mark before swap), 2 (#33643, #71845, #57314), 3.2 (27).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.values import text_of
from replitree.protocol.shares.share import FRESH, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import SharedPart, Sharer, SharesInDoubt, SharesSettled

LEFT = "it has just left the disk, or the disk takes no more"

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindShare(fx.Effect):
    """Look whether another replica has the part's rows in a share, in just the files that are here, that can be read from here.

    Outcome: `FoundShare`; None: no active replica has one; or `ShareInDoubt`.
    """

    part: str


@dataclass(frozen=True, slots=True)
class FoundShare:
    """A share that another replica has; `is_noted`: it is still to be let go of here, and is not taken over before."""

    share: ShareId
    is_noted: bool = False


@dataclass(frozen=True, slots=True)
class ShareInDoubt:
    """A replica, or the store, gives no answer: there may be a share.  `problem` says which."""

    problem: str


@dataclass(frozen=True, slots=True)
class NameMove(fx.Effect):
    """Give a part of this disk a share.  Outcome: its name, which this process writes from now on."""

    part: str


@dataclass(frozen=True, slots=True)
class NoteMove(fx.Effect):
    """Note durably that the part may own the share; until `SharesSettled` no thread works the note off.

    Outcome: False if that can't be noted: the part has just left the disk, or the disk takes no more.
    """

    part: str
    share: ShareId


@dataclass(frozen=True, slots=True)
class PutPart(fx.Effect):
    """Put the part's files, verified, as the objects of the share, durably.  Outcome: `ObjectsThere` or `ObjectsInDoubt`."""

    part: str
    share: ShareId


@dataclass(frozen=True, slots=True)
class ToShare(fx.Effect):
    """Let the part's manifest name the share, durably.  Outcome: False if that can't be: its rows are not here any more."""

    part: str
    share: ShareId


@dataclass(frozen=True, slots=True)
class BringRows(fx.Effect):
    """Bring a share's files here, verify and sync them all.  Outcome: `ObjectsThere` or `ObjectsInDoubt`."""

    part: str
    share: ShareId


@dataclass(frozen=True, slots=True)
class ToDisk(fx.Effect):
    """Let the part's manifest say that its files are here, durably.  Outcome: False if that can't be: it has no such share."""

    part: str
    share: ShareId


LocalMoveEffect: TypeAlias = FindShare | NameMove | NoteMove | PutPart | ToShare | BringRows | ToDisk
_T = TypeVar("_T")
Moving: TypeAlias = Generator[fx.Effect | SharesSettled | SharesInDoubt | LocalMoveEffect, Any, _T]
"""A procedure that moves: yields effects on coordination, the disk and the store."""


# --- outcomes -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """The rows are where they were to go; `has_put`: this replica has put them into the store."""

    has_put: bool = False


@dataclass(frozen=True, slots=True)
class NotMoved:
    """They are where they were; `reason` says why, and it is to be tried again if the part is still here."""

    reason: str


MoveOutcome: TypeAlias = Moved | NotMoved | fx.InDoubt


# --- into the store -----------------------------------------------------------------------------------------------------------


def move_to_store(sharer: Sharer, part: str) -> Moving[MoveOutcome]:
    """Move the rows of a registered part of this disk into the store, once for all replicas.

    Parameters
    ----------
    sharer
        Whose part it is.
    part
        Its name; its files are on this disk.
    """
    outcome = yield from _if_there_is_a_share(sharer, part)
    if outcome is not None:
        return outcome
    proof = yield from _proof(sharer)
    if proof is None:
        return NotMoved("the replica is not active")
    claim = layout.moving(sharer.replica.table, part)
    claimed = yield fx.Commit(proof, fx.Create(claim, sharer.signature, ephemeral=True))
    match claimed:
        case fx.Refused():
            # A claim of this replica's own is left of an earlier try, and is given back.
            node, _ = yield from _give_back_own(sharer, claim)
            if node is None or node.value == sharer.signature:
                return NotMoved("the part could not be claimed; it is tried again")
            return NotMoved(f"{text_of(node.value, claim).partition('~')[0]} moves it")
        case fx.Unknown():
            return fx.InDoubt()
    # The replica that held the claim before may have put the files meanwhile.
    outcome = yield from _if_there_is_a_share(sharer, part)
    if outcome is None:
        outcome = yield from _put(sharer, proof, part)
    ended: fx.Committed | None = yield from _give_back(proof, claim)
    # A new epoch does not end the session, and so not the claim.
    if isinstance(ended, fx.Refused):
        _, ended = yield from _give_back_own(sharer, claim)
    return fx.InDoubt() if isinstance(ended, fx.Unknown) else outcome


def _give_back_own(sharer: Sharer, claim: str) -> Moving[tuple[fx.Node | None, fx.Committed | None]]:
    """End a claim that is this replica's, under the epoch that it has now; return the claim, and what became of that."""
    node: fx.Node | None = yield fx.Get(claim)
    proof = yield from _proof(sharer)
    if proof is None or node is None or node.value != sharer.signature:
        return node, None
    return node, (yield from _give_back(proof, claim))


def give_up_claims(sharer: Sharer) -> Moving[bool]:
    """Take back the claims that this replica may have left; for an activation, which refuses those that are on their way.

    Returns
    -------
    False: the answer was lost for one of them, so another epoch is needed.
    """
    place = layout.sharing(sharer.replica.table)
    yield fx.Sync(place)
    claims = tuple(f"{place}/{name}" for name in (yield fx.Children(place)) or () if name.startswith(layout.MOVING))
    many: fx.Many = (yield fx.GetMany(claims)) if claims else fx.Many(())
    own = (claim for claim, node in zip(claims, many.nodes, strict=True) if node and node.value == sharer.signature)
    for claim in own:
        proof = yield from _proof(sharer)
        if proof is not None and isinstance((yield from _give_back(proof, claim)), fx.Unknown):
            return False
    return True


def _give_back(proof: fx.Check, claim: str) -> Moving[fx.Committed]:
    """End a claim; not under a later epoch, when it may be another process's."""
    ended: fx.Committed = yield fx.Commit(proof, fx.Delete(claim, fx.ANY_VERSION))
    return ended


def _if_there_is_a_share(sharer: Sharer, part: str) -> Moving[MoveOutcome | None]:
    """Take a share over that another replica has; None when there is none."""
    found: FoundShare | ShareInDoubt | None = yield FindShare(part)
    if found is None:
        return None
    # If the files were put now, they could be a second copy for as long as the part lives.
    if isinstance(found, ShareInDoubt):
        return NotMoved(f"it is not known whether the store has it: {found.problem}")
    if found.is_noted:
        return NotMoved("the share that it had before is not let go of yet")
    share, proof = found.share, (yield from _proof(sharer))
    if proof is None:
        return NotMoved("the replica is not active")
    if not (yield NoteMove(part, share)):
        return (yield from _not_noted(share))
    place = layout.share(sharer.replica.table, share)
    return (yield from _own(sharer, proof, part, share, (fx.Check(place, FRESH),)))


def _put(sharer: Sharer, proof: fx.Check, part: str) -> Moving[MoveOutcome]:
    """Put a part's files under a noted attempt, and own them."""
    table = sharer.replica.table
    share: ShareId = yield NameMove(part)
    if not (yield NoteMove(part, share)):
        return (yield from _not_noted(share))
    place, attempt = layout.share(table, share), layout.writing(table, share)
    noted = yield fx.Commit(proof, fx.Create(attempt, sharer.signature))
    if not isinstance(noted, fx.Applied):
        return (
            yield from _not_owned(share, noted, "coordination did not take note of what is to be put into the store")
        )
    put = yield PutPart(part, share)
    if not isinstance(put, ObjectsThere):
        yield SharesSettled((share,))
        return NotMoved(f"the object store did not take it: {put.problem}")
    return (yield from _own(sharer, proof, part, share, (fx.Delete(attempt, fx.ANY_VERSION), fx.Create(place))))


def _not_noted(share: ShareId) -> Moving[NotMoved]:
    yield SharesSettled((share,))
    return NotMoved(LEFT)


def _own(
    sharer: Sharer, proof: fx.Check, part: str, share: ShareId, operations: tuple[fx.Operation, ...]
) -> Moving[MoveOutcome]:
    """Own a share, and then let the part's manifest name it."""
    mark = sharer.mark(SharedPart(part, share, is_new=False))
    outcome = yield fx.Commit(proof, *operations, fx.Create(mark))
    if not isinstance(outcome, fx.Applied):
        return (yield from _not_owned(share, outcome, "it was not owned"))
    is_here = yield ToShare(part, share)
    yield SharesSettled((share,))
    has_put = any(isinstance(each, fx.Create) for each in operations)
    return Moved(has_put) if is_here else NotMoved(LEFT)


def _not_owned(share: ShareId, outcome: fx.Refused | fx.Unknown, problem: str) -> Moving[NotMoved | fx.InDoubt]:
    """Say why a share is not owned; its note is not worked off while that is in doubt."""
    if isinstance(outcome, fx.Unknown):
        yield SharesInDoubt((share,))
        return fx.InDoubt()
    yield SharesSettled((share,))
    return NotMoved(f"{problem} ({outcome.operation.path}: {outcome.reason.value})")


# --- out of the store ---------------------------------------------------------------------------------------------------------


def move_to_disk(sharer: Sharer, part: str, share: ShareId) -> Moving[MoveOutcome]:
    """Move the rows of a part from the store to this disk.  Its share is let go of later, as of all that has left the disk.

    Parameters
    ----------
    sharer
        Whose part it is.
    part, share
        Its name, and the share that its manifest names.
    """
    if (yield from _proof(sharer)) is None:
        return NotMoved("the replica is not active")
    brought = yield BringRows(part, share)
    if not isinstance(brought, ObjectsThere):
        return NotMoved(f"its rows could not be brought here: {brought.problem}")
    if not (yield NoteMove(part, share)):
        return (yield from _not_noted(share))
    is_here = yield ToDisk(part, share)
    yield SharesSettled((share,))
    return Moved() if is_here else NotMoved(LEFT)


def _proof(sharer: Sharer) -> Moving[fx.Check | None]:
    epoch = yield fx.CurrentEpoch()
    return None if epoch is None else fx.Check(layout.host(sharer.replica), epoch)


__all__ = [
    "BringRows",
    "FindShare",
    "FoundShare",
    "LocalMoveEffect",
    "MoveOutcome",
    "Moved",
    "Moving",
    "NameMove",
    "NotMoved",
    "NoteMove",
    "PutPart",
    "ShareInDoubt",
    "ToDisk",
    "ToShare",
    "give_up_claims",
    "move_to_disk",
    "move_to_store",
]
