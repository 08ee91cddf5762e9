"""A stream into a table while its driver, replicas and ZooKeeper's leader are killed; `tests.faults.streamed` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.streamed import Plan, run


@pytest.mark.system
@pytest.mark.nightly
@pytest.mark.parametrize("from_table", [False, True], ids=["files", "table"])
def test_every_batch_is_in_the_table_once_whatever_is_killed(tmp_path: Path, from_table: bool) -> None:
    report = run(Plan(seed=1, batches=60, kills=18, from_table=from_table), tmp_path)
    assert report.kills["driver"] == 6
    assert sum(report.kills.values()) >= 18
    assert report.repeated > 0
    assert (report.kills["executor"] > 0) == from_table
