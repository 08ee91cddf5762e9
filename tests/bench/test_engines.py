"""What the benchmark of other engines measures is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree_bench.table import engines
from replitree_bench.table.engines import EngineBench, compare

PARTS, PART_ROWS = 2, 2_000


@pytest.mark.system
def test_every_engine_is_measured_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "WARM_UPS", 0)
    monkeypatch.setattr(engines, "TIMES", 1)
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        ours, theirs = EngineBench(cluster, PARTS, PART_ROWS).measure(0)
    queries = {
        "duckdb_filter_s",
        "duckdb_range_s",
        "duckdb_dataset_s",
        "polars_filter_s",
        "polars_range_s",
        "polars_dataset_s",
        "pandas_filter_s",
        "pandas_fresh_s",
        "duckdb_arrow_s",
        "polars_arrow_s",
        "arrow_in_duckdb_s",
        "arrow_in_polars_s",
    }
    assert set(ours) - set(theirs) == {"first_s", "again_s"}
    assert set(theirs) == {"rows", "files", *queries}
    assert (ours["rows"], ours["files"]) == (PARTS * PART_ROWS, PARTS)


def test_different_answers_are_no_measurement() -> None:
    with pytest.raises(AssertionError):
        compare(lambda: (1, 2.0), lambda: (2, 2.0))
