"""A case: the history of one table, taken apart, with what every read of it saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replitree.wire.history_format import LEVELS, Level
from replitree_verify.histories.columns import AS_OF, LINEARIZABLE, OK, READ, SEQUENTIAL, Flags, History, Ints
from replitree_verify.histories.cover import LocalReads, Reads, Sight, look, spans_of
from replitree_verify.histories.elements import Elements, find_elements


@dataclass(frozen=True, slots=True)
class Case:
    """What is judged.

    Attributes
    ----------
    history, elements
        Operations of one table, and what was inserted.
    reads
        The operations that are answered reads, in their order: read number k is operation ``reads[k]``.
    level
        What each of them promises.
    whole
        Whether it was about all rows.
    rows, sight
        What the reads show.
    asked
        The promise by which all reads are judged, if it is not their own.
    """

    history: History
    elements: Elements
    reads: Ints
    level: Ints
    whole: Flags
    rows: Reads
    sight: Sight
    asked: Level | None = None

    @property
    def call(self) -> Ints:
        """When each read began."""
        return self.history.call[self.reads]

    @property
    def answer(self) -> Ints:
        """When each read was answered."""
        return self.history.answer[self.reads]

    @property
    def index(self) -> Ints:
        """The position that each read said it shows; `NOTHING` when it said none."""
        return self.history.index[self.reads]

    @property
    def ordered(self) -> Flags:
        """Which reads are about the whole table and promise to show it at one position of the log."""
        return self.whole & self.strict

    @property
    def strict(self) -> Flags:
        """Which reads promise to show the log up to one position."""
        return np.isin(self.level, (SEQUENTIAL, LINEARIZABLE, AS_OF))


def answered_reads(history: History) -> Ints:
    """Return the reads that showed something."""
    return np.flatnonzero((history.kind == READ) & (history.outcome == OK))


def make_case(history: History, level: Level | None = None, rows: Reads | None = None) -> Case:
    """Take the history of one table apart.

    Parameters
    ----------
    history
        Of one table.
    level
        Judge as though all reads had promised this (but those `as_of` a position); by default each by its own promise.
    rows
        Where the rows of its reads are; by default in the history.
    """
    elements, reads = find_elements(history), answered_reads(history)
    promised = history.level[reads]
    if level is not None:
        # A read as of a position says which one it shows: no level that is asked for makes it say more or less.
        promised = np.where(promised == AS_OF, AS_OF, LEVELS.index(level))
    whole = np.ones(len(history), np.bool_)
    whole[list(history.scopes)] = False
    rows = rows or LocalReads(spans_of(history, reads))
    return Case(history, elements, reads, promised, whole[reads], rows, Sight(*rows.each(look, elements)), level)


def objects(history: History) -> list[History]:
    """Return the history of each table, or of each part of one that is judged by itself."""
    count = len(history.names.object)
    if count == 1:
        return [history]
    return [history.take(np.flatnonzero(history.object == number)) for number in range(count)]
