"""Random histories of random models of a tablet: the same for the same seed, with rare branches, and mutants are caught."""

from __future__ import annotations

import pytest

from replitree.cli.main import main
from replitree.errors import BadInput
from replitree_verify.small_models import simulate_tablets
from replitree_verify.tablets.drawing import draw_model
from replitree_verify.tablets.simulate import HISTORIES_OF_ONE, simulate
from replitree_verify.world.faults import Fault

SEEN = {"accepted", "away", "declined", "deposed", "in doubt", "late arrival", "not elected", "read", "rot"}
OF_DATA = {"collected", "taken", "not taken", "synced"}


def test_same_seeds_give_the_same_histories_whoever_goes_through_them() -> None:
    one, other = simulate(36, 44), simulate(36, 44)
    assert (one.digest, one.moves, one.violations) == (other.digest, other.moves, [])
    assert one.histories == 8
    assert simulate(36, 40).digest ^ simulate(40, 44).digest == one.digest != simulate(50, 58).digest


@pytest.mark.slow
def test_rare_branches_are_seen_and_nothing_is_violated() -> None:
    found = simulate(0, 2000, workers=2)
    assert found.violations == []
    assert set(found.probes) >= SEEN | OF_DATA


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_hundred_thousand_histories_violate_nothing() -> None:
    found = simulate(0, 100_000, workers=2)
    assert (found.histories, found.violations) == (100_000, [])


def test_models_that_are_drawn_differ() -> None:
    models = [draw_model(seed) for seed in range(60)]
    assert {model.on_store for model in models} == {False, True}
    assert {model.members for model in models} == {1, 2, 3}
    assert {len(model.seats) for model in models} == {2, 3, 4}
    assert any(all(map(model.faults.get, (Fault.CRASH, Fault.UNKNOWN, Fault.SILENT))) for model in models)
    with_data = [model for model in models if model.collects_data]
    assert {model.data_members for model in with_data} == {0, 2, 3}
    assert any(model.on_store for model in with_data)
    assert any(model.faults[Fault.UNKNOWN] and model.faults[Fault.SILENT] and model.data_members for model in with_data)


def test_mutant_is_caught_with_the_way_to_it() -> None:
    found = simulate_tablets(0, 2 * HISTORIES_OF_ONE, "references-not-awaited")
    assert found.violations[0]["invariant"] == "I6"
    assert "committed" in found.trace[-1]


def test_history_of_a_seed_is_the_same_wherever_one_begins() -> None:
    parts = [simulate(first, end, "fence-of-the-log-alone") for first, end in ((60, 64), (64, 68))]
    together = simulate(60, 68, "fence-of-the-log-alone")
    assert together.violations == [each for found in parts for each in found.violations]
    assert len(parts[1].violations) > 1
    assert together.trace == (parts[0].trace or parts[1].trace)
    assert simulate(65, 68, "fence-of-the-log-alone").violations == parts[1].violations[1:]


@pytest.mark.parametrize(
    ("mutant", "invariant", "first"),
    [
        ("fence-of-the-log-alone", "I2", 60),
        ("keep-left-out", "I12", 440),
        ("lists-lost-at-a-take-over", "I12", 440),
        ("heard-when-sent", "I12", 920),
    ],
)
def test_mutant_of_collections_is_caught(mutant: str, invariant: str, first: int) -> None:
    found = simulate(first, first + HISTORIES_OF_ONE, mutant)
    assert invariant in {wrong.partition(":")[0] for _, wrong in found.violations}


def test_command_goes_through_histories_of_tablets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "simulate", "--tablets", "--seeds", "0:6"]) == 0
    assert "no violation" in capsys.readouterr().out
    assert main(["verify", "simulate", "--tablets", "--seeds", "0:6", "--mutant", "references-not-awaited"]) == 0
    assert "the first violation" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--mutant", "perfect"], ["--hours", "2"], ["--workers", "1000"]])
def test_wrong_wishes_are_refused(words: list[str]) -> None:
    assert main(["verify", "simulate", "--tablets", "--seeds", "0:2", *words]) == 2
    with pytest.raises(BadInput):
        simulate_tablets(0, 1, "perfect")
