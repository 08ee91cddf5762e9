"""How a sharded table is: each of its shards, and what concerns all of them.

Guarantees: as `replitree.client.admin.status`, of each shard.  What concerns the whole table comes from coordination.
"""

from __future__ import annotations

import msgspec

from replitree.client.admin.moving import MovingTable, moving_tables
from replitree.client.admin.status import TableStatus, table_status
from replitree.client.sharded.sharded_catalog import ShardedInfo
from replitree.client.transport.catalog import Catalog
from replitree.client.transport.http import HttpClient
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.storage.schema.shard_definition import shard_definition


class ShardedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A sharded table.

    Attributes
    ----------
    name
        Of the whole table.
    shards
        Each shard, in the order of their numbers.
    parts, rows, bytes
        What all shards show; None: no replica of a shard can tell.
    lag
        How many entries of a log some replica has not executed, at most; None: it is not known of one of them.
    open_inserts
        How many joint inserts have a quorum that is open.
    moving
        How far moves of buckets are; None: no buckets move.
    """

    name: str
    shards: tuple[TableStatus, ...]
    parts: int | None
    rows: int | None
    bytes: int | None
    lag: int | None
    open_inserts: int = 0
    moving: MovingTable | None = None


def shard_statuses(catalog: Catalog, http: HttpClient, info: ShardedInfo) -> tuple[TableStatus, ...]:
    """Return how each shard of a table is; errors as `table_status`."""
    definitions = (shard_definition(info.definition, shard) for shard in info.map.shards)
    return tuple(table_status(catalog, http, each) for each in definitions)


def sharded_status(catalog: Catalog, http: HttpClient, info: ShardedInfo) -> ShardedStatus:
    """Return how a sharded table is.

    Raises
    ------
    CoordinationUnavailable
        Coordination can't be asked.
    """
    name, shards = info.definition.name, shard_statuses(catalog, http, info)
    place = layout.sharded(catalog.root, name)
    lags = [replica.lag for each in shards for replica in each.replicas]
    opened: tuple[str, ...] | None = catalog.perform(fx.Children(layout.joint_inserts(place)))
    return ShardedStatus(
        name=name,
        shards=shards,
        parts=_total([each.parts for each in shards]),
        rows=_total([each.rows for each in shards]),
        bytes=_total([each.bytes for each in shards]),
        lag=None if None in lags else max((lag for lag in lags if lag is not None), default=None),
        open_inserts=len(opened or ()),
        moving=next(iter(moving_tables(catalog, name)), None),
    )


def _total(numbers: list[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None


__all__ = ["ShardedStatus", "shard_statuses", "sharded_status"]
