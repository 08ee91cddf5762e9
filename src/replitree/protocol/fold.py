"""The fold: the parts that a table has are a pure function of its log.

``fold(log)`` is the one definition of a table's content.  A replica is a cache of it that is some entries behind.  The
incremental form is `Fold.apply`; the plain form applies it from the start.

Only inserts exist in this version, so every entry applies and nothing is ever covered; the place where later kinds decide
whether they apply is `Fold.apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from replitree.protocol.effects import LogIndex
from replitree.protocol.entries import Entry, part_names
from replitree.protocol.parts import Part, parse_part


@dataclass(frozen=True, slots=True)
class Fold:
    """The active parts after some prefix of the log, with their content hashes."""

    parts: Mapping[str, str] = field(default_factory=dict)

    def apply(self, index: LogIndex, entry: Entry) -> Fold:
        """Return the fold after the entry at `index`.  Applying an entry again changes nothing."""
        added = {name: part.content_hash for (_, name), part in zip(part_names(entry, index), entry.parts, strict=True)}
        return Fold({**self.parts, **added})


def fold(log: Iterable[tuple[LogIndex, Entry]]) -> Fold:
    """Return the fold of a log, given in ascending order of index."""
    result = Fold()
    for index, entry in log:
        result = result.apply(index, entry)
    return result


def overlapping(names: Iterable[str]) -> tuple[Part, Part] | None:
    """Return two parts that share a block, or None (invariant I7: active parts never overlap)."""
    parts = sorted(parse_part(name) for name in names)
    for left, right in pairwise(parts):
        if left.intersects(right):
            return left, right
    return None
