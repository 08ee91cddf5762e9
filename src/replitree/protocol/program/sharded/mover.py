"""The mover: carries the moves of a sharded table on, batch after batch, until their sources have no row of theirs any more.

Any process may run it, also several at once, and at any time after another one has died: all that it needs stands in the map
and in the node ``moves``.  Each turn begins with a look at both:

========================================  ========================================================================
what it finds                             what it does
========================================  ========================================================================
no moves                                  it is done
a batch on its way, with its quorum       shows it (`protocol.sharded.moves.batch.show`)
a batch on its way, without               waits; takes it back when the wait was too long
inserts open since before the moves       waits until they have ended
rows left at a source                     lets a replica of the target prepare some of them, and lays them
no rows left                              ends the moves
========================================  ========================================================================

What became of a commit, also of one without an answer, the next look tells.

Absent on purpose: clocks, and reading rows: that is what the process is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.program.stages import End, MemoryEffect, Stage
from replitree.protocol.sharded.moves.batch import Laid, Laying, Removal, lay, list_opened, look_at, show, take_back
from replitree.protocol.sharded.moves.course import MovesFound, Turned, end, find_moves, turn_back
from replitree.protocol.sharded.moves.progress import Batch
from replitree.protocol.sharded.shard_map import Shard

ATTEMPTS_MAX = 16
"""How often moves are looked at again, when another process changes them all the time."""


@dataclass(frozen=True, slots=True)
class PrepareBatch(MemoryEffect):
    """Read rows that are to move, and let a replica of their target prepare them.

    They are all rows of one move in some partitions.  The read is linearizable, and begins after this is asked for.  Outcome:
    `Laying`; `NothingLeft`: no source has rows of its moves; `NotPrepared`: it failed.
    """

    found: MovesFound


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """No source has rows of its moves."""


@dataclass(frozen=True, slots=True)
class NotPrepared:
    """Rows could not be read, or not be prepared; `reason` is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUpBatch(MemoryEffect):
    """Let the replica of the target give up what it has prepared, unless it was laid."""

    laying: Laying


@dataclass(frozen=True, slots=True)
class DescribeRemoval(MemoryEffect):
    """Write down what deletes the rows of a move from its source.  Outcome: `Removal`, with an id that was never used."""

    found: MovesFound
    source: Shard
    target: Shard


@dataclass(frozen=True, slots=True)
class AwaitHolders(MemoryEffect):
    """Wait until more replicas of the target may have a batch.  Outcome: whether to wait longer; False: it took too long."""

    laid: Laid


@dataclass(frozen=True, slots=True)
class AwaitInserts(MemoryEffect):
    """Wait until inserts may have ended that were open when the moves began."""


class MoverEnd(Enum):
    """What a mover finds at its end: no moves (any more), or no such table."""

    DONE = "done"
    GONE = "gone"


def carry_moves(place: str, commands: str) -> Stage:
    """Carry the moves of a sharded table on to their end; find out a `MoverEnd`.

    Parameters
    ----------
    place, commands
        The path of the sharded table, and of the node that counts its commands.
    """
    opened: tuple[fx.Version, frozenset[str]] | None = None
    while True:
        found = yield from find_moves(place)
        if found is None or found.progress is None:
            return End(MoverEnd.GONE if found is None else MoverEnd.DONE)
        if found.batch is not None:
            yield from _go_on(found, found.batch)
            continue
        # Moves that have turned back have other sources.
        if opened is None or opened[0] != found.map_version:
            opened = found.map_version, (yield from list_opened(found.sources))
        if opened[1]:
            paths = tuple(sorted(opened[1]))
            many: fx.Many = yield fx.GetMany(paths)
            left = frozenset(path for path, node in zip(paths, many.nodes, strict=True) if node is not None)
            opened = found.map_version, left
            if left:
                yield AwaitInserts()
            # Looked at anew: what the inserts have brought must be in what is read.
            continue
        counter: fx.Node | None = yield fx.Get(commands)
        if counter is None:
            # A table of an earlier version.
            yield fx.Commit(fx.Check(place, fx.ANY_VERSION), fx.Create(commands))
            continue
        # Both versions were read first: what is laid was read when no later command or batch was there (D1).
        prepared: Laying | NothingLeft | NotPrepared = yield PrepareBatch(found)
        if isinstance(prepared, NothingLeft):
            yield from end(found)
        elif isinstance(prepared, Laying):
            laid = yield from lay(found, (commands, counter.version), prepared)
            if not isinstance(laid, fx.Applied):
                yield GiveUpBatch(prepared)


def turn_moves_back(place: str) -> Stage:
    """Let the moves of a sharded table turn back: buckets get their old owners, and rows go back; find out a `Turned`.

    A mover carries them on from there.
    """
    for _ in range(ATTEMPTS_MAX):
        found = yield from find_moves(place)
        if found is None or found.progress is None:
            return End(Turned.REFUSED)
        if found.batch is not None:
            laid = yield from look_at(found, found.batch)
            if laid is not None:
                yield from take_back(found, laid)
            continue
        outcome = yield from turn_back(found)
        if outcome is not Turned.REFUSED:
            return End(outcome)
    return End(Turned.REFUSED)


def _go_on(found: MovesFound, batch: Batch) -> fx.Procedure[None]:
    """Show a batch that is on its way, or wait for its quorum, or take it back."""
    laid = yield from look_at(found, batch)
    if laid is None:
        # It was shown, or taken back, since the moves were looked at.
        return
    if laid.is_ready:
        removal: Removal = yield DescribeRemoval(found, batch.source, batch.target)
        yield from show(found, laid, removal)
    elif not (yield AwaitHolders(laid)):
        yield from take_back(found, laid)


__all__ = [
    "AwaitHolders",
    "AwaitInserts",
    "DescribeRemoval",
    "GiveUpBatch",
    "MoverEnd",
    "NotPrepared",
    "NothingLeft",
    "PrepareBatch",
    "carry_moves",
    "turn_moves_back",
]
