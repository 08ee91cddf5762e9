"""Standing for leader, and forgetting covered parts: what the threads wait for that do this beside the work on the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program.stages import AwaitElection, AwaitStrays, Elected, ElectionTurn
from replitree_verify.process.longlife import Remembered
from replitree_verify.world.memory import Memory, State

EFFECTS = (AwaitStrays, AwaitElection, Elected)


def perform(effect: Any, memory: Memory, tree: Tree, replica: Replica) -> Remembered | None:
    """Perform one of `EFFECTS`; None while what it waits for is not there."""
    match effect:
        case AwaitStrays():
            return _await_strays(memory, tree, replica)
        case AwaitElection(path):
            return _await_election(path, memory, tree, replica)
        case Elected(leads):
            return Remembered(replace(memory, leads=leads))
    raise AssertionError(effect)


def _await_strays(memory: Memory, tree: Tree, replica: Replica) -> Remembered | None:
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    registered = tuple(map(parse_part, tree.children(layout.parts(replica)) or ()))
    return Remembered(memory, memory.epoch) if len(maximal(registered)) < len(registered) else None


def _await_election(path: str | None, memory: Memory, tree: Tree, replica: Replica) -> Remembered | None:
    names = tree.children(layout.leader_election(replica.table)) or ()
    own = "" if path is None else path.rpartition("/")[2]
    if memory.epoch is None or not memory.is_there:
        return None
    if memory.state is not State.ACTIVE:
        return Remembered(memory, ElectionTurn(memory.epoch, resigns=True)) if own in names else None
    settled = own in names and (names[0] == own) is memory.leads
    return None if settled else Remembered(memory, ElectionTurn(memory.epoch, resigns=False))
