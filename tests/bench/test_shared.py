"""What the benchmark of tables on an object store measures is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree_bench.store.shared import REPLICAS, SETTINGS, SharedBench


@pytest.mark.system
def test_a_fetch_reads_a_manifest_and_no_rows_and_a_merge_leaves_one_copy(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", REPLICAS, durable=False, settings=SETTINGS) as cluster:
        bench = SharedBench(cluster, f"file://{tmp_path}/objects", tmp_path, 4 << 20)
        filled, measured = bench.fill(), bench.measure()
        bench.merge()
        assert bench.copies(1.05) < 1.05
    assert 0 < measured["fetch_bytes"] < 10_000
    assert filled["part_bytes"] > 4_000_000
    assert list(tmp_path.glob("fetched-*")) == []
