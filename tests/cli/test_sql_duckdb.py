"""`replitree sql --engine duckdb`: what it answers, what it refuses, and what it reads; neither Spark nor Java starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import replitree.client
from replitree.cli.tables import sql_duckdb
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster, cluster
from tests.client.fake_replica import Failure
from tests.client.test_engines import fill
from tests.client.test_scan import leased, requests
from tests.client.test_snapshot import make, serve

__all__ = ["cluster", "leased"]

URL = ("--url", "zk://nowhere:1/replitree", "--engine", "duckdb")


@pytest.fixture
def connected(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(replitree.client, "connect", lambda _: cluster.connect())
    monkeypatch.setattr("replitree.spark.session.session.spark_session", lambda **_: pytest.fail("Spark was started"))
    return cluster


def test_queries_are_answered_without_spark(connected: FakeCluster, run: Run, tmp_path: Path) -> None:
    make(connected, tmp_path)
    query = "select k % 2 odd, count(*) n, min(s) s from t where k >= 8 group by all order by all"
    ran = run("sql", query, "--output", "csv", *URL)
    assert (ran.status, ran.out, ran.err) == (0, "odd,n,s\n0,11,s10\n1,11,s11\n", "")
    joined = "with a as (select k from t where k < 3) select count(*) n from a join t b using (k) join t c using (k)"
    assert run("sql", joined, "--output", "json", *URL).out == '{"n":3}\n'
    assert "k < 3" in run("sql", "explain select count(*) from t where k < 3", *URL).out
    assert run("sql", "describe t", "--json", *URL).json["rows"][0]["column_name"] == "k"
    assert run("sql", "select 1 a, 2 a", "--json", *URL).json["rows"] == [{"a": 1, "a_2": 2}]


def test_every_type_is_printed(connected: FakeCluster, run: Run, tmp_path: Path) -> None:
    table = fill(connected, tmp_path, [[{"i64": 5, "m": 1, "y": b"\x00", "l": ["a", None], "p": [("k", None)]}, {}]])
    for output in ("json", "csv", "table", "vertical"):
        ran = run("sql", f"select * from {table.name}", "--output", output, *URL)
        assert (ran.status, ran.err) == (0, "")
    found = run("sql", f"select * from {table.name} order by i64 nulls last", "--json", *URL).json
    assert len(found["rows"]) == 2
    assert {column["name"]: column["type"] for column in found["columns"]}["i64"] == "bigint"
    assert (found["rows"][0]["y"], found["rows"][0]["l"], found["rows"][1]["i64"]) == ("AA==", ["a", None], None)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from evnts", "there is no table evnts. The tables are t"),
        ("select * from t join evnts using (k)", "there is no table evnts. The tables are t"),
        ("select nope from t", 'Referenced column "nope" not found'),
        ("select k frm t u where", 'DuckDB can\'t read this query: Parser Error: syntax error at or near "t"'),
        ("select 1; select 2", "give one statement at a time"),
        ("with a as (select 1 k) insert into t select * from a", "INSERT is not a statement for DuckDB here"),
        ("insert into t values (1)", "`replitree insert TABLE FILE` inserts rows"),
        ("create table x as select 1", "`replitree table create` makes a table"),
        ("select k from t where s = 1 / 0 + 'a'", "DuckDB can't answer this query"),
    ],
)
def test_wrong_queries_say_what_is_wrong(
    connected: FakeCluster, run: Run, tmp_path: Path, query: str, message: str
) -> None:
    make(connected, tmp_path)
    ran = run("sql", query, *URL)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_a_query_asks_only_for_the_tables_that_it_reads(connected: FakeCluster, run: Run, tmp_path: Path) -> None:
    make(connected, tmp_path)
    connected.create("broken", "k bigint")
    connected.add_replica("broken", "r2").answers["GET tables/broken/snapshot"] = Failure(500, "Unavailable", "broken")
    ran = run("sql", "select 'broken' b, count(*) n from t -- broken", "--output", "csv", *URL)
    assert ran.out == "b,n\nbroken,30\n"
    assert not connected.replicas["r2"].seen


def test_level_and_index_go_to_the_replica(connected: FakeCluster, run: Run, tmp_path: Path) -> None:
    make(connected, tmp_path)
    replica = connected.replicas["r1"]
    replica.snapshot = {**replica.snapshot, "level": "linearizable"}
    for option in (("--level", "linearizable"), ("--as-of", "t=2"), ("--min-index", "1")):
        assert run("sql", "select count(*) n from t", *option, "--output", "csv", *URL).out == "n\n30\n"
    asked = [seen.query for seen in replica.seen if seen.path.endswith("/snapshot")]
    assert asked[0]["level"] == "linearizable"
    assert any(query.get("as_of") == "2" for query in asked)
    assert any(query.get("min_index") == "2" for query in asked)


def test_files_elsewhere_are_read_through_a_replica(connected: FakeCluster, run: Run, tmp_path: Path) -> None:
    make(connected, tmp_path, machine="elsewhere")
    assert run("sql", "select s from t where k = 12", "--output", "csv", *URL).out == "s\ns12\n"
    brought = {seen.path.split("/")[5] for seen in connected.replicas["r1"].seen if "/files/" in seen.path}
    assert brought == {"all_1_1_0"}


def test_the_lease_ends_with_the_query(connected: FakeCluster, leased: object, run: Run) -> None:
    assert run("sql", "select count(*) n from t", "--output", "csv", *URL).out == "n\n30\n"
    assert requests(connected, "DELETE") == 1


def test_an_empty_table_has_its_columns(connected: FakeCluster, run: Run) -> None:
    connected.create("empty", "k bigint, s string")
    serve(connected.add_replica("empty", "r1"), [])
    assert run("sql", "select * from empty", "--output", "csv", *URL).out == "k,s\n"


def test_a_missing_duckdb_is_named_with_its_extra(
    connected: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install 'replitree[duckdb]'" in run("sql", "select 1", *URL).err


def test_rows_are_fetched_in_batches(
    connected: FakeCluster, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(connected, tmp_path)
    monkeypatch.setattr(sql_duckdb, "FETCHED_ROWS", 7)
    assert run("sql", "select k from t order by k", "--output", "csv", *URL).out.split() == ["k", *map(str, range(30))]
