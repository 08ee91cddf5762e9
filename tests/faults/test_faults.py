"""Real processes, real ZooKeeper, real signals; `make faults` runs the same for as long as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.harness import Plan, run

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]


def test_sigkill_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = run(Plan(seed=1, rounds=12, seconds=120.0, kinds=("kill",)), tmp_path)
    assert report.faults["kill"] >= 5
    assert report.acknowledged_rows > 100
    assert report.open_attempts == 0


def test_a_mixture_of_faults_loses_and_doubles_nothing(tmp_path: Path) -> None:
    kinds = ("kill", "kill-two", "pause", "zookeeper", "corrupt")
    report = run(Plan(seed=2, rounds=12, seconds=120.0, kinds=kinds), tmp_path)
    assert sum(report.faults.values()) >= 5
    assert report.acknowledged_rows > 100
    assert report.open_attempts == 0
