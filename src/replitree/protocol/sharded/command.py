"""The node ``commands`` of a sharded table, and the tables that a command reaches.

A command (a mutation, a drop, a change of columns or of settings) is appended to the logs of all shards by one commit
(`protocol.propose.shards`).  That commit writes this node, so its version counts the commands.  A process that copies rows of a
shard reads the version first, and checks it in the commit that puts the copy somewhere else::

    Check(sharded/<D>/commands @ version)

Then no command lies between what it has read and its commit.

The node is made with the table; the first command makes it for a table of a version that did not know it.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace, root_of
from replitree.protocol.sharded.places import shard_place, sharded_name
from replitree.protocol.sharded.shard_map import ShardMap


def commands(place: str) -> str:
    """Return the node whose version counts the commands of the sharded table at `place` (`layout.sharded`).

    >>> commands("/replitree/sharded/events")
    '/replitree/sharded/events/commands'
    """
    return f"{place}/commands"


def commanded(shard: TablePlace, shard_map: ShardMap) -> tuple[TablePlace, ...]:
    """Return the tables whose logs get every command, in the order of their numbers.

    Parameters
    ----------
    shard
        One of them, with its incarnation.
    shard_map
        The map of the sharded table.
    """
    root, name, incarnation = root_of(shard), sharded_name(shard.name), shard.incarnation.rpartition("-")[0]
    return tuple(shard_place(root, name, number, incarnation) for number in shard_map.shards)


def open_places(tables: tuple[TablePlace, ...]) -> fx.Procedure[tuple[tuple[TablePlace, fx.LogIndex], ...] | None]:
    """Return each table below the open parent of its log, with an index that the log has reached.

    None: one of them is being dropped.  What is read here may have gone on when it is used: the commit proves the parent.
    """
    marks: fx.Lists = yield fx.ChildrenMany(tuple(map(layout.open_logs, tables)))
    found: list[tuple[TablePlace, fx.LogIndex]] = []
    for table, names in zip(tables, marks, strict=True):
        if not names:
            return None
        below = table.below(max(map(layout.parent_named, names)))
        number: int | None = yield fx.NextNumber(layout.log_parent(below, below.parent))
        if number is None:
            return None
        found.append((below, fx.LogIndex(below.parent * layout.PARENT_ENTRIES + number)))
    return tuple(found)
