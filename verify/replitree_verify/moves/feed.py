"""The change feed of a shard in a model of moves: the production definition, over the log of the shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from replitree.coordination.tree import Tree
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import GetEntry, MutateEntry
from replitree.protocol.core.fold import apply, open_after
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part
from replitree.protocol.feed.definition import OpenInserts, step_of
from replitree.protocol.sharded.feed import advance_shard, is_of_move
from replitree_verify.engine.shared_tree import log_of
from replitree_verify.moves.logs import SHARDS, mutated_rows


class Fed(NamedTuple):
    """A row of the feed.

    Attributes
    ----------
    row, comes
        The row, and whether it comes or goes.
    of_part
        Whether it is one of a whole part that comes, or goes by an overwrite; otherwise a mutation has changed or deleted it.
    """

    row: str
    comes: bool
    of_part: bool


@lru_cache(65536)
def fed_in(tree: Tree, shard: int) -> tuple[Fed, ...]:
    """Return what a shard feeds, by its log."""
    table = SHARDS[shard]
    parts, opened, opens = PartSet(), tuple[LogIndex, ...](), OpenInserts()
    rows, fed = dict[Part, tuple[str, ...]](), list[Fed]()
    for index, entry in log_of(tree, table):
        parts, change = apply(parts, index, entry, opened=opened)
        opened = open_after(opened, index, entry)
        match entry:
            case GetEntry():
                for part, staged in zip(change.added, entry.parts, strict=True):
                    rows[part] = tuple(staged.content_hash.split())
            case MutateEntry():
                for old, new in zip(change.removed, change.added, strict=True):
                    rows[new] = mutated_rows(rows[old], entry)
        opens, feed = advance_shard(opens, step_of(entry, change, opened), of_move=is_of_move(table, entry))
        for unit in feed.units:
            if unit.before is None:
                fed += (Fed(row, comes=unit.type == "insert", of_part=True) for row in rows[unit.part])
                continue
            before, after = Counter(rows[unit.before]), Counter(rows[unit.part])
            fed += (Fed(row, comes=False, of_part=False) for row in (before - after).elements())
            fed += (Fed(row, comes=True, of_part=False) for row in (after - before).elements())
    return tuple(fed)


def wrong_feed(tree: Tree, shown: Counter[str]) -> Iterator[str]:
    """Give what is wrong with the change feed of the sharded table, from the beginning up to here."""
    fed = [each for shard in range(len(SHARDS)) for each in fed_in(tree, shard)]
    total = Counter[str]()
    for each in fed:
        total[each.row] += 1 if each.comes else -1
    if +total != shown or -total:
        yield f"D8: the feed leads to {sorted(total.elements())}, and {sorted(shown.elements())} is shown"
    # No client deletes rows, and each row is inserted once.
    inserted = Counter(each.row.rstrip("'") for each in fed if each.of_part and each.comes)
    again = sorted(row for row, count in inserted.items() if count > 1)
    if again:
        yield f"D8: {again} comes more than once"
    changed = Counter[str]()
    for each in fed:
        if not each.of_part:
            changed[each.row.rstrip("'")] += 1 if each.comes else -1
    gone = sorted(row for row, count in changed.items() if count)
    if gone:
        yield f"D8: {gone} is deleted, and no client has deleted anything"
