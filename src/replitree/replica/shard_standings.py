"""What the shards of a server keep on its disk of their sharded tables, for the day on which coordination loses everything.

The server looks at the nodes of every sharded table of which it hosts a shard, again and again, and once more before it stops.
It writes into the folder of each shard (`replitree.storage.disk.kept_sharding`)

* which sharded table it is, its map and its placement, when they have changed
* at which cuts the shard was what its parts on this disk are: only while its replica has executed all of the log, and no
  insert is open

So the disks of several shards tell whether they stand at one cut (`replitree.protocol.rescue.restore_sharded`).  Under a steady
load a replica seldom stands still, and its last note is of parts that it no longer has: then it is not known.

*A cut is exact.*  The session had been told of transaction z before it asked for the end of the log, so all entries up to z are
below that end; and the last entry below it is not newer than z (`index_at`).  Names of parts are given once, so a folder that
has the noted parts, and no others, has the rows of that cut, whatever the replica did in between.

Absent on purpose: anything that an insert or a read waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from replitree.errors import ReplicaBehind, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import GetStamped, StampedNode
from replitree.protocol.sharded import places
from replitree.protocol.sharded.cut import CutEnd, index_at
from replitree.protocol.sharded.placement import EVERYWHERE, encode_placement
from replitree.replica.kit.logs import Log
from replitree.replica.perform.availability import State
from replitree.storage.disk.kept_sharding import (
    KeptSharding,
    KeptStanding,
    keep_sharding,
    keep_standing,
    parts_digest,
)
from replitree.storage.schema.definition import decode_unchecked

if TYPE_CHECKING:
    from replitree.replica.table.cuts import SessionCut
    from replitree.replica.table.table_replica import TableReplica

LOOK_S = 5.0
"""How often the nodes are looked at, in seconds."""

STOP_S = 5.0
"""How long the thread may take to end, in seconds."""


class ShardStandings:
    """Keeps what a server's shards must know of their sharded tables.

    Parameters
    ----------
    root
        The node below which the tables lie.
    perform
        Reads coordination.
    tables
        The tables with a log that the server hosts, by name, as they come and go.
    """

    def __init__(self, root: str, perform: Callable[[Any], Any], tables: Mapping[str, TableReplica], log: Log) -> None:
        self._root = root
        self._perform = perform
        self._tables = tables
        self._log = log
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standings", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which looks once more if coordination answers."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def look(self) -> None:
        """Look once at every sharded table, and keep what is new; a table that can't be looked at does not hold up the others.

        Raises
        ------
        ReplitreeError
            The first one that could not be looked at: coordination does not answer, or the disk is full.
        """
        of_table: dict[str, list[TableReplica]] = {}
        for name, table in sorted(self._tables.items()):
            if places.is_shard_name(name) and table.availability.state is State.ACTIVE:
                of_table.setdefault(places.sharded_name(name), []).append(table)
        problem: ReplitreeError | None = None
        for name, shards in of_table.items():
            try:
                self._look_at(name, shards)
            except ReplitreeError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def _run(self) -> None:
        is_last, problem = False, ""
        while not is_last:
            is_last = self._stopped.wait(LOOK_S)
            try:
                self.look()
                problem = ""
            except ReplitreeError as error:
                # Once for each problem: coordination may be silent for hours.
                if str(error) != problem:
                    problem = str(error)
                    self._log.warning("what shards keep of their tables", problem=problem)
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and look again
                self._log.defect("keeping what shards must know failed")

    def _look_at(self, name: str, shards: Sequence[TableReplica]) -> None:
        place = layout.sharded(self._root, name)
        # So the session is told of everything that was committed before.
        self._perform(fx.Sync(place))
        cuts = tuple(each.cuts for each in shards)
        found = cuts[0].look_at(cuts, by_clock=False)
        if found is None:
            return
        before, shard_map, after = found.told.nodes
        if before is None or shard_map is None or before != after:
            # The table is being made, restored or dropped.
            return
        self._keep_sharding(place, before.value.decode(), shard_map, shards)
        for shard, end in zip(shards, found.told.ends, strict=True):
            _keep_standing(shard, found, end)

    def _keep_sharding(
        self, place: str, incarnation: str, shard_map: StampedNode, shards: Sequence[TableReplica]
    ) -> None:
        paths = (places.metadata(place), places.columns(place), places.placement(place), place)
        metadata, columns, placement, own = self._perform(fx.GetMany(paths)).nodes
        if metadata is None or columns is None or own is None or own.value != incarnation.encode():
            raise ReplicaBehind(f"table {places.sharded_name(shards[0].definition.name)} was just dropped or made anew")
        kept = KeptSharding(
            table_id=decode_unchecked(metadata.value, columns.value).table_id,
            incarnation=incarnation,
            version=shard_map.version,
            map=msgspec.Raw(shard_map.value),
            placement=msgspec.Raw(encode_placement(EVERYWHERE) if placement is None else placement.value),
        )
        for shard in shards:
            keep_sharding(shard.store.root, kept)


def _keep_standing(shard: TableReplica, found: SessionCut, end: CutEnd) -> None:
    """Note where a shard stands, if its replica has executed all that its log had."""
    parts, table, cut = shard.progress.at_rest(end.index), shard.cuts.place, found.told.cut
    if parts is None or shard.cuts.run(index_at(table, end, cut)) != end.index:
        return
    last = shard.cuts.perform(GetStamped((layout.log_entry(table, fx.LogIndex(max(0, end.index - 1))),))).nodes[0]
    if shard.cuts.session != found.session:
        return
    # An entry that was removed came before the cut all the same.
    first = cut if last is None else min(cut, last.created)
    keep_standing(
        shard.store.root,
        KeptStanding(ensemble=found.ensemble, first=first, last=cut, parts=parts_digest(parts)),
    )


__all__ = ["ShardStandings"]
