"""What was inserted: elements, each the rows of one insert, however often that was tried.

Rows are cut into *segments*: ranges of numbers that are inserted together, in ascending order.  Most elements have one.
A read is then a few ranges of segments, whatever the number of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from replitree.errors import BadInput
from replitree_verify.histories.columns import (
    FAILED,
    INSERT,
    NEVER,
    NOTHING,
    OK,
    Flags,
    History,
    Ints,
)

_SEED = 5
"""Of the random numbers that stand for segments in sums."""


@dataclass(frozen=True, slots=True)
class Elements:
    """The inserts of a history, and where their rows are.

    Attributes
    ----------
    first, last, of
        Segments in ascending order: their rows, and to which element they belong.
    head
        Whether a segment is the first one of its element.
    weight
        A random number for each segment; those of one element add up to 0 (modulo 2⁶⁴).
    operation
        Of each element: the insert that stands for it in a report, the first that was acknowledged if there is one.
    begun, call, answer
        When it was first tried; when it was first tried in a way that did not fail; when it was first acknowledged, `NEVER` if
        it was not.
    failed
        Whether every try certainly failed.
    waited
        Whether it had to wait for other replicas: until then it is open, and may fail.
    index, place
        Position of its entry, and position by which it counts; `NOTHING` when they are not known.
    twice
        Whether it was acknowledged at two positions.
    attempts
        Element of each operation of the history; `NOTHING` for reads.
    """

    first: Ints
    last: Ints
    of: Ints
    head: Flags
    weight: Ints
    operation: Ints
    begun: Ints
    call: Ints
    answer: Ints
    failed: Flags
    waited: Flags
    index: Ints
    place: Ints
    twice: Flags
    attempts: Ints

    def __len__(self) -> int:
        """How many elements there are."""
        return len(self.call)

    @property
    def committed(self) -> Flags:
        """Whether it is known to be in the log, and not to have failed."""
        found: Flags = (self.place != NOTHING) & ~self.failed
        return found

    @property
    def dirty(self) -> Flags:
        """Whether it failed when it was in the log, or may have been: it waited."""
        found: Flags = self.failed & (self.waited | (self.index != NOTHING))
        return found

    @property
    def least_place(self) -> Ints:
        """The position by which it counts, or one below that: an insert that waited counts after its own entry."""
        known = np.where(self.place != NOTHING, self.place, self.index)
        found: Ints = np.where(self.failed, NOTHING, known)
        return found


def find_elements(history: History) -> Elements:
    """Return the inserts of a history of one table.

    Raises
    ------
    BadInput
        A row belongs to two inserts, or a token was used for two.
    """
    inserts = np.flatnonzero(history.kind == INSERT)
    owner, first, last, number = _segments(history, inserts)
    attempts = np.full(len(history), NOTHING, np.int64)
    # Inserts with the same segments have the same element, in the order of their first rows.  Sums of random numbers stand for
    # sets of segments: comparing the sets themselves would take a loop.
    total = np.zeros(len(inserts), np.uint64)
    np.add.at(total, owner, _random(int(number.max(initial=-1)) + 1)[number].view(np.uint64))
    least = _least(owner, number, len(inserts))
    order = np.lexsort((total, least))
    new = np.ones(len(inserts), np.bool_)
    new[1:] = (least[order][1:] != least[order][:-1]) | (total[order][1:] != total[order][:-1])
    element = np.zeros(len(inserts), np.int64)
    element[order] = np.cumsum(new) - 1
    attempts[inserts] = element
    count = int(element.max(initial=-1)) + 1
    of = np.zeros(len(first), np.int64)
    of[number] = element[owner]
    _check(history, inserts, (owner, number), of[number] == element[owner], element)
    head = np.zeros(len(first), np.bool_)
    head[np.unique(of, return_index=True)[1]] = True
    tried = history.take(inserts)
    live, ok = tried.outcome != FAILED, tried.outcome == OK
    failed = np.ones(count, np.bool_)
    failed[element[live]] = False
    # Tries that failed say nothing of an element of which another try may have gone well.
    used = live | failed[element]
    answer = _least(element, np.where(ok, tried.answer, NEVER), count)
    index = _greatest(element, np.where(used, tried.index, NOTHING), count)
    least = _least(element, np.where(ok & (tried.index != NOTHING), tried.index, NEVER), count)
    most = _greatest(element, np.where(ok, tried.index, NOTHING), count)
    settled = _greatest(element, tried.settled, count)
    waited = (_greatest(element, tried.quorum, count) > 1) | (settled != NOTHING)
    # A report names the try that was acknowledged, or else one that may have gone well.
    rank = np.where(ok, 0, np.where(live, 1, 2))
    order = np.lexsort((tried.call, rank, element))
    # Random weights, the first of each element so that they add up to 0: `cover` sees torn inserts by them.
    values = np.where(head, 0, _random(len(of)))
    total = np.zeros(int(of.max(initial=-1)) + 1, np.int64)
    np.add.at(total, of, values)
    return Elements(
        first=first,
        last=last,
        of=of,
        head=head,
        weight=cast("Ints", np.where(head, -total[of], values)),
        operation=inserts[order[np.unique(element[order], return_index=True)[1]]],
        # A try that failed by its quorum was in the log until then: an eventual read may have shown it.
        begun=_least(element, np.where(used | (tried.quorum > 1), tried.call, NEVER), count),
        call=_least(element, np.where(used, tried.call, NEVER), count),
        answer=answer,
        failed=failed,
        waited=waited,
        index=index,
        # An insert that waited for other replicas counts from its settling on, not from its own entry.
        place=np.where(waited, settled, index),
        twice=(most != NOTHING) & (least != most),
        attempts=attempts,
    )


def _segments(history: History, inserts: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return of every range of an insert: who has it, and which segment it is; and the segments' rows."""
    counts = np.diff(history.offset)[inserts]
    owner = np.repeat(np.arange(len(inserts)), counts)
    taken = history.take(inserts)
    order = np.lexsort((taken.last, taken.first))
    first, last = taken.first[order], taken.last[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (first[1:] != first[:-1]) | (last[1:] != last[:-1])
    number = np.zeros(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    # In the order of their first rows, so that two ranges overlap exactly when neighbours do.
    bad = np.flatnonzero(new[1:] & (first[1:] <= last[:-1]))
    if len(bad):
        one, two = inserts[owner[order[bad[0]]]], inserts[owner[order[bad[0] + 1]]]
        raise _shared(history, int(one), int(two), int(first[bad[0] + 1]))
    return owner, first[new], last[new], number


def _check(history: History, inserts: Ints, ranges: tuple[Ints, Ints], agrees: Flags, element: Ints) -> None:
    owner, number = ranges
    if not agrees.all():
        bad = int(np.flatnonzero(~agrees)[0])
        others = np.flatnonzero((number == number[bad]) & (element[owner] != element[owner[bad]]))
        row = int(history.take(inserts).first[bad])
        raise _shared(history, int(inserts[owner[others[0]]]), int(inserts[owner[bad]]), row)
    named = np.flatnonzero(history.token[inserts] != NOTHING)
    tokens, elements = history.token[inserts][named], element[named]
    order = np.lexsort((history.line[inserts][named], tokens))
    differ = np.flatnonzero((tokens[order][1:] == tokens[order][:-1]) & (elements[order][1:] != elements[order][:-1]))
    if len(differ):
        one, two = (int(inserts[named[order[differ[0] + k]]]) for k in (0, 1))
        raise BadInput(
            f"{_where(history, two)}: token {history.names.token[history.token[two]]!r} was used for other rows before"
            f" ({_where(history, one)}); who tries an insert again takes the same rows"
        )


def _shared(history: History, one: int, two: int, row: int) -> BadInput:
    return BadInput(
        f"{_where(history, two)}: row {row} is of another insert too ({_where(history, one)}); give each row a number of"
        " its own, and try an insert again with exactly its rows"
    )


def _where(history: History, operation: int) -> str:
    return f"{history.names.file[history.file[operation]]}, line {history.line[operation]}"


def _random(count: int) -> Ints:
    return np.random.default_rng(_SEED).integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max, count)


def _least(group: Ints, values: Ints, count: int) -> Ints:
    found = np.full(count, NEVER, np.int64)
    np.minimum.at(found, group, values)
    return found


def _greatest(group: Ints, values: Ints, count: int) -> Ints:
    found = np.full(count, NOTHING, np.int64)
    np.maximum.at(found, group, values)
    return found
