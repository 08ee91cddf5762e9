"""Reading a table as a stream: first what it has, then what comes, each row once.

Spark keeps one of these in a Python process for as long as the query runs, and asks it where the next batch ends and, when that
is in its write-ahead log, which tasks read it.  Tasks read the parts; no row passes through this process.

Order of one batch:

1. *look*      a replica says how far the feed goes, waiting ``pollWait`` for more             `FeedWatch.end`
2. *admit*     pages of the feed say how much each entry has: the end of the batch             `_admitted`
3. Spark writes the end into its log
4. *plan*      the range becomes tasks; a replica keeps its parts under a lease                `partitions`

Guarantees:

* What a batch reads is a function of the table's log, of its end and of the end before it.  So a batch that is repeated, also
  after a kill of the driver, has the same rows.
* Where the query began is written down with batch 0 (`replitree.spark.stream.positions`); that batch may be empty.
* What is not there any more is an error before the batch, never fewer rows; ``failOnDataLoss=false`` goes on behind it, and the
  place is in the end of the batch.
* The end that a query with ``availableNow`` has is fixed when it begins, after a commit: it includes all that was acknowledged.
* While nothing happens, one request waits at a replica, and coordination is asked nothing.

An entry without rows (a merge) makes no batch.  Once in `MOVE_S` the stream goes past such entries by an empty batch: its
position would fall behind what the feed keeps.

The position of a stream keeps no parts: the table's ``feed`` does, by time, and so does the stream's ``consumer``, if it has
one (`replitree.spark.stream.stream_consumer`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from replitree.client.change.command import COMMAND_S
from replitree.client.read.feed import FeedPage
from replitree.client.read.feed_watch import FeedEnd
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, SchemaMismatch, SnapshotExpired
from replitree.spark.read.feed_read import FEED_FIELDS, FeedPlan, feed_partitions, lease_of, tasks_of
from replitree.spark.session.options import open_connection, open_table
from replitree.spark.session.types import columns_of
from replitree.spark.stream.admission import Amount, Limits, NotAppendOnly, amount_of
from replitree.spark.stream.positions import SNAPSHOT, Beginning, Offset, Position, decode_offset
from replitree.spark.stream.sharded_stream import ShardedStream
from replitree.spark.stream.snapshot_batch import snapshot_partitions
from replitree.spark.stream.source_options import TIME, check_schema, stream_options
from replitree.spark.stream.stream_consumer import StreamConsumer
from replitree.wire.feed_errors import ConsumerExpired, FeedGap, OffsetExpired, SchemaChanged, TableReplaced

if TYPE_CHECKING:
    from replitree.client.connection import Connection
    from replitree.client.read.feed_watch import FeedWatch
    from replitree.client.table import Table

MOVE_S = 60.0
"""How often a stream goes past entries without rows by an empty batch, in seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log ended at some moment, for certain.

    Attributes
    ----------
    origin
        Which table this is.
    index
        The index of the next entry.
    us
        A time in microseconds since 1970 that is before every entry from there on.
    """

    origin: str
    index: int
    us: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """The end of a batch: `begin` is where it begins, behind what was lost, and `has_rows` whether there are any."""

    begin: int
    end: int
    has_rows: bool


class TableStream:
    """Reads one table for one query.  One thread uses it.

    Parameters
    ----------
    options
        The options of the stream, by their names in lower case.
    schema
        The columns that Spark was told.

    Raises
    ------
    BadInput
        An option is wrong, or the schema does not have what the options say.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._schema = dict(options), schema
        self._stream = stream_options(options)
        check_schema(options, schema, is_feed=self._stream.selection.is_feed)
        self._name = self._stream.table
        self._connection: Connection | None = None
        # Only in the process that runs the query, not in those of its tasks.
        self._table: Table
        self._watch: FeedWatch
        self._consumer: StreamConsumer | None = None
        self._target: LogEnd | None = None
        self._known: FeedEnd | None = None
        # From this position up to that index no entry has rows.
        self._passed = (-1, -1)
        # So far the log goes for certain.
        self._verified = -1
        self._moved_at = float("-inf")
        self._page: FeedPage | None = None
        self._sharded: ShardedStream | None = None

    def initial(self) -> Offset:
        """Return where a query without a checkpoint begins: always the same."""
        return self._stream.beginning.encode()

    @property
    def limits(self) -> Limits:
        """How much a batch has at most."""
        return self._stream.limits

    def fix_end(self) -> None:
        """Let the stream end where the log ends now."""
        self._connect()
        if self._sharded is not None:
            self._sharded.fix_end()
        else:
            self._target = self._log_end()

    def newest(self) -> Offset | None:
        """Return how far the feed went when that was last asked; None: it was not."""
        if self._sharded is not None:
            return self._sharded.newest()
        return None if self._known is None else Position(self._known.origin, self._known.end).encode()

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def latest(self, start: Offset, limits: Limits) -> Offset:
        """Return where the batch after a position ends; `start` itself, if there is nothing new.

        Raises
        ------
        TableReplaced, OffsetExpired, FeedGap, FeedOff, BadInput
            The stream can't go on from there.
        Unavailable, ReplicaBehind
            No replica has the log that far in time.
        """
        self._connect()
        if self._sharded is not None:
            return self._sharded.latest(start, limits)
        at = decode_offset(start)
        if isinstance(at, Position):
            self._check_consumer(at, at.index)
        found = self._begun(at, limits) if isinstance(at, Beginning) else self._next(at, limits)
        if found is None:
            # Spark asks for the next batch when the last one is finished, and commits that only with the next one.
            self._move_consumer(at)
            return start
        self._moved_at = time.monotonic()
        return found.encode()

    def commit(self, end: Offset) -> None:
        """Take note that everything up to an offset was read: the consumer moves there, if the stream has one."""
        self._connect()
        if self._sharded is not None:
            self._sharded.commit(end)
        else:
            self._move_consumer(decode_offset(end))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch.

        Raises
        ------
        TableReplaced, OffsetExpired, FeedGap, FeedOff, SchemaChanged, BadInput
            The batch can't be read; each says what to do.
        """
        self._connect()
        if self._sharded is not None:
            return self._sharded.partitions(start, end)
        before, to = decode_offset(start), decode_offset(end)
        if isinstance(to, Beginning):
            return []
        if isinstance(before, Position):
            self._check_same(before, to.origin)
            if to.index < before.index:
                raise BadInput(
                    f"the checkpoint goes backwards: its batch begins at {before.index} in the log of table"
                    f" {self._name}, and ends at {to.index}. Its files were changed: begin with a new checkpoint"
                )
        begins = before.index if isinstance(before, Position) else to.begin
        self._check_consumer(to, to.index if begins is None else begins)
        if to.is_snapshot:
            return self._snapshot(to)
        begin = to.begin if to.begin is not None else before.index if isinstance(before, Position) else to.index
        found, until = list[InputPartition](), to.index
        while begin < to.index:
            try:
                found += self._planned(to.origin, begin, until)
            except (OffsetExpired, FeedGap) as error:
                if isinstance(error, FeedGap) and error.index > begin and not self._stream.fails_on_loss:
                    until = error.index
                else:
                    begin, until = self._behind_loss(begin, error), to.index
            else:
                begin, until = until, to.index
        return found

    # --- where a batch ends ---------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connection is None:
            self._connection = open_connection(self._options)
            self._table = open_table(self._connection, self._options)
            if isinstance(self._table, ShardedTable):
                now_ms = self._connection.catalog.now_ms
                self._sharded = ShardedStream(self._options, self._schema, self._stream, self._table, now_ms)
                return
            self._watch = self._table.watch_feed()
            name, timeout_s = self._stream.consumer, self._stream.timeout_s
            self._consumer = None if name is None else StreamConsumer(name, self._table, timeout_s)

    def _log_end(self) -> LogEnd:
        """Ask coordination where the log ends; what was acknowledged before is below."""
        assert self._connection is not None, "`_connect` comes first"
        # The commit that asks for the time goes through the leader, so that the session sees all that was committed before.
        now_ms = self._connection.catalog.now_ms()
        tail = self._connection.catalog.log_tail(self._name)
        self._known = self._watch.end(-1, 0.0, self._stream.timeout_s)
        return LogEnd(self._known.origin, tail, 1_000 * now_ms - 1)

    def _begun(self, beginning: Beginning, limits: Limits) -> Position:
        """Return the end of batch 0, and with it where the query begins."""
        end, where = self._target or self._log_end(), beginning.where
        known = None if self._consumer is None else self._consumer.find()
        if known is not None:
            return self._resumed(end, known, limits)
        if where == SNAPSHOT:
            if limits.any:
                _log.warning("the first batch of table %s is all that it has: limits do not cut it", self._name)
            index = end.index if self._consumer is None else self._reached(self._consumer.make(None))
            return Position(end.origin, index, index, where, end.us)
        if where == "latest":
            begin = end.index
        elif where == "earliest":
            begin = min(self._watch.earliest(self._stream.timeout_s).feed_from, end.index)
        elif where.startswith(TIME):
            # The table at a time has what was written at that time, and the stream has it, too.
            begin = self._table.index_of(datetime.fromisoformat(where[len(TIME) :]) - timedelta(milliseconds=1))
        else:
            begin = int(where) if where.isdecimal() else self._table.index_of(where)
        if begin > end.index:
            raise BadInput(
                f"startingVersion={begin} is above the end of the log of table {self._name}, which is at {end.index}: give an"
                " index up to that, or latest"
            )
        if self._consumer is not None:
            self._consumer.make(begin)
        admitted = self._admitted(end.origin, begin, end.index, limits)
        return Position(end.origin, admitted.end, admitted.begin, where)

    def _resumed(self, end: LogEnd, consumer: Any, limits: Limits) -> Position:
        """Return the end of batch 0 of a query whose consumer is there already: it begins where that stands."""
        index = self._reached(consumer.index)
        if consumer.snapshot is not None:
            # The version was taken before its node was written, and that took no longer than a request may.
            us = round(1_000_000 * (consumer.time.timestamp() - COMMAND_S))
            return Position(end.origin, index, index, SNAPSHOT, us)
        admitted = self._admitted(end.origin, index, max(index, end.index), limits)
        return Position(end.origin, admitted.end, admitted.begin, str(index))

    def _reached(self, index: int) -> int:
        """Return an index of the log; a query that is to end does not end before it."""
        if self._target is not None and self._target.index < index:
            self._target = replace(self._target, index=index)
        return index

    def _check_consumer(self, at: Position, index: int) -> None:
        """Check once that the consumer agrees with the checkpoint, whose next batch begins at an index."""
        if self._consumer is None or self._consumer.is_checked:
            return
        # A table of this name may be another one, which has no such consumer.
        self._check_same(at, self._watch.end(-1, 0.0, self._stream.timeout_s).origin)
        try:
            self._consumer.check(index)
        except ConsumerExpired:
            raise
        except OffsetExpired as error:
            self._consumer.make(self._behind_loss(index, error))

    def _move_consumer(self, at: Beginning | Position) -> None:
        if self._consumer is not None and isinstance(at, Position):
            self._consumer.move(at.index)

    def _next(self, at: Position, limits: Limits) -> Position | None:
        """Return the end of a batch that begins where another one has ended; None: there is nothing new."""
        passed_from, passed = self._passed
        after = max(at.index, passed) if passed_from == at.index else at.index
        end = self._end_after(at, after)
        admitted = self._admitted(at.origin, after, end, limits) if end > after else Admitted(after, after, False)
        if admitted.has_rows or admitted.begin > after:
            # What was passed, or is lost, is not asked for again.
            return Position(at.origin, admitted.end, admitted.begin if admitted.begin > at.index else None)
        self._passed = (at.index, admitted.end)
        is_due = admitted.end > at.index and time.monotonic() >= self._moved_at + MOVE_S
        return Position(at.origin, admitted.end, admitted.end) if is_due else None

    def _end_after(self, at: Position, after: int) -> int:
        """Return up to where a batch may go, having waited a while for more than `after`."""
        if self._target is not None:
            self._check_same(at, self._target.origin)
            if self._target.index < at.index:
                raise self._ahead(at, self._target.index)
            return self._target.index
        known = self._known = self._watch.end(after, self._stream.poll_s, self._stream.timeout_s)
        self._check_same(at, known.origin)
        if known.end >= at.index or self._verified >= at.index:
            return known.end
        # That replica is behind, or the log is another one.
        self._verified = self._log_end().index
        if self._verified < at.index:
            raise self._ahead(at, self._verified)
        return self._verified

    def _admitted(self, origin: str, begin: int, end: int, limits: Limits) -> Admitted:
        """Return how far a batch goes that begins at an index, and how much it has."""
        at, amount = begin, Amount()
        while at < end:
            try:
                page = self._page_at(origin, at, end)
            except (OffsetExpired, FeedGap) as error:
                if isinstance(error, FeedGap) and error.index > begin:
                    # Up to there everything can be read.
                    end = error.index
                    continue
                if amount.entries or at > begin:
                    break
                at = begin = self._behind_loss(begin, error)
                continue
            except TableReplaced as error:
                raise self._replaced(origin, str(error)) from error
            stopped, amount = self._stopped(page, amount, limits)
            if stopped is not None:
                return Admitted(begin, stopped, has_rows=True)
            at = page.body.index
        return Admitted(begin, at, has_rows=amount.entries > 0)

    def _page_at(self, origin: str, begin: int, end: int) -> FeedPage:
        """Return a page of the feed from an index on: of the last page, or a new one.  Errors as `feed_page`."""
        page = self._page
        # What entries have is a fact of the log.  Whether it is kept, the plan of the batch asks anew.
        if page is None or page.body.origin != origin or not page.body.start <= begin < page.body.index:
            page = self._page = self._table.feed_page(begin, end, of=origin, timeout_s=self._stream.timeout_s)
        body = page.body
        units = tuple(unit for unit in body.units if begin <= unit.index < end)
        return FeedPage(
            msgspec.structs.replace(body, start=begin, index=min(body.index, end), units=units), page.snapshot
        )

    def _stopped(self, page: FeedPage, amount: Amount, limits: Limits) -> tuple[int | None, Amount]:
        """Return the entry of a page before which the batch ends, None: it goes on, and how much it has then."""
        wanted = self._stream.selection.wanted(page)
        while True:
            try:
                index, units = next(wanted, (-1, ()))
            except NotAppendOnly as error:
                # What comes before it is a batch by itself.
                if amount.entries:
                    return error.index, amount
                raise
            if index < 0:
                return None, amount
            if not units:
                continue
            more = amount.plus(amount_of(page, units))
            if amount.entries and not limits.allow(more):
                return index, amount
            amount = more

    # --- the tasks of a batch -------------------------------------------------------------------------------------------

    def _fields(self) -> StructType:
        """Return the columns of the table among those that Spark was told."""
        names = FEED_FIELDS.names if self._stream.selection.is_feed else []
        return StructType([field for field in self._schema.fields if field.name not in names])

    def _snapshot(self, to: Position) -> list[InputPartition]:
        assert to.begin is not None, "a snapshot has the index at which it is taken"
        if to.begin == 0:
            return []
        marks = (to.begin - 1, to.us or 0) if self._stream.selection.is_feed else None
        try:
            found = snapshot_partitions(self._options, self._fields(), self._schema, to.begin, marks)
        except SnapshotExpired as error:
            raise SnapshotExpired(
                f"the first batch of the stream is table {self._name} as it was at {to.begin}, and that is not kept any more"
                f" ({error}). It was not finished in time: begin with a new checkpoint; table.set_keep('1 day') keeps versions"
                " for longer"
            ) from error
        # After it: the table had the parts when it still was this one.
        self._check_same(to, self._watch.end(-1, 0.0, self._stream.timeout_s).origin)
        return found

    def _planned(self, origin: str, begin: int, end: int) -> list[InputPartition]:
        """Pack what a batch reads of a range of the feed into tasks."""
        try:
            changes = self._table.changes(
                begin,
                end,
                where=self._options.get("where"),
                of=origin,
                lease_s=lease_of(self._options),
                timeout_s=self._stream.timeout_s,
            )
        except TableReplaced as error:
            raise self._replaced(origin, str(error)) from error
        with ExitStack() as leased:
            leased.callback(changes.close)
            try:
                columns = tuple(columns_of(self._fields(), changes.definition))
            except SchemaMismatch as error:
                index = changes.altered[-1][0] if changes.altered else -1
                raise SchemaChanged(
                    f"{error}: the columns of the table have changed, and those that the query began with are not there any"
                    " more. Start the query again with the same checkpoint: it goes on where it is, and shows the present"
                    " columns",
                    index,
                ) from error
            units = [
                [unit for _, some in self._stream.selection.wanted(page) for unit in some] for page in changes.pages
            ]
            plan = FeedPlan(self._options, self._schema, columns)
            found = feed_partitions(plan, changes, units, tasks_of(self._options))
            # The tasks renew the leases from here on.
            leased.pop_all()
        return found

    # --- what is wrong --------------------------------------------------------------------------------------------------

    def _behind_loss(self, begin: int, error: OffsetExpired | FeedGap) -> int:
        """Return where the stream goes on behind what is lost.  Raises the error with advice, unless that was asked for."""
        if error.index < 0 and isinstance(error, OffsetExpired):
            raise error
        if self._stream.fails_on_loss or error.index < 0:
            if isinstance(error, FeedGap):
                raise FeedGap(
                    f"table {self._name} has lost rows at {error.index} of its log, and no replica can list them ({error})."
                    " Start anew with a new checkpoint and a new target; or go on behind that entry, with failOnDataLoss=false",
                    error.index,
                )
            raise OffsetExpired(
                f"the stream stands at {begin} in the log of table {self._name}, and the feed begins at {error.index}: what"
                f" entries {begin} to {error.index - 1} brought is not kept any more, because the table keeps its feed for"
                f" {self._table.definition.feed}. Start anew with a new checkpoint and a new target; or go on at {error.index}"
                " without these rows, with failOnDataLoss=false. Let table.set_feed keep the feed for longer than the query"
                " pauses",
                error.index,
            )
        behind = error.index + 1 if isinstance(error, FeedGap) else error.index
        _log.warning(
            "table %s: rows of entries %d to %d are lost to the stream, which goes on (failOnDataLoss=false): %s",
            *(self._name, begin, behind - 1, error),
        )
        return behind

    def _check_same(self, position: Position, origin: str) -> None:
        if position.origin != origin:
            raise self._replaced(position.origin, f"it is {origin} now")

    def _replaced(self, was: str, why: str) -> TableReplaced:
        return TableReplaced(
            f"the checkpoint belongs to another table: it has read {was} by the name {self._name} ({why}). The table was"
            " dropped and created again, or restored from a disk. Begin with a new checkpoint; the sink keeps the rows that it"
            " has of the earlier table"
        )

    def _ahead(self, position: Position, tail: int) -> BadInput:
        return BadInput(
            f"the stream stands at {position.index}, and the log of table {self._name} ends at {tail}: the checkpoint is of"
            " another log, or coordination has lost entries. Begin with a new checkpoint"
        )


__all__ = ["MOVE_S", "TableStream"]
