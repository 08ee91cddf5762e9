"""The rules, applied to all operations at once: who breaks which.

Reads that are about some rows only are not looked at here, but for what they show; see `replitree_verify.histories.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """Who breaks a rule.

    Attributes
    ----------
    rule
        Its number.
    kind
        What the numbers count: reads of the case, elements, or operations.
    numbers
        Who.
    """

    rule: str
    kind: Literal["read", "element", "operation"]
    numbers: Ints


def screen(case: Case, rules: frozenset[str]) -> list[Suspects]:
    """Return who breaks which of these rules.

    Parameters
    ----------
    case
        What is judged.
    rules
        The rules that are asked for.
    """
    # The costly part, which some tests of single rules do without.
    order = find_order(case) if rules & {"L4", "L5", "Q1", "Q2", "Q4"} else None
    found: list[Suspects] = []
    for rule, flags in _reads(case, order):
        if rule in rules:
            found.append(Suspects(rule, "read", np.flatnonzero(flags)))
    for rule, flags in _elements(case):
        if rule in rules:
            found.append(Suspects(rule, "element", np.flatnonzero(flags)))
    for rule, look in CLOSING.items():
        if rule in rules:
            found.append(look(case))
    return [suspects for suspects in found if len(suspects.numbers)]


def _reads(case: Case, order: Order | None) -> Iterator[tuple[str, Flags]]:
    sight, ordered, indexed = case.sight, case.ordered, case.index != NOTHING
    index = np.where(indexed, case.index, NEVER)
    yield "S1", sight.garbage > 0
    yield "S2", sight.aborted > 0
    yield "S3", sight.repeated > 0
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


def _elements(case: Case) -> Iterator[tuple[str, Flags]]:
    elements, history = case.elements, case.history
    yield "S3", elements.twice
    short = (history.outcome == OK) & (history.held_by != NOTHING) & (history.held_by < history.quorum)
    few = np.zeros(len(elements), np.bool_)
    few[elements.attempts[short & (elements.attempts != NOTHING)]] = True
    yield "S8", few
    # In the order of their answers: the highest position that was acknowledged before each element was asked for.
    committed = elements.committed
    early = np.flatnonzero(committed & (elements.answer != NEVER))
    early = early[np.argsort(elements.answer[early], kind="stable")]
    highest = np.concatenate(([NOTHING], np.maximum.accumulate(elements.place[early])))
    before = highest[np.searchsorted(elements.answer[early], elements.call, "left")]
    yield "L6", committed & (before > elements.place)


# --- after the faults -----------------------------------------------------------------------------------------------


def closing_reads(case: Case) -> Ints:
    """Return the reads that were done when all faults were over."""
    return np.flatnonzero(case.history.closing[case.reads] & case.whole)


def _lost(case: Case) -> Suspects:
    closing, elements = closing_reads(case), case.elements
    if not len(closing):
        return Suspects("S5", "element", closing)
    wanted = np.zeros(len(case.reads), np.bool_)
    wanted[closing] = True
    shown = np.zeros(len(elements), np.int64)
    np.maximum.at(shown, elements.of, case.rows.total(count_shown, elements, wanted))
    return Suspects("S5", "element", np.flatnonzero((elements.answer < case.call[closing].min()) & (shown == 0)))


def _differ(case: Case) -> Suspects:
    """Return the closing reads that differ from the first one of another replica."""
    closing, sight = closing_reads(case), case.sight
    replica = case.history.replica[case.reads[closing]]
    closing = closing[replica != NOTHING]
    if not len(closing):
        return Suspects("S6", "read", closing)
    one = closing[0]
    differs = (sight.size[closing] != sight.size[one]) | (sight.sum[closing] != sight.sum[one])
    elsewhere = case.history.replica[case.reads[closing]] != case.history.replica[case.reads[one]]
    return Suspects("S6", "read", closing[differs & elsewhere])


def _wedged(case: Case) -> Suspects:
    history = case.history
    closing = np.flatnonzero(history.closing & (history.replica != NOTHING))
    answering = np.unique(history.replica[closing][history.outcome[closing] == OK])
    silent = closing[~np.isin(history.replica[closing], answering)]
    # When no replica answers, none of them is the one that is wrong: that is P2.
    return Suspects("P1", "operation", silent if len(answering) else silent[:0])


def _unavailable(case: Case) -> Suspects:
    closing = np.flatnonzero(case.history.closing)
    return Suspects("P2", "operation", closing[:0] if (case.history.outcome[closing] == OK).any() else closing)


CLOSING: dict[str, Callable[[Case], Suspects]] = {"S5": _lost, "S6": _differ, "P1": _wedged, "P2": _unavailable}
