"""The client: connect to a cluster, create tables, insert, read and change rows.

What is exported here is imported when it is first used: a command that asks one question needs a tenth of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replitree.client.admin.status import ClusterStatus, ReplicaStatus, ServerStatus, TableStatus, UnreadableTable
    from replitree.client.change.change_results import DetachedPart, Frozen, Killed, Merged, Mutation, OptimizeResult
    from replitree.client.change.command import CommandResult
    from replitree.client.cluster import LocalCluster, local
    from replitree.client.connection import Connection, connect
    from replitree.client.insert.terms import InsertResult
    from replitree.client.read.partitions import PartitionInfo
    from replitree.client.read.scan import Scan
    from replitree.client.read.snapshot import DataFiles, Snapshot, SnapshotPart
    from replitree.client.read.table_log import HistoryEntry
    from replitree.client.table import Table
    from replitree.client.transport.access import Access, find_access
    from replitree.client.transport.catalog import ReplicaInfo
    from replitree.client.transport.lease import Lease

__all__ = [
    "Access",
    "ClusterStatus",
    "CommandResult",
    "Connection",
    "DataFiles",
    "DetachedPart",
    "Frozen",
    "HistoryEntry",
    "InsertResult",
    "Killed",
    "Lease",
    "LocalCluster",
    "Merged",
    "Mutation",
    "OptimizeResult",
    "PartitionInfo",
    "ReplicaInfo",
    "ReplicaStatus",
    "Scan",
    "ServerStatus",
    "Snapshot",
    "SnapshotPart",
    "Table",
    "TableStatus",
    "UnreadableTable",
    "connect",
    "find_access",
    "local",
]

_HOMES = {
    "Access": "replitree.client.transport.access",
    "ClusterStatus": "replitree.client.admin.status",
    "CommandResult": "replitree.client.change.command",
    "Connection": "replitree.client.connection",
    "DataFiles": "replitree.client.read.snapshot",
    "DetachedPart": "replitree.client.change.change_results",
    "Frozen": "replitree.client.change.change_results",
    "HistoryEntry": "replitree.client.read.table_log",
    "InsertResult": "replitree.client.insert.terms",
    "Killed": "replitree.client.change.change_results",
    "Lease": "replitree.client.transport.lease",
    "LocalCluster": "replitree.client.cluster",
    "Merged": "replitree.client.change.change_results",
    "Mutation": "replitree.client.change.change_results",
    "OptimizeResult": "replitree.client.change.change_results",
    "PartitionInfo": "replitree.client.read.partitions",
    "ReplicaInfo": "replitree.client.transport.catalog",
    "ReplicaStatus": "replitree.client.admin.status",
    "Scan": "replitree.client.read.scan",
    "ServerStatus": "replitree.client.admin.status",
    "Snapshot": "replitree.client.read.snapshot",
    "SnapshotPart": "replitree.client.read.snapshot",
    "Table": "replitree.client.table",
    "TableStatus": "replitree.client.admin.status",
    "UnreadableTable": "replitree.client.admin.status",
    "connect": "replitree.client.connection",
    "find_access": "replitree.client.transport.access",
    "local": "replitree.client.cluster",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
