"""Time travel in a sharded table: the cut that a time means, or the token of an insert.

Guarantees:

* A time means the table with everything up to the last entry of any shard that was written at or before it, by coordination's
  clock.  It is a cut: no insert is torn, also when that clock was set back.
* It is a cut of all shards, whichever of them the read wants: equal times mean equal rows.
* The token of an insert means the table with everything up to that insert, and with it.  If it had a quorum, that is where it
  settled: from there on reads show it.

The entries that say so must still be in coordination, or a replica must remember their transactions for the change feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import uuid4

from replitree.client.read.as_of import parse_time
from replitree.client.read.table_log import EPOCH
from replitree.client.sharded.shard_table import ShardTable
from replitree.client.sharded.side_by_side import SideBySide
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput, CoordinationUnavailable, SnapshotExpired, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, GetEntry, SettleEntry, decode_entry, quorum_of
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import search_log
from replitree.protocol.core.stamps import GetStamped, Stamped, Zxid
from replitree.protocol.sharded.cut import Cut, name_ensemble
from replitree.protocol.sharded.joint_insert import find_joint
from replitree.wire.block_ids import token_block
from replitree.wire.feed_errors import OffsetExpired

TOLD_S = 10.0
"""How long replicas may take to tell what they remember, in seconds."""


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
    return Cut(ensemble_id(catalog), max(beside.each(lambda each: _last_by(catalog, each, time), shards)))


def ensemble_id(catalog: Catalog) -> str:
    """Return the id of the ensemble, for cuts.

    Raises
    ------
    CoordinationUnavailable
        It could not be read.
    """
    found = catalog.run(name_ensemble(catalog.root, uuid4().hex))
    if found is None:
        raise CoordinationUnavailable("the id of the ensemble could not be read; try again")
    return found


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
    with suppress(OffsetExpired, BadInput):
        # Replicas remember it for the change feed.
        return shard.transaction_of(index - 1, TOLD_S)
    raise SnapshotExpired(
        f"what {shard.name} was at {time.isoformat()} can't be told any more: entries of that time were removed from its log;"
        " ask for a later time"
    )


def cut_of_insert(catalog: Catalog, name: str, beside: TablePlace, token: str) -> Cut:
    """Return the first cut that has an insert.

    Parameters
    ----------
    catalog
        Where the logs are.
    name, beside
        The sharded table, and the place of one of its shards.
    token
        What the insert was named with.

    Raises
    ------
    BadInput
        No insert has the token: there was none, everything that it brought was dropped, or the token was forgotten.  Or its
        quorum is open.
    SnapshotExpired
        Its entries are not in coordination any more.
    CoordinationUnavailable
        Coordination can't be asked.
    """
    found = catalog.run(find_joint(layout.sharded(catalog.root, name), beside, token_block(token)))
    if found is None:
        raise BadInput(
            f"table {name} knows no insert with token {token!r}: nothing was inserted with it, or it was forgotten"
        )
    ensemble = ensemble_id(catalog)
    for shard, index in found.written:
        transaction = None if index is None else catalog.run(_counts_from(layout.beside(beside, shard), index))
        if transaction is not None:
            return Cut(ensemble, transaction)
    if any(index is not None for _, index in found.written):
        raise BadInput(f"the quorum of the insert with token {token!r} is open, so it is in no version of {name} yet")
    raise SnapshotExpired(
        f"where the insert with token {token!r} is in {name} can't be told any more: its entries have left the logs"
    )


def _counts_from(shard: TablePlace, index: fx.LogIndex) -> fx.Procedure[Zxid | None]:
    """Return the transaction from which on an insert counts; None: its quorum is open, or its entry has left the log."""
    path = layout.log_entry(shard, index)
    node: fx.Node | None = yield fx.Get(path)
    entry = None if node is None else decode_entry(node.value, path)
    if entry is None:
        return None
    if isinstance(entry, GetEntry) and quorum_of(entry):
        insert = entry.insert

        def settles(at: fx.LogIndex, other: Entry) -> fx.LogIndex | None:
            return at if isinstance(other, SettleEntry) and other.insert == insert else None

        settled = yield from search_log(shard, fx.LogIndex(index + 1), settles)
        if settled is None:
            return None
        path = layout.log_entry(shard, settled)
    stamped: Stamped = yield GetStamped((path,))
    return None if stamped.nodes[0] is None else stamped.nodes[0].created


__all__ = ["cut_at", "cut_of_insert", "ensemble_id"]
