"""What the processes of a model do, as a replica does it: procedures that register, run through `with_shares`, and its duties.

A process is replaced after a crash: the next one takes a new epoch, gives up what is half done, and does the task that was not
done.  It knows what is done from coordination and from its disk.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, Table
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership import table
from replitree.protocol.program import life_in_store, table_drop
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.shares import letting_go, owning, share, sharing
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state import registration

TABLE = Table("/t")
INCARNATION = "i1"
STORE_ID = "s1"
STAGING = fx.StagingId("staged")
CONTENT = "c1"

Task: TypeAlias = Generator[Any, Any, None]


@dataclass(frozen=True, slots=True)
class ListLeaving:
    """Outcome: part (empty: it was only staged) and shares of what has left the disk and was not let go of."""


@dataclass(frozen=True, slots=True)
class HasLeft:
    """Forget something that has left the disk: all of it was let go of.  Outcome: None."""

    part: str
    shares: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class LosePart:
    """The folder of a part is lost, with all that is in it, and reads are not shown it.  Outcome: None."""

    part: str


def replica_of(name: str) -> Replica:
    """Return a replica of the models' table."""
    return Replica(TABLE, name)


def sharer_of(name: str) -> Sharer:
    """Return who a replica is to coordination."""
    return Sharer(replica_of(name), INCARNATION)


# --- a process begins ---------------------------------------------------------------------------------------------------------


def begin(name: str) -> fx.Procedure[fx.Epoch | None]:
    """Take a new epoch, and settle what earlier processes have left; None when the replica is being dropped."""
    epoch = yield from new_epoch(replica_of(name))
    if epoch is None:
        return None
    for staging in (yield fx.ListStaging()):
        yield fx.RemoveStaging(staging)
    yield from _settle(name, epoch)
    return epoch


def activate(name: str) -> Task:
    """Take a new epoch because the session has ended, while something runs: what that has staged is not swept."""
    epoch = yield from new_epoch(replica_of(name))
    if epoch is not None:
        yield from _settle(name, epoch)


def _settle(name: str, epoch: fx.Epoch) -> fx.Procedure[None]:
    yield from letting_go.give_up_attempts(sharer_of(name), epoch)
    here: tuple[str, ...] = yield fx.ListParts()
    many: fx.Many = (
        (yield fx.GetMany(tuple(layout.part(replica_of(name), part) for part in here))) if here else fx.Many(())
    )
    registered = tuple(part for part, node in zip(here, many.nodes, strict=True) if node is not None)
    gone = (yield from owning.own_held(sharer_of(name), registered)) if registered else ()
    yield fx.Reveal(tuple(part for part in registered if part not in gone))


def new_epoch(replica: Replica) -> fx.Procedure[fx.Epoch | None]:
    """Take a new epoch; None when the replica is being dropped."""
    while True:
        yield fx.Sync(layout.host(replica))
        host = yield fx.Get(layout.host(replica))
        if host is None or host.value == table.DROPPED_HOST:
            return None
        outcome = yield fx.Commit(fx.Set(layout.host(replica), b"here", host.version))
        if isinstance(outcome, fx.Applied):
            epoch = fx.Epoch(host.version + 1)
            yield fx.AdoptEpoch(epoch)
            return epoch


def _is_registered(name: str, part: str) -> fx.Procedure[bool]:
    return (yield fx.Get(layout.part(replica_of(name), part))) is not None


# --- tasks --------------------------------------------------------------------------------------------------------------------


def write(name: str, part: str) -> Task:
    """Stage a part, publish it, register it."""
    for _ in range(2):
        epoch = yield from begin(name)
        if epoch is None or (yield from _is_registered(name, part)):
            return
        yield from sharing.with_shares(sharer_of(name), _write(replica_of(name), epoch, part))
        if (yield from _is_registered(name, part)):
            return


def _write(replica: Replica, epoch: fx.Epoch, part: str) -> fx.Procedure[None]:
    if (yield fx.FindPart(part)) is None:
        staged = yield fx.Stage(STAGING, ())
        if not isinstance(staged, fx.Staged):
            yield fx.RemoveStaging(STAGING)
            return
        yield fx.Publish(STAGING, (("all", part),))
    yield from _register(replica, epoch, part)


def _register(replica: Replica, epoch: fx.Epoch, part: str, gone: tuple[str, ...] = ()) -> fx.Procedure[None]:
    named = parse_part(part)
    operations: tuple[fx.Operation, ...] = (
        registration.register(replica, named, CONTENT),
        *(registration.deregister(replica, parse_part(each)) for each in gone),
    )
    yield from registration.finish(replica, epoch, (), operations, (named,), tuple(map(parse_part, gone)))


