"""A history as columns: one entry an operation, in the order of the lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from replitree.wire.history_format import LEVELS, OUTCOMES, Operation, Ranges

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = (1 << 62) + 1
"""Later than every time, and higher than every index."""

NOTHING = -1
"""In the place of an index, a name or a time that is not there."""

INSERT, READ = 0, 1
EVENTUAL, SEQUENTIAL, LINEARIZABLE, AS_OF = range(4)
OK, FAILED, UNKNOWN = range(3)


@dataclass(frozen=True, slots=True)
class Dictionaries:
    """What the numbers in the columns stand for: each of these is a list of names."""

    client: tuple[str, ...]
    object: tuple[tuple[str, str | None], ...]
    replica: tuple[str, ...]
    token: tuple[str, ...]
    holders: tuple[tuple[str, ...], ...]
    file: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Operations as columns.

    Attributes
    ----------
    names
        What numbers stand for.
    scopes
        Of the reads that were about some rows only: operation, and those rows.
    file, line
        Where each operation stands.
    kind, client, object, replica, token, level, outcome, closing
        As the operation says, as numbers; `object` is its table and partition.
    call, answer
        Times; `NEVER` when there was no answer, or one that leaves open whether it happened.
    ended
        When the client went on, whatever it had heard.
    index, settled, quorum, holders
        As the operation says; `NOTHING` when it says nothing.
    offset, first, last
        The ranges of operation k are ``first[offset[k]:offset[k + 1]]`` and the same of `last`.
    """

    names: Dictionaries
    scopes: dict[int, Ranges]
    file: Ints
    line: Ints
    kind: Ints
    client: Ints
    object: Ints
    replica: Ints
    token: Ints
    level: Ints
    outcome: Ints
    closing: Flags
    call: Ints
    answer: Ints
    ended: Ints
    index: Ints
    settled: Ints
    quorum: Ints
    holders: Ints
    offset: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        """How many operations it has."""
        return len(self.kind)

    @property
    def held_by(self) -> Ints:
        """How many replicas had each insert when it was acknowledged; `NOTHING` when that is not known."""
        # `NOTHING` is -1: it takes the last entry of the table.
        counts = [len(set(names)) for names in self.names.holders]
        return np.array([*counts, NOTHING], np.int64)[self.holders]

    def ranges(self, number: int) -> Ranges:
        """Return the ranges of rows of an operation."""
        at = slice(int(self.offset[number]), int(self.offset[number + 1]))
        return tuple(zip(self.first[at].tolist(), self.last[at].tolist(), strict=True))

    def operation(self, number: int) -> Operation:
        """Return an operation as it was written."""

        def known(column: Ints) -> int | None:
            value = int(column[number])
            return None if value in {NOTHING, NEVER} else value

        table, partition = self.names.object[self.object[number]]
        replica, token, holders = known(self.replica), known(self.token), known(self.holders)
        is_read = self.kind[number] == READ
        return Operation(
            kind="read" if is_read else "insert",
            client=self.names.client[self.client[number]],
            table=table,
            partition=partition,
            call=int(self.call[number]),
            outcome=OUTCOMES[self.outcome[number]],
            answer=known(self.ended),
            level=LEVELS[self.level[number]] if is_read else None,
            rows=self.ranges(number),
            scope=self.scopes.get(number),
            index=known(self.index),
            settled=known(self.settled),
            replica=None if replica is None else self.names.replica[replica],
            token=None if token is None else self.names.token[token],
            quorum=int(self.quorum[number]),
            holders=None if holders is None else self.names.holders[holders],
            closing=bool(self.closing[number]),
        )

    def take(self, numbers: Ints) -> History:
        """Return these operations, in this order."""
        counts = self.offset[1:][numbers] - self.offset[:-1][numbers]
        offset = offsets_of(counts)
        # Each range of an operation that is taken: where it stood, counted from where it stands now.
        places = np.repeat(self.offset[:-1][numbers] - offset[:-1], counts) + np.arange(offset[-1])
        # Most histories have no scopes, and this runs for millions of operations.
        new = {int(old): k for k, old in enumerate(numbers)} if self.scopes else {}
        scopes = {new[old]: scope for old, scope in self.scopes.items() if old in new}
        columns = {name: getattr(self, name)[numbers] for name in PLAIN}
        ranges = {"offset": offset, "first": self.first[places], "last": self.last[places]}
        return History(names=self.names, scopes=scopes, **columns, **ranges)

    def without_rows_of_reads(self) -> History:
        """Return the same operations; of the rows only those of the inserts."""
        counts = np.where(self.kind == READ, 0, np.diff(self.offset))
        kept = np.repeat(self.kind != READ, np.diff(self.offset))
        return replace(self, offset=offsets_of(counts), first=self.first[kept], last=self.last[kept])


PLAIN = tuple(
    field.name for field in fields(History) if field.name not in {"names", "scopes", "offset", "first", "last"}
)
"""The columns that have one entry an operation."""

_NAMED = ("client", "object", "replica", "token", "holders", "file")


def offsets_of(counts: Ints) -> Ints:
    """Return where each of these begins when they stand one after the other, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def joined(parts: Sequence[History]) -> History:
    """Return histories one after the other as one."""
    if len(parts) == 1:
        return parts[0]
    codes: dict[str, dict[Any, int]] = {name: {} for name in _NAMED}
    columns: dict[str, list[Ints]] = {name: [] for name in PLAIN}
    scopes: dict[int, Ranges] = {}
    count = 0
    for part in parts:
        for name in PLAIN:
            column = getattr(part, name)
            if name in _NAMED:
                # Each part numbers its names by itself.  `NOTHING` is -1: it takes the last entry of the table.
                known, old = codes[name], getattr(part.names, name)
                numbers = [known.setdefault(each, len(known)) for each in old]
                column = np.array([*numbers, NOTHING], dtype=np.int64)[column]
            columns[name].append(column)
        scopes |= {count + number: scope for number, scope in part.scopes.items()}
        count += len(part)
    names = Dictionaries(**{name: tuple(known) for name, known in codes.items()})
    together = cast("dict[str, Any]", {name: np.concatenate(found) for name, found in columns.items()})
    # Offsets count within a part, so the lengths are joined, not the offsets.
    offset = offsets_of(np.concatenate([np.diff(part.offset) for part in parts]))
    first, last = (np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "last"))
    return History(names=names, scopes=scopes, offset=offset, first=first, last=last, **together)
