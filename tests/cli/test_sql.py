"""`replitree sql` before Spark is started: which tables a query names, and what is answered without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import replitree.client
from replitree.cli.tables import sql
from replitree.cli.tables.query_tables import named_tables, unknown_table
from replitree.errors import BadInput
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster

URL = ("--url", "zk://nowhere:1/replitree")
KNOWN = ("events", "orders", "users")


@pytest.mark.parametrize(
    ("statement", "named", "unknown"),
    [
        ("select 1", (), None),
        ("select count(*) from Events", ("events",), None),
        ("select * from events e join `orders` o on e.k = o.k", ("events", "orders"), None),
        ("select events from users", ("users",), None),
        ("select 'events' from users -- orders", ("users",), None),
        (
            "with c as (select * from users) select * from c where k in (select k from orders)",
            ("orders", "users"),
            None,
        ),
        ("with users as (select * from users) select * from users", ("users",), None),
        ("with recursive r as (select 1 union all select * from r) select * from r", (), None),
        ("explain select * from orders", ("orders",), None),
        ("explain extended select * from evnts", (), "evnts"),
        ("describe orders", ("orders",), None),
        ("desc extended ordrs", (), "ordrs"),
        ("table users", ("users",), None),
        ("select * from evnts", (), "evnts"),
        ("select * from users, evnts", ("users",), "evnts"),
        ("select * from range(10)", (), None),
        ("select * from parquet.`/users/x`", (), None),
        ("select * from other.place.users", (), None),
        ("from users |> where k = 1 |> select k", ("users",), None),
        ("select * from users lateral view explode(a) x as y", ("users",), None),
        ("show columns from users", ("users",), None),
        ("describe function upper", (), None),
        ("select * from identifier('us' || 'ers'), identifier('orders')", ("orders",), None),
        ("selct * frm users", ("users",), None),
        ("select 1; select * from users", ("users",), None),
        ("select (((", (), None),
    ],
)
def test_tables_of_a_query_are_known_before_spark_starts(
    statement: str, named: tuple[str, ...], unknown: str | None
) -> None:
    assert named_tables(statement, KNOWN) == named
    assert unknown_table(statement, KNOWN) == unknown


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Make a table that no replica serves, and one that can be read."""
    found = FakeCluster(tmp_path / "cluster")
    found.create("broken", "k bigint", storage="s3://lake/t?endpoint=http://127.0.0.1:1")
    found.create("sound", "k bigint")
    found.add_replica("sound", "r1")
    monkeypatch.setattr(replitree.client, "connect", lambda _: found.connect())
    yield found
    found.close()


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Note which tables Spark would get, and start no Spark."""
    import replitree.spark.read.views
    import replitree.spark.session.session

    asked: list[tuple[str, ...]] = []

    def sql_views(spark: Any, connection: Any, tables: tuple[str, ...], **_: Any) -> tuple[str, ...]:
        asked.append(tables)
        return tables

    frame = SimpleNamespace(columns=["n"], take=lambda _: [(1,)])
    spark = SimpleNamespace(
        sparkContext=SimpleNamespace(setLogLevel=lambda _: None), sql=lambda _: frame, stop=lambda: None
    )
    monkeypatch.setattr(replitree.spark.session.session, "spark_session", lambda **_: spark)
    monkeypatch.setattr(replitree.spark.read.views, "sql_views", sql_views)
    monkeypatch.setattr("replitree.spark.session.quiet.quiet_children", nullcontext)
    return asked


@pytest.mark.usefixtures("cluster")
def test_query_of_a_table_asks_for_no_other(run: Run, views: list[tuple[str, ...]]) -> None:
    assert run("sql", "select count(*) from sound", *URL).status == 0
    assert views == [("sound",)]
    assert run("sql", "select 1", *URL).status == 0
    assert views == [("sound",), ()]


@pytest.mark.usefixtures("cluster")
def test_unknown_table_is_answered_without_spark(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.spark.session.session.spark_session", lambda **_: pytest.fail("Spark was started"))
    ran = run("sql", "select count(*) from snd", *URL)
    assert (ran.status, ran.err) == (2, "replitree: there is no table snd. The tables are broken, sound\n")


@pytest.mark.usefixtures("cluster")
def test_show_tables_is_answered_without_spark(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.spark.session.session.spark_session", lambda **_: pytest.fail("Spark was started"))
    assert "sound" in run("sql", "SHOW TABLES;", *URL).out
    assert run("sql", "show tables", *URL, "--json").json["rows"] == [{"tableName": "broken"}, {"tableName": "sound"}]
    assert run("sql", "show tables", "--output", "csv", *URL).out == "tableName\nbroken\nsound\n"


def test_time_is_taken_where_an_exact_state_is_asked_for() -> None:
    time = "2026-11-27T03:00:00+01:00"
    assert sql.by_table([f"users={time}"], "--as-of", KNOWN) == {"users": time}
    with pytest.raises(BadInput, match="a table and an index of its log"):
        sql.by_table([f"users={time}"], "--min-index", KNOWN)
    with pytest.raises(BadInput, match="a table and an index of its log"):
        sql.by_table(["users=yesterday"], "--as-of", KNOWN)


def test_index_without_a_table_means_the_only_one_that_the_query_names() -> None:
    assert sql.by_table(["41"], "--as-of", KNOWN, ("users",)) == {"users": 41}
    with pytest.raises(BadInput, match="say of which table"):
        sql.by_table(["41"], "--as-of", KNOWN, ("users", "orders"))


@pytest.mark.usefixtures("cluster")
def test_rows_with_many_columns_are_shown_one_line_for_each_column(
    run: Run, views: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import replitree.spark.session.session

    columns = [f"column_{number}_of_many" for number in range(16)]
    frame = SimpleNamespace(columns=columns, take=lambda _: [tuple(range(16))])
    spark: Mapping[str, Any] = vars(replitree.spark.session.session.spark_session())
    monkeypatch.setattr(
        replitree.spark.session.session,
        "spark_session",
        lambda **_: SimpleNamespace(**{**spark, "sql": lambda _: frame}),
    )
    out = run("sql", "select * from sound", *URL).out
    assert out.splitlines()[:2] == ["row 1", "  column_0_of_many   0"]
    assert run("sql", "select * from sound", "--output", "vertical", *URL).out == out
    assert len(views) == 2


def test_reading_the_tables_of_a_long_query_takes_no_time() -> None:
    begin = time.process_time()
    assert named_tables(f"select * from users where k in ({', '.join(map(str, range(2000)))})", KNOWN) == ("users",)
    assert time.process_time() - begin < 5
