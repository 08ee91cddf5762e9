"""Sharing: what a replica of a table on an object store does more than one of a local table.

Every procedure of such a replica runs through `with_shares`.  It lets procedures be what they are, and adds to their effects:

=====================  ====================================================================================================
a part is staged       note the attempt (`writing/<share>`), then put the objects; a part that can't be put was not staged
a commit registers     in the same commit: what it wrote becomes a share (the attempt's node goes, the share's node and the
                       mark come); of what it took over it creates the mark
=====================  ====================================================================================================

And three duties are its own:

* `let_go_of`: what has left the disk is let go of, by a commit that also proves that the part is not registered, or, where its
  rows have moved (`protocol.moving`), that the mark was not written since the disk was looked at.  So a mark lives as long as
  the part is on its replica's disk: also while it is old, and kept for readers.
* `give_up_attempts`: attempts of which nothing is on the disk, because a crash came in between, become garbage.
* `share.work_off`: the garbage is worked off, by whoever likes.

So a share whose objects may be in the store is in exactly one place, at every moment: being written, owned, or in the garbage;
and each way from one to the next is one commit that deletes the place where it was.

*Too late.*  Who takes a part over when the last owner has let go is refused, since there is no node to mark.  The part was
never registered; its folder is put out of the way (`ForgetParts`), and the procedure hears that its commit was refused.

Source: design 6; ``spec/zero_copy.md`` 1.5, 1.8, 3.3.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias, TypeVar, cast

from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Children,
    Commit,
    Committed,
    Create,
    CurrentEpoch,
    Delete,
    Effect,
    Epoch,
    Get,
    GetMany,
    Link,
    Made,
    Many,
    Merge,
    Mutate,
    Operation,
    Procedure,
    Reason,
    Refused,
    Set,
    Stage,
    Staged,
    StagingId,
    StoreFailed,
    Sync,
)
from replitree.protocol.layout import Replica, Table
from replitree.protocol.share import FRESH, InDoubt, LetGo, ObjectsThere, Owner, ShareId, let_go

ATTEMPTS_MAX = 8
"""How often one commit is made anew because its shares were not what they seemed to be."""

LOOK_BATCH = 500
"""Marks that are looked at in one request."""


# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NameShares:
    """Give each staged part that is to go into the store a share.  Outcome: their names; none where nothing is to be put."""

    staging: StagingId


@dataclass(frozen=True, slots=True)
class PutShares:
    """Put the objects of the named shares, durably, and note in the staged parts where they are.

    Outcome: `ObjectsThere`, or `ObjectsInDoubt`: some may be there, or come to be there.
    """

    staging: StagingId


@dataclass(frozen=True, slots=True)
class SharesOf:
    """Outcome: a `SharedPart` for each of these published parts whose data files are in a share."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A published part, its share, and whether this process wrote that and has not registered it yet, as far as it knows."""

    part: str
    share: ShareId
    is_new: bool


@dataclass(frozen=True, slots=True)
class SharesSettled:
    """Note that this process writes these shares no more: they are owned, or were never begun.  Outcome: None."""

    shares: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class ForgetParts:
    """Put published parts out of the way whose shares are gone; they were not registered.  Outcome: None."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharesHere:
    """Outcome: the names of all shares that something on this disk has, or that this process is writing, ascending."""


@dataclass(frozen=True, slots=True)
class HasPart:
    """Outcome: whether a part of this name is published here, wherever its rows are."""

    part: str


@dataclass(frozen=True, slots=True)
class SharesInDoubt:
    """An answer about these shares was lost: nobody works off what is noted of them before this replica has a newer epoch.

    Outcome: None; the replica activates again.
    """

    shares: tuple[ShareId, ...]


LocalShareEffect: TypeAlias = (
    NameShares | PutShares | SharesOf | SharesSettled | ForgetParts | SharesHere | HasPart | SharesInDoubt
)
_T = TypeVar("_T")
_Any: TypeAlias = Generator[Effect | LocalShareEffect, Any, _T]


@dataclass(frozen=True, slots=True)
class Sharer:
    """Whose shares they are: a replica, and which one of this name."""

    replica: Replica
    incarnation: str

    @property
    def signature(self) -> bytes:
        """Value of the nodes of its attempts."""
        return f"{self.replica.name}~{self.incarnation}".encode()

    def mark(self, part: SharedPart) -> str:
        """Return the path of a part's mark on its share."""
        return Owner(self.replica, Epoch(0), self.incarnation, part.part).mark(part.share)


