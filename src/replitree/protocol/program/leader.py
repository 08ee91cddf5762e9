"""The leader: proposes merges, lets the log go on below a fresh parent, and forgets results that no replica can make any more.

Every replica may believe that it leads; two at once are harmless.

Absent on purpose: which merges are worth it (`replitree.protocol.propose.select_merges`).
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import merged_part, parse_part
from replitree.protocol.program.stages import AwaitParts, AwaitPlace, End, LeadTurn, PlaceTurn, Stage, Then
from replitree.protocol.propose.propose import propose_merges
from replitree.protocol.propose.roll_over import NUMBERS_LEFT, roll_over
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state import work_mark
from replitree.protocol.upkeep.clean_results import clean_results, has_left, lowest_need

MERGES_AT_ONCE = 64
"""Merges appended in one commit."""


def lead(replica: Replica, merges: tuple[MergeEntry, ...], maker: Sharer | None = None) -> Stage:
    """Propose merges once their sources are there; find out the indexes of those that are certainly in the log.

    Parameters
    ----------
    maker
        The replica has the results already, which all replicas will own: no other replica makes them meanwhile.
    """
    turn: LeadTurn = yield AwaitParts(tuple(source for merge in merges for source in merge.sources))
    if maker is not None:
        for merge in merges:
            yield from work_mark.take(maker, turn.epoch, merged_part(tuple(map(parse_part, merge.sources))).name)
    place, indexes = layout.at_pointer(replica, turn.pointer), list[fx.LogIndex]()
    for first in range(0, len(merges), MERGES_AT_ONCE):
        committed = yield from propose_merges(place, turn.epoch, merges[first : first + MERGES_AT_ONCE])
        if isinstance(committed, fx.Applied):
            indexes += (layout.index_of(place.table, path) for path in committed.created)
        elif isinstance(committed, fx.Refused) and isinstance(committed.operation, fx.Check):
            # The epoch is over or the log is closed, so the other entries would be refused, too.
            break
    return End(tuple(indexes))


def roll(replica: Replica, pulled: int = layout.PARENT_ENTRIES - NUMBERS_LEFT) -> Stage:
    """Let the log go on below the next parent as soon as so many entries below the present one are pulled.

    It finds out whether that is certain.
    """
    turn: PlaceTurn = yield AwaitPlace(pulled)
    return End((yield from roll_over(layout.at_pointer(replica, turn.place.pointer.index), turn.epoch)))


def note_results(replica: Replica) -> Stage:
    """Note the results that have left the table, to forget them later."""
    turn: PlaceTurn = yield AwaitPlace()
    names: tuple[str, ...] = (yield fx.Children(layout.results(replica.table))) or ()
    left = tuple(name for name in names if has_left(parse_part(name), turn.place))
    return Then(forget_results, (replica, turn.place.pointer.index, left)) if left else None


def forget_results(replica: Replica, pointer: fx.LogIndex, names: tuple[str, ...]) -> Stage:
    """Forget results that had left below `pointer`, if every replica is past it; find out how many.

    None at its end: a replica may still make one of them.  The same stage may be run again later.
    """
    turn: PlaceTurn = yield AwaitPlace()
    need = yield from lowest_need(replica.table)
    if need is None or need.lowest < pointer:
        return None
    return End((yield from clean_results(replica, turn.epoch, names, need.added)))


__all__ = ["MERGES_AT_ONCE", "forget_results", "lead", "note_results", "roll"]
