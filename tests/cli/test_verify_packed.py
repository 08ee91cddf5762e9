"""`verify` lists packed models beside the others, and takes their limits."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run

NAME = "published/truncate-log"


def test_packed_models_are_listed_with_their_limits(run: Run) -> None:
    models = {model["name"]: model for model in run("verify", "list", "--json").json}
    assert models[NAME]["limits"]["replicas"] == 3
    assert "lost-comes-back" in models[NAME]["mutants"]
    assert NAME in run("verify", "list").out


@pytest.mark.slow
def test_limits_are_set_and_counted(run: Run) -> None:
    ran = run("verify", "explore", NAME, "--set", "replicas=2", "--set", "records=3", "--json")
    assert ran.status == 0
    found = ran.json
    assert (found["states"], found["transitions"], found["depth"], found["violations"]) == (260, 1_127, 12, [])
    fewer = run("verify", "explore", NAME, "--set", "replicas=2", "--set", "records=3", "--symmetry", "--json").json
    assert fewer["states"] < found["states"]


@pytest.mark.slow
def test_what_proves_little_is_warned_of(run: Run) -> None:
    ran = run("verify", "explore", "published/replication", "--set", "records=2")
    assert ran.status == 0
    assert "warning: EquivalentReplicas says nothing" in ran.out
    assert "no violation" in ran.out


def test_a_mutant_of_a_packed_model_is_caught(run: Run) -> None:
    ran = run("verify", "explore", NAME, "--mutant", "cleaned-to-the-maximum")
    assert ran.status == 0
    assert ran.out.rstrip().endswith("caught")
    assert "  4 ClearOldLog" in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((NAME, "--set", "replicas"), "expected a name and a number"),
        ((NAME, "--set", "size=3"), "has no limit 'size'"),
        ((NAME, "--set", "replicas=9"), "does not fit"),
        ((NAME, "--mutant", "nonsense"), "has no mutant 'nonsense'"),
        (("pull_gap", "--set", "replicas=3"), "takes no --set"),
    ],
)
def test_limits_that_make_no_sense_are_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    ran = run("verify", "explore", *arguments)
    assert ran.status == 2
    assert said in ran.err
