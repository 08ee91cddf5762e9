"""The record of the models: a run that was cut off goes on where it stood, and other code of a model begins it anew."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace

from replitree_verify import registry
from replitree_verify.pins import PINS
from replitree_verify.registry import list_packed
from tests.verify import code
from tests.verify.record import Line, every_model, explore, record, unlike


@pytest.mark.parametrize(
    "name", ["clean_duplicate", pytest.param("lease", marks=pytest.mark.slow), "deposed", "published/truncate-log"]
)
def test_a_model_of_any_room_is_recorded_with_what_its_exploration_counts(name: str) -> None:
    line = explore(name, "c1", "d1")
    assert line == Line(name, line.states, line.transitions, line.cpu_seconds, "c1", "d1")
    assert line.states > 1
    assert line.transitions >= line.states - 1


def test_a_model_that_is_not_as_its_pin_says_is_wrong() -> None:
    name = "clean_duplicate"
    found, pin = registry.explore(name), PINS[name]
    assert unlike(found, pin) == ""
    assert (
        unlike(found, replace(pin, states=1, depth=2))
        == f"states {pin.states:,}, pinned 1, depth {pin.depth:,}, pinned 2"
    )


def test_a_run_that_was_cut_off_goes_on_where_it_stood(tmp_path: Path) -> None:
    file, explored = tmp_path / "results/models.jsonl", list[str]()

    def one(name: str, digest: str) -> Line:
        if len(explored) == 2:
            raise KeyboardInterrupt
        explored.append(name)
        return Line(name, 1, 0, 0.0, "c1", digest)

    codes = dict.fromkeys("dbca", "d1")
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            record(codes, file, 60, one, pool, 1)
        assert explored == ["d", "b"]
        explored = []
        found = record(codes, file, 60, one, pool, 1)
        assert explored == ["c", "a"]
        assert ([line.model for line in found.lines], found.left) == (["d", "b", "c", "a"], ())
        explored = []
        assert record(codes | {"c": "d2"}, file, 60, one, pool, 1).left == ()
        assert explored == ["c"]


def test_no_model_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = record(
            {"a": "d1", "b": "d1"}, tmp_path / "models.jsonl", 0.0, lambda name, _: explore(name, "", ""), pool, 1
        )
    assert found == ((), ("a", "b"))


def test_two_models_are_explored_at_a_time(tmp_path: Path) -> None:
    both = Barrier(2)

    def one(name: str, digest: str) -> Line:
        both.wait(timeout=60)
        return Line(name, 1, 0, 0.0, "c1", digest)

    with ThreadPoolExecutor(2) as pool:
        assert record(dict.fromkeys("abcd", "d1"), tmp_path / "models.jsonl", 600, one, pool, 2).left == ()


def test_every_room_is_recorded() -> None:
    names = every_model()
    assert {"insert_one_token", "lease", "merge_prepared", "free_entries", "opening", "lone"} <= set(names)
    assert {model["name"] for model in list_packed()} <= set(names)
    assert len(set(names.values())) == len(names), "two models of one digest"


def test_the_code_of_a_model_is_what_its_process_imports() -> None:
    asked = "import sys, replitree_verify.engine.explore; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    imported = {name for name in ran.stdout.split() if name.partition(".")[0] in ("replitree", "replitree_verify")}
    assert code.reached(["replitree_verify.engine.explore"]) == imported


def test_texts_for_people_are_no_code() -> None:
    meant = code._meaning("replitree.protocol.core.parts")  # noqa: SLF001 - what the digest is made of
    assert "covers" in meant
    assert "later form" not in meant, "the docstring of `covers`"
