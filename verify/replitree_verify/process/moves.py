"""What a mover asks of its process and its disk, as the explorer performs it, and the simulator in part.

The mover is the replica's own stage.  When a storage policy changes, the replica hears of it (`HearPlaces`).  Patience is left
out: a move is tried `tries` times in each process, and a move into the store that has failed again once no replica claims the
part.  So a state in which no mover goes on is one in which none could.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Effect
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import mover
from replitree.protocol.program.stages import AwaitMove, MoveEnded, MoveTurn, Then
from replitree.protocol.shares.moving import Moved, NameMove, NoteMove, ToDisk, ToShare
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import SharesInDoubt
from replitree_verify.process.shares import Performed, sharer_of
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.moves import Place
from replitree_verify.world.shared_disk import SharedDisk


@dataclass(frozen=True, slots=True)
class HearPlaces(Effect):
    """Hear where parts belong, one place after the other, and how often a part is moved there at the most."""

    places: tuple[Place, ...]
    tries: int


@dataclass(frozen=True, slots=True)
class LoseRows(Effect):
    """Remove a part's files, all but its manifest.  Outcome: None.  No effect of the product does that: a mutant does."""

    part: str


ON_DISK = (NoteMove, ToShare, ToDisk, LoseRows)
"""What changes the disk."""


def begin_moves(replica: Replica, places: tuple[Place, ...], tries: int) -> Generator[Any, Any, Then]:
    """Hear where parts belong, and move them there."""
    yield HearPlaces(places, tries)
    return Then(mover.move_next, (replica,))


def perform(effect: Any, replica: Replica, me: bytes, memory: Memory, tree: Tree, disk: SharedDisk) -> Performed | None:
    """Perform an effect of this room; None while what it waits for is not there."""
    moves = memory.moves
    outcome: Any = None
    match effect:
        case AwaitMove():
            return _await_move(replica, memory, tree, disk)
        case HearPlaces(places, tries):
            moves = replace(moves, places=places, tries=tries)
        case MoveEnded(turn, ended):
            refused = turn.share is None and not isinstance(ended, Moved)
            moves = replace(moves, made=moves.made + 1, refused=refused)
        case NameMove(part):
            outcome = ShareId(f"{me.decode()}-moved-{memory.shares.count}")
            moves = moves.beginning(part, outcome)
            memory = replace(memory, shares=replace(memory.shares, count=memory.shares.count + 1))
        case SharesInDoubt(shares):
            moves, memory = moves.doubting(shares), memory.with_trouble()
        case _:
            if isinstance(effect, NoteMove):
                moves = moves.beginning(effect.part, effect.share)
            after = changed_disk(effect, disk)
            outcome, disk = after is not None, after or disk
    return Performed(outcome, replace(memory, moves=moves), disk)


def changed_disk(effect: Any, disk: SharedDisk) -> SharedDisk | None:
    """Return a disk after one of `ON_DISK`; None when that can't be."""
    match effect:
        case NoteMove(part, share):
            return None if disk.content(part) is None else disk.noting_move(part, share)
        case ToShare(part, share):
            return disk.to_share(part, share)
        case ToDisk(part, share):
            return disk.to_disk(part, share)
        case LoseRows(part):
            return disk.losing_rows(part)
    raise AssertionError(effect)


def movable(memory: Memory, disk: SharedDisk) -> Iterator[tuple[str, ShareId | None]]:
    """Yield the parts that nothing in the queue replaces, each with the share of its rows; None: they are on the disk."""
    busy = {part.name for item in memory.queue for part in item.change.removed}
    for name in (part.name for part in memory.held):
        if name not in busy and disk.content(name) is not None:
            yield name, disk.share_of(name)


def _await_move(replica: Replica, memory: Memory, tree: Tree, disk: SharedDisk) -> Performed | None:
    moves = memory.moves
    if memory.state is not State.ACTIVE or memory.epoch is None or not moves.places:
        return None
    found = _misplaced(memory, disk, moves.places[0]) if moves.made < moves.tries else None
    # The next place comes only after a move to this one: before, the part may not be there yet.
    if found is None and moves.made and len(moves.places) > 1:
        moves = replace(moves, places=moves.places[1:], made=0)
        found = _misplaced(memory, disk, moves.places[0])
    if found is None or (moves.refused and tree.exists(layout.moving(replica.table, found[0]))):
        return None
    return Performed(MoveTurn(sharer_of(replica, memory.shares), *found), replace(memory, moves=moves), disk)


def _misplaced(memory: Memory, disk: SharedDisk, place: Place) -> tuple[str, ShareId | None] | None:
    """Return the first part that may be moved and is not where it belongs."""
    return next((each for each in movable(memory, disk) if (each[1] is None) is not (place is Place.DISK)), None)
