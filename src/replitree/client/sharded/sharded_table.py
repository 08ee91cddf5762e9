"""A sharded table, as a program sees it: one table, whose rows lie in several others.

It has the methods of a table.  Those that it can't do yet are refused with one sentence, and do nothing (`REFUSED`).  A method
that is new in `Table` must be in one of the two lists; a test says so.

Guarantees: an insert is in all shards that get its rows, or in none.  A read shows all shards at one cut, so it sees an insert
in all of them or in none (`replitree.client.sharded.cut_reads`), unless the level ``eventual`` was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.change.command import COMMAND_S, CommandResult
from replitree.client.insert.quorum import quorum_of
from replitree.client.insert.terms import TIMEOUT_S, InsertResult, Overwrite, Terms, Written
from replitree.client.read.as_of import AsOf
from replitree.client.read.read_options import check_condition
from replitree.client.read.scan import FRAME_LEASE_S
from replitree.client.sharded.cut_reads import CutOptions, CutReads, Shards
from replitree.client.sharded.feed.consumer_table import ShardedConsumerTable
from replitree.client.sharded.shard_table import ShardTable
from replitree.client.sharded.sharded_aside import ShardedAsideTable
from replitree.client.sharded.sharded_catalog import ShardedInfo, read_map, sharded
from replitree.client.sharded.sharded_views import ShardedViewsTable
from replitree.client.sharded.shards_commander import ShardsCommander
from replitree.client.sharded.side_by_side import SideBySide
from replitree.client.sharded.union import ShardedScan, ShardedSnapshot, not_yet
from replitree.client.table import SNAPSHOT_S, Table
from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.frames import frames, is_frame, note_for_frames
from replitree.client.transport.http import HttpClient
from replitree.client.transport.lease import keep_for_frame
from replitree.client.transport.stored import Through
from replitree.errors import BadInput, SchemaMismatch
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded.cut import CutLevel
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.sharded.shard_map import Shard, ShardMap
from replitree.storage.schema.columns import UTC
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.retention import ttl_text
from replitree.storage.schema.shard_definition import shard_definition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.change.change_results import Killed, Mutation, OptimizeResult, TtlPlan
    from replitree.client.read.partitions import PartitionInfo
    from replitree.client.sharded.insert.joint import JointInserter, JointInsertResult

OPTIMIZE_S = 3_600.0
"""How long merges that are asked for are waited for, in seconds."""

REFUSED: Final[Mapping[str, str]] = {
    "drop_blocks": "drop a range of inserts: go back to a cut by restore_to, delete by a condition, or drop a partition",
    "feed_page": "give its change feed in pages: read `changes`",
    "replica": "be used at one replica",
    "watch_feed": "tell an end of its change feed: ask `cut_now`",
}
"""What a sharded table can't do yet, by the name of the method."""


