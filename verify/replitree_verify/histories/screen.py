"""The rules, applied to all operations at once: which operations break which of them.

Reads that are about some rows only are not looked at here, but for what they show; see `replitree_verify.histories.explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from replitree_verify.histories.case import Case
from replitree_verify.histories.columns import LINEARIZABLE, NEVER, NOTHING, OK, Flags, Ints
from replitree_verify.histories.cover import count_shown
from replitree_verify.histories.order import (
    Order,
    client_goes_back,
    find_order,
    forgets_own,
    goes_back,
    goes_back_at_replica,
)


@dataclass(frozen=True, slots=True)
class Suspects:
    """The reads, elements or operations that break a rule.

    Attributes
    ----------
    rule
        Its number.
    kind
        What the numbers count: reads of the case, elements, or operations.
    numbers
        Which of them.
    """

    rule: str
    kind: Literal["read", "element", "operation"]
    numbers: Ints


def screen(case: Case, rules: frozenset[str]) -> list[Suspects]:
    """Return what breaks which of these rules.

    Parameters
    ----------
    case
        What is judged.
    rules
        The rules that are asked for.
    """
    # The costly part, which some tests of single rules do without.
    order = find_order(case) if rules & {"L4", "L5", "Q1", "Q2", "Q4"} else None
    found = [Suspects(rule, "read", np.flatnonzero(flags)) for rule, flags in _reads(case, order)]
    elements, history = case.elements, case.history
    short = (history.outcome == OK) & (history.held_by != NOTHING) & (history.held_by < history.quorum)
    few = np.zeros(len(elements), np.bool_)
    few[elements.attempts[short & (elements.attempts != NOTHING)]] = True
    # In the order of their answers: the highest position that was acknowledged before each element was asked for.
    committed = elements.committed
    early = np.flatnonzero(committed & (elements.answer != NEVER))
    early = early[np.argsort(elements.answer[early], kind="stable")]
    highest = np.concatenate(([NOTHING], np.maximum.accumulate(elements.place[early])))
    before = highest[np.searchsorted(elements.answer[early], elements.call, "left")]
    of_inserts = {"S3": elements.twice, "S8": few, "L6": committed & (before > elements.place)}
    last_reads = closing_reads(case)
    if len(last_reads):
        wanted = np.zeros(len(case.reads), np.bool_)
        wanted[last_reads] = True
        shown = np.zeros(len(elements), np.int64)
        np.maximum.at(shown, elements.of, case.rows.total(count_shown, elements, wanted))
        of_inserts["S5"] = (elements.answer < case.call[last_reads].min()) & (shown == 0)
    found += [Suspects(rule, "element", np.flatnonzero(flags)) for rule, flags in of_inserts.items()]
    closing = np.flatnonzero(history.closing)
    is_answered = (history.outcome[closing] == OK).any()
    named = closing[history.replica[closing] != NOTHING]
    answering = np.unique(history.replica[named][history.outcome[named] == OK])
    silent = named[~np.isin(history.replica[named], answering)]
    # When no replica answers, none of them is the one that is wrong: that is P2.
    found.append(Suspects("P1", "operation", silent if len(answering) else silent[:0]))
    found.append(Suspects("P2", "operation", closing[:0] if is_answered else closing))
    return [suspects for suspects in found if suspects.rule in rules and len(suspects.numbers)]


def _reads(case: Case, order: Order | None) -> Iterator[tuple[str, Flags]]:
    sight, ordered, indexed = case.sight, case.ordered, case.index != NOTHING
    # Without a position every place is below it, so the rules of positions do not bite.
    index = np.where(indexed, case.index, NEVER)
    yield "S1", sight.garbage > 0
    yield "S2", sight.aborted > 0
    yield "S3", sight.repeated > 0
    # A read of some rows may cut an insert at the border of what it asked for; each is looked at by itself later.
    yield "S4", (sight.torn > 0) & case.whole
    yield "S7", (case.strict & (sight.dirty > 0)) | (ordered & (sight.shown_settled >= index))
    yield "L1", case.whole & (case.level == LINEARIZABLE) & (sight.lacked_answer < case.call)
    asked = np.where(case.strict, sight.shown_call, sight.shown_begun)
    yield "L2", (asked > case.answer) | (ordered & (sight.shown_own >= index))
    missing = np.where(ordered, sight.shown_place, NOTHING)
    yield "L3", case.whole & ((sight.lacked_place <= missing) | (indexed & (sight.lacked_place < index)))
    yield "L6", ordered & (sight.lacked_answer < sight.shown_call)
    if order is not None:
        yield "L5", order.misfits
        yield "L4", goes_back(case, order)
        yield "Q1", client_goes_back(case, order)
        yield "Q2", forgets_own(case, order)
        yield "Q4", goes_back_at_replica(case, order)
    replica = case.history.replica[case.reads]
    closing = closing_reads(case)
    closing = closing[replica[closing] != NOTHING]
    if len(closing):
        # Closing reads that differ from the first one, of another replica.
        one = closing[0]
        differs = (sight.size != sight.size[one]) | (sight.sum != sight.sum[one])
        flags = np.zeros(len(case.reads), np.bool_)
        flags[closing] = True
        yield "S6", flags & differs & (replica != replica[one])


def closing_reads(case: Case) -> Ints:
    """Return the reads that were done when all faults were over."""
    return np.flatnonzero(case.history.closing[case.reads] & case.whole)
