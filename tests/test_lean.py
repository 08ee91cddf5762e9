"""Processes that run only our code load no pandas, where it is installed, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster

CONVERTS = "import sys, pyarrow, pyarrow.dataset; pyarrow.array([1]); print('pandas' in sys.modules)"


def said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_pyarrow_loads_pandas_where_it_finds_it_and_works_where_it_does_not() -> None:
    assert said(CONVERTS) == "True", "the installed pyarrow needs no replitree.lean any more"
    assert said(f"from replitree.lean import leave_out_pandas; leave_out_pandas(); {CONVERTS}") == "False"


def test_a_program_that_uses_replitree_finds_pandas() -> None:
    assert said("import replitree, replitree.client, pandas; print(pandas.Series([1]).sum())") == "1"


@pytest.mark.system
def test_a_replica_that_has_inserted_changed_and_shown_rows_has_no_pandas(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, durable=False) as cluster:
        table = cluster.create_table("t", "k bigint not null, s string", order_by="k")
        table.insert(pa.table({"k": [1, 2], "s": ["a", None]}))
        table.update({"s": "'b'"}, "k = 1")
        assert table.to_arrow(where="s = 'b'").num_rows == 1
        (replica,) = cluster.processes
        maps = Path(f"/proc/{replica.pid}/maps").read_text()
        assert "pyarrow" in maps
        assert "pandas" not in maps
