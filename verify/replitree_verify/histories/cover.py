"""What reads saw: which segments, and what that says, for all reads of a chunk at once.

For every read: the latest call among the elements that it shows, the earliest answer among those that it lacks, and the
same of their positions.  That decides most rules without looking at any pair of operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from replitree.wire.history_format import Ranges
from replitree_verify.histories.columns import NEVER, NOTHING, Flags, History, Ints, offsets_of
from replitree_verify.histories.elements import Elements


@dataclass(frozen=True, slots=True)
class Spans:
    """Rows of some reads: disjoint ranges in ascending order that do not touch.

    Attributes
    ----------
    base
        Number of the first read, counted over all chunks.
    offset, first, last
        The ranges of each read.
    repeated
        Whether a row was there twice.
    raw
        The rows of those reads as they were written.
    """

    base: int
    offset: Ints
    first: Ints
    last: Ints
    repeated: Flags
    raw: dict[int, Ranges] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many reads there are."""
        return len(self.repeated)

    @property
    def owner(self) -> Ints:
        """The read of each range."""
        return np.repeat(np.arange(len(self)), np.diff(self.offset))

    def ranges(self, number: int) -> Ranges:
        """Return the rows of a read, those that are there twice too."""
        at = slice(int(self.offset[number]), int(self.offset[number + 1]))
        pairs = zip(self.first[at].tolist(), self.last[at].tolist(), strict=True)
        return self.raw.get(number) or tuple(pairs)

    @property
    def here(self) -> slice:
        """Where these reads are among all."""
        return slice(self.base, self.base + len(self))


class Reads(Protocol):
    """All reads of a history, wherever their rows are."""

    def each(self, do: PerRead, *shared: object) -> list[Ints]:
        """Return what `do` gives for all reads, one entry a read."""

    def total(self, do: PerSegment, *shared: object) -> Ints:
        """Return the sum of what `do` gives, one entry a segment."""

    def spans(self, numbers: Ints) -> Spans:
        """Return the rows of a few reads."""


class PerRead(Protocol):
    """Looks at the reads of a chunk, each by itself."""

    def __call__(self, spans: Spans, /, *shared: object) -> tuple[Ints, ...]:
        """Return columns with one entry a read."""


class PerSegment(Protocol):
    """Counts something for every segment over the reads of a chunk."""

    def __call__(self, spans: Spans, /, *shared: object) -> Ints:
        """Return one entry a segment."""


@dataclass(frozen=True, slots=True)
class LocalReads:
    """Reads whose rows are in memory."""

    all: Spans

    def each(self, do: PerRead, *shared: object) -> list[Ints]:
        """Return what `do` gives for all reads, one entry a read."""
        return list(do(self.all, *shared))

    def total(self, do: PerSegment, *shared: object) -> Ints:
        """Return the sum of what `do` gives, one entry a segment."""
        return do(self.all, *shared)

    def spans(self, numbers: Ints) -> Spans:
        """Return the rows of a few reads."""
        return taken(self.all, numbers)


def taken(spans: Spans, numbers: Ints) -> Spans:
    """Return some reads of a chunk; `numbers` count from its first one."""
    counts = np.diff(spans.offset)[numbers]
    offset = offsets_of(counts)
    places = np.repeat(spans.offset[:-1][numbers] - offset[:-1], counts) + np.arange(offset[-1])
    raw = {new: spans.raw[old] for new, old in enumerate(numbers.tolist()) if old in spans.raw}
    return Spans(0, offset, spans.first[places], spans.last[places], spans.repeated[numbers], raw)


