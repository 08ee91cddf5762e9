"""The search of a model of the tags of a sharded table, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.upkeep.cut_tags import CutTagThere
from replitree.protocol.upkeep.tags import decode_tag
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.tags.model import Model
from replitree_verify.tags.space import NAME, ROOT, SHARDS, Space, TagsState, tag_in


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)

    def always(state: TagsState) -> Iterator[str]:
        yield from wrong(space, state)

    found = search_all(space, Rules(always=always, at_rest=wrong_at_rest), mutant)
    return replace(found, probes=frozenset(space.probes))


def wrong(space: Space, state: TagsState) -> Iterator[str]:
    """Give what does not hold in a state."""
    tag = tag_in(state.tree)
    for each in () if tag is None else tag.shards:
        node = state.tree.get(layout.tag(TablePlace(f"{layout.tables(ROOT)}/{each.shard}"), NAME))
        kept = None if node is None else decode_tag(node.value, "")
        if tag is not None and (kept is None or (kept.id, kept.index) != (tag.id, each.index)):
            yield f"KEPT: the tag of {tag.id} needs {each.shard} at {each.index}, which keeps {kept}"
    for number, (job, told) in enumerate(zip(space.jobs, state.told, strict=True)):
        own = isinstance(told, CutTagThere) and told.value is not None and told.value.id == job.id
        if own and job.id not in state.shown:
            yield f"TRUE: {job.id} is said to be made, and never was there"
        is_refused = told is not None and not own and not isinstance(told, fx.InDoubt)
        if job.id and is_refused and number not in state.doubts and job.id in state.shown:
            yield f"TRUE: {job.id} is said not to be made ({told}), and was there"


def wrong_at_rest(state: TagsState) -> Iterator[str]:
    """Give what does not hold where nothing is left to do."""
    left = [shard.name for shard in SHARDS if state.tree.exists(layout.tag(shard, NAME))]
    is_well = not state.doubts and all(isinstance(told, CutTagThere) for told in state.told)
    if tag_in(state.tree) is None and left and is_well:
        yield f"LEFT: {', '.join(left)} keeps what no tag needs"
