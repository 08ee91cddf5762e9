"""Where the shards of a model of commands are, and what their logs say."""

from __future__ import annotations

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Command, DropEntry, Entry, GetEntry, decode_entry, dropped_partitions
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import log_start, next_index
from replitree.protocol.sharded import places
from replitree.protocol.sharded.shard_map import Shard, decode_map

ROOT, NAME = "/c", "d"
PLACE = layout.sharded(ROOT, NAME)


def shard_of(number: int, incarnation: str = "i") -> TablePlace:
    """Return the place of a shard."""
    return places.shard_place(ROOT, NAME, Shard(number), incarnation)


def shards_in(tree: Tree) -> tuple[TablePlace, ...]:
    """Return the shards that there are; none: the table is being dropped."""
    node = tree.get(layout.shard_map(PLACE))
    return () if node is None else tuple(shard_of(number) for number in decode_map(node.value, "").shards)


def log_in(tree: Tree, shard: TablePlace) -> tuple[tuple[fx.LogIndex, Entry], ...]:
    """Return (index, entry) of what the log of a shard still has."""
    node = tree.get(layout.log(shard))
    if node is None:
        return ()
    index, found = log_start(shard, node).first, list[tuple[fx.LogIndex, Entry]]()
    while (each := tree.get(layout.log_entry(shard, index))) is not None:
        entry = decode_entry(each.value, "")
        found.append((index, entry))
        index = next_index(index, entry)
    return tuple(found)


def given_in(tree: Tree, shard: TablePlace) -> tuple[tuple[fx.LogIndex, Command], ...]:
    """Return (index, entry) of each command in the log of a shard."""
    return tuple((index, entry) for index, entry in log_in(tree, shard) if isinstance(entry, Command))


def drops_in(tree: Tree) -> tuple[fx.LogIndex, ...]:
    """Return where the first shard has lost everything: by a drop, or by an overwrite."""
    log = log_in(tree, shard_of(0))
    return tuple(index for index, entry in log if isinstance(entry, DropEntry) or is_overwrite(entry))


def is_overwrite(entry: Entry) -> bool:
    """Whether an entry belongs to an overwrite."""
    return isinstance(entry, GetEntry) and bool(dropped_partitions(entry))


def commanding_in(tree: Tree, shard: TablePlace) -> tuple[tuple[fx.LogIndex, str], ...]:
    """Return (index, name) of each command and of each overwrite in the log of a shard."""
    found: list[tuple[fx.LogIndex, str]] = []
    for index, entry in log_in(tree, shard):
        if isinstance(entry, Command):
            found.append((index, entry.id))
        elif isinstance(entry, GetEntry) and is_overwrite(entry):
            found.append((index, str(entry.joint)))
    return tuple(found)


def fresh_in(before: Tree, after: Tree, shard: TablePlace) -> tuple[tuple[fx.LogIndex, Command], ...]:
    """Return (index, entry) of each command that a commit has appended to the log of a shard."""
    known = {index for index, _ in log_in(before, shard)}
    return tuple((index, entry) for index, entry in given_in(after, shard) if index not in known)


def inserts_in(tree: Tree, shard: TablePlace) -> tuple[fx.LogIndex, ...]:
    """Return where rows have come into a shard, or an overwrite has emptied it."""
    return tuple(index for index, entry in log_in(tree, shard) if isinstance(entry, GetEntry))