def spans_of(history: History, reads: Ints, base: int = 0) -> Spans:
    """Return the rows of some reads of a history."""
    some = history.take(reads)
    owner = np.repeat(np.arange(len(reads)), np.diff(some.offset))
    first, last = some.first.copy(), some.last.copy()
    repeated = np.zeros(len(reads), np.bool_)
    repeated[owner[1:][(owner[1:] == owner[:-1]) & (first[1:] <= last[:-1])]] = True
    # As they were written: a report shows which rows are there twice.
    raw = {number: some.ranges(number) for number in np.flatnonzero(repeated).tolist()}
    kept = np.ones(len(owner), np.bool_)
    # Ranges of one read that overlap are cut.  Few reads have a row twice: the loop in Python costs nothing.
    for k in np.flatnonzero(repeated[owner]).tolist():
        if k and owner[k] == owner[k - 1]:
            first[k] = max(first[k], last[k - 1] + 1)
            if first[k] > last[k]:
                kept[k] = False
                first[k], last[k] = last[k - 1] + 1, last[k - 1]
    owner, first, last = owner[kept], first[kept], last[kept]
    new = np.ones(len(owner), np.bool_)
    new[1:] = (owner[1:] != owner[:-1]) | (first[1:] != last[:-1] + 1)
    ends = np.append(np.flatnonzero(new)[1:] - 1, len(owner) - 1) if len(owner) else new.nonzero()[0]
    counts = np.bincount(owner[new], minlength=len(reads))
    return Spans(base, offsets_of(counts), first[new], last[ends], repeated, raw)


@dataclass(frozen=True, slots=True)
class Covered:
    """Ranges of segments that reads show: ``[start, end)``, disjoint for each read, and their reads."""

    start: Ints
    end: Ints
    owner: Ints
    torn: Flags
    garbage: Flags


def covered(spans: Spans, elements: Elements) -> Covered:
    """Return which segments each range shows, whether it cuts one in two, and whether it has rows of none."""
    start = np.searchsorted(elements.last, spans.first, "left")
    end = np.searchsorted(elements.first, spans.last, "right")
    # A range that lies between two segments would end before it begins.
    end = np.maximum(start, end)
    some = end > start
    rows = offsets_of(elements.last - elements.first + 1)
    left = np.where(some, np.maximum(0, spans.first - _at(elements.first, start)), 0)
    right = np.where(some, np.maximum(0, _at(elements.last, end - 1) - spans.last), 0)
    inside = rows[end] - rows[start] - left - right
    owner = spans.owner
    # Two ranges of a read may touch one segment, with a gap within it: the segment belongs to the first.
    start = start.copy()
    same = owner[1:] == owner[:-1]
    start[1:] = np.where(same, np.maximum(start[1:], end[:-1]), start[1:])
    return Covered(
        start, np.maximum(start, end), owner, (left > 0) | (right > 0), inside < spans.last - spans.first + 1
    )


def _at(values: Ints, places: Ints) -> Ints:
    """Return values at places, where a place may be just beyond the ends."""
    if not len(values):
        return np.zeros(len(places), np.int64)
    return values[np.clip(places, 0, len(values) - 1)]


def look(spans: Spans, *shared: object) -> tuple[Ints, ...]:
    """Return the columns of `Sight` for a chunk."""
    (elements,) = cast("tuple[Elements]", shared)
    at, count = covered(spans, elements), len(spans)
    of = elements.of
    shown = _Ranges(at.start, at.end, at.owner, count)
    # The segments that no range shows: before the first of a read, between two, and after the last.
    places, bounds = np.arange(len(at.owner)) + at.owner, spans.offset
    start = np.zeros(len(at.owner) + count, np.int64)
    end = np.full(len(at.owner) + count, len(of), np.int64)
    start[places + 1], end[places] = at.end, at.start
    start[bounds[:-1] + np.arange(count)] = 0
    end[bounds[1:] + np.arange(count)] = len(of)
    lacking = _Ranges(start, end, np.repeat(np.arange(count), np.diff(bounds) + 1), count)
    place, late = elements.least_place, elements.committed & (elements.place != elements.index)
    absent = np.where(elements.committed, elements.place, NEVER)
    torn = np.bincount(at.owner, at.torn, count) > 0
    # The weights of an element's segments add up to 0, so a read that shows all or none of each has the sum 0.
    torn |= shown.sums(elements.weight) != 0
    # Reads are told apart by the sum of the random names of their elements: equal sums mean equal elements, almost surely.
    # From a fixed seed: every task of Spark draws the same names.
    names = np.random.default_rng(len(elements)).integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max, len(elements))
    return (
        np.bincount(at.owner, at.garbage, count).astype(np.int64),
        torn.astype(np.int64),
        spans.repeated.astype(np.int64),
        shown.sums((elements.head & (elements.failed & ~elements.dirty)[of]).astype(np.int64)),
        shown.sums((elements.head & elements.dirty[of]).astype(np.int64)),
        shown.sums(elements.head.astype(np.int64)),
        shown.sums(np.where(elements.head, names[elements.of], 0)),
        shown.extremes(elements.begun[of], np.maximum, NOTHING),
        shown.extremes(elements.call[of], np.maximum, NOTHING),
        shown.extremes(np.where(late, NOTHING, place)[of], np.maximum, NOTHING),
        shown.extremes(np.where(late, place, NOTHING)[of], np.maximum, NOTHING),
        lacking.extremes(elements.answer[of], np.minimum, NEVER),
        lacking.extremes(absent[of], np.minimum, NEVER),
    )


