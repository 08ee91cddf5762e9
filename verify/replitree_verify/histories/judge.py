"""Judging a history: every rule, the fewest operations for what is wrong, and an honest answer where nothing decides."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from replitree.wire.history_format import LEVELS, Level, Operation
from replitree_verify.histories.case import Case, make_case, objects
from replitree_verify.histories.columns import READ, History
from replitree_verify.histories.explain import (
    Witness,
    explain_closing,
    explain_element,
    explain_operation,
    explain_read,
    see,
    see_all,
)
from replitree_verify.histories.reading import parse
from replitree_verify.histories.rules import ALL, RULES
from replitree_verify.histories.screen import screen
from replitree_verify.histories.search import Limits, search

SHOWN_MAX = 5
"""How many anomalies of each rule are taken apart."""

MISFITS_MAX = 50
"""How many reads that do not fit in one order are held against all others."""

SCOPED_MAX = 2_000
"""How many reads of some rows are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that is wrong.

    Attributes
    ----------
    rule, name, level
        The number of the rule, what its violation is called, and the weakest level whose promise is broken.
    text
        What happened.
    operations
        The fewest operations that show it, reads with the rows of these inserts only, in order of their calls.
    places
        Where they stand: file and line.
    """

    rule: str
    name: str
    level: Level
    text: str
    operations: tuple[Operation, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a history is.

    Attributes
    ----------
    anomalies
        Some of each rule, those with the fewest operations first.
    counts
        How many of each rule.
    undecided
        What could not be decided, and why.
    operations, inserts, reads
        How many there are.
    seconds
        How long it took.
    """

    anomalies: tuple[Anomaly, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    operations: int = 0
    inserts: int = 0
    reads: int = 0
    seconds: float = 0.0

    @property
    def fine(self) -> bool:
        """Whether every promise was kept."""
        return not self.anomalies and not self.undecided and not self.counts

    @property
    def weakest(self) -> Level | None:
        """The weakest level whose promise was broken."""
        broken = {anomaly.level for anomaly in self.anomalies}
        return next((level for level in LEVELS if level in broken), None)


def check(
    history: History, level: Level | None = None, *, rules: frozenset[str] = ALL, limits: Limits | None = None
) -> Verdict:
    """Judge a history.

    Parameters
    ----------
    history
        From `replitree_verify.histories.reading`.
    level
        Judge as though all reads had promised this; by default each by its own promise.
    rules
        The rules to apply: all, but for tests of the rules.
    limits
        Of the search, where it is needed.

    Raises
    ------
    BadInput
        The history contradicts itself: a row belongs to two inserts, or a token was used for two.
    """
    began = time.monotonic()
    verdicts = [judge(make_case(part, level), rules, limits) for part in objects(history)]
    return together(verdicts, len(history), time.monotonic() - began)


def together(verdicts: Sequence[Verdict], operations: int, seconds: float) -> Verdict:
    """Return the verdicts on several tables as one."""
    counts: dict[str, int] = {}
    for verdict in verdicts:
        for rule, count in verdict.counts.items():
            counts[rule] = counts.get(rule, 0) + count
    found = _smallest([anomaly for verdict in verdicts for anomaly in verdict.anomalies])
    undecided = tuple(reason for verdict in verdicts for reason in verdict.undecided)
    inserts, reads = sum(verdict.inserts for verdict in verdicts), sum(verdict.reads for verdict in verdicts)
    return Verdict(found, counts, undecided, operations, inserts, reads, seconds)


def judge(case: Case, rules: frozenset[str] = ALL, limits: Limits | None = None) -> Verdict:
    """Judge one table's history."""
    found: list[Anomaly] = []
    counts: dict[str, int] = {}
    for suspects in screen(case, rules):
        rule = suspects.rule
        if rule == "L5":
            # A read that does not fit in the order may break any rule of two reads, so what it breaks is counted by its name.
            some = list(_misfits(case, suspects.numbers.tolist(), rules))
            found += [anomaly for anomaly in some if anomaly.rule == "L5"][:SHOWN_MAX]
            found += [anomaly for anomaly in some if anomaly.rule != "L5"][:SHOWN_MAX]
            _count(counts, [anomaly.rule for anomaly in some])
            continue
        counts[rule] = counts.get(rule, 0) + len(suspects.numbers)
        for number in suspects.numbers[:SHOWN_MAX].tolist():
            if suspects.kind == "element":
                witness = explain_element(case, rule, number)
            elif suspects.kind == "operation":
                witness = explain_operation(case, rule, number)
            elif rule == "S6":
                witness = explain_closing(case, number)
            else:
                witness = explain_read(see(case, number), rule)
            found += _anomaly(case, rule, witness)
    scoped, undecided = _scoped(case, rules, found, limits)
    _count(counts, [anomaly.rule for anomaly in scoped])
    inserts, reads = int((case.history.kind != READ).sum()), len(case.reads)
    return Verdict(_smallest(found + scoped), counts, undecided, len(case.history), inserts, reads)


def _smallest(found: list[Anomaly]) -> tuple[Anomaly, ...]:
    """Return anomalies, those with the fewest operations first."""
    return tuple(sorted(found, key=lambda each: (len(each.operations), each.operations[-1].call, each.rule)))


def _count(counts: dict[str, int], rules: list[str]) -> None:
    for rule in rules:
        counts[rule] = counts.get(rule, 0) + 1


def _misfits(case: Case, numbers: list[int], rules: frozenset[str]) -> Iterator[Anomaly]:
    """Ask reads that do not fit for everything that two reads can have wrong with each other."""
    forked = False
    for tried, number in enumerate(numbers):
        # Not before a fork was found: some read may fit with all others, and then another misfit is to blame.
        if forked and tried >= MISFITS_MAX:
            return
        read = see(case, number)
        for rule in ("L5", "L4", "Q1", "Q4", "Q2"):
            if rule in rules:
                found = _anomaly(case, rule, explain_read(read, rule))
                forked |= rule == "L5" and bool(found)
                yield from found


# --- reads of some rows ------------------------------------------------------------------------------------------------


def _scoped(
    case: Case, rules: frozenset[str], found: list[Anomaly], limits: Limits | None
) -> tuple[list[Anomaly], tuple[str, ...]]:
    """Judge reads that were about some rows only: each by itself, and then all operations by the general search."""
    numbers = np.flatnonzero(~case.whole)
    if not len(numbers):
        return [], ()
    table, partition = case.history.names.object[case.history.object[0]]
    name = table if partition is None else f"{table}, partition {partition}"
    if len(numbers) > SCOPED_MAX:
        return [], (f"{name}: {len(numbers):,} reads of some rows; up to {SCOPED_MAX:,} can be judged",)
    some: list[Anomaly] = []
    for read in see_all(case, numbers.tolist()):
        for rule in ("S4", "L1", "L3", "L6", "Q2"):
            if rule in rules:
                some += _anomaly(case, rule, explain_read(read, rule))
    if some or found:  # the search would find no order, and name no rule
        return some[: SHOWN_MAX * len(RULES)], ()
    answer = search(case, limits) if "W1" in rules else "fine"
    if answer == "wrong":
        return [_no_order(case, limits)], ()
    if answer == "undecided":
        return [], (f"{name}: reads of some rows, and the search for an order of all operations was given up",)
    return [], ()


def _no_order(case: Case, limits: Limits | None) -> Anomaly:
    """Leave operations out as long as no order explains the others; half of them at first, in the end one after the other."""

    def wrong(numbers: list[int]) -> bool:
        operations = cut_down([every[number] for number in numbers])
        return search(make_case(parse(operations), case.asked), limits) == "wrong"

    left = list(range(len(case.history)))
    # Once for all: where rows are with Spark, each look at them is a job.
    every = _operations(case, left)
    size = len(left) // 2
    while size:
        # From the end: what is left out does not move the operations that are still to be tried.
        for start in range(len(left) - size, -1, -size):
            fewer = left[:start] + left[start + size :]
            if wrong(fewer):
                left = fewer
        size //= 2
    (anomaly,) = _anomaly(case, "W1", (RULES["W1"].says, tuple(left)))
    # Judged as sequential it is fine: then only the promise of linearizable reads is broken.
    weaker = search(make_case(parse(anomaly.operations), "sequential"), limits)
    return replace(anomaly, level="linearizable") if weaker == "fine" else anomaly


# --- the operations of an anomaly -----------------------------------------------------------------------------------------


def _anomaly(case: Case, rule: str, witness: Witness) -> list[Anomaly]:
    if witness is None:
        return []
    text, numbers = witness
    known = RULES[rule]
    # By their calls: a report accuses the last operation.
    order = sorted(dict.fromkeys(numbers), key=lambda number: (int(case.history.call[number]), number))
    operations = cut_down(_operations(case, order), keep_rest=rule in {"S1", "S3"})
    history = case.history
    places = tuple(f"{history.names.file[history.file[number]]}, line {history.line[number]}" for number in order)
    return [Anomaly(rule, known.anomaly, known.level, text, operations, places)]


def _operations(case: Case, numbers: list[int]) -> list[Operation]:
    """Return operations of a case; what reads show is where their rows are."""
    answered = np.isin(numbers, case.reads)
    reads = np.searchsorted(case.reads, np.array(numbers)[answered])
    spans = case.rows.spans(reads) if len(reads) else None
    found, next_read = [], 0
    for number, is_read in zip(numbers, answered.tolist(), strict=True):
        operation = case.history.operation(number)
        if is_read and spans is not None:
            operation = msgspec.structs.replace(operation, rows=spans.ranges(next_read))
            next_read += 1
        found.append(operation)
    return found


def cut_down(operations: Sequence[Operation], *, keep_rest: bool = False) -> tuple[Operation, ...]:
    """Return operations as a history of their own: reads with the rows of these inserts only.

    Parameters
    ----------
    operations
        Of one table.
    keep_rest
        Keep what no client inserted, because that is what is wrong.
    """
    # Without the other rows the story fits on a page; what is wrong does not depend on them.
    rows = sorted(pair for operation in operations if operation.kind == "insert" for pair in operation.rows)
    found = list[Operation]()
    for operation in operations:
        if operation.kind != "insert" and not keep_rest:
            pairs = ((max(one[0], two[0]), min(one[1], two[1])) for one in operation.rows for two in rows)
            common = tuple(sorted(pair for pair in pairs if pair[0] <= pair[1]))
            found.append(msgspec.structs.replace(operation, rows=common))
        else:
            found.append(operation)
    return tuple(found)
