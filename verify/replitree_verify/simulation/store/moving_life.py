"""The mover of a process: the rows of one part after the other go where they belong, as `replica.table.mover` lets them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import CurrentSharer, Then
from replitree.protocol.shares import moving
from replitree.protocol.shares.moving import Moved, MoveOutcome
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.process.longlife import AwaitTurn
from replitree_verify.simulation.store.shared_life import Rest

Mover: TypeAlias = Generator[Any, Any, Then]


@dataclass(frozen=True, slots=True)
class NextMove:
    """Outcome: a `Misplaced` part that may be moved now, or None."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A part that is not where it belongs: its name, and the share in which its rows are; None: they are on the disk."""

    part: str
    share: ShareId | None


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """A move has ended: note when it is tried again, if it is.  Outcome: None."""

    misplaced: Misplaced
    outcome: MoveOutcome


def move_next(replica: Replica) -> Mover:
    """Move one part, or wait a while."""
    yield AwaitTurn()
    sharer: Sharer = yield CurrentSharer()
    misplaced: Misplaced | None = yield NextMove()
    if misplaced is None:
        yield Rest(long=True)
        return Then(move_next, (replica,))
    if misplaced.share is None:
        outcome = yield from moving.move_to_store(sharer, misplaced.part)
    else:
        outcome = yield from moving.move_to_disk(sharer, misplaced.part, misplaced.share)
    yield MoveEnded(misplaced, outcome)
    if not isinstance(outcome, Moved):
        yield Rest()
    return Then(move_next, (replica,))


__all__ = ["Misplaced", "MoveEnded", "NextMove", "move_next"]
