"""Leaders in processes of their own on three directories: whatever was acknowledged is there for the next one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replitree.tablet.members.directory import make_blob_directory
from tests.project.source import ROOT
from tests.tablet.leader_process import INCARNATIONS

Leader = subprocess.Popen[str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Leader]]:
    leaders: list[Leader] = []
    for number, incarnation in enumerate(INCARNATIONS):
        make_blob_directory(tmp_path / str(number), "g", number, incarnation)

    def start_one() -> Leader:
        command = [sys.executable, "-m", "tests.tablet.leader_process", str(tmp_path), f"c{len(leaders)}"]
        leaders.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return leaders[-1]

    yield start_one
    for each in leaders:
        each.kill()
        each.communicate()


def line_of(leader: Leader) -> list[str]:
    """Read what a leader says next."""
    assert leader.stdout is not None
    return leader.stdout.readline().split()


@pytest.mark.system
def test_killed_leaders_lose_nothing_that_was_committed(start: Callable[[], Leader], tmp_path: Path) -> None:
    acknowledged: list[str] = []
    for generation in range(1, 7):
        away = tmp_path / str(generation % 3)
        away.rename(tmp_path / "away")
        leader = start()
        said, *bodies = line_of(leader)
        assert said == str(generation)
        assert [body for body in bodies if body in acknowledged] == acknowledged
        assert len(set(bodies)) == len(bodies)
        (tmp_path / "away").rename(away)
        acknowledged = bodies + [line_of(leader)[0] for _ in range(10)]
        leader.kill()
        assert leader.stdout is not None
        acknowledged += [line.strip() for line in leader.stdout if line.endswith("\n")]


@pytest.mark.system
def test_leader_that_is_overtaken_acknowledges_nothing_more(start: Callable[[], Leader]) -> None:
    first = start()
    line_of(first)
    before = [line_of(first)[0] for _ in range(3)]
    second = start()
    _, *bodies = line_of(second)
    assert first.stdout is not None
    after = [line.strip() for line in first.stdout]
    assert after.pop() == "deposed"
    assert [body for body in bodies if body.startswith("1:")] == bodies
    assert set(before + after) <= set(bodies)
