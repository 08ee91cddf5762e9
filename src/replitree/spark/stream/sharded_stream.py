"""Reading a sharded table as a stream: first what it has at a cut, then what comes, each row once.

A position is a cut, so a batch has all of a transaction or nothing of it: rows that one insert has brought into several shards
are in one batch.  Rows that move between shards are in none (`replitree.client.sharded.feed.sharded_feed`).

=============================================================  ===========================================================
offset                                                         what it says
=============================================================  ===========================================================
``{"v": 1, "start": "snapshot"}``                              as of `replitree.spark.stream.positions`
``{"v": 1, "t": "9f….5f0c", "z": "e@41"}``                     everything up to this cut was read
``{"v": 1, "t": "9f….5f0c", "z": "e@41", "f": "e@30", …}``     the same, and the batch that ends here begins at the cut
                                                               ``e@30``; ``start`` and ``us`` as there
=============================================================  ===========================================================

Order of a batch, and guarantees: as of `replitree.spark.stream.stream_read`.  While nothing happens, one request waits at a
replica of each shard; every `LOOK_S` coordination is asked for the map, and each shard for a cut.

Its ``consumer`` is moved as that of any table (`replitree.spark.stream.stream_consumer`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from replitree.client.change.command import COMMAND_S
from replitree.client.read.feed import FeedPage, FeedUnit
from replitree.client.read.feed_watch import FeedWatch
from replitree.client.sharded.feed.sharded_feed import ShardedChanges
from replitree.client.sharded.shard_table import ShardTable
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.sharded.side_by_side import SideBySide
from replitree.errors import BadInput, ReplitreeError, SchemaMismatch, SnapshotExpired
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded.cut import Cut, CutLevel, parse_cut
from replitree.spark.read.feed_read import FEED_FIELDS, FeedPlan, feed_partitions, lease_of, tasks_of
from replitree.spark.session.types import columns_of
from replitree.spark.stream.admission import Amount, Limits, NotAppendOnly, amount_of
from replitree.spark.stream.positions import SNAPSHOT, VERSION, Beginning, Offset, decode_offset
from replitree.spark.stream.snapshot_batch import snapshot_partitions
from replitree.spark.stream.source_options import TIME, StreamOptions
from replitree.spark.stream.stream_consumer import StreamConsumer, number_of
from replitree.wire.feed_errors import ConsumerExpired, FeedGap, OffsetExpired, SchemaChanged, TableReplaced

LOOK_S = 5.0
"""How often a stream without new rows asks for the map and for a new cut, in seconds."""

MOVE_S = 60.0
"""How often a stream goes past transactions without rows by an empty batch, in seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CutPosition:
    """Where a stream stands: `begin`, `where` and `us` as of `replitree.spark.stream.positions.Position`.

    Attributes
    ----------
    origin
        Which table: its id and incarnation.
    cut
        Everything up to there was read.
    begin
        Behind which cut the batch begins that ends here; None: where the one before it ends.
    where
        Of batch 0: the `Beginning` that was resolved.
    us
        Of a snapshot: the `_commit_timestamp` of its rows, in microseconds since 1970.
    """

    origin: str
    cut: str
    begin: str | None = None
    where: str = ""
    us: int | None = None

    def encode(self) -> Offset:
        """Return the offset.

        Examples
        --------
        >>> CutPosition("9f.5f0c", "e@41", "e@30", "earliest").encode()
        {'v': 1, 't': '9f.5f0c', 'z': 'e@41', 'f': 'e@30', 'start': 'earliest'}
        """
        found: Offset = {"v": VERSION, "t": self.origin, "z": self.cut}
        found |= {} if self.begin is None else {"f": self.begin}
        found |= {"start": self.where} if self.where else {}
        return found if self.us is None else found | {"us": self.us}


