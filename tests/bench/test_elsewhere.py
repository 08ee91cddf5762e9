"""The benchmark of loads by executors that do not see the replicas' disks: all rows arrive, the driver carries few bytes."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree_bench import run as runner
from replitree_bench.table import bulk

ROWS = 30_000


@pytest.mark.system
@pytest.mark.nightly
def test_loads_are_measured_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings.simplefilter("ignore", ResourceWarning)  # Spark leaves its gateway's sockets to the end of the process

    def generate(folder: Path, scale: float) -> Path:
        assert scale == 0.5
        keys = range(ROWS)
        rows = {
            "l_orderkey": [-key for key in keys],
            "l_linenumber": list(keys),
            "l_comment": [f"row {k}" for k in keys],
        }
        pq.write_table(pa.table(rows), folder / "lineitem.parquet")
        return folder / "lineitem.parquet"

    said: list[str] = []
    monkeypatch.setattr(bulk, "generate_lineitem", generate)
    report = runner.run_write_elsewhere(scale=0.5, rounds=1, say=said.append, folder=tmp_path)
    assert report.ours["rows"] == ROWS
    assert set(report.ratio) == {"rows_per_s", "sql_rows_per_s"}
    size = ROWS * len("row 30000")
    assert [0 < report.ours[key] < size / 4 for key in ("driver_bytes", "sql_driver_bytes")] == [True, True]
    assert list(tmp_path.iterdir()) == [], "nothing is left"
    assert said[-1] == "round 1 of 1"
