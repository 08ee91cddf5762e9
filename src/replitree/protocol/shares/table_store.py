"""The object store of a table: which one it is, which replica of its name uses it, and the nodes that this takes."""

from __future__ import annotations

from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.values import text_of


class Store(Enum):
    """What a replica finds out about the store that it reaches."""

    RIGHT = "it is the table's"
    OTHER = "it is another one"
    UNSETTLED = "it could not be found out"


def agree_on_store(replica: Replica, epoch: fx.Epoch, store_id: str) -> fx.Procedure[Store]:
    """Find out whether a store is the table's; the first replica that asks says which one that is."""
    path = layout.sharing(replica.table)
    for _ in range(2):
        yield fx.Sync(path)
        node = yield fx.Get(path)
        if node is None:
            return Store.UNSETTLED
        if node.value:
            return Store.RIGHT if node.value == store_id.encode() else Store.OTHER
        # Without the proof a process of a table that was dropped could choose the store of the next one of its name.
        proof = fx.Check(layout.host(replica), epoch)
        yield fx.Commit(proof, fx.Set(path, store_id.encode(), node.version))
    return Store.UNSETTLED


def incarnation_of(replica: Replica, epoch: fx.Epoch, fresh: str) -> fx.Procedure[str | None]:
    """Find out which replica of its name one is; None: that could not be had.

    Parameters
    ----------
    epoch
        Under which the replica is active: a process that was replaced gives no incarnation.
    fresh
        Given to one that has none yet: it joined when the table was on local disks.
    """
    path = layout.replica_path(replica)
    for _ in range(2):
        yield fx.Sync(path)
        node = yield fx.Get(path)
        if node is None:
            return None
        if node.value:
            return text_of(node.value, path)
        yield fx.Commit(fx.Check(layout.host(replica), epoch), fx.Set(path, fresh.encode(), node.version))
    return None


def sharing_nodes(table: TablePlace) -> tuple[fx.Create, ...]:
    """Return what creates the nodes of a table whose parts lie in an object store, beside the others."""
    return (
        fx.Create(layout.sharing(table)),
        fx.Create(layout.all_writing(table)),
        fx.Create(layout.shares(table)),
        fx.Create(layout.all_garbage(table)),
        fx.Create(layout.all_merged(table)),
    )


__all__ = ["Store", "agree_on_store", "incarnation_of", "sharing_nodes"]
