"""What the benchmark of reading in an object store measures is what it says."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session.session import spark_session
from replitree_bench.store.read import SOURCE_QUERIES, STORE_QUERIES, StoreReadBench
from replitree_bench.table import read
from replitree_bench.table.read import rows_of

PARTS, PART_ROWS = 2, 500


def test_rows_of_two_parts_have_no_key_in_common() -> None:
    first, second = rows_of(0, 10), rows_of(1, 10)
    assert first["k"].to_pylist() + second["k"].to_pylist() == list(range(20))
    assert first.schema == second.schema
    assert first["d"][0] != second["d"][0]


@pytest.mark.system
def test_both_tables_are_read_by_every_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings.simplefilter("ignore", ResourceWarning)  # Spark leaves its gateway's sockets to the end of the process
    monkeypatch.setattr(read, "WARM_UPS", 0)
    monkeypatch.setattr(read, "TIMES", 1)
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        spark = spark_session(master="local[2]", conf={"spark.driver.memory": "1g"})
        try:
            bench = StoreReadBench(spark, cluster, f"file://{tmp_path}/objects", PARTS, PART_ROWS)
            ours, local = bench.measure(0)
            stored = bench._direct(bench._stored).inputFiles()  # noqa: SLF001 - what was measured
            opened = bench.opened()
        finally:
            spark.stop()
    expected = {"rows", "parts", "bytes", *STORE_QUERIES, *(f"source_{name}" for name in SOURCE_QUERIES)}
    assert set(ours) == set(local) == expected
    assert (ours["rows"], ours["parts"]) == (local["rows"], local["parts"]) == (PARTS * PART_ROWS, PARTS)
    assert all(f"{tmp_path}/objects/" in file for file in stored)
    assert opened == "file"
