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
from replitree.protocol.program.stages import AwaitDecided
from replitree_verify.process import read_requests
from replitree_verify.process.quorums import decided
from replitree_verify.process.read_requests import AwaitPointer, AwaitReadable, Begun, Told
from replitree_verify.world.kernel import Stage
from replitree_verify.world.memory import Memory

EFFECTS = (AwaitDecided, AwaitPointer, AwaitReadable, CurrentSession)


def perform(effect: Any, replica: Replica, session: int, memory: Memory, tree: Tree) -> tuple[Any] | None:
    """Perform one of `EFFECTS`; None while what it waits for is not there.  No waiter has lost patience yet.

    `session`, `memory`, `tree`: what a process has at the moment, and coordination as it is.
    """
    match effect:
        case CurrentSession():
            return (session,)
        case AwaitDecided():
            turn = decided(replace(effect, is_given_up=True), memory)
            return None if turn is None else (turn,)
        case AwaitPointer():
            pointer = read_requests.pointer_of(memory)
            return None if pointer is None else (pointer,)
    assert isinstance(effect, AwaitReadable)
    pointer = read_requests.pointer_of(memory)
    if pointer is None or pointer < effect.position:  # looked at first: the rest reads the whole log
        return None
    view = read_requests.look(effect, memory, tree, replica)
    return None if view is None else (view,)


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
