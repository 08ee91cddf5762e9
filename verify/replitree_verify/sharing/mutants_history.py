"""More bugs that shared storage has had elsewhere: what each did, in our words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.shares import owning, share, sharing
from replitree.protocol.shares.share import DeleteObjects, LetGo, NotOwned, ShareId, ShareOwner, Sharing
from replitree.protocol.shares.share_effects import LocalSharing, SharedPart, Sharer
from replitree_verify.engine.small_search import Mutant

_OWN, _OWNING = owning.own, owning._owning  # noqa: SLF001 - a mutant replaces it

Shares = tuple[ShareId, ...]
Shared = tuple[SharedPart, ...]
Operations = tuple[fx.Operation, ...]


def _deletes_what_it_could_not_take(
    sharer: Sharer, operations: Operations, parts: Shared
) -> LocalSharing[fx.Committed]:
    """Tidy up after a take-over that failed, with the objects."""
    outcome = yield from _OWN(sharer, operations, parts)
    if not isinstance(outcome, fx.Applied):
        for each in parts:
            if not each.is_new:
                yield DeleteObjects(each.share)
    return outcome


def _ephemeral_marks(sharer: Sharer, part: SharedPart, standing: Any) -> Operations:
    mark = sharer.mark(part)
    return tuple(
        replace(each, ephemeral=True) if isinstance(each, fx.Create) and each.path == mark else each
        for each in _OWNING(sharer, part, standing)
    )


# --- a number of owners, beside the marks -------------------------------------------------------------------------------------


def _adds_one(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    part, table = parts[0], sharer.replica.table
    place = layout.share(table, part.share)
    mark = fx.Create(sharer.mark(part))
    changed: tuple[fx.Operation, ...] = (
        fx.Delete(layout.writing(table, part.share), fx.ANY_VERSION),
        fx.Create(place, b"1"),
    )
    if not part.is_new:
        node = yield fx.Get(place)
        if node is None:
            return fx.Refused(mark, fx.Reason.NO_NODE)
        changed = (fx.Set(place, b"%d" % (int(node.value) + 1), node.version),)
    outcome: fx.Committed = yield fx.Commit(*operations, *changed, mark)
    return outcome


def _takes_one_off(owner: ShareOwner, shares: Shares, deregister: Operations) -> Sharing[LetGo | NotOwned | fx.InDoubt]:
    """Take one off in one commit and leave in the next; who comes to none deletes the objects."""
    own, table = shares[0], owner.replica.table
    node = yield fx.Get(layout.share(table, own))
    if node is None:
        return NotOwned("it is gone")
    left = int(node.value) - 1
    fewer = yield fx.Commit(owner.proof, fx.Set(layout.share(table, own), b"%d" % left, node.version))
    if not isinstance(fewer, fx.Applied):
        return fx.InDoubt()
    mark = fx.Delete(owner.mark(own), fx.ANY_VERSION)
    if left > 0:
        outcome = yield fx.Commit(owner.proof, mark, *deregister)
        return LetGo(()) if isinstance(outcome, fx.Applied) else fx.InDoubt()
    gone = fx.Delete(layout.share(table, own), fx.ANY_VERSION), fx.Create(layout.garbage(table, own))
    outcome = yield fx.Commit(owner.proof, mark, *gone, *deregister)
    if isinstance(outcome, fx.Refused):
        yield DeleteObjects(own)
    return LetGo((own,)) if isinstance(outcome, fx.Applied) else fx.InDoubt()


# --- a mark that stands for nothing -------------------------------------------------------------------------------------------


def _registers_unmarked(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    """Register a part whose share can't be marked any more, without marks."""
    outcome = yield from _OWN(sharer, operations, parts)
    return (yield fx.Commit(*operations)) if isinstance(outcome, fx.Refused) else outcome


HISTORY_MUTANTS = (
    Mutant(
        "failed-take-over-deletes",
        "a take-over that failed, because an answer was lost, removes what it was to take over, with the objects",
        "share_doubt",
        "THERE",
        {(sharing, "own"): _deletes_what_it_could_not_take},
    ),
    Mutant(
        "mark-is-ephemeral",
        "a mark that stands for a registered part ends with the session of the process that made it",
        "share_crash",
        "MARKED",
        {(owning, "_owning"): _ephemeral_marks},
    ),
    Mutant(
        "owners-in-a-number",
        "owners are counted in a number that is changed apart from the registration: a crash in between counts one twice",
        "share_crash",
        "THERE",
        {
            (sharing, "own"): _adds_one,
            (share, "let_go"): _takes_one_off,
        },
    ),
    Mutant(
        "marks-are-optional",
        "what can't be marked is registered all the same: its objects are a corpse",
        "share_two",
        "MARKED",
        {(sharing, "own"): _registers_unmarked},
    ),
)

__all__ = ["HISTORY_MUTANTS"]
