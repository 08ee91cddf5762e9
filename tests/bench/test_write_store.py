"""What the benchmark of writing into an object store measures is what it says."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session.session import spark_session
from replitree_bench.store.write import StoreWriteBench

ROWS, MERGED_JOBS = 20_000, 2


@pytest.mark.system
def test_both_ways_write_all_rows_and_one_goes_through_a_replica(tmp_path: Path) -> None:
    warnings.simplefilter("ignore", ResourceWarning)  # Spark leaves its gateway's sockets to the end of the process
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        spark = spark_session(master="local[2]", conf={"spark.driver.memory": "1g"})
        try:
            ours, theirs = StoreWriteBench(spark, cluster, f"file://{tmp_path}/objects", ROWS, MERGED_JOBS).measure(0)
        finally:
            spark.stop()
        assert cluster.tables() == ()
    keys = {"rows_per_s", "write_s", "replica_read_bytes", "bytes"}
    assert set(ours) == set(theirs) == keys | {f"insert_{key}" for key in keys} | {"merge_s"}
    for what in ("", "insert_"):
        assert theirs[f"{what}replica_read_bytes"] - ours[f"{what}replica_read_bytes"] > ours[f"{what}bytes"] / 2
