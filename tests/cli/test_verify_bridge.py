"""`verify bridge` follows models, seeds and recorded runs, and ends with 0, 1 or 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_a_model_is_followed(run: Run) -> None:
    ran = run("verify", "bridge", "clean_clean")
    assert ran.status == 0
    assert ran.out.rstrip().endswith("every step has a way")
    assert "Look 1, Mark 1, Remove 1" in ran.out


def test_a_mutant_is_caught(run: Run) -> None:
    ran = run("verify", "bridge", "clean_clean", "--mutant", "marked-after-removal")
    assert ran.status == 0
    assert "shortest way to a step that has none there" in ran.out
    assert ran.out.rstrip().endswith("caught")


def test_a_run_is_recorded_and_followed_again(run: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "run.jsonl")
    recorded = run("verify", "bridge", "--seeds", "7:8", "--record", file, "--json")
    replayed = run("verify", "bridge", "--replay", file, "--json")
    assert recorded.status == replayed.status == 0
    taken = {f"cleaning {action}": count for action, count in replayed.json["taken"].items()}
    assert taken == {action: count for action, count in recorded.json["taken"].items() if action in taken}


def test_a_step_without_a_way_ends_with_1(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text('{"replicas":["r1"]}\n{"first":0,"end":1,"replicas":[{}]}\n{"first":1,"end":1,"replicas":[{}]}\n')
    ran = run("verify", "bridge", "--replay", str(file))
    assert ran.status == 1
    assert "has no way from [log of 1, 0 gone" in ran.out
    assert ran.out.rstrip().endswith("VIOLATED")


def test_what_is_not_known_ends_with_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree_published.bridge.mapping.STATES_MAX", 1)
    ran = run("verify", "bridge", "--seeds", "7:8")
    assert ran.status == 3
    assert "UNDECIDED: seed 7" in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name one thing to follow"),
        (("clean_clean", "--seeds", "1:2"), "name one thing to follow"),
        (("clean_clean", "--record", "run"), "use it with --seeds"),
        (("--replay", "run", "--mutant", "marked-after-removal"), "--replay and --trace run nothing"),
        (("--replay", "nowhere"), "can't be read"),
        (("--seeds", "1:2", "--onto", "replication"), "--onto is for models"),
        (("--seeds", "1"), "expected a range"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    ran = run("verify", "bridge", *arguments)
    assert ran.status == 2
    assert said in ran.err
