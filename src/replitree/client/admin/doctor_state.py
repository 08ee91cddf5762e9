"""What the doctor looks at: everything that is known of a cluster at one moment, as data.

`doctor_gather` fills it, `doctor` judges it.  What no replica could say is None, or a name with a `problem`; nothing here is a
judgement.  Positions are indexes on the table's number line; times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import msgspec

from replitree.client.admin.moving import MovingTable
from replitree.client.transport.answers import ExpiryStatus, MoveStatus, PostponedEntry
from replitree.client.transport.standing import ReplicaMark
from replitree.wire.consumer_status import ConsumerStatus


class CoordinationServer(msgspec.Struct, frozen=True, kw_only=True):
    """One ZooKeeper server of the url.

    Attributes
    ----------
    address
        ``host:port``.
    reachable
        It takes connections.
    mode
        ``standalone``, ``leader``, ``follower`` or ``observer``; ``not serving`` while it has no quorum; None when it does not
        say (the command ``srvr`` may be switched off there).
    nodes
        How many nodes it keeps, those of others included.
    """

    address: str
    reachable: bool = True
    mode: str | None = None
    nodes: int | None = None


class CoordinationState(msgspec.Struct, frozen=True, kw_only=True):
    """Coordination as a client sees it.

    Attributes
    ----------
    problem
        Why it can't be asked; empty: it can.
    latency_s
        How long a read took, in the middle of several; None when none was answered.
    servers
        The servers that the url names.
    """

    problem: str = ""
    latency_s: float | None = None
    servers: tuple[CoordinationServer, ...] = ()


class KeptTable(msgspec.Struct, frozen=True):
    """A folder with a table's parts on a server's disk, though coordination has no such table."""

    table: str
    folder: str


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """One replica process.

    Attributes
    ----------
    name, address
        Of the replica; the address is empty when it has never been active.
    problem
        Why it does not answer; empty: it does.
    version
        Of replitree there.
    clock_apart_s, clock_doubt_s
        How far its clock is ahead of this machine's, and how much of that the network may be to blame for.
    disk_free, disk_size, disk_reserve
        Of its data folder, in bytes; below the reserve it is read-only.
    kept_tables
        Tables whose folders it has, and that it does not host.
    """

    name: str
    address: str = ""
    problem: str = ""
    version: str | None = None
    clock_apart_s: float | None = None
    clock_doubt_s: float = 0.0
    disk_free: int | None = None
    disk_size: int | None = None
    disk_reserve: int | None = None
    kept_tables: tuple[KeptTable, ...] = ()


class Lacking(msgspec.Struct, frozen=True, kw_only=True):
    """A registered part that is broken or missing on a replica's disk, and the others that have it or a later form of it."""

    part: str
    holders: tuple[str, ...] = ()


