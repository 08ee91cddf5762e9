"""Random histories of random models of a tablet: the same for the same seed, with rare branches, and mutants are caught."""

from __future__ import annotations

import pytest

from replitree.cli.main import main
from replitree.errors import BadInput
from replitree.verify.beside import simulate_tablets
from replitree.verify.tablets.drawing import draw_model
from replitree.verify.tablets.simulate import HISTORIES_OF_ONE, simulate, way_of

SEEN = {"accepted", "away", "declined", "deposed", "in doubt", "late arrival", "not elected", "read", "rot"}


def test_same_seeds_give_the_same_histories_whoever_goes_through_them() -> None:
    one, other = simulate(36, 44), simulate(36, 44)
    assert (one.digest, one.moves, one.violations) == (other.digest, other.moves, [])
    assert one.histories == 8
    assert simulate(36, 40).digest ^ simulate(40, 44).digest == one.digest != simulate(50, 58).digest


@pytest.mark.slow
def test_rare_branches_are_seen_and_nothing_is_violated() -> None:
    found = simulate(0, 1500, workers=2)
    assert found.violations == []
    assert set(found.probes) >= SEEN


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
    assert any(model.crashes and model.lost and model.away for model in models)


def test_mutant_is_caught_with_the_way_to_it() -> None:
    found = simulate_tablets(0, 2 * HISTORIES_OF_ONE, "references-not-awaited")
    assert found.violations[0]["invariant"] == "I6"
    seed = found.violations[0]["seed"]
    assert way_of(seed, len(found.trace)) != ()
    assert "committed" in found.trace[-1]


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
