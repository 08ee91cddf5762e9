"""Reads of several shards at one cut: which cut, and the snapshots of all shards there.

Guarantees, at the levels ``consistent`` and ``linearizable``:

* All shards are shown at one transaction of coordination: whatever one commit has appended to several logs is shown in all of
  them or in none.
* The cuts of one connection never go back, and each has what the connection has written before.
* ``linearizable``: and everything that any client was told of before the read began.
* A shard that can't be read makes the read fail.  It never leaves out rows.

===============================================  ===========================================================================
what a replica answers, or does not              what happens
===============================================  ===========================================================================
it has not heard of the cut, or is behind        the other replicas of the shard are asked, again and again, until the time
no answer                                        is up (`replitree.client.transport.routing`)
the cut is gone: entries or parts were removed   all shards are read at a newer cut; a cut that the caller has given is
                                                 looked for at the other replicas, then the read fails
the same, and a tag of the table names the cut   each shard is read at the index that the tag has of it
it is of another ensemble than the others, or    the read fails, because no cut has both
than the connection's last cut
(the map is read beside the snapshots, and is    all shards are read again, by the new map
another one than the known one)
(a shard was removed from the map that still     the read takes a later cut; at a cut that the caller has given it
had rows at the cut)                             fails
===============================================  ===========================================================================

*One server.*  Where one server has a replica of each shard that a read asks, one request to it does all of this
(`replitree.client.sharded.server_reads`).  Otherwise, and if it fails, the replicas of each shard are asked.

*Own writes.*  The connection knows the index of each of its writes in the log of each shard (`Written`).  The first read that
follows asks a replica of that shard for the transaction of the entry, which is the same in all shards, and reads at a cut that
is not before it.  Of an insert with a quorum only one shard's index is known: that shard is asked, also when its rows are not
wanted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from replitree.client.insert.terms import Written
from replitree.client.read.read_options import CutPoint, ReadOptions
from replitree.client.read.snapshot import Snapshot
from replitree.client.sharded.server_reads import ServerReads
from replitree.client.sharded.shard_table import ShardTable, left_s
from replitree.client.sharded.side_by_side import SideBySide
from replitree.errors import BadInput, ReplicaUnavailable, ReplitreeError, SnapshotExpired, Unavailable
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.protocol.sharded.cut import CUT_LEVELS, Cut, CutLevel, OtherEnsemble, cut_of, parse_cut
from replitree.protocol.sharded.moves.reading import is_map_at

CUTS_MAX = 4
"""How many cuts a read tries, each newer than the one before, when parts of them have left the table already."""


@dataclass(frozen=True, slots=True)
class CutOptions:
    """How a sharded table is read; see `ShardedTable.snapshot`.

    Attributes
    ----------
    level
        What the read is promised; None: ``consistent``.
    as_of
        The cut to read at, in the place of a level.
    where
        The condition of the reads that follow.
    timeout_s
        When to give up, in seconds.
    lease_s
        As of `Table.snapshot`.
    skip_unavailable
        Leave out shards that can't be read; at the level ``eventual`` only.

    Raises
    ------
    BadInput
        These contradict each other, the level is unknown, or the cut is none.
    """

    level: CutLevel | None = None
    as_of: str | None = None
    where: str | None = None
    timeout_s: float = 30.0
    lease_s: float | None = None
    skip_unavailable: bool = False

    def __post_init__(self) -> None:
        """Check it."""
        if self.level is not None and self.level not in CUT_LEVELS:
            raise BadInput(f"level {self.level!r} is unknown: use {', '.join(CUT_LEVELS)} for a sharded table")
        if self.as_of is not None and self.level is not None:
            raise BadInput("as_of says exactly what is included: give it or level, not both")
        if self.as_of is not None:
            parse_cut(self.as_of)
        if self.skip_unavailable and self.level != "eventual":
            raise BadInput("only reads at the level eventual can skip shards: give level='eventual', too")


class Shards(NamedTuple):
    """Shards of a table, by the map that the handle knows.

    Attributes
    ----------
    wanted
        Those that can have rows for the condition.
    all
        All of them.
    map_id
        Tells the map from every other one that the table, or another table of the name, has had.
    has_moves
        Whether buckets move.
    since
        The first cut that these shards have whole: others had rows before, and were removed.
    """

    wanted: Sequence[ShardTable]
    all: Sequence[ShardTable]
    map_id: object = None
    has_moves: bool = False
    since: Zxid = BEFORE_ALL


class ShardedSource(Protocol):
    """The table that is read."""

    @property
    def written(self) -> Written:
        """The cuts that this connection has read of the table."""

    def find(self, where: str | None) -> Shards:
        """Return the shards that can have rows for a condition, and all others, by the map that is known."""

    def has_map(self, map_id: object) -> bool:
        """Read the map; tell whether it is a certain one.  Raises as `map_now`."""

    def tagged(self, cut: str) -> Sequence[tuple[ShardTable, int]] | None:
        """Return which shards a tag keeps what they had at a cut for, and the index of each; None: no tag does."""

    def map_now(self, used: object) -> tuple[object, Zxid]:
        """Read the map; return which one it is, and the transaction that wrote it.

        The table knows it afterwards, if it is another one than `used`.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """


class TakenShards(NamedTuple):
    """What a read has taken.

    Attributes
    ----------
    shards
        The snapshot of each shard, in order.
    cut
        At which cut; None: each at the position that its replica had, or there is no shard to read.
    missing
        Names of the shards that were left out.
    """

    shards: tuple[Snapshot, ...]
    cut: str | None = None
    missing: tuple[str, ...] = ()


class _Chosen(NamedTuple):
    """A cut, and what of the connection's writes it has: of each shard the index of an entry."""

    cut: Cut
    point: CutPoint
    has: Sequence[tuple[ShardTable, int]] = ()


