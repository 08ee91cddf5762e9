"""A shard that owns nothing leaves its sharded table: it leaves the map, and its table is dropped.

Buckets have moved away before (`protocol.sharded.moves`), so the shard has no rows at the transaction that has written the map,
M, nor later: an insert that was split by an earlier map is refused, and the map names the shard as the owner of no bucket.

`remove_shard` reads, in this order: the map and the moves; M; the versions of ``tags`` and ``consumers``, and then
each of them; the placement.  Then one commit::

    Set(map @ version: without the shard, removed.since ≥ M), Set(placement @ version)
    Set(tags @ version) | Create(tags), Set(consumers @ version) | Create(consumers)
    Check(replicas of the shard), Create(dropped of the shard)

From this commit on no process finds the shard by the map, and its replicas leave it by themselves, as those of any table that
is dropped (`protocol.membership.table`).  Its nodes are deleted when no replica is left (`remove_table`).

What could still need the shard, and why nothing does:

==========================================  ================================================================================
an insert, a command, moves, a view         each checks the map in its commit; moves that begin write it
a read by the map before                    it reads the map again after it has its cut, and begins again
a read at a cut before M                    the map that it reads says `since`: the read is refused, or takes a later cut
the change feed from a cut before M         the same: the reader begins anew, from a snapshot
a tag at a cut before M                     the removal is refused: it keeps rows that only this shard has
a consumer that stands before M             the same, unless its hold in the shard has ended
a tag or consumer that comes meanwhile      its commit, or the removal, finds another version of ``tags`` or ``consumers``; and
                                            after the removal its client finds a map without the shard
a quorum that is open                       a mover waits for the inserts that were open when its moves began
a token that names an entry of the shard    stays what it is: a duplicate, whose entry has left the log
==========================================  ================================================================================

*Numbers.*  The map keeps the lowest number that no shard has had (`RemovedShards.next`).  So no later shard has the name, and
with it the incarnation, of one that was removed.

*Unknown.*  The commit proves all that it relies on, and the mark of the drop exists once.  So it may be sent again, and may
come late.  `remove_shard` looks again: when the map does not have the shard, it was removed.

Absent on purpose: leases.  A running read of the shard at a cut before M ends with an error, as one of a table that is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.stamps import GetStamped, Stamped, Zxid
from replitree.protocol.sharded import places
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.sharded.moves.course import find_moves
from replitree.protocol.sharded.placement import decode_placement, encode_placement
from replitree.protocol.sharded.shard_map import Shard, without_shard
from replitree.protocol.upkeep.consumers import decode_consumer
from replitree.protocol.upkeep.cut_consumers import decode_cut_consumer
from replitree.protocol.upkeep.cut_tags import decode_cut_tag

ATTEMPTS_MAX = 8
"""How often the table is read again, when other clients change it all the time."""


@dataclass(frozen=True, slots=True)
class ShardRemoved:
    """The map does not have the shard: it was removed, by this call or before, or there never was one.

    Attributes
    ----------
    table
        The shard's place.  Its nodes are there until the removal is finished.
    """

    table: TablePlace


@dataclass(frozen=True, slots=True)
class ShardNeeded:
    """Nothing was changed: something needs the shard; `reason` is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoSuchTable:
    """There is no such sharded table."""


ShardRemoval: TypeAlias = ShardRemoved | ShardNeeded | NoSuchTable | fx.InDoubt
"""What became of a removal; after `InDoubt` it may take place later: repeat it."""


def remove_shard(root: str, name: str, shard: Shard) -> fx.Procedure[ShardRemoval]:
    """Take a shard that owns nothing out of the map of its table, and mark its own table as dropped.

    Parameters
    ----------
    root, name
        Below which path the cluster lies, and the sharded table's name.
    shard
        Which shard.
    """
    place = layout.sharded(root, name)
    for _ in range(ATTEMPTS_MAX):
        found = yield from find_moves(place)
        if found is None:
            return NoSuchTable()
        table = found.shard(shard)
        if shard not in found.map.shards:
            return ShardRemoved(table)
        if found.map.moves or shard in found.map.owners:
            return ShardNeeded(
                f"shard {shard} of {name!r} owns buckets, or buckets move: remove it when they have moved away"
            )
        stamped: Stamped = yield GetStamped((layout.shard_map(place),))
        written = stamped.nodes[0]
        if written is None or written.version != found.map_version:
            continue
        since = written.changed
        named = yield from _named(TablePlace(place), table, since)
        if isinstance(named, ShardNeeded):
            return named
        placement: fx.Node | None = yield fx.Get(places.placement(place))
        placed: tuple[fx.Operation, ...] = ()
        if placement is not None:
            hosts = decode_placement(placement.value, places.placement(place)).placed(shard, ())
            placed = (fx.Set(places.placement(place), encode_placement(hosts), placement.version),)
        committed: fx.Committed = yield fx.Commit(
            found.turned(without_shard(found.map, shard, since)),
            *placed,
            *named,
            # The node is below this incarnation of the shard: a commit that comes late drops no other one.
            fx.Check(layout.replicas(table), fx.ANY_VERSION),
            fx.Create(layout.dropped(table)),
        )
        match committed:
            case fx.Applied():
                return ShardRemoved(table)
            case fx.Unknown():
                return fx.InDoubt()
    return ShardNeeded(f"table {name!r} is being dropped, or other clients change it all the time; try again")


def _named(whole: TablePlace, shard: TablePlace, since: Zxid) -> fx.Procedure[tuple[fx.Operation, ...] | ShardNeeded]:
    """Return what proves that no tag or consumer that needs a shard has come; or which one needs it.

    Parameters
    ----------
    whole, shard
        Where the nodes of the sharded table are, and those of the shard.
    since
        The shard has no rows from this transaction on.
    """
    proofs: list[fx.Operation] = []
    for parent in (layout.tags(whole), layout.consumers(whole)):
        counted: fx.Node | None = yield fx.Get(parent)
        # The version is read before the names: what comes in between refuses the commit.
        names: tuple[str, ...] = (yield fx.Children(parent)) or ()
        proofs.append(fx.Create(parent) if counted is None else fx.Set(parent, b"", counted.version))
        is_tags = parent == layout.tags(whole)
        for name in names:
            path = layout.tag(whole, name) if is_tags else layout.consumer(whole, name)
            node: fx.Node | None = yield fx.Get(path)
            if node is None:
                continue
            value = (decode_cut_tag if is_tags else decode_cut_consumer)(node.value, path)
            if parse_cut(value.cut).zxid >= since:
                continue
            if is_tags:
                return ShardNeeded(
                    f"tag {name!r} keeps rows that only shard {shard.name} has: delete it (replitree snapshot delete), or keep"
                    " the shard"
                )
            own = layout.consumer(shard, name)
            held: fx.Node | None = yield fx.Get(own)
            if held is not None and not decode_consumer(held.value, own).expired:
                return ShardNeeded(
                    f"consumer {name!r} has not read all changes of shard {shard.name}: let it read on up to a cut from"
                    f" transaction {since} on, or drop it"
                )
    return tuple(proofs)


__all__ = ["NoSuchTable", "ShardNeeded", "ShardRemoval", "ShardRemoved", "remove_shard"]