def take(name: str, part: str, source: str) -> Task:
    """Take a part over from another replica, and register it."""
    for _ in range(2):
        epoch = yield from begin(name)
        if epoch is None or (yield from _is_registered(name, part)):
            return
        yield from sharing.with_shares(sharer_of(name), _take(replica_of(name), epoch, part, source))
        if (yield from _is_registered(name, part)):
            return


def _take(replica: Replica, epoch: fx.Epoch, part: str, source: str) -> fx.Procedure[None]:
    fetched = yield fx.FetchPart(part, CONTENT, (source,))
    if isinstance(fetched, fx.Fetched):
        yield from _register(replica, epoch, part)


def leave(name: str, part: str) -> Task:
    """Take a part's registration back, remove it from the disk, and let go of what has left."""
    replica = replica_of(name)
    for _ in range(2):
        epoch = yield from begin(name)
        if epoch is None:
            return
        if (yield from _is_registered(name, part)):
            yield fx.Commit(
                fx.Check(layout.host(replica), epoch), fx.Delete(layout.part(replica, part), fx.ANY_VERSION)
            )
        if not (yield from _is_registered_now(name, part)):
            yield fx.RemovePart(part)
            yield from let_go(name, epoch)
            return


def churn(name: str, part: str, source: str) -> Task:
    """Take a part over, leave it, let go of it, and take it over again: one process, in one epoch."""
    epoch = yield from begin(name)
    if epoch is None:
        return
    replica, sharer = replica_of(name), sharer_of(name)
    yield from sharing.with_shares(sharer, _take(replica, epoch, part, source))
    if (yield from _is_registered(name, part)):
        yield fx.Commit(fx.Check(layout.host(replica), epoch), fx.Delete(layout.part(replica, part), fx.ANY_VERSION))
        if not (yield from _is_registered_now(name, part)):
            yield fx.RemovePart(part)
    yield from let_go(name, epoch)
    yield from sharing.with_shares(sharer, _take(replica, epoch, part, source))


def _is_registered_now(name: str, part: str) -> fx.Procedure[bool]:
    yield fx.Sync(layout.parts(replica_of(name)))
    return (yield from _is_registered(name, part))


def let_go(name: str, epoch: fx.Epoch) -> Task:
    """Let go of all that has left the disk."""
    for part, shares in (yield ListLeaving()):
        if (yield from letting_go.let_go_of_all(sharer_of(name), epoch, part, shares)):
            yield HasLeft(part, shares)


def settle(name: str) -> Task:
    """Let go of what earlier tasks have left, if they have; the last task of a replica."""
    if not (yield ListLeaving()):
        return
    epoch = yield from begin(name)
    for _ in range(2):
        if epoch is None or not (yield ListLeaving()):
            return
        yield from let_go(name, epoch)


def lose(name: str, part: str) -> Task:
    """Lose the folder of a part."""
    del name
    yield LosePart(part)


def mend(name: str, part: str, source: str) -> Task:
    """Fetch a registered part again that is not on the disk, and own what came."""
    epoch = yield from begin(name)
    if epoch is None or not (yield from _is_registered(name, part)):
        return
    fetched = yield fx.FetchPart(part, CONTENT, (source,))
    if isinstance(fetched, fx.Fetched):
        gone = yield from owning.own_again(sharer_of(name), (part,))
        yield fx.Reveal(() if gone else (part,))


def open_store(name: str) -> Stage:
    """Get an object store while the replica is active."""
    epoch = yield from new_epoch(replica_of(name))
    if epoch is not None:
        return Then(life_in_store.open_store, (replica_of(name), epoch, STORE_ID, INCARNATION))
    return None


def leave_table(name: str) -> Stage:
    """Drop the table, and leave it."""
    if (yield from table.mark_dropped(TABLE)) not in (table.TableOutcome.DONE, table.TableOutcome.EXISTS):
        return None
    epoch = yield from new_epoch(replica_of(name))
    return Then(table_drop.release_shares, (replica_of(name), epoch))


def clean() -> Task:
    """Work the garbage off."""
    yield from share.work_off(TABLE)


__all__ = [
    "INCARNATION",
    "STORE_ID",
    "TABLE",
    "HasLeft",
    "ListLeaving",
    "LosePart",
    "activate",
    "churn",
    "clean",
    "leave",
    "leave_table",
    "lose",
    "mend",
    "open_store",
    "replica_of",
    "settle",
    "sharer_of",
    "take",
    "write",
]
