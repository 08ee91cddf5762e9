"""SQL over the catalog: every answer is what plain Parquet files of the same rows give, at the snapshot that was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark.session.catalog import CATALOG, CATALOG_CLASS
from tests.times import time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.system

SCHEMA = (
    "k bigint not null, b boolean, i1 tinyint, i2 smallint, i4 int, f float, g double, c decimal(20,4), s string, x binary,"
    " d date, t timestamp, n timestamp_ntz, a array<int>, m map<string,int>, p struct<q: bigint, r: struct<z: string>>"
)
ROWS = 600


def rows(first: int, count: int) -> pa.Table:
    """Rows of `SCHEMA` in which every column but the first is null in every seventh row."""
    begin = datetime(2024, 1, 1, tzinfo=UTC)

    def row(k: int) -> dict[str, object]:
        if k % 7 == 3:
            return {"k": k}
        moment = begin + timedelta(hours=5 * k, microseconds=k)
        return {
            "k": k,
            "b": k % 3 == 0,
            "i1": k % 100 - 50,
            "i2": k * 7 % 30_000,
            "i4": -k,
            "f": k / 10,
            "g": (k - 300) / 8,
            "c": Decimal(k * 37) / 10_000,
            "s": f"it's {k % 13} \\ %_ ü",
            "x": bytes([k % 256, 255]),
            "d": date(2024, 1, 1) + timedelta(days=k % 90),
            "t": moment,
            "n": moment.replace(tzinfo=None),
            "a": [k, None, -k][: k % 4],
            "m": {"one": k, "two": None} if k % 2 else {},
            "p": {"q": k * 2, "r": {"z": f"z{k % 5}"}},
        }

    made = [row(k) for k in range(first, first + count)]
    kinds = pa.schema(
        [
            ("k", pa.int64()),
            ("b", pa.bool_()),
            ("i1", pa.int8()),
            ("i2", pa.int16()),
            ("i4", pa.int32()),
            ("f", pa.float32()),
            ("g", pa.float64()),
            ("c", pa.decimal128(20, 4)),
            ("s", pa.string()),
            ("x", pa.binary()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")),
            ("a", pa.list_(pa.int32())),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("p", pa.struct([("q", pa.int64()), ("r", pa.struct([("z", pa.string())]))])),
        ]
    )
    return pa.Table.from_pylist(made, kinds)


@pytest.fixture(scope="module")
def session(spark: SparkSession, running: LocalCluster) -> SparkSession:
    """The session, whose catalog is that of the cluster."""
    assert spark.conf.get(CATALOG) == CATALOG_CLASS, "spark_session configures the catalog"
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    return spark


@pytest.fixture(scope="module")
def everything(session: SparkSession, running: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table with all types in three parts and several months; the view `plain` has the same rows in Parquet files."""
    table = running.create_table("everything", SCHEMA, order_by="k", partition_by="month(d)", wait_replicas=2)
    folder = tmp_path_factory.mktemp("plain")
    results = []
    for first in range(0, ROWS, ROWS // 3):
        some = rows(first, ROWS // 3)
        results.append(table.insert(some))
        pq.write_table(some, folder / f"{first}.parquet")
    session.read.parquet(str(folder)).createOrReplaceTempView("plain")
    for name in running.names:
        table.replica(name).snapshot(results[-1].counts_at)
    yield "replitree.default.everything"
    running.drop_table("everything")


def answer(session: SparkSession, query: str) -> list[Row]:
    return sorted(session.sql(query).collect(), key=repr)


def plan_of(frame: DataFrame) -> str:
    """Return what Spark does for a frame."""
    return str(frame._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - Python has it not


CONDITIONS = (
    "k >= 590",
    "k < 3 or k = 77",
    "k between 100 and 104 and i4 = -102",
    "k in (1, 2, 599, 100000)",
    "not (k > 5)",
    "b",
    "not b and k < 50",
    "i1 = -50",
    "i2 in (7, 14, 21)",
    "f = cast(0.1 as float)",
    "f > 59.75",
    "g = -37.5",
    "g >= 37.125",
    "c = 0.0037",
    "c between 1.1 and 1.2",
    "s = 'it\\'s 3 \\\\ %_ ü'",
    "s like 'it%'",
    r"s like '%\\\\ \\%\\_ ü' and k > 500",
    "contains(s, '%_')",
    "startswith(s, 'it\\'s 1')",
    "x = X'07FF'",
    "d = date'2024-02-11'",
    "d >= date'2024-03-20'",
    "t < timestamp'2024-01-02 00:00:00'",
    "t = timestamp'2024-01-01 20:00:00.000004'",
    "n >= timestamp_ntz'2024-05-01 00:00:00'",
    "s is null",
    "s is not null and k > 590",
    "s <=> null",
    "p.q = 24",
    "p.r.z = 'z1' and k < 30",
    "p is null",
    "size(a) = 3 and a[0] > 500",
    "m['one'] = 11",
    "k % 100 = 7 and upper(s) > 'A'",
    "hour(t) = 5",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_condition_keeps_the_rows_that_it_keeps_of_parquet(
    session: SparkSession, everything: str, condition: str
) -> None:
    found = answer(session, f"select * from {everything} where {condition}")
    assert found == answer(session, f"select * from plain where {condition}")
    assert 0 < len(found) < ROWS, "the condition decides something"


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) from {t}",
        "select * from {t}",
        "select p.r.z, g, k from {t} where k % 2 = 0",
        "select d, count(*), sum(c), min(t), max(f), count(distinct s) from {t} group by d",
        "select l.k, r.g from {t} l join {t} r on l.k = r.i2 where l.k > 10 and r.k < 500",
        "select k from {t} where k < 4 union all select i4 from {t} where k > 595",
        "select k from {t} where k in (select max(k) from {t} group by month(d))",
        "select explode(a) from {t} where k < 40",
        "with w as (select * from {t} where k < 9) select count(*) from w x, w y where x.k < y.k",
    ],
)
def test_query_has_the_result_that_it_has_on_parquet(session: SparkSession, everything: str, query: str) -> None:
    found = answer(session, query.format(t=everything))
    assert found == answer(session, query.format(t="plain"))
    assert found


def files_of(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> int:
    """Return how many files a frame reads, as its plan says."""
    frame.explain("formatted")
    found = re.search(r"Location: SnapshotFiles ?\((\d+) paths\)", capsys.readouterr().out)
    assert found
    return int(found[1])


def test_condition_and_columns_reach_the_scan_and_parts_are_left_out(
    session: SparkSession, everything: str, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = session.sql(f"select s from {everything} where k >= 590 and d >= date'2024-02-01'")
    plan = plan_of(frame)
    assert "ReadSchema: struct<k:bigint,s:string,d:date>" in plan
    assert "GreaterThanOrEqual(k,590)" in plan
    whole = files_of(session.table(everything), capsys)
    assert 0 < files_of(frame, capsys) < whole


def test_list_and_description(session: SparkSession, everything: str) -> None:
    assert "everything" in [row["tableName"] for row in session.sql("show tables in replitree.default").collect()]
    assert [row[0] for row in session.sql("show namespaces in replitree").collect()] == ["default"]
    described = {row["col_name"]: row["data_type"] for row in session.sql(f"describe extended {everything}").collect()}
    assert described["c"] == "decimal(20,4)"
    assert described["Provider"] == "replitree"
    assert "months(d)" in described.values()
    assert f"rows={ROWS}" in described["Table Properties"]
    session.sql("use replitree.default")
    try:
        assert session.sql("select count(*) from everything").collect()[0][0] == ROWS
    finally:
        session.sql("use spark_catalog.default")


def named(table: Table) -> str:
    return f"replitree.default.{table.name}"


def count(session: SparkSession, name: str, index: int) -> int:
    """Count the rows of a table that has what was inserted below an index."""
    return int(session.read.option("minIndex", index).table(name).count())


@pytest.fixture
def small(running: LocalCluster, name: str) -> Iterator[Table]:
    """A table with the keys 0 to 9."""
    table = running.create_table(name, "k bigint not null, v double", order_by="k", wait_replicas=2)
    seen(table, table.insert({"k": range(10), "v": [k / 2 for k in range(10)]}).counts_at)
    yield table
    if name in running.tables():
        running.drop_table(name)


def seen(table: Table, index: int | None) -> int:
    """Wait until every replica shows an insert, so that reads at the level eventual do; return the index of a snapshot."""
    assert index is not None
    return min(table.replica(each.name).snapshot(index).index for each in table.replicas())


def test_frames_and_views_show_new_rows_at_their_next_action_and_old_rows_by_version(
    session: SparkSession, small: Table
) -> None:
    kept = session.table(named(small))
    kept.createOrReplaceTempView("kept_view")
    session.sql(f"create or replace temporary view text_view as select * from {named(small)} where k >= 5")
    session.sql(f"cache table cached_view as select * from {named(small)}")
    before = small.snapshot().index
    assert (kept.count(), session.table("kept_view").count(), session.table("text_view").count()) == (10, 10, 5)
    seen(small, small.insert({"k": range(10, 14), "v": [0.0] * 4}).counts_at)
    fresh = session.table(named(small))
    assert (kept.count(), session.table("kept_view").count(), session.table("text_view").count()) == (14, 14, 9)
    assert kept.union(fresh).count() == 28, "both are one snapshot"
    assert kept.join(fresh, "k").count() == 14
    assert session.table("cached_view").count() in (10, 14), "a cached table shows one version as a whole"
    session.sql("uncache table cached_view")
    assert session.sql(f"select count(*) from {named(small)} version as of {before}").collect()[0][0] == 10
    assert session.read.option("versionAsOf", before).table(named(small)).count() == 10
    both = f"select (select count(*) from {named(small)} version as of {before}), (select count(*) from {named(small)})"
    assert tuple(session.sql(both).collect()[0]) == (10, 14)


def test_sql_shows_what_the_program_has_inserted_whichever_replica_answers(session: SparkSession, small: Table) -> None:
    for number, replica in enumerate(["r1", "r2"] * 3):
        small.insert({"k": [100 + number], "v": [0.0]}, replica=replica)
        assert session.table(named(small)).count() == 11 + number


def test_version_and_time_that_are_not_there_are_refused(session: SparkSession, small: Table) -> None:
    with pytest.raises(AnalysisException, match="index of the table's log"):
        session.sql(f"select * from {named(small)} version as of '12th'").collect()
    with pytest.raises(AnalysisException, match="the table was created at"):
        session.sql(f"select * from {named(small)} timestamp as of '2024-01-01'").collect()
    with pytest.raises(AnalysisException, match="is not over: coordination's clock says"):
        session.sql(f"select * from {named(small)} timestamp as of '2999-01-01'").collect()


def test_time_shows_the_table_of_that_time_in_sql_and_in_both_readers(
    session: SparkSession, running: LocalCluster, small: Table
) -> None:
    seen(small, small.insert({"k": [10], "v": [0.0]}).counts_at)
    first = next(each for each in small.history() if each.rows == 10)
    time = time_of(first).isoformat()
    assert session.sql(f"select count(*) from {named(small)} timestamp as of '{time}'").collect()[0][0] == 10
    assert session.read.option("timestampAsOf", time).table(named(small)).count() == 10
    assert session.table(named(small)).count() == 11
    read = session.read.format("replitree").options(url=str(running.folder), timestampAsOf=time)
    both = (
        f"select (select count(*) from {named(small)} timestamp as of '{time}'), (select count(*) from {named(small)})"
    )
    assert tuple(session.sql(both).collect()[0]) == (10, 11)
    assert read.load(small.name).count() == 10
    with pytest.raises(PySparkException, match="asOf and timestampAsOf"):
        read.option("asOf", first.index + 1).load(small.name).count()


def test_history_is_a_table_beside_the_table(session: SparkSession, small: Table) -> None:
    small.delete("k = 3")
    entries = small.history()
    shown = session.sql(f"select * from {named(small)}.history").collect()
    assert [
        (row["index"], row.kind, row.replica, row["rows"], row.bytes, tuple(row.ids), row.command) for row in shown
    ] == [(each.index, each.kind, each.replica, each.rows, each.bytes, each.ids, each.command) for each in entries]
    assert (shown[-1].kind, entries[-1].rows) == ("get", 10)
    query = f"select cast(max(time) as double), sum(rows) from {named(small)}.history where kind = 'get'"
    assert tuple(session.sql(query).collect()[0]) == (time_of(entries[-1]).timestamp(), 10)
    with pytest.raises(AnalysisException, match="the history of a table is that of now"):
        session.sql(f"select * from {named(small)}.history version as of 0").collect()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql("select * from replitree.default.nothing.history").collect()


def test_read_options(session: SparkSession, small: Table) -> None:
    index = small.insert({"k": [100], "v": [1.0]}).counts_at
    assert index is not None
    assert count(session, named(small), index) == 11
    for level in ("eventual", "sequential", "linearizable"):
        assert session.read.option("level", level).table(named(small)).count() == 11
    assert session.sql(f"select count(*) from {named(small)} with (`level` = 'linearizable')").collect()[0][0] == 11
    with pytest.raises(AnalysisException, match="option level"):
        session.read.option("level", "best").table(named(small)).count()
    with pytest.raises(AnalysisException, match="needs it up to"):
        session.read.options(minIndex=index + 100, timeout=0.2).table(named(small)).count()


def test_final_read_merges_and_the_plan_says_so(session: SparkSession, running: LocalCluster, name: str) -> None:
    table = running.create_table(
        name, "k bigint not null, s string, w bigint", order_by="k", policy="replacing(w)", wait_replicas=2
    )
    table.insert({"k": [1, 2, 3], "s": ["a", "b", "c"], "w": [1, 1, 1]})
    seen(table, table.insert({"k": [2, 3, 4], "s": ["B", "C", "D"], "w": [2, 2, 2]}).counts_at)
    assert session.table(named(table)).count() == 6
    final = session.read.option("final", True).table(named(table))
    assert sorted((r["k"], r["s"]) for r in final.collect()) == [(1, "a"), (2, "B"), (3, "C"), (4, "D")]
    # The condition is about what the policy leaves: the row that matched is no more.
    assert final.where("s = 'b'").count() == 0
    assert final.where("k > 2").select("s").count() == 2
    plan = plan_of(final)
    assert "rows merged by the table's policy (final)" in plan
    running.drop_table(name)


def test_parts_of_older_columns_show_the_columns_of_now(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    table = running.create_table(name, "k bigint not null, v int, gone string", order_by="k", wait_replicas=2)
    table.insert({"k": [1], "v": [10], "gone": ["x"]})
    table.alter("ADD COLUMN w string DEFAULT 'it\\'s', ADD COLUMN t timestamp DEFAULT timestamp'2024-01-01 00:00:00'")
    table.alter("DROP COLUMN gone")
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    seen(table, table.insert({"k": [2], "v": [20], "w": ["new"], "t": [None]}).counts_at)

    def found(columns: str = "*") -> list[tuple[object, ...]]:
        query = f"select {columns} from {named(table)} with (`level` = 'linearizable') order by k"
        return [tuple(row) for row in session.sql(query).collect()]

    assert found("k, v, w, unix_micros(t)") == [
        (1, 10, "it's", round(moment.timestamp()) * 10**6),
        (2, 20, "new", None),
    ]
    assert session.sql(f"select k from {named(table)} where w = 'it\\'s'").collect()[0][0] == 1
    assert "BatchScan" in plan_of(session.table(named(table)))
    table.alter("RENAME COLUMN v TO value")
    table.alter("ALTER COLUMN value TYPE bigint")
    seen(table, table.insert({"k": [3], "value": [2**40], "w": ["wide"], "t": [None]}).counts_at)
    assert found("k, value, w") == [(1, 10, "it's"), (2, 20, "new"), (3, 2**40, "wide")]
    frame = session.table(named(table)).where("value > 15")
    assert frame.count() == 2
    assert "columns that were altered (value)" in plan_of(frame)
    running.drop_table(name)


def test_table_that_is_dropped_and_created_again_is_another_table(
    session: SparkSession, running: LocalCluster, small: Table
) -> None:
    old = session.table(named(small))
    assert old.count() == 10
    running.drop_table(small.name)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.table(named(small))
    again = running.create_table(small.name, "k bigint not null, v double", order_by="k", wait_replicas=2)
    seen(again, again.insert({"k": [1], "v": [1.0]}).counts_at)
    assert session.table(named(small)).count() == 1
    with pytest.raises(PySparkException, match=r"(?i)table"):
        old.count()


def test_names_that_are_not_there(session: SparkSession, everything: str) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql("select * from replitree.default.nowhere")
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        session.sql("select * from replitree.other.everything")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        session.sql(f"select nothing from {everything}")


def catalog(session: SparkSession, name: str, **settings: object) -> str:
    """Give a session another catalog; return its namespace."""
    session.conf.set(f"spark.sql.catalog.{name}", CATALOG_CLASS)
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.{name}.{key}", str(value))
    return f"{name}.default"


def test_wrong_token_and_missing_cluster_say_what_to_do(
    session: SparkSession, running: LocalCluster, everything: str, tmp_path: Path
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("not the token")
    with pytest.raises(AnalysisException, match="token"):
        session.table(f"{catalog(session, 'stranger', url=running.folder, tokenFile=wrong)}.everything").count()
    with pytest.raises(AnalysisException, match="replitree up"):
        session.sql(f"show tables in {catalog(session, 'nowhere', url=tmp_path)}").collect()
    token = (running.folder / "token").read_text().strip()
    explained = session.sql(f"explain extended select * from {everything}").collect()[0][0]
    assert token not in explained
    assert token not in str(session.sparkContext.getConf().getAll())


def test_another_replica_answers_for_one_that_is_dead(
    session: SparkSession, running: LocalCluster, small: Table
) -> None:
    for name in running.names:
        running.kill(name)
        try:
            assert session.table(named(small)).count() == 10
        finally:
            running.start(name)


def test_table_is_created_filled_changed_and_dropped_by_sql(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    there = f"replitree.default.{name}"
    session.sql(
        f"create table {there} (k bigint not null, d date, s string) using replitree partitioned by (months(d))"
        " tblproperties (order_by = 'k', parts_max = '5000')"
    )
    definition = running.table(name).definition
    assert (definition.order_by, [each.text for each in definition.partition_by]) == (("k",), ["month(d)"])
    assert definition.settings.parts_max == 5000
    assert [column.nullable for column in definition.columns] == [False, True, True]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        session.sql(f"create table {there} (k int)")
    session.sql(f"create table if not exists {there} (k int)")

    def found() -> list[tuple[object, ...]]:
        return [tuple(row) for row in session.sql(f"select k, s from {there} order by k").collect()]

    # Each write is seen by the next statement, whichever replica answers.
    session.sql(f"insert into {there} values (1, date'2024-01-01', 'a'), (2, date'2024-02-01', 'b')")
    assert found() == [(1, "a"), (2, "b")]
    session.sql(f"insert into {there} (s, k) select concat(s, s), k + 2 from {there}")
    assert found() == [(1, "a"), (2, "b"), (3, "aa"), (4, "bb")]
    rows = session.range(5, 7).selectExpr("id as k", "date'2024-03-01' as d", "'c' as s")
    for _ in range(2):
        rows.writeTo(there).option("insertToken", "once").append()
    assert found()[4:] == [(5, "c"), (6, "c")]
    session.sql(f"delete from {there} where k in (1, 2) or s = 'bb'")
    assert found() == [(3, "aa"), (5, "c"), (6, "c")]
    session.sql(f"alter table {there} add column w int")
    session.sql(f"alter table {there} rename column s to text")
    session.sql(f"insert into {there} values (7, null, 'd', 70)")
    assert session.sql(f"select text, w from {there} where k > 5 order by k").collect() == [("c", None), ("d", 70)]
    session.sql(f"insert overwrite {there} select 9, null, 'only', 0")
    assert [row[0] for row in session.sql(f"select text from {there}").collect()] == ["only"]
    session.sql(f"truncate table {there}")
    assert session.table(there).count() == 0
    session.sql(f"drop table {there}")
    assert name not in running.tables()
    session.sql(f"drop table if exists {there}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql(f"drop table {there}")


def test_table_is_created_from_a_query(
    session: SparkSession, running: LocalCluster, everything: str, name: str
) -> None:
    there = f"replitree.default.{name}"
    session.sql(f"create table {there} tblproperties (order_by = 'k') as select k, p, c from {everything} where k < 50")
    assert answer(session, f"select * from {there}") == answer(session, "select k, p, c from plain where k < 50")
    session.sql(f"drop table {there}")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("create table replitree.default.wrong (k int) tblproperties (colour = 'red')", "no property 'colour'"),
        ("create table replitree.default.wrong (k int) tblproperties (order_by = 'z')", "'z'"),
        ("create table replitree.default.wrong (k interval day)", "(?i)interval"),
        ("create table replitree.default.wrong (k int, v int) cluster by (v, k)", r"order_by = 'v, k'"),
        ("alter table replitree.default.everything rename to other", "not supported"),
        ("alter table replitree.default.everything add column z int comment 'z'", "not supported"),
        ("insert into replitree.default.everything (k) values (null)", "(?i)null"),
        ("create namespace replitree.more", "not supported"),
    ],
)
def test_statements_that_make_no_sense_or_are_not_there_say_so(
    session: SparkSession, everything: str, statement: str, reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        session.sql(statement)
    assert session.table(everything).count() == ROWS
