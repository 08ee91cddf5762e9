"""Quorums: what the threads around `protocol.insert.quorum` wait for, and who gives up the inserts of others.

Patience is left out: whoever waits for a quorum may lose it at any moment, and so may the leader with an insert whose writer
seems gone.  So every order of joining and giving up is explored, whatever the clocks say.  The counterpart is
`replica.insert.quorums`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Epoch, Get, LogIndex
from replitree.protocol.core.entries import GetEntry, decode_entry
from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.quorum import give_up
from replitree_verify.process.longlife import Duty, Remembered
from replitree_verify.world.memory import Memory, State

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitDecided:
    """Wait until this replica has pulled what became of the insert at `index`.  Outcome: `QuorumTurn`.

    `patience`: or until nobody waits any longer, which may be at any moment.
    """

    index: LogIndex
    patience: bool


@dataclass(frozen=True, slots=True)
class QuorumTurn:
    """Whether it is known; and the epoch under which the process could give up, None while it is not active."""

    is_decided: bool
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class AwaitOpen:
    """Wait, while active, until an insert is open at the pointer.  Outcome: `OpenTurn`."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """What a leader works with: the first insert that is open."""

    epoch: Epoch
    index: LogIndex


EFFECTS = (AwaitDecided, AwaitOpen)


def perform(effect: Any, memory: Memory, tree: Tree, replica: Replica) -> Remembered | None:
    """Perform one of `EFFECTS`; None while what it waits for is not there."""
    del tree, replica
    place, is_active = memory.place, memory.state is State.ACTIVE
    epoch = memory.epoch if is_active else None
    match effect:
        case AwaitDecided(index, patience):
            decided = place is not None and index < place.pointer.index and index not in place.open
            return Remembered(memory, QuorumTurn(decided, epoch)) if decided or patience else None
        case AwaitOpen():
            if epoch is None or place is None or not place.open:
                return None
            return Remembered(memory, OpenTurn(epoch, place.open[0]))
    raise AssertionError(effect)


# --- duties -------------------------------------------------------------------------------------------------------------------


def give_up_open(replica: Replica) -> Duty:
    """Give up the first insert that is open, at any moment, once."""
    turn: OpenTurn = yield AwaitOpen()
    path = layout.log_entry(replica.table, turn.index)
    node = yield Get(path)
    entry = None if node is None else decode_entry(node.value, path)
    if isinstance(entry, GetEntry):
        yield from give_up(replica, turn.epoch, turn.index, entry)


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {"give-up": give_up_open}
"""What a model can ask for, by name."""
