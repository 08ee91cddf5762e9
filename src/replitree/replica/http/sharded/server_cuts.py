"""A cut and the snapshots of all shards that a reader wants, by one request to a server that has a replica of each.

``POST …/cut/shards?level=&shards=``
    ``{"cut", "map", "shards"}``: a cut, which map the table has when the session has seen the cut, and the snapshot of each
    shard there.  ``level``: ``consistent`` or ``linearizable``; ``shards``: their numbers, separated by commas; ``last``: the
    reader's last cut; ``written``: ``<shard>:<index>``, separated by commas: entries that must be in a consistent cut, also of
    other shards; others as of ``GET …/cut/snapshot``

The replicas of one server have one session with coordination.  So one question tells a cut, where the logs of all shards end,
and the map (`replitree.protocol.sharded.cut.see_shards`).  Where the reader has written itself since, or a log goes on below
another parent, they answer as those of several servers do (`replitree.replica.http.sharded.cut_requests`).

Absent on purpose: another try.  A reader whose request fails asks the replicas of each shard, whichever servers they are at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

from replitree.errors import BadInput, ReplicaBehind
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import GetStamped, Stamped, StampedNode, Zxid
from replitree.protocol.sharded.cut import Cut, cut_of, parse_cut
from replitree.protocol.sharded.places import shard_name, sharded_name
from replitree.protocol.sharded.shard_map import SHARD_NUMBER_MAX, Shard
from replitree.replica.http.gate import WAIT_S_DEFAULT, encode_json, seconds, shortened, whole_number
from replitree.replica.http.sharded.cut_requests import linearizable_cut, seen, snapshot_at_cut, snapshot_now
from replitree.replica.table.table_replica import TableReplica
from replitree.wire.prepared_share import SHARDS_MAX

_Found: TypeAlias = tuple[str, Mapping[str, object], list[bytes]]
"""A cut, which map there is, and the snapshots."""


@dataclass(frozen=True, slots=True)
class ShardsQuery:
    """What a reader wants of shards.

    Attributes
    ----------
    shards
        The shards.
    kept
        What it says of each snapshot.
    until
        When to give up (monotonic seconds).
    by_clock
        Whether the cut is to be a linearizable one.
    """

    shards: Sequence[TableReplica]
    kept: Mapping[str, str]
    until: float
    by_clock: bool

    @property
    def left_s(self) -> float:
        """How many seconds are left."""
        return max(0.0, self.until - time.monotonic())

    def query(self, at: str = "") -> dict[str, str]:
        """Return a query for one shard, at a cut if there is one yet."""
        cut = {**self.kept, "at": at, **({"clock": "1"} if self.by_clock else {})} if at else {}
        return {**cut, "wait_s": f"{self.left_s:.3f}"}


async def snapshots_of_shards(
    first: TableReplica, query: Mapping[str, str], table_of: Callable[[str], TableReplica]
) -> bytes:
    """Return a cut, the map, and the snapshots of several shards at the cut, as JSON.

    Parameters
    ----------
    first
        The shard that is asked.
    query
        See above.
    table_of
        Returns a table of this server by its name, or raises `TableNotFound`.

    Raises
    ------
    BadInput
        The query can't be right.
    TableNotFound
        This server does not have all shards.
    ReplicaBehind, SnapshotExpired, CoordinationUnavailable
        As of the requests for one shard.
    """
    name, wait_s = sharded_name(first.definition.name), seconds(query, "wait_s", WAIT_S_DEFAULT)
    shards = [table_of(shard_name(name, shard)) for shard in _numbers(query.get("shards", ""))]
    until, session = time.monotonic() + wait_s, first.cuts.session
    level = query.get("level")
    if level not in ("consistent", "linearizable"):
        raise BadInput(f"level={shortened(str(level))!r}: a cut is consistent or linearizable")
    # A snapshot at a cut has no level.
    kept = {name: said for name, said in query.items() if name in ("lease_s", "lacking", "where", "columns")}
    asked = ShardsQuery(shards, kept, until, by_clock=level == "linearizable")
    written, last = _written(query.get("written", "")), query.get("last", "")
    # Most reads: nothing is written since the last one, and what is there is executed.
    found = None if written else await _at_once(first, asked, last)
    if found is None:
        names = {table_of(shard_name(name, shard)): index for shard, index in written}
        found = await _one_by_one(first, asked, names, last)
    if first.cuts.session != session:
        raise ReplicaBehind(f"the session of replica {first.replica.name} with coordination has changed; try again")
    at, known, bodies = found
    return b'{"cut":%s,"map":%s,"shards":[%s]}' % (encode_json(at), encode_json(known), b",".join(bodies))


async def _at_once(first: TableReplica, asked: ShardsQuery, last: str) -> _Found | None:
    """Return the cut, the map and the snapshots by one question to coordination; None: it does not tell enough."""
    cuts = tuple(each.cuts for each in asked.shards)
    found = await first.cuts.of_shards(cuts, asked.left_s, by_clock=asked.by_clock)
    if found is None:
        return None
    before = parse_cut(last) if last else None
    if before is not None and before.ensemble == found.ensemble and before.zxid > found.told.cut:
        # The reader has read later than this session was told of.
        return None
    known, query = _map_of(first, found.told.nodes), asked.query(str(found.at))

    def show() -> list[bytes | None]:
        return [snapshot_now(*each) for each in zip(asked.shards, repeat(query), repeat(found.at), found.told.ends)]

    bodies = await asyncio.to_thread(show)
    # The ends are known to each of these now, so that it only waits until it has executed what is below.
    late = [shard for shard, body in zip(asked.shards, bodies, strict=True) if body is None]
    waited = iter(await asyncio.gather(*(snapshot_at_cut(each, asked.query(str(found.at))) for each in late)))
    return str(found.at), known, [next(waited) if body is None else body for body in bodies]


async def _one_by_one(
    first: TableReplica, asked: ShardsQuery, written: Mapping[TableReplica, int], last: str
) -> _Found:
    """Return the cut, the map and the snapshots, for which each shard is asked by itself."""
    if asked.by_clock:
        at = str((await linearizable_cut(first, asked.query()))["cut"])
    else:
        replicas, wait = list(dict.fromkeys((*asked.shards, *written))), asked.query()
        own = ({"written": str(written[each])} if each in written else {} for each in replicas)
        told = await asyncio.gather(*(seen(each, wait | its) for each, its in zip(replicas, own, strict=True)))
        at = _chosen(told, len(asked.shards), last)
    query = asked.query(at)
    taken = asyncio.gather(*(snapshot_at_cut(each, query) for each in asked.shards))
    # The map is not older than the cut if the session has seen the cut.  One by the clock it has seen, any other when the
    # snapshots are there.
    if not asked.by_clock:
        await taken
    bodies, known = await asyncio.gather(taken, asyncio.to_thread(_map, first))
    return at, known, bodies


def _chosen(told: list[dict[str, object]], wanted: int, last: str) -> str:
    """Return the cut of a consistent read: the shards that are wanted come first in `told`."""
    seen_ = [parse_cut(str(each["cut"])) for each in told]
    before = parse_cut(last) if last else None
    # What the reader does about another ensemble, it knows itself.
    known = before if before is not None and before.ensemble == seen_[0].ensemble else None
    chosen = cut_of(seen_[:wanted], known, Zxid(max(int(str(each.get("written", 0))) for each in told)))
    if not isinstance(chosen, Cut):
        raise ReplicaBehind("the session with coordination has changed; try again")
    return str(chosen)


def _map(shard: TableReplica) -> dict[str, object]:
    """Ask coordination which map the table has: see `_map_of`."""
    place = layout.sharded_of(shard.replica.table)
    found: Stamped = shard.cuts.perform(GetStamped((place, layout.shard_map(place), place)))
    return _map_of(shard, found.nodes)


def _map_of(shard: TableReplica, nodes: Sequence[StampedNode | None]) -> dict[str, object]:
    """Return which map the table has, of which incarnation it is, and the transaction that wrote the map.

    Several reads are no snapshot: the map is that of the incarnation that is there before it and after it.
    """
    before, node, after = nodes
    if before is None or node is None or before != after:
        raise ReplicaBehind(
            f"table {sharded_name(shard.definition.name)!r} was dropped, or created again: open it again"
        )
    return {"incarnation": before.value.decode(), "version": node.version, "changed": node.changed}


def _numbers(text: str) -> list[Shard]:
    """Return the shards that a query names."""
    found = [whole_number(each) for each in text.split(",", SHARDS_MAX)]
    shards = [Shard(each) for each in found if each is not None and each <= SHARD_NUMBER_MAX]
    if len(shards) < len(found) or len(set(shards)) < len(shards):
        raise BadInput(f"shards={shortened(text)!r}: give the numbers of shards, each once, separated by commas")
    return shards


def _written(text: str) -> list[tuple[Shard, int]]:
    """Return the shards of which a query names an entry, and its index."""
    found = list[tuple[Shard, int]]()
    for each in text.split(",", SHARDS_MAX) if text else ():
        shard, _, index = each.partition(":")
        number, at = whole_number(shard), whole_number(index)
        if number is None or number > SHARD_NUMBER_MAX or at is None:
            raise BadInput(f"written={shortened(text)!r}: give shards and indexes, as in 3:17, separated by commas")
        found.append((Shard(number), at))
    return found


__all__ = ["snapshots_of_shards"]
