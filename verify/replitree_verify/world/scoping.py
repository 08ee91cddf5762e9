"""How a process of the checker finds the scope of a mutation, as `replitree.replica.parts.commands` does it with manifests."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from replitree.protocol.core.entries import MutateEntry
from replitree.protocol.core.parts import Part
from replitree.protocol.state.mutation_scope import scoped
from replitree.protocol.state.pull import Place
from replitree_verify.world.disk import is_covered


@dataclass(frozen=True, slots=True)
class LookAtParts:
    """Look at what the process knows of the table, to find the scope of a mutation.  Outcome: `PartsSeen`."""

    command: str


@dataclass(frozen=True, slots=True)
class PartsSeen:
    """A process's place in the log, None where it is in doubt, and the rows of the parts that it has registered whole."""

    place: Place | None
    rows: tuple[tuple[Part, tuple[str, ...]], ...]

    def is_left(self, part: Part, command: str) -> bool:
        """Return whether a mutation certainly leaves a part as it is."""
        return any(seen == part and not any(is_covered(row, command) for row in rows) for seen, rows in self.rows)


def find_scope(entry: MutateEntry) -> Generator[Any, Any, MutateEntry]:
    """Return a mutation with its scope, as `replica.parts.commands` finds it."""
    seen: PartsSeen = yield LookAtParts(entry.command)
    if seen.place is None:
        return entry
    return scoped(entry, seen.place, lambda part: seen.is_left(part, entry.command))