@dataclass(frozen=True, slots=True)
class Sight:
    """What every read saw.

    Attributes
    ----------
    garbage, torn, repeated
        How many of its ranges have rows that no client inserted; whether it has half an insert, or a row twice.
    aborted, dirty
        How many inserts it shows that failed before they were in the log, and that may have failed after.
    size, sum
        How many elements it shows, and the sum of their names.
    shown_begun, shown_call, shown_own, shown_settled
        The latest first try among them, and the latest call; and the highest position: of those that count by their own entry,
        and of the others.
    lacked_answer, lacked_place
        The earliest answer and the lowest known position among those that it does not show.
    """

    garbage: Ints
    torn: Ints
    repeated: Ints
    aborted: Ints
    dirty: Ints
    size: Ints
    sum: Ints
    shown_begun: Ints
    shown_call: Ints
    shown_own: Ints
    shown_settled: Ints
    lacked_answer: Ints
    lacked_place: Ints

    @property
    def shown_place(self) -> Ints:
        """The highest position among the elements that it shows."""
        return np.maximum(self.shown_own, self.shown_settled)


def count_shown(spans: Spans, *shared: object) -> Ints:
    """Return how many of the wanted reads show each segment."""
    elements, wanted = cast("tuple[Elements, Flags]", shared)
    # +1 where a range begins, -1 where it ends: the running sum counts the ranges over each segment.
    at = covered(spans, elements)
    kept = wanted[spans.here][at.owner]
    steps = np.bincount(at.start[kept], minlength=len(elements.of) + 1)
    steps = steps - np.bincount(at.end[kept], minlength=len(elements.of) + 1)
    return cast("Ints", np.cumsum(steps[:-1]).astype(np.int64))


def add_up(spans: Spans, *shared: object) -> tuple[Ints, ...]:
    """Return the sum of some values of segments over those that each read shows."""
    elements, values = cast("tuple[Elements, Ints]", shared)
    at = covered(spans, elements)
    return (_Ranges(at.start, at.end, at.owner, len(spans)).sums(values),)


def shows(spans: Spans, elements: Elements) -> Flags:
    """Return which elements a single read shows."""
    at = covered(spans, elements)
    steps = np.zeros(len(elements.of) + 1, np.int64)
    np.add.at(steps, at.start, 1)
    np.add.at(steps, at.end, -1)
    found = np.zeros(len(elements), np.bool_)
    found[elements.of[np.cumsum(steps[:-1]) > 0]] = True
    return found


# --- sums and extremes over ranges -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of segments, and whose they are, in order of their owners."""

    start: Ints
    end: Ints
    owner: Ints
    count: int

    def sums(self, values: Ints) -> Ints:
        """Return for each owner the sum of the values in its ranges, modulo 2⁶⁴."""
        # Running sums may overflow: modulo 2⁶⁴ their differences are right all the same.
        before = offsets_of(values)
        upto = offsets_of(before[self.end] - before[self.start])
        bounds = np.searchsorted(self.owner, np.arange(self.count + 1))
        return cast("Ints", upto[bounds[1:]] - upto[bounds[:-1]])

    def extremes(self, values: Ints, best: np.ufunc, nothing: int) -> Ints:
        """Return for each owner the best of the values in its ranges."""
        length = self.end - self.start
        some = length > 0
        # A sparse table, of which one level is kept at a time: two ranges of 2ᵏ, which may overlap, cover any range.
        power = np.frexp(length)[1] - 1
        found = np.full(self.count, nothing, np.int64)
        table = values
        for k in range(int(power[some].max(initial=-1)) + 1):
            at = np.flatnonzero(some & (power == k))
            pair = best(table[self.start[at]], table[self.end[at] - (1 << k)])
            best.at(found, self.owner[at], pair)
            table = best(table[: -(1 << k)], table[1 << k :])
        return found
