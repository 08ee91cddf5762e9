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
from replitree.cli.tables.query_tables import named_tables, syntax_problem, unknown_column, unknown_table
from replitree.errors import BadInput
from replitree.storage.schema.definition import define_table
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
    with pytest.raises(BadInput, match="--as-of users=12th: '12th' is no time and no tag"):
        sql.by_table(["users=12th"], "--as-of", KNOWN)
    assert sql.by_table(["users=before-load"], "--as-of", KNOWN) == {"users": "before-load"}
    with pytest.raises(BadInput, match="a table and an index of its log"):
        sql.by_table(["users=before-load"], "--min-index", KNOWN)


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


# --- queries that are wrong, before Spark is started --------------------------------------------------------------------------

DEFINITIONS = {
    "events": define_table(
        "events",
        "id bigint not null, ts timestamp, kind string, amount decimal(10,2), r struct<a: int, b: struct<c: int>>,"
        " l array<int>, m map<string, int>",
        order_by="id",
    ),
    "users": define_table("users", "id bigint, name string", order_by="id"),
}

RIGHT = """
select kind, count(*) n from events group by kind having n > 1 order by n
select e.id, u.name from events e join users u on e.id = u.id where u.Name = 'x'
select r.a, r.b.c, e.r.b.c, l[0], m['x'] from events e
select id as x, x + 1 as y from events
with c as (select id as z from events) select z, c.z from c
with c(z) as (select id from events) select z from c
select t.q from (select id q from events) t
select q from (select id from events) t(q)
select q from events as t(q, b, c, d, e, f, g)
select transform(l, x -> x + id) from events
select aggregate(l, 0, (acc, x) -> acc + x) from events
select explode(l) from events
select col from (select explode(l) from events)
select x from events lateral view explode(l) t as x
select dateadd(day, 1, ts), datediff(day, ts, ts), date_add(ts, 1), timestampadd(MONTH, 1, ts) from events
select extract(year from ts), date_part('year', ts), trunc(ts, 'MM') from events
select timestampdiff(MONTH, ts, ts), datediff(HOUR, ts, ts), date_diff(DAY, ts, ts) from events
select current_date, current_timestamp, current_user, user, localtimestamp from events
select interval 1 day + ts, ts - interval '1' hour from events
select * except (id) from events
select kind from events group by all order by all
select id, row_number() over (partition by kind order by ts) rn from events qualify rn = 1
select id, row_number() over w rn from events window w as (partition by kind order by ts)
select * from events where id in (select id from users where name = events.kind)
select * from events where exists (select 1 from users u where u.id = events.id)
select _metadata.file_path from events
select kind, sum(amount) from events group by rollup(kind) order by grouping__id
select count(1) from (select `count(1)` from (select count(1) from events))
select `sum(amount)` from (select sum(amount) from events)
select id from events pivot (sum(amount) for kind in ('a','b'))
select * from events tablesample (10 rows)
select a.id from events a natural join users b
select id from events union select id from users order by id
select /*+ broadcast(u) */ e.id from events e, users u
select named_struct('a', id).a from events
select s.a from (select named_struct('a', id) s from events)
select inline(array(struct(id, kind))) from events
select stack(2, id, id) from events
select json_tuple('{}', 'a') from events
select kind, id from events sort by id
select id from events distribute by kind sort by ts
from events |> where id = 1 |> extend id + 1 as z |> select z
select percentile_approx(amount, 0.5) within group (order by id) from events
select mode() within group (order by kind) from events
select first(kind) ignore nulls, count_if(id > 1), any_value(kind) from events
select try_cast(kind as int), cast(id as string), id::string from events
select case kind when 'a' then 1 end c, if(id > 1, kind, null) from events
select max_by(kind, id), collect_list(kind) filter (where id > 1) from events
select events.id, EVENTS.`kind` from events
select id from events where kind like 'a%' escape '!' and kind rlike 'x'
select map_filter(m, (k, v) -> v > id), posexplode(l) from events
select cube.k from (select kind k from events) cube
select id from events limit 1 offset 2
select x.key, x.value from (select explode(m) from events) x
select pos, col from (select posexplode(l) from events)
values (1), (2)
select window.start from (select window(ts, '1 hour') from events)
select window.start, count(*) from events group by window(ts, '1 hour')
select r.* from events
select unix_date(date'2020-01-01'), make_interval(years => 1) from events
with recursive q(n) as (select 1 union all select n+1 from q where n < 3) select n, id from q, events
select col1 from values (1) union all select id from events
select e.* from events e left anti join users u using (id)
select id from events e where (id, kind) in (select id, name from users)
select sum(id) over (order by ts rows between unbounded preceding and current row) from events
select kind as k from events group by k
select struct(id, kind).id from events
select array(1,2)[id] from events
""".strip().splitlines()
"""Queries that Spark answers, each with names that come from elsewhere than a table's columns."""


@pytest.mark.parametrize("query", RIGHT)
def test_a_right_query_is_not_refused_before_spark_is_started(query: str) -> None:
    named = named_tables(query, DEFINITIONS)
    assert unknown_column(query, {name: DEFINITIONS[name] for name in named}) is None
    assert syntax_problem(query) is None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nope from events", "table events has no column 'nope'; it has id, ts"),
        ("select e.nme from users e", "table users has no column 'nme'; did you mean 'name'?"),
        ("select count(*) from events where knd = 'a'", "table events has no column 'knd'; did you mean 'kind'?"),
        ("select id from events order by tms", "table events has no column 'tms'; did you mean 'ts'?"),
        ("select sum(amont) from events group by kind", "table events has no column 'amont'; did you mean 'amount'?"),
        ("select u.nam from events e join users u on e.id = u.id", "table users has no column 'nam'"),
        ("select nam from events e join users u on e.id = u.id", "no column 'nam' is in events or users"),
        ("with c as (select idd from events) select * from c", "table events has no column 'idd'"),
        ("explain select nope from events", "table events has no column 'nope'"),
    ],
)
def test_an_unknown_column_is_named_before_spark_is_started(query: str, message: str) -> None:
    named = named_tables(query, DEFINITIONS)
    assert (unknown_column(query, {name: DEFINITIONS[name] for name in named}) or "").startswith(message)


@pytest.mark.usefixtures("cluster")
def test_a_wrong_query_is_answered_without_spark(
    run: Run, views: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run("sql", "select k frm sound s where k = 1", "--unchecked", *URL)
    assert (ran.status, views) == (0, [("sound",)])
    monkeypatch.setattr("replitree.spark.session.session.spark_session", lambda **_: pytest.fail("Spark was started"))
    ran = run("sql", "select k frm sound s where k = 1", *URL)
    assert ran.status == 2
    assert ran.err.startswith("replitree: the query can't be read: ")
    assert "--unchecked" in ran.err
    assert "sqlglot" not in ran.err
    ran = run("sql", "select kk from sound", *URL)
    assert (ran.status, ran.err) == (2, "replitree: table sound has no column 'kk'; did you mean 'k'? it has k\n")


@pytest.mark.usefixtures("cluster")
def test_one_session_of_spark_answers_all_statements(
    run: Run, views: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import replitree.spark.session.session

    made = replitree.spark.session.session.spark_session
    started = list[str]()

    def start(**options: Any) -> Any:
        started.append("spark")
        return made(**options)

    monkeypatch.setattr(replitree.spark.session.session, "spark_session", start)
    (tmp_path / "queries.sql").write_text("show tables; select 1; select count(*) from sound; select k from sound;")
    assert run("sql", "--file", "queries.sql", *URL).status == 0
    assert (started, views) == (["spark"], [(), ("sound",), ("sound",)])