@check_arguments
class ShardedTable(ShardedConsumerTable, ShardedViewsTable, ShardedAsideTable):
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
        super().__init__(info.definition, catalog, http, written_of(info.definition))
        self._info = info
        self._written_of = written_of
        self._tables: dict[Shard, ShardTable] = {}
        self._joint: JointInserter | None = None
        self._beside = SideBySide()
        self._reads = CutReads(self, self._beside)
        self._commands = ShardsCommander(self._there, self._beside)

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
            self._written = self._written_of(found.definition)
        if found.definition != self._definition:
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
            same rows in the same order make a duplicate.  Many rows go through temporary files (`tempfile.gettempdir`).
        txn_app_id, txn_version
            As there.
        merge_schema
            As of `Table.insert`.
        overwrite
            As there; of all shards, also of those that get no rows.  An insert that overwrites has no quorum.
        replica
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

        if replica is not None:
            raise not_yet(self.name, "insert at one replica")
        chosen, batch = TableInserter.names(
            token, txn_app_id, txn_version, deduplicate=deduplicate, overwrite=overwrite
        )
        required = quorum_of(quorum, quorum_timeout_s)
        terms = Terms(chosen, timeout_s, overwrite, required, check_zone(timezone), batch)
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
        if merge_schema:
            self.merge_schema(data)
        result: JointInsertResult
        if is_frame(data):
            result = frames().insert(self, data, terms)
        else:
            try:
                result = self.joint.insert(data, terms)
            except SchemaMismatch:
                from replitree.storage.rewrite.slices import is_stream

                known = self._definition.schema_version
                if is_stream(data) or self.refresh().schema_version <= known:
                    # A stream can't be read again, and columns that are no newer would refuse the same rows.
                    raise
                result = self.joint.insert(data, terms)
            result = self.emptied(result, terms.timeout_s) if terms.overwrite == "all" else result
        for name, index in result.shards:
            note_for_frames(self._shard(shard_number(name)), index)
        return result

    @property
    def joint(self) -> JointInserter:
        """What inserts into all shards by one commit, with the columns that this handle knows."""
        found = self._joint
        if found is None:
            from replitree.client.sharded.insert.joint import JointInserter

            found = JointInserter(
                self._definition, self._catalog, self._http, self._written_of_shard, self.inserter_into
            )
            self._joint = found
        return found

    @override
    def inserter_into(self, name: str) -> JointInserter:
        return ShardedTable(sharded(self._catalog, name), self._catalog, self._http, self._written_of).joint

    def _written_of_shard(self, shard: Shard) -> Written:
        return self._written_of(shard_definition(self._definition, shard))

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def written(self) -> Written:
        """The highest cut that this connection has read of the table."""
        return self._written

    @override
    def snapshot(  # type: ignore[override]  # a union of snapshots, with what both have in common
        self,
        min_index: int | None = None,
        *,
        level: CutLevel | None = None,
        as_of: AsOf | None = None,
        lease_s: float | None = None,
        where: str | None = None,
        timeout_s: float = SNAPSHOT_S,
        skip_unavailable: bool = False,
    ) -> ShardedSnapshot:
        """Return a snapshot of each shard that can have rows for a condition.

        Parameters
        ----------
        level
            ``"consistent"`` (the default): all shards at one cut, which has what this connection has written, and for this
            connection never goes back.  ``"linearizable"``: that, and every insert that any client was told of before this
            call.  ``"eventual"``: each shard as a replica has it at the moment; an insert may be in one and not yet in another.
        as_of
            Exactly what a cut has, as `ShardedSnapshot.cut` tells it; the name of a tag; or a time, as of `Table.snapshot`: the
            cut of the last entry of any shard that was written by then, while that is in coordination, or in the change feed.
        lease_s
            As of `Table.snapshot`, for each shard.
        where
            The condition of the reads that follow: shards that can't have a matching row are left out.
        timeout_s
            When to give up, in seconds.
        skip_unavailable
            At the level ``eventual``: leave out shards that can't be read in time; `ShardedSnapshot.missing` names them.
        min_index
            Refused: a sharded table has no index.

        Raises
        ------
        BadInput
            Something that a sharded table can't do was asked for.
        ReplicaBehind
            No replica of a shard has the cut in time.
        Unavailable
            No replica of a shard answers, or coordination does not.
        SnapshotExpired
            What the shards were at the cut is not known any more.
        """
        self._check_read(min_index)
        at = self._cut_at(as_of)
        return self._taken(CutOptions(level, at, where, timeout_s, lease_s, skip_unavailable))

    @override
    def is_unchanged(  # type: ignore[override]
        self,
        known: ShardedSnapshot,
        min_index: int | None = None,
        *,
        level: CutLevel | None = None,
        timeout_s: float = SNAPSHOT_S,
    ) -> bool:
        """Tell whether `snapshot` with the same level would return a snapshot that is kept, by short requests.

        False when a shard has changed, and when that can't be told: as of `Table.is_unchanged`, of a snapshot with a condition,
        and at the level ``eventual``.

        Parameters
        ----------
        known
            The snapshot that is kept.
        min_index, level, timeout_s
            As `snapshot`; errors, too.
        """
        self._check_read(min_index)
        options = CutOptions(level, timeout_s=timeout_s)
        if known.cut is None or known.where is not None or level == "eventual":
            return False
        return self._reads.is_unchanged(known.shards, options)

    @override
    def scan(  # type: ignore[override]
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        level: CutLevel | None = None,
        min_index: int | None = None,
        as_of: AsOf | None = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> ShardedScan:
        """Return a scan of all shards that can have matching rows; nothing is read before a result is asked for.

        Parameters
        ----------
        columns, where, final
            As of `Table.scan`.
        level, min_index, as_of, timeout_s
            As of `snapshot`; errors, too.
        """
        self._check_read(min_index)
        options = CutOptions(level, self._cut_at(as_of), where, timeout_s)
        found = ShardedScan(
            lambda: self._definition,
            columns,
            where,
            final=final,
            take=lambda lease_s: self._taken(replace(options, lease_s=lease_s)),
            is_fixed=as_of is not None,
        )
        found.check()
        return found

    @override
    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: Any = None,
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
        level: Any = None,
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

    @override
    def to_df(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: Any = None,
        as_of: Any = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
        through: Through | None = None,
    ) -> DataFrame:
        """Give one snapshot of all shards that can have matching rows to Spark, as one frame.

        Joins, subqueries and aggregates over it are over all shards.

        Parameters
        ----------
        spark, columns, final, timeout_s, through
            As of `Table.to_df`.
        where
            As there.  A condition that only Spark understands leaves out no shard.
        min_index, level, as_of
            As of `snapshot`; errors, too.
        """
        self._definition.selected(columns)
        told = frames().understood(self, spark, where)
        if as_of is None:
            frames().include_written(self, spark)
        found = self.snapshot(
            min_index, level=level, as_of=as_of, lease_s=FRAME_LEASE_S, where=told, timeout_s=timeout_s
        )
        keep_for_frame((each.lease for each in found.shards), self._http)
        return found.to_df(spark, columns, where, final=final, through=through)

    # --- changing -----------------------------------------------------------------------------------------------------

    @override
    def _command(self, verb: str, body: dict[str, Any], command_id: str | None, timeout_s: float) -> CommandResult:
        return self._commands.command(verb, body, command_id, timeout_s)

    @override
    def plan_ttl(self, ttl: str | None = None) -> TtlPlan:
        """Return what a `ttl` would remove now of all shards; as of `Table.plan_ttl`."""
        return self._commands.plan_ttl(ttl or ttl_text(self._definition.ttl))

    @override
    def delete(
        self,
        where: str,
        partition: str | None = None,
        *,
        final: bool = False,
        command_id: str | None = None,
        timeout_s: float = COMMAND_S,
    ) -> CommandResult:
        """Delete rows in all shards by one command; as of `Table.delete`.  With `final` the shards are read at one cut."""
        check_condition(where)
        if final:
            from replitree.client.change.delete_final import final_delete

            with self.snapshot(level="linearizable", lease_s=FRAME_LEASE_S, timeout_s=timeout_s) as taken:
                first, *others = taken.shards
                where, partition = final_delete(first, where, partition, others)
        return super().delete(where, partition, command_id=command_id, timeout_s=timeout_s)

    @override
    def mutations(self) -> tuple[Mutation, ...]:
        """Return the mutations that are not finished in all shards, and the last ones that are.

        Each is listed once, with the parts of all shards; its index is that in the first shard that lists it.
        """
        return self._commands.mutations()

    @override
    def kill_mutation(self, index: int | str, *, timeout_s: float = COMMAND_S) -> Killed:
        """Let the parts that a mutation has not reached stay as they are, in all shards.

        Parameters
        ----------
        index
            The mutation's id: `CommandResult.id`, or `Mutation.id`.  An index is refused: each shard has one of its own.
        timeout_s
            How long to wait for it, in seconds.

        Raises
        ------
        BadInput
            There is no such mutation.
        Unavailable
            A shard can't be asked; in others the mutation may be killed: kill it again.
        """
        if not isinstance(index, str):
            raise BadInput(f"a mutation of {self.name} is killed by its id, because each shard has an index of its own")
        return self._commands.kill(index, timeout_s)

    @override
    def partitions(self) -> tuple[PartitionInfo, ...]:
        """Return what all shards have in each partition now.

        The blocks are not comparable: each shard numbers its inserts.
        """
        from replitree.client.read.partitions import partitions_of

        with self.snapshot() as snapshot:
            return partitions_of(part for shard in snapshot.shards for part in shard.parts)

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
        found = self.find(None)
        if not self.has_map(found.map_id):
            found = self.find(None)
        made = self._beside.each(lambda each: each.optimize(partition, final=final, timeout_s=timeout_s), found.all)
        return OptimizeResult(
            tuple(merge for each in made for merge in each.merges),
            all(each.finished for each in made),
            "; ".join(each.reason for each in made if each.reason),
        )

    # --- the shards ---------------------------------------------------------------------------------------------------

    def _check_read(self, min_index: int | None) -> None:
        if min_index is not None:
            raise not_yet(self.name, "be read from an index on: each shard has a log of its own")

    @override
    def _cut_at(self, as_of: AsOf | None) -> str | None:
        if as_of is None or (isinstance(as_of, str) and "@" in as_of):
            return as_of
        if isinstance(as_of, int):
            raise not_yet(
                self.name,
                "be read as of an index: each shard has a log of its own. Give a time, a tag, or a cut, as a snapshot tells it"
                " in its attribute cut",
            )
        if isinstance(as_of, str) and as_of[:1].isalpha():
            return self.cut_of_tag(as_of)
        from replitree.client.sharded.cut_times import cut_at

        return str(cut_at(self._catalog, self._there(), self._beside, as_of))

    @override
    def _taken(self, options: CutOptions) -> ShardedSnapshot:
        pruned_by = self._definition
        taken = self._reads.take(options)
        # An alter may come between two snapshots that are taken one by one; and of a cut a part may have been written with the
        # newest columns, and another one not.  All shards are read with one definition, which knows every part.
        definition = self._known(max((each.definition.schema_version for each in taken.shards), default=0))
        if options.where is not None and definition.schema_version != pruned_by.schema_version:
            # With the newer columns the condition may mean something else.
            for each in taken.shards:
                each.close()
            return self._taken(options)
        shards = tuple(
            replace(each, definition=replace(definition, name=each.definition.name, table_id=each.definition.table_id))
            for each in taken.shards
        )
        return ShardedSnapshot(definition, shards, taken.cut, taken.missing, options.where)

    def _pruned(self, shard_map: ShardMap, where: str) -> tuple[Shard, ...]:
        """Return the shards that can have rows for a condition."""
        from replitree.storage.sql.predicate_parser import parse_predicate
        from replitree.storage.sql.shard_pruning import buckets_of

        check_condition(where)
        return shard_map.shards_of(buckets_of(shard_map, parse_predicate(where, self._definition)))

    @override
    def find(self, where: str | None) -> Shards:
        info = self._info
        shards = [self._shard(shard) for shard in info.map.shards]
        wanted = shards if where is None else [self._shard(shard) for shard in self._pruned(info.map, where)]
        map_id, since = (info.incarnation, info.map_version), Zxid(info.map.since)
        return Shards(wanted, shards, map_id, bool(info.map.moves), since)

    def _there(self) -> Sequence[ShardTable]:
        """Return the shards by the map as it is now: one may have been removed since this handle has read it."""
        self.map_now(self.find(None).map_id)
        return self.find(None).all

    def has_map(self, map_id: object) -> bool:
        """Read the map; tell whether it is a certain one.  Otherwise, and in what it raises, as `map_now`."""
        return self.map_now(map_id)[0] == map_id

    def map_now(self, used: object) -> tuple[object, Zxid]:
        """Read the map; return which one it is (`Shards.map_id`), and the transaction that wrote it.

        If it is another one than `used`, this handle knows the new one afterwards.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        found = read_map(self._catalog, self.name)
        now = found.incarnation, found.version
        if now != used:
            # Another table of this name may have come: its columns may be others, and so what a condition means.
            self.refresh()
        return now, found.changed

    @override
    def _shard(self, shard: Shard) -> ShardTable:
        found = self._tables.get(shard)
        if found is None:
            definition = shard_definition(self._definition, shard)
            found = self._tables[shard] = ShardTable(
                definition, self._catalog, self._http, self._written_of(definition)
            )
        return found


def tables_of(table: Table) -> Sequence[Table]:
    """Return the shards of a sharded table, each as a table of its own; of any other table itself."""
    return table.find(None).all if isinstance(table, ShardedTable) else (table,)


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: ShardedTable, *_: Any, **__: Any) -> Any:
        raise not_yet(self.name, REFUSED[name])

    refuse.__name__, refuse.__doc__ = name, f"Refused: a sharded table can't {REFUSED[name]}."
    return refuse


for _name in REFUSED:
    setattr(ShardedTable, _name, _refusal(_name))
