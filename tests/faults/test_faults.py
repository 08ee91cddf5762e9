"""Real processes, a real ensemble, real signals; `make faults` runs the same for as long as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.harness import Plan, run
from tests.faults.schedule import USUAL

pytestmark = pytest.mark.system


@pytest.mark.nightly
def test_sigkill_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = run(Plan(seed=1, rounds=6, seconds=60.0, kinds=("kill", "kill-two")), tmp_path)
    assert report.rounds == 6
    assert report.acknowledged_rows > 100
    assert report.fold_compared


def test_a_mixture_of_all_faults_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = run(Plan(seed=2, rounds=100, seconds=15.0, kinds=USUAL), tmp_path)
    assert sum(report.faults.values()) >= 5
    assert report.acknowledged_rows > 100
    assert report.fold_compared
