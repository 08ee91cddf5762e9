"""The benchmark of tablets measures what it says, with small numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.bench.tablet import TabletBench, histogram


@pytest.mark.slow
def test_round_has_every_key_and_a_restart_takes_five_round_trips(tmp_path: Path) -> None:
    ours, plain = TabletBench(tmp_path, commands=200, recovered=300).measure(0)
    assert {"group_commit", "one_client"} <= set(ours) & set(plain)
    assert all(value > 0 for value in (*ours.values(), *plain.values()))
    assert ours["restart_round_trips"] == 5


def test_histogram_counts_every_time() -> None:
    assert histogram([0.0001] * 3 + [0.001]) == "up to 0.25 ms: 3, 1 ms: 1"
