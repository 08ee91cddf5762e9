"""The change feed of a table, as a client reads it: which rows came, left or changed by which entry of the log.

Replicas say which parts have the rows of a range of the log, and keep these parts under a lease; their files are read, verified
and, if need be, brought here as those of a snapshot (`replitree.client.read.snapshot`).

=============  =================================================  ==========================================================
unit           rows                                               `_change_type`
=============  =================================================  ==========================================================
`insert`       all of the part                                    `insert`
`delete`       all of the part                                    `delete`
`mutate`       those that differ from the part before             `update_preimage`, `update_postimage` in pairs; `delete`
`rewrite`      the difference of the two parts as multisets       `delete`, `insert`
=============  =================================================  ==========================================================

Guarantees: reading it twice gives the same rows in the same order; the rows of an entry stand together, entries ascend.  What
can't be given whole is an error, never fewer rows (F5).

A range is asked for in pages; each is of whole entries, and each has a lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
from typing_extensions import override

from replitree.client.read.snapshot import Snapshot, SnapshotBody, SnapshotPart
from replitree.errors import BadInput, CorruptPart
from replitree.protocol.feed.definition import UnitType
from replitree.storage.rewrite.changed_rows import CHANGE_TYPE, mutated_rows, rewritten_rows
from replitree.storage.rewrite.read import Piece, read_batches, read_parts
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.sql.expression import wanted_rows
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.wire.feed_errors import SchemaChanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION, TIMESTAMP = "_commit_version", "_commit_timestamp"
FEED_SCHEMA = pa.schema(
    [
        pa.field(CHANGE_TYPE, pa.string(), nullable=False),
        pa.field(VERSION, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""The columns that follow the table's."""

Marks: TypeAlias = tuple[pa.Array, np.ndarray, np.ndarray]
"""What the columns of the feed have for each row of a batch: its type, its index, and its time in microseconds since 1970."""


class FeedUnit(msgspec.Struct, frozen=True):
    """Rows of one entry: the part that has them, and the part before it where the two are compared.

    `us` is the entry's timestamp, in microseconds since 1970.
    """

    index: int
    us: int
    type: UnitType
    part: str
    before: str = ""


