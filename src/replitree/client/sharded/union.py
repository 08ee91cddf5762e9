"""What is read of a sharded table: the rows of its shards, one after the other.

Guarantees: the rows are those of one snapshot of each shard, and no shard that can have a matching row is left out, unless the
caller has asked for that (`ShardedSnapshot.missing`).  At which positions the shards are read is decided by
`replitree.client.sharded.cut_reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, overload

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.read.scan import LEASE_S
from replitree.client.read.snapshot import Snapshot
from replitree.client.sharded.side_by_side import SideBySide
from replitree.client.transport.frames import frames
from replitree.client.transport.stored import Through
from replitree.errors import BadInput, SnapshotExpired
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pandas import DataFrame as PandasFrame
    from polars import DataFrame as PolarsFrame
    from polars import LazyFrame
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.read.scan import Scan
    from replitree.storage.sql.predicate import Predicate

T = TypeVar("T")


def refuse_rest(name: str, of: type[object], table: str) -> NoReturn:
    """Refuse what a snapshot or a scan of one table has, and one of several shards has not.

    Raises
    ------
    BadInput
        The table is sharded.
    AttributeError
        No snapshot and no scan has it.
    """
    if name.startswith("_") or not (hasattr(of, name) or name in getattr(of, "__annotations__", {})):
        raise AttributeError(name)
    raise not_yet(table, f"be read like this: there is no {name!r} of several shards yet")


def not_yet(name: str, what: str) -> BadInput:
    """Return the error of a request that a sharded table can't do yet."""
    return BadInput(
        f"table {name!r} is sharded, and a sharded table can't {what}; nothing was done (docs/sharded-tables.md)"
    )


