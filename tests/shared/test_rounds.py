"""Real replicas, a real S3 server, real signals; `tests.shared.rounds` runs the same for as long as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared.harness import Plan, run

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]

SEED = 4
"""Its first four rounds kill the store twice, and replicas twice."""


@pytest.mark.parametrize("store", ["seaweed", pytest.param("folder", marks=pytest.mark.nightly)])
def test_replicas_and_their_store_are_killed_and_nothing_is_lost_or_left(tmp_path: Path, store: str) -> None:
    report = run(Plan(seed=SEED, rounds=4, store=store), tmp_path)
    assert report.rounds == 4
    assert report.faults["store-kill"] == 2
    assert report.faults["kill"] + report.faults["kill-all"] == 2
    hurt = sum(report.requests.values()) - report.requests.get("passed", 0)
    assert hurt > 0 or store == "folder"  # nothing is between the replicas and a folder
    assert report.looks > 0
    assert report.acknowledged_rows > 100
    assert report.objects > 0
