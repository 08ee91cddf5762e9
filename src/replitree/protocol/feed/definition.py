"""The feed's definition: for each entry of the log, the parts whose rows come, leave, or change.

The *visible* table is the settled parts of the fold (`replitree.protocol.core.fold`).  The feed at index i are the rows by
which the visible table after entry i differs from that before it:

=========  ==============================================================================================================
rule       what the entry's feed is
=========  ==============================================================================================================
`ROWS`     `delete` for the rows of each settled part that leaves, then `insert` for those of each part that comes, unless
           the entry opens an insert: that is not visible yet
`PAIRS`    for each settled part that is replaced the rows that differ between it and its replacement; then `insert` for
           the rows of new parts
`SETTLES`  `insert` for the rows of the insert that is open no more, as they stand before the entry: as inserted, or
           mutated meanwhile, or none if they were dropped meanwhile
`NOTHING`  none: the visible rows are the same, whatever the policy makes of them
`COLUMNS`  none; the columns change (a schema barrier)
`GAP`      a visible part has lost its rows, and no replica can list them
=========  ==============================================================================================================

Guarantees, numbered as in the tests:

* F1: with the policy ``plain``, rows(b) = rows(a) + feed[a, b) for every a ≤ b without a gap between them, as multisets.
* F3: the rows of an insert come at exactly one index, never while it is open, and never if it fails.
* F4: merges, moves, fetches and settings emit nothing.
* F5: what is not known is no step at all (`advance` knows every kind), so it can't be fewer rows.
* F6: the same from any snapshot on; with ``summing`` the sums agree.  With ``replacing`` the feed is a stream of puts and
  deletes by key: what a merge has swallowed gets no `delete`.

The rows of a pair are compared where they are read, because the two parts are kept, and both are facts of the log: a killed
mutation has the content of its source, so nothing differs (`replitree.storage.rewrite.changed_rows`).

Absent on purpose: rows, files, for how long they stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal, TypeAlias

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import AlterEntry, Entry, LostEntry
from replitree.protocol.core.fold import Change, is_open
from replitree.protocol.core.parts import Part


class Rule(Enum):
    """What an entry of some kind does to the visible rows; see the module's table."""

    ROWS = "rows"
    PAIRS = "pairs"
    SETTLES = "settles"
    NOTHING = "nothing"
    COLUMNS = "columns"
    GAP = "gap"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "get": Rule.ROWS,
        "settle": Rule.SETTLES,
        "fail": Rule.NOTHING,
        "merge": Rule.NOTHING,
        "mutate": Rule.PAIRS,
        "rewrite": Rule.PAIRS,
        "drop": Rule.ROWS,
        "alter": Rule.COLUMNS,
        "storage": Rule.NOTHING,
        "view": Rule.NOTHING,
        "lost": Rule.GAP,
        "roll": Rule.NOTHING,
    }
)
"""The rule of every kind of entry."""

