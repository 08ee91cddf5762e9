"""The search of a model of the views of a sharded table, and what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded import places
from replitree.protocol.sharded.joint_insert import JointInserted
from replitree.protocol.sharded.moves.course import Turned
from replitree.protocol.sharded.shard_map import decode_map
from replitree.protocol.sharded.views import ViewChange, ViewRefused
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.viewed.model import Model
from replitree_verify.viewed.space import MOVES, PLACES, Space, ViewedState, rows_in, view_in, views_in


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)

    def always(state: ViewedState) -> Iterator[str]:
        yield from wrong(space, state)

    def at_rest(state: ViewedState) -> Iterator[str]:
        yield from wrong_at_rest(space, state)

    found = search_all(space, Rules(always=always, at_rest=at_rest), mutant)
    return replace(found, probes=frozenset(space.probes))


def wrong(space: Space, state: ViewedState) -> Iterator[str]:
    """Give what does not hold in a state."""
    tree, source = state.tree, [Counter(rows_in(state.tree, "d", number)) for number in range(2)]
    there = Counter(rows_in(tree, "t", 0)) + Counter(rows_in(tree, "t", 1))
    if source[0] != source[1] or any(count > 1 for count in source[0].values()):
        yield f"V2: the shards of the source have {source}"
    if there != Counter(state.due):
        yield f"V1: the target has {sorted(there.elements())}, and not {list(state.due)}"
    if state.misplaced:
        yield "PLACED: a row has come into a shard that did not own it"
    stands = bool(views_in(tree))
    if stands != (view_in(tree) is not None):
        yield "V1: a view and its node are not there together"
    columns = tree.get(places.columns(PLACES["d"]))
    if stands and columns is not None and columns.version:
        yield "V3: a column that the view reads was dropped"
    if stands and not all(tree.exists(layout.shard_map(place)) for place in PLACES.values()):
        yield "KEPT: a table that the view needs was dropped"
    for job, told in zip(space.jobs, state.told, strict=True):
        if job.kind == "create" and told is ViewChange.DONE and not state.shown[0]:
            yield "TRUE: the view is said to be created, and never was there"
        node = tree.get(layout.shard_map(PLACES.get(job.of, "")))
        if told is Turned.DONE and node is not None and decode_map(node.value, "").owners[MOVES] != 1:
            yield f"TRUE: the bucket of {job.of} is said to move, and does not"
        if job.kind == "insert" and isinstance(told, JointInserted) and job.of not in source[0]:
            yield f"TRUE: {job.of} is said to be inserted, and is not there"


def wrong_at_rest(space: Space, state: ViewedState) -> Iterator[str]:
    """Give what does not hold where nothing is left to do."""
    rows = rows_in(state.tree, "d", 0)
    for job, told in zip(space.jobs, state.told, strict=True):
        is_only = sum(each == job for each in space.jobs) == 1
        if job.kind == "insert" and is_only and isinstance(told, fx.NotInserted) and job.of in rows:
            yield f"TRUE: {job.of} was refused, and is there"
        if job.kind == "create" and isinstance(told, ViewRefused) and state.shown[0]:
            yield "TRUE: the view is said not to be created, and was there"
        creates = any(each.kind == "create" for each in space.jobs)
        if job.kind == "drop" and told is ViewChange.DONE and not creates and view_in(state.tree) is not None:
            yield "TRUE: the view is said to be dropped, and is there"