_Taken: TypeAlias = Snapshot | tuple[object, Zxid] | None
"""A snapshot, or which map there is and the transaction that wrote it; None: the shard is left out."""


class CutReads:
    """Reads one sharded table.  Any thread may use it.

    Parameters
    ----------
    table
        The table.
    beside
        Asks several shards at once.
    """

    def __init__(self, table: ShardedSource, beside: SideBySide) -> None:
        self._table = table
        self._beside = beside
        self._server = ServerReads()

    def take(self, options: CutOptions) -> TakenShards:
        """Return a snapshot of each shard that can have rows for a condition; errors as `ShardedTable.snapshot`."""
        deadline, attempt = time.monotonic() + options.timeout_s, 0
        while True:
            attempt += 1
            found = self._table.find(options.where)
            try:
                taken = self._take(found, options, deadline)
            except ReplitreeError as error:
                if isinstance(error, SnapshotExpired) and options.as_of is not None:
                    kept = self._table.tagged(options.as_of)
                    if kept is not None:
                        return self._take_tagged(kept, options, deadline)
                # By another map other shards had been asked, or a table that is there.
                if self._table.has_map(found.map_id) and not (
                    isinstance(error, SnapshotExpired)
                    and options.as_of is None
                    and attempt < CUTS_MAX
                    and left_s(deadline)
                ):
                    raise
                continue
            if taken is not None:
                return taken

    def reached(self, options: CutOptions) -> tuple[Cut, Shards]:
        """Return the cut that a read would be at, and the shards of the table there, with those that were made since.

        Parameters and errors as of `take`.
        """
        deadline = time.monotonic() + options.timeout_s
        while True:
            found = self._table.find(None)
            try:
                chosen = self._choose(found, options, deadline)
            except ReplitreeError:
                # A shard of the map that this handle knows may have been removed.
                if self._table.has_map(found.map_id):
                    raise
                continue
            # After the cut was chosen, as for a read: so no shard of the cut is missing.
            if self._table.has_map(found.map_id):
                return chosen.cut, found

    def needed(self, found: Shards, where: str | None, start: Cut) -> Sequence[ShardTable]:
        """Return the shards that can have changes of matching rows behind a cut, at least one.

        Parameters
        ----------
        found
            The shards of the table at a later cut, as of `reached`.
        where
            The condition.
        start
            The cut.
        """
        if where is None:
            return found.all
        pruned = self._table.find(where)
        now, written = self._table.map_now(found.map_id)
        # A map that is newer than the cut does not tell which shards had the buckets there.
        is_same = pruned.map_id == found.map_id and is_map_at(start.zxid, found.map_id, now, written)
        return (pruned.wanted or found.all[:1]) if is_same else found.all

    def is_unchanged(self, known: Sequence[Snapshot], options: CutOptions) -> bool:
        """Tell whether `take` would return snapshots that are kept; errors as `take`."""
        deadline = time.monotonic() + options.timeout_s
        found = self._table.find(None)
        if not self._table.has_map(found.map_id):
            return False
        if [each.definition.table_id for each in known] != [each.definition.table_id for each in found.all]:
            return False
        if not all(each.tag for each in known):
            return False
        chosen = self._choose(found, options, deadline)
        same = self._beside.each(
            lambda each: each[0].is_same_at(chosen.point, each[1].tag, left_s(deadline)),
            list(zip(found.all, known, strict=True)),
        )
        return all(same)

    def _take(self, found: Shards, options: CutOptions, deadline: float) -> TakenShards | None:
        """Take a snapshot of each shard; None: the map is another one, so these may be the wrong shards."""
        # While buckets move, rows leave one shard and come to another: only a cut has each of them once.
        is_torn = options.level == "eventual" and (options.skip_unavailable or not found.has_moves)
        is_eventual = is_torn or not found.wanted
        at_one = None if is_eventual or options.as_of is not None else self._take_at_one(found, options, deadline)
        chosen, (read, *each_taken) = at_one or self._take_each(found, options, deadline, is_eventual=is_eventual)
        assert isinstance(read, tuple)
        now, written = read
        is_changed = now != found.map_id
        # A map that is newer than the cut does not tell which shard had which buckets there: then all shards are asked.
        is_pruned = chosen is not None and len(found.wanted) < len(found.all)
        is_wrong = is_pruned and chosen is not None and not is_map_at(chosen.cut.zxid, found.map_id, now, written)
        if is_changed or is_wrong:
            for each in each_taken:
                _close(each)
            return None if is_changed else self._take(found._replace(wanted=found.all), options, deadline)
        if chosen is not None and options.as_of is None:
            # In this order: another thread that takes a write for included must find the cut that has it.
            self._table.written.saw_cut(chosen.cut)
            for shard, index in chosen.has:
                shard.written.add_to_cut(index)
        missing = tuple(shard.name for shard, each in zip(found.wanted, each_taken, strict=True) if each is None)
        shards = tuple(each for each in each_taken if isinstance(each, Snapshot))
        return TakenShards(shards, None if chosen is None else str(chosen.cut), missing)

    def _take_each(
        self, found: Shards, options: CutOptions, deadline: float, *, is_eventual: bool
    ) -> tuple[_Chosen | None, Sequence[_Taken]]:
        """Choose a cut, and ask the replicas of each shard; return the cut, the map and the snapshots."""
        chosen = None if is_eventual else self._choose(found, options, deadline)

        def take(shard: ShardTable | None) -> _Taken:
            # After the cut was chosen: so the map is not older than the cut.  Beside the snapshots, because that takes no time.
            if shard is None:
                return self._table.map_now(found.map_id)
            if chosen is not None:
                return shard.snapshot_at(chosen.point, options.lease_s, options.where, left_s(deadline))
            try:
                return shard.snapshot(lease_s=options.lease_s, where=options.where, timeout_s=options.timeout_s)
            except Unavailable:
                if not options.skip_unavailable:
                    raise
                return None

        return chosen, self._beside.each(take, (None, *found.wanted), _close)

    def _take_at_one(
        self, found: Shards, options: CutOptions, deadline: float
    ) -> tuple[_Chosen | None, Sequence[_Taken]] | None:
        """Ask one server for what `_take_each` returns; None: the replicas of each shard are to be asked."""
        level = options.level if options.level == "linearizable" else "consistent"
        # Before anything is asked: what is written from here on need not be in the cut.
        has, last = self._own_writes(found, level), self._table.written.cut
        asked = ReadOptions(where=options.where, lease_s=options.lease_s, cut=CutPoint(""))
        told = self._server.take(
            found.wanted, level, {} if level == "linearizable" else dict(has), last, asked, deadline
        )
        if told is None:
            return None
        # A server that is behind may know an older map than this handle; of another ensemble the other way tells what is wrong.
        is_other = told.map_id != found.map_id or told.cut.zxid < found.since
        if is_other or (last is not None and last.ensemble != told.cut.ensemble):
            for each in told.shards:
                each.close()
            return None
        return _Chosen(told.cut, CutPoint(str(told.cut)), has), ((told.map_id, told.map_written), *told.shards)

    def _own_writes(self, found: Shards, level: CutLevel) -> list[tuple[ShardTable, int]]:
        """Return the shards of which the connection has written entries that its last cut does not have, and their indexes."""
        highest = [(each, each.written.highest) for each in found.all]
        has = [(each, index) for each, index in highest if index > each.written.in_cut]
        if level == "linearizable":
            return has
        wanted = {each.name for each in found.wanted}
        # All shards of a write tell the same, but for the one that knows the end of a quorum.
        return [
            (each, index) for each, index in has if each.name in wanted or each.written.settled > each.written.in_cut
        ]

    def _take_tagged(self, kept: Sequence[tuple[ShardTable, int]], options: CutOptions, deadline: float) -> TakenShards:
        """Take a snapshot of each shard, with its index, that a tag keeps what it had at the cut for."""

        def take(each: tuple[ShardTable, int]) -> Snapshot:
            shard, index = each
            return shard.snapshot(as_of=index, lease_s=options.lease_s, where=options.where, timeout_s=left_s(deadline))

        return TakenShards(tuple(self._beside.each(take, kept, Snapshot.close)), options.as_of)

    def _choose(self, found: Shards, options: CutOptions, deadline: float) -> _Chosen:
        """Return the cut to read at."""
        if options.as_of is not None:
            cut = parse_cut(options.as_of)
            if cut.zxid < found.since:
                raise SnapshotExpired(
                    f"a shard of the table had rows at the cut {cut} and was removed since: cuts can be read from transaction"
                    f" {found.since} on"
                )
            return _Chosen(cut, CutPoint(str(cut), is_given=True))
        # Before anything is asked: what is written from here on need not be in the cut.
        has = self._own_writes(found, options.level or "consistent")
        if options.level == "linearizable":
            cut = parse_cut(found.wanted[0].advance_clock(left_s(deadline)).cut)
            self._check_last((cut,))
            return _Chosen(cut, CutPoint(str(cut), has_clock=True), has)
        needed = dict(has)
        asked = list({each.name: each for each in (*found.wanted, *needed)}.values())
        told = self._beside.each(lambda each: each.seen(needed.get(each), left_s(deadline)), asked)
        # Told by the shards that are wanted, and by others with writes that are to be in the cut.
        seen = [parse_cut(each.cut) for each in told]
        least = Zxid(max(found.since, *(each.written for each in told)))
        lowest = cut_of(seen[: len(found.wanted)], self._check_last(seen), least)
        assert isinstance(lowest, Cut), "all are of one ensemble"
        return _Chosen(lowest, CutPoint(str(lowest)), has)

    def _check_last(self, seen: Sequence[Cut]) -> Cut | None:
        """Return the connection's last cut when it is of one ensemble with some others."""
        last = self._table.written.cut
        if isinstance(cut_of(seen), OtherEnsemble):
            raise ReplicaUnavailable(
                "replicas of the shards are connected to different ensembles of coordination: no cut has all of them; wait"
                " until all servers use one"
            )
        if isinstance(cut_of(seen, last), OtherEnsemble):
            raise SnapshotExpired(
                f"coordination was set up anew since this connection has read at {last}: what it has may be older; connect"
                " again"
            )
        return last


def _close(taken: _Taken) -> None:
    if isinstance(taken, Snapshot):
        taken.close()


__all__ = ["CUTS_MAX", "CutOptions", "CutReads", "ShardedSource", "Shards", "TakenShards"]
