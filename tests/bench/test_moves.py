"""The benchmark of moves of buckets, with few rows."""

from __future__ import annotations

import pytest

from replitree_bench import run
from replitree_bench.shards import moves

pytestmark = [pytest.mark.system, pytest.mark.nightly]


def test_moves_are_measured_and_no_request_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ROWS": 20_000, "CLIENTS": 4, "CALM_S": 3.0, "KILLS_MAX": 3}.items():
        monkeypatch.setattr(moves, name, value)
    found = run.run_moves(rounds=1, rate=20.0, say=lambda _: None).ours
    assert (found["failed_inserts"], found["failed_reads"], found["wrong_reads"]) == (0, 0, 0)
    assert found["rows_moved"] > 4_000
    assert 0.5 < found["written_times"] < 2.0
