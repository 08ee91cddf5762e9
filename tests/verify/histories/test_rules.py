"""Each rule finds what it is for; without it that is accepted; and what is right is never accused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from replitree.wire.history_format import Operation
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import parse
from replitree_verify.histories.rules import ALL, RULES
from tests.verify.histories.known import AB, FINE, KNOWN, A, B, Known, insert, read


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_what_is_wrong_is_found_and_named_with_the_fewest_operations(known: Known) -> None:
    verdict = check(parse(known.operations))
    assert set(verdict.counts) == {known.rule}
    (anomaly, *_) = verdict.anomalies
    assert (anomaly.rule, anomaly.name) == (known.rule, known.anomaly)
    assert anomaly.level == RULES[known.rule].level == verdict.weakest
    assert len(anomaly.operations) == len(anomaly.places) == known.fewest
    assert not verdict.fine


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_without_its_rule_it_is_wrongly_accepted(known: Known) -> None:
    assert check(parse(known.operations), rules=ALL - {known.rule}).fine


def test_every_rule_has_a_history_that_only_it_refuses() -> None:
    assert {known.rule for known in KNOWN.values()} == set(RULES)


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_the_fewest_operations_are_wrong_by_themselves(known: Known) -> None:
    (anomaly, *_) = check(parse(known.operations)).anomalies
    again = check(parse(anomaly.operations))
    assert known.rule in again.counts


@pytest.mark.parametrize("operations", FINE.values(), ids=FINE)
def test_what_is_right_is_fine(operations: Sequence[Operation]) -> None:
    verdict = check(parse(operations))
    assert verdict.counts == {}
    assert not verdict.anomalies
    assert not verdict.undecided
    assert verdict.fine
    assert verdict.weakest is None


def test_a_level_that_is_asked_for_takes_the_place_of_what_reads_had_been_promised() -> None:
    stale = parse(KNOWN["an acknowledged insert is not seen"].operations)
    assert check(stale, "sequential").fine
    lagging = parse(FINE["a sequential read lags"])
    assert set(check(lagging, "linearizable").counts) == {"L1"}
    assert check(parse(KNOWN["a client goes back"].operations), "eventual").fine


def test_a_guarantee_that_is_lost_between_replicas_is_told_apart() -> None:
    (anomaly,) = check(parse(KNOWN["a client goes back"].operations)).anomalies
    assert "at another replica" in anomaly.text


def test_everything_that_is_wrong_is_counted_and_some_of_it_shown() -> None:
    reads = [read("y", 100 + 10 * k, 105 + 10 * k, ()) for k in range(40)]
    verdict = check(parse([insert("x", 0, 10, A), *reads]))
    assert verdict.counts == {"L1": 40}
    assert len(verdict.anomalies) == 5


def test_many_reads_that_fit_nowhere_are_found_among_many_that_grow() -> None:
    inserts = [insert("x", 10 * k, 10 * k + 5, ((2 * k, 2 * k + 1),), index=k) for k in range(200)]
    good = [read("y", 10 * k + 6, 10 * k + 8, ((0, 2 * k + 1),)) for k in range(200)]
    bad = [read("z", 10 * k + 6, 10 * k + 8, ((0, 2 * k - 3), (2 * k, 2 * k + 1))) for k in range(50, 150, 7)]
    verdict = check(parse([*inserts, *good, *bad]))
    assert verdict.counts["L1"] == verdict.counts["L3"] == verdict.counts["L6"] == len(bad)
    assert {anomaly.operations[-1].client for anomaly in verdict.anomalies if anomaly.rule in {"L1", "L3", "L6"}} == {
        "z"
    }
    assert check(parse([*inserts, *good])).fine


def test_reads_of_some_rows_are_held_to_the_rules_too() -> None:
    inserts = (insert("x", 0, 10, A, index=0), insert("x", 20, 30, B, index=1))
    assert set(check(parse([*inserts, read("y", 40, 50, (), scope=A)])).counts) == {"L1"}
    assert set(check(parse([*inserts, read("y", 40, 50, ((1, 1),), "eventual", scope=AB)])).counts) == {"S4"}
    assert check(parse([*inserts, read("y", 40, 50, ((1, 1),), scope=((1, 1),))])).fine
