"""The client: connect to a cluster, create tables, insert, read and change rows."""

from replitree.client.admin.status import ClusterStatus, ReplicaStatus, ServerStatus, TableStatus, UnreadableTable
from replitree.client.change.change_results import DetachedPart, Frozen, Killed, Merged, Mutation, OptimizeResult
from replitree.client.change.command import CommandResult
from replitree.client.cluster import LocalCluster, local
from replitree.client.connection import Connection, connect
from replitree.client.insert.insert import InsertResult
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
