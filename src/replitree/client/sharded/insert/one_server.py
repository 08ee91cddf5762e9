"""One server that has an active replica of each of several shards: it can do by one request what else takes one for each.

A server that has failed is left alone for a while.  It may be dead and still count as active, or be behind.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.routing import FRESH_S, Router
from replitree.errors import Unavailable

AVOID_S = FRESH_S
"""For how long a server is not asked after it has failed, in seconds."""


class OneServer:
    """Finds the server for one sharded table.  Any thread may use it."""

    def __init__(self) -> None:
        self._avoided: dict[str, float] = {}

    def find(self, routers: Sequence[Router]) -> ReplicaInfo | None:
        """Return the replica of the first shard at a server that has all of them; None: there is none.

        Parameters
        ----------
        routers
            Those of the shards; at least one.
        """
        try:
            replicas = [each.replicas() for each in routers]
        except Unavailable:
            # Each shard is asked for by itself, and that says what is wrong.
            return None
        active = [{each.address for each in its if each.active} for its in replicas]
        for replica in replicas[0]:
            is_avoided = self._avoided.get(replica.address, 0.0) > time.monotonic()
            if not is_avoided and all(replica.address in its for its in active):
                return replica
        return None

    def failed(self, replica: ReplicaInfo) -> None:
        """Take note that a server did not do what it was asked."""
        self._avoided[replica.address] = time.monotonic() + AVOID_S


__all__ = ["AVOID_S", "OneServer"]
