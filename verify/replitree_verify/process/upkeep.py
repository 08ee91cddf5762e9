"""Upkeep: what a leader and a cleaner do now and then besides merging, as duties of a model.

Results that have left are forgotten and the log goes on below a fresh parent by the leader's own stages
(`replitree.protocol.program.leader`).  Deduplication ids are forgotten by those of `replitree.protocol.program.cleaner`; most
models run only the first of them, which leaves the log as it is.

*Times.*  Ids are forgotten by age too.  In a model that says how long they stay (`Model.window`) coordination has a clock that
moves with every entry of the log: the time of an id is the number of entries before it was written.  It is kept beside the tree
(`past`), and read with the node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from replitree.protocol.core.effects import BlockId, Effect
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import cleaner, leader
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.upkeep.clean_blocks import Block, BlocksCleaned, Window
from replitree.protocol.upkeep.clean_log import Keep

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PauseMerges(Effect):
    """An operator lets the replica merge nothing; one that it is making ends.  Outcome: None."""


# --- duties -------------------------------------------------------------------------------------------------------------------


def forget_ids(
    replica: Replica, count: int, age_ms: int, rounds: int = 1, known: tuple[tuple[BlockId, Block], ...] = ()
) -> Stage:
    """Run the first stage of so many turns of the cleaner; what was read is remembered in between."""
    ended = yield from cleaner.clean_ids(replica, Window(count, age_ms), Keep(), known)
    if rounds == 1:
        return None
    assert isinstance(ended, Then), "the log would be cleaned next"
    assert isinstance(ended.outcome, BlocksCleaned), "the first stage finds out which ids are left"
    left = tuple(sorted(ended.outcome.blocks.items()))
    return Then(forget_ids, (replica, count, age_ms, rounds - 1, left))


def pause_merges(_replica: Replica) -> Stage:
    """Pause merges, some time."""
    yield PauseMerges()
    return None


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "roll": leader.roll,
    "ids": forget_ids,
    "tidy": cleaner.clean_ids,
    "results": leader.note_results,
    "pause": pause_merges,
    "forget": cleaner.forget_stream,
    "old-streams": cleaner.clean_streams,
}
"""What a model can ask for, by name."""
