"""A sharded table, as a program sees it: one table, whose rows lie in several others.

It has the methods of a table.  Those that it can't do yet are refused with one sentence, and do nothing (`REFUSED`).  A method
that is new in `Table` must be in one of the two lists; a test says so.

Guarantees: an insert is in all shards that get its rows, or in none.  A read shows whole inserts of each shard; it may see an
insert in one shard and not yet in another, because the shards' snapshots are taken one by one (level ``eventual``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.insert.quorum import quorum_of
from replitree.client.insert.terms import TIMEOUT_S, InsertResult, Overwrite, Terms, Written
from replitree.client.read.read_options import check_condition
from replitree.client.sharded.sharded_catalog import ShardedInfo, read_map, sharded
from replitree.client.sharded.union import ShardedScan, ShardedSnapshot, not_yet
from replitree.client.table import SNAPSHOT_S, Table
from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.frames import is_frame
from replitree.client.transport.http import HttpClient
from replitree.protocol.sharded.shard_map import Shard, ShardMap
from replitree.storage.schema.columns import UTC
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.shard_definition import shard_definition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from replitree.client.change.change_results import OptimizeResult
    from replitree.client.sharded.joint import JointInserter

T = TypeVar("T")

READ_AT_ONCE = 8
"""Shards read at once."""

OPTIMIZE_S = 3_600.0
"""How long merges that are asked for are waited for, in seconds."""

REFUSED: Final[Mapping[str, str]] = {
    "add_column": "add a column",
    "alter": "change its columns",
    "attach": "attach parts",
    "backfill_view": "have materialised views",
    "changes": "give a change feed",
    "consumers": "have consumers",
    "create_consumer": "have consumers",
    "create_view": "have materialised views",
    "delete": "delete rows by a condition",
    "delete_tag": "have tags",
    "detached": "have detached parts",
    "detached_everywhere": "have detached parts",
    "detach_partition": "detach partitions",
    "drop_blocks": "drop a range of inserts",
    "drop_column": "drop a column",
    "drop_consumer": "have consumers",
    "drop_partition": "drop a partition",
    "drop_stream": "have streams",
    "drop_view": "have materialised views",
    "emptied": "be overwritten",
    "feed_page": "give a change feed",
    "freeze": "be frozen",
    "frozen": "be frozen",
    "frozen_everywhere": "be frozen",
    "history": "tell its history: each shard has a log of its own",
    "index_of": "be read as of an earlier time",
    "is_unchanged": "tell whether a snapshot is still the newest",
    "kill_mutation": "be mutated",
    "merge_schema": "change its columns",
    "move_consumer": "have consumers",
    "mutate": "be mutated",
    "mutations": "be mutated",
    "partitions": "list its partitions",
    "pause_merges": "pause merges",
    "remove_detached": "have detached parts",
    "remove_frozen": "be frozen",
    "rename_column": "rename a column",
    "replica": "be used at one replica",
    "restore_to": "go back to an earlier version",
    "resume_merges": "pause merges",
    "set_feed": "have a change feed",
    "set_keep": "change how long parts stay",
    "set_storage": "move to another storage",
    "status": "tell its status here: ask `Connection.status`",
    "streams": "have streams",
    "tag": "have tags",
    "tags": "have tags",
    "to_df": "be read by Spark",
    "truncate": "be emptied: drop it and create it again",
    "update": "update rows",
    "upsert": "replace rows by key: insert them, and read with final=True",
    "views": "have materialised views",
    "watch_feed": "give a change feed",
    "widen_column": "widen a column",
}
"""What a sharded table can't do yet, by the name of the method."""


