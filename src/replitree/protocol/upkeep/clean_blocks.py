"""Clean the deduplication ids: forget the oldest, by number and by age, and the notes of drops that concern none any more.

An id stays if it is both among the newest `count` ids and younger than `age_ms`.  Ages are differences between the times at
which the coordination service wrote the nodes; "now" is the time of the newest of them.  No other clock is used: a replica
whose clock is wrong forgets no id too early.

The value of the node `blocks` counts the commits that remove ids.  Each of them proves that no other replica has removed an id
since the ids were read: an id that was removed and then taken by a new insert looks like the old one, and must stay.  (The id
of an insert that is repeated after a drop stays where it is and gets a new version, which is checked too.)

A note ``drops/<partition>`` says that the rows of older inserts may be inserted again (`protocol.insert.insert`).  The entries
tell which inserts are older; so before entries leave the log (a cleaner of both cleans the ids first), the ids of dropped
inserts are marked as dropped.  The note itself goes when no id is left that may belong to an older insert.  Notes are read
before ids: every insert before a noted drop has its id by then.

The caller remembers the ids that it has read (`Block`), so that each is read once.

(Spec 4.8: ClickHouse's `clearOldBlocks`, without the defects that it had there: a remembered time of an id that was removed and
taken again, #5549; removal of an id that was taken again, #23301.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import EVERY_PARTITION, Entry, GetEntry, decode_block, encode_block
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import read_start, search_log

BATCH = 100
"""Nodes written or removed in one commit."""

READ_BATCH = 1000
"""Nodes read at once."""


@dataclass(frozen=True, slots=True)
class Window:
    """How many ids stay, and for how long after the last one was written, in milliseconds."""

    count: int = 10_000
    age_ms: int = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Block:
    """What is remembered of an id.

    Attributes
    ----------
    changed_ms
        When it was written.
    insert
        The insert that took it; another one takes it over when this one was dropped.
    log_from
        An index that is not above its insert's.
    partitions
        Where its insert wrote to; empty when that is not known.
    is_dropped
        It is known, and says so itself, that all of that was dropped after the insert.
    """

    changed_ms: int
    insert: fx.StagingId
    log_from: fx.LogIndex
    partitions: tuple[str, ...] = ()
    is_dropped: bool = False


Blocks: TypeAlias = Mapping[fx.BlockId, Block]


@dataclass(frozen=True, slots=True)
class BlocksCleaned:
    """`removed` ids are gone, and the notes of drops of these partitions; `blocks` are left."""

    blocks: Blocks
    removed: int = 0
    notes: tuple[str, ...] = ()


def clean_blocks(cleaner: Replica, epoch: fx.Epoch, window: Window, known: Blocks) -> fx.Procedure[BlocksCleaned]:
    """Remove the ids that are outside of the window.

    Parameters
    ----------
    cleaner, epoch
        The replica that cleans, active under `epoch`.
    window
        What stays.
    known
        What the last call has returned.

    Returns
    -------
    What is left; if another replica cleans at the same time, or an outcome is unknown, less was removed.
    """
    table = cleaner.table
    parent: fx.Node | None = yield fx.Get(layout.blocks(table))
    names: tuple[str, ...] = (yield fx.Children(layout.drops(table))) or ()
    many: fx.Many = (yield fx.GetMany(tuple(layout.drop(table, name) for name in names))) if names else fx.Many(())
    notes = tuple((name, node) for name, node in zip(names, many.nodes, strict=True) if node is not None)
    found = yield from _read_blocks(table, known)
    if parent is None or found is None:
        return BlocksCleaned({})
    yield from _mark_dropped(cleaner, epoch, notes, found)
    doomed = outside(found, window)
    removed = yield from _remove(cleaner, epoch, parent.version, doomed, found)
    left = {block: each for block, each in found.items() if block not in removed}
    gone = yield from _forget_notes(cleaner, epoch, notes, left)
    return BlocksCleaned(left, len(removed), gone)


def outside(blocks: Blocks, window: Window) -> tuple[fx.BlockId, ...]:
    """Return the ids that are not in the window, the oldest first; of the same time, in the order of their names."""
    oldest_first = sorted(blocks, key=lambda block: (blocks[block].changed_ms, block))
    if not oldest_first:
        return ()
    now = blocks[oldest_first[-1]].changed_ms
    excess = max(0, len(oldest_first) - window.count)
    while excess < len(oldest_first) and blocks[oldest_first[excess]].changed_ms < now - window.age_ms:
        excess += 1
    return tuple(oldest_first[:excess])


# --- what was dropped -------------------------------------------------------------------------------------------------------


def _mark_dropped(
    cleaner: Replica, epoch: fx.Epoch, notes: tuple[tuple[str, fx.Node], ...], found: dict[fx.BlockId, Block]
) -> fx.Procedure[None]:
    """Mark the ids of inserts all of whose partitions were dropped after them; `found` remembers what is decided."""
    table = cleaner.table
    below = {name: fx.LogIndex(int(node.value)) for name, node in notes}
    open_ones = {block: each for block, each in found.items() if each.log_from < _dropped_below(each, below)}
    # The log is read only if a drop may concern an id that is not decided yet.
    begins = (yield from read_start(table)) if open_ones else None
    if begins is None:
        return
    indexes: dict[fx.StagingId, fx.LogIndex] = {}

    def note(index: fx.LogIndex, entry: Entry) -> None:
        if isinstance(entry, GetEntry):
            indexes[entry.insert] = index

    yield from search_log(table, begins.first, note, READ_BATCH)
    # The start is read after the search: an entry that the search did not find was below it, also if another replica cleans.
    begins = yield from read_start(table)
    if begins is None:
        return
    dropped: list[fx.BlockId] = []
    for block, each in open_ones.items():
        # An entry that is gone was below the first one; if the drop is gone too, their order can't be told any more.
        if indexes.get(each.insert, begins.first - 1) < _dropped_below(each, below):
            dropped.append(block)
        else:
            found[block] = replace(each, log_from=indexes.get(each.insert, begins.first))
    for first in range(0, len(dropped), BATCH):
        # If one id changes at the same time, the commit is refused and the whole batch waits for the next call.
        same = yield from _read_again(table, tuple(dropped[first : first + BATCH]), found)
        sets: list[fx.Operation] = []
        for block, node in same.items():
            path = layout.block(table, block)
            value = msgspec.structs.replace(decode_block(node.value, path), dropped=True)
            sets.append(fx.Set(path, encode_block(value), node.version))
        if sets and isinstance((yield fx.Commit(fx.Check(layout.host(cleaner), epoch), *sets)), fx.Applied):
            for block in same:
                found[block] = replace(found[block], is_dropped=True)


def _dropped_below(block: Block, below: Mapping[str, fx.LogIndex]) -> fx.LogIndex:
    """Return the index below which all that an insert wrote to was dropped; 0 when some was not, or that is not known."""
    if block.is_dropped or not block.partitions:
        return fx.LogIndex(0)
    everywhere = below.get(EVERY_PARTITION, fx.LogIndex(0))
    return min(max(everywhere, below.get(name, fx.LogIndex(0))) for name in block.partitions)


# --- reading, removing ------------------------------------------------------------------------------------------------------


def _read_blocks(table: TablePlace, known: Blocks) -> fx.Procedure[dict[fx.BlockId, Block] | None]:
    """Read the ids that are not known; return all that are there, None when the table is gone."""
    names: tuple[str, ...] | None = yield fx.Children(layout.blocks(table))
    if names is None:
        return None
    found = {block: known[block] for block in map(fx.BlockId, names) if block in known}
    fresh = tuple(block for block in map(fx.BlockId, names) if block not in known)
    for first in range(0, len(fresh), READ_BATCH):
        batch = fresh[first : first + READ_BATCH]
        many: fx.Many = yield fx.GetMany(tuple(layout.block(table, block) for block in batch))
        found.update(
            {
                block: _block(table, block, node)
                for block, node in zip(batch, many.nodes, strict=True)
                if node is not None
            }
        )
    return found


def _read_again(
    table: TablePlace, batch: tuple[fx.BlockId, ...], found: dict[fx.BlockId, Block]
) -> fx.Procedure[dict[fx.BlockId, fx.Node]]:
    """Read ids again; return those that are what is remembered of them, and note in `found` what others are now."""
    many: fx.Many = yield fx.GetMany(tuple(layout.block(table, block) for block in batch))
    same: dict[fx.BlockId, fx.Node] = {}
    for block, node in zip(batch, many.nodes, strict=True):
        if node is None:
            del found[block]
            continue
        now = _block(table, block, node)
        if (now.changed_ms, now.insert) == (found[block].changed_ms, found[block].insert):
            same[block] = node
        else:
            found[block] = now
    return same


def _block(table: TablePlace, block: fx.BlockId, node: fx.Node) -> Block:
    value = decode_block(node.value, layout.block(table, block))
    partitions = () if value.partitions is UNSET else value.partitions
    return Block(node.changed_ms, value.insert, fx.LogIndex(value.log_from), partitions, value.dropped is True)


def _remove(
    cleaner: Replica,
    epoch: fx.Epoch,
    version: fx.Version,
    doomed: tuple[fx.BlockId, ...],
    found: dict[fx.BlockId, Block],
) -> fx.Procedure[tuple[fx.BlockId, ...]]:
    """Remove ids, the oldest first; return those that are certainly gone.

    In `found` it is noted what was written again meanwhile.
    """
    table = cleaner.table
    removed: list[fx.BlockId] = []
    for first in range(0, len(doomed), BATCH):
        same = yield from _read_again(table, doomed[first : first + BATCH], found)
        deletes = tuple(fx.Delete(layout.block(table, block), node.version) for block, node in same.items())
        if deletes:
            count = fx.Set(layout.blocks(table), b"", version)
            committed = yield fx.Commit(fx.Check(layout.host(cleaner), epoch), count, *deletes)
            if not isinstance(committed, fx.Applied):
                break
            removed += same
            version = fx.Version(version + 1)
    return tuple(removed)


def _forget_notes(
    cleaner: Replica, epoch: fx.Epoch, notes: tuple[tuple[str, fx.Node], ...], blocks: Blocks
) -> fx.Procedure[tuple[str, ...]]:
    """Remove the notes of drops that are older than every insert whose id is left, those left out that say so themselves."""
    lowest = min((each.log_from for each in blocks.values() if not each.is_dropped), default=None)
    useless = tuple((name, node) for name, node in notes if lowest is None or lowest >= int(node.value))
    for first in range(0, len(useless), BATCH):
        batch = useless[first : first + BATCH]
        deletes = (fx.Delete(layout.drop(cleaner.table, name), node.version) for name, node in batch)
        if not isinstance((yield fx.Commit(fx.Check(layout.host(cleaner), epoch), *deletes)), fx.Applied):
            return tuple(name for name, _ in useless[:first])
    return tuple(name for name, _ in useless)