# --- procedures, and what is added to them ------------------------------------------------------------------------------------


def with_shares(sharer: Sharer, procedure: Procedure[_T]) -> Procedure[_T]:
    """Return a procedure that does the same, and keeps the shares of the parts that it stages and registers.

    Parameters
    ----------
    sharer
        Who runs it.
    procedure
        Any procedure of a replica.
    """
    return cast(
        "Procedure[_T]", _with_shares(sharer, procedure)
    )  # its effects are more: who runs it performs them, too


def _with_shares(sharer: Sharer, procedure: Procedure[_T]) -> _Any[_T]:
    outcome: object = None
    try:
        while True:
            effect = procedure.send(outcome)
            match effect:
                case Stage() | Merge() | Mutate() | Link():
                    outcome = yield from _staged(sharer, effect)
                case Commit():
                    outcome = yield from _committed(sharer, effect)
                case _:
                    outcome = yield effect
    except StopIteration as stop:
        return cast("_T", stop.value)
    finally:
        procedure.close()


def _staged(sharer: Sharer, effect: Stage | Merge | Mutate | Link) -> _Any[object]:
    """Stage, and put what was staged into the store."""
    outcome = yield effect
    if not isinstance(outcome, Staged | Made):
        return outcome
    return (yield from _put(sharer, effect.staging)) or outcome


def _put(sharer: Sharer, staging: StagingId) -> _Any[StoreFailed | None]:
    named: tuple[ShareId, ...] = yield NameShares(staging)
    if not named:
        return None
    table, epoch = sharer.replica.table, (yield CurrentEpoch())
    if epoch is None:
        yield SharesSettled(named)
        return StoreFailed("the replica is not active any more; try again")
    proof = Check(layout.host(sharer.replica), epoch)
    noted = yield Commit(proof, *(Create(layout.writing(table, each), sharer.signature) for each in named))
    if not isinstance(noted, Applied):
        yield SharesSettled(named)
        return StoreFailed("coordination did not take note of what is to be put into the object store; try again")
    put = yield PutShares(staging)
    if isinstance(put, ObjectsThere):
        return None
    for each in named:
        yield from _give_up(proof, sharer, each)
    return StoreFailed(f"the object store did not take the part: {put.problem}")


# --- registering --------------------------------------------------------------------------------------------------------------


class _Standing(Enum):
    """Where a share stands, for a part that is to be registered."""

    WRITTEN = "this replica wrote it, and nobody owns it yet"
    OWNED_BY_OTHERS = "it has owners; this part is not among them"
    OWNED = "this part owns it already"
    GONE = "nobody owns it any more"


def _committed(sharer: Sharer, effect: Commit) -> _Any[Committed]:
    """Commit, and in the same commit own the shares of the parts that it registers."""
    registered = _registered(sharer.replica, effect)
    shared: tuple[SharedPart, ...] = (yield SharesOf(registered)) if registered else ()
    if not shared:
        plain: Committed = yield effect
        return plain
    outcome = yield from _own(sharer, effect.operations, shared)
    if _is_late(sharer.replica, outcome):  # an earlier try has registered it: perhaps with other objects
        assert isinstance(outcome, Refused)
        late = tuple(part for part in shared if outcome.operation.path == layout.part(sharer.replica, part.part))
        yield from own_registered(sharer, late)
    return outcome


def _registered(replica: Replica, effect: Commit) -> tuple[str, ...]:
    prefix = f"{layout.parts(replica)}/"
    again = frozenset(each.path for each in effect.operations if isinstance(each, Delete))  # see `not_registered`
    paths = (each.path for each in effect.operations if isinstance(each, Create) and each.path not in again)
    return tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix))


def _is_late(replica: Replica, outcome: Committed) -> bool:
    return (
        isinstance(outcome, Refused)
        and outcome.reason is Reason.NODE_EXISTS
        and outcome.operation.path.startswith(f"{layout.parts(replica)}/")
    )


def own_registered(sharer: Sharer, parts: tuple[SharedPart, ...]) -> Procedure[bool]:
    """Own the shares of parts that are registered already, and whose objects may be others than they were.

    Returns
    -------
    Whether they are owned; if not, what is on the disk is gone, and has to be fetched again.
    """
    return cast("Procedure[bool]", _own_registered(sharer, parts))


