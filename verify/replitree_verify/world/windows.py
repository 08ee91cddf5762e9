"""When deduplication ids were written, and when they were forgotten: the clock of coordination, WINDOW and NOTES.

Only in a model with a window there are times.  The clock moves with every entry of the log; what it shows when an id is written
is kept beside the tree, and `timed` puts it into what is read.  Ids that were forgotten are remembered with the length of the
log at that moment: from then on their inserts may come again (I3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from replitree.coordination.tree import Tree
from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, GetEntry, LostEntry, decode_block, decode_entry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.parts import parse_part
from replitree.protocol.upkeep.clean_blocks import Window

PAST = "/past"
"""Below this the checker keeps what no procedure reads."""

TIMES = f"{PAST}/times"
"""Its value is the window; its children are the times of the ids."""

_FORGOTTEN = f"{PAST}/forgotten-"


@dataclass(frozen=True, slots=True)
class TimedNode(fx.Node):
    """A node of which it matters when it was written."""

    changed_ms: int = field(default=0)


def with_clock(tree: Tree, count: int, age_ms: int) -> Tree:
    """Return a tree whose ids have times, and stay for a window."""
    value = msgspec.json.encode((count, age_ms))
    return tree.commit((fx.Create(PAST), fx.Create(TIMES, value)), session=1)[0]


def remembered(operations: Sequence[fx.Operation], before: Tree, table: TablePlace) -> list[fx.Operation]:
    """Return what keeps the times of the ids that a commit writes, and of those that it forgets, when."""
    if not before.exists(TIMES):
        return []
    # The clock is the index that comes next: it moves with every entry, and needs no state of its own.
    parent = _last_parent(before, table)
    number = before.next_sequence(layout.log_parent(table, parent))
    now, kept = str(parent * layout.PARENT_ENTRIES + (number or 0)).encode(), list[fx.Operation]()
    for each in operations:
        name = each.path.rpartition("/")[2]
        if each.path != f"{layout.blocks(table)}/{name}":
            continue
        if isinstance(each, fx.Create):
            kept.append(fx.Create(f"{TIMES}/{name}", now))
        elif isinstance(each, fx.Set):
            kept.append(fx.Set(f"{TIMES}/{name}", now, fx.ANY_VERSION))
        elif isinstance(each, fx.Delete):
            path = f"{_FORGOTTEN}{name}"
            earlier = before.get(path)
            kept += (
                fx.Delete(f"{TIMES}/{name}", fx.ANY_VERSION),
                fx.Create(path, now) if earlier is None else fx.Set(path, earlier.value + b" " + now, fx.ANY_VERSION),
            )
    return kept


def forgotten_between(tree: Tree, token: str, first: int, last: int) -> bool:
    """Whether the id of a token was forgotten after entry `first` and before entry `last` came."""
    node = tree.get(f"{_FORGOTTEN}{token}")
    return node is not None and any(first < int(length) <= last for length in node.value.split())


def forgotten_too_early(operations: Sequence[fx.Operation], before: Tree, table: TablePlace) -> str | None:
    """Check WINDOW and NOTES for a commit that took place, in a model with a window.

    WINDOW: an id that it forgets is not among the newest, or was written too long before the newest one.  NOTES: the note of a
    drop that it forgets frees no id that is left, or the id says itself that it is free.
    """
    node = before.get(TIMES)
    if node is None or before.exists(layout.dropped(table)):  # a table that is dropped forgets all ids
        return None
    ended = _ended_by(operations, before, table)
    window = Window(*json_decoder(tuple[int, int]).decode(node.value))
    times = {name: _time(before, name) for name in before.children(TIMES) or ()}
    for each in operations:
        name = each.path.rpartition("/")[2]
        if isinstance(each, fx.Delete) and each.path == f"{layout.blocks(table)}/{name}":
            block = before.get(each.path)
            assert block is not None
            if ended in (decode_block(block.value, name).insert, times[name]):
                continue
            newer = [time for other, time in times.items() if other != name and time >= times[name]]
            # An id may go when enough newer ones are there, or when it is old.
            if len(newer) < window.count and max((times[name], *newer)) - times[name] <= window.age_ms:
                return f"WINDOW: {name} is forgotten, and only {len(newer)} ids are newer"
        kept = _freed_by(each.path, before, table) if isinstance(each, fx.Delete) else None
        if kept is not None:
            return f"NOTES: the drop of {name} is forgotten, and {kept}, whose rows it dropped, stays taken"
    return None


def _ended_by(operations: Sequence[fx.Operation], before: Tree, table: TablePlace) -> fx.StagingId | int | None:
    """Return the insert whose own ids a commit frees, or the index of its entry: it has failed, or its rows are lost."""
    newest = replace(table, parent=_last_parent(before, table))
    for each in operations:
        if isinstance(each, fx.Create) and each.path == layout.log_create(newest):
            entry = decode_entry(each.value, each.path)
            if isinstance(entry, FailEntry):
                return entry.insert
            if isinstance(entry, LostEntry):
                part = parse_part(entry.part)
                # The entry of the insert may have left the log; the time of its id is its index.
                return part.block_min if part.block_min == part.block_max else None
    return None


def _freed_by(note: str, tree: Tree, table: TablePlace) -> str | None:
    """Return an id that is free because of this note alone."""
    node = tree.get(note) if note.startswith(f"{layout.drops(table)}/") else None
    for name in () if node is None else tree.children(layout.blocks(table)) or ():
        block = tree.get(layout.block(table, fx.BlockId(name)))
        assert node is not None
        assert block is not None
        value = decode_block(block.value, name)
        if value.dropped is True:
            continue  # the id says so itself, and needs no note
        folders = (layout.log_parent(table, parent) for parent in range(_last_parent(tree, table) + 1))
        for path in (f"{folder}/{child}" for folder in folders for child in tree.children(folder) or ()):
            entry_node = tree.get(path)
            entry = None if entry_node is None else decode_entry(entry_node.value, path)
            is_its_insert = isinstance(entry, GetEntry) and entry.insert == value.insert
            if is_its_insert and layout.index_of(table, path) < int(node.value):
                return name
    return None


def _last_parent(tree: Tree, table: TablePlace) -> int:
    return max(map(layout.parent_named, tree.children(layout.open_logs(table)) or ("log",)))


def _time(tree: Tree, name: str) -> int:
    node = tree.get(f"{TIMES}/{name}")
    return 0 if node is None else int(node.value)


def timed(tree: Tree, effect: Any, outcome: Any) -> Any:
    """Return what a read shows, with the times of ids in it."""
    if not tree.exists(TIMES):
        return outcome
    match effect, outcome:
        case fx.Get(path), fx.Node():
            return _timed(tree, path, outcome)
        case fx.GetMany(paths), fx.Many(nodes, watched):
            return fx.Many(tuple(_timed(tree, path, node) for path, node in zip(paths, nodes, strict=True)), watched)
    return outcome


def _timed(tree: Tree, path: str, node: fx.Node | None) -> fx.Node | None:
    if node is None or "/blocks/" not in path:
        return node
    return TimedNode(node.value, node.version, _time(tree, path.rpartition("/")[2]))
