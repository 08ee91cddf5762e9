"""The general search: an order of all operations in which every read shows exactly what was inserted before it.

Wing and Gong's, with Lowe's memory of where it has been: take an operation that nothing undone must precede, go on, go
back where it leads nowhere.  The state of a table is which inserts are done, so a set of operations is all there is to
remember.  Two things keep it small: a read that is right now is done now, because that hinders nothing; and no insert is done
while a read waits that must not see it.

What can be judged by itself is: where every read is linearizable and no position is known, operations that have no rows in
common (linearizability is local; with one log, or with what a client remembers from one table to the next, it is not).

It knows nothing of the other rules, and the tests hold those against it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from replitree_verify.histories.case import Case
from replitree_verify.histories.columns import AS_OF, LINEARIZABLE, NEVER, NOTHING, OK, SEQUENTIAL, Flags, Ints
from replitree_verify.histories.explain import SeenRead, inside_scope, see_all

Answer = Literal["fine", "wrong", "undecided"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a search is given up.

    Attributes
    ----------
    operations, states
        How many operations it takes at all, and how many states it remembers.
    seconds
        How long it goes on.
    """

    operations: int = 2_000
    states: int = 500_000
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Problem:
    """What is searched: operations as bits, inserts first.

    Attributes
    ----------
    inserts, count
        How many inserts, and how many operations there are.
    before
        Of each operation, those that must come before it.
    about, shown
        Of each read, the inserts that it was about, and those of them that it shows.
    groups
        Inserts that count at one position, and so are seen together.
    """

    inserts: int
    count: int
    before: tuple[int, ...]
    about: tuple[int, ...]
    shown: tuple[int, ...]
    groups: tuple[int, ...]


def search(case: Case, limits: Limits | None = None) -> Answer:
    """Look for an order of the operations of a case that explains all its reads.

    Parameters
    ----------
    case
        What is judged.
    limits
        When to give up.

    Returns
    -------
    str
        ``fine`` or ``wrong``; ``undecided`` when the limits came first.
    """
    limits = limits or Limits()
    reads = [number for number in range(len(case.reads)) if case.level[number] in {SEQUENTIAL, LINEARIZABLE, AS_OF}]
    if len(reads) + len(case.elements) > limits.operations:
        return "undecided"
    seen = see_all(case, range(len(case.reads)))
    elements, sight = case.elements, case.sight
    for read in seen:
        # Whatever the order, a read shows whole inserts only, each once, none that failed and none that was asked for later.
        # The search leaves eventual reads out: they promise no more than this.
        failed = elements.failed if read.promises else elements.failed & ~elements.dirty
        if sight.garbage[read.number] or sight.repeated[read.number] or (failed & read.shown).any():
            return "wrong"
        inside = inside_scope(case, read.operation)
        whole = int((elements.last - elements.first + 1)[(read.shown & inside)[elements.of]].sum())
        shown = int((read.spans.last - read.spans.first + 1).sum())
        if (whole != shown) if inside.all() else (whole > shown):
            return "wrong"
        if (read.earliest[read.shown] > read.answer).any():
            return "wrong"
    deadline = time.monotonic() + limits.seconds
    answers = [_search(problem, limits, deadline) for problem in _problems(case, [seen[number] for number in reads])]
    return next((answer for answer in ("wrong", "undecided") if answer in answers), "fine")


# --- from a case to bits -----------------------------------------------------------------------------------------------


def _problems(case: Case, reads: list[SeenRead]) -> Iterator[Problem]:
    """Return what is searched, each problem by itself."""
    elements = case.elements
    seen = np.zeros(len(elements), np.bool_)
    for read in reads:
        seen |= read.shown
    # An insert in doubt that no read shows may never have happened: without it the search is smaller, and no order is lost.
    must = (elements.answer != NEVER) | elements.committed
    for inserts, numbers in _parts(case, np.flatnonzero(~elements.failed & (must | seen)), reads):
        mine = [reads[number] for number in numbers]
        place = np.where(elements.committed[inserts], elements.place[inserts], NOTHING)
        groups = [place == value for value in np.unique(place[place != NOTHING])]
        yield Problem(
            inserts=len(inserts),
            count=len(inserts) + len(mine),
            before=tuple(_bits(row) for row in _precedence(case, inserts, mine)),
            about=tuple(_bits((inside_scope(case, read.operation) | read.shown)[inserts]) for read in mine),
            shown=tuple(_bits(read.shown[inserts]) for read in mine),
            groups=tuple(_bits(group) for group in groups if group.sum() > 1),
        )


