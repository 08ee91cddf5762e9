"""A part that breaks while others are already ahead: whoever has it broken takes what it has become elsewhere."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults import checks
from tests.faults.cluster import FaultCluster
from tests.faults.workload import SCHEMA, rows
from tests.waiting import wait_for

pytestmark = pytest.mark.system


@pytest.mark.parametrize("updates", [1, 2])
def test_a_source_that_broke_is_not_needed_where_its_successors_are(tmp_path: Path, updates: int) -> None:
    """With one update the others have the result, with two they have thrown it away for the next one."""
    with FaultCluster(tmp_path, servers=1) as cluster:
        table = cluster.connection.create_table("t", SCHEMA, order_by="id", wait_replicas=3)
        inserted = table.insert(rows(range(100)), replica="r2")
        assert inserted.index is not None
        checks.wait_until_equal(table, cluster.names)
        late = cluster.process("r1")
        late.signal(signal.SIGSTOP)
        (file,) = cluster.disks["r1"].parts().values()
        file.write_bytes(bytes(file.stat().st_size))
        for _ in range(updates):
            table.replica("r2").update({"n": "n + 1"}, "id >= 0")
        wait_for(lambda: len(cluster.disks["r3"].parts()) > updates, "r3 has updated too")
        late.signal(signal.SIGCONT)
        checks.wait_until_equal(table, cluster.names)
        assert set(table.replica("r1").to_arrow()["n"].to_pylist()) == {updates}
        checks.check_health(cluster, table)