def _own_registered(sharer: Sharer, parts: tuple[SharedPart, ...]) -> _Any[bool]:
    epoch: Epoch | None = yield CurrentEpoch()
    if epoch is None or not parts:
        return not parts
    proof = Check(layout.host(sharer.replica), epoch)
    registered = (Check(layout.part(sharer.replica, each.part), ANY_VERSION) for each in parts)
    outcome = yield from _own(sharer, (proof, *registered), parts)
    return isinstance(outcome, Applied)


def own_held(sharer: Sharer, parts: tuple[str, ...]) -> Procedure[tuple[str, ...]]:
    """Own what registered parts have, wherever there is no mark yet; for a start, before anything is shown.

    A crash may have come after a part was fetched again and before it was owned; or coordination was restored from a copy.

    Returns
    -------
    The parts whose objects are gone: they have to be fetched again.
    """
    return cast("Procedure[tuple[str, ...]]", _own_held(sharer, parts))


def _own_held(sharer: Sharer, parts: tuple[str, ...]) -> _Any[tuple[str, ...]]:
    left: list[str] = []
    for first in range(0, len(parts), LOOK_BATCH):
        shared: tuple[SharedPart, ...] = yield SharesOf(parts[first : first + LOOK_BATCH])
        many: Many = (yield GetMany(tuple(map(sharer.mark, shared)))) if shared else Many(())
        for part, mark in zip(shared, many.nodes, strict=True):
            if mark is None and not (yield from _own_registered(sharer, (part,))):
                left.append(part.part)
    return tuple(left)


def own_again(sharer: Sharer, parts: tuple[str, ...]) -> Procedure[tuple[str, ...]]:
    """Own what registered parts have that have just come again, whether there is a mark or not.

    A mark that is there may be about to be let go of, for the rows that the part had before: so it is written.

    Returns
    -------
    The parts whose objects are gone: they have to be fetched again.
    """
    return cast("Procedure[tuple[str, ...]]", _own_again(sharer, parts))


def _own_again(sharer: Sharer, parts: tuple[str, ...]) -> _Any[tuple[str, ...]]:
    left: tuple[str, ...] = ()
    for part in (yield SharesOf(parts)):
        is_owned = yield from _own_registered(sharer, (part,))
        left += () if is_owned else (part.part,)
    return left


def _own(sharer: Sharer, operations: tuple[Operation, ...], parts: tuple[SharedPart, ...]) -> _Any[Committed]:
    """Commit operations together with those that own shares; where a share stands otherwise than thought is looked at again."""
    standing = {part: _Standing.WRITTEN if part.is_new else _Standing.OWNED_BY_OTHERS for part in parts}
    looked_at = parts[0]
    for _ in range(ATTEMPTS_MAX):
        added = {part: _owning(sharer, part, standing[part]) for part in parts}
        outcome: Committed = yield Commit(*operations, *(each for some in added.values() for each in some))
        if isinstance(outcome, Applied):
            yield SharesSettled(tuple(part.share for part in parts))
            created = sum(isinstance(each, Create) for each in operations)
            return replace(outcome, created=outcome.created[:created])
        wrong = _wrong(outcome, added)
        if wrong is None:
            return outcome
        looked_at = wrong
        standing[wrong] = yield from _look(sharer, wrong)
        if standing[wrong] is _Standing.GONE:
            yield ForgetParts((wrong.part,))
            break
    return Refused(
        Create(sharer.mark(looked_at)), Reason.NO_NODE
    )  # a check that fails would say that the replica is fenced


def _wrong(outcome: Committed, added: dict[SharedPart, tuple[Operation, ...]]) -> SharedPart | None:
    if not isinstance(outcome, Refused):
        return None
    return next((part for part, operations in added.items() if outcome.operation in operations), None)


def _owning(sharer: Sharer, part: SharedPart, standing: _Standing) -> tuple[Operation, ...]:
    table, mark = sharer.replica.table, sharer.mark(part)
    place = layout.share(table, part.share)
    match standing:
        case _Standing.WRITTEN:
            return Delete(layout.writing(table, part.share), ANY_VERSION), Create(place), Create(mark)
        case _Standing.OWNED:
            return (Set(mark, b"", ANY_VERSION),)  # another version: who is about to let go of it is refused
    return Check(place, FRESH), Create(mark)


