"""Rewrites in a model of commands: which parts the shards have by their logs, and what a client makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, MergeEntry, RewriteEntry, encode_entry
from replitree.protocol.core.fold import apply, change_of
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.sharded.joint_insert import JointInsert, RewrittenShard
from replitree.protocol.sharded.prepare import Participant
from replitree_verify.commands.logs import PLACE, log_in, shard_of
from replitree_verify.engine.shared_tree import committed

PARTS = 2
"""Parts that each shard has at first."""

START = fx.LogIndex(0)


def filled(tree: Tree) -> Tree:
    """Return a tree in which both shards have their parts."""
    for number in range(PARTS):
        entry = GetEntry("a", fx.StagingId(f"f{number}"), (fx.StagedPart("all", 1, 1, ""),), ())
        logs = (layout.log_create(shard_of(shard)) for shard in range(2))
        tree = committed(tree, tuple(fx.Create(log, encode_entry(entry), sequential=True) for log in logs))
    return tree


def parts_in(tree: Tree, shard: TablePlace) -> PartSet:
    """Return the parts of a shard, by its log."""
    parts = PartSet()
    for index, entry in log_in(tree, shard):
        parts, _ = apply(parts, index, entry)
    return parts


def rewrite_of(number: int, tree: Tree, replicas: Sequence[Replica], by: fx.Version) -> JointInsert:
    """Return a rewrite of the first part of both shards, as its client finds them now, by a version of the map."""
    participants, shards = list[Participant](), list[RewrittenShard]()
    for shard, replica in enumerate(replicas):
        log = log_in(tree, replica.table)
        sources = sorted(parts_in(tree, replica.table))[:1]
        results = tuple(fx.StagedResult(each.name, 1, 1, "") for each in sources)
        staging = fx.StagingId(f"s{number}")
        terms = replica, fx.Epoch(0), staging, (), START
        participants.append(Participant(*terms, is_apart=bool(shard), results=results))
        shards.append(RewrittenShard(next_index(*log[-1]) if log else START))
    joint, token = fx.JointId(f"r-{number}"), fx.BlockId(f"r{number}")
    return JointInsert(joint, PLACE, token, by, tuple(participants), rewrites=tuple(shards))


def merge_in(tree: Tree, shard: TablePlace) -> tuple[fx.Create, ...]:
    """Return what appends a merge of all parts of a shard to its log; nothing if its log does not tell them any more."""
    parts = tuple(part.name for part in sorted(parts_in(tree, shard)))
    if len(parts) < PARTS:
        return ()
    marks = tree.children(layout.open_logs(shard)) or ()
    place = shard.below(max(map(layout.parent_named, marks)))
    return (fx.Create(layout.log_create(place), encode_entry(MergeEntry("b", parts)), sequential=True),)


def wrong_rewrites(tree: Tree) -> Iterator[str]:
    """Give the rewrites that count in one shard, and not in the other."""
    counts: dict[str, list[bool]] = {}
    for number in range(2):
        parts = PartSet()
        for index, entry in log_in(tree, shard_of(number)):
            if isinstance(entry, RewriteEntry):
                counts.setdefault(entry.id, []).append(not change_of(parts, index, entry).is_empty)
            parts, _ = apply(parts, index, entry)
    for name, its in counts.items():
        if its != [True, True]:
            yield f"ATOMIC: {name} counts in {its.count(True)} of {len(its)} shards that have it"
