"""DuckDB, Polars and pandas have the rows that Arrow has, of every type, whichever way leads to the files."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replitree.client.read import native
from replitree.client.read.native import native_paths
from replitree.client.table import Table
from replitree.errors import CorruptPart, EngineMissing, LeaseLost
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Set
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.sql.evolve import AddColumn, Alter, RenameColumn, apply_alter
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure
from tests.client.test_scan import leased, requests
from tests.client.test_snapshot import make, serve
from tests.examples import examples
from tests.storage.support import EVERY_TYPE, values
from tests.waiting import wait_for

__all__ = ["leased"]

Read = Callable[[Any], pa.Table]


def by_duckdb(scan: Any) -> pa.Table:
    return scan.to_duckdb(duckdb.connect()).to_arrow_table()


def by_a_view(scan: Any) -> pa.Table:
    con = duckdb.connect()
    scan.to_duckdb(con, "a view")
    return con.sql('SELECT * FROM "a view"').to_arrow_table()


def by_stream(scan: Any) -> pa.Table:
    return duckdb.connect().sql("SELECT * FROM scan").to_arrow_table()


WAYS: dict[str, Read] = {
    "duckdb": by_duckdb,
    "duckdb's view": by_a_view,
    "duckdb's own scan": by_stream,
    "polars": lambda scan: scan.to_polars().to_arrow(),
    "lazy polars": lambda scan: scan.to_polars(lazy=True).collect().to_arrow(),
    "polars' own scan": lambda scan: pl.DataFrame(scan).to_arrow(),
}


def shown(found: pa.Table, schema: pa.Schema) -> list[str]:
    """Rows as text, which NaN equals; engines have other string types and other order of rows."""
    return sorted(map(str, found.cast(schema).to_pylist()))


def fill(cluster: FakeCluster, folder: Path, rows: list[list[dict[str, Any]]], order_by: str = "i64") -> Table:
    """A table of every type, with a part for each list of rows."""
    name = f"e{len(cluster.replicas)}_{folder.name}"
    cluster.create(name, EVERY_TYPE, order_by=order_by)
    replica = cluster.add_replica(name, "r1")
    table = cluster.connect().table(name)
    parts = []
    for number, some in enumerate(rows):
        (manifest,) = stage_table(conform(some, table.definition), table.definition, folder / str(number), sync=False)
        parts.append((f"all_{number}_{number}_0", folder / str(number) / "all", manifest))
    serve(replica, parts, index=len(parts))
    return table


ROWS: list[dict[str, Any]] = [
    {"b": True, "i8": 1, "i64": 5, "f": float("nan"), "x": float("inf"), "s": "é", "y": b"\x00", "l": ["a", None]},
    {"i64": None, "x": -0.0, "s": "", "l": [], "r": {"a": None, "b": []}, "p": [("k", None)]},
    {},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", [None, "i64 >= 0", "i64 % 2 = 1"], ids=["files", "dataset", "stream"])
def test_engines_show_every_type_as_arrow_does(
    cluster: FakeCluster, tmp_path: Path, way: str, where: str | None
) -> None:
    table = fill(cluster, tmp_path, [ROWS, [{"i64": 7}]])
    scan = table.scan(where=where)
    expected = scan.to_arrow()
    assert expected.num_rows == (4 if where is None else 2)
    assert shown(WAYS[way](scan), expected.schema) == shown(expected, expected.schema)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_engines_agree_on_random_rows(cluster: FakeCluster, tmp_path_factory: Any, data: st.DataObject) -> None:
    columns = {
        "i64": pa.int64(),
        "x": pa.float64(),
        "s": pa.string(),
        "m": pa.decimal128(12, 2),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
    }
    rows = st.lists(
        st.fixed_dictionaries({name: values(arrow) for name, arrow in columns.items()}), min_size=1, max_size=4
    )
    order = data.draw(st.sampled_from(sorted(columns)))
    table = fill(cluster, tmp_path_factory.mktemp("rows"), data.draw(st.lists(rows, min_size=1, max_size=3)), order)
    where = data.draw(
        st.sampled_from([None, "i64 > 3", "x >= 1", "s <> 'a' or s is null", "m < 5", "t > '2000-01-01'", "x % 2 > 0"])
    )
    names = data.draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, unique=True))
    scan = table.scan(names, where)
    expected = scan.to_arrow()
    for name, way in WAYS.items():
        assert shown(way(scan), expected.schema) == shown(expected, expected.schema), name
    assert scan.count() == len(scan.to_pandas()) == expected.num_rows


def test_engines_filter_and_project_by_themselves(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    for where in (None, "k >= 0", "k + 0 >= 0"):
        scan = table.scan(where=where)
        relation = scan.to_duckdb(duckdb.connect())
        assert relation.filter("k BETWEEN 8 AND 11").project("s").order("s").fetchall() == [
            ("s10",),
            ("s11",),
            ("s8",),
            ("s9",),
        ]
        lazy = scan.to_polars(lazy=True)
        assert isinstance(lazy, pl.LazyFrame)
        assert lazy.filter(pl.col("k").is_between(8, 11)).select("s").sort("s").collect().rows() == [
            ("s10",),
            ("s11",),
            ("s8",),
            ("s9",),
        ]
        assert lazy.head(3).collect().height == 3
        assert lazy.select(pl.len()).collect().item() == 30
        assert lazy.filter(pl.col("k") > 99).collect().columns == ["k", "s", "test"]


def test_pandas_takes_options_of_arrow(cluster: FakeCluster, tmp_path: Path) -> None:
    scan = make(cluster, tmp_path).scan(["k"], "k < 3")
    assert list(scan.to_pandas()["k"]) == [0, 1, 2]
    assert scan.to_pandas(types_mapper=pd.ArrowDtype)["k"].dtype == pd.ArrowDtype(pa.int64())


def test_final_scans_are_streams_that_are_read_anew(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("f", "k bigint, v bigint", order_by="k", policy="replacing(v)")
    replica = cluster.add_replica("f", "r1")
    table = cluster.connect().table("f")
    parts = []
    for number in range(2):
        rows = pa.table({"k": range(5), "v": [number] * 5}, schema=table.schema)
        (manifest,) = stage_table(rows, table.definition, tmp_path / str(number), sync=False)
        parts.append((f"all_{number}_{number}_0", tmp_path / str(number) / "all", manifest))
    serve(replica, parts)
    con = duckdb.connect()
    table.scan(final=True).to_duckdb(con, "f")
    for _ in range(2):
        assert con.sql("SELECT count(*), sum(v) FROM f").fetchall() == [(5, 5)]
    assert table.scan(final=True).to_polars(lazy=True).collect().height == 5


# --- what an engine may read by itself --------------------------------------------------------------------------------------


def test_only_plain_files_of_this_machine_are_read_by_the_engine(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(cluster, tmp_path)
    snapshot = table.snapshot()
    paths = native_paths(snapshot, ["k"])
    assert paths == snapshot.files()
    assert table.scan().to_polars(lazy=True).explain().count("Parquet SCAN") == 1
    monkeypatch.setattr(native, "BYTES_MAX", 10)
    assert native_paths(snapshot, ["k"]) is None
    monkeypatch.undo()
    change = apply_alter(table.definition, Alter((AddColumn("n", "int", default=7), RenameColumn("s", "text"))))
    cluster.commit(Set(layout.columns(cluster.catalog.place("t")), change.encode_columns(), 0))
    cluster.replicas["r1"].snapshot |= {"schema_version": 2}
    altered = table.snapshot()
    assert native_paths(altered, ["k", "test"]) == paths
    assert native_paths(altered, ["n"]) is None
    assert native_paths(altered, ["text"]) is None
    assert by_a_view(altered.scan(["n", "text"])).num_rows == 30


def test_files_elsewhere_are_brought_when_they_are_read(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path, machine="elsewhere")
    assert native_paths(table.snapshot(), ["k"]) is None
    relation = table.scan().to_duckdb(duckdb.connect())
    assert not [seen for seen in cluster.replicas["r1"].seen if "/files/" in seen.path]
    assert relation.filter("k = 12").fetchall()[0][0] == 12
    assert {seen.path.split("/")[5] for seen in cluster.replicas["r1"].seen if "/files/" in seen.path} == {"all_1_1_0"}


def test_paths_that_engines_take_for_patterns_are_not_given_to_them(cluster: FakeCluster, tmp_path: Path) -> None:
    folder = tmp_path / "a[b]*"
    folder.mkdir()
    table = make(cluster, folder)
    assert native_paths(table.snapshot(), ["k"]) is None
    assert by_duckdb(table.scan()).num_rows == table.scan().to_polars(lazy=True).collect().height == 30


def test_a_file_is_compared_again_when_it_has_changed(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    assert native_paths(table.snapshot(), ["k"]) is not None
    file = tmp_path / "all_1_1_0" / "data-0.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    replica = cluster.replicas["r1"]
    copies = dict(replica.files)
    replica.files.clear()
    with pytest.raises(CorruptPart, match="all_1_1_0"):
        table.scan().to_duckdb(duckdb.connect())
    replica.files.update(copies)
    assert by_duckdb(table.scan()).num_rows == 30


def test_duckdb_ends_with_an_error_when_a_file_is_damaged_while_it_reads(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    file = tmp_path / "all_1_1_0" / "data-0.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    cluster.replicas["r1"].files.clear()
    relation = table.scan(where="k >= 0").to_duckdb(duckdb.connect())
    with pytest.raises(duckdb.Error, match="all_1_1_0"):
        relation.fetchall()
    file.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(duckdb.Error, match=r"part all_1_1_0 of table t is gone|take a new snapshot"):
        relation.fetchall()


# --- leases -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [None, "k >= 0", "k + 0 >= 0"], ids=["files", "dataset", "stream"])
def test_a_view_or_frame_keeps_its_files_until_it_is_dropped(
    cluster: FakeCluster, leased: Table, where: str | None
) -> None:
    con = duckdb.connect()
    leased.scan(where=where).to_duckdb(con, "v")
    relation = leased.scan(where=where).to_duckdb(con).filter("k > 5")
    lazy = leased.scan(where=where).to_polars(lazy=True).filter(pl.col("k") > 5)
    gc.collect()
    renewed = requests(cluster, "POST")
    wait_for(lambda: requests(cluster, "POST") >= renewed + 12, "all three are renewed for longer than they last")
    assert requests(cluster, "DELETE") == 0
    assert con.sql("SELECT count(*) FROM v").fetchall() == [(30,)]
    assert len(relation.fetchall()) == lazy.collect().height == 24
    del lazy
    gc.collect()
    wait_for(lambda: requests(cluster, "DELETE") == 1)
    del relation
    gc.collect()
    wait_for(lambda: requests(cluster, "DELETE") == 2)
    con.close()
    del con
    gc.collect()
    wait_for(lambda: requests(cluster, "DELETE") == 3)


def test_an_engine_hears_of_a_lost_lease(cluster: FakeCluster, leased: Table) -> None:
    snapshot = leased.snapshot(lease_s=0.3)
    dataset, lazy = snapshot.dataset(), snapshot.scan(where="k + 0 > 3").to_polars(lazy=True)
    con = duckdb.connect()
    con.register("v", dataset)
    files: Any = snapshot.scan().to_duckdb(con)
    frame = snapshot.scan().to_polars(lazy=True)
    cluster.replicas["r1"].answers["POST leases/abc"] = Failure(410, "LeaseLost", "it expired")
    wait_for(lambda: snapshot.lease is not None and snapshot.lease.is_lost)
    with pytest.raises(duckdb.Error, match="take a new snapshot"):
        con.sql("SELECT sum(k) FROM v").fetchall()
    with pytest.raises(duckdb.Error, match="take a new snapshot"):
        files.fetchall()
    with pytest.raises((pl.exceptions.ComputeError, LeaseLost), match="take a new snapshot"):
        frame.collect()
    with pytest.raises((pl.exceptions.ComputeError, LeaseLost), match="take a new snapshot"):
        lazy.collect()


# --- engines that are not there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", ["duckdb", "pandas", "polars"])
def test_a_missing_engine_is_named_with_its_extra(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    scan = make(cluster, tmp_path).scan()
    uses: dict[str, Callable[[], object]] = {
        "duckdb": lambda: scan.to_duckdb(duckdb.connect()),
        "pandas": scan.to_pandas,
        "polars": lambda: scan.to_polars(lazy=True),
    }
    monkeypatch.delitem(sys.modules, extra)
    monkeypatch.setattr(sys, "meta_path", [_Without(extra), *sys.meta_path])
    with pytest.raises(EngineMissing, match=rf"pip install 'replitree\[{extra}\]'"):
        uses[extra]()
    monkeypatch.undo()
    assert importlib.import_module(extra) is not None


class _Without:
    """Finds no module of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, *_: object) -> None:
        if name == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
