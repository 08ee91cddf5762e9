"""A connection to a cluster: its tables, and how it is.

Guarantees: no request is sent before its answer is needed; all handles of one connection read each other's writes;
`close` ends the coordination session.

Absent on purpose: a server to log in to.  A connection is a coordination session for looking things up, and HTTP to
replicas.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.insert.terms import Written
from replitree.client.sharded.sharded_catalog import find_sharded, sharded
from replitree.client.table import Table
from replitree.client.transport.access import Access, find_access
from replitree.client.transport.catalog import LOOK_S, Catalog, ReplicaInfo, Session
from replitree.client.transport.http import HttpClient
from replitree.client.transport.named_stores import with_url
from replitree.coordination.port import Coordination
from replitree.coordination.url import parse_url
from replitree.decoding import converted
from replitree.errors import BadInput, NotAuthorized, ReplicaUnavailable, TableNotFound
from replitree.protocol.core.layout import check_table_name
from replitree.protocol.sharded.places import check_hosted_name, is_shard_name
from replitree.storage.schema.definition import TableDefinition, TableSettings, Transform, define_table
from replitree.storage.schema.merge_policy import PLAIN, MergePolicy
from replitree.storage.schema.shard_definition import shard_definition
from replitree.storage.schema.storage_policy import LOCAL
from replitree.tls import Contexts, TlsFiles
from replitree.wire.history_recorder import Recorder

if TYPE_CHECKING:
    # Most connections ask one question of one table: what an administrator asks is imported where it is asked.
    import pyarrow as pa

    from replitree.client.admin.doctor_state import ClusterState
    from replitree.client.admin.fsck import FsckReport
    from replitree.client.admin.repair import PartCheck
    from replitree.client.admin.status import ClusterStatus, ServerStatus
    from replitree.client.sharded.sharded_catalog import ShardedInfo, Sharding
    from replitree.client.sharded.sharded_table import ShardedTable
    from replitree.client.sharded.shards import TableShards
    from replitree.client.transport.left_objects import LeftObjects
    from replitree.protocol.rescue.recover import Survivor
    from replitree.protocol.sharded.placement import Placement

CREATE_S = 30.0
"""How long to wait for replicas to join a new table, in seconds."""

CONNECT_S = 8.0
"""How long ZooKeeper may take to answer at first, in seconds; a person waits for it."""

DROP_S = 60.0
"""How long to wait for replicas to leave a dropped table, in seconds."""

_Settings = TableSettings | Mapping[str, Any] | None


@check_arguments
def connect(
    url: str | os.PathLike[str],
    token: str | None = None,
    *,
    token_file: str | os.PathLike[str] | None = None,
    tls_ca: str | os.PathLike[str] = "",
    tls_certificate: str | os.PathLike[str] = "",
    tls_key: str | os.PathLike[str] = "",
    record: str | os.PathLike[str] | Recorder | None = None,
) -> Connection:
    """Connect to a cluster.

    Parameters
    ----------
    url
        ``zk://host:port,…/path``, or a folder made by `replitree up`.
    token, token_file
        The cluster's shared secret, or a file that holds it; by default ``REPLITREE_TOKEN``, the file in
        ``REPLITREE_TOKEN_FILE``, or the folder's own.
    tls_ca
        PEM file with the authorities that have issued the certificates of replicas and ZooKeeper.  With it no replica is spoken
        to in clear text.  By default ``REPLITREE_TLS_CA``.
    tls_certificate, tls_key
        PEM files with a certificate of this client and its key, where replicas want one.  By default
        ``REPLITREE_TLS_CERTIFICATE`` and ``REPLITREE_TLS_KEY``.
    record
        A new file for the history of what is inserted and read through this connection, or a `Recorder`:
        the command `verify history` judges it.  Rows are named in it by the first column of the table's order key (a
        `Recorder` takes another): its numbers are whole and not negative, each inserted once.

    Raises
    ------
    BadInput
        The url is wrong, or there is no cluster in the folder, or the file is there already.
    """
    tls = TlsFiles(os.fspath(tls_ca), os.fspath(tls_certificate), os.fspath(tls_key))
    access = find_access(url, token, token_file, tls)
    recorder = record if record is None or isinstance(record, Recorder) else Recorder(record)
    return Connection(access, recorder=recorder)


@check_arguments
class Connection:
    """A connection to a cluster.  Any thread may use it.  Also a context manager.

    Parameters
    ----------
    access
        How to reach it.
    open_session
        Opens a coordination session; by default one with the ZooKeeper that the url names.
    recorder
        Takes down what is inserted and read.
    """

    def __init__(
        self,
        access: Access,
        open_session: Callable[[], Coordination] | None = None,
        *,
        recorder: Recorder | None = None,
    ) -> None:
        self._access = access
        self._recorder = recorder
        self._session = Session(open_session or self._open_session)
        self._http: HttpClient | None = None
        self._written: dict[str, Written] = {}
        self._lock = threading.Lock()

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {parse_url(self._access.url)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The coordination url, without its password."""
        return str(parse_url(self._access.url))

    @property
    def access(self) -> Access:
        """How this cluster is reached, secrets included: for processes that connect on our behalf."""
        return self._access

    @property
    def catalog(self) -> Catalog:
        """What coordination knows."""
        return Catalog(self._session, parse_url(self._access.url).root)

    # --- tables -------------------------------------------------------------------------------------------------------

    def create_table(  # noqa: PLR0913 - each is an option of one table
        self,
        name: str,
        schema: pa.Schema | str,
        *,
        order_by: str | Sequence[str] = (),
        partition_by: str | Transform | Sequence[str | Transform] = (),
        settings: _Settings = None,
        policy: str | MergePolicy = PLAIN,
        storage: str = LOCAL,
        keep: str | None = None,
        feed: str | None = None,
        ttl: str | None = None,
        bloom: str | Sequence[str] = (),
        defaults: Mapping[str, str] | None = None,
        shard_by: str | Sequence[str] = (),
        shards: int | None = None,
        buckets: int | None = None,
        replicas: int | None = None,
        wait_replicas: int | None = None,
        timeout_s: float = CREATE_S,
    ) -> Table:
        """Create a table and wait until replicas serve it.

        Parameters
        ----------
        name
            Letters, digits and ``_``; a letter first.
        schema
            An Arrow schema, or Spark's DDL: ``"d date, k bigint not null, tags array<string>"``.
        order_by
            Columns that rows are sorted by inside a part.
        partition_by
            Iceberg's transforms: ``"month(d)"``, ``"bucket(16,k)"``, or a plain column.
        settings
            See `TableSettings`; a dictionary of them will do.
        policy
            What merges make of rows with equal order keys: ``"plain"`` (nothing), ``"replacing(version)"``,
            ``"replacing(version, is_deleted)"``, ``"summing(a, b)"``; see `replitree.storage.schema.merge_policy`.
        storage
            Where the rows lie: ``"local"``, on each replica's disk, or the URL of an object store that all replicas reach,
            which then has them once: ``"s3://bucket/prefix?endpoint=https://host:port"``, ``"file:///folder"``.  Credentials
            are no part of it; see `replitree.storage.objects.location`.  Or ``"tiered(URL, older=7d)"``: parts that have
            lain on the disks for so long go there; see `replitree.storage.schema.storage_policy`.
        keep
            For how long parts that leave the table can be read by `as_of`: ``"7 days"``, ``"36h"``.  By default as each
            replica's own setting `old_parts_lifetime_s` says.
        feed
            For how long the change feed is kept (`Table.changes`): ``"24h"``.  By default there is none.
        ttl
            When rows are removed: ``"at + 90 days"``, of a column of the order key or of `partition_by`; see `Table.set_ttl`.
            By default never.
        bloom
            Columns that get Bloom filters in the data files; see `Table.set_bloom`.
        defaults
            What inserts get that leave a column out: a literal of Spark SQL by the column's name, as in ``{"price": "0.5"}``.
        shard_by
            Make a sharded table (``docs/sharded-tables.md``): the columns whose values decide which shard has a row.
        shards, buckets
            Of a sharded table: how many shards it has, and into how many buckets its rows are divided, a power of two, 256 by
            default.  The number of shards is that of `replitree up --shards`, or 2.
        replicas
            Of a sharded table: how many replicas host each shard.  By default as many as the cluster was started with for
            each shard (`replitree up --shards`), otherwise all host every shard.
        wait_replicas
            How many replicas to wait for; by default all of a local cluster's, or one.  Of a sharded table: for each shard.
        timeout_s
            How long to wait for them, in seconds.

        Raises
        ------
        BadInput
            Something in the definition is wrong; nothing was created.
        StoreError, NotAuthorized
            A replica can't use the object store; nothing was created.
        TableExists
            There is a table of this name.
        ReplicaUnavailable
            The table was created, but too few replicas serve it in time.
        """
        from replitree.client.change.store_check import check_store
        from replitree.storage.sql.evolve import with_defaults

        if settings is not None and not isinstance(settings, TableSettings):
            try:
                settings = converted(dict(settings), TableSettings)
            except msgspec.ValidationError as error:
                known = ", ".join(TableSettings.__struct_fields__)
                raise BadInput(f"the table's settings are wrong: {error}; there are {known}") from error
        definition = define_table(
            name,
            schema,
            order_by=order_by,
            partition_by=partition_by,
            settings=settings,
            policy=policy,
            storage=with_url(self.catalog, storage),
            keep=keep or "",
            feed=feed or "",
            ttl=ttl or "",
            bloom=bloom,
        )
        if definition.bloom:
            from replitree.storage.parts.encodings import check_bloom

            check_bloom(definition.bloom)
        if defaults:
            definition = with_defaults(definition, defaults)
        # The token is required before anything is created.
        http = self._http_client()
        wanted = max(1, len(self._access.replicas)) if wait_replicas is None else wait_replicas
        if shard_by:
            from replitree.client.sharded.sharded_catalog import Sharding
            from replitree.client.transport.hosting import read_default

            sharding = Sharding.of(shard_by, shards, buckets, replicas, read_default(self.catalog))
            if wait_replicas is None and sharding.replicas is not None:
                wanted = sharding.replicas
            return self._create_sharded(definition, sharding, wanted, timeout_s)
        if (shards, buckets, replicas) != (None, None, None):
            raise BadInput("shards, buckets and replicas are those of a sharded table: say shard_by, too")
        check_store(self.catalog, http, definition.name, definition.storage)
        self.catalog.create(definition)
        self._wait_for_replicas(definition, wanted, timeout_s)
        return self._table(definition)

    def _create_sharded(
        self, definition: TableDefinition, sharding: Sharding, wanted: int, timeout_s: float
    ) -> ShardedTable:
        """Create a sharded table, and wait until so many replicas serve each shard."""
        from replitree.client.change.store_check import check_store
        from replitree.client.sharded.sharded_catalog import create

        check_store(self.catalog, self._http_client(), definition.name, definition.storage)
        create(self.catalog, definition, sharding)
        deadline = time.monotonic() + timeout_s
        made = sharded(self.catalog, definition.name)
        for shard in made.map.shards:
            left = max(0.0, deadline - time.monotonic())
            self._wait_for_replicas(shard_definition(made.definition, shard), wanted, left)
        return self._sharded_table(made)

    def table(self, name: str) -> Table:
        """Return a table.

        Raises
        ------
        TableNotFound
            There is no table of this name.
        """
        check_table_name(name)
        try:
            return self._table(self.catalog.definition(name))
        except TableNotFound:
            # A sharded table has no log under its own name.
            found = find_sharded(self.catalog, name)
            if found is None:
                raise
        return self._sharded_table(found)

    def hosted(self, name: str) -> Table:
        """Return the table with one log of this name: a table that is not sharded, or a shard, as in ``events~0``.

        A shard is for looking at: what changes it alone would set it apart from the other shards.

        Raises
        ------
        InvalidName
            Neither a table nor a shard can have this name.
        TableNotFound
            There is no such table, or it is sharded.
        """
        return self._table(self.catalog.definition(check_hosted_name(name)))

    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables; a sharded table is one."""
        return self.catalog.names()

    def drop_table(self, name: str, *, timeout_s: float = DROP_S) -> None:
        """Drop a table with everything in it, on every replica.

        Raises
        ------
        TableNotFound
            There is no table of this name.
        BadInput
            It has materialised views, or is the target of one: drop these first.
        Unavailable
            Replicas have not left it in time; drop it again.
        """
        check_table_name(name)
        try:
            self.catalog.drop(name, timeout_s)
        except TableNotFound:
            from replitree.client.sharded.sharded_catalog import drop

            drop(self.catalog, name, timeout_s)

    def place_shard(self, table: str, shard: int, replicas: Sequence[str]) -> Placement:
        """Place one shard of a sharded table on other replicas; return the placement as it is then.

        A replica that is added joins the shard at once.  One that is left out serves it until its server starts again; then
        `drop_replica` of ``table~shard`` takes it out.

        Parameters
        ----------
        replicas
            Names of replicas; none: all host it.

        Raises
        ------
        TableNotFound
            There is no such sharded table.
        BadInput
            It has no such shard, or a name can't be a replica's.
        CoordinationUnavailable
            It is not known whether that was done; do it again.
        """
        from replitree.client.sharded.sharded_catalog import place_shard

        return place_shard(self.catalog, table, shard, replicas)

    def shards(self, table: str) -> TableShards:
        """Return the shards of a sharded table: to add and empty them, and to move buckets between them.

        Raises
        ------
        InvalidName
            No table can have this name.
        """
        from replitree.client.sharded.shards import TableShards

        return TableShards(self.catalog, self._http_client(), check_table_name(table))

    # --- replicas that are lost, gone or broken -------------------------------------------------------------------------

    def recover_from(self, table: str, replica: str, *, half_built: bool = False, behind: bool = False) -> Survivor:
        """Let a table go on from the state of one replica, when all of them are lost; see `replitree.client.admin.repair`.

        Raises
        ------
        TableNotFound
            There is no such table.
        BadInput
            It has no such replica, or a replica is good, or this one is half-built and `half_built` is not said, or another
            one has seen more and `behind` is not said.
        """
        from replitree.client.admin.repair import recover_from

        return recover_from(self.catalog, table, replica, half_built=half_built, behind=behind)

    def drop_replica(self, table: str, replica: str) -> None:
        """Take a replica that will not come back out of a table.

        Raises
        ------
        TableNotFound
            There is no such table.
        BadInput
            There is no such replica, or it is active, or no other replica is good.
        Unavailable
            It was not finished; do it again.
        """
        from replitree.client.admin.repair import drop_replica

        drop_replica(self.catalog, table, replica)

    def check_parts(self, table: str, replica: str | None = None) -> tuple[PartCheck, ...]:
        """Let replicas read every part of a table and compare it with its checksums; broken parts are fetched again.

        Raises
        ------
        TableNotFound
            There is no such table.
        BadInput
            It has no such replica.
        """
        from replitree.client.admin.repair import check_parts

        return check_parts(self.catalog, self._http_client(), table, replica)

    def fsck(
        self, table: str, *, with_repair: bool = False, grace_s: float | None = None, everybody_is_back: bool = False
    ) -> FsckReport:
        """Compare a table's object store with coordination and the replicas' disks; it may run while the cluster works.

        Parameters
        ----------
        table
            A table; a sharded one has its shards looked at, one after the other.  Or a shard, as in ``events~1``.
        with_repair
            Repair what can be repaired without losing anything.
        grace_s
            How old something must be to count as left over, in seconds; a day by default.
        everybody_is_back
            Of a table that was restored: every server that had it before was started since, or never will be.

        Raises
        ------
        TableNotFound
            There is no such table.
        BadInput
            Its rows are on local disks, or its URL reaches another store from here.
        Unavailable, NotAuthorized
            The store did not answer, or refused.
        """
        from replitree.client.admin.fsck import fsck
        from replitree.client.sharded.sharded_fsck import fsck_shards
        from replitree.protocol.rescue.fsck import GRACE_S

        has_one_log = is_shard_name(table) or find_sharded(self.catalog, table) is None
        return (fsck if has_one_log else fsck_shards)(
            self.catalog,
            self._http_client(),
            table,
            with_repair=with_repair,
            grace_s=GRACE_S if grace_s is None else grace_s,
            everybody_is_back=everybody_is_back,
        )

    def left_objects(self, *, with_repair: bool = False, grace_s: float | None = None) -> tuple[LeftObjects, ...]:
        """Look what dropped tables have left in object stores, and delete it.

        Parameters
        ----------
        with_repair
            Delete it; otherwise it is only told.
        grace_s
            How long a table is remembered after nothing was found any more, in seconds, a day by default: longer than
            any write of a part takes.
        """
        from replitree.protocol.rescue.fsck import GRACE_S

        return self.catalog.left_objects(with_repair=with_repair, grace_s=GRACE_S if grace_s is None else grace_s)

    # --- how it is ----------------------------------------------------------------------------------------------------

    def replicas(self) -> tuple[ReplicaInfo, ...]:
        """Return the replicas of all tables, by name.  A replica that has no table yet is not among them."""
        found: dict[str, ReplicaInfo] = {}
        for name in self.catalog.hosted_names():
            for replica in self.catalog.replicas(name):
                known = found.get(replica.name)
                if known is None or (replica.active and not known.active):
                    found[replica.name] = replica
        return tuple(found[name] for name in sorted(found))

    def servers(self) -> tuple[ServerStatus, ...]:
        """Return how each server is, asked now; also one that has a session and no table yet."""
        from replitree.client.admin.status import server_statuses

        found = {replica.name: replica for replica in self.replicas()}
        for name, address in self.catalog.servers():
            found.setdefault(name, ReplicaInfo(name, address, active=True))
        return server_statuses(self._http_client(), tuple(found[name] for name in sorted(found)))

    def status(self, table: str | None = None) -> ClusterStatus:
        """Return how the cluster is.

        Parameters
        ----------
        table
            Only this table.

        Raises
        ------
        TableNotFound
            There is no table of this name.
        UnsupportedFormat
            It can't be read.  Of all tables, those that can't be are named in the answer.
        CoordinationUnavailable
            Coordination can't be asked.
        """
        from replitree.client.admin.moving import moving_tables
        from replitree.client.admin.status import (
            ClusterStatus,
            TableStatus,
            cluster_status,
            server_statuses,
            table_status,
        )

        catalog, http = self.catalog, self._http_client()
        if table is None:
            return cluster_status(self.url, catalog, http, catalog.hosted_names(), self.replicas())
        try:
            found: tuple[TableStatus, ...] = (table_status(catalog, http, catalog.definition(table)),)
        except TableNotFound:
            from replitree.client.sharded.sharded_status import shard_statuses

            found = shard_statuses(catalog, http, sharded(catalog, table))
        moving = moving_tables(catalog, table.partition("~")[0])
        return ClusterStatus(self.url, found, server_statuses(http, self.replicas()), moving=moving)

    def look_over(self) -> ClusterState:
        """Return everything that is known of the cluster, for `replitree.client.admin.doctor.examine` to judge.

        Raises
        ------
        NotAuthorized
            There is no token, or coordination refuses the credentials.
        """
        from replitree.client.admin.doctor_gather import gather

        url = parse_url(self._access.url)
        tls = Contexts(self._access.tls) if url.is_secure else None
        return gather(self.url, url.hosts, self.catalog, self._http_client(), tls)

    def close(self) -> None:
        """End the connection.  Its tables can't be used any more."""
        self._session.close()
        if self._http is not None:
            self._http.close()
        if self._recorder is not None:
            self._recorder.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _open_session(self) -> Coordination:
        from replitree.coordination.zookeeper import ZooKeeperCoordination

        return ZooKeeperCoordination(self._access.url, connect_timeout_s=CONNECT_S, tls=Contexts(self._access.tls))

    def _http_client(self) -> HttpClient:
        with self._lock:
            if self._http is None:
                if not self._access.token:
                    raise NotAuthorized(
                        "replicas want the cluster's token: give connect(…, token=…), or set REPLITREE_TOKEN or"
                        " REPLITREE_TOKEN_FILE"
                    )
                self._http = HttpClient(self._access.token, self._access.tls)
            return self._http

    def _table(self, definition: TableDefinition) -> Table:
        http = self._http_client()
        written = self._written_of(definition)
        if self._recorder is not None:
            from replitree.client.recorded import RecordedTable

            return RecordedTable(definition, self.catalog, http, written, recorder=self._recorder)
        return Table(definition, self.catalog, http, written)

    def _sharded_table(self, info: ShardedInfo) -> ShardedTable:
        from replitree.client.sharded.sharded_table import ShardedTable

        if self._recorder is not None:
            from replitree.client.recorded_shards import RecordedShardedTable

            parts = info, self.catalog, self._http_client(), self._written_of
            return RecordedShardedTable(*parts, recorder=self._recorder)
        return ShardedTable(info, self.catalog, self._http_client(), self._written_of)

    def _written_of(self, definition: TableDefinition) -> Written:
        with self._lock:
            return self._written.setdefault(definition.table_id, Written())

    def _wait_for_replicas(self, definition: TableDefinition, wanted: int, timeout_s: float) -> None:
        from replitree.client.admin.status import table_status

        deadline = time.monotonic() + timeout_s
        while True:
            serving = sum(replica.active for replica in self.catalog.replicas(definition.name))
            if serving >= wanted:
                # Coordination knows a moment before a replica takes inserts that it will, so the replicas are asked, too.
                found = table_status(self.catalog, self._http_client(), definition).replicas
                serving = sum(replica.state == "active" for replica in found)
            if serving >= wanted:
                return
            if time.monotonic() > deadline:
                found = table_status(self.catalog, self._http_client(), definition).replicas
                said = [
                    f"{each.name} is {each.state}: {each.reason}"
                    for each in found
                    if each.state != "active" and each.reason
                ]
                advice = f" ({'; '.join(said)}): mend that, or drop the table" if said else "; start their servers"
                raise ReplicaUnavailable(
                    f"table {definition.name!r} was created, but {serving} of {wanted} replicas serve it after"
                    f" {timeout_s:.0f} s{advice}"
                )
            time.sleep(LOOK_S)
