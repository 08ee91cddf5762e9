"""Status: what an operator wants to know of a cluster, as data that JSON can hold.

Guarantees: it never fails because a replica does, nor because one table's nodes can't be read; what a replica can't say is
None, and `reachable` is False.  Positions come from coordination and rows from the replicas, so they may be moments apart.

Absent on purpose: judgement.  The caller that shows a status decides what is bad.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import msgspec

from replitree.client.admin.moving import MovingTable, moving_tables
from replitree.client.change.views import open_backfills
from replitree.client.transport.answers import (
    ExpiryStatus,
    MoveStatus,
    PostponedEntry,
    check_token,
    expiry_in,
    moves_in,
    piece,
)
from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.hosting import placed_on
from replitree.client.transport.http import HttpClient
from replitree.client.transport.standing import ReplicaMark, ReplicaStanding, entries_between
from replitree.errors import ReplicaUnavailable, ReplitreeError, TableNotFound, UnsupportedFormat
from replitree.storage.schema.definition import TableDefinition
from replitree.wire.consumer_status import ConsumerStatus

STATUS_S_MAX = 5.0
"""How long a replica may take to say how it is, in seconds."""

ASKED_AT_ONCE = 8

_Answer: TypeAlias = dict[str, Any] | ReplitreeError
"""What a server says about itself, or why nothing could be heard of it."""


class WorkStatus(msgspec.Struct, frozen=True):
    """A merge or a mutation that a replica works at.

    Attributes
    ----------
    index, kind, result
        Of its entry, what it is, and the part that it makes.
    rows_done, rows_total
        How far it is.
    """

    index: int
    kind: str
    result: str
    rows_done: int
    rows_total: int


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One replica of one table.

    Attributes
    ----------
    active
        It has a session.
    reachable
        Its server answers.
    state
        What it says of itself: ``starting``, ``active``, ``recovering``, ``read_only``, ``halted`` or ``stopped``; ``down``
        when it does not answer.
    reason
        Why it is not active.
    log_pointer, queue
        Index of the next entry that it will pull, and how many entries it has pulled and not executed.
    lag
        How many entries of the log it has not executed.
    index
        Everything below this index can be read there.
    parts, rows, bytes
        What reads show there.
    mark
        What coordination says of its state: ``good``; ``lost`` when entries that it had not pulled were removed;
        ``half-built`` while it takes over another one's state; ``half-dropped`` when a drop of it was cut off.
    postponed
        The first entries of its queue that could not be executed yet, and why.
    lacking
        Parts of the table whose files are broken or gone on its disk: reads there do not show them.
    leader
        The replica that proposes merges, as far as this one knows.
    merges_paused
        It merges nothing by itself.
    running
        Merges and mutations that it works at.
    old_parts, old_bytes, leases
        Parts that left the table and are still on its disk, their size, and how many readers hold some.
    tagged_parts, tagged_bytes
        Those of them that tags keep, and their size.
    packed_parts, packs
        Those of them that are packed, and in how many files.
    consumers
        The consumers of the change feed, as it has seen them last.
    without_checksums
        Parts of an earlier version that are not yet fully checksummed: their manifests, or the blocks of their large files.
        The replica does that in the background; until then readers verify each such file as a whole before its first use.
    without_digest
        Parts of an earlier version that are registered with the hash of their rows alone, so that a manifest of equal rows for
        another schema version is not told from theirs.  The next merge or mutation of such a part ends that.
    open_inserts
        The indexes of the inserts whose quorum is open, as far as it has pulled.
    moving
        What it has to move between its disk and the table's object store; None: the table has no store.
    expiry
        What it says of the removal of rows; None: the rows of the table stay.
    store_parts, store_bytes
        Of `parts` and `bytes`, what lies in the table's object store; the rest has its files on the replica's own disk.
    cached_bytes
        Copies of what lies in the store, on the replica's disk.
    """

    name: str
    address: str
    active: bool
    reachable: bool
    state: str
    reason: str
    log_pointer: int | None
    queue: int
    lag: int | None
    index: int | None
    parts: int | None
    rows: int | None
    bytes: int | None
    leader: str | None = None
    merges_paused: bool = False
    running: tuple[WorkStatus, ...] = ()
    old_parts: int | None = None
    old_bytes: int | None = None
    leases: int | None = None
    tagged_parts: int | None = None
    tagged_bytes: int | None = None
    packed_parts: int | None = None
    packs: int | None = None
    consumers: tuple[ConsumerStatus, ...] = ()
    mark: str = ReplicaMark.GOOD.value
    postponed: tuple[PostponedEntry, ...] = ()
    lacking: tuple[str, ...] = ()
    open_inserts: tuple[int, ...] = ()
    moving: MoveStatus | None = None
    expiry: ExpiryStatus | None = None
    without_checksums: int = 0
    without_digest: int = 0
    store_parts: int | None = None
    store_bytes: int | None = None
    cached_bytes: int | None = None


