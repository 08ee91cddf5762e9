"""The rules and the general search say the same; the search and all orders, tried one by one, say the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from replitree.wire.history_format import Operation
from replitree_verify.histories.case import make_case
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import parse
from replitree_verify.histories.search import Limits, search
from tests.verify.histories.generate import Shape, correct
from tests.verify.histories.known import A, B, C, insert, read
from tests.verify.histories.spoil import arbitrary, has, numbers, without


def disagreements(seeds: range) -> tuple[list[int], int]:
    """Return the seeds whose history the rules and the search judge differently, and how many both call fine."""
    found, fine = [], 0
    for seed in seeds:
        history = parse(arbitrary(seed))
        verdict, answer = check(history), search(make_case(history))
        if verdict.fine != (answer == "fine") or answer == "undecided" or bool(verdict.anomalies) == verdict.fine:
            found.append(seed)
        fine += verdict.fine
    return found, fine


def test_rules_and_search_agree_on_small_histories() -> None:
    found, fine = disagreements(range(120))
    assert found == []
    assert 40 < fine < 90, "half of the histories are wrong"


@pytest.mark.slow
def test_rules_and_search_agree_on_a_thousand_histories() -> None:
    found, fine = disagreements(range(100, 1_100))
    assert found == []
    assert 300 < fine < 700


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_rules_and_search_agree_on_ten_thousand_histories() -> None:
    found, fine = disagreements(range(1_000, 11_000))
    assert found == []
    assert 3_000 < fine < 7_000


def test_every_anomaly_of_a_small_history_is_one_by_itself() -> None:
    seen: set[str] = set()
    for seed in range(80):
        for anomaly in check(parse(arbitrary(seed))).anomalies:
            again = check(parse(anomaly.operations))
            assert anomaly.rule in again.counts, f"seed {seed}: {anomaly}"
            seen.add(anomaly.rule)
    assert seen >= {"L1", "L2", "L3", "L4", "L5", "L6", "Q1", "Q2"}


# --- all orders, one by one ---------------------------------------------------------------------------------------------


def explained(operations: Sequence[Operation]) -> bool:
    """Tell whether some order of linearizable operations explains all reads, by trying all of them."""
    reads = [each for each in operations if each.kind == "read"]
    must = [each for each in operations if each.kind == "read" or each.outcome == "ok"]
    maybe = [each for each in operations if each.kind == "insert" and each.outcome == "unknown"]
    assert len(must) == len(operations) - len(maybe)
    chosen = [[*must, *(each for k, each in enumerate(maybe) if mask >> k & 1)] for mask in range(1 << len(maybe))]
    return any(_right(order, reads) for some in chosen for order in permutations(some))


def _right(order: Sequence[Operation], reads: Sequence[Operation]) -> bool:
    rows: set[int] = set()
    for place, each in enumerate(order):
        if any(_ended(later) < each.call for later in order[place + 1 :]):
            return False
        if each.kind == "insert":
            rows |= set(numbers(each.rows))
        elif set(numbers(each.rows)) != (rows if each.scope is None else rows & set(numbers(each.scope))):
            return False
    return len(reads) == sum(each.kind == "read" for each in order)


def _ended(operation: Operation) -> float:
    return float("inf") if operation.outcome == "unknown" or operation.answer is None else operation.answer


def test_search_and_all_orders_agree() -> None:
    shape = Shape(operations=6, clients=3, positions=0.0, failed=0.0, unknown=0.2, levels=("linearizable",))
    verdicts = []
    for seed in range(60):
        operations = correct(seed, shape)
        for drop in (None, 0, 1):
            some = _forget(operations, drop)
            if len({each.rows for each in some if each.kind == "insert"}) < sum(each.kind == "insert" for each in some):
                continue  # a retry is one insert to the search, and two operations here
            verdicts.append(explained(some))
            assert (search(make_case(parse(some))) == "fine") == verdicts[-1], f"seed {seed}, without {drop}"
    assert 20 < sum(verdicts) < len(verdicts) - 10


def _forget(operations: list[Operation], drop: int | None) -> list[Operation]:
    """Let reads forget the first insert, or the last one."""
    inserts = [each for each in operations if each.kind == "insert"]
    if drop is None or not inserts:
        return operations
    gone = inserts[0 if drop == 0 else -1]
    late = [each for each in operations if each.kind == "read" and has(each, gone)][-1:]
    return [without(each, gone) if each in late else each for each in operations]


# --- what it can't do, and what it takes apart -------------------------------------------------------------------------


def wide(count: int) -> list[Operation]:
    """Return concurrent inserts of which reads of some rows see every second one; fine, and many orders to try."""
    inserts = [insert(f"i{k}", 0, 1000, ((2 * k, 2 * k),)) for k in range(count)]
    reads = [
        read(f"r{k}", 1, 999, ((2 * k, 2 * k),), "sequential", scope=((2 * k, 2 * k + 2),)) for k in range(count - 1)
    ]
    return [*inserts, *reads]


def test_a_search_that_is_too_long_is_undecided() -> None:
    case = make_case(parse(wide(12)))
    assert search(case) == "fine"
    assert search(case, Limits(states=2)) == "undecided"
    assert search(case, Limits(operations=5)) == "undecided"
    assert search(case, Limits(seconds=-1.0)) == "undecided"


def test_a_verdict_without_an_answer_is_not_fine() -> None:
    verdict = check(parse(wide(12)), limits=Limits(states=2))
    assert not verdict.fine
    assert not verdict.counts
    assert "given up" in verdict.undecided[0]


def test_rows_that_nobody_reads_together_are_judged_by_themselves() -> None:
    pairs = [
        each
        for k in range(9)
        for each in (
            insert(f"a{k}", 0, 1000, ((10 * k, 10 * k),)),
            insert(f"b{k}", 0, 1000, ((10 * k + 1, 10 * k + 1),)),
            read(f"r{k}", 1, 999, ((10 * k, 10 * k),), scope=((10 * k, 10 * k + 1),)),
        )
    ]
    assert search(make_case(parse(pairs)), Limits(states=4)) == "fine"
    positions = [insert("p", 0, 1000, ((999, 999),), index=3)]
    assert search(make_case(parse([*pairs, *positions])), Limits(states=4)) == "undecided"


def test_a_circle_of_reads_of_some_rows_is_cut_down_to_itself() -> None:
    circle = [
        insert("x", 0, 90, A), insert("z", 0, 90, B), insert("w", 0, 90, C),
        read("p", 1, 80, A, "sequential", scope=((1, 4),)),
        read("q", 1, 80, B, "sequential", scope=((3, 6),)),
        read("s", 1, 80, C, "sequential", scope=((1, 2), (5, 6))),
    ]  # fmt: skip
    others = [insert(f"o{k}", 0, 95, ((100 + k, 100 + k),)) for k in range(0, 20, 2)]
    (anomaly,) = check(parse([*circle, *others])).anomalies
    assert (anomaly.name, len(anomaly.operations)) == ("no_order", 6)


def test_reads_of_some_rows_that_are_only_too_old_break_only_what_is_linearizable() -> None:
    operations = [
        insert("x", 0, None, A, "unknown"), insert("z", 0, None, B, "unknown"),
        read("p", 10, 20, A, scope=((1, 4),)), read("q", 30, 40, (), scope=((1, 2),)),
    ]  # fmt: skip
    verdict = check(parse(operations))
    assert set(verdict.counts) == {"W1"}
    assert verdict.weakest == "linearizable"
    assert check(parse(operations), "sequential").fine
