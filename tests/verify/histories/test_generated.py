"""Histories that are right by construction are fine, however concurrent; with one thing changed, that thing is found."""

from __future__ import annotations

import random

import pytest

from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import parse
from replitree_verify.histories.rules import RULES
from tests.verify.histories.generate import Shape, correct
from tests.verify.histories.spoil import INJECTED, Spoil

SEEDS = 25


@pytest.mark.parametrize("positions", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("clients", [1, 3, 8])
def test_what_is_right_is_fine(positions: float, clients: int) -> None:
    shape = Shape(operations=60, clients=clients, replicas=3, positions=positions)
    for seed in range(8):
        verdict = check(parse(correct(seed, shape, closing=True)))
        assert verdict.fine, f"seed {seed}: {verdict.counts} {verdict.anomalies[:1]}"


@pytest.mark.parametrize(("anomaly", "spoil"), INJECTED.values(), ids=INJECTED)
def test_what_was_injected_is_found(anomaly: str, spoil: Spoil) -> None:
    spoilt = 0
    for seed in range(SEEDS):
        operations = correct(seed, Shape(operations=40, unknown=0.05, failed=0.1), closing=True)
        if spoil(operations, random.Random(seed)):
            spoilt += 1
            names = {RULES[rule].anomaly for rule in check(parse(operations)).counts}
            assert anomaly in names, f"seed {seed}: {names}"
    assert spoilt > SEEDS // 2


def test_every_anomaly_can_be_injected() -> None:
    assert {anomaly for anomaly, _ in INJECTED.values()} == {rule.anomaly for rule in RULES.values()} - {"no_order"}
