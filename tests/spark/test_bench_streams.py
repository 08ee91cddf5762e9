"""What the benchmark of streams measures is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from replitree.client.cluster import LocalCluster
from replitree_bench.table import streams
from replitree_bench.table.streams import StreamBench

pytestmark = [pytest.mark.system, pytest.mark.nightly]


def test_every_way_is_measured_with_all_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WARM_UPS", 1), ("SEEN", 2), ("IDLE_S", 0.5), ("REST_S", 0.5)):
        monkeypatch.setattr(streams, name, value)
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        ours, theirs = StreamBench(cluster, spark, tmp_path, 2, 20, 2, 40).measure(0)
    both = {"trigger_ms", "trigger_driver_ms", "sink_ms", "sink_driver_ms", "source_rows_per_s", "idle_requests_per_s"}
    assert set(theirs) == both
    assert set(ours) == {*both, "seen_p50_ms", "rows"}
    assert all(ours[name] > 0 for name in both - {"idle_requests_per_s"})
