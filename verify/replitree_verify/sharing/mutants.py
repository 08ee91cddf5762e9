"""Broken rules of shared storage, most of which systems of the field have had; each must be found by name.

`docs/known-bugs.md` says where each was seen.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.shares import owning, share, sharing
from replitree.protocol.shares.share import DeleteObjects, LetGo, NotOwned, ShareId, ShareOwner, Sharing
from replitree.protocol.shares.share_effects import LocalSharing, NameShares, PutShares, SharedPart, Sharer
from replitree_verify.engine.small_search import Mutant, mutant_of
from replitree_verify.sharing import process
from replitree_verify.sharing.mutants_fsck import FSCK_MUTANTS
from replitree_verify.sharing.mutants_history import HISTORY_MUTANTS
from replitree_verify.sharing.mutants_own import OWN_MUTANTS
from replitree_verify.sharing.mutants_upload import UPLOAD_MUTANTS

_OWN, _LET_GO = owning.own, share.let_go

Shares = tuple[ShareId, ...]
Shared = tuple[SharedPart, ...]
Operations = tuple[fx.Operation, ...]


# --- becoming an owner --------------------------------------------------------------------------------------------------------


def _registered_first(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    outcome: fx.Committed = yield fx.Commit(*operations)
    if isinstance(outcome, fx.Applied):
        yield from _OWN(sharer, operations[:1], parts)
    return outcome


def _marked_first(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    outcome = yield from _OWN(sharer, operations[:1], parts)
    if isinstance(outcome, fx.Applied):
        outcome = yield fx.Commit(*operations)
    return outcome


def _resurrects(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    outcome = yield from _OWN(sharer, operations, parts)
    if isinstance(outcome, fx.Refused):
        places = tuple(fx.Create(layout.share(sharer.replica.table, each.share)) for each in parts)
        outcome = yield fx.Commit(*operations, *places, *(fx.Create(sharer.mark(each)) for each in parts))
    return outcome


def _owns_its_own_only(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    return (yield from _OWN(sharer, operations, parts if parts[0].is_new else parts[:1]))


def _borrows_unmarked(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    return (yield from _OWN(sharer, operations, parts[:1] if parts[0].is_new else parts))


def _named_by_the_part(part: str, _name: str, _attempt: str = "") -> ShareId:
    return ShareId(f"{part}-")


def _deletes_in_doubt(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    outcome = yield from _OWN(sharer, operations, parts)
    if isinstance(outcome, fx.Unknown):
        for each in parts:
            if each.is_new:
                yield DeleteObjects(each.share)
    return outcome


def _deletes_what_it_borrowed(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    outcome = yield from _OWN(sharer, operations, parts)
    if isinstance(outcome, fx.Refused):
        for each in parts[1:]:
            yield DeleteObjects(each.share)
    return outcome


def _not_put(sharer: Sharer, staging: fx.StagingId) -> LocalSharing[None]:
    """Note what is to be put, and put nothing."""
    named: Shares = yield NameShares(staging)
    epoch = yield fx.CurrentEpoch()
    noted = (fx.Create(layout.writing(sharer.replica.table, each), sharer.signature) for each in named)
    yield fx.Commit(fx.Check(layout.host(sharer.replica), epoch), *noted)


def _puts_what_is_registered(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    outcome = yield from _OWN(sharer, operations, parts)
    if parts[0].is_new:
        yield PutShares(fx.StagingId("s"))
    return outcome


def _proves_no_epoch(sharer: Sharer, operations: Operations, parts: Shared) -> LocalSharing[fx.Committed]:
    return (yield from _OWN(sharer, operations[1:], parts))


# --- letting go ---------------------------------------------------------------------------------------------------------------


def _leave_without_witness(owner: ShareOwner, share_id: ShareId, others: tuple[str, ...]) -> Operations:
    if others:
        return (fx.Delete(owner.mark(share_id), fx.ANY_VERSION),)
    table = owner.replica.table
    place = layout.share(table, share_id)
    return (
        fx.Delete(owner.mark(share_id), fx.ANY_VERSION),
        fx.Delete(place, fx.ANY_VERSION),
        fx.Create(layout.garbage(table, share_id)),
    )


def _counts(owner: ShareOwner, shares: Shares, deregister: Operations) -> Sharing[LetGo | NotOwned | fx.InDoubt]:
    """Delete the marks; who then sees no other owner deletes the objects and the node."""
    marks = tuple(fx.Delete(owner.mark(each), fx.ANY_VERSION) for each in shares)
    outcome = yield fx.Commit(owner.proof, *marks, *deregister)
    if not isinstance(outcome, fx.Applied):
        return NotOwned("refused") if isinstance(outcome, fx.Refused) else fx.InDoubt()
    for each in shares:
        place = layout.share(owner.replica.table, each)
        if not (yield fx.Children(place)):
            yield DeleteObjects(each)
            yield fx.Commit(fx.Delete(place, fx.ANY_VERSION))
    return LetGo(())


def _deletes_by_itself(
    owner: ShareOwner, shares: Shares, deregister: Operations
) -> Sharing[LetGo | NotOwned | fx.InDoubt]:
    """Leave no note in the garbage: after a crash no replica deletes the objects."""
    outcome = yield from _LET_GO(owner, shares, deregister)
    if isinstance(outcome, LetGo):
        for each in outcome.garbage:
            yield fx.Commit(fx.Delete(layout.garbage(owner.replica.table, each), fx.ANY_VERSION))
            yield DeleteObjects(each)
    return outcome


def _takes_absence_for_permission(
    owner: ShareOwner, shares: Shares, deregister: Operations
) -> Sharing[LetGo | NotOwned | fx.InDoubt]:
    outcome = yield from _LET_GO(owner, shares, deregister)
    if isinstance(outcome, fx.InDoubt):
        again = yield from _LET_GO(owner, shares, deregister)
        if isinstance(again, NotOwned):  # the mark is not there: no other replica seems to care
            for each in shares:
                yield DeleteObjects(each)
        return again
    return outcome


def _deregisters_first(
    owner: ShareOwner, shares: Shares, deregister: Operations
) -> Sharing[LetGo | NotOwned | fx.InDoubt]:
    outcome = yield fx.Commit(owner.proof, *deregister)
    if not isinstance(outcome, fx.Applied):
        return NotOwned("refused") if isinstance(outcome, fx.Refused) else fx.InDoubt()
    return (yield from _LET_GO(owner, shares, ()))


def _releases_nothing(_replica: Any, _epoch: Any) -> Sharing[LetGo]:
    yield from ()
    return LetGo(())


# --- the garbage --------------------------------------------------------------------------------------------------------------


def _forgets_first(table: TablePlace) -> Sharing[Shares]:
    names = (yield fx.Children(layout.all_garbage(table))) or ()
    for name in names:
        yield fx.Commit(fx.Delete(layout.garbage(table, name), fx.ANY_VERSION))
        yield DeleteObjects(ShareId(name))
    return ()


def _believes_the_store(table: TablePlace) -> Sharing[Shares]:
    names = (yield fx.Children(layout.all_garbage(table))) or ()
    for name in names:
        yield DeleteObjects(ShareId(name))  # whatever the answer is
        yield fx.Commit(fx.Delete(layout.garbage(table, name), fx.ANY_VERSION))
    return ()


def _looks_only(table: TablePlace) -> Sharing[Shares]:
    yield fx.Children(layout.all_garbage(table))
    return ()


def _mutant(name: str, model: str, breaks: str, description: str, **patches: Any) -> Mutant:
    rooms = {"own": sharing, "_put": sharing}
    return Mutant(
        name, description, model, breaks, {(rooms.get(each, share), each): broken for each, broken in patches.items()}
    )


MUTANTS = (
    _mutant(
        "registered-before-marked",
        "share_two",
        "MARKED",
        "a part is registered in one commit and marked in the next",
        own=_registered_first,
    ),
    _mutant(
        "marked-before-registered",
        "share_crash",
        "MARKED",
        "a part is marked in one commit and registered in the next: a crash in between leaves a mark without a part",
        own=_marked_first,
    ),
    _mutant(
        "share-resurrected",
        "share_two",
        "ONCE",
        "who takes over makes the share's node again when it is gone",
        own=_resurrects,
    ),
    _mutant(
        "borrowed-not-taken-over",
        "share_borrow",
        "MARKED",
        "who takes a mutated part over marks only what the mutation wrote, not what it borrows",
        own=_owns_its_own_only,
    ),
    _mutant(
        "borrowed-not-marked",
        "share_borrow",
        "MARKED",
        "a mutation does not mark what its result borrows",
        own=_borrows_unmarked,
    ),
    mutant_of(
        "share-named-by-part",
        "share_twice",
        "ONCE",
        "the share's name is made of the part's: two attempts write and delete the same objects",
        (process, "new_share", _named_by_the_part),
    ),
    _mutant(
        "deleted-in-doubt",
        "share_doubt",
        "THERE",
        "a writer whose commit has no answer takes it for failed and deletes its objects",
        own=_deletes_in_doubt,
    ),
    _mutant(
        "borrowed-deleted",
        "share_borrow_refused",
        "THERE",
        "a mutation that is refused deletes what it borrowed, too",
        own=_deletes_what_it_borrowed,
    ),
    _mutant(
        "registered-before-stored",
        "share_two",
        "THERE",
        "a part is registered before its objects are in the store",
        _put=_not_put,
        own=_puts_what_is_registered,
    ),
    _mutant(
        "left-without-witness",
        "share_two",
        "OWNED",
        "an owner that sees another one leaves without proving that it is still there: both leave, and neither is the last",
        _leave=_leave_without_witness,
    ),
    _mutant(
        "owners-counted",
        "share_two",
        "OWNED",
        "marks are deleted first and counted then: a replica that sees none deletes the objects",
        let_go=_counts,
    ),
    _mutant(
        "deleted-by-last-owner",
        "share_crash",
        "KEPT",
        "the last owner deletes the objects by itself, without a note for others",
        let_go=_deletes_by_itself,
    ),
    _mutant(
        "absence-is-permission",
        "share_doubt",
        "THERE",
        "a mark that is not there, because the first try took place, is taken for leave to delete",
        let_go=_takes_absence_for_permission,
    ),
    _mutant(
        "deregistered-before-left",
        "share_two",
        "MARKED",
        "the registration is taken back in one commit, the marks in the next",
        let_go=_deregisters_first,
    ),
    _mutant(
        "dropped-marks-kept",
        "share_drop",
        "RELEASED",
        "a replica is dropped and its marks stay",
        release=_releases_nothing,
    ),
    _mutant(
        "unfenced",
        "share_drop",
        "RELEASED",
        "commits do not prove the epoch: a dropped replica's process still marks",
        own=_proves_no_epoch,
    ),
    _mutant(
        "garbage-forgotten-first",
        "share_two",
        "KEPT",
        "the note in the garbage is deleted before the objects are",
        work_off=_forgets_first,
    ),
    _mutant(
        "store-believed",
        "share_store",
        "KEPT",
        "the note in the garbage is deleted though the store gave no answer",
        work_off=_believes_the_store,
    ),
    _mutant(
        "garbage-kept",
        "share_two",
        "SETTLES",
        "no replica works the garbage off",
        work_off=_looks_only,
    ),
    *HISTORY_MUTANTS,
    *FSCK_MUTANTS,
    *UPLOAD_MUTANTS,
    *OWN_MUTANTS,
)


def find_mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


__all__ = ["MUTANTS", "find_mutant"]
