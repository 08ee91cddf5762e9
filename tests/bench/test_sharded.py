"""The benchmark of sharded tables: every insert is of the shards that it is counted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replitree.errors import ReplitreeError
from replitree.protocol.sharded.cut import CUT_LEVELS
from replitree_bench.kit.systems import REPLICAS, make_rows
from replitree_bench.shards import sharded
from tests.replica.inprocess import InProcessCluster
from tests.waiting import wait_for


@pytest.mark.slow
def test_every_kind_of_insert_is_measured_and_rows_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded, "CLIENTS", 3)
    cluster = InProcessCluster(tmp_path, REPLICAS)
    try:
        with cluster.connect() as connection:
            terms: dict[str, Any] = {"inserts": 4, "load_inserts": 6, "quiet_s": 0.1, "growth_inserts": 2}
            bench = sharded.ShardedBench(connection, (1, 3), (2,), growth_shards=(3,), **terms)
            measured = bench.measure(0)
            table, inserts = connection.table("sharded_2"), sharded.WARM_UPS + 6 + 6
            wait_for(lambda: table.scan(level="eventual").count() == sharded.ROWS * inserts, "all rows are shown")
            assert {f"added_{shards}_ms" for shards in (1, 3)} < set(measured)
            assert {"inserts_per_s_2_of_1", "inserts_per_s_2_of_all", "cost_2_of_1", "cost_plain"} < set(measured)
            assert {"zk_commit_3_ms", "growth_1_in_3_ms", "growth_3_in_3_cost"} < set(measured)
            # What the cluster does at rest is subtracted, and may be more than that of two inserts.
            assert all(value > 0 for key, value in measured.items() if not key.startswith(("added", "growth")))
            assert all(measured[f"growth_{touched}_in_3_ms"] > 0 for touched in (1, 3))
            # An insert takes its commit at least, and each shard that it touches is read by two replicas.
            assert measured["zk_requests_joint_3"] > measured["zk_requests_joint_1"] >= 1
            with pytest.raises(ReplitreeError, match="into 1 shards"):
                bench.insert(connection.table("sharded_3"), make_rows(10**9, sharded.ROWS), 1)
    finally:
        cluster.close()


@pytest.mark.slow
def test_reads_at_cuts_are_measured_beside_those_of_one_table(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, REPLICAS)
    try:
        with cluster.connect() as connection:
            measured = sharded.CutBench(connection, reads=3).measure(0)
            assert {"single_linearizable_ms", "ratio_4_linearizable"} < set(measured)
            assert {f"cut_4_{level}_ms" for level in CUT_LEVELS} < set(measured)
            # One question for all shards, and the write to the clock: what replicas ask meanwhile is counted, too.
            assert measured["zk_requests_cut_4_consistent"] >= 1
            assert measured["zk_requests_cut_4_linearizable"] >= 2
    finally:
        cluster.close()
