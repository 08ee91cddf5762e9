"""The stages of a model of moves: clients, movers and operators, who run the production procedures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import EVERY_PARTITION
from replitree.protocol.program.stages import Stage
from replitree.protocol.sharded.joint_batch import insert_named
from replitree.protocol.sharded.joint_insert import JointInsert, MapChanged
from replitree.protocol.sharded.moves.carry import AwaitedInserts, take_turn, turn_moves_back
from replitree.protocol.sharded.moves.course import begin, find_moves
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.sharded.shard_map import Shard, ShardMap, decode_map
from replitree.protocol.upkeep.shard_removal import remove_shard
from replitree_verify.moves.logs import COMMANDS, EPOCH, PLACE, REPLICAS, SEATS, START
from replitree_verify.moves.model import Put

MAP_PATH = layout.shard_map(PLACE)


@dataclass(frozen=True, slots=True)
class Tell:
    """A thread tells what it has found out."""

    outcome: Any


@dataclass(frozen=True, slots=True)
class ShardGone:
    """A client is told that the table does not have the shard to which buckets are to move."""


@dataclass(frozen=True, slots=True)
class ReadMap:
    """A client reads the map.  Outcome: the node."""


def insert(number: int, asked: Put) -> Stage:
    """Insert a client's rows, split by the map; once more if that has changed."""
    for attempt in range(2):
        node: fx.Node = yield ReadMap()
        shard_map = decode_map(node.value, MAP_PATH)
        joint = _joint_of(number, attempt, asked, shard_map, node.version)
        told, _ = yield from insert_named(joint, None, b"client")
        yield Tell(told)
        if not isinstance(told, MapChanged):
            break
    return None


def start(wanted: ShardMap) -> Stage:
    """Begin the moves."""
    found = yield from find_moves(PLACE)
    assert found is not None
    # A client makes the map that it wants of the one that it finds.
    is_there = set(wanted.shards) <= set(found.map.shards)
    yield Tell((yield from begin(found, wanted)) if is_there else ShardGone())
    return None


def turn(awaited: AwaitedInserts | None) -> Stage:
    """Take a turn of a mover."""
    yield Tell((yield from take_turn(PLACE, COMMANDS, awaited)))
    return None


def turn_back() -> Stage:
    """Turn the moves back."""
    yield Tell((yield from turn_moves_back(PLACE, 2)))
    return None


def remove() -> Stage:
    """Remove the shard that owns nothing any more."""
    yield Tell((yield from remove_shard("/c", "d", Shard(0))))
    return None


def _joint_of(number: int, attempt: int, asked: Put, shard_map: ShardMap, version: fx.Version) -> JointInsert:
    """Return an insert of rows that were split by a map."""
    owners = shard_map.owners
    participants: list[Participant] = []
    for shard in sorted({owners[bucket] for bucket in asked.buckets}):
        rows = " ".join(f"{bucket}.{number}" for bucket in asked.buckets if owners[bucket] == shard)
        staging = fx.StagingId(f"{SEATS[shard]}-i{number}.{attempt}")
        parts = (fx.StagedPart(asked.partition, 1, 1, rows),)
        participants.append(Participant(REPLICAS[shard], EPOCH, staging, parts, START, is_apart=False))
    token, drops = fx.BlockId(f"t{number}"), (EVERY_PARTITION,) if asked.overwrites else ()
    joint = fx.JointId(f"i{number}.{attempt}")
    return JointInsert(joint, PLACE, token, version, tuple(participants), asked.quorum, drops=drops)
