"""A table, as a program sees it: insert rows, read rows, change it, look at it.

A handle follows the table's schema: it reads the definition again when a snapshot has a newer version than it knows, and
older parts are read with the newest columns.

A handle reads its own writes: whatever it, or another handle of the same table from the same connection, has inserted
or changed is in every later snapshot, whichever replica answers.

What changes rows and columns that are there is in `replitree.client.change.changes`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.change.changes import TableChanges
from replitree.client.change.command import Commander, CommandResult
from replitree.client.insert.quorum import quorum_of
from replitree.client.insert.terms import TIMEOUT_S, InsertResult, Overwrite, Terms, Written
from replitree.client.read.as_of import AsOf, index_of
from replitree.client.read.earlier import EarlierEntries
from replitree.client.read.part_cache import PartCache
from replitree.client.read.read_options import ANSWER_S, ReadOptions, TimeIsUp
from replitree.client.read.scan import LEASE_S, Scan, ScanSource
from replitree.client.read.snapshot import Snapshot, SnapshotBody, SnapshotPart
from replitree.client.read.table_log import HISTORY_MAX, HistoryEntry, read_history, remembered_entry
from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.frames import frames, is_frame, note_for_frames
from replitree.client.transport.http import HttpClient
from replitree.client.transport.lease import Lease, LeaseHandle, hold
from replitree.client.transport.routing import Router
from replitree.client.transport.stored import StoredParts, Through, stored_parts
from replitree.errors import BadInput, ReplicaUnavailable, SchemaMismatch, SnapshotExpired
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.state.read import ReadLevel
from replitree.storage.schema.columns import UTC
from replitree.storage.schema.definition import TableDefinition
from replitree.wire.block_ids import restore_token

if TYPE_CHECKING:
    # Most handles only read: what inserts, and what looks at everything, is imported where it is used.
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.admin.status import TableStatus
    from replitree.client.insert.insert import TableInserter
    from replitree.client.read.feed import Changes, FeedPage
    from replitree.client.read.partitions import PartitionInfo

SNAPSHOT_S = 30.0
"""How long a snapshot may wait until a replica has what it must include, in seconds."""


@check_arguments
class Table(TableChanges):
    """A table of a cluster.  Any thread may use it.

    Made by `Connection.table` and `Connection.create_table`.
    """

    def __init__(
        self,
        definition: TableDefinition,
        catalog: Catalog,
        http: HttpClient,
        written: Written,
        pinned: str | None = None,
    ) -> None:
        self._definition = definition
        self._catalog = catalog
        self._http = http
        self._written = written
        self._pinned = pinned
        self._router = Router(catalog, definition.name, pinned)
        self._inserter: TableInserter | None = None
        self._commander = Commander(definition.name, catalog, http, self._router)
        self._earlier = EarlierEntries(definition.name, http, self._router)
        self._stored: StoredParts | None = None

    @override
    def _known(self, version: int) -> TableDefinition:
        """Return the definition, read again when a replica has a newer schema version than it."""
        return self.refresh() if version > self._definition.schema_version else self._definition

    @override
    def __repr__(self) -> str:
        at = f" at {self._pinned}" if self._pinned else ""
        names = self._definition.arrow_schema.names
        shown = ", ".join((*names[:6], "…") if len(names) > 6 else names)
        order = f", order by {', '.join(self._definition.order_by)}" if self._definition.order_by else ""
        return f"<Table {self.name}{at}: {shown}{order}>"

    def _repr_html_(self) -> str:
        from replitree.client.read.shown import table_html

        return table_html(self._definition)

    @property
    def definition(self) -> TableDefinition:
        """Its columns, order key, partition transforms and settings."""
        return self._definition

    @property
    def schema(self) -> pa.Schema:
        """Its Arrow schema."""
        return self._definition.arrow_schema

    @property
    def inserter(self) -> TableInserter:
        """What `insert` uses; for a caller that writes part files by other means, such as Spark."""
        from replitree.client.insert.insert import TableInserter

        # Another thread may read newer columns meanwhile.
        definition, found = self._definition, self._inserter
        if found is None or found.definition is not definition:
            found = TableInserter(definition, self._catalog, self._http, self._router, self._written)
            self._inserter = found
        return found

    @property
    def commander(self) -> Commander:
        """What changes of this table use; for a caller that makes parts by other means, such as Spark."""
        return self._commander

    @property
    def http(self) -> HttpClient:
        """How this handle talks to replicas."""
        return self._http

    def replica(self, name: str) -> Table:
        """Return this table at one replica: it alone is asked, whatever its state.

        Parameters
        ----------
        name
            The replica's name.
        """
        return Table(self._definition, self._catalog, self._http, self._written, name)

    def replicas(self) -> tuple[ReplicaInfo, ...]:
        """Return the replicas that have joined this table, as coordination knows them."""
        return self._catalog.replicas(self.name)

    # --- writing ------------------------------------------------------------------------------------------------------

    def insert(  # noqa: PLR0913 - each is an option of one insert
        self,
        data: Any,
        token: str | None = None,
        replica: str | None = None,
        *,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        deduplicate: bool = True,
        overwrite: Overwrite | None = None,
        merge_schema: bool = False,
        quorum: int | str | None = None,
        quorum_timeout_s: float | None = None,
        timezone: str = UTC,
        timeout_s: float = TIMEOUT_S,
    ) -> InsertResult:
        """Insert rows, all or none, and return when they are on disk and in the log.

        Parameters
        ----------
        data
            A pyarrow Table, RecordBatch or RecordBatchReader; anything with ``__arrow_c_stream__``; a dict of columns;
            a list of dicts; or a Spark DataFrame.
        token
            Names this insert: a second one with the same token is a duplicate, whatever its rows
            (`InsertResult.differs` warns of that).  By default equal
            content makes a duplicate.
        replica
            Insert at this replica only.
        txn_app_id, txn_version
            A stream, and this insert's number in it, in place of a token: a duplicate if the stream has it, or a higher one.
        deduplicate
            False: insert the rows even if the same rows are in the table already.
        overwrite
            ``"all"``: the rows take the place of all that are in the table; ``"partitions"``: of those in the partitions
            that they belong to.  One entry of the log: no reader sees the table without either.  Only a token makes such
            an insert a duplicate, never its content.
        merge_schema
            Add the columns that the rows have and the table has not, and widen those that are too narrow.
        quorum
            How many replicas must have the rows on disk before the insert counts: a number, ``"majority"`` or ``"all"``.
            An insert that was acknowledged then survives the loss of all of them but one.  Not together with `overwrite`.
        quorum_timeout_s
            How long that may take, in seconds, by default 10: then the insert is taken back on all replicas.
        timezone
            Time zone of timestamps that have none, as in ``"Europe/Berlin"``: Python's ``datetime``, pandas, Arrow.
        timeout_s
            When to stop trying, in seconds.

        Raises
        ------
        TooFewReplicas
            So many replicas are not active; nothing was inserted.
        QuorumNotReached
            So many did not have it in time; nothing of it is in the table, and never will be.
        SchemaMismatch, BadInput
            The rows do not fit; nothing was inserted.
        TooManyParts, Unavailable
            Nothing was inserted; try again later.
        StreamReplaced
            The stream belongs to a streaming query; nothing was inserted.
        OutcomeUnknown
            They may have been inserted; repeat it with the error's token (the same rows when it is empty), or `txn_version`.

        Examples
        --------
        ::

            table.insert({"k": [1, 2], "v": [0.5, None]})
            table.insert(arrow_table, token="load-2026-11-20")
            table.insert(arrow_table, txn_app_id="nightly-load", txn_version=41)
        """
        from replitree.storage.parts.conform import check_zone

        token, batch = self.inserter.names(token, txn_app_id, txn_version, deduplicate=deduplicate, overwrite=overwrite)
        terms = Terms(token, timeout_s, overwrite, quorum_of(quorum, quorum_timeout_s), check_zone(timezone), batch)
        at = self if replica in (None, self._pinned) else self.replica(str(replica))
        return at.insert_on_terms(data, terms, merge_schema=merge_schema)

    def upsert(
        self,
        data: Any,
        token: str | None = None,
        *,
        quorum: int | str | None = None,
        quorum_timeout_s: float | None = None,
        timezone: str = UTC,
        timeout_s: float = TIMEOUT_S,
    ) -> InsertResult:
        """Insert rows that replace those with equal order keys, in a table with the policy ``replacing``.

        Of rows with equal keys the one with the highest version is left, of equal versions the last inserted.  Final reads
        (``final=True``) show that at once, other reads when the parts were merged.  The versions are the caller's: a row with
        a lower version than the one that is there, or with none, changes nothing.  With the policy
        ``replacing(version, is_deleted)`` a row in which `is_deleted` is true deletes its key.

        Parameters
        ----------
        data
            As `insert`; with the order key, and the version column if the policy has one.
        token
            As `insert`.  Without one, equal content makes no duplicate: the rows may have been replaced by others meanwhile.
        quorum, quorum_timeout_s, timezone, timeout_s
            As `insert`.

        Raises
        ------
        BadInput
            The table's policy is another one, rows with equal keys may lie in several partitions, or a column is missing;
            nothing was inserted.  Other errors as `insert`.

        Examples
        --------
        ::

            table.upsert({"item": [7], "price": [9.5], "version": [2]})
            table.to_arrow(where="item = 7", final=True)
            table.upsert({"item": [7], "version": [3], "is_deleted": [True]})
        """
        from replitree.client.insert.upsert import check_upsert

        check_upsert(self._definition, self._schema_of(data).names)
        return self.insert(
            data,
            token,
            deduplicate=token is not None,
            quorum=quorum,
            quorum_timeout_s=quorum_timeout_s,
            timezone=timezone,
            timeout_s=timeout_s,
        )

    def restore_to(self, version: AsOf, *, token: str | None = None, timeout_s: float = TIMEOUT_S) -> InsertResult:
        """Make the table what it was at an earlier version, by one entry of the log: an insert in the place of everything.

        What came after the version is dropped, up to the entry.  It stays readable by `as_of` like all that leaves a table:
        restoring can be taken back.  The rows are read and written anew, those too that are the same now; of a large table
        Spark does that faster (``INSERT OVERWRITE t SELECT * FROM t VERSION AS OF …``).  They have the columns of now.

        Parameters
        ----------
        version
            An index of the log, a tag, or a time.
        token
            Of an earlier try, from its error: what that has done is not done twice.
        timeout_s
            How long replicas may take to answer, in seconds; reading and writing the rows does not count.

        Raises
        ------
        SnapshotExpired
            Parts of the version are gone; nothing was changed.
        SchemaMismatch
            A column was made NOT NULL, or the columns change at the same time; nothing was changed.
        OutcomeUnknown
            It may have happened; the error's token repeats it.
        BadInput, Unavailable
            As `insert`; nothing was changed.
        """
        with self.snapshot(as_of=version, lease_s=LEASE_S, timeout_s=timeout_s) as earlier:
            known_as = restore_token(earlier.index, secrets.token_hex(16) if token is None else token)
            return self.insert(earlier.scan().to_reader(), known_as, overwrite="all", timeout_s=timeout_s)

    def insert_on_terms(self, data: Any, terms: Terms, *, merge_schema: bool = False) -> InsertResult:
        """Insert rows as `insert` does, here, on terms that were checked before.

        When they do not fit the columns that this handle knows, they are inserted with the columns as they are by then.

        Parameters
        ----------
        data, merge_schema
            As `insert`; errors, too.
        terms
            All else.
        """
        if merge_schema:
            self.merge_schema(data)
        try:
            return self._insert(data, terms)
        except SchemaMismatch:
            from replitree.storage.rewrite.slices import is_stream

            known = self._definition.schema_version
            if is_stream(data) or self.refresh().schema_version <= known:
                # A stream can't be read again, and columns that are no newer would refuse the same rows.
                raise
        return self._insert(data, terms)

    def _insert(self, data: Any, terms: Terms) -> InsertResult:
        if is_frame(data):
            if terms.zone != UTC:
                raise BadInput("a DataFrame's timestamps are in its session's zone: set spark.sql.session.timeZone")
            result: InsertResult = frames().insert(self, data, terms)
        else:
            result = self.inserter.insert(data, terms)
            result = self.emptied(result, terms.timeout_s) if terms.overwrite == "all" else result
        note_for_frames(self, result.counts_at)
        return result

    def emptied(self, result: InsertResult, timeout_s: float = TIMEOUT_S) -> InsertResult:
        """Finish an insert that replaces the whole table: when it had no rows, the table has none afterwards.

        Parameters
        ----------
        result
            Of the insert.
        timeout_s
            How long to wait, in seconds.
        """
        if result.outcome != "empty":
            return result
        command_id = f"empty-{result.token}" if result.token else None
        return replace(result, index=self.truncate(command_id=command_id, timeout_s=timeout_s).index)

    def refresh(self) -> TableDefinition:
        """Look at the columns, and where the rows lie, again; return the definition as it is now."""
        found = self._catalog.definition(self.name)
        if found != self._definition and found.schema_version >= self._definition.schema_version:
            self._definition = found
        return self._definition

    def merge_schema(self, data: Any) -> CommandResult | None:
        """Add the columns that rows have and the table has not, and widen those that are too narrow.

        Parameters
        ----------
        data
            What `insert` takes, or an Arrow schema.

        Returns
        -------
        CommandResult or None
            The alter; None when the rows fitted already.

        Raises
        ------
        SchemaMismatch
            No such change makes the rows fit.
        """
        import pyarrow as pa

        from replitree.client.change.merge_schema import merge_schema

        return merge_schema(self, data if isinstance(data, pa.Schema) else self._schema_of(data))

    def _schema_of(self, data: Any) -> pa.Schema:
        """Return the Arrow schema of what can be inserted, without columns of which all values are null."""
        from replitree.client.change.merge_schema import schema_of

        if is_frame(data):
            schema: pa.Schema = frames().arrow_schema(data)
            return schema
        return schema_of(data)

    # --- reading ------------------------------------------------------------------------------------------------------

    def snapshot(
        self,
        min_index: int | None = None,
        *,
        level: ReadLevel | None = None,
        as_of: AsOf | None = None,
        lease_s: float | None = None,
        where: str | None = None,
        timeout_s: float = SNAPSHOT_S,
    ) -> Snapshot:
        """Return the parts that a replica shows now, or showed earlier.

        With a lease, use it as a context manager, or `close` it: until then its parts stay.

        Parameters
        ----------
        min_index
            The entry at this log index (`InsertResult.counts_at`) and all before it must be included.  By default whatever this
            connection has inserted or changed must; -1 asks for nothing (at the level eventual).
        level
            ``"eventual"`` (the default): whatever a replica has at the moment, whole inserts only.  ``"sequential"``: exactly
            the log below one position, which for this connection never goes back, whichever replica answers.
            ``"linearizable"``: that, and every insert and change that any client was told of before this call.
        as_of
            Exactly what the log has below this index (`Snapshot.index` of an earlier snapshot), nothing later.  Or a time, as
            a `datetime` or ISO 8601 text, in UTC when it has no zone: the table after the last entry that was written by then.
            Or the name of a tag (``docs/history.md``).
        lease_s
            How long the replica keeps the parts after each renewal, in seconds; a thread renews.  By default there is no
            lease, and parts that leave the table stay for some minutes.
        where
            The condition of the reads that follow: parts in which no row can match may be left out.  Of a table with many parts
            little is sent then.
        timeout_s
            How long to wait until a replica has that much, in seconds.

        Raises
        ------
        ReplicaBehind
            No replica has that much in time; nothing older is shown.
        Unavailable
            No replica answers, or for a linearizable read coordination does not.
        SnapshotExpired
            Parts of `as_of` are gone, or no replica knows the entries of that time any more.
        """
        index = self._index_of(as_of)
        return self._snapshot(ReadOptions(level, min_index, index, timeout_s, where, lease_s=lease_s))

    def _index_of(self, as_of: AsOf | None) -> int | None:
        return index_of(self._catalog, self.name, as_of, self._earlier.written_by)

    def _snapshot(self, options: ReadOptions) -> Snapshot:
        columns = self._definition.schema_version
        route = f"{options.path(self.name)}?{options.query(self._written, columns)}"
        replica, body, asked_at = self._ask(options, route)
        addresses = [known.address for known in self._router.replicas()]
        if body.unread:
            # Another replica may know the manifests that this one does not know; one that has a manifest has the rows, too.
            cache = PartCache(self._http, self.name, addresses, owner=replica.address, others=self._addresses)
            found = cache.find_manifests(body.unread)
            brought = [
                SnapshotPart(each.part, "", found[each.part], lacking=True, why=each.why)
                for each in body.unread
                if each.part in found
            ]
            parts = tuple(sorted((*body.parts, *brought), key=lambda part: part.part))
            unread = tuple(each for each in body.unread if each.part not in found)
            body = msgspec.structs.replace(body, parts=parts, unread=unread)
        if options.as_of is None:
            self._written.saw(body.index)
        lease = None
        if body.lease:
            handle = LeaseHandle(replica.address, self.name, body.lease, body.lease_s or options.lease_s or LEASE_S)
            lease = hold(handle, self._http, asked_at)
        definition = self._known(body.newest_version)
        if options.needed is not None and definition.schema_version != columns:
            # Another thread has read newer columns meanwhile, in which the condition may mean something else.
            if lease is not None:
                lease.release()
            return self._snapshot(replace(options, where=None))
        return self._snapshot_of(body, definition, replica, lease, addresses)

    def _snapshot_of(
        self,
        body: SnapshotBody,
        definition: TableDefinition,
        replica: ReplicaInfo,
        lease: Lease | None,
        addresses: Sequence[str],
    ) -> Snapshot:
        """Return what reads the parts of an answer."""
        # The handle keeps its access to the object store until the table has moved to another one.
        stored, url = self._stored, self._definition.store_url
        if url != (stored.url if stored is not None else ""):
            stored = self._stored = stored_parts(self._definition)
        source = PartCache(
            self._http, self.name, addresses, stored=stored, owner=replica.address, others=self._addresses
        )
        return Snapshot(
            definition,
            body.index,
            body.replica,
            body.parts,
            body.machine,
            source,
            lease,
            stored,
            body.unread,
            tag=body.tag,
        )

    def changes(  # noqa: PLR0913 - each is an option of the read
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        consumer: str | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        of: str | None = None,
        schema_version: int | None = None,
        lease_s: float = LEASE_S,
        timeout_s: float = SNAPSHOT_S,
    ) -> Changes:
        """Return the changes of the rows by the entries of the log from an index up to another: the change feed.

        The table keeps a feed for as long as `set_feed`, or `create_table`, has said.  With the policy ``plain``, the rows at
        `start` (``as_of=start``) with the changes are the rows at `end`.  See ``docs/change-feed.md`` for the other policies.

        Use it as a context manager, or `close` it: until then the replicas keep the parts that have the rows.

        Parameters
        ----------
        start, end
            From the entry at `start` up to the one at `end`, not included.  By default up to the end of what a replica has:
            all that this connection has written.  `Changes.end` is where the next read starts.
        consumer
            Begin at the position of this consumer, instead of `start`.  Call `move_consumer` when the rows are stored.
        columns
            Names, in the order wanted; all by default.  `_change_type`, `_commit_version` and `_commit_timestamp` follow.
        where
            Spark SQL condition on the table's columns: which of the changed rows are wanted, each image by itself.
        of
            `Changes.origin` of an earlier read: refuse another table of this name.
        schema_version
            Refuse entries that change the columns beyond this version; by default all rows have the present columns.
        lease_s
            How long the replicas keep the parts after each renewal, in seconds; a thread renews.
        timeout_s
            How long to wait until a replica has the log up to `end`, in seconds.

        Raises
        ------
        FeedOff, OffsetExpired, ConsumerExpired, FeedGap, TableReplaced, SchemaChanged
            See `replitree.wire.feed_errors`; each says what to do.
        BadInput
            `start` is above the end of the log or above `end`, a column is unknown, or `where` can't be read.
        ReplicaBehind, Unavailable
            No replica has the log up to `end` in time, or none answers.
        """
        from replitree.client.read.feed import ChangesWish, read_changes

        begin = self._begin(start, consumer)
        wish = ChangesWish(begin, end, columns, where, of, schema_version, lease_s, timeout_s)
        return read_changes(self._ask_feed, wish, self._definition)

    def feed_page(
        self, start: int, end: int, *, of: str, lease_s: float = 0.0, timeout_s: float = SNAPSHOT_S
    ) -> FeedPage:
        """Return which parts have the rows of some entries of the change feed: whole entries, at least one, not all of many.

        Parameters
        ----------
        start, end, of, timeout_s
            As of `changes`.
        lease_s
            How long the replica keeps the parts after each renewal, in seconds; 0: it gives no lease, to a reader that reads
            no rows.

        Raises
        ------
        FeedOff, OffsetExpired, FeedGap, TableReplaced, BadInput, ReplicaBehind, Unavailable
            As `changes`.
        """
        from replitree.client.read.feed import ChangesWish

        wish = ChangesWish(start, end, None, None, of, None, lease_s, timeout_s)
        return self._ask_feed(wish.query(start, end), timeout_s)

    @override
    def index_of(self, as_of: AsOf) -> int:
        """Return the index of the log that a time, or the name of a tag, means: see `snapshot`.

        Parameters
        ----------
        as_of
            As of `snapshot`, and errors, too.
        """
        index = self._index_of(as_of)
        assert index is not None, "only of None there is no index"
        return index

    def _ask_feed(self, query: str, timeout_s: float) -> FeedPage:
        """Ask for one page of the feed; errors as `changes`."""
        from replitree.client.read.feed import FeedPage
        from replitree.client.read.feed_pages import ask_page

        route = f"/v1/tables/{quote(self.name)}/feed?{query}&at_least={max(0, self._written.highest + 1)}"
        route += "" if "&of=" in query else f"&of={self._definition.table_id}"
        replica, body, asked_at = ask_page(self._router, self._http, route, timeout_s)
        addresses = [known.address for known in self._router.replicas()]
        handle = LeaseHandle(replica.address, self.name, body.lease, body.lease_s or LEASE_S)
        lease = hold(handle, self._http, asked_at) if body.lease else None
        return FeedPage(body, self._snapshot_of(body, self._known(body.newest_version), replica, lease, addresses))

    def is_unchanged(
        self,
        known: Snapshot,
        min_index: int | None = None,
        *,
        level: ReadLevel | None = None,
        timeout_s: float = SNAPSHOT_S,
    ) -> bool:
        """Tell whether `snapshot` with the same options would return a snapshot that is kept, by one short request.

        False when another replica answers, when the columns, the storage policy or any part has changed, when the table was
        dropped and created again, and when the replica can't tell.

        Parameters
        ----------
        known
            The snapshot that is kept.
        min_index, level, timeout_s
            As `snapshot`; errors, too.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        if not known.tag:
            return False
        options = ReadOptions(level, min_index, timeout_s=timeout_s)
        route = f"{options.path(self.name)}?{options.query(self._written)}&tag={known.tag}"
        _, body, _ = self._ask(options, route)
        if body.unchanged:
            self._written.saw(body.index)
        return body.unchanged

    @override
    def _leased(self, timeout_s: float) -> Snapshot:
        return self.snapshot(level="linearizable", lease_s=LEASE_S, timeout_s=timeout_s)

    def _addresses(self) -> tuple[str, ...]:
        """Return the addresses of all replicas, whichever this handle is bound to."""
        return tuple(replica.address for replica in self.replicas() if replica.address)

    def _ask(self, options: ReadOptions, route: str) -> tuple[ReplicaInfo, SnapshotBody, float]:
        """Ask one replica after the other for a snapshot; also return when it was asked for (monotonic seconds)."""
        expired = set[str]()

        # The time is taken before the request, since the lease in the answer runs from a moment in between.
        def ask(replica: ReplicaInfo, seconds: float, wait_s: float) -> tuple[ReplicaInfo, SnapshotBody, float]:
            asked_at = time.monotonic()
            path = f"{route}&lacking=1&wait_s={wait_s:.3f}"
            try:
                body = self._http.request(replica.address, "GET", path, timeout_s=seconds).decode(SnapshotBody).check()
            except SnapshotExpired as error:
                # Another replica may have more of the past: one that has run for longer, or has all parts of a tag.
                expired.add(replica.name)
                others = not expired.issuperset(each.name for each in self._router.replicas() if each.active)
                if others and not options.may_be_newer:
                    raise ReplicaUnavailable(str(error)) from error
                raise
            options.check(body)
            return replica, body, asked_at

        try:
            return self._router.ask(options.in_time(ask), timeout_s=options.timeout_s + ANSWER_S)
        except TimeIsUp as over:
            raise over.error from over

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        level: ReadLevel | None = None,
        min_index: int | None = None,
        as_of: AsOf | None = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> Scan:
        """Return a scan, which gives rows to Arrow, pandas, Polars, DuckDB and Spark; nothing is read before.

        Each result is a snapshot of its own, taken when it is asked for; `Snapshot.scan` gives several results of one.

        Parameters
        ----------
        columns
            Names, in the order wanted; all by default.
        where
            Spark SQL condition, see ``docs/conditions.md``; parts that can't match are not opened.
        final
            Apply the table's policy first, as a merge of everything would: of rows with equal keys one is left.
        level, min_index, as_of, timeout_s
            As `snapshot`.

        Raises
        ------
        BadInput
            A column is unknown, or the condition can't be used; says what to do.

        Examples
        --------
        ::

            scan = table.scan(["kind", "v"], where="day >= '2026-11-01'")
            scan.count(), scan.head(5), scan.to_pandas(), scan.to_polars(lazy=True)
            duckdb.sql("SELECT kind, avg(v) FROM scan GROUP BY kind")
        """
        index = self._index_of(as_of)
        found = self._scan(columns, ReadOptions(level, min_index, index, timeout_s, where, final))
        try:
            found.check()
        except BadInput:
            # Another client may have added the column since.
            known = self._definition.schema_version
            if self.refresh().schema_version == known:
                raise
            found.check()
        return found

    def _scan(self, columns: Sequence[str] | None, options: ReadOptions) -> Scan:
        return Scan(self._source(), columns, options)

    def _source(self) -> ScanSource:
        source = ScanSource(lambda: self._definition, self._snapshot, None, self._http)
        return replace(source, before_frame=lambda spark: frames().include_written(self, spark))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows of a snapshot that is taken now as a capsule of Arrow's C stream interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of Arrow's C data interface."""
        return self.schema.__arrow_c_schema__()

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: ReadLevel | None = None,
        as_of: AsOf | None = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> pa.Table:
        """Read rows at one snapshot.

        Parts that leave the table meanwhile are kept for a while.  When that was too short, the rows are read once more,
        at a new snapshot with a lease.

        Parameters
        ----------
        columns
            Names, in the order wanted; all by default.
        where
            Spark SQL condition over this table's columns; parts that can't match are not opened.
        final
            Apply the table's policy first, as a merge of everything would: of rows with equal keys one is left.
        min_index, level, as_of, timeout_s
            As `snapshot`.

        Raises
        ------
        BadInput
            A column is unknown, or `where` can't be read.
        ReplicaBehind, Unavailable
            No replica can show what must be included in time.
        SnapshotExpired
            Parts of `as_of` are gone.
        """
        index = self._index_of(as_of)
        return self._scan(columns, ReadOptions(level, min_index, index, timeout_s, where, final)).to_arrow()

    def batches(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: ReadLevel | None = None,
        as_of: AsOf | None = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> Iterator[pa.RecordBatch]:
        """Read rows at one snapshot batch by batch, in bounded memory; parameters as `to_arrow`.

        It holds a lease from the first batch to the last.
        """
        index = self._index_of(as_of)
        yield from self._scan(columns, ReadOptions(level, min_index, index, timeout_s, where, final)).batches()

    def to_df(  # noqa: PLR0913 - each is an option of one read
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: ReadLevel | None = None,
        as_of: AsOf | None = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
        through: Through | None = None,
    ) -> DataFrame:
        """Give one snapshot to Spark, through its own Parquet reader where it reaches the files.

        It has what this connection has written, and what jobs of the session's application have written before.

        The frame is that snapshot for ever: call again to see later inserts.  It can be read for `FRAME_LEASE_S`, unless
        this process makes many frames (`replitree.client.transport.lease.FRAMES_MAX`) meanwhile, whatever becomes of the table.
        To be sure, hold a lease around its jobs::

            with table.snapshot(lease_s=60) as snapshot:
                snapshot.to_df(spark).groupBy("kind").count().show()

        Parameters
        ----------
        spark
            A session; `replitree.spark.spark_session` makes one with the right settings.
        columns, where
            As `to_arrow`; both are pushed down to the files.
        final
            Apply the table's policy first.  Tasks do that, and write the rows once more, into a temporary folder of this
            process.
        min_index, level, as_of, timeout_s
            As `snapshot`.
        through
            How what is in the table's object store is read: ``"store"``, there and with this process's credentials;
            ``"replica"``; by default there if this process reaches it, else through a replica.
        """
        index = self._index_of(as_of)
        options = ReadOptions(level, min_index, index, timeout_s, where, final)
        return self._scan(columns, options).to_df(spark, through=through)

    def partitions(self) -> tuple[PartitionInfo, ...]:
        """Return what the table has in each of its partitions now."""
        from replitree.client.read.partitions import partitions_of

        return partitions_of(self.snapshot().parts)

    def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        """Return what happened to the table, the newest entry first: its log, and before that what active replicas remember.

        Parameters
        ----------
        limit
            Entries to return at most, from 1 to `HISTORY_MAX`.

        Raises
        ------
        TableNotFound
            There is no such table.
        CoordinationUnavailable
            Coordination can't be read.
        NotAuthorized
            A replica refused the token.
        """
        if not 1 <= limit <= HISTORY_MAX:
            raise BadInput(f"limit is 1 to {HISTORY_MAX:,} entries, not {limit:,}")
        end = LogIndex(self._catalog.log_tail(self.name))
        found = self._catalog.run(read_history(self._catalog.place(self.name), self.name, end, limit))
        below = found[-1].index if found else end
        earlier = self._earlier.before(below, limit - len(found))
        return (*found, *(remembered_entry(each, self.name) for each in earlier))

    def status(self) -> TableStatus:
        """Return how the table and each of its replicas is."""
        from replitree.client.admin.status import table_status

        return table_status(self._catalog, self._http, self._definition)
