"""Threads of a process that wait for the log: for the end of a quorum, for what a read must show.

Inserts whose group is committed wait beside the others, and their writer loses patience after a while, as in
`replica.insert.quorums`.  Reads are those of `process.read_requests`: what they show is judged the moment it is shown (I8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from replitree.protocol.core.effects import CurrentSession, LogIndex
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitDecided
from replitree_verify.effects.table import perform_local
from replitree_verify.outcomes.local import Done, Here
from replitree_verify.process import read_requests
from replitree_verify.process.read_requests import AwaitPointer, AwaitReadable, Begun, Told
from replitree_verify.world.kernel import Stage

EFFECTS = (AwaitDecided, AwaitPointer, AwaitReadable, CurrentSession)


def perform(effect: Any, here: Here) -> Done | None:
    """Perform one of `EFFECTS`; None while what it waits for is not there.  No waiter has lost patience yet."""
    outcome: Any = read_requests.pointer_of(here.memory)
    match effect:
        case CurrentSession():
            outcome = here.memory.session
        case AwaitDecided():
            return perform_local(replace(effect, is_given_up=True), here)
        case AwaitReadable(position):
            # The pointer is looked at first: the rest reads the whole log.
            is_there = outcome is not None and outcome >= position
            outcome = read_requests.look(effect, here.memory, here.tree, here.replica) if is_there else None
    return None if outcome is None else Done(outcome, here.memory, here.disk)


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