class TableStatus(msgspec.Struct, frozen=True):
    """One table: its number line, with the entries from `log_first` to below `log_tail` there, and its replicas by name.

    `open_backfills`: its materialised views whose earlier rows are not in their target yet.  `placed_on`: of a shard, the
    replicas that it is placed on; empty: all.
    """

    name: str
    columns: int
    order_by: tuple[str, ...]
    partition_by: tuple[str, ...]
    log_tail: int
    parts: int | None
    rows: int | None
    bytes: int | None
    replicas: tuple[ReplicaStatus, ...]
    log_first: int = 0
    open_backfills: tuple[str, ...] = ()
    placed_on: tuple[str, ...] = ()


class ServerStatus(msgspec.Struct, frozen=True):
    """One server, with everything that it says about itself (None when it does not answer)."""

    name: str
    address: str
    active: bool
    reachable: bool
    coordination_requests: dict[str, int]
    answer: dict[str, Any] | None


class UnreadableTable(msgspec.Struct, frozen=True):
    """A table of which nothing can be told, for what coordination has of it can't be read, and why."""

    name: str
    problem: str


class ClusterStatus(msgspec.Struct, frozen=True):
    """All tables and all servers of a cluster; `moving`: the sharded tables in which buckets move."""

    url: str
    tables: tuple[TableStatus, ...]
    servers: tuple[ServerStatus, ...]
    unreadable: tuple[UnreadableTable, ...] = ()
    moving: tuple[MovingTable, ...] = ()


def cluster_status(
    url: str, catalog: Catalog, http: HttpClient, names: tuple[str, ...], servers: tuple[ReplicaInfo, ...]
) -> ClusterStatus:
    """Return how tables are, and those that can't be read; a table that was dropped meanwhile is left out.

    Raises
    ------
    CoordinationUnavailable
        Coordination can't be asked.
    """
    tables, unreadable = list[TableStatus](), list[UnreadableTable]()
    for name in names:
        try:
            tables.append(table_status(catalog, http, catalog.definition(name)))
        except UnsupportedFormat as error:
            # A table of a newer version must not hide the tables that this version can read.
            unreadable.append(UnreadableTable(name, str(error)))
        except TableNotFound:
            # It was dropped after the names were listed.
            continue
    return ClusterStatus(url, tuple(tables), server_statuses(http, servers), tuple(unreadable), moving_tables(catalog))


def table_status(catalog: Catalog, http: HttpClient, definition: TableDefinition) -> TableStatus:
    """Return how a table and each of its replicas is.

    Raises
    ------
    CoordinationUnavailable
        Coordination can't be asked.
    """
    name = definition.name
    replicas = catalog.replicas(name)
    answers = _ask_all(http, replicas, f"/v1/tables/{name}/status")
    log = catalog.log_state(name)
    standings = {standing.name: standing for standing in log.replicas}
    found = tuple(
        _replica_status(replica, answer, standings.get(replica.name), log.tail)
        for replica, answer in zip(replicas, answers, strict=True)
    )
    best = max(found, key=lambda status: status.index if status.index is not None else -1, default=None)
    return TableStatus(
        name,
        len(definition.columns),
        definition.order_by,
        tuple(transform.text for transform in definition.partition_by),
        log.tail,
        best.parts if best else None,
        best.rows if best else None,
        best.bytes if best else None,
        found,
        log.first,
        open_backfills(catalog, name),
        placed_on(catalog, name),
    )