@check_arguments
class ShardedTable(Table):
    """A sharded table of a cluster.  Any thread may use it.

    Made by `Connection.table` and `Connection.create_table`.
    """

    def __init__(
        self,
        info: ShardedInfo,
        catalog: Catalog,
        http: HttpClient,
        written_of: Callable[[TableDefinition], Written],
    ) -> None:
        super().__init__(info.definition, catalog, http, Written())
        self._info = info
        self._written_of = written_of
        self._tables: dict[Shard, Table] = {}
        self._joint: JointInserter | None = None

    @override
    def __repr__(self) -> str:
        names = ", ".join(self._definition.arrow_schema.names[:6])
        return f"<ShardedTable {self.name}: {names}; {len(self._info.map.shards)} shards by {', '.join(self.shard_by)}>"

    @property
    @override
    def inserter(self) -> NoReturn:
        """Refused: each shard has one of its own."""
        raise not_yet(self.name, "take part files that were written by other means")

    @property
    @override
    def commander(self) -> NoReturn:
        """Refused: each shard has one of its own."""
        raise not_yet(self.name, "be changed by other means")

    @property
    def info(self) -> ShardedInfo:
        """Its map and the placement of its shards, as they were when this handle was made or refreshed."""
        return self._info

    @property
    def shard_by(self) -> tuple[str, ...]:
        """The columns whose values decide which shard has a row."""
        return self._info.map.key

    @override
    def refresh(self) -> TableDefinition:
        """Look at the table again; return its definition as it is now.

        Raises
        ------
        TableNotFound
            It was dropped.
        """
        found = sharded(self._catalog, self.name)
        if found.incarnation != self._info.incarnation:
            self._definition, self._tables, self._joint = found.definition, {}, None
        self._info = found
        return self._definition

    @override
    def replicas(self) -> tuple[ReplicaInfo, ...]:
        """Return the replicas that have joined any of its shards."""
        found = {each.name: each for name in self._info.names for each in self._catalog.replicas(name)}
        return tuple(found[name] for name in sorted(found))

    # --- writing ------------------------------------------------------------------------------------------------------

    @override
    def insert(
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
        """Insert rows into all shards that they belong to, by one commit: all or none.

        Parameters
        ----------
        data, token, deduplicate, quorum, quorum_timeout_s, timezone, timeout_s
            As of `Table.insert`.  A token is one over all shards, and the quorum is one in each shard.  Without a token, the
            same rows in the same order make a duplicate.  The rows are held in memory.
        replica, txn_app_id, txn_version, overwrite, merge_schema
            Refused: a sharded table can't do that yet.

        Returns
        -------
        JointInsertResult
            With the index in each shard.

        Raises
        ------
        BadInput
            Something that a sharded table can't do was asked for, or the insert is too large for one commit; nothing was
            inserted.  Other errors as `Table.insert`.
        """
        from replitree.client.insert.insert import TableInserter
        from replitree.storage.parts.conform import check_zone

        for is_asked, what in (
            (replica is not None, "insert at one replica"),
            (txn_app_id is not None or txn_version is not None, "take batches of streams: name the insert by a token"),
        ):
            if is_asked:
                raise not_yet(self.name, what)
        chosen = TableInserter.check_token(token, deduplicate=deduplicate)
        terms = Terms(chosen, timeout_s, overwrite, quorum_of(quorum, quorum_timeout_s), check_zone(timezone))
        return self.insert_on_terms(data, terms, merge_schema=merge_schema)

    @override
    def insert_on_terms(self, data: Any, terms: Terms, *, merge_schema: bool = False) -> InsertResult:
        """Insert rows as `insert` does, on terms that were checked before.

        Parameters
        ----------
        data, merge_schema
            As `insert`; errors, too.
        terms
            All else.
        """
        for is_asked, what in (
            (is_frame(data), "insert a Spark DataFrame: give df.toArrow()"),
            (terms.overwrite is not None, "be overwritten"),
            (terms.batch is not None, "take batches of streams: name the insert by a token"),
            (merge_schema, "change its columns"),
        ):
            if is_asked:
                raise not_yet(self.name, what)
        if self._joint is None:
            from replitree.client.sharded.joint import JointInserter

            self._joint = JointInserter(self._definition, self._catalog, self._http, self._written_of_shard)
        return self._joint.insert(data, terms)

    def _written_of_shard(self, shard: Shard) -> Written:
        return self._written_of(shard_definition(self._definition, shard))

    # --- reading ------------------------------------------------------------------------------------------------------

    @override
    def snapshot(  # type: ignore[override]  # a union of snapshots, with what both have in common
        self,
        min_index: int | None = None,
        *,
        level: str | None = None,
        as_of: Any = None,
        lease_s: float | None = None,
        where: str | None = None,
        timeout_s: float = SNAPSHOT_S,
    ) -> ShardedSnapshot:
        """Return a snapshot of each shard that can have rows for a condition, taken one by one.

        Parameters
        ----------
        level
            ``"eventual"``, which is the default; others are refused until one position over all shards can be read.
        lease_s, timeout_s
            As of `Table.snapshot`, for each shard.
        where
            The condition of the reads that follow: shards that can't have a matching row are left out.
        min_index, as_of
            Refused: a sharded table has no index.

        Raises
        ------
        BadInput
            Something that a sharded table can't do was asked for.  Other errors as `Table.snapshot`.
        """
        self._check_read(level, min_index, as_of)
        tables = self._shards_for(where)
        taken = self._each(tables, lambda each: each.snapshot(lease_s=lease_s, where=where, timeout_s=timeout_s))
        return ShardedSnapshot(self._definition, tuple(taken))

    @override
    def scan(  # type: ignore[override]
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        level: str | None = None,
        min_index: int | None = None,
        as_of: Any = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> ShardedScan:
        """Return a scan of all shards that can have matching rows; nothing is read before a result is asked for.

        Parameters
        ----------
        columns, where, final, timeout_s
            As of `Table.scan`.
        level, min_index, as_of
            As of `snapshot`; errors, too.
        """
        self._check_read(level, min_index, as_of)
        self._definition.selected(columns)
        if where is not None:
            self._pruned(self._info.map, where)

        def scans() -> list[Any]:
            found = self._shards_for(where)
            return [each.scan(columns, where, final=final, timeout_s=timeout_s) for each in found]

        return ShardedScan(self._definition, columns, scans)

    @override
    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: str | None = None,
        as_of: Any = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> pa.Table:
        """Read rows of all shards that can have matching ones; parameters and errors as `scan`."""
        scan = self.scan(
            columns, where, level=level, min_index=min_index, as_of=as_of, final=final, timeout_s=timeout_s
        )
        return scan.to_arrow()

    @override
    def batches(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: str | None = None,
        as_of: Any = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> Iterator[pa.RecordBatch]:
        """Read rows batch by batch, shard after shard, in bounded memory; parameters and errors as `scan`."""
        scan = self.scan(
            columns, where, level=level, min_index=min_index, as_of=as_of, final=final, timeout_s=timeout_s
        )
        yield from scan.batches()

    @override
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    # --- merging ------------------------------------------------------------------------------------------------------

    @override
    def optimize(
        self,
        partition: str | None = None,
        *,
        final: bool = False,
        cleanup: bool = False,
        timeout_s: float = OPTIMIZE_S,
        spark: SparkSession | None = None,
    ) -> OptimizeResult:
        """Merge parts now, in each shard by itself.

        Parameters
        ----------
        partition, final, timeout_s
            As of `Table.optimize`.
        cleanup, spark
            Refused: a sharded table can't do that yet.

        Returns
        -------
        OptimizeResult
            The merges of all shards; finished when those of every shard are.

        Raises
        ------
        BadInput
            `cleanup` or `spark` was asked for.  Other errors as `Table.optimize`.
        """
        from replitree.client.change.change_results import OptimizeResult

        if cleanup or spark is not None:
            raise not_yet(self.name, "merge with cleanup=True or in Spark")
        tables = self._shards_for(None)
        made = self._each(tables, lambda each: each.optimize(partition, final=final, timeout_s=timeout_s))
        return OptimizeResult(
            tuple(merge for each in made for merge in each.merges),
            all(each.finished for each in made),
            "; ".join(each.reason for each in made if each.reason),
        )

    # --- the shards ---------------------------------------------------------------------------------------------------

    def _check_read(self, level: str | None, min_index: int | None, as_of: object) -> None:
        if level not in (None, "eventual"):
            raise not_yet(
                self.name,
                f"be read at the level {level!r} yet: its shards have no position in common so far. Read with level='eventual',"
                " which may show an insert in one shard a moment earlier than in another",
            )
        if min_index is not None or as_of is not None:
            raise not_yet(self.name, "be read as of an index or a time: each shard has a log of its own")

    def _pruned(self, shard_map: ShardMap, where: str) -> tuple[Shard, ...]:
        """Return the shards that can have rows for a condition."""
        from replitree.storage.sql.predicate_parser import parse_predicate
        from replitree.storage.sql.shard_pruning import buckets_of

        check_condition(where)
        return shard_map.owners_of(buckets_of(shard_map, parse_predicate(where, self._definition)))

    def _shards_for(self, where: str | None) -> list[Table]:
        """Return the shards that can have rows for a condition, by the map as it is now."""
        found = read_map(self._catalog, self.name)
        if found.incarnation != self._info.incarnation:
            # Another table of this name has come: its columns may be others, and so what the condition means.
            self.refresh()
            return self._shards_for(where)
        shards = found.map.shards if where is None else self._pruned(found.map, where)
        return [self._shard(shard) for shard in shards]

    def _shard(self, shard: Shard) -> Table:
        found = self._tables.get(shard)
        if found is None:
            definition = shard_definition(self._definition, shard)
            found = self._tables[shard] = Table(definition, self._catalog, self._http, self._written_of(definition))
        return found

    @staticmethod
    def _each(tables: list[Table], call: Callable[[Table], T]) -> list[T]:
        """Do something with some shards side by side."""
        if len(tables) == 1:
            return [call(tables[0])]
        with ThreadPoolExecutor(READ_AT_ONCE, thread_name_prefix="replitree-shard") as pool:
            return list(pool.map(call, tables))


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: ShardedTable, *_: Any, **__: Any) -> Any:
        raise not_yet(self.name, REFUSED[name])

    refuse.__name__, refuse.__doc__ = name, f"Refused: a sharded table can't {REFUSED[name]}."
    return refuse


for _name in REFUSED:
    setattr(ShardedTable, _name, _refusal(_name))
