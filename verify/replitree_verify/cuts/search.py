"""The search of a model of cuts, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from replitree.protocol.core import effects as fx
from replitree.protocol.core.fold import fold, open_after, settled
from replitree_verify.cuts.model import Model
from replitree_verify.cuts.space import Space
from replitree_verify.cuts.state import Answered, CutState, Rows, Written, rows_of
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.patches.patch import Patch


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)
    found = search_all(space, Rules(always=wrong), mutant)
    return replace(found, probes=frozenset(space.probes))


def wrong(state: CutState) -> Iterator[str]:
    """Give what does not hold in a state."""
    for number, reader in enumerate(state.readers):
        if reader.answered is not None:
            for problem in wrong_answer(state, reader.answered):
                yield f"{problem}, and reader {number} was shown {reader.answered.rows} at {reader.answered.cut}"


def wrong_answer(state: CutState, answered: Answered) -> Iterator[str]:
    """Give what is wrong with what a read has shown; the logs say what it had to show."""
    if answered.cut < answered.last:
        yield f"D9: the reader had read at {answered.last}"
    for rows in answered.rows:
        missing = answered.due - {row.rstrip("m") for row in rows}
        if missing:
            yield f"{answered.promise}: {sorted(missing)} was settled when the read began"
    if answered.rows[0] != answered.rows[1]:
        yield "D2: the shards differ"
    for shard, (log, rows) in enumerate(zip(state.logs, answered.rows, strict=True)):
        expected = rows_up_to(log, answered.cut)
        if rows != expected:
            yield f"D1: shard {shard} has {expected} there"


def rows_up_to(log: tuple[Written, ...], zxid: int) -> Rows:
    """Return what a shard has after a transaction."""
    there = tuple((each.at, each.entry) for each in log if each.zxid <= zxid)
    opened = tuple[fx.LogIndex, ...]()
    for index, entry in there:
        opened = open_after(opened, index, entry)
    return rows_of(log, settled(fold(there), opened))
