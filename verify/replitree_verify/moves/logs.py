"""Where the nodes of a model of moves are, and what the logs of its shards say.

A row is written as ``<bucket>.<insert>``, with a ``'`` for each command that has changed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    Entry,
    FailEntry,
    GetEntry,
    MutateEntry,
    SettleEntry,
    dropped_partitions,
    quorum_of,
)
from replitree.protocol.core.layout import Replica
from replitree.protocol.sharded import places
from replitree.protocol.sharded.shard_map import Bucket, Shard, ShardMap, first_map, handed_over, moving, without_moves
from replitree_verify.engine.shared_tree import log_of

INCARNATION = "s"
SEATS = ("a", "b", "c", "d")
SHARDS = tuple(places.shard_place("/c", "d", Shard(number), INCARNATION) for number in range(2))
# Seats a and c are replicas of the first shard, b and d of the second: the shard of a seat is its number modulo 2.
REPLICAS = tuple(Replica(SHARDS[number % 2], seat) for number, seat in enumerate(SEATS))
PLACE = layout.sharded("/c", "d")
COMMANDS = f"{PLACE}/commands"
START = fx.LogIndex(0)
EPOCH = fx.Epoch(0)
COMMAND = "changed"
"""What a command does: it changes the rows of the bucket that moves."""

MOVES = Bucket(1)

FIRST_MAP = first_map(["k"], {Shard(0): 1, Shard(1): 1}, 4)
WANTED_MAP: ShardMap = moving(FIRST_MAP, handed_over(FIRST_MAP, [MOVES], Shard(1)))
BACK_MAP: ShardMap = moving(without_moves(WANTED_MAP), FIRST_MAP)
MAPS = FIRST_MAP, WANTED_MAP, BACK_MAP
"""The map before the moves, with them, and with the moves back."""

_ONLY = handed_over(FIRST_MAP, [Bucket(0)], Shard(1))
_EMPTIED: ShardMap = moving(_ONLY, handed_over(_ONLY, [MOVES], Shard(1)))
EMPTYING_MAPS = _ONLY, _EMPTIED, moving(without_moves(_EMPTIED), _ONLY)
"""The same where shard 0 owns nothing but the bucket that moves."""


class Held(NamedTuple):
    """The rows of an insert that a shard has in one partition, and whether its quorum is open."""

    at: fx.LogIndex
    partition: str
    rows: tuple[str, ...]
    is_open: bool


def bucket_of(row: str) -> int:
    """Return the bucket of a row."""
    return int(row.partition(".")[0])


def is_laid(entry: GetEntry) -> bool:
    """Whether it is an insert by which a batch is laid."""
    return isinstance(entry.joint, str) and entry.joint.startswith("move-")


@lru_cache(65536)
def held_in(tree: Tree, shard: int) -> tuple[Held, ...]:
    """Return what a shard has, by its log."""
    held: tuple[Held, ...] = ()
    for index, entry in log_of(tree, SHARDS[shard]):
        match entry:
            case GetEntry():
                held = tuple(each for each in held if not is_dropped(each.partition, entry))
                opens = quorum_of(entry) > 0
                held += tuple(
                    Held(index, part.partition, tuple(part.content_hash.split()), opens) for part in entry.parts
                )
            case SettleEntry(index=at):
                held = tuple(each._replace(is_open=False) if each.at == at else each for each in held)
            case FailEntry(index=at):
                held = tuple(each for each in held if each.at != at)
            case MutateEntry():
                held = tuple(
                    each._replace(rows=mutated_rows(each.rows, entry)) if _is_in_scope(each, entry) else each
                    for each in held
                )
    return held


def _is_in_scope(held: Held, entry: MutateEntry) -> bool:
    if entry.partition not in (EVERY_PARTITION, held.partition):
        return False
    if entry.command != COMMAND:
        return True
    assert isinstance(entry.partitions, tuple)
    assert isinstance(entry.since, int)
    return held.partition in entry.partitions or held.at >= entry.since


def mutated_rows(rows: tuple[str, ...], entry: MutateEntry) -> tuple[str, ...]:
    """Return what a mutation makes of rows in its scope."""
    if entry.command == COMMAND:
        return tuple(f"{row}'" if bucket_of(row) == MOVES else row for row in rows)
    return tuple(row for row in rows if str(bucket_of(row)) not in entry.command.split())


def shown_in(tree: Tree, shard: int) -> tuple[str, ...]:
    """Return the rows that a shard shows."""
    return tuple(sorted(row for each in held_in(tree, shard) if not each.is_open for row in each.rows))


def due_in(tree: Tree) -> Iterator[str]:
    """Give each row that an insert of a client has settled, with the commands that came after it."""
    for shard in SHARDS:
        log = log_of(tree, shard)
        settled = {entry.index for _, entry in log if isinstance(entry, SettleEntry)}
        for index, entry in log:
            if isinstance(entry, GetEntry) and not is_laid(entry) and (not quorum_of(entry) or index in settled):
                yield from (
                    f"{row}{_changes(log, index, row)}"
                    for part in entry.parts
                    if not any(at > index and is_dropped(part.partition, each) for at, each in log)
                    for row in part.content_hash.split()
                )


def is_dropped(partition: str, entry: Entry) -> bool:
    """Whether an entry is of an overwrite that takes the place of what a partition has."""
    drops = dropped_partitions(entry) if isinstance(entry, GetEntry) else ()
    return EVERY_PARTITION in drops or partition in drops


def _changes(log: tuple[tuple[fx.LogIndex, Entry], ...], index: fx.LogIndex, row: str) -> str:
    commands = sum(at > index and isinstance(each, MutateEntry) and each.command == COMMAND for at, each in log)
    return "'" * (commands if bucket_of(row) == MOVES else 0)


def opened_in(tree: Tree, shard: int) -> tuple[tuple[fx.LogIndex, GetEntry], ...]:
    """Return the inserts of a shard whose quorum is open."""
    log = log_of(tree, SHARDS[shard])
    ended = {entry.index for _, entry in log if isinstance(entry, SettleEntry | FailEntry)}
    return tuple((at, e) for at, e in log if isinstance(e, GetEntry) and quorum_of(e) and at not in ended)


def here(tree: Tree, seat: int) -> Replica:
    """Return the replica of a seat, which appends below the open parent."""
    shard = SHARDS[seat % 2]
    marks = tree.children(layout.open_logs(shard)) or ()
    return Replica(shard.below(max(map(layout.parent_named, marks))), SEATS[seat])
