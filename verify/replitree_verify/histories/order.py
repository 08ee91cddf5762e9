"""The order of reads: whether what they show grows along one line, and which go back on it.

Reads *grow* when of any two one shows all that the other shows.  To see that, count for each element by how many reads it is
shown.  If they grow, every read shows exactly the elements that are shown by more reads than some number; and if every read
does, they grow: of two such numbers one is not below the other.  A read that does not is a *misfit*.  The others are ordered by
their sizes, and a single pass finds those that show less than an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replitree_verify.histories.case import Case
from replitree_verify.histories.columns import AS_OF, LINEARIZABLE, NOTHING, OK, SEQUENTIAL, Flags, Ints, offsets_of
from replitree_verify.histories.cover import add_up, count_shown

ROUNDS_MAX = 16
"""How often misfits are set aside; if the others do not grow then, all count as misfits."""

UNSEEN = 1 << 40
"""Size of the smallest read that shows an element that none shows."""


@dataclass(frozen=True, slots=True)
class Order:
    """How reads lie in one line.

    Attributes
    ----------
    growing
        The reads that grow.
    misfits
        Those that do not fit among them.
    level
        Of each element: the size of the smallest growing read that shows it.
    """

    growing: Flags
    misfits: Flags
    level: Ints


def find_order(case: Case) -> Order:
    """Put the reads that promise an order in one."""
    elements, size, ordered = case.elements, case.sight.size, case.ordered
    growing = ordered.copy()
    # A misfit spoils the counts of all others, so it is set aside, and the rest is counted again.
    for _ in range(ROUNDS_MAX):
        counts = np.where(elements.head, case.rows.total(count_shown, elements, growing), 0)
        falling = np.sort(counts[elements.head])[::-1]
        best = offsets_of(falling)
        fits = np.zeros(len(best), np.bool_)
        fits[0] = True
        fits[1:] = np.append(falling[1:] != falling[:-1], True) if len(falling) else fits[1:]
        (total,) = case.rows.each(add_up, elements, counts)
        # The read of size n must show the n elements that are shown most, and no tie may leave open which these are.
        bad = growing & ~(fits[size] & (total == best[size]))
        if not bad.any():
            break
        growing &= ~bad  # without them the counts are others, so that more may fit, or fewer
    else:
        growing = np.zeros(len(size), np.bool_)
        counts, falling = np.zeros(len(elements.of), np.int64), np.zeros(len(elements), np.int64)
    rising = falling[::-1]
    level = np.full(len(elements), UNSEEN, np.int64)
    at = elements.of[elements.head]
    level[at] = len(rising) - np.searchsorted(rising, counts[elements.head], "left")
    level[at[counts[elements.head] == 0]] = UNSEEN
    return Order(growing, ordered & ~growing, level)


def goes_back(case: Case, order: Order) -> Flags:
    """Return the linearizable reads that show less than an ordered one that had ended before they began."""
    before = np.flatnonzero(order.growing & (case.level != AS_OF))
    later = np.flatnonzero(order.growing & (case.level == LINEARIZABLE))
    return _less(case, before, later)


def goes_back_at_replica(case: Case, order: Order) -> Flags:
    """Return the sequential reads that show less than one that had ended at the same replica before they began."""
    replica = case.history.replica[case.reads]
    found = np.zeros(len(case.reads), np.bool_)
    usable = order.growing & (case.level != AS_OF)
    for one in np.unique(replica[usable]).tolist():
        if one != NOTHING:
            here = usable & (replica == one)
            found |= _less(case, np.flatnonzero(here), np.flatnonzero(here & (case.level == SEQUENTIAL)))
    return found


def _less(case: Case, before: Ints, later: Ints) -> Flags:
    """Return which of the later reads show less than one of the others that had ended before they began."""
    found = np.zeros(len(case.reads), np.bool_)
    if len(before) and len(later):
        order = np.argsort(case.answer[before], kind="stable")
        ended = case.answer[before][order]
        most = np.concatenate(([NOTHING], np.maximum.accumulate(case.sight.size[before][order])))
        found[later] = most[np.searchsorted(ended, case.call[later], "left")] > case.sight.size[later]
    return found


def client_goes_back(case: Case, order: Order) -> Flags:
    """Return the sequential reads that show less than an ordered one that their client did before."""
    reads = np.flatnonzero(order.growing & (case.level != AS_OF))
    operations = case.reads[reads]
    return _behind_client(case, reads, case.sight.size[reads], operations)


def forgets_own(case: Case, order: Order) -> Flags:
    """Return the sequential reads that lack an insert that their client had been told of."""
    history = case.history
    mine = np.flatnonzero((case.elements.attempts != NOTHING) & (history.outcome == OK))
    return _behind_client(case, np.flatnonzero(order.growing), order.level[case.elements.attempts[mine]], mine)


def _behind_client(case: Case, reads: Ints, sizes: Ints, operations: Ints) -> Flags:
    """Return the sequential reads whose client was at a greater size before, by these operations."""
    history, found = case.history, np.zeros(len(case.reads), np.bool_)
    asking = reads[case.level[reads] == SEQUENTIAL]
    asked = case.reads[asking]
    who = np.concatenate((history.client[operations], history.client[asked]))
    when = np.concatenate((history.call[operations], history.call[asked]))
    value = np.concatenate((sizes, np.full(len(asked), NOTHING)))
    # By their calls: a client does one thing after the other, so what it asked for earlier was over before.
    order = np.lexsort((when, who))
    # Every client's values lie above those of the one before, so that one running maximum serves all: sizes are below
    # `UNSEEN`, 2⁴⁰.
    base = who[order] << 42
    most = np.empty(len(order), np.int64)
    most[order] = np.maximum.accumulate(base + value[order] + 1) - base - 1
    found[asking] = most[len(operations) :] > case.sight.size[asking]
    return found