def _look(sharer: Sharer, part: SharedPart) -> _Any[_Standing]:
    """Look where a share stands, not older than now."""
    table = sharer.replica.table
    yield Sync(layout.shares(table))
    paths = (sharer.mark(part), layout.writing(table, part.share), layout.share(table, part.share))
    many: Many = yield GetMany(paths)
    mark, writing, place = many.nodes
    if mark is not None:
        return _Standing.OWNED
    if writing is not None and writing.value == sharer.signature:
        return _Standing.WRITTEN
    return _Standing.OWNED_BY_OTHERS if place is not None and place.version == FRESH else _Standing.GONE


# --- letting go ---------------------------------------------------------------------------------------------------------------


def let_go_of(sharer: Sharer, epoch: Epoch, part: str, share: ShareId) -> Procedure[bool]:
    """Let go of the share of a part that has left this disk.

    Parameters
    ----------
    sharer, epoch
        Whose part it was.
    part
        Its name; empty when it was only staged.
    share
        What it had.

    Returns
    -------
    Whether nothing of it is left in coordination; if not it is to be tried again, such as when the part is registered.
    """
    return cast("Procedure[bool]", _let_go_of(sharer, epoch, part, share))


def _let_go_of(sharer: Sharer, epoch: Epoch, part: str, share: ShareId) -> _Any[bool]:
    proof = Check(layout.host(sharer.replica), epoch)
    if not part:
        return (yield from _has_given_up(proof, sharer, share))
    here: tuple[SharedPart, ...] = yield SharesOf((part,))
    if any(each.share == share for each in here):  # the same part has come again: the mark is that one's
        return True
    if (yield HasPart(part)):
        return (yield from _let_go_of_moved(proof, sharer, SharedPart(part, share, is_new=False)))
    absent = not_registered(sharer.replica, part)
    outcome = yield from let_go(Owner(sharer.replica, epoch, sharer.incarnation, part), (share,), absent)
    if isinstance(outcome, LetGo):
        return True
    yield Sync(layout.shares(sharer.replica.table))
    if (yield Get(sharer.mark(SharedPart(part, share, is_new=False)))) is not None:
        return False
    return (yield from _has_given_up(proof, sharer, share))  # who would still register it needs the attempt


def _let_go_of_moved(proof: Check, sharer: Sharer, moved: SharedPart) -> _Any[bool]:
    """Let go of a share whose part is here with other rows: those have moved, or were to be moved.

    Whoever owns the share again for this part, because it has come back with it, writes the mark; so what was seen on the disk
    after the mark was read holds as long as the mark has its version.
    """
    yield Sync(layout.shares(sharer.replica.table))
    mark = yield Get(sharer.mark(moved))
    if mark is None:
        return (yield from _has_given_up(proof, sharer, moved.share))
    here: tuple[SharedPart, ...] = yield SharesOf((moved.part,))
    if any(each.share == moved.share for each in here):
        return True
    owner = Owner(sharer.replica, Epoch(proof.version), sharer.incarnation, moved.part)
    as_it_was = Check(sharer.mark(moved), mark.version)
    outcome = yield from let_go(owner, (moved.share,), (), unless=(as_it_was,))
    if isinstance(outcome, InDoubt):  # the part may have the share again when the mark is deleted
        yield SharesInDoubt((moved.share,))
    return isinstance(outcome, LetGo)


def not_registered(replica: Replica, part: str) -> tuple[Operation, ...]:
    """Return what proves in a commit that a part is not registered: it can be, and is not afterwards."""
    path = layout.part(replica, part)
    return Create(path), Delete(path, ANY_VERSION)


def _has_given_up(proof: Check, sharer: Sharer, share: ShareId) -> Procedure[bool]:
    """Give an attempt up if it is this replica's; True: there is none of it any more."""
    node = yield Get(layout.writing(sharer.replica.table, share))
    if node is None or node.value != sharer.signature:
        return True
    return (yield from _give_up(proof, sharer, share))


def _give_up(proof: Check, sharer: Sharer, share: ShareId) -> Procedure[bool]:
    """Make garbage of an attempt; whether that was applied."""
    table = sharer.replica.table
    outcome = yield Commit(
        proof, Delete(layout.writing(table, share), ANY_VERSION), Create(layout.garbage(table, share))
    )
    return isinstance(outcome, Applied)


def give_up_published(sharer: Sharer, epoch: Epoch, part: str) -> Procedure[bool]:
    """Give up the attempt of a part that is published here and was never registered, and never will be then.

    Returns
    -------
    False: it is registered, or may be; or it has no share that this replica has written.
    """
    return cast("Procedure[bool]", _give_up_published(sharer, epoch, part))


