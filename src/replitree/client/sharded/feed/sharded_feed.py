"""The change feed of a sharded table, as a client reads it: which rows came, left or changed between two cuts.

Each shard is asked where the cuts lie in its log, and for its feed in between.  What they answer is put in the order of the
transactions.  So what one commit has appended to several shards is one version, which no range divides.

Guarantees, between any two cuts:

* Reading it twice gives the same rows in the same order: versions ascend, and the rows of a version stand together.
* With the policy ``plain``, the rows at the first cut with the changes are the rows at the second one (D8), also while buckets
  move: a row that only moves is no change (`replitree.protocol.sharded.feed`).
* What can't be given whole is an error, never fewer rows (F5).

*Which shards.*  The map is read after the second cut was chosen.  So every shard that had an entry up to there is asked, but
for those that were removed: the map says from which cut on none of them had a change, and changes can't be read from before.
A condition on the whole shard key leaves out those that can't have matching rows, if the map has been the same since the
first cut: otherwise buckets may have moved meanwhile.

*Timestamps.*  A version has that of its transaction, to the millisecond: within one, the logs of the shards have no common
order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
from typing_extensions import override

from replitree.client.read.feed import Changes, ChangesWish, FeedPage, FeedUnit
from replitree.client.sharded.cut_reads import CutOptions, CutReads
from replitree.client.sharded.shard_table import ShardTable, left_s
from replitree.client.sharded.side_by_side import SideBySide
from replitree.errors import BadInput, CorruptPart, SnapshotExpired
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.protocol.sharded.cut import Cut, parse_cut
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.wire.feed_errors import FeedGap, OffsetExpired, SchemaChanged, TableReplaced

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

US_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class ShardedWish:
    """What a client wants of the feed of a sharded table: see `ShardedTable.changes`; `start` None: from the beginning."""

    start: str | None
    end: str | None
    columns: Sequence[str] | None
    where: str | None
    of: str | None
    schema_version: int | None
    lease_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ShardedChanges:
    """The changes of a sharded table between two cuts.  A context manager: it lets go of its leases.

    Attributes
    ----------
    definition
        The table; the rows of all entries have its columns.
    start, end
        The cuts: everything behind the first one, up to the second one.  `end` is where the next read starts.
    origin
        Which table this is: what the next read gives as `of`.
    positions
        Where the cuts lie in the log of each shard, by its name.
    altered
        The transactions that change the columns, and the version of the columns from there on.
    """

    definition: TableDefinition
    start: str
    end: str
    origin: str
    positions: Mapping[str, tuple[int, int]]
    altered: tuple[tuple[int, int], ...]
    _read: Changes
    _unordered: tuple[FeedPage, ...]

    @override
    def __repr__(self) -> str:
        units = sum(len(page.body.units) for page in self._read.pages)
        return f"<ShardedChanges of {self.definition.name} from {self.start} up to {self.end}: {units:,} units>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._read.__exit__(kind, error, traceback)

    def close(self) -> None:
        """Let go of the leases.  May be called again."""
        self._read.close()

    def check(self) -> None:
        """Do nothing, unless a lease was lost; errors as of `Changes.check`."""
        self._read.check()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: the columns that are wanted, then `_change_type`, `_commit_version`, `_commit_timestamp`."""
        return self._read.schema

    @property
    def pages(self) -> tuple[FeedPage, ...]:
        """What replicas have answered, in the order of the transactions; the index of a unit is its transaction."""
        return self._read.pages

    @property
    def plain(self) -> Changes:
        """The same without their order, as changes of one table whose indexes are transactions; each page is of one shard."""
        return replace(self._read, pages=self._unordered)

    def to_arrow(self) -> pa.Table:
        """Read all of it.  Raises as `batches`."""
        return self._read.to_arrow()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read it batch by batch, version after version; errors as of `Changes.batches`."""
        return self._read.batches()

    def to_df(self, spark: SparkSession) -> DataFrame:
        """Give the rows to Spark.  They pass through this process."""
        return self._read.to_df(spark)


class _ShardFeed(NamedTuple):
    """What a shard has answered: where the cuts lie, and its changes in between."""

    shard: ShardTable
    positions: tuple[int, int]
    changes: Changes


class ShardedFeed:
    """Reads the change feed of one sharded table.  Any thread may use it.

    Parameters
    ----------
    reads
        Chooses cuts, and knows the shards.
    beside
        Asks several shards at once.
    held_at
        Returns where a cut at which consumers stand lies in the log of each shard; of another cut nothing.
    """

    def __init__(self, reads: CutReads, beside: SideBySide, held_at: Callable[[str], Mapping[str, int]]) -> None:
        self._reads, self._beside, self._held_at = reads, beside, held_at

    def read(self, wish: ShardedWish, definition: TableDefinition, origin: str) -> ShardedChanges:
        """Return the changes between two cuts; parameters and errors as of `ShardedTable.changes`.

        Parameters
        ----------
        wish
            What is wanted.
        definition, origin
            The table as it is known, and which one it is.
        """
        if wish.of is not None and wish.of != origin:
            raise TableReplaced(
                f"the reader began with table {wish.of}, and this is {origin}: table {definition.name} was dropped and created"
                " again. Start anew, from a snapshot"
            )
        # Before any replica is asked.
        definition.selected(wish.columns)
        deadline = time.monotonic() + wish.timeout_s
        end, found = self._reads.reached(CutOptions(as_of=wish.end, timeout_s=wish.timeout_s))
        start = Cut(end.ensemble, BEFORE_ALL) if wish.start is None else parse_cut(wish.start)
        if end.ensemble != start.ensemble:
            raise SnapshotExpired(
                f"the cut {start} is of an ensemble that was replaced since, and can't be compared with {end}; start anew, from"
                " a snapshot"
            )
        if end.zxid < start.zxid:
            raise BadInput(f"changes go from a cut up to a later one, not from {start} to {end}")
        if start.zxid < found.since:
            raise self._expired(start, "a shard that had changes behind it was removed since", deadline)
        shards = self._reads.needed(found, wish.where, start)
        asked = self._ask(shards, (start, end), wish, deadline)
        newest = max(each.changes.definition.schema_version for each in asked)
        if len(shards) < len(found.all) and newest != definition.schema_version:
            # With the newer columns the condition may mean something else.
            for each in asked:
                each.changes.close()
            asked = self._ask(found.all, (start, end), wish, deadline)
        with ExitStack() as leased:
            for each in asked:
                leased.callback(each.changes.close)
            changes = _in_order(asked, wish, definition, (start, end), origin)
            leased.pop_all()
        return changes

    def earliest(self, timeout_s: float) -> str:
        """Return the first cut from which on the feed of all shards is there: the latest of theirs.

        Parameters
        ----------
        timeout_s
            When to give up, in seconds.

        Raises
        ------
        FeedOff, Unavailable
            As of `ShardedTable.changes`.
        """
        deadline = time.monotonic() + timeout_s
        end, found = self._reads.reached(CutOptions(timeout_s=timeout_s))
        told = self._beside.each(lambda shard: shard.feed_positions((), left_s(deadline)).earliest, found.all)
        return str(Cut(end.ensemble, max(found.since, *(end.zxid if each is None else Zxid(each) for each in told))))

    def _expired(self, start: Cut, why: str, deadline: float) -> OffsetExpired:
        earliest = self.earliest(max(1.0, left_s(deadline)))
        return OffsetExpired(
            f"the feed is asked for from {start}, and it starts at {earliest} ({why}): read"
            f" table.snapshot(level='linearizable') and go on from its cut, or start at {earliest}",
            parse_cut(earliest).zxid,
        )

    def _ask(
        self, shards: Sequence[ShardTable], cuts: tuple[Cut, Cut], wish: ShardedWish, deadline: float
    ) -> list[_ShardFeed]:
        """Ask some shards for their feeds between two cuts."""

        def ask(shard: ShardTable) -> _ShardFeed:
            first, last = self._positions(shard, cuts, deadline)
            left, of = max(0.1, left_s(deadline)), shard.definition.table_id
            its = ChangesWish(first, last, wish.columns, wish.where, of, None, wish.lease_s, left)
            try:
                return _ShardFeed(shard, (first, last), shard.read_feed(its))
            except FeedGap as error:
                raise self._gap(shard, error, deadline) from error

        try:
            return self._beside.each(ask, shards, lambda each: each.changes.close())
        except OffsetExpired as error:
            raise self._expired(cuts[0], str(error), deadline) from error

    @staticmethod
    def _gap(shard: ShardTable, error: FeedGap, deadline: float) -> FeedGap:
        """Return the error of a reader of all shards, of one of which an entry can't be given."""
        if error.index < 0:
            return error
        try:
            zxid = shard.transaction_of(error.index, max(1.0, left_s(deadline)))
        except OffsetExpired:
            return FeedGap(f"shard {shard.name} has lost rows ({error}): start anew, from a snapshot at a cut")
        return FeedGap(
            f"shard {shard.name} has lost rows of transaction {zxid}, and no replica can list them ({error}). Read up to"
            f" the cut of transaction {zxid - 1}, and then from that of {zxid} on, or from a new snapshot",
            zxid,
        )

    def _positions(self, shard: ShardTable, cuts: tuple[Cut, Cut], deadline: float) -> tuple[int, int]:
        """Return where two cuts lie in the log of a shard."""
        try:
            first, last = shard.feed_positions(tuple(map(str, cuts)), left_s(deadline)).positions
        except OffsetExpired:
            # A consumer keeps the entries from its cut on, and so not the one before, by which replicas know the place.
            held = self._held_at(str(cuts[0]))
            if shard.name not in held:
                raise
            return held[shard.name], shard.feed_positions((str(cuts[1]),), left_s(deadline)).positions[0]
        return first, last


