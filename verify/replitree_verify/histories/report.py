"""A verdict for programs and for people."""

from __future__ import annotations

from typing import Any

import msgspec

from replitree.wire.history_format import LEVELS, Level
from replitree_verify.histories.judge import Anomaly, Verdict
from replitree_verify.histories.rules import RULES


def as_dict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON has it."""
    return {
        "verdict": word(verdict),
        "fine": verdict.fine,
        "operations": verdict.operations,
        "inserts": verdict.inserts,
        "reads": verdict.reads,
        "weakest_level_broken": verdict.weakest,
        "levels_kept": list(kept(verdict)),
        "counts": {rule: verdict.counts[rule] for rule in RULES if rule in verdict.counts},
        "anomalies": [
            {
                "name": anomaly.name,
                "rule": anomaly.rule,
                "level": anomaly.level,
                "text": anomaly.text,
                "places": list(anomaly.places),
                "operations": [msgspec.to_builtins(operation) for operation in anomaly.operations],
            }
            for anomaly in verdict.anomalies
        ],
        "undecided": list(verdict.undecided),
        "seconds": round(verdict.seconds, 3),
    }


def word(verdict: Verdict) -> str:
    """Return what a history is, in a word."""
    if verdict.anomalies or verdict.counts:
        return "wrong"
    return "undecided" if verdict.undecided else "fine"


def kept(verdict: Verdict) -> tuple[Level, ...]:
    """Return the levels whose promises were kept, as far as the reads had made them."""
    # A level promises what all weaker ones do: those below the weakest that is broken are kept.
    weakest = verdict.weakest
    return LEVELS[: LEVELS.index(weakest)] if weakest is not None else LEVELS[:3]


def lines(verdict: Verdict) -> list[str]:
    """Return a verdict as lines for people."""
    found = [
        f"{verdict.operations:,} operations in {verdict.seconds:.1f} s",
        f"  {verdict.inserts:,} inserts, {verdict.reads:,} answered reads",
    ]
    for rule, count in ((rule, verdict.counts[rule]) for rule in RULES if rule in verdict.counts):
        known = RULES[rule]
        found.append(f"  {rule}  {known.anomaly:<22} {count:>9,}  {known.says}")
    if verdict.anomalies:
        found += ["", "smallest:", *story(verdict.anomalies[0])]
        broken = verdict.weakest
        found += ["", f"broken: what {broken} promises; kept: {', '.join(kept(verdict)) or 'nothing'}"]
    found += [f"undecided: {reason}" for reason in verdict.undecided]
    return [*found, word(verdict)]


def story(anomaly: Anomaly) -> list[str]:
    """Return an anomaly as lines: what, and its operations in order of their calls."""
    names = letters(anomaly)
    first, (divisor, unit) = anomaly.operations[0].call, scale(anomaly)
    found = [f"  {anomaly.name} ({anomaly.rule}): {anomaly.text}"]
    for operation, place in zip(anomaly.operations, anomaly.places, strict=True):
        end = "never" if operation.answer is None else f"{(operation.answer - first) / divisor:g} {unit}"
        what = label(anomaly, operation.call, operation.client, names)
        found.append(f"    {(operation.call - first) / divisor:g} to {end}  {operation.client}: {what}  [{place}]")
    return found


def scale(anomaly: Anomaly) -> tuple[float, str]:
    """Return the unit in which an anomaly's times read well: nanoseconds in it, and its name."""
    moments = [each.call for each in anomaly.operations] + [each.answer or 0 for each in anomaly.operations]
    length = max(moments) - min(each.call for each in anomaly.operations)
    # Numbers with at most four digits before the point.
    return next(
        ((size, unit) for size, unit in ((1.0, "ns"), (1e3, "µs"), (1e6, "ms")) if length < 1e4 * size), (1e9, "s")
    )


def letters(anomaly: Anomaly) -> dict[tuple[tuple[int, int], ...], str]:
    """Return a name for each insert of an anomaly: A, B, … by its rows."""
    rows = dict.fromkeys(operation.rows for operation in anomaly.operations if operation.kind == "insert")
    return {each: chr(ord("A") + number) if number < 26 else f"I{number}" for number, each in enumerate(rows)}


def label(anomaly: Anomaly, call: int, client: str, names: dict[tuple[tuple[int, int], ...], str]) -> str:
    """Return what one operation of an anomaly is, in a few words."""
    operation = next(each for each in anomaly.operations if (each.call, each.client) == (call, client))
    at = "" if operation.index is None else f" @{operation.index}"
    at += "" if operation.settled is None else f" (counts at {operation.settled})"
    if operation.kind == "insert":
        outcome = "" if operation.outcome == "ok" else f" {operation.outcome}"
        return f"insert {names[operation.rows]}{at}{outcome}"
    where = "" if operation.replica is None else f" at {operation.replica}"
    if operation.outcome != "ok":
        return f"{operation.level} read{where} {operation.outcome}"
    # Not all: a range of rows that no client inserted may have billions, and a few show what is wrong.
    numbers = [row for first, last in operation.rows[:9] for row in range(first, min(last, first + 999) + 1)]
    shown, known = list[str](), set[int]()
    for insert, name in names.items():
        wanted = {row for first, last in insert for row in range(first, min(last, first + 999) + 1)}
        there = [row for row in numbers if row in wanted]
        if there:
            half, twice = len(set(there)) < len(wanted), len(there) > len(set(there))
            shown.append(f"{name}{'½' if half else ''}{'(twice)' if twice else ''}")
        known |= {row for first, last in insert for row in range(first, last + 1)}
    others = [f"row {row}" for row in numbers if row not in known]
    shown += [*others[:3], *(["…"] if len(others) > 3 else [])]
    if names and not shown:  # a story has only the rows of its inserts: the read may have shown others
        return f"{operation.level} read{where}{at}, of insert {', '.join(names.values())}: none"
    return f"{operation.level} read{where}{at} = {{{', '.join(shown)}}}"
