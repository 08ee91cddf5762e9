"""What the processes of a model do: procedures of `protocol.shares.share` as a replica would call them.

A process is replaced after a crash: the next one takes a new epoch and does the task that was not done.  It knows what is done
from coordination alone: from its registration.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, Table
from replitree.protocol.shares import share
from replitree.protocol.shares.share import LetGo, NotOwned, ShareId, ShareOwner, Sharing
from replitree.protocol.state.registration import content_of

TABLE = Table("/t")
INCARNATION = "i1"

Shares = tuple[ShareId, ...]


def replica_of(name: str) -> Replica:
    """Return a replica of the models' table."""
    return Replica(TABLE, name)


def shares_in(value: bytes) -> Shares:
    """Return the shares of a registered part; the models' registrations name them."""
    return tuple(ShareId(name) for name in content_of(value).split())


def new_epoch(replica: Replica) -> fx.Procedure[fx.Epoch | None]:
    """Take a new epoch; None when the replica is being dropped."""
    while True:
        yield fx.Sync(layout.host(replica))
        host = yield fx.Get(layout.host(replica))
        if host is None or host.value == b"dropped":
            return None
        outcome = yield fx.Commit(fx.Set(layout.host(replica), host.value, host.version))
        if isinstance(outcome, fx.Applied):
            return fx.Epoch(host.version + 1)
        if not isinstance(outcome, fx.Unknown):
            return None  # somebody else has it now


def write(name: str, part: str, attempt: int, borrows_of: str = "") -> Sharing[None]:
    """Write a part; one that borrows takes the shares of another part that is registered here."""
    replica = replica_of(name)
    for again in range(2):
        epoch = yield from new_epoch(replica)
        if epoch is None or (yield fx.Get(layout.part(replica, part))) is not None:
            return
        source = (yield fx.Get(layout.part(replica, borrows_of))) if borrows_of else None
        borrowed = shares_in(source.value) if source is not None else ()
        if borrows_of and source is None:
            return
        own = ShareId(f"{part}-{name}{attempt}{again}")
        register = (fx.Create(layout.part(replica, part), " ".join((own, *borrowed)).encode()),)
        outcome = yield from share.write_share(ShareOwner(replica, epoch, INCARNATION, part), own, borrowed, register)
        if not isinstance(outcome, fx.InDoubt):
            return


def take(name: str, part: str, source: str) -> Sharing[None]:
    """Take a part over from the replica `source`."""
    replica = replica_of(name)
    for _ in range(2):
        epoch = yield from new_epoch(replica)
        if epoch is None or (yield fx.Get(layout.part(replica, part))) is not None:
            return
        told = yield fx.Get(layout.part(replica_of(source), part))
        if told is None:
            return
        register = (fx.Create(layout.part(replica, part), told.value),)
        outcome = yield from share.take_over(
            ShareOwner(replica, epoch, INCARNATION, part), shares_in(told.value), register
        )
        if not isinstance(outcome, fx.InDoubt):
            return


def leave(name: str, part: str) -> Sharing[None]:
    """Let go of a part."""
    replica = replica_of(name)
    for _ in range(2):
        epoch = yield from new_epoch(replica)
        registered = yield fx.Get(layout.part(replica, part))
        if epoch is None or registered is None:
            return
        deregister = (fx.Delete(layout.part(replica, part), fx.ANY_VERSION),)
        outcome = yield from share.let_go(
            ShareOwner(replica, epoch, INCARNATION, part), shares_in(registered.value), deregister
        )
        if isinstance(outcome, LetGo | NotOwned):
            return


def drop(name: str) -> Sharing[None]:
    """Drop a replica: fence it, take its registrations back, release its marks, remove its node."""
    replica = replica_of(name)
    host = yield fx.Get(layout.host(replica))
    if host is None:
        return
    epoch = fx.Epoch(host.version)
    if host.value != b"dropped":
        outcome = yield fx.Commit(fx.Set(layout.host(replica), b"dropped", host.version))
        if not isinstance(outcome, fx.Applied):
            return
        epoch = fx.Epoch(host.version + 1)
    released = yield from share.release(replica, epoch)
    if isinstance(released, LetGo):
        yield fx.Commit(fx.Delete(layout.host(replica), epoch))


def clean() -> Sharing[None]:
    """Work the garbage off."""
    yield from share.work_off(TABLE)


__all__ = ["TABLE", "clean", "drop", "leave", "replica_of", "shares_in", "take", "write"]
