"""A scan: which columns and rows of a table an engine is to get, read when a result is asked for.

Guarantees:

* Every result is one snapshot.  Each result of `Table.scan` takes its own when it is asked for, at the level that the scan
  names; a scan made by `Snapshot.scan` reads that snapshot.
* All results have the same rows: what Spark's ``WHERE`` keeps of the columns as they are at that snapshot.
* The files of a result that is read later (a reader, a dataset, a view of DuckDB, a lazy frame of Polars) stay for as long as
  Python has the result: it holds a lease, which a thread renews.  When the lease is lost, because the replica was away for too
  long, the next file that is opened raises `LeaseLost`; no row is missing without an error.

=========================================  =================================================================================
a scan                                     what an engine gets
=========================================  =================================================================================
of columns, without a condition            DuckDB and Polars: the files, which they read themselves, once this process has
                                           verified them; where they must not (`replitree.client.read.native`), as below
with a condition that files can be         a dataset of Arrow's: the engine's own filters and columns reach the files
filtered by
with ``final``, or a condition that is     a stream of Arrow's, read anew for each query: the engine's own filters are applied
calculated for each row                    to its rows
=========================================  =================================================================================

Absent on purpose: plans.  Joins and aggregations are the engines'.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.read.read_options import ReadOptions
from replitree.client.read.snapshot import Snapshot
from replitree.client.transport.lease import keep_for_frame
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

    from replitree.client.transport.http import HttpClient
    from replitree.storage.sql.predicate import Predicate

LEASE_S = 60.0
"""For how long a replica keeps the parts of a read that takes long, after each renewal, in seconds."""

FRAME_LEASE_S = 1800.0
"""For how long a replica keeps the parts of a Spark frame, in seconds.  The last use of a frame is not known, so this
lease is neither renewed nor released."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ScanSource:
    """What is scanned.

    Attributes
    ----------
    definition
        Returns the table as it is known here.
    take
        Takes a snapshot.
    snapshot
        The one snapshot that is scanned; None: each result takes its own.
    http
        How to talk to the replica that has given a lease.
    before_frame
        Does what has to be done before a session of Spark reads a snapshot that is taken for it.
    """

    definition: Callable[[], TableDefinition]
    take: Callable[[ReadOptions], Snapshot]
    snapshot: Snapshot | None = None
    http: HttpClient | None = None
    before_frame: Callable[[SparkSession], None] = lambda _: None


