"""Broken rules of parts that borrow: each of them forgets that a part may have more than its own share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from replitree.protocol.core.effects import Epoch, Operation
from replitree.protocol.core.layout import Replica
from replitree.protocol.rescue import restore, restore_shared
from replitree.protocol.shares import letting_go, owning, sharing
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import SharedPart, Sharer
from replitree_verify.engine.small_search import Mutant

_OWN, _OWN_REGISTERED, _LOOK, _MARKS = owning.own, owning.own_registered, owning._look, restore_shared.marks  # noqa: SLF001
_LET_GO_OF_ALL = letting_go.let_go_of_all

Parts = tuple[SharedPart, ...]


def own_shares(parts: Parts) -> Parts:
    """Return the parts with their own shares, without those that they borrow of."""
    first = {each.part: each for each in reversed(parts)}
    return tuple(each for each in parts if first[each.part] == each)


def _owns_its_own(sharer: Sharer, operations: tuple[Operation, ...], parts: Parts) -> Any:
    return _OWN(sharer, operations, own_shares(parts))


def _owns_its_own_again(sharer: Sharer, parts: Parts) -> Any:
    return _OWN_REGISTERED(sharer, own_shares(parts))


def _owns_what_is_left(sharer: Sharer, operations: tuple[Operation, ...], parts: Parts) -> Any:
    """Leave a share out that is gone, as long as there is another one."""
    there: Parts = ()
    for each in parts:
        standing = yield from _LOOK(sharer, each)
        there += () if standing is owning._Standing.GONE else (each,)  # noqa: SLF001
    return (yield from _OWN(sharer, operations, there or parts))


def _lets_go_of_its_own(sharer: Sharer, epoch: Epoch, part: str, shares: tuple[ShareId, ...]) -> Any:
    return _LET_GO_OF_ALL(sharer, epoch, part, shares[:1])


def _restores_its_own(
    replica: Replica, incarnation: str, shares: Mapping[str, tuple[ShareId, ...]], taken_back: Iterable[str]
) -> Any:
    return _MARKS(replica, incarnation, {part: some[:1] for part, some in shares.items()}, taken_back)


BORROWED_MUTANTS = (
    Mutant(
        "taken-over-in-part",
        "who takes over a part that borrows marks its own share only",
        "shared_borrowed",
        "MARKED",
        {(sharing, "own"): _owns_its_own},
    ),
    Mutant(
        "owned-in-part",
        "a part that borrows is registered although one of its shares is gone",
        "shared_borrowed_doubt",
        "MARKED",
        {(sharing, "own"): _owns_what_is_left},
    ),
    Mutant(
        "let-go-in-part",
        "a part that borrows lets go of its own share only",
        "shared_borrowed",
        "HELD",
        {(letting_go, "let_go_of_all"): _lets_go_of_its_own},
    ),
    Mutant(
        "owned-again-in-part",
        "a part that borrows is fetched again, and owns its own share only",
        "shared_borrowed_lost",
        "MARKED",
        {(module, "own_registered"): _owns_its_own_again for module in (owning, sharing)},
    ),
    Mutant(
        "restored-in-part",
        "a restore marks the own share of a part that borrows, and not the others",
        "shared_borrowed_restore",
        "MARKED",
        {(restore, "marks"): _restores_its_own},
    ),
)


__all__ = ["BORROWED_MUTANTS", "own_shares"]
