"""Broken rules of finding parts again whose disk was lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Procedure
from replitree.protocol.rescue import fsck, fsck_repair
from replitree.protocol.rescue.fsck_look import SeenReplica
from replitree.protocol.shares import own_marks
from replitree.protocol.shares.share import ObjectsInDoubt, ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.engine.small_search import mutant_of
from replitree_verify.sharing import mender


def _absent_is_unused(
    replica: SeenReplica, part: str, share: ShareId, known: Mapping[str, set[ShareId]] | None = None
) -> bool:
    del known
    return replica.references is not None and all(
        (each.part, each.share) != (part, share) for each in replica.references
    )


def _silence_is_no(_looked: ObjectsInDoubt) -> bool:
    return False


def _asks_first_owners(sharer: Sharer, parts: Collection[str]) -> Procedure[dict[str, tuple[ShareId, ...]]]:
    """Believe that the first mark of a share says whose it is."""
    table, found = sharer.replica.table, dict[str, tuple[ShareId, ...]]()
    for name in (yield Children(layout.shares(table))) or ():
        marks = (yield Children(layout.share(table, name))) or ()
        part = marks[0].removeprefix(f"{sharer.signature.decode()}~") if marks else ""
        if part in parts:
            found[part] = (*found.get(part, ()), ShareId(name))
    return found


def _of_any_incarnation(sharer: Sharer, parts: Collection[str]) -> Procedure[dict[str, tuple[ShareId, ...]]]:
    table, found = sharer.replica.table, dict[str, tuple[ShareId, ...]]()
    for name in reversed((yield Children(layout.shares(table))) or ()):
        for mark in (yield Children(layout.share(table, name))) or ():
            replica, _, part = mark.split("~", 2)
            if replica == sharer.replica.name and part in parts:
                found[part] = (*found.get(part, ()), ShareId(name))
    return found


OWN_MUTANTS = (
    mutant_of(
        "own-mark-taken-for-stale",
        "own_doubt",
        "MARKED",
        "fsck lets go of the mark of a registered part that its replica has not on its disk",
        (fsck, "is_unused", _absent_is_unused),
        (fsck_repair, "is_unused", _absent_is_unused),
    ),
    mutant_of(
        "own-silence-is-no",
        "own_store",
        "FOUND",
        "a store that gives no answer has lost the part",
        (mender, "_is_undecided", _silence_is_no),
    ),
    mutant_of(
        "own-first-owner-only",
        "own_store",
        "FOUND",
        "a share is looked for by the first of its marks",
        (own_marks, "marked_shares", _asks_first_owners),
    ),
    mutant_of(
        "own-of-any-incarnation",
        "own_old",
        "SETTLES",
        "the mark of an earlier replica of this name counts as one's own",
        (own_marks, "marked_shares", _of_any_incarnation),
    ),
)

__all__ = ["OWN_MUTANTS"]
