"""`verify` calls the checker by name and turns its findings into exit statuses."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run

SMALL = "pull_gap"


def test_list_names_invariants_and_mutants_of_every_model(run: Run) -> None:
    models = run("verify", "list", "--json").json
    assert SMALL in [model["name"] for model in models]
    assert all({"name", "invariants", "mutants"} <= set(model) for model in models)
    assert sum(len(model["mutants"]) for model in models) >= 8
    assert SMALL in run("verify", "list").out


def test_sound_model_ends_with_0(run: Run) -> None:
    ran = run("verify", "explore", SMALL, "--json")
    assert ran.status == 0
    assert ran.json["states"] > 1000
    assert ran.json["transitions"] > ran.json["states"]
    assert ran.json["violations"] == []
    assert "no violation" in run("verify", "explore", SMALL).out


def test_reduction_leaves_states_out(run: Run) -> None:
    plain, joined, ample = (
        run("verify", "explore", "quorum_stale", "--reduction", name, "--json").json["states"]
        for name in ("plain", "joined", "ample")
    )
    assert plain > joined > 5 * ample
    least = run("verify", "explore", "quorum_all_alone", "--reduction", "ample", "--symmetry", "--json").json
    assert least["permutations"] == 2
    ran = run("verify", "explore", "quorum_stale", "--reduction", "most")
    assert ran.status == 2
    assert "plain, joined, ample" in ran.err


def test_reductions_are_compared(run: Run) -> None:
    ran = run("verify", "reductions", "quorum_drop", "--json")
    (found,) = ran.json
    assert (ran.status, found["agree"]) == (0, True)
    assert found["plain"] > found["joined"] > found["ample"] >= found["least"]
    assert found["times_fewer"] > 10
    assert "quorum_drop" in run("verify", "reductions", "quorum_drop").out


@pytest.mark.parametrize(
    ("model", "mutant", "invariant"),
    [("lone_copied_earlier", "owed-as-it-is", "O2"), ("same_generation_of_two", "fence-without-majority", "I1")],
)
def test_models_beside_those_of_the_table(run: Run, model: str, mutant: str, invariant: str) -> None:
    ran = run("verify", "explore", model, "--json")
    assert (ran.status, ran.json["violations"]) == (0, [])
    assert ran.json["states"] > 100
    ran = run("verify", "explore", model, "--mutant", mutant, "--json")
    assert (ran.status, ran.json["violations"][0]["invariant"]) == (0, invariant)
    for wrong, told in [
        (("--mutant", "nonsense"), mutant),
        (("--set", "replicas=3"), "packed models do"),
        (("--symmetry",), "no --symmetry"),
        (("--reduction", "plain"), "takes no --reduction"),
    ]:
        ran = run("verify", "explore", model, *wrong)
        assert (ran.status, told in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("wrong", "meant"), [("insert_two_lane", "insert_two_lanes"), ("joint_insrt", "joint_insert"), ("pack", "none")]
)
def test_a_name_that_no_model_has_is_answered_with_names_like_it(run: Run, wrong: str, meant: str) -> None:
    ran = run("verify", "explore", wrong)
    assert (ran.status, f"no model {wrong!r} (" in ran.err, meant in ran.err) == (2, True, True)


def test_no_two_models_have_one_name(run: Run) -> None:
    names = [model["name"] for model in run("verify", "list", "--json").json]
    assert len(names) == len(set(names))
    assert {"lone_copied_earlier", "insert_one_token", "mended/quorum"} <= set(names)


def test_mutant_that_is_caught_ends_with_0_and_its_trace(run: Run) -> None:
    ran = run("verify", "explore", "insert_one_token", "--mutant", "acknowledge-before-commit", "--json")
    assert ran.status == 0
    assert ran.json["violations"][0]["invariant"] == "I2"
    text = run("verify", "explore", "insert_one_token", "--mutant", "acknowledge-before-commit").out
    assert "shortest counterexample" in text
    assert text.rstrip().endswith("caught")


def test_simulation_is_the_same_every_time(run: Run) -> None:
    one, two = (run("verify", "simulate", "--seeds", "3:5", "--json") for _ in range(2))
    assert one.status == two.status == 0
    assert one.json["violations"] == []
    assert one.json["digest"] == two.json["digest"]
    assert "no violation" in run("verify", "simulate", "--seeds", "3:4").out


def test_violation_of_the_plain_protocol_ends_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from replitree_verify import registry

    bad = registry.Result(
        SMALL, None, 10, 20, 0.1, ({"invariant": "I3", "what": "I3: twice", "steps": 4},), trace=("1 r1",)
    )
    monkeypatch.setattr(registry, "explore", lambda *_, **__: bad)
    ran = run("verify", "explore", SMALL)
    assert ran.status == 1
    assert "violated: I3: twice" in ran.out
    assert run("verify", "explore", SMALL, "--json").status == 1


def test_mutant_that_is_not_caught_ends_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from replitree_verify import registry

    monkeypatch.setattr(
        registry, "explore", lambda *_, **__: registry.Result(SMALL, "gap-believed-at-once", 10, 20, 0.1)
    )
    ran = run("verify", "explore", SMALL, "--mutant", "gap-believed-at-once")
    assert ran.status == 1
    assert "NOT CAUGHT" in ran.out
