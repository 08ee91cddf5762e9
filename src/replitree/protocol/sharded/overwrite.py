"""Overwrites of a sharded table: one commit brings rows, and takes the place of what all shards have.

An overwrite is a joint insert (`protocol.sharded.joint_insert`) whose entries also name what they take the place of:
everything, or the partitions that any of its rows belong to.  A shard that gets no rows loses its own all the same: it is
*emptied*, by an entry without parts.  The commit does this beside what any joint insert does::

    Set(sharded/<D>/commands), or Create it,
    for each emptied shard: Check(its log's open parent), Create(log-…)

So what goes and what comes have one transaction of coordination in all shards: each cut shows the table before the overwrite,
or after it.

*Which shards.*  The map is read here, and must be the one by which the rows were split, which the commit checks: the shards
that get rows and those that are emptied are all that there are.  With another map the commit is refused, behind the look at
the token, so a repetition is told so first.

*Moves.*  An overwrite is a command to a process that copies rows of a shard (`protocol.sharded.command`): it writes
``commands``.  A batch that was read before it is refused and read again; one that lies at its target is dropped there, as in
its source.

*Files.*  No replica stages anything for an emptied shard, so nothing proves that anything is there.  Its entry names the
coordinator, which none of its replicas asks for a file.

Absent on purpose: a quorum, for what is replaced would be gone if it failed; ranges of blocks, which each shard numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.sharded.command import commanded, commands, open_places
from replitree.protocol.sharded.joint_insert import (
    GONE,
    EmptiedShard,
    JointInsert,
)
from replitree.protocol.sharded.shard_map import decode_map


@dataclass(frozen=True, slots=True)
class ReadOverwrite:
    """An overwrite with the shards that it empties, and what its commit proves and counts for them."""

    insert: JointInsert
    proofs: tuple[fx.Operation, ...]


def read_emptied(insert: JointInsert) -> fx.Procedure[ReadOverwrite | fx.NotInserted]:
    """Read which shards an overwrite empties, and where their logs end.

    Parameters
    ----------
    insert
        What is prepared.
    """
    assert insert.drops
    path, counter = layout.shard_map(insert.place), commands(insert.place)
    # After a refusal the reads must not be older than what has refused.
    yield fx.Sync(path)
    found, counted = (yield fx.GetMany((path, counter))).nodes
    if found is None or found.version != insert.map_version:
        # The commit is refused by the map, and tells so behind the token.
        return ReadOverwrite(replace(insert, emptied=()), ())
    own = insert.participants[0].replica.table
    filled = {each.replica.table.name for each in insert.participants}
    others = tuple(each for each in commanded(own, decode_map(found.value, path)) if each.name not in filled)
    ends = (yield from open_places(others)) if others else ()
    if ends is None:
        return fx.NotInserted(GONE)
    proofs: tuple[fx.Operation, ...] = (
        fx.Create(counter) if counted is None else fx.Set(counter, b"", fx.ANY_VERSION),
        *(fx.Check(layout.open_log(place), fx.ANY_VERSION) for place, _ in ends),
    )
    return ReadOverwrite(replace(insert, emptied=tuple(EmptiedShard(*each) for each in ends)), proofs)


def parts_of_shards(own: TablePlace) -> fx.Procedure[tuple[tuple[TablePlace, tuple[Part, ...]], ...]]:
    """Return what each shard has, by the replica that has registered most: a replica that executes an overwrite takes it back.

    Parameters
    ----------
    own
        One of the shards.
    """
    path = layout.shard_map(layout.sharded_of(own))
    node: fx.Node | None = yield fx.Get(path)
    tables = () if node is None else commanded(own, decode_map(node.value, path))
    lists: fx.Lists = (yield fx.ChildrenMany(tuple(map(layout.replicas, tables)))) if tables else ()
    found: list[tuple[TablePlace, tuple[Part, ...]]] = []
    for table, names in zip(tables, lists, strict=True):
        paths = tuple(layout.parts(Replica(table, each)) for each in names or ())
        registered: fx.Lists = (yield fx.ChildrenMany(paths)) if paths else ()
        most = max((each or () for each in registered), key=len, default=())
        found.append((table, tuple(map(parse_part, most))))
    return tuple(found)


__all__ = ["ReadOverwrite", "parts_of_shards", "read_emptied"]
