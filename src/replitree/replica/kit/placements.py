"""Which tables a server is to host: those that its configuration names; of sharded tables, the shards placed on it."""

from __future__ import annotations

from collections.abc import Sequence

from replitree.coordination.port import Coordination
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Exists, Get
from replitree.protocol.sharded import places
from replitree.protocol.sharded.placement import EVERYWHERE, Placement, decode_placement
from replitree.replica.kit.config import ServerConfig


def placed_here(coordination: Coordination, root: str, config: ServerConfig, names: Sequence[str]) -> list[str]:
    """Return those of some tables that this server is to host, in the same order; a watch is set on what may change that.

    Parameters
    ----------
    coordination, root
        The session, and where the nodes are.
    config
        Of the server.  A sharded table is hosted if its name is: no shard is named there.
    names
        Names of tables with a log.

    Raises
    ------
    UnsupportedFormat
        A placement was written by a newer replitree.
    """
    placements: dict[str, Placement] = {}
    found = list[str]()
    for name in names:
        table = places.sharded_name(name)
        if not config.hosts(table):
            continue
        if places.is_shard_name(name):
            if table not in placements:
                path = places.placement(layout.sharded(root, table))
                # The watch comes first: a change after it wakes the server, and one before it is read.
                coordination.perform(Exists(path, watch=True))
                node = coordination.perform(Get(path))
                placements[table] = EVERYWHERE if node is None else decode_placement(node.value, path)
            if not placements[table].hosts(places.shard_number(name), config.name):
                continue
        found.append(name)
    return found
