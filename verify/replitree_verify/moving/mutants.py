"""Broken rules of parts that move; each must be found by name.

`docs/known-bugs.md` says which of them systems of the field have had.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.run import translate
from replitree.protocol.shares import letting_go, moving
from replitree.protocol.shares.moving import (
    BringRows,
    FindShare,
    FoundShare,
    Moved,
    NameMove,
    NotMoved,
    PutPart,
    ShareInDoubt,
    ToDisk,
    ToShare,
)
from replitree.protocol.shares.share import DeleteObjects, LetGo, ShareId, ShareOwner, let_go
from replitree.protocol.shares.share_effects import SharedPart, Sharer, SharesOf, SharesSettled
from replitree_verify.engine.small_search import Mutant
from replitree_verify.moving import disk
from replitree_verify.moving.threads import LoseRows

_OWN, _PUT = moving._own, moving._put  # noqa: SLF001 - what is broken here
_IF_THERE_IS_A_SHARE = moving._if_there_is_a_share  # noqa: SLF001
_LET_GO_OF_ALL = letting_go.let_go_of_all


# --- into the store -----------------------------------------------------------------------------------------------------------


def _swaps_before_the_mark(sharer: Sharer, proof: fx.Check, part: str, share: ShareId, operations: Any) -> Any:
    yield ToShare(part, share)
    return (yield from _OWN(sharer, proof, part, share, operations))


def _removes_files_before_the_commit(
    sharer: Sharer, proof: fx.Check, part: str, share: ShareId, operations: Any
) -> Any:
    yield LoseRows(part)
    return (yield from _OWN(sharer, proof, part, share, operations))


def _marks_without_a_note(sharer: Sharer, part: str) -> Any:
    found = yield FindShare(part)
    if not isinstance(found, FoundShare):
        return None if found is None else NotMoved(found.problem)
    epoch = yield fx.CurrentEpoch()
    place = layout.share(sharer.replica.table, found.share)
    proof = fx.Check(layout.host(sharer.replica), epoch)
    return (yield from _OWN(sharer, proof, part, found.share, (fx.Check(place, 0),)))


def _puts_before_it_is_noted(sharer: Sharer, proof: fx.Check, part: str) -> Any:
    share = yield NameMove(part)
    yield moving.NoteMove(part, share)
    yield PutPart(part, share)
    place = layout.share(sharer.replica.table, share)
    return (yield from _OWN(sharer, proof, part, share, (fx.Create(place),)))


def _keeps_the_attempt(sharer: Sharer, proof: fx.Check, part: str) -> Any:
    share = yield NameMove(part)
    yield moving.NoteMove(part, share)
    table = sharer.replica.table
    yield fx.Commit(proof, fx.Create(layout.writing(table, share), sharer.signature))
    yield PutPart(part, share)
    return (yield from _OWN(sharer, proof, part, share, (fx.Create(layout.share(table, share)),)))


def _puts_unclaimed(sharer: Sharer, part: str) -> Any:
    epoch = yield fx.CurrentEpoch()
    found = yield from moving._if_there_is_a_share(sharer, part)  # noqa: SLF001
    return found or (yield from _PUT(sharer, fx.Check(layout.host(sharer.replica), epoch), part))


def _looks_before_the_claim_only(sharer: Sharer, part: str) -> Any:
    return _keeps_the_claim(sharer, part, gives_up=True)


def _keeps_the_claim(sharer: Sharer, part: str, *, gives_up: bool = False) -> Any:
    found = yield from moving._if_there_is_a_share(sharer, part)  # noqa: SLF001
    if found is not None:
        return found
    epoch = yield fx.CurrentEpoch()
    proof, claim = fx.Check(layout.host(sharer.replica), epoch), layout.moving(sharer.replica.table, part)
    if not isinstance((yield fx.Commit(proof, fx.Create(claim, sharer.signature, ephemeral=True))), fx.Applied):
        return NotMoved("somebody moves it")
    outcome = yield from _PUT(sharer, proof, part)
    if gives_up:
        yield fx.Commit(fx.Delete(claim, fx.ANY_VERSION))
    return outcome


def _takes_no_answer_for_none(sharer: Sharer, part: str) -> Any:
    def each(effect: Any) -> Any:
        outcome = yield effect
        return None if isinstance(outcome, ShareInDoubt) else outcome

    return translate(_IF_THERE_IS_A_SHARE(sharer, part), each)


def _takes_doubt_for_an_end(share: ShareId, _outcome: Any, problem: str) -> Any:
    yield SharesSettled((share,))
    return NotMoved(problem)


# --- out of the store ---------------------------------------------------------------------------------------------------------


def _says_so_before_the_rows_are_here(_sharer: Sharer, part: str, share: ShareId) -> Any:
    yield moving.NoteMove(part, share)
    yield ToDisk(part, share)
    yield BringRows(part, share)
    yield SharesSettled((share,))
    return Moved()


def _lets_go_before_it_says_so(sharer: Sharer, part: str, share: ShareId) -> Any:
    yield BringRows(part, share)
    yield moving.NoteMove(part, share)
    owner = ShareOwner(sharer.replica, (yield fx.CurrentEpoch()), sharer.incarnation, part)
    yield from let_go(owner, (share,), ())
    yield ToDisk(part, share)
    yield SharesSettled((share,))
    return Moved()


def _comes_home_without_a_note(_sharer: Sharer, part: str, share: ShareId) -> Any:
    yield BringRows(part, share)
    yield ToDisk(part, share)
    return Moved()


# --- notes --------------------------------------------------------------------------------------------------------------------


def _lets_go_at_any_version(proof: fx.Check, sharer: Sharer, moved: SharedPart) -> Any:
    owner = ShareOwner(sharer.replica, fx.Epoch(proof.version), sharer.incarnation, moved.part)
    return isinstance((yield from let_go(owner, (moved.share,), ())), LetGo)


def _lets_go_again_in_doubt(proof: fx.Check, sharer: Sharer, moved: SharedPart) -> Any:
    mark = yield fx.Get(sharer.mark(moved))
    if mark is None:
        return (yield from letting_go._has_given_up(proof, sharer, moved.share))  # noqa: SLF001
    if any(each.share == moved.share for each in (yield SharesOf((moved.part,)))):
        return True
    owner = ShareOwner(sharer.replica, fx.Epoch(proof.version), sharer.incarnation, moved.part)
    as_it_was = fx.Check(sharer.mark(moved), mark.version)
    return isinstance((yield from let_go(owner, (moved.share,), (), unless=(as_it_was,))), LetGo)


def _deletes_the_mark_only(proof: fx.Check, sharer: Sharer, moved: SharedPart) -> Any:
    yield fx.Commit(proof, fx.Delete(sharer.mark(moved), fx.ANY_VERSION))
    return True


def _deletes_objects_with_the_note(_proof: fx.Check, _sharer: Sharer, moved: SharedPart) -> Any:
    yield DeleteObjects(moved.share)
    return True


def _waits_until_it_is_not_registered(proof: fx.Check, sharer: Sharer, moved: SharedPart) -> Any:
    owner = ShareOwner(sharer.replica, fx.Epoch(proof.version), sharer.incarnation, moved.part)
    absent = letting_go.not_registered(sharer.replica, moved.part)
    return isinstance((yield from let_go(owner, (moved.share,), absent)), LetGo)


def _lets_go_of_its_own(sharer: Sharer, epoch: fx.Epoch, part: str, shares: tuple[ShareId, ...]) -> Any:
    return _LET_GO_OF_ALL(sharer, epoch, part, shares[:1])


MUTANTS = (
    Mutant(
        "swapped-before-marked",
        "the manifest names the share before the share is owned",
        "move_two",
        "MARKED",
        {(moving, "_own"): _swaps_before_the_mark},
    ),
    Mutant(
        "removed-before-owned",
        "the files on the disk are removed before the commit that owns the share",
        "move_two",
        "ROWS",
        {(moving, "_own"): _removes_files_before_the_commit},
    ),
    Mutant(
        "moved-without-note",
        "a share is taken over and nothing on the disk tells of it before",
        "move_two",
        "HELD",
        {(moving, "_if_there_is_a_share"): _marks_without_a_note},
    ),
    Mutant(
        "moved-unnoted",
        "objects are put before coordination knows of the attempt",
        "move_two",
        "KNOWN",
        {(moving, "_put"): _puts_before_it_is_noted},
    ),
    Mutant(
        "moved-attempt-kept",
        "what is owned stays an attempt",
        "move_two",
        "ONCE",
        {(moving, "_put"): _keeps_the_attempt},
    ),
    Mutant(
        "moved-unclaimed",
        "nobody claims a part: every replica puts its own copy",
        "move_two",
        "SINGLE",
        {(moving, "move_to_store"): _puts_unclaimed},
    ),
    Mutant(
        "not-looked-again",
        "who has claimed a part does not look again whether somebody has put it meanwhile",
        "move_two",
        "SINGLE",
        {(moving, "move_to_store"): _looks_before_the_claim_only},
    ),
    Mutant(
        "no-answer-taken-for-none",
        "a replica that gets no answer when it looks for a share puts the files once more",
        "take_unanswered_twice",
        "SINGLE",
        {(moving, "_if_there_is_a_share"): _takes_no_answer_for_none},
    ),
    Mutant(
        "other-files-taken-over",
        "a replica takes over a share with other files than it has on its disk, where they pass for copies",
        "move_differing",
        "COPIES",
        {(disk, "has_same_files"): lambda _disk, _share: True},
    ),
    Mutant(
        "claim-kept",
        "a claim stays when the part has moved: the others wait for nobody",
        "move_two",
        "SETTLES",
        {(moving, "move_to_store"): _keeps_the_claim},
    ),
    Mutant(
        "doubt-worked-off",
        "the note of a commit in doubt is worked off while that may still take place",
        "take_doubt",
        "HELD",
        {(moving, "_not_owned"): _takes_doubt_for_an_end},
    ),
    Mutant(
        "home-before-rows",
        "the manifest says that the rows are here before they are, synced",
        "home_two",
        "ROWS",
        {(moving, "move_to_disk"): _says_so_before_the_rows_are_here},
    ),
    Mutant(
        "let-go-before-home",
        "the share is let go of while the manifest still names it",
        "home_two",
        "MARKED",
        {(moving, "move_to_disk"): _lets_go_before_it_says_so},
    ),
    Mutant(
        "home-without-note",
        "a part comes to the disk, and nothing tells of the share that it had",
        "home_two",
        "HELD",
        {(moving, "move_to_disk"): _comes_home_without_a_note},
    ),
    Mutant(
        "let-go-at-any-version",
        "who lets go of a moved part's share does not see that the part has come back with it",
        "home_mend",
        "MARKED",
        {(letting_go, "_let_go_of_moved"): _lets_go_at_any_version},
    ),
    Mutant(
        "let-go-again-in-doubt",
        "who has lost the answer of letting go lets go again, and owns the share again, before a newer epoch",
        "there_and_back",
        "MARKED",
        {(letting_go, "_let_go_of_moved"): _lets_go_again_in_doubt},
    ),
    Mutant(
        "moved-mark-deleted-alone",
        "the last one to move a part out of the store deletes its mark and nothing else",
        "home_two",
        "OWNED",
        {(letting_go, "_let_go_of_moved"): _deletes_the_mark_only},
    ),
    Mutant(
        "moved-and-deleted",
        "who has moved a part deletes the objects that others own",
        "home_two",
        "WHOLE",
        {(letting_go, "_let_go_of_moved"): _deletes_objects_with_the_note},
    ),
    Mutant(
        "moved-never-let-go",
        "a share is let go of only when its part is not registered any more, as if its rows had not moved",
        "home_two",
        "SETTLES",
        {(letting_go, "_let_go_of_moved"): _waits_until_it_is_not_registered},
    ),
    Mutant(
        "moved-in-part",
        "who has moved a part that borrows out of the store lets go of its own share only",
        "borrowed_home",
        "HELD",
        {(letting_go, "let_go_of_all"): _lets_go_of_its_own},
    ),
)


def find_mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


__all__ = ["MUTANTS", "find_mutant"]
