"""What the processes of a model do: procedures of a replica that comes, and of one that still has something in its hands.

Whoever has the seat `LATER` is the replica in the table that is made anew, all others in the one that is there at the
beginning.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.core.layout import Replica, Table
from replitree.protocol.core.parts import parse_part
from replitree.protocol.insert import insert, quorum
from replitree.protocol.membership import activate, table
from replitree.protocol.rescue import restore as restoring
from replitree.protocol.rescue.restore_shared import RestoredShares
from replitree.protocol.shares import letting_go, sharing
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.shares.table_store import sharing_nodes
from replitree.protocol.state import registration

TABLE = Table("/t", incarnation="a")
ONE, OTHER = Replica(TABLE, "r1"), Replica(TABLE, "r2")
"""The replica that is dropped and joins again, and another one, which is good."""
LATER = "later"
"""The seat of the replica in the table that is made anew: by the process of the first seat, which hosts both of them."""
REMADE = Table(TABLE.path, incarnation="b")
"""The table that is made anew."""

PART, CONTENT = "all_0_0_0", "c1"
SHARE = ShareId("s1")
OPEN = GetEntry(
    OTHER.name, fx.StagingId("open"), (fx.StagedPart("all", 1, 1, CONTENT),), (fx.BlockId("o"),), format=3, quorum=3
)
"""An insert of the other replica whose quorum is open."""

TRIES_MAX = 2

Task: TypeAlias = Generator[Any, Any, None]


def is_remade(tree: Tree) -> bool:
    """Whether the table that is there is the one that was made anew."""
    made = tree.get(TABLE.path)
    return made is not None and made.value == REMADE.incarnation.encode()


def replica_of(name: str) -> Replica:
    """Return the replica that a seat acts for."""
    return Replica(REMADE, ONE.name) if name == LATER else ONE


def me_of(name: str) -> bytes:
    """Return what a process writes into `host`."""
    return b"old" if name == LATER else name.encode()


def sharer_of(name: str) -> Sharer:
    """Return who the replica is to coordination that a process has added to the table."""
    return Sharer(replica_of(name), name)


def come(name: str) -> Task:
    """Be the replica: add it to the table if it is not there, or was dropped, and activate it."""
    for _ in range(TRIES_MAX):
        outcome = yield from activate.activate(replica_of(name), me_of(name))
        if not isinstance(outcome, activate.NotJoined):
            return
        if (yield from table.finish_leaving(replica_of(name), shared=True)) is table.TableOutcome.DONE:
            yield from table.join_table(replica_of(name), name)


def join(name: str) -> Task:
    """Add the replica to the table, and activate it."""
    if (yield from table.join_table(replica_of(name), name)) is table.TableOutcome.DONE:
        yield from activate.activate(replica_of(name), me_of(name))


def join_and_register(name: str) -> Task:
    """Do the same, and register the part, if the replica is still the one that was added here."""
    yield from join(name)
    node: fx.Node | None = yield fx.Get(layout.replica_path(replica_of(name)))
    if node is not None and node.value == sharer_of(name).incarnation.encode():
        yield from register(name)


def activate_again(name: str) -> Task:
    """Take another epoch, as in a new session."""
    yield from activate.renew_epoch(replica_of(name), me_of(name), None)


def register(name: str) -> Task:
    """Register the part that was taken over from the other replica: its share is marked in the same commit."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is not None:
        part = parse_part(PART)
        operations = (registration.register(replica_of(name), part, CONTENT),)
        yield from sharing.with_shares(
            sharer_of(name), registration.finish(replica_of(name), epoch, (), operations, (part,))
        )


def register_local(name: str) -> Task:
    """Register the part of a table that has no object store."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is not None:
        replica, part = replica_of(name), parse_part(PART)
        operations = (registration.register(replica, part, CONTENT),)
        yield from registration.finish(replica, epoch, (), operations, (part,))


def leave(name: str) -> Task:
    """Let go of the part's share: it is not registered any more, and has left the disk."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is not None:
        yield from letting_go.let_go_of(sharer_of(name), epoch, PART, SHARE)


def append(name: str) -> Task:
    """Insert rows that only this process has."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is not None:
        inserter = insert.Inserter(replica_of(name), me_of(name), fx.LogIndex(0))
        requests = (insert.Request(fx.RequestId(1), fx.BlockId("b")),)
        yield from sharing.with_shares(
            sharer_of(name), insert.insert(inserter, epoch, fx.StagingId(f"{name}-1"), requests)
        )


def count(name: str) -> Task:
    """Count the replica for the open insert, which this process has executed."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is not None:
        yield from quorum.join(replica_of(name), epoch, fx.LogIndex(0), OPEN)


def drop(times: int) -> Task:
    """Drop the replica, if it is there and has no session; so many times."""
    for _ in range(times):
        yield from table.drop_replica(ONE, shared=True)


def remake() -> Task:
    """Drop the table, whose replicas are taken out of it wherever they are, and create another one in its place."""
    if (yield from table.mark_dropped(TABLE)) not in (table.TableOutcome.DONE, table.TableOutcome.EXISTS):
        return
    for replica in (ONE, OTHER):
        yield from table.leave_table(replica, shared=True)
    yield from table.remove_table(TABLE)
    yield from table.create_table(REMADE, b"", b"", sharing_nodes(REMADE))


def remove() -> Task:
    """Remove what is left of the table, if its drop has begun."""
    if (yield fx.Exists(layout.dropped(TABLE))):
        yield from table.remove_table(TABLE)


def write_log() -> Task:
    """Append an entry to the log of the table that was made anew."""
    yield fx.Commit(fx.Create(layout.log_create(REMADE), sequential=True))


def restore() -> Task:
    """Make the table anew from an empty disk of the other replica, when coordination has lost it."""
    yield from restoring.restore(
        Replica(REMADE, OTHER.name), b"restore", b"", b"", {}, RestoredShares("store", "i2", {})
    )


__all__ = [
    "CONTENT",
    "LATER",
    "ONE",
    "OPEN",
    "OTHER",
    "PART",
    "REMADE",
    "SHARE",
    "TABLE",
    "activate_again",
    "append",
    "come",
    "count",
    "drop",
    "is_remade",
    "join",
    "join_and_register",
    "leave",
    "me_of",
    "register",
    "register_local",
    "remake",
    "remove",
    "replica_of",
    "restore",
    "sharer_of",
    "write_log",
]