def server_statuses(http: HttpClient, replicas: tuple[ReplicaInfo, ...]) -> tuple[ServerStatus, ...]:
    """Return how each of these servers is."""
    answers = _ask_all(http, replicas, "/v1/status")
    return tuple(
        ServerStatus(
            replica.name,
            replica.address,
            replica.active,
            isinstance(answer, dict),
            dict(answer.get("coordination_requests") or {}) if isinstance(answer, dict) else {},
            answer if isinstance(answer, dict) else None,
        )
        for replica, answer in zip(replicas, answers, strict=True)
    )


def _ask_all(http: HttpClient, replicas: tuple[ReplicaInfo, ...], route: str) -> list[_Answer]:
    """Ask servers side by side.

    Raises
    ------
    NotAuthorized
        All that answer refuse the token.
    """

    def ask(replica: ReplicaInfo) -> _Answer:
        if not replica.address:
            return ReplicaUnavailable("it has never been active")
        try:
            return http.request(replica.address, "GET", route, timeout_s=STATUS_S_MAX).decode(dict[str, Any])
        except ReplitreeError as error:
            return error

    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="replitree-status") as pool:
        answers = list(pool.map(ask, replicas))
    check_token([answer for answer in answers if not isinstance(answer, ReplicaUnavailable)])
    return answers


def _replica_status(
    replica: ReplicaInfo, answer: _Answer, standing: ReplicaStanding | None, tail: int
) -> ReplicaStatus:
    said: dict[str, Any] = answer if isinstance(answer, dict) else {"reason": str(answer)}
    pointer = standing.pointer if standing else said.get("log_pointer")
    queue = standing.queue if standing else int(said.get("queue") or 0)
    return ReplicaStatus(
        name=replica.name,
        address=replica.address,
        active=replica.active,
        reachable=isinstance(answer, dict),
        state=str(said.get("state", "down")),
        reason=str(said.get("reason", "")),
        log_pointer=pointer,
        queue=queue,
        lag=None if pointer is None else entries_between(pointer, tail) + queue,
        index=said.get("index"),
        parts=said.get("parts"),
        rows=said.get("rows"),
        bytes=said.get("bytes"),
        leader=said.get("leader"),
        merges_paused=bool(said.get("merges_paused", False)),
        running=piece(said.get("running"), tuple[WorkStatus, ...], ()),
        old_parts=said.get("old_parts"),
        old_bytes=said.get("old_bytes"),
        leases=said.get("leases"),
        tagged_parts=said.get("tagged_parts"),
        tagged_bytes=said.get("tagged_bytes"),
        packed_parts=said.get("packed_parts"),
        packs=said.get("packs"),
        consumers=piece(said.get("consumers"), tuple[ConsumerStatus, ...], ()),
        mark=standing.mark.value if standing else ReplicaMark.GOOD.value,
        postponed=piece(said.get("postponed"), tuple[PostponedEntry, ...], ()),
        lacking=piece(said.get("lacking"), tuple[str, ...], ()),
        open_inserts=piece(said.get("open_inserts"), tuple[int, ...], ()),
        moving=moves_in(said.get("moving")),
        expiry=expiry_in(said.get("expiry")),
        without_checksums=piece(said.get("without_checksums"), int, 0),
        without_digest=piece(said.get("without_digest"), int, 0),
        store_parts=said.get("store_parts"),
        store_bytes=said.get("store_bytes"),
        cached_bytes=said.get("cached_bytes"),
    )
