"""The client: connect to a cluster, create tables, insert, read and change rows."""

from replitree.client.access import Access, find_access
from replitree.client.catalog import ReplicaInfo
from replitree.client.change_results import DetachedPart, Frozen, Killed, Merged, Mutation, OptimizeResult
from replitree.client.cluster import LocalCluster, local
from replitree.client.command import CommandResult
from replitree.client.connection import Connection, connect
from replitree.client.insert import InsertResult
from replitree.client.lease import Lease
from replitree.client.partitions import PartitionInfo
from replitree.client.snapshot import Snapshot, SnapshotPart
from replitree.client.status import ClusterStatus, ReplicaStatus, ServerStatus, TableStatus, UnreadableTable
from replitree.client.table import Table

__all__ = [
    "Access",
    "ClusterStatus",
    "CommandResult",
    "Connection",
    "DetachedPart",
    "Frozen",
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
