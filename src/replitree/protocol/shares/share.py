"""Shared storage: the owners of objects that several replicas' parts have, and when those objects may be deleted.

A *share* is what one attempt to write a part has put into the object store: objects under a key that is never used again.  A
part has its own share, and a mutated part also those that it borrows files of.  For every share that a registered part has,
its replica has a *mark*: a child of the share's node, named by replica, incarnation and part.

=============  ============================================================================================================
write          note the attempt, put the objects; the commit that registers the part creates the share's node and the mark
take over      the commit that registers the part creates the mark, and proves that the share's node exists
let go         delete the mark, and prove that another owner stays; or delete the share's node too and create its garbage node,
               which only the last owner can: a node with children stays
work off       delete the objects of a garbage node, then the node; any replica may, as often as needed
=============  ============================================================================================================

The first two are `protocol.shares.sharing` and `protocol.shares.owning`; the others are here.

Guarantees, at every moment and after every crash:

* A registered part has its marks, and the objects of every marked share exist: registration and mark are one commit.
* A share's node has an owner.  Its writer creates it once: a replica that comes after the last owner let go is refused, and no
  share is resurrected.
* The objects of a share that once had a node and has none are garbage until they are deleted.

Every commit proves the replica's epoch, so a late commit of a replaced process is refused.  After `InDoubt` the caller takes a
new epoch and reads its registration, as after any lost answer.

Source: design 6; ``spec/zero_copy.md`` 1.5, 1.8, 3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NewType, TypeAlias, TypeVar

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace

ShareId = NewType("ShareId", str)
"""Name of a share: unguessable, made anew by every attempt to write a part."""

FRESH = fx.Version(0)
"""Version of the node of a share: it is made once, and never written again."""


GARBAGE_AT_ONCE = 64
"""So many shares are deleted before their nodes are, in one commit."""


# --- effects on the object store ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookAtObjects(fx.Effect):
    """Look whether the objects of shares can be read here.  Outcome: `ObjectsThere` or `ObjectsInDoubt`."""

    shares: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class DeleteObjects(fx.Effect):
    """Delete whatever a share has in the store.  Outcome: `ObjectsGone` or `ObjectsInDoubt`."""

    share: ShareId


@dataclass(frozen=True, slots=True)
class ObjectsThere:
    """All of them are there, whole."""


@dataclass(frozen=True, slots=True)
class ObjectsGone:
    """None of them is there."""


@dataclass(frozen=True, slots=True)
class ObjectsInDoubt:
    """The store gave no answer, or they are not all there; what was asked may also happen later."""

    problem: str = ""


_T = TypeVar("_T")
ShareEffect: TypeAlias = fx.Effect | LookAtObjects | DeleteObjects
Sharing: TypeAlias = Generator[ShareEffect, Any, _T]
"""A procedure of shared storage: yields effects on coordination and on the object store."""


# --- owners -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareOwner:
    """A part of a replica, as the owner of shares.

    Attributes
    ----------
    replica, epoch
        Whose part it is, and the epoch that its commits prove.
    incarnation
        Which replica of this name: one that is created again under the name of a dropped one has another.
    part
        Name of the part.
    """

    replica: Replica
    epoch: fx.Epoch
    incarnation: str
    part: str

    @property
    def name(self) -> str:
        """Name of its marks."""
        return f"{self.replica.name}~{self.incarnation}~{self.part}"

    @property
    def proof(self) -> fx.Check:
        """What every commit of it proves."""
        return fx.Check(layout.host(self.replica), self.epoch)

    def mark(self, share: ShareId) -> str:
        """Return the path of its mark on a share."""
        return f"{layout.share(self.replica.table, share)}/{self.name}"


# --- letting go ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LetGo:
    """The part is not registered any more; `garbage` are the shares whose last owner it was."""

    garbage: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class NotOwned:
    """The owner does not own all of the shares; `problem` says which node a commit was refused for."""

    problem: str


def let_go(
    owner: ShareOwner,
    shares: tuple[ShareId, ...],
    deregister: tuple[fx.Operation, ...],
    *,
    is_gone: bool = False,
    unless: tuple[fx.Check, ...] = (),
) -> fx.Procedure[LetGo | NotOwned | fx.InDoubt]:
    """Take a part's registration and its marks back, in one commit.

    The other owners are read first, and the commit proves that one of them stays.

    Parameters
    ----------
    owner, shares
        The part, and all that it has.
    deregister
        What takes its registration back.
    is_gone
        The replica is not in the table any more, so that there is no epoch to prove, and no process that could be this owner.
    unless
        What must hold before anything is deleted, such as the versions of its own marks.
    """
    proof = () if is_gone else (owner.proof,)
    others = yield from _other_owners(owner, shares)
    while True:
        leaving = (operation for share in shares for operation in _leave(owner, share, others[share]))
        match (yield fx.Commit(*proof, *unless, *leaving, *deregister)):
            case fx.Applied():
                return LetGo(tuple(share for share in shares if not others[share]))
            case fx.Unknown():
                return fx.InDoubt()
            # An owner was added meanwhile.
            case fx.Refused(_, fx.Reason.NOT_EMPTY):
                yield fx.Sync(layout.shares(owner.replica.table))
                others = yield from _other_owners(owner, shares)
            case fx.Refused(operation, reason):
                # An owner that has released the share in the same moment is struck off without a second read, so of the two
                # last owners the slower one needs one commit more.
                gone = _witness(owner, others, operation)
                if gone is None:
                    return NotOwned(f"{operation.path}: {reason.value}")
                others = {share: tuple(name for name in names if name != gone) for share, names in others.items()}


_Others: TypeAlias = Mapping[ShareId, tuple[str, ...]]
"""The names of the marks that others have on each share, in the order in which they are asked to stay."""


def _other_owners(owner: ShareOwner, shares: tuple[ShareId, ...]) -> fx.Procedure[_Others]:
    """Look who else owns the shares: the same part of another replica comes first."""
    lists: fx.Lists = yield fx.ChildrenMany(tuple(layout.share(owner.replica.table, share) for share in shares))
    return {
        share: tuple(
            sorted(
                (name for name in names or () if name != owner.name),
                key=lambda name: name.split("~", 2)[2] != owner.part,
            )
        )
        for share, names in zip(shares, lists, strict=True)
    }


def _leave(owner: ShareOwner, share: ShareId, others: tuple[str, ...]) -> tuple[fx.Operation, ...]:
    """Operations that delete a mark; the last owner's delete the node, too."""
    place = layout.share(owner.replica.table, share)
    if others:
        return (fx.Check(f"{place}/{others[0]}", fx.ANY_VERSION), fx.Delete(owner.mark(share), fx.ANY_VERSION))
    return (
        fx.Delete(owner.mark(share), fx.ANY_VERSION),
        fx.Delete(place, fx.ANY_VERSION),
        fx.Create(layout.garbage(owner.replica.table, share)),
    )


