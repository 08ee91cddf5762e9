"""What is wrong, with the fewest operations that show it.

`explain_read` and its like take one suspect and look at everything that they need, exactly.  They return the operations of the
anomaly, two to four of them, or None where the suspect turns out to be innocent (a misfit may be comparable with all others:
then another one is to blame).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

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
from replitree_verify.histories.screen import closing_reads

Witness = tuple[str, tuple[int, ...]] | None
"""What happened, and the operations that show it."""


class SeenRead:
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


def see(case: Case, number: int) -> SeenRead:
    """Return a read of a case with what it shows."""
    return see_all(case, [number])[0]


def see_all(case: Case, numbers: Sequence[int]) -> list[SeenRead]:
    """Return some reads of a case with what they show."""
    if not numbers:
        return []
    spans = case.rows.spans(np.array(numbers, np.int64))
    return [SeenRead(case, number, taken(spans, np.array([place]))) for place, number in enumerate(numbers)]


# --- one read and what was inserted -----------------------------------------------------------------------------------


def explain_read(read: SeenRead, rule: str) -> Witness:
    """Return how a read breaks a rule, or None when it keeps it."""
    match rule:
        case "S1" | "S2" | "S3" | "S4" | "S7":
            return _explain_rows(read, rule)
        case "L1" | "L2" | "L3" | "L6" | "Q2":
            return _explain_places(read, rule)
        case _:
            return _explain_pair(read, rule)


def _explain_rows(read: SeenRead, rule: str) -> Witness:
    """Return how a read breaks a rule about the rows that it shows."""
    elements = read.case.elements
    match rule:
        case "S1":
            bad = np.flatnonzero(covered(read.spans, elements).garbage)
            if len(bad):
                first, last = int(read.spans.first[bad[0]]), int(read.spans.last[bad[0]])
                rows = f"row {first}" if first == last else f"all rows from {first} to {last}"
                return f"no client inserted {rows}", (read.operation,)
        case "S2":
            bad = np.flatnonzero(read.shown & elements.failed & ~elements.dirty)
            if len(bad):
                return "the insert had failed for good", read.of(bad[0])
        case "S3":
            return ("the read has a row twice", (read.operation,)) if read.spans.repeated[0] else None
        case "S4":
            spans = read.spans
            edges = np.array([elements.first, elements.last + 1])
            at = np.searchsorted(spans.first, edges)
            # The rows below an edge: those of all ranges that begin below it, but for what the last of them has beyond it.
            beyond = np.where(at > 0, np.maximum(0, np.append(spans.last, 0)[at - 1] + 1 - edges), 0)
            below = offsets_of(spans.last - spans.first + 1)[at] - beyond
            # By the numbers of rows: an insert of several segments may be cut between two of them, which tears no segment.
            missing = np.bincount(elements.of, edges[1] - edges[0] - (below[1] - below[0]), len(elements))
            bad = np.flatnonzero((missing > 0) & read.shown & inside_scope(read.case, read.operation))
            if len(bad):
                return "the read shows some rows of the insert and not the others", read.of(bad[0])
        case "S7" if read.promises:
            bad = np.flatnonzero(read.shown & elements.dirty)
            if len(bad):
                return "the insert had failed for good", read.of(bad[0])
            # Of the inserts that waited for other replicas: they count after their own entries.
            bad = np.flatnonzero(read.shown & (elements.place >= read.index) & (elements.place != elements.index))
            if read.index != NOTHING and len(bad):
                return f"the insert counts from {elements.place[bad[0]]} on, the read is of {read.index}", read.of(
                    bad[0]
                )
    return None


def _explain_places(read: SeenRead, rule: str) -> Witness:
    """Return how a read breaks a rule about the times and the positions of what it shows and what it lacks."""
    case, elements = read.case, read.case.elements
    answer = np.where(read.lacked, elements.answer, NEVER)
    # The earliest answer decides: if even that came after the read began, the read may lack them all.
    first = int(np.argmin(answer)) if len(answer) else 0
    match rule:
        case "L1" if read.level == LINEARIZABLE and len(answer) and answer[first] < read.call:
            return "the insert was acknowledged before the read began, which does not show it", read.of(first)
        case "L2":
            bad = np.flatnonzero(read.shown & (read.earliest > read.answer))
            if len(bad):
                return "the read was over before the insert was asked for", read.of(bad[0])
            at_own_entry = elements.least_place == elements.index
            bad = np.flatnonzero(read.shown & (elements.least_place >= read.index) & at_own_entry)
            if read.promises and read.index != NOTHING and len(bad):
                return f"the insert is at {elements.index[bad[0]]}, the read is of {read.index}", read.of(bad[0])
        case "L3" if len(elements):
            below = np.where(read.lacked & elements.committed, elements.place, NEVER)
            above = np.where(read.shown, elements.least_place, NOTHING)
            low, high = int(np.argmin(below)), int(np.argmax(above))
            if read.promises and below[low] <= above[high]:
                text = f"the read shows position {above[high]} of the log and lacks {below[low]}"
                return text, (int(elements.operation[low]), *read.of(high))
            if read.index != NOTHING and below[low] < read.index:
                return f"the insert is at {below[low]}, the read has everything below {read.index}", read.of(low)
        case "L6" if read.promises and len(elements):
            call = np.where(read.shown, elements.call, NOTHING)
            last = int(np.argmax(call))
            if answer[first] < call[last]:
                lacks = "the read shows the second insert and lacks the first"
                text = f"{lacks}, which was acknowledged before the second was asked for"
                return text, (int(elements.operation[first]), *read.of(last))
        case "Q2" if read.level == SEQUENTIAL:
            history = case.history
            mine = (history.client == read.client) & (history.outcome == OK) & (elements.attempts != NOTHING)
            mine &= history.ended <= read.call
            bad = np.flatnonzero(mine)[read.lacked[elements.attempts[mine]]]
            if len(bad):
                return "its client had been told of the insert", (int(bad[0]), read.operation)
    return None


# --- two reads -------------------------------------------------------------------------------------------------------------


def _explain_pair(read: SeenRead, rule: str) -> Witness:
    """Return how a read of the whole table breaks a rule together with another one."""
    case, history, size = read.case, read.case.history, read.case.sight.size
    before = case.ordered & (case.level != AS_OF) & (case.answer < read.call)
    match rule:
        case "L4" if read.level == LINEARIZABLE:
            return _find_lacked(
                read, before, "the second read lacks the insert, which the first one, over before it, showed"
            )
        case "Q1" if read.level == SEQUENTIAL:
            same = case.ordered & (case.level != AS_OF) & (history.client[case.reads] == read.client)
            # By the moment at which its client went on: a client does one thing after the other.
            found = _find_lacked(
                read, same & (history.ended[case.reads] <= read.call), "the client saw the insert before"
            )
            if found is not None and history.replica[found[1][1]] != read.replica:
                return f"{found[0]}, at another replica: its guarantee was lost on the way", found[1]
            return found
        case "Q4" if read.level == SEQUENTIAL and read.replica != NOTHING:
            here = history.replica[case.reads] == read.replica
            return _find_lacked(read, before & here, "the replica showed the insert before")
        case "L5":
            # Each has something that the other lacks: they have less in common than the smaller of them shows.
            bad = np.flatnonzero(case.ordered & (read.common < np.minimum(size, size[read.number])))
            if len(bad):
                other = see(case, int(bad[0]))
                one = int(np.flatnonzero(other.shown & ~read.shown)[0])
                two = int(np.flatnonzero(read.shown & ~other.shown)[0])
                text = "each of the two reads lacks the insert that the other one shows"
                return text, (int(case.elements.operation[one]), other.operation, *read.of(two))
    return None


def _find_lacked(read: SeenRead, others: Flags, text: str) -> Witness:
    """Return the read, the last of the others that shows what it lacks, and that insert."""
    # Another read shows something that this one lacks when they have fewer elements in common than it shows.
    bad = np.flatnonzero(others & (read.common < read.case.sight.size))
    if not len(bad):
        return None
    other = see(read.case, int(bad[np.argmax(read.case.answer[bad])]))
    insert = int(np.flatnonzero(other.shown & ~read.shown)[0])
    return text, (*other.of(insert), read.operation)


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
