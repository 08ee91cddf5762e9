"""Real replicas, a real S3 server, real signals; `tests.shared.rounds` runs the same for as long as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.schedule import Strike
from tests.shared.harness import ACTIONS, Plan, killed, run
from tests.shared.schedule import STORE

SEED = 4
"""Its first four rounds kill the store twice, and replicas twice."""


def test_killed_processes_are_counted() -> None:
    strikes = {
        "kill": ("r1",),
        "kill-two": ("r1", "r3"),
        "store-kill": (STORE,),
        "pause": ("r2",),
        "store-cut": (STORE,),
    }
    assert killed(Strike(kind, 0.0, 0.0, some) for kind, some in strikes.items()) == {"replicas": 3, STORE: 1}


@pytest.mark.system
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["seaweed", "folder"])
def test_replicas_and_their_store_are_killed_and_nothing_is_lost_or_left(tmp_path: Path, store: str) -> None:
    report = run(Plan(seed=SEED, rounds=4, store=store), tmp_path)
    assert report.rounds >= 4
    assert report.faults["store-kill"] >= 2
    assert report.faults["kill"] + report.faults["kill-all"] >= 2
    assert report.killed["store"] >= 2
    assert report.killed["replicas"] >= 2
    hurt = sum(report.requests.values()) - report.requests.get("passed", 0)
    assert hurt > 0 or store == "folder"  # nothing is between the replicas and a folder
    assert [action for action in ACTIONS if not report.actions[action]] == []
    assert report.looks > 0
    assert report.acknowledged_rows > 100
    assert report.objects > 0
    assert report.borrowed > 0
