"""What is wrong, with the fewest operations that show it.

Each function takes one suspect and looks at everything that it needs, exactly.  It returns the operations of the
anomaly, two to four of them, or None where the suspect turns out to be innocent (a misfit may be comparable with all others:
then another one is to blame).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from replitree_verify.histories.case import Case
from replitree_verify.histories.columns import (
    AS_OF,
    LINEARIZABLE,
    NEVER,
    NOTHING,
    OK,
    SEQUENTIAL,
    Flags,
    Ints,
    offsets_of,
)
from replitree_verify.histories.cover import Spans, add_up, covered, shows, taken
from replitree_verify.histories.elements import Elements
from replitree_verify.histories.screen import closing_reads

Witness = tuple[str, tuple[int, ...]] | None
"""What happened, and the operations that show it."""


class Seen:
    """One read of a case, with everything that it shows.

    Parameters
    ----------
    case
        Where it is.
    number
        Which read.
    spans
        Its rows.
    """

    def __init__(self, case: Case, number: int, spans: Spans) -> None:
        self.case = case
        self.number = number
        self.spans = spans
        self.operation = int(case.reads[number])
        self.call, self.answer, self.index = int(case.call[number]), int(case.answer[number]), int(case.index[number])
        self.level = int(case.level[number])
        self.client = int(case.history.client[self.operation])
        self.replica = int(case.history.replica[self.operation])
        self.promises = self.level in {SEQUENTIAL, LINEARIZABLE, AS_OF}

    @cached_property
    def shown(self) -> Flags:
        """The elements that it shows."""
        return shows(self.spans, self.case.elements)

    @cached_property
    def lacked(self) -> Flags:
        """The elements that it was about and does not show; one that is partly outside of its scope is not among them."""
        return inside_scope(self.case, self.operation) & ~self.shown

    @property
    def earliest(self) -> Ints:
        """From when on it may show each element: an eventual read shows also what a try has left that failed in the end."""
        return self.case.elements.call if self.promises else self.case.elements.begun

    @cached_property
    def common(self) -> Ints:
        """How many elements each read of the case shows that this one shows too."""
        elements = self.case.elements
        (found,) = self.case.rows.each(add_up, elements, np.where(elements.head, self.shown[elements.of], 0))
        return found

    def of(self, element: int | np.intp) -> tuple[int, int]:
        """Return an insert and this read."""
        return int(self.case.elements.operation[element]), self.operation


def inside_scope(case: Case, operation: int) -> Flags:
    """Return the elements of which all rows are within what a read was about."""
    elements, scope = case.elements, case.history.scopes.get(operation)
    found = np.ones(len(elements), np.bool_)
    if scope is not None:
        first, last = (np.array([pair[k] for pair in scope], np.int64) for k in (0, 1))
        at = np.searchsorted(first, elements.first, "right") - 1
        inside = (at >= 0) & (last[np.maximum(at, 0)] >= elements.last) if len(scope) else np.zeros(len(at), np.bool_)
        found[elements.of[~inside]] = False
    return found


def see(case: Case, number: int) -> Seen:
    """Return a read of a case with what it shows."""
    return see_all(case, [number])[0]


def see_all(case: Case, numbers: Sequence[int]) -> list[Seen]:
    """Return some reads of a case with what they show."""
    if not numbers:
        return []
    spans = case.rows.spans(np.array(numbers, np.int64))
    return [Seen(case, number, taken(spans, np.array([place]))) for place, number in enumerate(numbers)]


# --- one read and what was inserted -----------------------------------------------------------------------------------


def _garbage(read: Seen) -> Witness:
    at = covered(read.spans, read.case.elements)
    bad = np.flatnonzero(at.garbage)
    if not len(bad):
        return None
    first, last = int(read.spans.first[bad[0]]), int(read.spans.last[bad[0]])
    rows = f"row {first}" if first == last else f"all rows from {first} to {last}"
    return f"no client inserted {rows}", (read.operation,)


def _failed(read: Seen, *, dirty: bool) -> Witness:
    elements = read.case.elements
    bad = np.flatnonzero(read.shown & elements.failed & (elements.dirty == dirty))
    return ("the insert had failed for good", read.of(bad[0])) if len(bad) else None


def _torn(read: Seen) -> Witness:
    elements = read.case.elements
    inside = inside_scope(read.case, read.operation)
    # By the numbers of rows: an insert of several segments may be cut between two of them, which tears no segment.
    rows = np.bincount(elements.of, elements.last - elements.first + 1, len(elements)).astype(np.int64)
    part = np.flatnonzero((_shown_rows(read, elements) != rows) & read.shown & inside)
    return ("the read shows some rows of the insert and not the others", read.of(part[0])) if len(part) else None


def _shown_rows(read: Seen, elements: Elements) -> Ints:
    """Return how many rows of each element a read shows."""
    spans = read.spans
    upto = offsets_of(spans.last - spans.first + 1)

    def below(row: Ints) -> Ints:
        at = np.searchsorted(spans.first, row, "left")
        over = (
            np.maximum(0, np.where(at > 0, spans.last[np.maximum(at - 1, 0)] + 1 - row, 0)) if len(spans.first) else 0
        )
        found: Ints = upto[at] - over
        return found

    rows = below(elements.last + 1) - below(elements.first)
    return np.bincount(elements.of, rows, len(elements)).astype(np.int64)


def _dirty(read: Seen) -> Witness:
    elements, found = read.case.elements, _failed(read, dirty=True) if read.promises else None
    if found is not None or not read.promises or read.index == NOTHING:
        return found
    bad = np.flatnonzero(read.shown & (elements.place >= read.index) & (elements.place != elements.index))
    if not len(bad):
        return None
    return f"the insert counts from {elements.place[bad[0]]} on, the read is of {read.index}", read.of(bad[0])


def _stale(read: Seen) -> Witness:
    # The earliest answer decides: if even that came after the read began, the read may lack them all.
    answer = np.where(read.lacked, read.case.elements.answer, NEVER)
    at = int(np.argmin(answer)) if len(answer) else 0
    if read.level != LINEARIZABLE or not len(answer) or answer[at] >= read.call:
        return None
    return "the insert was acknowledged before the read began, which does not show it", read.of(at)


def _future(read: Seen) -> Witness:
    elements = read.case.elements
    bad = np.flatnonzero(read.shown & (read.earliest > read.answer))
    if len(bad):
        return "the read was over before the insert was asked for", read.of(bad[0])
    if not read.promises or read.index == NOTHING:
        return None
    bad = np.flatnonzero(read.shown & (elements.least_place >= read.index) & (elements.least_place == elements.index))
    if not len(bad):
        return None
    return f"the insert is at {elements.index[bad[0]]}, the read is of {read.index}", read.of(bad[0])


def _hole(read: Seen) -> Witness:
    elements = read.case.elements
    below = np.where(read.lacked & elements.committed, elements.place, NEVER)
    above = np.where(read.shown, elements.least_place, NOTHING)
    if not len(below):
        return None
    low, high = int(np.argmin(below)), int(np.argmax(above))
    if read.promises and below[low] <= above[high]:
        text = f"the read shows position {above[high]} of the log and lacks {below[low]}"
        return text, (int(elements.operation[low]), *read.of(high))
    if read.index != NOTHING and below[low] < read.index:
        return f"the insert is at {below[low]}, the read has everything below {read.index}", read.of(low)
    return None


def _inverted_read(read: Seen) -> Witness:
    elements = read.case.elements
    answer = np.where(read.lacked, elements.answer, NEVER)
    call = np.where(read.shown, elements.call, NOTHING)
    if not read.promises or not len(answer) or answer.min() >= call.max():
        return None
    one, two = int(np.argmin(answer)), int(np.argmax(call))
    text = (
        "the read shows the second insert and lacks the first, which was acknowledged before the second was asked for"
    )
    return text, (int(elements.operation[one]), *read.of(two))


def _own(read: Seen) -> Witness:
    history, elements = read.case.history, read.case.elements
    mine = (history.client == read.client) & (history.outcome == OK) & (elements.attempts != NOTHING)
    mine &= history.ended <= read.call
    bad = np.flatnonzero(mine)[read.lacked[elements.attempts[mine]]]
    if read.level != SEQUENTIAL or not len(bad):
        return None
    return "its client had been told of the insert", (int(bad[0]), read.operation)


# --- two reads -------------------------------------------------------------------------------------------------------------


def _pair(read: Seen, others: Flags, text: str) -> Witness:
    """Return the read, the last of the others that shows what it lacks, and that insert."""
    sight = read.case.sight
    # Another read shows something that this one lacks when they have fewer elements in common than it shows.
    bad = np.flatnonzero(others & (read.common < sight.size))
    if not len(bad):
        return None
    other = see(read.case, int(bad[np.argmax(read.case.answer[bad])]))
    insert = int(np.flatnonzero(other.shown & ~read.shown)[0])
    return text, (*other.of(insert), read.operation)


def _before(read: Seen) -> Flags:
    case = read.case
    found: Flags = case.ordered & (case.level != AS_OF) & (case.answer < read.call)
    return found


def _back(read: Seen) -> Witness:
    if read.level == LINEARIZABLE:
        text = "the second read lacks the insert, which the first one, over before it, showed"
        return _pair(read, _before(read), text)
    return None


def _back_client(read: Seen) -> Witness:
    if read.level != SEQUENTIAL:
        return None
    case = read.case
    same = case.ordered & (case.level != AS_OF) & (case.history.client[case.reads] == read.client)
    found = _pair(read, same & (case.history.ended[case.reads] <= read.call), "the client saw the insert before")
    if found is not None and case.history.replica[found[1][1]] != read.replica:
        return f"{found[0]}, at another replica: its guarantee was lost on the way", found[1]
    return found


def _back_replica(read: Seen) -> Witness:
    if read.level != SEQUENTIAL or read.replica == NOTHING:
        return None
    same = read.case.history.replica[read.case.reads] == read.replica
    return _pair(read, _before(read) & same, "the replica showed the insert before")


def _fork(read: Seen) -> Witness:
    case, size = read.case, read.case.sight.size
    # Each has something that the other lacks: they have less in common than the smaller of them shows.
    bad = np.flatnonzero(case.ordered & (read.common < np.minimum(size, size[read.number])))
    if not len(bad):
        return None
    other = see(case, int(bad[0]))
    one, two = (int(np.flatnonzero(flags)[0]) for flags in (other.shown & ~read.shown, read.shown & ~other.shown))
    text = "each of the two reads lacks the insert that the other one shows"
    return text, (int(case.elements.operation[one]), other.operation, *read.of(two))


ONE_READ: dict[str, Callable[[Seen], Witness]] = {
    "S1": _garbage,
    "S2": partial(_failed, dirty=False),
    "S3": lambda read: ("the read has a row twice", (read.operation,)) if read.spans.repeated[0] else None,
    "S4": _torn,
    "S7": _dirty,
    "L1": _stale,
    "L2": _future,
    "L3": _hole,
    "L6": _inverted_read,
    "Q2": _own,
}
"""What a read shows, and what was inserted: it can be said of reads of some rows too."""

TWO_READS: dict[str, Callable[[Seen], Witness]] = {
    "L4": _back, "L5": _fork, "Q1": _back_client, "Q4": _back_replica,
}  # fmt: skip
"""What two reads of the whole table show."""


# --- no read, or closing ones -------------------------------------------------------------------------------------------


def explain_element(case: Case, rule: str, element: int) -> Witness:
    """Return what is wrong with an insert."""
    elements, history = case.elements, case.history
    mine = np.flatnonzero(elements.attempts == element)
    tried = mine[history.outcome[mine] == OK]
    if rule == "S3":
        one, two = tried[np.argmin(history.index[tried])], tried[np.argmax(history.index[tried])]
        return f"acknowledged at {history.index[one]} and at {history.index[two]}", (int(one), int(two))
    if rule == "S8":
        held = history.held_by
        bad = tried[(held[tried] != NOTHING) & (held[tried] < history.quorum[tried])][0]
        return f"{held[bad]} of {history.quorum[bad]} replicas had it", (int(bad),)
    if rule == "S5":
        reads = tuple(int(case.reads[number]) for number in closing_reads(case)[:1])
        return "no closing read shows the insert", (int(elements.operation[element]), *reads)
    # L6: of the inserts that were acknowledged before it was asked for, the one with the highest position.
    answer = np.where(elements.committed & (elements.answer < elements.call[element]), elements.place, NOTHING)
    one = int(np.argmax(answer))
    text = f"acknowledged at {answer[one]} before the second was asked for, which is at {elements.place[element]}"
    return text, (int(elements.operation[one]), int(elements.operation[element]))


def explain_closing(case: Case, number: int) -> Witness:
    """Return what two closing reads differ in."""
    read = see(case, number)
    closing = closing_reads(case)
    replica = case.history.replica[case.reads[closing]]
    other = see(case, int(closing[(replica != NOTHING) & (replica != read.replica)][0]))
    differs = np.flatnonzero(other.shown != read.shown)
    inserts = tuple(int(case.elements.operation[element]) for element in differs[:1])
    return "one has rows that the other has not", (*inserts, other.operation, read.operation)


def explain_operation(case: Case, rule: str, operation: int) -> Witness:
    """Return what is wrong with an operation that was not answered."""
    closing = np.flatnonzero(case.history.closing & (case.history.outcome == OK))
    if rule == "P1":
        return "this replica did not answer, and that one did", (int(closing[0]), operation)
    return "no replica answered", (operation,)
