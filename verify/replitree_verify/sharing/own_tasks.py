"""What a replica does whose disk was lost: it looks for its registered parts in the shares that have its own marks.

As `replica.parts.own_shares` and `replica.table.mending` do it.  What the store does not tell is not decided, and is
looked for again.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from replitree.protocol.core.effects import CurrentEpoch, Epoch, Procedure
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.core.run import translate
from replitree.protocol.shares import own_marks, owning
from replitree.protocol.shares.share import LookAtObjects, ObjectsInDoubt, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import ForgetParts, SharedPart, Sharer, SharesOf, SharesSettled
from replitree.protocol.upkeep import lost
from replitree_verify.sharing.checking import Discard, Keep, OnDisk
from replitree_verify.sharing.disk_tasks import retire, tidy
from replitree_verify.sharing.process import new_epoch
from replitree_verify.sharing.world import INCARNATION, UNANSWERED, replica_of

TRIES_MAX = 2

_T = TypeVar("_T")
_Any = Generator[Any, Any, _T]


def find_again(name: str, part: str) -> _Any[None]:
    """Take a registered part again that this disk has lost, or say that it is broken, when the store certainly lacks it."""
    replica, sharer = replica_of(name), Sharer(replica_of(name), INCARNATION)
    for _ in range(TRIES_MAX):
        epoch = yield from new_epoch(replica)
        if epoch is None:
            return
        is_here = any(here == part for here, _ in (yield OnDisk(replica)))
        content = yield from lost.registered_contents(replica, (part,))
        if is_here or not content:
            return
        marked = yield from own_marks.marked_shares(sharer, (part,))
        found = yield from _first_there(marked.get(part, ()))
        if isinstance(found, ObjectsInDoubt):
            continue
        if found is None:
            yield from lost.note_broken(replica, epoch, parse_part(part))
            return
        yield Keep(replica, part, found)
        yield from _on_disk(owning.own_again(sharer, (part,)), replica, epoch)
        return


def leave_found(name: str, part: str) -> _Any[None]:
    """Let go of a part that was found again."""
    if any(here == part for here, _ in (yield OnDisk(replica_of(name)))):
        yield from retire(name, part)
        yield from tidy(name)


def _first_there(shares: tuple[ShareId, ...]) -> _Any[ShareId | ObjectsInDoubt | None]:
    """Return the first share that has all its objects; in doubt when the store did not tell of one."""
    doubt: ObjectsInDoubt | None = None
    for share in shares:
        looked = yield LookAtObjects((share,))
        if isinstance(looked, ObjectsThere):
            return share
        doubt = looked if _is_undecided(looked) else doubt
    return doubt


def _is_undecided(looked: ObjectsInDoubt) -> bool:
    return looked.problem == UNANSWERED


def _on_disk(procedure: Procedure[_T], replica: Replica, epoch: Epoch) -> _Any[_T]:
    """Run a procedure of `owning` on what is on the disk."""

    def each(effect: Any) -> _Any[Any]:
        match effect:
            case SharesOf(parts):
                found: tuple[tuple[str, ShareId], ...] = yield OnDisk(replica)
                return tuple(SharedPart(part, share, is_new=False) for part, share in found if part in parts)
            case CurrentEpoch():
                return epoch
            case SharesSettled():
                return None
            case ForgetParts(parts):
                for part in parts:
                    yield Discard(replica, part)
                return None
        return (yield effect)

    return (yield from translate(procedure, each))


__all__ = ["find_again", "leave_found"]