def _in_order(
    asked: Sequence[_ShardFeed], wish: ShardedWish, known: TableDefinition, cuts: tuple[Cut, Cut], origin: str
) -> ShardedChanges:
    """Return the changes of all shards, in the order of their transactions."""
    start, end = cuts
    newest = max((each.changes.definition for each in asked), key=lambda each: each.schema_version)
    definition = replace(newest, name=known.name, table_id=known.table_id)
    altered = sorted(
        {
            (dict(page.body.zxids)[index], version)
            for each in asked
            for page in each.changes.pages
            for index, version in page.body.altered
        }
    )
    for zxid, version in altered:
        if wish.schema_version is not None and version > wish.schema_version:
            before = Cut(end.ensemble, Zxid(zxid - 1))
            raise SchemaChanged(
                f"transaction {zxid} changes the columns to version {version}: read up to {before}, then go on from {before}"
                f" with schema_version={version}",
                before.zxid,
            )
    units = sorted(
        (
            _Placed(zxid, shard, number, place, unit)
            for shard, each in enumerate(asked)
            for number, page in enumerate(each.changes.pages)
            for zxid, place, unit in _stamped(page)
        ),
        key=lambda each: each[:4],
    )
    # One transaction has one time, but a log whose clock has gone back has moved its own.
    times = dict[int, int]()
    for placed in units:
        times[placed.zxid] = max(times.get(placed.zxid, 0), placed.unit.us - placed.unit.us % US_PER_MS)
    ordered = list[FeedPage]()
    by_page = {
        (shard, number): list[FeedUnit]()
        for shard, each in enumerate(asked)
        for number in range(len(each.changes.pages))
    }
    for key, run in groupby(units, lambda each: (each.shard, each.page)):
        marked = [msgspec.structs.replace(each.unit, index=each.zxid, us=times[each.zxid]) for each in run]
        by_page[key] += marked
        ordered.append(_with(asked[key[0]].changes.pages[key[1]], marked, newest))
    pages = tuple(_with(asked[shard].changes.pages[number], its, newest) for (shard, number), its in by_page.items())
    where = None if wish.where is None else parse_predicate(wish.where, definition)
    columns = tuple(column.name for column in definition.selected(wish.columns))
    # Also a page without units has a lease to let go of.
    ordered += (page for page in pages if not page.body.units)
    read = Changes(definition, 0, 0, origin, tuple(ordered), columns, where)
    positions = {each.shard.name: each.positions for each in asked}
    return ShardedChanges(definition, str(start), str(end), origin, positions, tuple(altered), read, pages)


class _Placed(NamedTuple):
    """A unit, and where it stands: by its transaction, then as its shard gives it."""

    zxid: int
    shard: int
    page: int
    place: int
    unit: FeedUnit


def _stamped(page: FeedPage) -> Iterator[tuple[int, int, FeedUnit]]:
    """Give the units of a page, each with its transaction, in order."""
    zxids = dict(page.body.zxids)
    for place, unit in enumerate(page.body.units):
        if unit.index not in zxids:
            raise CorruptPart(
                f"replica {page.body.replica} does not tell which transaction has appended entry {unit.index}"
            )
        yield zxids[unit.index], place, unit


def _with(page: FeedPage, units: Sequence[FeedUnit], newest: TableDefinition) -> FeedPage:
    """Return a page with other units, whose parts are read with the newest columns."""
    own = page.snapshot.definition
    definition = replace(newest, name=own.name, table_id=own.table_id)
    return FeedPage(
        msgspec.structs.replace(page.body, units=tuple(units)), replace(page.snapshot, definition=definition)
    )


__all__ = ["ShardedChanges", "ShardedFeed", "ShardedWish"]
