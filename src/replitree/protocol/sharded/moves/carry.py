"""The mover: carries the moves of a sharded table on, batch after batch, until their sources have no row of theirs any more.

Any process may run it, also several at once, and at any time after another one has died: all that it needs stands in the map
and in the node ``moves``.  Each turn begins with a look at both:

========================================  ========================================================================
what it finds                             what it does
========================================  ========================================================================
no moves                                  it is done
a batch on its way, with its quorum       shows it (`protocol.sharded.moves.batch.show`)
a batch on its way, without               waits; takes it back when it can't be had any more, as the process says
inserts open since before the moves       waits until they have ended
rows left at a source                     lets a replica of the target prepare some of them, and lays them; rows that differ
                                          from those of the source are noted instead, given up, and prepared again
no rows left                              ends the moves
========================================  ========================================================================

What became of a commit, also of one without an answer, the next look tells.

Absent on purpose: clocks, and reading rows: that is what the process is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.sharded.moves.batch import (
    Laid,
    Laying,
    RowsRemoval,
    lay,
    list_opened,
    look_at,
    refuse,
    show,
    take_back,
    taken_back,
)
from replitree.protocol.sharded.moves.course import MovesFound, Turned, end, find_moves, turn_back
from replitree.protocol.sharded.moves.progress import Batch
from replitree.protocol.sharded.shard_map import Shard

ATTEMPTS_MAX = 16
"""How often moves are looked at again, when another process changes them all the time."""


@dataclass(frozen=True, slots=True)
class PrepareBatch(fx.Effect):
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
class GiveUpBatch(fx.Effect):
    """Let the replica of the target give up what it has prepared, unless it was laid; it may differ from the source."""

    laying: Laying


@dataclass(frozen=True, slots=True)
class DescribeRemoval(fx.Effect):
    """Write down what deletes the rows of a move from its source.  Outcome: `RowsRemoval`, with an id that was never used."""

    found: MovesFound
    source: Shard
    target: Shard


@dataclass(frozen=True, slots=True)
class AwaitHolders(fx.Effect):
    """Wait until more replicas of the target may have a batch.

    Outcome: whether to wait longer; False: the replicas that have it are away.
    """

    laid: Laid


@dataclass(frozen=True, slots=True)
class AwaitInserts(fx.Effect):
    """Wait until inserts may have ended that were open when the moves began, by the nodes of their quorums."""

    opened: frozenset[str]


class MoverEnd(Enum):
    """What a mover finds at its end: no moves (any more), or no such table."""

    DONE = "done"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class AwaitedInserts:
    """What a mover remembers from turn to turn: the inserts that were open when it first saw the moves of a map.

    Attributes
    ----------
    map_version
        Of the map.
    opened
        Those that are open still.
    """

    map_version: fx.Version
    opened: frozenset[str]


def carry_moves(place: str, commands: str) -> fx.Procedure[MoverEnd]:
    """Carry the moves of a sharded table on to their end.

    Parameters
    ----------
    place, commands
        The path of the sharded table, and of the node that counts its commands.
    """
    turn: MoverEnd | AwaitedInserts | None = None
    while not isinstance(turn, MoverEnd):
        turn = yield from take_turn(place, commands, turn)
    return turn


def take_turn(
    place: str, commands: str, awaited: AwaitedInserts | None
) -> fx.Procedure[MoverEnd | AwaitedInserts | None]:
    """Take one turn of a mover; parameters as of `carry_moves`.

    Returns
    -------
    Its end, or what the next turn gets as `awaited`; the first one gets None.
    """
    found = yield from find_moves(place)
    if found is None or found.progress is None:
        return MoverEnd.GONE if found is None else MoverEnd.DONE
    if found.batch is not None:
        yield from _go_on(found, found.batch)
        return awaited
    # Moves that have turned back have other sources.
    if awaited is None or awaited.map_version != found.map_version:
        return AwaitedInserts(found.map_version, (yield from list_opened(found.sources)))
    if awaited.opened:
        paths = tuple(sorted(awaited.opened))
        many: fx.Many = yield fx.GetMany(paths)
        opened = frozenset(path for path, node in zip(paths, many.nodes, strict=True) if node is not None)
        if opened:
            yield AwaitInserts(opened)
        # The next turn begins with a new look: what the inserts have brought must be in what is read.
        return AwaitedInserts(found.map_version, opened)
    counter: fx.Node | None = yield fx.Get(commands)
    if counter is None:
        # A table of an earlier version.
        yield fx.Commit(fx.Check(place, fx.ANY_VERSION), fx.Create(commands))
        return awaited
    # Both versions were read first: what is laid was read when no later command or batch was there (D1).
    prepared: Laying | NothingLeft | NotPrepared = yield PrepareBatch(found)
    if isinstance(prepared, NothingLeft):
        yield from end(found)
    elif isinstance(prepared, Laying) and prepared.difference:
        # The rows stay where they are: shown, they would replace those that the source deletes (D1).
        yield from refuse(found, prepared)
        yield GiveUpBatch(prepared)
    elif isinstance(prepared, Laying):
        laid = yield from lay(found, (commands, counter.version), prepared)
        if not isinstance(laid, fx.Applied):
            yield GiveUpBatch(prepared)
    return awaited


def turn_moves_back(place: str, attempts_max: int = ATTEMPTS_MAX) -> fx.Procedure[Turned]:
    """Let the moves of a sharded table turn back: buckets get their old owners, and rows go back.

    A mover carries them on from there.  `attempts_max`: how often it is tried while others change the moves.
    """
    for _ in range(attempts_max):
        found = yield from find_moves(place)
        if found is None or found.progress is None:
            return Turned.REFUSED
        takes_back: tuple[fx.Operation, ...] = ()
        if found.batch is not None:
            laid = yield from look_at(found, found.batch)
            if laid is None:
                continue
            takes_back = yield from taken_back(found, laid)
        outcome = yield from turn_back(found, takes_back)
        if outcome is not Turned.REFUSED:
            return outcome
    return Turned.REFUSED


def _go_on(found: MovesFound, batch: Batch) -> fx.Procedure[None]:
    """Show a batch that is on its way, or wait for its quorum, or take it back."""
    laid = yield from look_at(found, batch)
    if laid is None:
        # It was shown, or taken back, since the moves were looked at.
        return
    if laid.is_ready:
        removal: RowsRemoval = yield DescribeRemoval(found, batch.source, batch.target)
        yield from show(found, laid, removal)
    elif not (yield AwaitHolders(laid)):
        yield from take_back(found, laid)
