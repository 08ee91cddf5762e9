"""Where the nodes of a model of joint inserts are, and what the logs of its shards say."""

from __future__ import annotations

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, GetEntry, SettleEntry, Verdict, quorum_of
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.sharded.shard_map import Shard, encode_map, first_map
from replitree_verify.engine.shared_tree import log_of

SEATS = ("a", "b", "c", "d")
SHARDS = (TablePlace("/c/tables/d~0", incarnation="s0"), TablePlace("/c/tables/d~1", incarnation="s1"))
# Seats a and c are replicas of the first shard, b and d of the second: the shard of a seat is its number modulo 2.
REPLICAS = tuple(Replica(SHARDS[number % 2], seat) for number, seat in enumerate(SEATS))
PLACE = layout.sharded("/c", "d")
START = fx.LogIndex(0)

MAP = encode_map(first_map(["k"], {Shard(0): 1, Shard(1): 1}, 2))
"""Inserts see no more of a map than its version, so its value stays the same."""


def gets_of(tree: Tree) -> tuple[tuple[int, fx.LogIndex, GetEntry], ...]:
    """Return (shard, index, entry) of each insert in the logs of the shards."""
    logs = ((number, log_of(tree, shard)) for number, shard in enumerate(SHARDS))
    return tuple((number, index, entry) for number, log in logs for index, entry in log if isinstance(entry, GetEntry))


def verdicts_of(tree: Tree) -> tuple[tuple[int, Verdict], ...]:
    """Return (shard, entry) of each end of a quorum in the logs of the shards."""
    logs = ((number, log_of(tree, shard)) for number, shard in enumerate(SHARDS))
    return tuple(
        (number, entry) for number, log in logs for _, entry in log if isinstance(entry, SettleEntry | FailEntry)
    )


def opened_in(tree: Tree, seat: int) -> tuple[tuple[fx.LogIndex, GetEntry], ...]:
    """Return the inserts of a seat's shard whose quorum is open."""
    ended = {entry.insert for number, entry in verdicts_of(tree) if number == seat % 2}
    return tuple(
        (index, entry)
        for number, index, entry in gets_of(tree)
        if number == seat % 2 and quorum_of(entry) and entry.insert not in ended
    )


def is_open_or_failed(tree: Tree, joint: fx.JointId) -> bool:
    """Whether a joint insert has a quorum that was not reached (yet)."""
    settled = {entry.insert for _, entry in verdicts_of(tree) if isinstance(entry, SettleEntry)}
    its = (entry for _, _, entry in gets_of(tree) if entry.joint == joint)
    return any(quorum_of(entry) and entry.insert not in settled for entry in its)


def number_of(staging: fx.StagingId) -> int:
    """Return which insert of the model a staging id belongs to."""
    return int(staging.partition("-")[2].partition(".")[0])
