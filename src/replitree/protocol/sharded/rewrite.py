"""Rewrites over shards: one commit puts a rewrite into the logs of several shards, at the ends that were read, or into none.

A client has read a sharded table at a cut, and has made other parts of some of its parts, in one shard or in several; a row
whose shard key it has changed is a new row of another shard.  It has each share prepared by a replica of the shard, as the
rows of a joint insert (`protocol.sharded.prepare`).  What a `rewrite` entry does, and when it counts, each replica decides by
the fold of its shard (`protocol.core.fold`).  So that all shards decide alike, the commit brings the entries only where they
count::

    Check(coordinator host @ epoch), Create(tokens/<token>), Check(map @ version),
    for each participant: as of a joint insert,
    Set(sharded/<D>/commands), or Create it,
    for each shard: Check(log @ version), Create(log-<number>)

*Judging.*  For each shard the coordinator reads the entries from the client's cut up to the end of the log.  If one of them
concerns a source, or changes the columns, the rewrite is refused (`Why.CHANGED`), and its client reads again.  An insert beside
it concerns none.

*The number.*  The entry is created under the number that the log gives its next one, not as the next one whatever that is.  If
another entry has come since the look, that node exists: the commit is refused, and the coordinator judges what has come.  So no
entry lies between those that were judged and the rewrite, in any shard.  The version of the node ``log`` proves that no entry
was removed meanwhile: below one that was removed the number would be free again.

*Moves.*  Rows of a batch that lies at its target, and is not shown, are copies that a rewrite of their source does not reach.
So a rewrite is begun only where the map has no moves, and the commit checks that map.  To a mover it is a command.

Absent on purpose: a quorum; what a statement relies on besides its sources (`Unchanged`), which would concern shards that get
no entry; another try, because only the client can make the rows anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    AlterEntry,
    Entry,
    MergeEntry,
    RewriteEntry,
    decode_entry,
)
from replitree.protocol.core.fold import change_of
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import log_start, next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.sharded.command import commands, open_places
from replitree.protocol.sharded.joint_insert import GONE, JointInsert, RewrittenShard
from replitree.protocol.sharded.shard_map import decode_map

JUDGE_WINDOW = 64
"""Log entries that are read at once."""

CHANGED = "the table has changed since it was read: a part is not what it was, or its columns are others; read it again"

MOVING = "buckets of the table move to other shards, and a statement can't change rows on their way: run it when they are there"


@dataclass(frozen=True, slots=True)
class PlacedRewrite:
    """A rewrite that counts where its entries are to come, and what proves that they do."""

    insert: JointInsert
    proofs: tuple[fx.Operation, ...]


def place_rewrite(insert: JointInsert) -> fx.Procedure[PlacedRewrite | fx.NotInserted]:
    """Judge a rewrite up to the ends of its logs.

    Parameters
    ----------
    insert
        What is prepared, with the cut at which its client has read each shard.

    Returns
    -------
    `NotInserted` with `Why.CHANGED`: it does not count any more, or buckets move.
    """
    assert insert.rewrites
    path, counter = layout.shard_map(insert.place), commands(insert.place)
    # After a refusal the reads must not be older than what has refused.
    yield fx.Sync(path)
    tables = tuple(each.replica.table for each in insert.participants)
    # The log's own node first: an entry that is removed later changes it.
    nodes = (yield fx.GetMany((path, counter, *map(layout.log, tables)))).nodes
    shard_map, counted, logs = nodes[0], nodes[1], nodes[2:]
    if shard_map is None or None in logs:
        return fx.NotInserted(GONE)
    if decode_map(shard_map.value, path).moves:
        return fx.NotInserted(MOVING, fx.Why.CHANGED)
    ends = yield from open_places(tables)
    if ends is None:
        return fx.NotInserted(GONE)
    placed: list[RewrittenShard] = []
    proofs: list[fx.Operation] = [fx.Create(counter) if counted is None else fx.Set(counter, b"", fx.ANY_VERSION)]
    participants = []
    shards = zip(insert.participants, insert.rewrites, logs, ends, strict=True)
    for participant, shard, log, (place, end) in shards:
        assert log is not None
        sources = PartSet.of(parse_part(each.source) for each in participant.results)
        is_there = log_start(place, log).first <= shard.since
        if not is_there or not (yield from _counts(place, sources, shard.since, end)):
            return fx.NotInserted(CHANGED, fx.Why.CHANGED)
        proofs.append(fx.Check(layout.log(place), log.version))
        participants.append(replace(participant, replica=replace(participant.replica, table=place)))
        placed.append(replace(shard, at=end))
    found = replace(insert, participants=tuple(participants), rewrites=tuple(placed))
    return PlacedRewrite(found, tuple(proofs))


def _counts(table: TablePlace, sources: PartSet, since: fx.LogIndex, end: fx.LogIndex) -> fx.Procedure[bool]:
    """Return whether the entries of a log from `since` up to `end` leave the sources of a rewrite as they are."""
    index = since
    while index < end:
        paths = tuple(layout.log_entry(table, at) for at in range(index, min(index + JUDGE_WINDOW, end)))
        many: fx.Many = yield fx.GetMany(paths)
        for path, node in zip(paths, many.nodes, strict=True):
            # It was removed since; or the log goes on below its next parent, which `next_index` finds.
            if node is None:
                return False
            entry = decode_entry(node.value, path)
            if concerns(sources, index, entry):
                return False
            following = next_index(index, entry)
            if following != index + 1:
                index = following
                break
            index = following
    return True


def concerns(sources: PartSet, index: fx.LogIndex, entry: Entry) -> bool:
    """Whether an entry of the log keeps a rewrite of some parts from counting behind it; it may say so too often.

    Parameters
    ----------
    sources
        The parts, as they are before the entry.
    index
        Of the entry.
    """
    named: tuple[str, ...] = ()
    match entry:
        case AlterEntry():
            return True
        case MergeEntry(sources=named):
            # Only its neighbours tell whether it counts itself.
            return any(parse_part(name) in sources for name in named)
        case RewriteEntry(results=results):
            return any(parse_part(each.source) in sources for each in results)
    return bool(change_of(sources, index, entry).removed)


__all__ = ["CHANGED", "MOVING", "PlacedRewrite", "concerns", "place_rewrite"]