@dataclass(frozen=True, slots=True)
class ShardedSnapshot:
    """A snapshot of each shard that was asked for.  A context manager: it lets go of the leases, if they have any.

    Attributes
    ----------
    definition
        The sharded table.
    shards
        By the number of the shard; without shards that the condition has left out.
    cut
        The cut at which all shards are shown, for `as_of` of a later read; None: each is at a position of its own, or there is
        no shard to read.
    missing
        Names of the shards that could not be read, and were left out because the caller wanted that.
    where
        The condition that has left out shards; None: it has left out none.
    """

    definition: TableDefinition
    shards: tuple[Snapshot, ...]
    cut: str | None = None
    missing: tuple[str, ...] = ()
    where: str | None = None

    @override
    def __repr__(self) -> str:
        at = f" at {self.cut}" if self.cut is not None else ""
        missing = f", without {', '.join(self.missing)}" if self.missing else ""
        return (
            f"<ShardedSnapshot of {self.definition.name}{at}: {len(self.shards)} shards, {self.rows:,} rows{missing}>"
        )

    def __getattr__(self, name: str) -> NoReturn:
        refuse_rest(name, Snapshot, self.definition.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lost = any(each.lease is not None and each.lease.is_lost for each in self.shards)
        try:
            if lost and isinstance(error, Exception):
                # If a lease was lost, parts have gone: that is the error to report, whatever the read ran into.
                self.check()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the leases, if there are any.  May be called again."""
        for each in self.shards:
            each.close()

    def check(self) -> None:
        """Do nothing, unless a shard's snapshot had a lease and lost it.

        Raises
        ------
        LeaseLost
            The parts may go at any time.
        """
        for each in self.shards:
            each.check()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(each.rows for each in self.shards)

    @property
    def bytes(self) -> int:
        """Size of all data files."""
        return sum(each.bytes for each in self.shards)

    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, final: bool = False
    ) -> ShardedScan:
        """Return a scan of these snapshots: see `ShardedTable.scan`.

        `where` must want no rows of shards that the snapshot was taken without.
        """
        found = ShardedScan(lambda: self.definition, columns, where, final=final, take=lambda _: self, snapshot=self)
        found.check()
        return found

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, final: bool = False
    ) -> pa.Table:
        """Read rows; parameters and errors as `Snapshot.to_arrow`."""
        return self.scan(columns, where, final=final).to_arrow()

    def batches(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, final: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read rows batch by batch, shard after shard, in bounded memory; parameters and errors as `to_arrow`."""
        yield from self.scan(columns, where, final=final).batches()

    def dataset(self, columns: Sequence[str] | None = None, where: str | None = None) -> Dataset:
        """Return the rows as a dataset of Arrow's, with the files of all shards: see `Snapshot.dataset`."""
        from replitree.client.read.dataset import dataset_of

        return dataset_of(self.shards, self.definition, columns, where)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of Arrow's C data interface."""
        return self.definition.arrow_schema.__arrow_c_schema__()

    def to_df(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        final: bool = False,
        through: Through | None = None,
    ) -> DataFrame:
        """Give the rows of all shards to Spark, as one frame: see `Table.to_df`."""
        shards = tuple(each.through(through) for each in self.shards)
        frame: DataFrame = frames().read(replace(self, shards=shards), spark, columns, where, final=final)
        return frame


def shards_of(snapshot: Snapshot | ShardedSnapshot) -> tuple[Snapshot, ...]:
    """Return the snapshots of all shards, or that of a table that is not sharded."""
    return snapshot.shards if isinstance(snapshot, ShardedSnapshot) else (snapshot,)


def newest_definition(snapshot: Snapshot | ShardedSnapshot) -> TableDefinition:
    """Return the definition of a snapshot; of a sharded table the newest one, which knows the columns of all shards' parts."""
    known = (snapshot.definition, *(each.definition for each in shards_of(snapshot)))
    return max(known, key=lambda each: each.schema_version)


@check_arguments
class ShardedScan:
    """Columns and rows of a sharded table.  Engines that know Arrow's C stream read it as it is.

    Each result of `ShardedTable.scan` takes snapshots of its own, all at one cut; `ShardedSnapshot.scan` reads those that it
    has.

    Made by `ShardedTable.scan` and `ShardedSnapshot.scan`.
    """

    def __init__(
        self,
        definition: Callable[[], TableDefinition],
        columns: Sequence[str] | None,
        where: str | None,
        *,
        final: bool,
        take: Callable[[float | None], ShardedSnapshot],
        snapshot: ShardedSnapshot | None = None,
        is_fixed: bool = False,
    ) -> None:
        self._definition = definition
        self._columns = None if columns is None else tuple(columns)
        self._where = where
        self._final = final
        self._take = take
        self._snapshot = snapshot
        self._is_fixed = is_fixed
        self._beside = SideBySide()

    @override
    def __repr__(self) -> str:
        return f"<ShardedScan of {self._definition().name}: {', '.join(self.names)}>"

    def __getattr__(self, name: str) -> NoReturn:
        from replitree.client.read.scan import Scan

        refuse_rest(name, Scan, self._definition().name)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return self._schema(self._definition())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the result's columns."""
        return tuple(column.name for column in self._definition().selected(self._columns))

    @property
    def snapshot(self) -> ShardedSnapshot | None:
        """The snapshots that are scanned; None when each result takes its own."""
        return self._snapshot

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Do nothing when the columns are there and the condition can be used.

        Raises
        ------
        BadInput
            Says what is wrong.
        """
        self._definition().selected(self._columns)
        self._predicate()

    def _predicate(self) -> Predicate | None:
        if self._where is None:
            return None
        from replitree.storage.sql.predicate_parser import parse_predicate

        return parse_predicate(self._where, self._definition())

    def to_arrow(self) -> pa.Table:
        """Read all rows, of several shards at once.

        Parts that leave the table meanwhile are kept for a while.  When that was too short, the rows are read once more, at a
        new cut and with leases.  Errors as `Scan.to_arrow`.
        """
        import pyarrow as pa

        found = self._read(lambda scan: scan.to_arrow())
        return pa.concat_tables(found) if found else self.schema.empty_table()

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows batch by batch, shard after shard; the leases go from the first batch to the last.

        Errors as `to_arrow`.
        """
        with self._held() as snapshot:
            for scan in self._scans(snapshot):
                yield from scan.batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, in bounded memory; the snapshots of all shards are taken now.

        Their files stay until the reader is dropped.  Errors as `to_arrow`; those of reading come from the reader.
        """
        import pyarrow as pa

        def batches(held: ExitStack, scans: list[Scan]) -> Iterator[pa.RecordBatch]:
            with held:
                for scan in scans:
                    yield from scan.batches()

        # Not in the generator: the snapshots are those of this moment.
        with ExitStack() as stack:
            snapshot = stack.enter_context(self._held())
            scans, schema = self._scans(snapshot), self._schema(snapshot.definition)
            return pa.RecordBatchReader.from_batches(schema, batches(stack.pop_all(), scans))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface; see `to_reader`."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of Arrow's C data interface."""
        return self.schema.__arrow_c_schema__()

    def dataset(self) -> Dataset:
        """Return the rows as a dataset of Arrow's, with the files of all shards.  Its files stay until it is dropped.

        Raises
        ------
        BadInput
            The scan is ``final``, or its condition is calculated for each row; use `to_reader`.
        """
        if self._final:
            raise BadInput(
                "a final scan reads all parts of a partition together, which no dataset does: use to_reader()"
            )
        return (self._snapshot or self._take(LEASE_S)).dataset(self._columns, self._where)

    # --- engines ------------------------------------------------------------------------------------------------------

    def to_pandas(self, **options: Any) -> PandasFrame:
        """Read all rows as a pandas DataFrame; `options` as of pyarrow's ``Table.to_pandas``.

        Raises
        ------
        EngineMissing
            pandas is not installed.  Other errors as `to_arrow`.
        """
        from replitree.client.read.engines import engine

        engine("pandas")
        return self.to_arrow().to_pandas(**options)

    @overload
    def to_polars(self, *, lazy: Literal[False] = False) -> PolarsFrame: ...

    @overload
    def to_polars(self, *, lazy: Literal[True]) -> LazyFrame: ...

    def to_polars(self, *, lazy: bool = False) -> PolarsFrame | LazyFrame:
        """Read all rows as a Polars DataFrame, or give Polars a frame that reads when it is collected: see `Scan.to_polars`.

        Parameters
        ----------
        lazy
            Return a LazyFrame of one cut, taken now.

        Raises
        ------
        EngineMissing
            Polars is not installed.  Other errors as `to_arrow`.
        """
        from replitree.client.read.engines import polars_frame, polars_lazy

        return polars_lazy(self._bound()) if lazy else polars_frame(self.to_arrow)

    def to_duckdb(self, con: DuckDBPyConnection, name: str | None = None) -> DuckDBPyRelation:
        """Give DuckDB the rows at one cut, taken now; parameters and errors as `Scan.to_duckdb`."""
        from replitree.client.read.engines import duckdb_relation

        return duckdb_relation(con, self._bound(), name)

    def native_paths(self) -> list[Path] | None:
        """Return the files of all shards, when an engine may read them by itself: see `Scan.native_paths`."""
        if self._snapshot is None or self._where is not None or self._final:
            return None
        paths: list[Path] = []
        for each in self._snapshot.shards:
            # An engine takes the columns of the first file for those of all.
            found = each.scan(self._columns).native_paths() if each.parts else []
            if found is None:
                return None
            paths += found
        return paths or None

    @property
    def is_native(self) -> bool:
        """Whether a dataset of Arrow's has just the rows of this scan of one snapshot."""
        predicate = self._predicate()
        return not self._final and (predicate is None or not predicate.is_computed)

    # --- looking ------------------------------------------------------------------------------------------------------

    def count(self) -> int:
        """Count the rows.  Errors as `to_arrow`."""
        return sum(self._read(lambda scan: scan.count()))

    def head(self, rows: int = 10) -> pa.Table:
        """Read the first rows, in no particular order; `rows`: how many at most.

        Raises
        ------
        BadInput
            The number is below 0.  Other errors as `to_arrow`.
        """
        import pyarrow as pa

        if rows < 0:
            raise BadInput(f"head takes a number of rows, 0 or above, not {rows}")
        found: list[pa.RecordBatch] = []
        left = rows
        with closing(self.batches()) as batches:
            while left and (batch := next(batches, None)) is not None:
                found.append(batch.slice(0, left))
                left -= found[-1].num_rows
        return pa.Table.from_batches(found) if found else self.schema.empty_table()

    def explain(self) -> str:
        """Say how the rows of each shard are read: see `Scan.explain`.  Errors as `to_arrow`."""
        snapshot = self._snapshot or self._take(None)
        return "\n\n".join(scan.explain() for scan in self._scans(snapshot))

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _schema(self, definition: TableDefinition) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([definition.arrow_schema.field(each.name) for each in definition.selected(self._columns)])

    def _scans(self, snapshot: ShardedSnapshot) -> list[Scan]:
        return [each.scan(self._columns, self._where, final=self._final) for each in snapshot.shards]

    def _read(self, read: Callable[[Scan], T]) -> list[T]:
        """Read every shard; once more with leases when parts were gone before they were read."""
        if self._snapshot is not None:
            return self._beside.each(read, self._scans(self._snapshot))
        try:
            return self._beside.each(read, self._scans(self._take(None)))
        except SnapshotExpired:
            # A cut that the caller has given can't be taken again, because its parts are gone.
            if self._is_fixed:
                raise
        with self._take(LEASE_S) as held:
            return self._beside.each(read, self._scans(held))

    def _held(self) -> AbstractContextManager[ShardedSnapshot]:
        """Return a context of the snapshots that releases the leases which were taken for it."""
        return nullcontext(self._snapshot) if self._snapshot is not None else self._take(LEASE_S)

    def _bound(self) -> ShardedScan:
        """Return this scan of one cut, whose files stay for as long as Python has the scan."""
        snapshot = self._snapshot or self._take(LEASE_S)
        return snapshot.scan(self._columns, self._where, final=self._final)


__all__ = ["ShardedScan", "ShardedSnapshot", "not_yet", "refuse_rest"]
