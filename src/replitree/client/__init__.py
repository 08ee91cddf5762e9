"""The client: connect to a cluster, create tables, insert and read rows."""

from replitree.client.access import Access, find_access
from replitree.client.catalog import ReplicaInfo
from replitree.client.cluster import LocalCluster, local
from replitree.client.connection import Connection, connect
from replitree.client.insert import InsertResult
from replitree.client.snapshot import Snapshot, SnapshotPart
from replitree.client.status import ClusterStatus, ReplicaStatus, ServerStatus, TableStatus
from replitree.client.table import Table

__all__ = [
    "Access",
    "ClusterStatus",
    "Connection",
    "InsertResult",
    "LocalCluster",
    "ReplicaInfo",
    "ReplicaStatus",
    "ServerStatus",
    "Snapshot",
    "SnapshotPart",
    "Table",
    "TableStatus",
    "connect",
    "find_access",
    "local",
]
