"""Servers and movers of a sharded table are killed; ``python -m tests.faults.sharded_rounds`` does the same for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.sharded_reads import run as reads_of
from tests.faults.sharded_rounds import run

pytestmark = [pytest.mark.system, pytest.mark.nightly]


def test_sigkill_of_servers_and_movers_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = run(tmp_path / "run", rounds=10, seed=1, slice_rounds=5)
    assert report.rounds == 10
    assert report.servers_killed + report.movers_killed >= 5
    assert report.acknowledged_rows > 100


def test_no_read_at_a_cut_is_torn_while_servers_are_killed_and_buckets_move(tmp_path: Path) -> None:
    report = reads_of(tmp_path / "run", 400, 1, readers=2, reads_a_kill=50)
    assert report.reads >= 400
    assert (report.torn, report.twice, report.back) == (0, 0, 0)
    assert report.servers_killed + report.movers_killed >= 4
    assert report.inserts_seen > 1_000