@check_arguments
class Scan:
    """Columns and rows of a table, for Arrow, pandas, Polars, DuckDB and Spark.  Any thread may use it.

    Made by `Table.scan` and `Snapshot.scan`.  DuckDB, Polars and others that know Arrow's C stream read a scan as it is::

        duckdb.sql("SELECT kind, count(*) FROM scan GROUP BY kind")
        polars.DataFrame(scan)
    """

    def __init__(self, source: ScanSource, columns: Sequence[str] | None, options: ReadOptions) -> None:
        self._source = source
        self._columns = None if columns is None else tuple(columns)
        self._options = options

    @override
    def __repr__(self) -> str:
        options = self._options
        parts = [", ".join(self._columns) if self._columns is not None else "all columns"]
        parts += [f"where {options.where}"] if options.where is not None else []
        parts += ["final"] if options.final else []
        parts += [f"as of {options.as_of:,}"] if options.as_of is not None else []
        parts += [options.level] if options.level is not None else []
        snapshot = self._source.snapshot
        at = f" at {snapshot.index:,}" if snapshot is not None else ""
        return f"<Scan of {self._source.definition().name}{at}: {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        from replitree.client.read.shown import scan_html

        return scan_html(repr(self), self.schema)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result, by the columns that are known here."""
        import pyarrow as pa

        definition = self._source.definition()
        return pa.schema([definition.arrow_schema.field(column.name) for column in definition.selected(self._columns)])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the result's columns; asking for them does not load Arrow."""
        return tuple(column.name for column in self._source.definition().selected(self._columns))

    # --- Arrow --------------------------------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Read all rows.

        Parts that leave the table meanwhile are kept for a while.  When that was too short, the rows are read once more,
        at a new snapshot with a lease.

        Raises
        ------
        BadInput
            A column is unknown, or the condition can't be read.
        ReplicaBehind, Unavailable
            No replica can show in time what must be included.
        SnapshotExpired
            Parts of the snapshot are gone; `LeaseLost` when it had a lease and lost it.
        """
        where, final = self._options.where, self._options.final
        return self._read(lambda snapshot: snapshot.to_arrow(self._columns, where, final=final))

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows batch by batch, in bounded memory; the lease goes from the first batch to the last.

        Errors as `to_arrow`.
        """
        with self._held() as snapshot:
            yield from snapshot.batches(self._columns, self._options.where, final=self._options.final)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, in bounded memory; its snapshot is taken now, and its files stay until it is dropped.

        Errors as `to_arrow`; those of reading come from the reader.
        """

        def batches(held: ExitStack, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
            with held:
                yield from snapshot.batches(self._columns, self._options.where, final=self._options.final)

        import pyarrow as pa

        # Not in the generator: a wrong name is to be found out here, and the snapshot is that of this moment.
        with ExitStack() as stack:
            snapshot = stack.enter_context(self._held())
            schema = snapshot.schema_of(self._columns)
            self._predicate(snapshot.definition)
            return pa.RecordBatchReader.from_batches(schema, batches(stack.pop_all(), snapshot))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface; see `to_reader`."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of Arrow's C data interface."""
        return self.schema.__arrow_c_schema__()

    def dataset(self) -> Dataset:
        """Return the rows as a dataset of Arrow's: see `Snapshot.dataset`.  Its files stay until it is dropped.

        Raises
        ------
        BadInput
            The scan is ``final``, or its condition is calculated for each row; use `to_reader`.
        """
        if self._options.final:
            raise BadInput(
                "a final scan reads all parts of a partition together, which no dataset does: use to_reader()"
            )
        return self._take_held().dataset(self._columns, self._options.where)

    # --- engines ------------------------------------------------------------------------------------------------------

    def to_pandas(self, **options: Any) -> PandasFrame:
        """Read all rows as a pandas DataFrame.

        Parameters
        ----------
        options
            As of pyarrow's ``Table.to_pandas``, such as ``types_mapper=pandas.ArrowDtype``.

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
        """Read all rows as a Polars DataFrame, or give Polars a frame that reads when it is collected.

        Parameters
        ----------
        lazy
            Return a LazyFrame of one snapshot, taken now.  Its own filters and columns reach the files, unless the scan is
            ``final`` or its condition is calculated for each row.

        Raises
        ------
        EngineMissing
            Polars is not installed.  Other errors as `to_arrow`.
        """
        from replitree.client.read.engines import polars_frame, polars_lazy

        return polars_lazy(self._bound()) if lazy else polars_frame(self.to_arrow)

    def to_duckdb(self, con: DuckDBPyConnection, name: str | None = None) -> DuckDBPyRelation:
        """Give DuckDB one snapshot, taken now; DuckDB reads it when the relation is used.

        Parameters
        ----------
        con
            A connection, such as ``duckdb.connect()``.
        name
            Also make a view of this name in the connection; it takes the place of one that is there.

        Raises
        ------
        EngineMissing
            DuckDB is not installed.  Other errors as `to_arrow`.
        """
        from replitree.client.read.engines import duckdb_relation

        return duckdb_relation(con, self._bound(), name)

    def to_df(self, spark: SparkSession, *, through: Through | None = None) -> DataFrame:
        """Give one snapshot to Spark: see `Table.to_df`.

        Parameters
        ----------
        spark
            A session.
        through
            As of `Table.to_df`.
        """
        source, options = self._source, self._options
        if source.snapshot is None:
            if options.as_of is None:
                source.before_frame(spark)
            snapshot = source.take(replace(options, lease_s=FRAME_LEASE_S))
            if source.http is not None:
                keep_for_frame((snapshot.lease,), source.http)
        else:
            snapshot = source.snapshot
        return snapshot.to_df(spark, self._columns, options.where, final=options.final, through=through)

    # --- looking ------------------------------------------------------------------------------------------------------

    def count(self) -> int:
        """Count the rows.  Parts of which statistics prove that all rows are wanted, or none, are not opened.

        Errors as `to_arrow`.
        """
        return self._read(self._count)

    def head(self, rows: int = 10) -> pa.Table:
        """Read the first rows, in no particular order of the table's; little more than these is read.

        Parameters
        ----------
        rows
            How many at most.

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
        """Say how the rows are read: which parts can have them, where their files are, and what filters the rows.

        Errors as `to_arrow`.
        """
        from replitree.client.read.shown import scan_plan

        # Without the condition: the replica would leave out parts that are to be counted here.
        snapshot = self._source.snapshot or self._source.take(replace(self._options, where=None))
        predicate = self._predicate(snapshot.definition)
        return scan_plan(snapshot, self._columns, predicate, final=self._options.final)

    def native_paths(self) -> list[Path] | None:
        """Return the files that an engine may read by itself; None when it must not (`replitree.client.read.native`).

        Errors as `to_arrow`.
        """
        from replitree.client.read.native import native_paths

        snapshot = self._source.snapshot
        if snapshot is None or self._options.where is not None or self._options.final:
            return None
        return native_paths(snapshot, self.names)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that is scanned; None when each result takes its own."""
        return self._source.snapshot

    @property
    def is_native(self) -> bool:
        """Whether a dataset of Arrow's has just the rows of this scan of one snapshot."""
        assert self.snapshot is not None
        predicate = self._predicate(self.snapshot.definition)
        return not self._options.final and (predicate is None or not predicate.is_computed)

    def check(self) -> None:
        """Do nothing when the columns are there and the condition can be used, by the columns that are known here.

        Raises
        ------
        BadInput
            Says what is wrong.
        """
        definition = self._source.definition()
        definition.selected(self._columns)
        self._predicate(definition)

    def _read(self, read: Callable[[Snapshot], _T]) -> _T:
        """Read a snapshot; once more with a lease when parts were gone before they were read."""
        source, options = self._source, self._options
        if source.snapshot is not None:
            return read(source.snapshot)
        try:
            return read(source.take(options))
        except SnapshotExpired:
            # An earlier snapshot can't be taken again, because its parts are gone.
            if options.as_of is not None:
                raise
        with source.take(replace(options, lease_s=LEASE_S)) as held:
            return read(held)

    def _take_held(self) -> Snapshot:
        """Return the snapshot, with a lease of its own when it is taken now."""
        return self._source.snapshot or self._source.take(replace(self._options, lease_s=LEASE_S))

    def _held(self) -> AbstractContextManager[Snapshot]:
        """Return a context of the snapshot that releases the lease which was taken for it."""
        # The caller of `Snapshot.scan` has the snapshot, and closes it.
        return nullcontext(self._source.snapshot) if self._source.snapshot is not None else self._take_held()

    def _bound(self) -> Scan:
        """Return this scan of one snapshot, whose files stay for as long as Python has the scan."""
        snapshot = self._take_held()
        definition = snapshot.definition
        return Scan(ScanSource(lambda: definition, lambda _: snapshot, snapshot), self._columns, self._options)

    def _predicate(self, definition: TableDefinition) -> Predicate | None:
        if self._options.where is None:
            return None
        # With expressions and their kernels, which a scan of everything does not need.
        from replitree.storage.sql.predicate_parser import parse_predicate

        return parse_predicate(self._options.where, definition)

    def _count(self, snapshot: Snapshot) -> int:
        predicate = self._predicate(snapshot.definition)
        if self._options.final:
            first = self._columns or [snapshot.definition.columns[0].name]
            return sum(batch.num_rows for batch in snapshot.batches(first[:1], self._options.where, final=True))
        parts = snapshot.select(self._options.where)
        if predicate is None:
            return sum(part.manifest.rows for part in parts)
        certain = frozenset(part.part for part in parts if predicate.must_match(part.manifest))
        known = sum(part.manifest.rows for part in parts if part.part in certain)
        open_parts = tuple(part for part in parts if part.part not in certain)
        return known + snapshot.count_rows(open_parts, predicate)


__all__ = ["FRAME_LEASE_S", "LEASE_S", "Scan", "ScanSource"]
