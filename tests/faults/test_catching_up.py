"""A replica that stood still catches up with much at once, and goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.checks import wait_until_equal
from tests.faults.cluster import FaultCluster
from tests.faults.workload import SCHEMA, rows
from tests.waiting import stop_process

pytestmark = pytest.mark.system

MISSED, LATER = 200, 60


def test_a_replica_that_was_paused_pulls_more_than_one_pull_takes_and_goes_on_pulling(tmp_path: Path) -> None:
    with FaultCluster(tmp_path, replicas=2, servers=1, settings={"session_timeout_s": 20.0}) as cluster:
        table = cluster.connection.create_table("t", SCHEMA, order_by="id", wait_replicas=2)
        stop_process(cluster.process("r2").pid)
        for number in range(MISSED):
            table.insert(rows(range(number, number + 1)), token=f"a{number}", replica="r1")
        cluster.process("r2").signal(signal.SIGCONT)
        for number in range(LATER):  # its pulls are to meet further entries
            table.insert(rows(range(MISSED + number, MISSED + number + 1)), token=f"b{number}", replica="r1")
        wait_until_equal(table, cluster.names)
        assert table.replica("r2").to_arrow(["id"]).num_rows == MISSED + LATER
        assert "Traceback" not in cluster.process("r2").log.read_text("utf-8")
