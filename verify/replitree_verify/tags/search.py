"""The search of a model of the tags or consumers of a sharded table, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.sharded import places
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.sharded.moves.course import Turned
from replitree.protocol.sharded.shard_map import Shard
from replitree.protocol.upkeep.consumers import ConsumerValue
from replitree.protocol.upkeep.named_cuts import CutThere
from replitree.protocol.upkeep.shard_removal import ShardNeeded, ShardRemoved
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.tags.model import Model
from replitree_verify.tags.space import EMPTIED, TABLE, Space, TagsState, shards_in


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)

    def always(state: TagsState) -> Iterator[str]:
        yield from _unkept(space, state.tree)
        yield from _untrue(space, state)

    def at_rest(state: TagsState) -> Iterator[str]:
        yield from wrong_at_rest(space, state)

    def step(before: TagsState, _: Any, after: TagsState, _is_new: bool) -> str | None:
        return _gone_back(space, before.tree, after.tree)

    found = search_all(space, Rules(always=always, at_rest=at_rest, step=step), mutant)
    return replace(found, probes=frozenset(space.probes))


def kept_in(space: Space, tree: Tree, shard: str) -> Any:
    """Return what a shard keeps for the name; None: nothing."""
    path = space.at.of_shard(shard)[1]
    node = tree.get(path)
    return None if node is None else space.at.kind.decode_shard(node.value, path)


def _unkept(space: Space, tree: Tree) -> Iterator[str]:
    value = space.found(tree)
    if value is None:
        return
    indexes: dict[str, int] = {each.shard: each.index for each in value.shards}
    # A shard that has come since has no entry that the consumer has read.
    needed = dict.fromkeys(shards_in(tree), 0) | indexes if space.model.of_consumers else indexes
    for shard, index in needed.items():
        kept = kept_in(space, tree, shard)
        is_over = isinstance(kept, ConsumerValue) and bool(kept.expired)
        if shard not in shards_in(tree):
            if parse_cut(value.cut).zxid < EMPTIED and not is_over:
                yield f"KEPT: {value.id} at {value.cut} needs {shard}, which was removed"
            continue
        if kept is None or kept.id != value.id or (kept.index != index and not is_over):
            yield f"KEPT: {value.id} at {value.cut} needs {shard} at {index}, which keeps {kept}"


def _untrue(space: Space, state: TagsState) -> Iterator[str]:
    shown = {known_as for known_as, _ in state.shown}
    for number, (job, told) in enumerate(zip(space.jobs, state.told, strict=True)):
        if job.cut and isinstance(told, CutThere) and told.value is not None:
            stands = parse_cut(told.value.cut).zxid
            if stands < job.cut or (told.value.id, told.value.cut) not in state.shown:
                yield f"TRUE: the consumer is said to stand at {stands}, and was to be moved to {job.cut}"
        own = isinstance(told, CutThere) and told.value is not None and told.value.id == job.id
        if own and job.id not in shown:
            yield f"TRUE: {job.id} is said to be made, and never was there"
        is_refused = told is not None and not own and not isinstance(told, fx.InDoubt)
        if job.id and is_refused and number not in state.doubts and job.id in shown:
            yield f"TRUE: {job.id} is said not to be made ({told}), and was there"


def _gone_back(space: Space, before: Tree, after: Tree) -> str | None:
    """Return what has gone back in a step, of a consumer that is the same one before and after."""
    one, other = space.found(before), space.found(after)
    if not space.model.of_consumers or one is None or other is None or one.id != other.id:
        return None
    if parse_cut(other.cut).zxid < parse_cut(one.cut).zxid:
        return f"BACK: the consumer goes from {one.cut} back to {other.cut}"
    for shard in shards_in(before):
        was, now = kept_in(space, before, shard), kept_in(space, after, shard)
        if was is not None and now is not None and now.index < was.index:
            return f"BACK: the consumer goes from {was.index} back to {now.index} in {shard}"
        if was is not None and now is not None and was.expired and not now.expired:
            return f"BACK: the hold that had ended in {shard} is taken up again"
    return None


def wrong_at_rest(space: Space, state: TagsState) -> Iterator[str]:
    """Give what does not hold where nothing is left to do."""
    shards = [places.shard_name(TABLE, Shard(number)) for number in range(3)]
    left = [shard for shard in shards if kept_in(space, state.tree, shard) is not None]
    is_well = not state.doubts and all(
        isinstance(told, CutThere | Turned | ShardRemoved | ShardNeeded) for told in state.told
    )
    # What a shard that was removed still has goes with its table.
    left = [shard for shard in left if space.model.removes == 0 or shard in shards_in(state.tree)]
    if space.found(state.tree) is None and left and is_well:
        yield f"LEFT: {', '.join(left)} keeps what nothing needs"
