"""What replicas keep aside of a table, summed up for the page: detached parts and frozen snapshots.

Guarantees: every replica is asked once for each; of one that does not answer, the answer says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replitree.errors import ReplicaUnavailable

if TYPE_CHECKING:
    from replitree.client.table import Table


def aside_of(table: Table) -> dict[str, Any]:
    """Return of each replica how many parts and bytes are detached, and how many snapshots, parts and bytes are frozen.

    Raises
    ------
    TableNotFound, CoordinationUnavailable
        As of `Table.detached_everywhere`.
    """
    replicas: dict[str, dict[str, int]] = {}

    def of(replica: str) -> dict[str, int]:
        names = ("detached_parts", "detached_bytes", "snapshots", "frozen_parts", "frozen_bytes")
        return replicas.setdefault(replica, dict.fromkeys(names, 0))

    try:
        detached, silent = table.detached_everywhere()
        frozen, more_silent = table.frozen_everywhere()
    except ReplicaUnavailable as error:
        return {"replicas": {}, "silent": {"every replica": str(error)}}
    for part in detached:
        found = of(part.replica)
        found["detached_parts"] += 1
        found["detached_bytes"] += part.bytes
    for snapshot in frozen:
        found = of(snapshot.replica)
        found["snapshots"] += 1
        found["frozen_parts"] += snapshot.parts
        found["frozen_bytes"] += snapshot.bytes
    return {"replicas": replicas, "silent": {**silent, **more_silent}}