class FeedBody(SnapshotBody, frozen=True):
    """What a replica answers when it is asked for a range of the feed; `parts` are those of the units.

    Attributes
    ----------
    start
        The first entry; `index` follows the last one of this page.
    end
        What follows the last entry of the range; the next page begins at `index`, if that is below.
    origin
        Which table this is: its id and incarnation.
    altered
        Entries that change the columns, and the version of the columns from there on.
    zxids
        Of a shard: the entries of this page that have units or change the columns, and the transactions that have appended
        them.
    """

    start: int = 0
    end: int = 0
    origin: str = ""
    units: tuple[FeedUnit, ...] = ()
    altered: tuple[tuple[int, int], ...] = ()
    zxids: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A page of the feed, and what reads its parts."""

    body: FeedBody
    snapshot: Snapshot

    def part(self, name: str) -> SnapshotPart:
        """Return a part of it.

        Raises
        ------
        CorruptPart
            The replica has named a part without saying what is in it.
        """
        for part in self.snapshot.parts:
            if part.part == name:
                return part
        raise CorruptPart(f"replica {self.body.replica} sent no manifest of {name}")


@dataclass(frozen=True, slots=True)
class ChangesWish:
    """What a client wants of the feed: see `Table.changes`."""

    start: int
    end: int | None
    columns: Sequence[str] | None
    where: str | None
    of: str | None
    schema_version: int | None
    lease_s: float
    timeout_s: float

    def query(self, start: int, end: int | None) -> str:
        """Return the query of a page."""
        query = f"from={start}&lease_s={self.lease_s:g}"
        query += "" if end is None else f"&to={end}"
        return query if self.of is None else f"{query}&of={quote(self.of, safe='')}"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a table by a range of its log.  A context manager: it lets go of its leases.

    Attributes
    ----------
    definition
        The table; the rows of all entries have its columns.
    start, end
        The first entry, and what follows the last one: where the next read starts.
    origin
        Which table this is: what the next read gives as `of`.
    pages
        What replicas have answered.
    is_marked
        Whether the rows have the three columns of the feed.
    piece
        Which row groups are read of the one unit that is there; all by default.
    """

    definition: TableDefinition
    start: int
    end: int
    origin: str
    pages: tuple[FeedPage, ...]
    _columns: tuple[str, ...]
    _where: Predicate | None
    is_marked: bool = True
    piece: Piece = (0, 1)

    @override
    def __repr__(self) -> str:
        units = sum(len(page.body.units) for page in self.pages)
        return f"<Changes of {self.definition.name} from {self.start:,} up to {self.end:,}: {units:,} units>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            # If a lease was lost, parts have gone: that is the error to report, whatever the read ran into.
            self.check()
        self.close()

    def close(self) -> None:
        """Let go of the leases.  May be called again."""
        for page in self.pages:
            page.snapshot.close()

    def check(self) -> None:
        """Do nothing, unless a lease was lost.

        Raises
        ------
        LeaseLost
            Parts may go at any time.
        """
        for page in self.pages:
            page.snapshot.check()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: the columns that are wanted, then `_change_type`, `_commit_version`, `_commit_timestamp`."""
        known = self.definition.arrow_schema
        return pa.schema([*(known.field(name) for name in self._columns), *(FEED_SCHEMA if self.is_marked else ())])

    @property
    def altered(self) -> tuple[tuple[int, int], ...]:
        """The entries that change the columns, and the version of the columns from there on."""
        return tuple(each for page in self.pages for each in page.body.altered)

    def to_arrow(self) -> pa.Table:
        """Read all of it.  Raises as `batches`."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read it batch by batch; the two parts of a rewrite's change are in memory as a whole.

        Raises
        ------
        CorruptPart
            A part is damaged, and no replica has good files with its rows.
        SnapshotExpired
            A part is gone; `LeaseLost` when a lease was lost.
        """
        for page in self.pages:
            for units in _runs(page.body.units):
                if units[0].before:
                    yield from self._compared(page, units[0])
                else:
                    yield from self._whole(page, units)
                page.snapshot.check()

    def to_df(self, spark: SparkSession) -> DataFrame:
        """Give the rows to Spark.  They pass through this process."""
        # Spark takes no nested column without a chunk.
        batches = list(self.batches()) or [pa.RecordBatch.from_pylist([], self.schema)]
        return spark.createDataFrame(pa.Table.from_batches(batches))

    def _whole(self, page: FeedPage, units: Sequence[FeedUnit]) -> Iterator[pa.RecordBatch]:
        """Read parts of which all rows came or left, one after the other."""
        units = [unit for unit in units if self._may_match(page.part(unit.part))]
        parts, snapshot = [page.part(unit.part) for unit in units], page.snapshot
        needed = self._columns if self._where is None else (*self._columns, *self._where.columns)
        names = tuple(dict.fromkeys(needed)) or (self.definition.columns[0].name,)

        def begin() -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
            found = iter(read_batches(snapshot.checked(parts), self.definition, names, piece=self.piece))
            return next(found, None), found

        if not parts:
            return
        # Rows come in the order of the parts, so their places tell the unit of each.
        ends = np.cumsum([part.manifest.rows for part in parts])
        types = pa.array([unit.type for unit in units], pa.string())
        indexes, times = (
            np.array([unit.index for unit in units], np.int64),
            np.array([unit.us for unit in units], np.int64),
        )
        at = 0
        batch, found = snapshot.good(begin)
        while batch is not None:
            rows = batch.num_rows
            marks: Marks | None = None
            if self.is_marked:
                which = np.searchsorted(ends, np.arange(at, at + rows), side="right")
                # Arrow takes the types: it makes strings of numpy's ten times as slowly as it reads the rows.
                marks = types.take(pa.array(which)), indexes[which], times[which]
            at += rows
            yield from self._shown(batch, marks)
            batch = next(found, None)
        # Of a piece, the reader has compared the rows of the whole files.
        if self.piece == (0, 1) and at != ends[-1]:
            raise CorruptPart(
                f"the parts of entries {units[0].index} to {units[-1].index} have {at} rows, not {ends[-1]}"
            )

    def _compared(self, page: FeedPage, unit: FeedUnit) -> Iterator[pa.RecordBatch]:
        """Read what differs between a part and the one before it."""
        before, after, snapshot = page.part(unit.before), page.part(unit.part), page.snapshot
        # A mutation that has touched no row of a part, or was killed, leaves its content.
        if before.manifest.content == after.manifest.content or not (self._may_match(before) or self._may_match(after)):
            return
        for found in self._difference(snapshot, unit.type, before, after):
            for batch in found.combine_chunks().to_batches():
                rows = len(batch)
                indexes, times = np.full(rows, unit.index, np.int64), np.full(rows, unit.us, np.int64)
                marks = (batch.column(CHANGE_TYPE), indexes, times) if self.is_marked else None
                yield from self._shown(batch.drop_columns([CHANGE_TYPE]), marks)

    def _difference(
        self, snapshot: Snapshot, kind: UnitType, before: SnapshotPart, after: SnapshotPart
    ) -> Iterable[pa.Table]:
        """Give the rows that differ between two parts: of a mutation some at a time, of a rewrite at once."""
        if kind != "mutate":
            tables = [
                snapshot.good(lambda part=part: read_parts(snapshot.checked([part]), self.definition))  # type: ignore[misc]
                for part in (before, after)
            ]
            return [rewritten_rows(*tables)]

        def begin(part: SnapshotPart) -> Iterator[pa.RecordBatch]:
            found = iter(read_batches(snapshot.checked([part]), self.definition))
            first = next(found, None)
            return found if first is None else chain([first], found)

        old, new = (snapshot.good(partial(begin, part)) for part in (before, after))
        deletes = after.manifest.rows < before.manifest.rows
        return mutated_rows(old, new, self.definition.arrow_schema, deletes=deletes)

    def _shown(self, rows: pa.RecordBatch, marks: Marks | None) -> Iterator[pa.RecordBatch]:
        """Give the wanted ones of rows, with the wanted columns."""
        shown = rows
        if marks is not None:
            types, indexes, times = marks
            marked = pa.array(times, pa.int64()).cast(FEED_SCHEMA.field(TIMESTAMP).type)
            columns = [*rows.columns, types, pa.array(indexes, pa.int64()), marked]
            shown = pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *FEED_SCHEMA]))
        if self._where is not None:
            shown = wanted_rows(self._where, shown)
        if shown.num_rows:
            yield shown.select(self.schema.names).cast(self.schema)

    def _may_match(self, part: SnapshotPart) -> bool:
        return self._where is None or self._where.may_match(part.manifest)


def _runs(units: Sequence[FeedUnit]) -> Iterator[Sequence[FeedUnit]]:
    """Give neighbours of which all rows came or left together, and each other unit alone."""
    first = 0
    for place, unit in enumerate(units):
        if unit.before:
            if first < place:
                yield units[first:place]
            yield units[place : place + 1]
            first = place + 1
    if first < len(units):
        yield units[first:]


def read_changes(ask: Callable[[str, float], FeedPage], wish: ChangesWish, definition: TableDefinition) -> Changes:
    """Ask for all pages of a range of the feed.

    Parameters
    ----------
    ask
        Asks for a page by its query, waiting for so many seconds.
    wish
        What is wanted.
    definition
        The table as it is known.

    Raises
    ------
    BadInput, SchemaChanged
        As `Table.changes`, and what `ask` raises.
    """
    if wish.start < 0 or (wish.end is not None and wish.end < wish.start):
        raise BadInput(
            f"changes go from an index of the log, 0 or above, up to a later one, not from {wish.start} to {wish.end}"
        )
    # Before any replica is asked.
    definition.selected(wish.columns)
    pages, at, end, deadline = list[FeedPage](), wish.start, wish.end, time.monotonic() + wish.timeout_s
    with ExitStack() as leased:
        while True:
            page = ask(wish.query(at, end), max(0.1, deadline - time.monotonic()))
            leased.callback(page.snapshot.close)
            pages.append(page)
            for index, version in page.body.altered:
                if wish.schema_version is not None and version > wish.schema_version:
                    raise SchemaChanged(
                        f"entry {index} changes the columns to version {version}: read up to {index}, then go on from {index}"
                        f" with schema_version={version}",
                        index,
                    )
            at, end = page.body.index, page.body.end
            if at >= end:
                break
        newest = max((page.snapshot.definition for page in pages), key=lambda each: each.schema_version)
        where = None if wish.where is None else parse_predicate(wish.where, newest)
        columns = tuple(column.name for column in newest.selected(wish.columns))
        taken = next((column.name for column in newest.columns if column.name.lower() in FEED_SCHEMA.names), None)
        if taken is not None:
            raise BadInput(f"table {newest.name} has a column {taken!r}, which the change feed adds: rename it")
        leased.pop_all()
    read = tuple(replace(page, snapshot=replace(page.snapshot, definition=newest)) for page in pages)
    return Changes(newest, wish.start, end, pages[-1].body.origin, read, columns, where)


__all__ = [
    "FEED_SCHEMA",
    "TIMESTAMP",
    "VERSION",
    "Changes",
    "ChangesWish",
    "FeedBody",
    "FeedPage",
    "FeedUnit",
    "read_changes",
]
