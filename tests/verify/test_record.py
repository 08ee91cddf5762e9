"""The record of the models: a run that was cut off goes on where it stood, and another commit begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.record import Line, every_model, explore, record


def test_a_model_is_recorded_with_what_its_exploration_counts() -> None:
    line = explore("clean_duplicate", "c1")
    assert line == Line("clean_duplicate", line.states, line.transitions, line.cpu_seconds, "c1")
    assert line.states > 1
    assert line.transitions >= line.states - 1


def test_a_run_that_was_cut_off_goes_on_where_it_stood(tmp_path: Path) -> None:
    file, explored = tmp_path / "results/models.jsonl", list[str]()

    def one(name: str, commit: str) -> Line:
        if len(explored) == 2:
            raise KeyboardInterrupt
        explored.append(name)
        return Line(name, 1, 0, 0.0, commit)

    with pytest.raises(KeyboardInterrupt):
        record("abcd", file, "c1", 60, one)
    assert explored == ["a", "b"]
    explored = []
    found = record("abcd", file, "c1", 60, one)
    assert explored == ["c", "d"]
    assert ([line.model for line in found.lines], found.left) == (["a", "b", "c", "d"], ())
    explored = []
    assert record("ab", file, "c2", 60, one).left == ()
    assert explored == ["a", "b"]


def test_no_model_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    found = record("ab", tmp_path / "models.jsonl", "c1", 0.0, explore)
    assert found == ((), ("a", "b"))


def test_every_room_is_recorded() -> None:
    names = every_model()
    assert len(names) == len(set(names))
    assert {"insert_one_token", "lease", "shared_merge_once", "free_entries"} <= set(names)