def _give_up_published(sharer: Sharer, epoch: Epoch, part: str) -> _Any[bool]:
    proof = Check(layout.host(sharer.replica), epoch)
    for shared in (yield SharesOf((part,))):
        if (yield from _give_up(proof, sharer, shared.share)):
            yield SharesSettled((shared.share,))
            return True
    return False


def give_up_attempts(sharer: Sharer, epoch: Epoch) -> Procedure[int]:
    """Make garbage of this replica's attempts of which nothing is on the disk; return how many.

    For an activation: what an earlier process had on its way is refused by then.
    """
    return cast("Procedure[int]", _give_up_attempts(sharer, epoch))


def _give_up_attempts(sharer: Sharer, epoch: Epoch) -> _Any[int]:
    table = sharer.replica.table
    yield Sync(layout.all_writing(table))
    names: tuple[str, ...] = (yield Children(layout.all_writing(table))) or ()
    many: Many = (yield GetMany(tuple(layout.writing(table, name) for name in names))) if names else Many(())
    mine = tuple(
        name
        for name, node in zip(names, many.nodes, strict=True)
        if node is not None and node.value == sharer.signature
    )
    here: tuple[str, ...] = (yield SharesHere()) if mine else ()
    given_up = 0
    for name in mine:
        if name not in here:
            given_up += yield from _give_up(Check(layout.host(sharer.replica), epoch), sharer, ShareId(name))
    return given_up


def release_attempts(replica: Replica, proof: Check) -> Procedure[bool]:
    """Make garbage of all attempts of a replica that is being dropped, of all its incarnations; False: do it again."""
    table = replica.table
    for name in (yield Children(layout.all_writing(table))) or ():
        node = yield Get(layout.writing(table, name))
        if node is None or node.value.partition(b"~")[0] != replica.name.encode():
            continue
        outcome = yield Commit(
            proof, Delete(layout.writing(table, name), ANY_VERSION), Create(layout.garbage(table, name))
        )
        if not isinstance(outcome, Applied):
            return False
    return True


# --- the store ----------------------------------------------------------------------------------------------------------------


class Store(Enum):
    """What a replica finds out about the store that it reaches."""

    RIGHT = "it is the table's"
    OTHER = "it is another one"
    UNSETTLED = "it could not be found out"


def agree_on_store(replica: Replica, store_id: str) -> Procedure[Store]:
    """Find out whether a store is the table's; the first replica that asks says which one that is."""
    path = layout.sharing(replica.table)
    for _ in range(2):
        yield Sync(path)
        node = yield Get(path)
        if node is None:
            return Store.UNSETTLED
        if node.value:
            return Store.RIGHT if node.value == store_id.encode() else Store.OTHER
        yield Commit(Set(path, store_id.encode(), node.version))
    return Store.UNSETTLED


def incarnation_of(replica: Replica, fresh: str) -> Procedure[str | None]:
    """Find out which replica of its name one is; None: that could not be had.

    Parameters
    ----------
    fresh
        Given to one that has none yet: it joined when the table was on local disks.
    """
    path = layout.replica_path(replica)
    for _ in range(2):
        yield Sync(path)
        node = yield Get(path)
        if node is None:
            return None
        if node.value:
            return cast("str", node.value.decode())
        yield Commit(Set(path, fresh.encode(), node.version))
    return None


def sharing_nodes(table: Table) -> tuple[Create, ...]:
    """Return what creates the nodes of a table whose parts lie in an object store, beside the others."""
    return (
        Create(layout.sharing(table)),
        Create(layout.all_writing(table)),
        Create(layout.shares(table)),
        Create(layout.all_garbage(table)),
        Create(layout.all_merged(table)),
    )


__all__ = [
    "ForgetParts",
    "HasPart",
    "LocalShareEffect",
    "NameShares",
    "PutShares",
    "SharedPart",
    "Sharer",
    "SharesHere",
    "SharesInDoubt",
    "SharesOf",
    "SharesSettled",
    "Store",
    "agree_on_store",
    "give_up_attempts",
    "give_up_published",
    "incarnation_of",
    "let_go_of",
    "not_registered",
    "own_again",
    "own_held",
    "own_registered",
    "release_attempts",
    "sharing_nodes",
    "with_shares",
]
