"""Broken rules of shared storage, most of which systems of the field have had; each must be found by name.

`docs/known-bugs.md` says where each was seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Table
from replitree.protocol.shares import share
from replitree.protocol.shares.share import (
    DeleteObjects,
    LetGo,
    NotOwned,
    Owned,
    Owning,
    PutObjects,
    ShareId,
    ShareOwner,
    Sharing,
)
from replitree_verify.engine.small_search import Mutant
from replitree_verify.sharing import tasks
from replitree_verify.sharing.mutants_fsck import FSCK_MUTANTS
from replitree_verify.sharing.mutants_history import HISTORY_MUTANTS
from replitree_verify.sharing.mutants_own import OWN_MUTANTS
from replitree_verify.sharing.mutants_upload import UPLOAD_MUTANTS

_TAKE_OVER, _LET_GO, _WRITE, _WORK_OFF = share.take_over, share.let_go, share.write_share, share.work_off

Shares = tuple[ShareId, ...]
Operations = tuple[fx.Operation, ...]


# --- becoming an owner --------------------------------------------------------------------------------------------------------


def _registered_first(owner: ShareOwner, shares: Shares, register: Operations) -> Sharing[Owning]:
    outcome = yield fx.Commit(owner.proof, *register)
    if not isinstance(outcome, fx.Applied):
        return NotOwned("refused") if isinstance(outcome, fx.Refused) else fx.InDoubt()
    return (yield from _TAKE_OVER(owner, shares, ()))


def _marked_first(owner: ShareOwner, shares: Shares, register: Operations) -> Sharing[Owning]:
    outcome = yield from _TAKE_OVER(owner, shares, ())
    if not isinstance(outcome, Owned):
        return outcome
    registered = yield fx.Commit(owner.proof, *register)
    return Owned() if isinstance(registered, fx.Applied) else fx.InDoubt()


def _resurrects(owner: ShareOwner, shares: Shares, register: Operations) -> Sharing[Owning]:
    outcome = yield from _TAKE_OVER(owner, shares, register)
    if isinstance(outcome, NotOwned):
        places = tuple(fx.Create(layout.share(owner.replica.table, each)) for each in shares)
        marks = tuple(fx.Create(owner.mark(each)) for each in shares)
        yield fx.Commit(owner.proof, *places, *marks, *register)
    return outcome


def _owns_its_own_only(owner: ShareOwner, shares: Shares, register: Operations) -> Sharing[Owning]:
    return (yield from _TAKE_OVER(owner, shares[:1], register))


def _borrows_unmarked(owner: ShareOwner, own: ShareId, _borrowed: Shares, register: Operations) -> Sharing[Owning]:
    return (yield from _WRITE(owner, own, (), register))


def _named_by_the_part(owner: ShareOwner, _own: ShareId, borrowed: Shares, register: Operations) -> Sharing[Owning]:
    own = ShareId(f"{owner.part}-")
    registered = tuple(replace(each, value=own.encode()) if isinstance(each, fx.Create) else each for each in register)
    return (yield from _WRITE(owner, own, borrowed, registered))


def _deletes_in_doubt(owner: ShareOwner, own: ShareId, borrowed: Shares, register: Operations) -> Sharing[Owning]:
    outcome = yield from _WRITE(owner, own, borrowed, register)
    if isinstance(outcome, fx.InDoubt):
        yield DeleteObjects(own)
    return outcome


def _deletes_what_it_borrowed(
    owner: ShareOwner, own: ShareId, borrowed: Shares, register: Operations
) -> Sharing[Owning]:
    outcome = yield from _WRITE(owner, own, borrowed, register)
    if isinstance(outcome, NotOwned):
        for each in borrowed:
            yield DeleteObjects(each)
    return outcome


def _registers_before_it_stores(
    owner: ShareOwner, own: ShareId, borrowed: Shares, register: Operations
) -> Sharing[Owning]:
    table = owner.replica.table
    marks = tuple(fx.Create(owner.mark(each)) for each in (own, *borrowed))
    outcome = yield fx.Commit(owner.proof, fx.Create(layout.share(table, own)), *marks, *register)
    yield PutObjects(own)
    return Owned() if isinstance(outcome, fx.Applied) else fx.InDoubt()


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
    """Leave no note in the garbage: a crash leaves the objects to nobody."""
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
        if isinstance(again, NotOwned):  # the mark is not there: nobody else seems to care
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


def _forgets_first(table: Table) -> Sharing[Shares]:
    names = (yield fx.Children(layout.all_garbage(table))) or ()
    for name in names:
        yield fx.Commit(fx.Delete(layout.garbage(table, name), fx.ANY_VERSION))
        yield DeleteObjects(ShareId(name))
    return ()


def _believes_the_store(table: Table) -> Sharing[Shares]:
    names = (yield fx.Children(layout.all_garbage(table))) or ()
    for name in names:
        yield DeleteObjects(ShareId(name))  # whatever the answer is
        yield fx.Commit(fx.Delete(layout.garbage(table, name), fx.ANY_VERSION))
    return ()


def _looks_only(table: Table) -> Sharing[Shares]:
    yield fx.Children(layout.all_garbage(table))
    return ()


class _Unproved(ShareOwner):
    """An owner whose commits prove nothing of its epoch."""

    @property
    def proof(self) -> Any:  # type: ignore[explicit-override]
        return fx.Check(layout.shares(self.replica.table), fx.ANY_VERSION)


def _mutant(name: str, model: str, breaks: str, description: str, **patches: Any) -> Mutant:
    return Mutant(name, description, model, breaks, {(share, each): broken for each, broken in patches.items()})


MUTANTS = (
    _mutant(
        "registered-before-marked",
        "share_two",
        "MARKED",
        "a part is registered in one commit and marked in the next",
        take_over=_registered_first,
    ),
    _mutant(
        "marked-before-registered",
        "share_crash",
        "MARKED",
        "a part is marked in one commit and registered in the next: a crash in between leaves a mark without a part",
        take_over=_marked_first,
    ),
    _mutant(
        "share-resurrected",
        "share_two",
        "ONCE",
        "who takes over makes the share's node again when it is gone",
        take_over=_resurrects,
    ),
    _mutant(
        "borrowed-not-taken-over",
        "share_borrow",
        "MARKED",
        "who takes a mutated part over marks only what the mutation wrote, not what it borrows",
        take_over=_owns_its_own_only,
    ),
    _mutant(
        "borrowed-not-marked",
        "share_borrow",
        "MARKED",
        "a mutation does not mark what its result borrows",
        write_share=_borrows_unmarked,
    ),
    _mutant(
        "share-named-by-part",
        "share_twice",
        "THERE",
        "the share's name is made of the part's: two attempts write and delete the same objects",
        write_share=_named_by_the_part,
    ),
    _mutant(
        "deleted-in-doubt",
        "share_doubt",
        "THERE",
        "a writer whose commit has no answer takes it for failed and deletes its objects",
        write_share=_deletes_in_doubt,
    ),
    _mutant(
        "borrowed-deleted",
        "share_borrow_refused",
        "THERE",
        "a mutation that is refused deletes what it borrowed, too",
        write_share=_deletes_what_it_borrowed,
    ),
    _mutant(
        "registered-before-stored",
        "share_two",
        "THERE",
        "a part is registered before its objects are in the store",
        write_share=_registers_before_it_stores,
    ),
    _mutant(
        "left-without-witness",
        "share_two",
        "OWNED",
        "an owner that sees another one leaves without proving that it is still there: both leave, nobody is the last",
        _leave=_leave_without_witness,
    ),
    _mutant(
        "owners-counted",
        "share_two",
        "OWNED",
        "marks are deleted first and counted then: whoever sees none deletes the objects",
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
    Mutant(
        "unfenced",
        "commits do not prove the epoch: a dropped replica's process still marks",
        "share_drop",
        "RELEASED",
        {(tasks, "ShareOwner"): _Unproved},
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
        "nobody works the garbage off",
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