def decode_cut_offset(offset: Mapping[str, Any]) -> Beginning | CutPosition:
    """Read an offset of a checkpoint.

    Raises
    ------
    BadInput
        It is none, or that of a table that is not sharded.

    Examples
    --------
    >>> decode_cut_offset({"v": 1, "t": "9f.5f0c", "z": "e@41"})
    CutPosition(origin='9f.5f0c', cut='e@41', begin=None, where='', us=None)
    """
    origin, cut, begin, us = (offset.get(name) for name in ("t", "z", "f", "us"))
    numbers = isinstance(begin, str | None) and isinstance(us, int | None)
    if offset.get("v") == VERSION and isinstance(origin, str) and isinstance(cut, str) and numbers:
        parse_cut(cut)
        return CutPosition(origin, cut, begin, str(offset.get("start", "")), us)
    found = decode_offset(offset)
    if not isinstance(found, Beginning):
        raise BadInput(
            "the checkpoint is of a table that was not sharded: it has read an index of a log. Begin with a new checkpoint"
        )
    return found


class ShardedStream:
    """Reads one sharded table for one query.  One thread uses it.

    Parameters
    ----------
    options, schema
        The options of the stream, by their names in lower case, and the columns that Spark was told.
    stream
        The options, read.
    table
        The table.
    now_ms
        Asks coordination for the time, in milliseconds since 1970.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        stream: StreamOptions,
        table: ShardedTable,
        now_ms: Callable[[], int],
    ) -> None:
        self._options, self._schema, self._stream, self._table = options, schema, stream, table
        self._beside, self._now_ms, self._watches = SideBySide(), now_ms, dict[str, FeedWatch]()
        name = stream.consumer
        self._consumer = None if name is None else StreamConsumer(name, table, stream.timeout_s)
        self._target: str | None = None
        self._newest: CutPosition | None = None
        # Up to where the log of each shard has nothing that was not looked at.
        self._looked: dict[str, int] = {}
        self._looked_at = float("-inf")
        self._passed: tuple[str, str] | None = None
        self._moved_at = float("-inf")
        # Whether a log has gone on since the last batch.
        self._has_entries = False

    def fix_end(self) -> None:
        """Let the stream end at a cut of now, which has all that was acknowledged."""
        self._target = self._end("linearizable")

    def newest(self) -> Offset | None:
        """Return the newest cut that was looked at; None: there is none."""
        return None if self._newest is None else self._newest.encode()

    def latest(self, start: Offset, limits: Limits) -> Offset:
        """Return where the batch after a position ends; `start` itself, if there is nothing new.

        Errors as of `replitree.spark.stream.stream_read.TableStream.latest`.
        """
        at = decode_cut_offset(start)
        if isinstance(at, CutPosition):
            self._check_consumer(at, at.cut)
        found = self._begun(at, limits) if isinstance(at, Beginning) else self._next(at, limits)
        if found is None:
            # Spark asks for the next batch when the last one is finished, and commits that only with the next one.
            self._move_consumer(at)
            return start
        self._moved_at, self._has_entries = time.monotonic(), False
        return found.encode()

    def commit(self, end: Offset) -> None:
        """Take note that everything up to an offset was read: the consumer moves there, if the stream has one."""
        self._move_consumer(decode_cut_offset(end))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch; errors as of `replitree.spark.stream.stream_read.TableStream.partitions`."""
        before, to = decode_cut_offset(start), decode_cut_offset(end)
        if isinstance(to, Beginning):
            return []
        if isinstance(before, CutPosition):
            self._check_same(before, to.origin)
            if parse_cut(to.cut).zxid < parse_cut(before.cut).zxid:
                raise BadInput(
                    f"the checkpoint goes backwards: its batch begins at {before.cut} of table {self._table.name}, and ends at"
                    f" {to.cut}. Its files were changed: begin with a new checkpoint"
                )
        begins = before.cut if isinstance(before, CutPosition) else to.begin
        self._check_consumer(to, begins or to.cut)
        if to.where == SNAPSHOT:
            return self._snapshot(to)
        begin = to.begin or (before.cut if isinstance(before, CutPosition) else to.cut)
        if begin == to.cut:
            return []
        found, until = list[InputPartition](), to.cut
        while begin != to.cut:
            try:
                found += self._planned(to.origin, begin, until)
            except (OffsetExpired, FeedGap) as error:
                whole = None if self._stream.fails_on_loss else self._before_gap(begin, error)
                if whole is None:
                    begin, until = self._behind_loss(begin, to.cut, error), to.cut
                else:
                    until = whole
            else:
                begin, until = until, to.cut
        return found

    # --- where a batch ends ---------------------------------------------------------------------------------------------

    def _end(self, level: CutLevel) -> str:
        return self._table.cut_now(level, timeout_s=self._stream.timeout_s)

    def _begun(self, beginning: Beginning, limits: Limits) -> CutPosition:
        """Return the end of batch 0, and with it where the query begins."""
        where, origin = beginning.where, self._table.origin
        # Before the cut: what comes behind it has a later time.
        us = 1_000 * self._now_ms() - 1
        end = self._target or self._end("linearizable")
        known = None if self._consumer is None else self._consumer.find()
        if known is not None:
            return self._resumed(end, known, limits)
        if where == SNAPSHOT:
            if limits.any:
                _log.warning("the first batch of table %s is all that it has: limits do not cut it", self._table.name)
            end = end if self._consumer is None else self._reached(self._consumer.make(None))
            return CutPosition(origin, end, end, where, us)
        if where == "latest":
            begin = end
        elif where == "earliest":
            begin = self._table.feed_from(timeout_s=self._stream.timeout_s)
        elif where.startswith(TIME):
            # The table at a time has what was written at that time, and the stream has it, too.
            begin = self._table.cut_at(datetime.fromisoformat(where[len(TIME) :]) - timedelta(milliseconds=1))
        elif "@" in where:
            begin = where
        else:
            raise BadInput(
                f"table {self._table.name} is sharded, and has no index over all shards: startingVersion is snapshot, earliest,"
                " latest, or a cut, as a snapshot tells it in its attribute cut"
            )
        if parse_cut(begin).zxid > parse_cut(end).zxid:
            raise BadInput(f"startingVersion={begin} is later than {end}, which is now: give an earlier cut, or latest")
        if self._consumer is not None:
            self._consumer.make(begin)
        stopped, _ = self._admitted(CutPosition(origin, begin), end, limits)
        return CutPosition(origin, stopped.cut, stopped.begin or begin, where)

    def _resumed(self, end: str, consumer: Any, limits: Limits) -> CutPosition:
        """Return the end of batch 0 of a query whose consumer is there already: it begins where that stands."""
        cut, origin = self._reached(consumer.cut), self._table.origin
        if consumer.snapshot is not None:
            # The cut was taken before the consumer's node was written, and that took no longer than a request may.
            us = round(1_000_000 * (consumer.time.timestamp() - COMMAND_S))
            return CutPosition(origin, cut, cut, SNAPSHOT, us)
        stopped, _ = self._admitted(CutPosition(origin, cut), max(end, cut, key=number_of), limits)
        return CutPosition(origin, stopped.cut, stopped.begin or cut, cut)

    def _reached(self, cut: str) -> str:
        """Return a cut; a query that is to end does not end before it."""
        if self._target is not None:
            self._target = max(self._target, cut, key=number_of)
        return cut

    def _check_consumer(self, at: CutPosition, cut: str) -> None:
        """Check once that the consumer agrees with the checkpoint, whose next batch begins at a cut."""
        if self._consumer is None or self._consumer.is_checked:
            return
        # A table of this name may be another one, which has no such consumer.
        self._check_same(at, self._table.origin)
        try:
            self._consumer.check(cut)
        except ConsumerExpired:
            raise
        except OffsetExpired:
            # It begins where the feed does, if the stream may.
            earliest = self._table.feed_from(timeout_s=self._stream.timeout_s)
            gone = OffsetExpired(f"the feed begins at {earliest}", number_of(earliest))
            self._consumer.make(self._behind_loss(cut, earliest, gone))

    def _move_consumer(self, at: Beginning | CutPosition) -> None:
        if self._consumer is not None and isinstance(at, CutPosition):
            self._consumer.move(at.cut)

    def _next(self, at: CutPosition, limits: Limits) -> CutPosition | None:
        """Return the end of a batch that begins where another one has ended; None: there is nothing new."""
        self._check_same(at, self._table.origin)
        passed_from, passed = self._passed or ("", "")
        after = passed if passed_from == at.cut else at.cut
        end = self._target or (self._end("consistent") if self._has_come(after) else after)
        if parse_cut(end).zxid > parse_cut(after).zxid:
            stopped, has_rows = self._admitted(CutPosition(at.origin, after), end, limits)
            if has_rows or stopped.begin is not None:
                begin = stopped.begin or (after if after != at.cut else None)
                return CutPosition(at.origin, stopped.cut, begin)
            after = stopped.cut
            self._passed = (at.cut, after)
        is_due = self._has_entries and after != at.cut and time.monotonic() >= self._moved_at + MOVE_S
        return CutPosition(at.origin, after, after) if is_due else None

    def _has_come(self, after: str) -> bool:
        """Wait a while until a shard has entries that were not looked at; True also when that is not known."""
        is_looked_at = self._newest is not None and self._newest.cut == after and self._looked
        # A shard that was made meanwhile is known only by the map.
        if not is_looked_at or time.monotonic() >= self._looked_at + LOOK_S:
            return True

        def has_more(shard: ShardTable) -> bool:
            watch, seen = self._watches.setdefault(shard.name, shard.watch_feed()), self._looked[shard.name]
            try:
                return watch.end(seen, self._stream.poll_s, self._stream.timeout_s).end > seen
            except ReplitreeError:
                # What is wrong the next look finds out.
                return True

        shards = [each for each in self._table.find(None).all if each.name in self._looked]
        return any(self._beside.each(has_more, shards))

    def _admitted(self, at: CutPosition, end: str, limits: Limits) -> tuple[CutPosition, bool]:
        """Return the end of a batch behind a cut, with where it begins if rows are lost, and whether it has rows."""
        start, changes = at.cut, None
        while changes is None:
            try:
                changes = self._changes(at.origin, start, end, lease_s=0)
            except (OffsetExpired, FeedGap) as error:
                whole = self._before_gap(start, error)
                if whole is not None:
                    # Up to there everything can be read.
                    end = whole
                else:
                    start = self._behind_loss(start, end, error)
        begin = None if start == at.cut else start
        with changes:
            self._looked, self._looked_at = (
                {name: last for name, (_, last) in changes.positions.items()},
                time.monotonic(),
            )
            self._has_entries |= any(last > first for first, last in changes.positions.values())
            amount = Amount()
            ensemble = parse_cut(end).ensemble
            wanted = self._wanted(changes)
            while True:
                try:
                    zxid, some = next(wanted, (-1, ()))
                except NotAppendOnly as error:
                    # What comes before it is a batch by itself.
                    if amount.entries:
                        return CutPosition(at.origin, str(Cut(ensemble, Zxid(error.index - 1))), begin), True
                    raise
                if zxid < 0:
                    break
                more = amount
                for page, units in some:
                    more = more.plus(amount_of(page, units))
                if some:
                    # All shards together are one entry of the sharded table.
                    more = Amount(amount.entries + 1, more.parts, more.bytes, more.rows)
                if amount.entries and not limits.allow(more):
                    self._newest = None
                    return CutPosition(at.origin, str(Cut(ensemble, Zxid(zxid - 1))), begin), True
                amount = more
        self._newest = CutPosition(at.origin, end)
        return CutPosition(at.origin, end, begin), amount.entries > 0

    def _wanted(
        self, changes: ShardedChanges
    ) -> Iterator[tuple[int, tuple[tuple[FeedPage, tuple[FeedUnit, ...]], ...]]]:
        """Give each transaction, and what is read of it: units, each with its page."""
        of_shards = (
            (zxid, page, units) for page in changes.pages for zxid, units in self._stream.selection.wanted(page)
        )
        for zxid, its in groupby(of_shards, lambda each: each[0]):
            yield zxid, tuple((page, units) for _, page, units in its if units)

    # --- the tasks of a batch -------------------------------------------------------------------------------------------

    def _fields(self) -> StructType:
        """Return the columns of the table among those that Spark was told."""
        names = FEED_FIELDS.names if self._stream.selection.is_feed else []
        return StructType([field for field in self._schema.fields if field.name not in names])

    def _snapshot(self, to: CutPosition) -> list[InputPartition]:
        self._check_same(to, self._table.origin)
        marks = (parse_cut(to.cut).zxid, to.us or 0) if self._stream.selection.is_feed else None
        try:
            return snapshot_partitions(self._options, self._fields(), self._schema, to.cut, marks)
        except SnapshotExpired as error:
            raise SnapshotExpired(
                f"the first batch of the stream is table {self._table.name} as it was at {to.cut}, and that is not kept any"
                f" more ({error}). It was not finished in time: begin with a new checkpoint; table.set_keep('1 day') keeps"
                " versions for longer"
            ) from error

    def _planned(self, origin: str, begin: str, end: str) -> list[InputPartition]:
        """Pack what a batch reads of a range of the feed into tasks."""
        if begin == end:
            return []
        changes = self._changes(origin, begin, end, lease_of(self._options))
        try:
            try:
                columns = tuple(columns_of(self._fields(), changes.definition))
            except SchemaMismatch as error:
                raise SchemaChanged(
                    f"{error}: the columns of the table have changed, and those that the query began with are not there any"
                    " more. Start the query again with the same checkpoint: it goes on where it is, and shows the present"
                    " columns",
                    changes.altered[-1][0] if changes.altered else -1,
                ) from error
            # Tasks read the pages of the shards one by one, so the order of the transactions is not asked for.
            of_shards = changes.plain
            units = [
                [unit for _, some in self._stream.selection.wanted(page) for unit in some] for page in of_shards.pages
            ]
            plan = FeedPlan(self._options, self._schema, columns)
            # The tasks renew the leases from here on.
            return feed_partitions(plan, of_shards, units, tasks_of(self._options))
        except BaseException:
            changes.close()
            raise

    def _changes(self, origin: str, begin: str, end: str, lease_s: int) -> ShardedChanges:
        try:
            return self._table.changes(
                begin,
                end,
                where=self._options.get("where"),
                of=origin,
                lease_s=lease_s,
                timeout_s=self._stream.timeout_s,
            )
        except TableReplaced as error:
            raise self._replaced(origin, str(error)) from error

    # --- what is wrong --------------------------------------------------------------------------------------------------

    @staticmethod
    def _before_gap(begin: str, error: OffsetExpired | FeedGap) -> str | None:
        """Return the cut up to which everything can be read behind another one; None: nothing can."""
        start = parse_cut(begin)
        if not isinstance(error, FeedGap) or error.index - 1 <= start.zxid:
            return None
        return str(Cut(start.ensemble, Zxid(error.index - 1)))

    def _behind_loss(self, begin: str, end: str, error: OffsetExpired | FeedGap) -> str:
        """Return the cut where the stream goes on behind what is lost; raises the error with advice, if it is to stop."""
        # The cut of a gap has the transaction whose rows are lost.
        earliest = str(Cut(parse_cut(end).ensemble, Zxid(error.index)))
        if isinstance(error, FeedGap) and (self._stream.fails_on_loss or error.index < 0):
            raise FeedGap(
                f"table {self._table.name} has lost rows ({error}). Start anew with a new checkpoint and a new target; or go on"
                f" behind transaction {error.index}, without all of its rows, with failOnDataLoss=false",
                error.index,
            )
        if self._stream.fails_on_loss or error.index < 0:
            raise OffsetExpired(
                f"the stream stands at {begin} of table {self._table.name}, and the feed begins at {earliest}: what came in"
                f" between is not kept any more, because the table keeps its feed for {self._table.definition.feed}. Start anew"
                f" with a new checkpoint and a new target; or go on at {earliest} without these rows, with"
                " failOnDataLoss=false. Let table.set_feed keep the feed for longer than the query pauses",
                error.index,
            )
        _log.warning(
            "table %s: rows behind %s up to %s are lost to the stream, which goes on (failOnDataLoss=false): %s",
            *(self._table.name, begin, earliest, error),
        )
        # A batch that was planned before the loss may end in what is lost.
        return end if parse_cut(earliest).zxid > parse_cut(end).zxid else earliest

    def _check_same(self, position: CutPosition, origin: str) -> None:
        if position.origin != origin:
            raise self._replaced(position.origin, f"it is {origin} now")

    def _replaced(self, was: str, why: str) -> TableReplaced:
        return TableReplaced(
            f"the checkpoint belongs to another table: it has read {was} by the name {self._table.name} ({why}). The table was"
            " dropped and created again. Begin with a new checkpoint; the sink keeps the rows that it has of the earlier table"
        )


__all__ = ["CutPosition", "ShardedStream", "decode_cut_offset"]