class MutationState(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation that is not finished on some replicas, and why not (empty: it is going on)."""

    index: int
    command: str = ""
    replicas: tuple[str, ...] = ()
    parts_left: int = 0
    tries: int = 0
    reason: str = ""


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of one table.

    Attributes
    ----------
    name
        Its name.
    mark
        Whether it is lost, half-built, or being taken out of the table.
    active
        It has a session.
    problem
        Why it does not answer; empty: it does.
    state, reason
        What it says of itself, and why.
    pointer, queue
        Next entry that it will pull, and how many are pulled and not executed.
    parts
        How many parts it has registered.
    postponed, lacking
        What it could not do yet, and what is broken or missing on its disk.
    unavailable
        Parts that no replica has sent it for some minutes, and why they are not given up.
    declared_lost
        Parts that it has declared lost since its process began, and the index of each such entry.
    lost_insert_parts
        Of these: how many parts the insert had that each comes from; 0: it was merged, or that is not known.
    unusable_copies
        Of parts that are lacking: folders on its disk that look like copies, and why each was not used.
    merges_paused
        It merges nothing by itself.
    old_parts, old_bytes, old_since_s, leases
        Parts that left the table and are still on its disk: how many, their bytes, how old the oldest is; and how many
        readers hold some.
    tagged_parts, tagged_bytes
        Those of them that tags keep.
    feed_parts, feed_bytes
        Those of them that the change feed keeps, and no tag.
    feed_missing
        Parts that the change feed needs, and that are not on its disk.
    consumer_bytes, consumers
        Bytes of those of them that only consumers of the feed keep, and the consumers as it has seen them last.
    moving
        What it has to move between its disk and the table's object store; None: the table has no store.
    expiry
        What it says of the removal of rows; None: the rows of the table stay.
    """

    name: str
    mark: ReplicaMark = ReplicaMark.GOOD
    active: bool = True
    problem: str = ""
    state: str = "active"
    reason: str = ""
    pointer: int = 0
    queue: int = 0
    parts: int = 0
    postponed: tuple[PostponedEntry, ...] = ()
    lacking: tuple[Lacking, ...] = ()
    unavailable: dict[str, str] = {}
    declared_lost: dict[str, int] = {}
    lost_insert_parts: dict[str, int] = {}
    unusable_copies: dict[str, dict[str, str]] = {}
    merges_paused: bool = False
    old_parts: int = 0
    old_bytes: int = 0
    old_since_s: float | None = None
    leases: int = 0
    tagged_parts: int = 0
    tagged_bytes: int = 0
    feed_parts: int = 0
    feed_bytes: int = 0
    feed_missing: int = 0
    consumer_bytes: int = 0
    consumers: tuple[ConsumerStatus, ...] = ()
    moving: MoveStatus | None = None
    expiry: ExpiryStatus | None = None

    @property
    def answers(self) -> bool:
        """Whether its server says how it is."""
        return not self.problem

    @property
    def serves(self) -> bool:
        """Whether it takes inserts."""
        return self.active and self.answers and self.state == "active"


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """One table.

    Attributes
    ----------
    name
        Its name.
    problem
        Why it can't be judged: its definition is of a newer version, or it vanished meanwhile.
    dropping, is_removed_shard
        Its drop has begun; and its sharded table is there, without it.
    restoring
        From which replica's disk it is being restored; empty: it is not.
    log_first, log_tail
        The lowest index that is still in the log, and the one that comes next.
    keep_min, keep_max
        How many entries always stay, and how far an inactive replica may be behind before it is marked lost; None when no
        replica says.
    leaders
        The candidates for leader; the first one leads.
    blocks, results, quorums
        Block ids, results of merges, and open quorum inserts that coordination remembers.
    partition, partition_parts
        The partition with the most parts, and how many.
    parts_delay, parts_max
        From how many parts in one partition on inserts are delayed, and refused.
    mutations
        Those that are not finished.
    open_backfills
        Its materialised views whose earlier rows are not in their target yet.
    replicas
        By name.
    """

    name: str
    problem: str = ""
    dropping: bool = False
    is_removed_shard: bool = False
    restoring: str = ""
    log_first: int = 0
    log_tail: int = 0
    keep_min: int | None = None
    keep_max: int | None = None
    leaders: tuple[str, ...] = ()
    blocks: int = 0
    results: int = 0
    quorums: int = 0
    partition: str = ""
    partition_parts: int = 0
    parts_delay: int = 1000
    parts_max: int = 3000
    mutations: tuple[MutationState, ...] = ()
    open_backfills: tuple[str, ...] = ()
    replicas: tuple[ReplicaState, ...] = ()


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at one moment, as it looks from here; `version` is that of the replitree that looks.

    `unfinished`: the sharded tables whose creation or drop was cut off, or is under way; `moving`: those in which buckets move;
    `restoring`: those that are being restored, with the names of their shards that are not restored yet.
    """

    url: str
    version: str
    coordination: CoordinationState = CoordinationState()
    servers: tuple[ServerState, ...] = ()
    tables: tuple[TableState, ...] = ()
    unfinished: tuple[str, ...] = ()
    moving: tuple[MovingTable, ...] = ()
    restoring: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
