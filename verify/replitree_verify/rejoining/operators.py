"""Operators: they drop replicas and tables, make a table anew under its name, and restore one that coordination has lost."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership import table
from replitree.protocol.rescue import restore as restoring
from replitree.protocol.rescue.restore_shared import RestoredShares
from replitree.protocol.shares.table_store import sharing_nodes
from replitree_verify.rejoining.world import ONE, OTHER, REMADE, STORE_ID, TABLE


def drop() -> Generator[Any, Any, None]:
    """Drop the replica, if it is there and has no session."""
    yield from table.drop_replica(ONE, shared=True)


def remake() -> Generator[Any, Any, None]:
    """Drop the table, whose replicas are taken out of it wherever they are, and create another one in its place."""
    if (yield from table.mark_dropped(TABLE)) not in (table.TableOutcome.DONE, table.TableOutcome.EXISTS):
        return
    for replica in (ONE, OTHER):
        yield from table.leave_table(replica, shared=True)
    yield from table.remove_table(TABLE)
    yield from table.create_table(REMADE, b"", b"", sharing_nodes(REMADE))


def remove() -> Generator[Any, Any, None]:
    """Remove what is left of the table, if its drop has begun."""
    if (yield fx.Exists(layout.dropped(TABLE))):
        yield from table.remove_table(TABLE)


def write_log() -> Generator[Any, Any, None]:
    """Append an entry to the log of the table that was made anew."""
    yield fx.Commit(fx.Create(layout.log_create(REMADE), sequential=True))


def restore() -> Generator[Any, Any, None]:
    """Make the table anew from an empty disk of the other replica, when coordination has lost it."""
    shares = RestoredShares(STORE_ID, "i2", {})
    yield from restoring.restore(Replica(REMADE, OTHER.name), b"restore", b"", b"", {}, shares)


__all__ = ["drop", "remake", "remove", "restore", "write_log"]
