"""Owning: a registered part gets its mark, in the commit that registers it or after it got other objects.

The procedure assumes the state of each share (a share that this process has written is its own attempt, every other one has
owners), proves it by the commit, and reads it only when the commit is refused.  So an ordinary part costs no read.  A part that
borrows owns all its shares, in one commit, or it is not registered.

=====================  ====================================================================================================
a commit registers     `own`: the same commit makes the shares that were written here, and creates the marks
a start                `own_held`: every registered part without a mark gets one, before any part is shown
fetched again          `own_again`: the mark is written even if it exists, because another thread may be about to release it
=====================  ====================================================================================================

Absent on purpose: which commits register (`protocol.shares.sharing`), how a mark goes (`protocol.shares.letting_go`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.shares.share import FRESH, ShareId
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    LocalSharing,
    SharedPart,
    Sharer,
    SharesOf,
    SharesSettled,
)

ATTEMPTS_MAX = 8
"""How often one commit is made anew because its shares were not what they seemed to be."""

LOOK_BATCH = 500
"""Marks, or shares, that are looked at in one request."""

PLACES = 3
"""Nodes that tell where a share stands."""


class _Standing(Enum):
    """Where a share stands, for a part that is to be registered."""

    WRITTEN = "this replica wrote it, and it has no owner yet"
    OWNED_BY_OTHERS = "it has owners; this part is not among them"
    OWNED = "this part owns it already"
    GONE = "it has no owner any more"


def own_registered(sharer: Sharer, parts: tuple[SharedPart, ...]) -> fx.Procedure[bool]:
    """Own the shares of parts that are registered already, and whose objects may be others than they were.

    Returns
    -------
    Whether they are owned; if not, what is on the disk is gone, and has to be fetched again.
    """
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is None or not parts:
        return not parts
    proof = fx.Check(layout.host(sharer.replica), epoch)
    registered = (fx.Check(layout.part(sharer.replica, each.part), fx.ANY_VERSION) for each in parts)
    outcome = yield from own(sharer, (proof, *registered), parts)
    return isinstance(outcome, fx.Applied)


def own_held(sharer: Sharer, parts: tuple[str, ...]) -> fx.Procedure[tuple[str, ...]]:
    """Own what registered parts have, wherever there is no mark yet; for a start, before anything is shown.

    Returns
    -------
    The parts whose objects are gone: they have to be fetched again.
    """
    # A process may have ended after it fetched a part again and before it owned the share; or coordination was put back to an
    # earlier state.
    left: list[str] = []
    for first in range(0, len(parts), LOOK_BATCH):
        shared: tuple[SharedPart, ...] = yield SharesOf(parts[first : first + LOOK_BATCH])
        many: fx.Many = (yield fx.GetMany(tuple(map(sharer.mark, shared)))) if shared else fx.Many(())
        marked = {part for part, mark in zip(shared, many.nodes, strict=True) if mark is not None}
        left += yield from _own_each(sharer, tuple(part for part in shared if part not in marked))
    return tuple(left)


def _own_each(sharer: Sharer, shared: tuple[SharedPart, ...]) -> LocalSharing[tuple[str, ...]]:
    """Own what registered parts have, part by part; return the parts whose objects are gone."""
    left: tuple[str, ...] = ()
    for part in dict.fromkeys(each.part for each in shared):
        is_owned = yield from own_registered(sharer, tuple(each for each in shared if each.part == part))
        left += () if is_owned else (part,)
    return left


def own_again(sharer: Sharer, parts: tuple[str, ...]) -> fx.Procedure[tuple[str, ...]]:
    """Own what registered parts have that have just come again, whether there is a mark or not.

    Returns
    -------
    The parts whose objects are gone: they have to be fetched again.
    """
    # A mark that is there is written again: a commit may be about to release it for the rows that the part had before.
    return (yield from _own_each(sharer, (yield SharesOf(parts))))


def own(
    sharer: Sharer, operations: tuple[fx.Operation, ...], parts: tuple[SharedPart, ...]
) -> LocalSharing[fx.Committed]:
    """Commit operations together with those that own shares; where those of a part stand otherwise than thought is looked at.

    Parameters
    ----------
    sharer, operations
        The replica that commits, and its operations.
    parts
        The shares that are to be owned, each for its part; at least one.

    Returns
    -------
    What became of the operations.  Refused at a mark: the share is gone, and so is its part here.
    """
    standing = {part: _Standing.WRITTEN if part.is_new else _Standing.OWNED_BY_OTHERS for part in parts}
    looked_at = parts[0]
    for attempt in range(ATTEMPTS_MAX):
        added = {part: _owning(sharer, part, standing[part]) for part in parts}
        outcome: fx.Committed = yield fx.Commit(*operations, *(each for some in added.values() for each in some))
        if isinstance(outcome, fx.Applied):
            yield SharesSettled(_new_shares(parts))
            created = sum(isinstance(each, fx.Create) for each in operations)
            return replace(outcome, created=outcome.created[:created])
        if not isinstance(outcome, fx.Refused):
            return outcome
        wrong = next((part for part, some in added.items() if outcome.operation in some), None)
        if wrong is None:
            return outcome
        looked_at = wrong
        for each in (part for part in parts if part.part == wrong.part):
            yield fx.Sync(layout.shares(sharer.replica.table))
            many: fx.Many = yield fx.GetMany(_places(sharer, each))
            standing[each] = _standing(sharer, many.nodes)
        # A process that has just started does not know what an earlier one has written.
        if attempt == 0:
            standing |= yield from _look_at_all(sharer, tuple(part for part in parts if part.part != wrong.part))
        gone = tuple(dict.fromkeys(part.part for part in parts if standing[part] is _Standing.GONE))
        if gone:
            yield SharesSettled(_new_shares(part for part in parts if part.part in gone))
            yield ForgetParts(gone)
            break
    return fx.Refused(
        fx.Create(sharer.mark(looked_at)), fx.Reason.NO_NODE
    )  # a check that fails would say that the replica is fenced


def _new_shares(parts: Iterable[SharedPart]) -> tuple[ShareId, ...]:
    """Return the shares that this process has been writing."""
    # A share that it owns otherwise may be moved for another part right now.
    return tuple(part.share for part in parts if part.is_new)


def _owning(sharer: Sharer, part: SharedPart, standing: _Standing) -> tuple[fx.Operation, ...]:
    table, mark = sharer.replica.table, sharer.mark(part)
    place = layout.share(table, part.share)
    match standing:
        case _Standing.WRITTEN:
            return fx.Delete(layout.writing(table, part.share), fx.ANY_VERSION), fx.Create(place), fx.Create(mark)
        case _Standing.OWNED:
            # The mark gets another version, so a commit that is about to release it is refused.
            return (fx.Set(mark, b"", fx.ANY_VERSION),)
    return fx.Check(place, FRESH), fx.Create(mark)


def _look_at_all(sharer: Sharer, parts: tuple[SharedPart, ...]) -> LocalSharing[dict[SharedPart, _Standing]]:
    """Look where many shares stand, not older than the last `Sync`."""
    found: dict[SharedPart, _Standing] = {}
    for first in range(0, len(parts), LOOK_BATCH):
        some = parts[first : first + LOOK_BATCH]
        many: fx.Many = yield fx.GetMany(tuple(path for part in some for path in _places(sharer, part)))
        found |= {
            part: _standing(sharer, many.nodes[PLACES * number : PLACES * (number + 1)])
            for number, part in enumerate(some)
        }
    return found


def _places(sharer: Sharer, part: SharedPart) -> tuple[str, ...]:
    """Return the `PLACES` that tell where a share stands: the part's own mark, the attempt, the share."""
    table = sharer.replica.table
    return sharer.mark(part), layout.writing(table, part.share), layout.share(table, part.share)


def _standing(sharer: Sharer, nodes: tuple[fx.Node | None, ...]) -> _Standing:
    mark, writing, place = nodes
    if mark is not None:
        return _Standing.OWNED
    if writing is not None and writing.value == sharer.signature:
        return _Standing.WRITTEN
    return _Standing.OWNED_BY_OTHERS if place is not None and place.version == FRESH else _Standing.GONE


__all__ = ["LOOK_BATCH", "own", "own_again", "own_held", "own_registered"]
