"""Time travel in a sharded table: the cut that a time means.

Guarantees:

* A time means the table with everything up to the last entry of any shard that was written at or before it, by coordination's
  clock.  It is a cut: no insert is torn, also when that clock was set back.
* It is a cut of all shards, whichever of them the read wants: equal times mean equal rows.

The entries that say so must still be in coordination; a cut is told by their transactions, which nothing else remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from replitree.client.read.as_of import parse_time
from replitree.client.read.table_log import EPOCH
from replitree.client.sharded.shard_table import ShardTable
from replitree.client.sharded.side_by_side import SideBySide
from replitree.client.transport.catalog import Catalog
from replitree.errors import CoordinationUnavailable, SnapshotExpired, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import GetStamped, Stamped, Zxid
from replitree.protocol.sharded.cut import Cut, name_ensemble


def cut_at(catalog: Catalog, shards: Sequence[ShardTable], beside: SideBySide, as_of: str | datetime) -> Cut:
    """Return the cut that a time means.

    Parameters
    ----------
    catalog
        Where the logs are.
    shards
        All shards of the table.
    beside
        Asks several shards at once.
    as_of
        The time; text in ISO 8601, in UTC without a zone.

    Raises
    ------
    BadInput
        The text is no time, or the time is not over by coordination's clock.
    SnapshotExpired
        The entries of that time are not in coordination any more, or the table is younger.
    Unavailable
        Coordination can't be asked, or a replica that may know when earlier entries were written.
    """
    time = parse_time(as_of)
    ensemble = catalog.run(name_ensemble(catalog.root, uuid4().hex))
    if ensemble is None:
        raise CoordinationUnavailable("the id of the ensemble could not be read; try again")
    return Cut(ensemble, max(beside.each(lambda each: _last_by(catalog, each, time), shards)))


def _last_by(catalog: Catalog, shard: ShardTable, time: datetime) -> Zxid:
    """Return the transaction of the last entry of a shard that was written by a time, or of its creation."""
    place, index = catalog.place(shard.name), shard.index_of(time)
    log = layout.log(place)
    if index:
        found: Stamped = catalog.perform(GetStamped((layout.log_entry(place, fx.LogIndex(index - 1)),)))
        if found.nodes[0] is not None:
            return found.nodes[0].created
    # The table was empty then; or the entry was removed by a commit that has written this node, and perhaps before the time.
    node: fx.Node | None = catalog.perform(fx.Get(log))
    stamped: Stamped = catalog.perform(GetStamped((log,)))
    if node is None or stamped.nodes[0] is None:
        raise TableNotFound(f"table {shard.name!r} does not exist any more")
    if not index:
        return stamped.nodes[0].created
    if node.version == stamped.nodes[0].version and node.changed_ms <= (time - EPOCH) // timedelta(milliseconds=1):
        return stamped.nodes[0].changed
    raise SnapshotExpired(
        f"what {shard.name} was at {time.isoformat()} can't be told any more: entries of that time were removed from its log;"
        " ask for a later time"
    )


__all__ = ["cut_at"]