def _parts(case: Case, inserts: Ints, reads: list[SeenRead]) -> list[tuple[Ints, list[int]]]:
    """Return what can be judged by itself."""
    # Known positions and promises to one client tie operations together that have no rows in common.
    # Linearizability is local: rows in common are all that ties operations together.
    local = all(read.level == LINEARIZABLE for read in reads) and not case.elements.committed.any()
    if not local:
        return [(inserts, list(range(len(reads))))]
    part = np.arange(len(case.elements))
    about = [(inside_scope(case, read.operation) | read.shown) for read in reads]
    for flags in about:
        mine = np.unique(part[flags])
        # All parts that the read touches become one, also those that an earlier read has made of several.
        part[np.isin(part, mine)] = mine[0] if len(mine) else 0
    home = [int(part[flags][0]) if flags.any() else NOTHING for flags in about]
    return [
        (inserts[part[inserts] == number], [k for k, where in enumerate(home) if where == number])
        for number in np.unique(part[inserts]).tolist()
    ]


def _bits(flags: Flags) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def _precedence(case: Case, inserts: Ints, reads: list[SeenRead]) -> Flags:
    """Return a table: whether the operation of the column must come before that of the row."""
    elements, history = case.elements, case.history
    place = np.where(elements.committed[inserts], elements.place[inserts], NOTHING)
    call, answer = elements.call[inserts], elements.answer[inserts]
    count = len(inserts)
    table = np.zeros((count + len(reads), count + len(reads)), np.bool_)
    placed = (place[None, :] < place[:, None]) & (place[None, :] != NOTHING)
    table[:count, :count] = (answer[None, :] < call[:, None]) | placed
    for row, read in enumerate(reads, count):
        table[:count, row] = read.answer < call
        if read.level == LINEARIZABLE:
            table[row, :count] = answer < read.call
        if read.level == SEQUENTIAL:
            own = (history.client == read.client) & (elements.attempts != NOTHING) & (history.outcome == OK)
            told = np.isin(inserts, elements.attempts[own & (history.ended <= read.call)])
            table[row, :count] = told
        # A read that names its position shows every insert below it and none at it or above.
        if read.index != NOTHING:
            table[row, :count] |= (place != NOTHING) & (place < read.index)
            table[:count, row] |= place >= read.index
        for column, other in enumerate(reads, count):
            # Whether this read must show what the other one shows.
            if AS_OF in {read.level, other.level}:
                continue
            table[row, column] = other.answer < read.call and (
                read.level == LINEARIZABLE or read.replica == other.replica != NOTHING
            )
            if read.level == SEQUENTIAL and read.client == other.client and other is not read:
                table[row, column] |= other.answer <= read.call
    return table


# --- the search ----------------------------------------------------------------------------------------------------------


def _search(problem: Problem, limits: Limits, deadline: float) -> Answer:
    full, every = (1 << problem.count) - 1, (1 << problem.inserts) - 1
    start = _with_reads(problem, 0)
    # Depth first: one order is enough, and it is long.  States are known when they are found, not when they are left: so none
    # waits twice.
    waiting, known = [start], {start}
    while waiting:
        done = waiting.pop()
        if done == full:
            return "fine"
        if len(known) > limits.states or time.monotonic() > deadline:
            return "undecided"
        open_reads = [
            number for number in range(problem.count - problem.inserts) if not done >> problem.inserts + number & 1
        ]
        undone = every & ~done
        while undone:
            bit = undone & -undone
            undone ^= bit
            # An undone read that was about this insert and does not show it has to come first.
            spoils = (bit & problem.about[number] & ~problem.shown[number] for number in open_reads)
            if problem.before[bit.bit_length() - 1] & ~done or any(spoils):
                continue
            after = _with_reads(problem, done | bit)
            if after not in known:
                known.add(after)
                waiting.append(after)
    return "wrong"


def _with_reads(problem: Problem, done: int) -> int:
    """Do every read that is right now."""
    # A read that is right hinders nothing: it changes no state, so doing it at once loses no order.
    inserts = done & ((1 << problem.inserts) - 1)
    if any(group & inserts not in {0, group} for group in problem.groups):
        return done  # half of what counts at one position: no read sees that
    # Until none is left: a read that is done may be what another one has to come after.
    again = True
    while again:
        again = False
        for number, (about, shown) in enumerate(zip(problem.about, problem.shown, strict=True)):
            bit = 1 << (problem.inserts + number)
            right = not done & bit and inserts & about == shown and not problem.before[problem.inserts + number] & ~done
            if right:
                done, again = done | bit, True
    return done
