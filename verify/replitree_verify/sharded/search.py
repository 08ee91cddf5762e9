"""The search of a model of a sharded table's life, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import encode_log, log_start
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.rescue.restore import NotRestored
from replitree.protocol.rescue.restore_sharded import NotOneCut, Shown
from replitree.protocol.sharded import places
from replitree.protocol.sharded.creation import Creation
from replitree.protocol.sharded.life import decode_life
from replitree.protocol.sharded.removal import ShardedRemoval
from replitree.protocol.sharded.shard_map import Shard
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.sharded.model import Model
from replitree_verify.sharded.space import NAME, PLACE, PLAIN, RESERVED, ROOT, LifeState, Space, Told

REFUSED = (Creation.TAKEN, Creation.EXISTS, Creation.HALF_MADE, Creation.RESTORING, Creation.DROPPING)
"""Answers after which nothing of a creation is there, or ever will be."""


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)

    def always(state: LifeState) -> Iterator[str]:
        yield from wrong(model, state)

    def at_rest(state: LifeState) -> Iterator[str]:
        yield from wrong_at_rest(space, state)

    found = search_all(space, Rules(always=always, at_rest=at_rest), mutant)
    return replace(found, probes=frozenset(space.probes))


def wrong(model: Model, state: LifeState) -> Iterator[str]:
    """Give what does not hold in a state."""
    tree, node = state.tree, state.tree.get(PLACE)
    incarnation = "" if node is None else node.value.decode()
    is_there = tree.exists(layout.shard_map(PLACE))
    taken = tree.get(RESERVED)
    is_plain = tree.exists(layout.metadata(PLAIN))
    if is_plain and node is not None:
        yield "NAME: the name is that of two tables"
    if not is_plain and (taken is None) != (node is None):
        yield "NAME: the name is taken by no table, or a table has no name"
    for name in tree.children(layout.tables(ROOT)) or ():
        if places.is_shard_name(name):
            shard = tree.get(f"{layout.tables(ROOT)}/{name}")
            own = places.shard_place(ROOT, NAME, places.shard_number(name), incarnation or "none").incarnation
            if shard is None or shard.value.decode() != own:
                yield f"OWNED: {name} belongs to no table that is there"
    if is_there:
        for number in range(model.shards):
            yield from wrong_shards(tree, places.shard_place(ROOT, NAME, Shard(number), incarnation))
        accepted = any(disk.torn for disk in model.disks)
        # All of one ensemble here.  Not by `common_cut`, which is what is checked.
        stood = [each.standing for each in state.stood]
        if stood and not accepted and max(each.first for each in stood) > min(each.last for each in stood):
            yield "ONE: the table is there, and its shards stand at no common cut"
    for told in state.told:
        yield from wrong_answers(state, told)


def wrong_shards(tree: Tree, shard: TablePlace) -> Iterator[str]:
    """Give what is wrong with a shard of a table that is there."""
    log = tree.get(layout.log(shard))
    # The log of a restored table begins below a later parent.
    parent = 0 if log is None else layout.parent_of(log_start(shard, log).first)
    shard = shard.below(parent)
    missing = [each.path for each in table_nodes(shard, b"", b"", encode_log(shard)) if not tree.exists(each.path)]
    if missing:
        yield f"WHOLE: the table is there, and {missing[0]} is not"
    if tree.exists(layout.restoring(shard)):
        yield f"WHOLE: the table is there, and {shard.name} is being restored"
    if tree.exists(layout.dropped(shard)):
        yield f"WHOLE: the table is there, and {shard.name} is being dropped"


def wrong_answers(state: LifeState, told: Told | None) -> Iterator[str]:
    """Give what is wrong with what a client was told."""
    if told is None:
        return
    outcome, incarnation = told
    node, taken = state.tree.get(PLACE), state.tree.get(RESERVED)
    has_it = [each for each in (node, taken) if each is not None and each.value == incarnation.encode()]
    if isinstance(outcome, Shown) and incarnation not in state.shown:
        yield f"TRUE: {incarnation} is said to be restored, and never was there"
    if outcome is Creation.DONE and incarnation not in state.shown:
        yield f"TRUE: {incarnation} is said to be created, and never was there"
    if outcome in REFUSED and (incarnation in state.shown or has_it):
        yield f"TRUE: {incarnation} is said not to be created ({outcome.value}), and was there"
    if outcome is ShardedRemoval.DONE and has_it:
        yield f"TRUE: {incarnation} is said to be dropped, and is there"


def wrong_at_rest(space: Space, state: LifeState) -> Iterator[str]:
    """Give what does not hold where nothing is left to do."""
    node = state.tree.get(PLACE)
    if node is None:
        return
    life = places.life(PLACE, node.value.decode())
    value = state.tree.get(life)
    stage = "none" if value is None else decode_life(value.value, life).stage
    unsettled = any(
        told is not None
        and (
            told[0] in (Creation.UNSETTLED, ShardedRemoval.UNSETTLED, ShardedRemoval.SHARDS_LEFT)
            or isinstance(told[0], NotOneCut)
            or (isinstance(told[0], NotRestored) and told[0].again)
        )
        for told in state.told
    )
    if stage != "made" and not state.has_crashed and not unsettled:
        yield f"HALF: the table stays {stage}"
    finished = [
        told
        for job, told in zip(space.jobs, state.told, strict=True)
        if job.kind == "finish" and told is not None and told[0] is Creation.DONE
    ]
    if finished and stage == "making":
        yield "HALF: a process has finished the table, which is half made"
