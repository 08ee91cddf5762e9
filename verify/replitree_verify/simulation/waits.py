"""Threads of a process that wait for the log: for the end of a quorum, for what a read must show.

Inserts whose group is committed wait beside the others, and their writer loses patience after a while, as in
`replica.insert.quorums`.  Reads are those of `process.read_requests`: what they show is judged the moment it is shown (I8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core.effects import CurrentSession, LogIndex
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitDecided, QuorumTurn
from replitree_verify.process import read_requests
from replitree_verify.process.quorums import decided
from replitree_verify.process.read_requests import AwaitPointer, AwaitReadable, Begun, ShowRows, Told
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Stage
from replitree_verify.world.memory import Memory

EFFECTS = (AwaitDecided, AwaitPointer, AwaitReadable, CurrentSession)


@dataclass(frozen=True, slots=True)
class Now:
    """What a process has at the moment: its session, its memory, and coordination as it is."""

    replica: Replica
    session: int
    memory: Memory
    tree: Tree


def perform(effect: Any, now: Now) -> tuple[Any] | None:
    """Perform one of `EFFECTS`; None while what it waits for is not there.  No waiter has lost patience yet."""
    match effect:
        case CurrentSession():
            return (now.session,)
        case AwaitDecided():
            turn = decided(replace(effect, is_given_up=True), now.memory)
            return None if turn is None else (turn,)
        case AwaitPointer():
            pointer = read_requests.pointer_of(now.memory)
            return None if pointer is None else (pointer,)
    assert isinstance(effect, AwaitReadable)
    pointer = read_requests.pointer_of(now.memory)
    if pointer is None or pointer < effect.position:  # looked at first: the rest reads the whole log
        return None
    view = read_requests.look(effect, now.memory, now.tree, now.replica)
    return None if view is None else (view,)


def lose_patience(effect: AwaitDecided, now: Now) -> QuorumTurn:
    """Return what a writer works with that does not wait any longer."""
    turn = decided(effect, now.memory)
    assert turn is not None
    return turn


def show(effect: ShowRows, now: Now, disk: Disk) -> tuple[Told, str | None]:
    """Return what a read shows, and how that breaks I8."""
    return read_requests.answer_read(effect, now.memory.held, disk, now.tree, now.replica)


@dataclass(frozen=True, slots=True)
class Read:
    """A read: its number, its level (or `as_of` a position), and the earlier requests that its client has heard of."""

    number: int
    level: str
    known: tuple[int, ...]
    position: LogIndex

    def first_stage(self, replica: Replica, told: Mapping[int, Told | None]) -> tuple[Stage, tuple[Any, ...]]:
        """Return the stage with which it begins now, and its arguments."""
        if self.level == "as_of":
            nothing = Begun(LogIndex(0), (), LogIndex(0))
            return read_requests.show_rows, (self.number, "sequential", nothing, self.position)
        begun = read_requests.begin(read_requests.AwaitAnswers(self.level, self.known), told)  # type: ignore[arg-type]  # it is one
        assert begun is not None
        return read_requests.find_position, (replica, self.number, self.level, begun)
