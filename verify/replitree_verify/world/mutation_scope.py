"""What a process of the checker knows of the rows of its parts, when it finds the scope of a mutation."""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core.entries import Command, MutateEntry
from replitree.protocol.core.parts import Part
from replitree.protocol.state.pull import Place
from replitree_verify.world.disk import is_covered


@dataclass(frozen=True, slots=True)
class PartsSeen:
    """A process's place in the log, None where it is in doubt, and the rows of the parts that it has registered whole."""

    command: str
    place: Place | None
    rows: tuple[tuple[Part, tuple[str, ...]], ...]

    def is_left(self, part: Part) -> bool:
        """Return whether the mutation certainly leaves a part as it is."""
        return any(seen == part and not any(is_covered(row, self.command) for row in rows) for seen, rows in self.rows)


def has_condition(command: Command) -> bool:
    """Return whether a command is a mutation of some rows; one without a condition changes every part."""
    return isinstance(command, MutateEntry) and "@" in command.command
