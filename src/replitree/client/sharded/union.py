"""What is read of a sharded table: the rows of its shards, one after the other.

Guarantees: the rows are those of one snapshot of each shard, and no shard that can have a matching row is left out.  Absent on
purpose: one position over all shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.read.snapshot import Snapshot
from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow as pa
    from pandas import DataFrame as PandasFrame

    from replitree.client.read.scan import Scan

READ_AT_ONCE = 8
"""Shards read at once."""


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
    """

    definition: TableDefinition
    shards: tuple[Snapshot, ...]

    @override
    def __repr__(self) -> str:
        return f"<ShardedSnapshot of {self.definition.name}: {len(self.shards)} shards, {self.rows:,} rows>"

    def __getattr__(self, name: str) -> NoReturn:
        refuse_rest(name, Snapshot, self.definition.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the leases, if there are any.  May be called again."""
        for each in self.shards:
            each.close()

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
        self.definition.selected(columns)
        scans = [each.scan(columns, where, final=final) for each in self.shards]
        return ShardedScan(self.definition, columns, lambda: scans)

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


@check_arguments
class ShardedScan:
    """Columns and rows of a sharded table.  Engines that know Arrow's C stream read it as it is.

    Made by `ShardedTable.scan` and `ShardedSnapshot.scan`.
    """

    def __init__(
        self, definition: TableDefinition, columns: Sequence[str] | None, scans: Callable[[], list[Scan]]
    ) -> None:
        self._definition = definition
        self._columns = None if columns is None else tuple(columns)
        self._scans = scans

    @override
    def __repr__(self) -> str:
        return f"<ShardedScan of {self._definition.name}: {', '.join(self.names)}>"

    def __getattr__(self, name: str) -> NoReturn:
        from replitree.client.read.scan import Scan

        refuse_rest(name, Scan, self._definition.name)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        import pyarrow as pa

        return pa.schema([self._definition.arrow_schema.field(name) for name in self.names])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the result's columns."""
        return tuple(column.name for column in self._definition.selected(self._columns))

    def to_arrow(self) -> pa.Table:
        """Read all rows, of several shards at once.  Errors as `Scan.to_arrow`."""
        import pyarrow as pa

        scans = self._scans()
        with ThreadPoolExecutor(READ_AT_ONCE, thread_name_prefix="replitree-shard") as pool:
            found = list(pool.map(lambda scan: scan.to_arrow(), scans))
        return pa.concat_tables(found) if found else self.schema.empty_table()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows batch by batch, shard after shard.  Errors as `to_arrow`."""
        for scan in self._scans():
            yield from scan.batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, in bounded memory; the snapshots of all shards are taken now.  Errors as `to_arrow`."""
        import pyarrow as pa

        readers = [scan.to_reader() for scan in self._scans()]

        def batches() -> Iterator[pa.RecordBatch]:
            for reader in readers:
                yield from reader

        return pa.RecordBatchReader.from_batches(self.schema, batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface; see `to_reader`."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of Arrow's C data interface."""
        return self.schema.__arrow_c_schema__()

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

    def count(self) -> int:
        """Count the rows.  Errors as `to_arrow`."""
        with ThreadPoolExecutor(READ_AT_ONCE, thread_name_prefix="replitree-shard") as pool:
            return sum(pool.map(lambda scan: scan.count(), self._scans()))

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
        for scan in self._scans():
            with closing(scan.batches()) as batches:
                while left and (batch := next(batches, None)) is not None:
                    found.append(batch.slice(0, left))
                    left -= found[-1].num_rows
        return pa.Table.from_batches(found) if found else self.schema.empty_table()
