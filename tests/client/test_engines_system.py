"""Engines on real replicas: the page of the documentation runs, and what is read stays while the table changes."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from replitree.client.cluster import LocalCluster
from tests.project.source import ROOT
from tests.waiting import wait_for

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.system


def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "docs" / "engines.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 6
    names: dict[str, Any] = {}
    with LocalCluster(tmp_path / "replitree-data", 2, durable=False):
        for block in blocks:
            exec(compile(block, "docs/engines.md", "exec"), names)
        assert names["arrow"].num_rows == len(names["frame"]) == 11
        assert names["files"].schema.names == ["day", "v"]
        names["connection"].close()


@pytest.mark.parametrize("storage", ["local", "store"])
def test_lazy_results_stay_the_same_while_the_table_changes(tmp_path: Path, storage: str) -> None:
    place = f"file://{tmp_path}/objects" if storage == "store" else "local"
    settings = {"old_parts_lifetime_s": 0.5}
    with LocalCluster(tmp_path / "cluster", 2, durable=False, settings=settings) as cluster:
        table = cluster.create_table("t", "k bigint not null, s string", order_by="k", storage=place)
        for first in range(0, 500, 50):
            table.insert({"k": range(first, first + 50), "s": [str(k) for k in range(first, first + 50)]})
        con = duckdb.connect()
        table.scan().to_duckdb(con, "t")
        lazy, dataset = table.scan().to_polars(lazy=True), table.scan().dataset()
        streamed, reader = table.scan(where="k + 0 >= 0").to_polars(lazy=True), table.scan().to_reader()
        expected = (500, sum(range(500)))
        stop = threading.Event()

        def change() -> None:
            first = 500
            while not stop.is_set():
                table.insert({"k": range(first, first + 50), "s": ["new"] * 50})
                table.optimize(final=True)
                table.delete(f"k % 7 = {first // 50 % 7}")
                first += 50

        changing = threading.Thread(target=change)
        changing.start()
        try:
            # Later states, on which no client has a lease: when parts of one are gone, those of the earlier one would be, too.
            wait_for(lambda: table.scan(where="s = 'new'").count() > 0)
            later = set[str]()

            def is_on_a_disk(part: str) -> bool:
                return any((tmp_path / "cluster").glob(f"*/data/tables/*/parts/{part}"))

            def has_a_later_part_left_every_disk() -> bool:
                # The folders are looked at, because a read would fetch a part that only one replica has removed from the other.
                later.update(each.part for each in table.snapshot().parts if is_on_a_disk(each.part))
                return not all(map(is_on_a_disk, later))

            wait_for(has_a_later_part_left_every_disk, "parts without a lease are removed")
            for _ in range(5):
                assert con.sql("SELECT count(*), sum(k) FROM t").fetchall() == [expected]
                assert lazy.select(pl.len(), pl.col("k").sum()).collect().row(0) == expected
                assert streamed.select(pl.len(), pl.col("k").sum()).collect().row(0) == expected
                rows = dataset.to_table(columns=["k"], filter=pc.field("k") >= 0)
                assert (rows.num_rows, pc.sum(rows["k"]).as_py()) == expected
            assert reader.read_all().num_rows == 500
        finally:
            stop.set()
            changing.join()
        assert "new" in table.scan(["s"]).to_arrow()["s"].to_pylist()


def test_every_way_shows_columns_that_were_changed(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        table = cluster.create_table("t", "k int not null, s string, r struct<a: int>", order_by="k")
        table.insert([{"k": 1, "s": "old", "r": {"a": 1}}])
        table.alter("ADD COLUMN n INT DEFAULT 7")
        table.alter("RENAME COLUMN s TO text")
        table.alter("ALTER COLUMN k TYPE BIGINT")
        table.alter("ADD COLUMN r.b STRING")
        table.insert([{"k": 2, "text": "new", "r": {"a": 2, "b": "x"}, "n": 8}])
        scan = table.scan()
        expected = sorted(map(str, scan.to_arrow().to_pylist()))
        assert len(expected) == 2
        con = duckdb.connect()
        found = [
            scan.to_duckdb(con).to_arrow_table(),
            scan.to_polars(lazy=True).collect().to_arrow(),
            scan.dataset().to_table(),
        ]
        for rows in [*found, pa.table(scan)]:
            assert sorted(map(str, rows.cast(scan.schema).to_pylist())) == expected
