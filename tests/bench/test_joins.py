"""The benchmark of joins without a shuffle, with few rows."""

from __future__ import annotations

import pytest

from replitree_bench import run
from replitree_bench.shards import joins

pytestmark = [pytest.mark.system, pytest.mark.nightly]


def test_joins_are_measured_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "ROWS", 3_000)
    report = run.run_joins(rounds=1, say=lambda _: None)
    for one in (report.ours, report.peer):
        assert one["rows"] == 3_000
        assert all(one[key] > 0 for key in joins.STATEMENTS)