UnitType: TypeAlias = Literal["insert", "delete", "mutate", "rewrite"]
"""What becomes of the rows of a part; `mutate` and `rewrite`: they are compared with those of the part before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of the log, as far as the feed depends on it.

    Attributes
    ----------
    kind
        The entry's.
    change
        What it changed, as decided at its pull.
    opened
        The inserts that are open after it.
    lost
        Of a `lost` entry, the part that it names; what it changes may be a cover of it.
    schema_version
        Of an `alter`, the version of the columns from here on.
    """

    kind: str
    change: Change
    opened: tuple[LogIndex, ...] = ()
    lost: str = ""
    schema_version: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """A part whose rows are in the feed; `before` is the part that it has replaced, where rows are compared."""

    type: UnitType
    part: Part
    before: Part | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that must be read."""
        return (self.part,) if self.before is None else (self.before, self.part)


@dataclass(frozen=True, slots=True)
class EntryFeed:
    """What one entry feeds: units, in order; `gap`: the part that has lost its rows; `schema_version`: that of new columns."""

    units: tuple[Unit, ...] = ()
    gap: Part | None = None
    schema_version: int = 0


EMPTY = EntryFeed()


@dataclass(frozen=True, slots=True)
class OpenInserts:
    """The inserts that are open at an index, and the parts that they have there."""

    opened: tuple[LogIndex, ...] = ()
    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Part], opened: tuple[LogIndex, ...]) -> OpenInserts:
        """Return the open inserts of a table that has these parts, those of open inserts among them."""
        return cls(opened, tuple(part for part in parts if is_open(part, opened)) if opened else ())

    def after(self, step: Step) -> OpenInserts:
        """Return the open inserts after an entry, of whatever kind."""
        if not self.opened and not step.opened:
            return self
        gone = frozenset(step.change.removed)
        parts = (*(part for part in self.parts if part not in gone), *step.change.added)
        return OpenInserts.of(parts, step.opened)


def step_of(entry: Entry, change: Change, opened: tuple[LogIndex, ...]) -> Step:
    """Return what the feed needs to know of an entry: what it changed, and the inserts that are open after it."""
    return Step(
        str(type(entry).__struct_config__.tag),
        change,
        opened,
        entry.part if isinstance(entry, LostEntry) else "",
        entry.schema_version if isinstance(entry, AlterEntry) else 0,
    )


def advance(before: OpenInserts, step: Step) -> tuple[OpenInserts, EntryFeed]:
    """Return the open inserts after an entry, and what the entry feeds.

    Raises
    ------
    KeyError
        The kind of the entry is not known: nothing may be concluded from it.
    """
    rule, hidden = RULES[step.kind], frozenset(before.parts)
    after = before.after(step)
    left = tuple(part for part in step.change.removed if part not in hidden)
    match rule:
        case Rule.ROWS:
            came = tuple(part for part in step.change.added if not is_open(part, step.opened))
            deletes = (Unit("delete", part) for part in left)
            return after, EntryFeed((*deletes, *(Unit("insert", part) for part in came)))
        case Rule.PAIRS:
            kind: UnitType = "mutate" if step.kind == "mutate" else "rewrite"
            replaced, came = step.change.removed, step.change.added
            # A change of either kind has the replacements first, in the order of what they replace.
            pairs = zip(replaced, came[: len(replaced)], strict=True)
            changed = tuple(Unit(kind, new, old) for old, new in pairs if old not in hidden)
            return after, EntryFeed((*changed, *(Unit("insert", part) for part in came[len(replaced) :])))
        case Rule.SETTLES:
            ended = tuple(index for index in before.opened if index not in step.opened)
            return after, EntryFeed(tuple(Unit("insert", part) for part in before.parts if is_open(part, ended)))
        case Rule.COLUMNS:
            return after, EntryFeed(schema_version=step.schema_version)
        case Rule.GAP:
            return after, EntryFeed(gap=left[0]) if left else EMPTY
        case Rule.NOTHING:
            return after, EMPTY


def is_damaged_by(unit: Unit, lost: Part) -> bool:
    """Whether the files of a unit may lack rows because a later entry has declared a part lost.

    That part and whatever was made of it have been made anew without its rows, under their old names; what it was made of has
    them still.
    """
    return any(part.covers(lost) for part in unit.parts)


def timestamp_us(previous_us: int, written_ms: int) -> int:
    """Return the timestamp of an entry, in microseconds since 1970: strictly increasing, whatever coordination's clock does.

    Parameters
    ----------
    previous_us
        That of the entry before it; 0 when there is none.
    written_ms
        When the entry's node was created, in milliseconds since 1970 by coordination's clock.

    >>> timestamp_us(0, 7), timestamp_us(7_000, 7), timestamp_us(9_000, 7)
    (7000, 7001, 9001)
    """
    return max(1_000 * written_ms, previous_us + 1)


__all__ = [
    "EMPTY",
    "RULES",
    "EntryFeed",
    "OpenInserts",
    "Rule",
    "Step",
    "Unit",
    "UnitType",
    "advance",
    "is_damaged_by",
    "step_of",
    "timestamp_us",
]
