"""The benchmark of tablets measures what it says, with small numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.bench.tablet import TabletBench, histogram
from replitree.bench.tablet_store import GET_DOLLARS, PUT_DOLLARS, StoreBench


@pytest.mark.slow
def test_round_has_every_key_and_a_restart_takes_five_round_trips(tmp_path: Path) -> None:
    ours, plain = TabletBench(tmp_path, commands=200, recovered=300).measure(0)
    assert {"group_commit", "one_client"} <= set(ours) & set(plain)
    assert all(value > 0 for value in (*ours.values(), *plain.values()))
    assert ours["restart_round_trips"] == 5


def test_histogram_counts_every_time() -> None:
    assert histogram([0.0001] * 3 + [0.001]) == "up to 0.25 ms: 3, 1 ms: 1"


@pytest.mark.slow
def test_batch_on_a_store_is_one_put_and_at_most_one_get(tmp_path: Path) -> None:
    ours, plain = StoreBench(f"file://{tmp_path}", commits=200, recovered=120).measure()
    assert set(plain) <= set(ours)
    assert ours["puts_per_batch"] == 1
    assert 0 < ours["gets_per_batch"] <= 1
    assert ours["cost_per_million"] * ours["commits_per_batch"] <= PUT_DOLLARS + GET_DOLLARS + 0.001
    assert ours["recovery_gets"] >= 120
