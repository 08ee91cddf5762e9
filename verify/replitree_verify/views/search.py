"""The search of a model of views, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import GetEntry
from replitree_verify.engine.shared_tree import log_of
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.views.model import Model
from replitree_verify.views.space import TABLES, Space, ViewState
from replitree_verify.views.tables import alters, begun_at, ended_at, rows_due, rows_of, rows_there, settled_in


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)

    def at_rest(state: ViewState) -> Iterator[str]:
        yield from wrong_at_rest(space, state)

    found = search_all(space, Rules(always=violations, at_rest=at_rest), mutant)
    return replace(found, probes=frozenset(space.probes))


def violations(state: ViewState) -> Iterator[str]:
    """Give what does not hold in a state."""
    tree = state.tree
    rows = "".join(rows_of(entry) for _, entry in settled_in(tree))
    if len(set(rows)) < len(rows):
        yield f"V2: the source has {rows}"
    due, there = rows_due(tree), rows_there(tree)
    if due != there:
        yield f"V1: the target has {sorted(there.elements())}, and not {sorted(due.elements())}"
    begun, ended = begun_at(tree), ended_at(tree)
    if begun is not None and any(ended is None or at < ended for at in alters(tree)):
        yield "V3: a column that the view reads was dropped"
    for name, table in TABLES.items():
        for _, entry in log_of(tree, table):
            if isinstance(entry, GetEntry) and (entry.replica, name, entry.insert) not in state.folders:
                yield f"V4: the files of {entry.insert} are gone"


def wrong_at_rest(space: Space, state: ViewState) -> Iterator[str]:
    """Give what does not hold where nothing is left to do."""
    rows = "".join(rows_of(entry) for _, entry in settled_in(state.tree))
    for job, told in zip(space.jobs, state.answers, strict=True):
        if job.kind == "send" and isinstance(told, fx.Inserted | fx.Duplicate) and job.more.token not in rows:
            yield f"V5: {job.more.token} is acknowledged"