def _witness(owner: ShareOwner, others: _Others, refused: fx.Operation) -> str | None:
    """Return the name of the other owner that has not stayed, if a commit was refused because of one."""
    for share, names in others.items():
        if names and refused == fx.Check(f"{layout.share(owner.replica.table, share)}/{names[0]}", fx.ANY_VERSION):
            return names[0]
    return None


def release(replica: Replica, epoch: fx.Epoch) -> fx.Procedure[LetGo | NotOwned | fx.InDoubt]:
    """Delete every mark of a replica that is being dropped, of all its incarnations.

    Parameters
    ----------
    replica, epoch
        The dropped replica, and the version of its `host` since it says so: none of its own processes has this epoch.
    """
    garbage: tuple[ShareId, ...] = ()
    for name in (yield fx.Children(layout.shares(replica.table))) or ():
        share = ShareId(name)
        for mark in (yield fx.Children(layout.share(replica.table, share))) or ():
            of, incarnation, part = mark.split("~", 2)
            if of != replica.name:
                continue
            outcome = yield from let_go(ShareOwner(replica, epoch, incarnation, part), (share,), ())
            if not isinstance(outcome, LetGo):
                return outcome
            garbage += outcome.garbage
    return LetGo(garbage)


# --- the garbage --------------------------------------------------------------------------------------------------------------


def work_off(table: TablePlace) -> Sharing[tuple[ShareId, ...]]:
    """Delete the objects of shares without owners; return which were done."""
    done: list[ShareId] = []
    names: tuple[str, ...] = (yield fx.Children(layout.all_garbage(table))) or ()
    for first in range(0, len(names), GARBAGE_AT_ONCE):
        gone: list[ShareId] = []
        for share in map(ShareId, names[first : first + GARBAGE_AT_ONCE]):
            deleted = yield DeleteObjects(share)
            gone += [share] if isinstance(deleted, ObjectsGone) else []
        yield from _forget_garbage(table, gone)
        done += gone
    return tuple(done)


def _forget_garbage(table: TablePlace, gone: list[ShareId]) -> Sharing[None]:
    """Delete the nodes of shares whose objects are gone, in one commit."""
    while gone:
        outcome = yield fx.Commit(*(fx.Delete(layout.garbage(table, share), fx.ANY_VERSION) for share in gone))
        if not isinstance(outcome, fx.Refused) or len(gone) == 1:
            return
        # Another replica has deleted some of them.
        yield fx.Sync(layout.all_garbage(table))
        left: tuple[str, ...] = (yield fx.Children(layout.all_garbage(table))) or ()
        gone = [share for share in gone if share in left]


__all__ = [
    "FRESH",
    "DeleteObjects",
    "LetGo",
    "LookAtObjects",
    "NotOwned",
    "ObjectsGone",
    "ObjectsInDoubt",
    "ObjectsThere",
    "ShareEffect",
    "ShareId",
    "ShareOwner",
    "Sharing",
    "let_go",
    "release",
    "work_off",
]
