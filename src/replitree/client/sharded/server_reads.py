"""Reads of several shards by one request to a server that has a replica of each: the cut, the map and all snapshots.

Which cut, and what holds of it: `replitree.client.sharded.cut_reads`.  Whatever goes wrong, nothing is lost: the caller asks
the replicas of each shard, as it does where no server has all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from replitree.client.read.read_options import CutPoint, ReadOptions
from replitree.client.read.snapshot import Snapshot, SnapshotBody
from replitree.client.sharded.insert.one_server import OneServer
from replitree.client.sharded.shard_table import ShardAnswer, ShardTable, left_s
from replitree.errors import ReplitreeError
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded.cut import Cut, CutLevel, parse_cut
from replitree.protocol.sharded.places import shard_number

ATTEMPT_S = 5.0
"""How long the server may be silent, in seconds."""

WAIT_S = 2.0
"""How long it may wait for what is not executed there yet, in seconds: another one may be further on."""


class _MapBody(msgspec.Struct, frozen=True):
    incarnation: str
    version: int
    changed: int


class _ShardsBody(msgspec.Struct, frozen=True):
    cut: str
    map: _MapBody
    shards: tuple[SnapshotBody, ...]


class ServerRead(NamedTuple):
    """What one server has told: the cut, which map there is and the transaction that wrote it, and the snapshots in order."""

    cut: Cut
    map_id: object
    map_written: Zxid
    shards: Sequence[Snapshot]


class ServerReads:
    """Reads one sharded table.  Any thread may use it."""

    def __init__(self) -> None:
        self._server = OneServer()

    def take(
        self,
        shards: Sequence[ShardTable],
        level: CutLevel,
        written: Mapping[ShardTable, int],
        last: Cut | None,
        options: ReadOptions,
        deadline: float,
    ) -> ServerRead | None:
        """Return snapshots of shards at a new cut; None: no server has all of them, or it did not answer in time.

        Parameters
        ----------
        shards
            Those that are wanted; at least one.
        level
            Consistent or linearizable.
        written
            Of a consistent read: the index of an entry of each of these shards that must be in the cut.
        last
            The cut is not below this one.
        options
            The condition and the lease.
        deadline
            When to give up (monotonic seconds).
        """
        first = shards[0]
        replica = self._server.find([each.router for each in dict.fromkeys((*shards, *written))])
        if replica is None:
            return None
        columns, asked_at, left = first.definition.schema_version, time.monotonic(), left_s(deadline)
        entries = (f"{shard_number(each.name)}:{index}" for each, index in written.items())
        said = {
            "level": level,
            "shards": ",".join(str(shard_number(each.name)) for each in shards),
            "written": ",".join(entries),
            "last": "" if last is None else str(last),
            "lacking": "1",
            "wait_s": f"{min(WAIT_S, left / 2):.3f}",
        }
        # The query of a shard at a cut begins with the cut, which the server chooses.
        its = options.query(first.written, columns).partition("&")[2]
        path = f"/v1/tables/{quote(first.name)}/cut/shards?{urlencode(said)}&{its}"
        try:
            answer = first.http.request(replica.address, "POST", path, timeout_s=min(ATTEMPT_S, left))
            body = answer.decode(_ShardsBody)
            told = [ShardAnswer(replica, each.check(), asked_at, options.needed) for each in body.shards]
        except ReplitreeError:
            self._server.failed(replica)
            return None
        point = CutPoint(body.cut, has_clock=level == "linearizable")
        with ExitStack() as held:
            taken: list[Snapshot] = [
                held.enter_context(shard.snapshot_told(point, options, each, left_s(deadline)))
                for shard, each in zip(shards, told, strict=True)
            ]
            held.pop_all()
        found = body.map
        return ServerRead(parse_cut(body.cut), (found.incarnation, found.version), Zxid(found.changed), taken)


__all__ = ["ServerRead", "ServerReads"]
