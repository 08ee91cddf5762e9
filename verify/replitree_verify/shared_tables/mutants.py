"""Broken rules of tables on an object store; each must be found by name.

`docs/known-bugs.md` says which of them systems of the field have had.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership import table
from replitree.protocol.rescue import restore, restore_shared
from replitree.protocol.shares import letting_go, owning, sharing
from replitree.protocol.shares.share import DeleteObjects, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import NameShares, PutShares, SharedPart, Sharer, SharesOf
from replitree.protocol.state import registration
from replitree_verify.engine.small_search import Mutant
from replitree_verify.shared_tables import replicas
from replitree_verify.shared_tables.mutants_borrowed import BORROWED_MUTANTS
from replitree_verify.shared_tables.mutants_recovering import RECOVERING_MUTANTS
from replitree_verify.shared_tables.world import sharer_of

_OWNING, _COMMITTED, _LOOK = owning._owning, sharing._committed, owning._look  # noqa: SLF001 - what is broken here
_Standing = owning._Standing  # noqa: SLF001
_LET_GO_OF = letting_go.let_go_of

Operations = tuple[fx.Operation, ...]


# --- writing ------------------------------------------------------------------------------------------------------------------


def _puts_before_it_is_noted(sharer: Sharer, staging: fx.StagingId) -> Any:
    named = yield NameShares(staging)
    place, epoch = sharer.replica.table, (yield fx.CurrentEpoch())
    put = yield PutShares(staging)
    noted = yield fx.Commit(
        fx.Check(layout.host(sharer.replica), epoch),
        *(fx.Create(layout.writing(place, each), sharer.signature) for each in named),
    )
    return None if isinstance(put, ObjectsThere) and isinstance(noted, fx.Applied) else fx.StoreFailed("not put")


def _notes_nothing(sharer: Sharer, staging: fx.StagingId) -> Any:
    del sharer
    yield NameShares(staging)
    put = yield PutShares(staging)
    return None if isinstance(put, ObjectsThere) else fx.StoreFailed("not put")


def _gives_up_nothing(_sharer: Sharer, _epoch: fx.Epoch) -> Any:
    yield from ()
    return 0


def _gives_up_all(sharer: Sharer, epoch: fx.Epoch) -> Any:
    table_, proof = sharer.replica.table, fx.Check(layout.host(sharer.replica), epoch)
    for name in (yield fx.Children(layout.all_writing(table_))) or ():
        yield from letting_go.give_up(proof, sharer, ShareId(name))
    return 0


def _gives_up_and_keeps(proof: fx.Check, sharer: Sharer, share: ShareId) -> Any:
    outcome = yield fx.Commit(proof, fx.Create(layout.garbage(sharer.replica.table, share)))
    return isinstance(outcome, fx.Applied)


# --- registering --------------------------------------------------------------------------------------------------------------


def _marks_its_own_only(sharer: Sharer, part: SharedPart, standing: Any) -> Operations:
    return _OWNING(sharer, part, standing) if standing is _Standing.WRITTEN else ()


def _marks_afterwards(sharer: Sharer, effect: fx.Commit) -> Any:
    parts = sharing._registered(sharer.replica, effect)  # noqa: SLF001
    outcome = yield effect
    if parts and isinstance(outcome, fx.Applied):
        yield from owning.own_registered(sharer, (yield SharesOf(parts)))
    return outcome


def _keeps_the_attempt(sharer: Sharer, part: SharedPart, standing: Any) -> Operations:
    return tuple(each for each in _OWNING(sharer, part, standing) if not isinstance(each, fx.Delete))


def _resurrects(sharer: Sharer, part: SharedPart) -> Any:
    standing = yield from _LOOK(sharer, part)
    if standing is not _Standing.GONE:
        return standing
    yield fx.Commit(fx.Create(layout.share(sharer.replica.table, part.share)), fx.Create(sharer.mark(part)))
    return _Standing.OWNED


def _proves_no_epoch(
    replica: Replica, _epoch: fx.Epoch, done: Any, operations: Operations = (), shown: Any = (), gone: Any = (), *_: Any
) -> Any:
    committed = yield fx.Commit(*operations, *(registration.leave_queue(replica, index) for index in done))
    if isinstance(committed, fx.Applied):
        yield fx.Reveal(tuple(part.name for part in shown), tuple(part.name for part in gone))


def _owns_nothing_again(_sharer: Sharer, _parts: tuple[str, ...]) -> Any:
    yield from ()
    return ()


# --- restoring ----------------------------------------------------------------------------------------------------------------


def _finds_all_there(paths: list[str]) -> Any:
    yield from ()
    return tuple(paths)


class _Unfenced(restore._Run):  # noqa: SLF001
    __slots__ = ()

    @property
    @override
    def proof(self) -> Operations:
        return ()


# --- letting go ---------------------------------------------------------------------------------------------------------------


def _without_proof(_replica: Replica, _part: str) -> Operations:
    return ()


def _forgets_first(name: str, epoch: fx.Epoch) -> Any:
    for part, shares in (yield replicas.ListLeaving()):
        yield replicas.HasLeft(part, shares)
        yield from letting_go.let_go_of_all(sharer_of(name), epoch, part, shares)


def _deletes_the_mark_only(sharer: Sharer, epoch: fx.Epoch, part: str, share: ShareId) -> Any:
    mark = sharer.mark(SharedPart(part, share, is_new=False))
    yield fx.Commit(fx.Check(layout.host(sharer.replica), epoch), fx.Delete(mark, fx.ANY_VERSION))
    return True


def _deletes_objects_first(sharer: Sharer, epoch: fx.Epoch, part: str, share: ShareId) -> Any:
    mark = sharer.mark(SharedPart(part, share, is_new=False))
    if (yield fx.Children(layout.share(sharer.replica.table, share))) == (mark.rpartition("/")[2],):
        yield DeleteObjects(share)
    return (yield from _LET_GO_OF(sharer, epoch, part, share))


def _releases_nothing(*_: Any) -> Any:
    yield from ()
    return True


MUTANTS = (
    Mutant(
        "put-before-noted",
        "objects are put before coordination knows of the attempt",
        "shared_table",
        "KNOWN",
        {(sharing, "_put"): _puts_before_it_is_noted},
    ),
    Mutant(
        "attempt-not-noted",
        "no attempt is noted: a crash leaves objects that no node tells of",
        "shared_table",
        "KNOWN",
        {(sharing, "_put"): _notes_nothing},
    ),
    Mutant(
        "attempts-not-given-up",
        "a start gives up nothing of what earlier processes had begun",
        "shared_table_crash",
        "SETTLES",
        {(letting_go, "give_up_attempts"): _gives_up_nothing},
    ),
    Mutant(
        "published-given-up",
        "a start gives up what is published and not yet registered",
        "shared_table_crash",
        "KEPT",
        {(letting_go, "give_up_attempts"): _gives_up_all},
    ),
    Mutant(
        "given-up-twice",
        "an attempt that is given up stays one",
        "shared_table_store",
        "ONCE",
        {(letting_go, "give_up"): _gives_up_and_keeps, (sharing, "give_up"): _gives_up_and_keeps},
    ),
    Mutant(
        "taken-over-unmarked",
        "only the writer has a mark",
        "shared_table",
        "MARKED",
        {(owning, "_owning"): _marks_its_own_only},
    ),
    Mutant(
        "marked-afterwards",
        "the part is registered in one commit, and marked in the next",
        "shared_table",
        "MARKED",
        {(sharing, "_committed"): _marks_afterwards},
    ),
    Mutant(
        "attempt-kept",
        "what is registered stays an attempt",
        "shared_table",
        "ONCE",
        {(owning, "_owning"): _keeps_the_attempt},
    ),
    Mutant(
        "share-resurrected",
        "who comes too late makes the share's node again",
        "shared_table",
        "ONCE",
        {(owning, "_look"): _resurrects},
    ),
    Mutant(
        "registered-unfenced",
        "the commit that registers a part does not prove the epoch: it comes late, when the part has left again",
        "shared_table_taken_expiry",
        "HELD",
        {(registration, "finish"): _proves_no_epoch},
    ),
    Mutant(
        "fetched-again-unmarked",
        "what comes in the place of a lost folder is not owned",
        "shared_table_lost",
        "MARKED",
        {(owning, "own_again"): _owns_nothing_again},
    ),
    Mutant(
        "let-go-unproved",
        "a part is let go of without the proof that it is not registered",
        "shared_table_again",
        "MARKED",
        {(letting_go, "not_registered"): _without_proof},
    ),
    Mutant(
        "forgotten-before-let-go",
        "the last trace on the disk goes before the mark",
        "shared_table_crash",
        "HELD",
        {(replicas, "let_go"): _forgets_first},
    ),
    Mutant(
        "mark-deleted-alone",
        "the last owner deletes its mark and nothing else",
        "shared_table",
        "OWNED",
        {(letting_go, "let_go_of"): _deletes_the_mark_only},
    ),
    Mutant(
        "objects-deleted-first",
        "who sees no other owner deletes the objects, and lets go then",
        "shared_table",
        "WHOLE",
        {(letting_go, "let_go_of"): _deletes_objects_first},
    ),
    Mutant(
        "dropped-with-marks",
        "a dropped replica keeps its marks",
        "shared_table_drop",
        "SETTLES",
        {(table, "_release_shares"): _releases_nothing},
    ),
    Mutant(
        "dropped-with-attempts",
        "a dropped replica keeps its attempts",
        "shared_table_drop",
        "SETTLES",
        {(table, "release_attempts"): _releases_nothing},
    ),
    Mutant(
        "restored-without-marks",
        "a restore registers the parts of a disk, and leaves their marks to the next start",
        "shared_table_restore",
        "MARKED",
        {(restore_shared, "_there"): _finds_all_there},
    ),
    Mutant(
        "shared-restore-unfenced",
        "what an earlier run of a restore has on its way is not refused: a part is registered again that has left",
        "shared_table_restore_crash",
        "ONCE",
        {(restore, "_Run"): _Unfenced},
    ),
    *BORROWED_MUTANTS,
    *RECOVERING_MUTANTS,
)


def find_mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


__all__ = ["MUTANTS", "find_mutant"]
