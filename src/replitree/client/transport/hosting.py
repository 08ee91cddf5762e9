"""How a cluster hosts sharded tables: where a shard is placed, and the default that `replitree up --shards` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.coordination.port import make_root
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded import places
from replitree.protocol.sharded.default_sharding import (
    DefaultSharding,
    decode_default,
    default_sharding,
    encode_default,
)
from replitree.protocol.sharded.placement import decode_placement

if TYPE_CHECKING:
    from replitree.client.transport.catalog import Catalog

WRITES_MAX = 5
"""How often the default is written again when the answer was lost, or another process has just made the node."""


def read_default(catalog: Catalog) -> DefaultSharding | None:
    """Return how new sharded tables are hosted; None: the cluster was not started for them.

    Raises
    ------
    UnsupportedFormat
        A newer replitree has written it.
    """
    path = default_sharding(catalog.root)
    node = catalog.perform(fx.Get(path))
    return None if node is None else decode_default(node.value, path)


def write_default(catalog: Catalog, default: DefaultSharding) -> None:
    """Let new sharded tables be hosted like this; may be repeated.

    Raises
    ------
    CoordinationUnavailable
        It is not known whether that was done; do it again.
    """
    path, value = default_sharding(catalog.root), encode_default(default)
    make_root(catalog.coordination(), catalog.root)
    for _ in range(WRITES_MAX):
        node = catalog.perform(fx.Get(path))
        if node is not None and node.value == value:
            return
        catalog.perform(fx.Commit(fx.Create(path, value) if node is None else fx.Set(path, value, node.version)))
    raise CoordinationUnavailable(f"how new sharded tables are hosted could not be written to {path}; try again")


def placed_on(catalog: Catalog, name: str) -> tuple[str, ...]:
    """Return the names of the replicas that a shard is placed on; none: all, or `name` is no shard.

    Raises
    ------
    UnsupportedFormat
        A newer replitree has written the placement.
    """
    if not places.is_shard_name(name):
        return ()
    path = places.placement(layout.sharded(catalog.root, places.sharded_name(name)))
    node = catalog.perform(fx.Get(path))
    return () if node is None else decode_placement(node.value, path).of(places.shard_number(name)) or ()
