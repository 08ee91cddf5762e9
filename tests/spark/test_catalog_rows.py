"""UPDATE, MERGE INTO and DELETE of the catalog: the rows are what the statement says, and only parts that it touches change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.functions import udf

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark.session.catalog import CATALOG
from tests.spark.conftest import uploads_left
from tests.spark.test_catalog import ROWS, SCHEMA, rows
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

KEYS = 30


@pytest.fixture(scope="module")
def session(spark: SparkSession, running: LocalCluster) -> SparkSession:
    """The session, whose catalog is that of the cluster."""
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    return spark


@pytest.fixture
def months(running: LocalCluster, name: str) -> Iterator[Table]:
    """Keys 0 to 29, ten of each month of a quarter in a part of its own; parts are not merged."""
    table = running.create_table(
        name, "k bigint not null, d date, v int, s string", order_by="k", partition_by="month(d)", wait_replicas=2
    )
    for replica in running.names:
        table.replica(replica).pause_merges()
    for month in (1, 2, 3):
        keys = range(10 * month - 10, 10 * month)
        table.insert({"k": keys, "d": [date(2024, month, 5)] * 10, "v": [0] * 10, "s": [f"s{k % 4}" for k in keys]})
    yield table
    running.drop_table(name)


def named(table: Table) -> str:
    return f"replitree.default.{table.name}"


def parts(table: Table) -> set[str]:
    return {part.part for part in table.snapshot(level="linearizable").parts}


def found(table: Table) -> dict[int, tuple[int, int | None, str | None]]:
    """Return the month, v and s of each key, as every replica has them."""
    tail, seen = table.status().log_tail - 1, []
    for replica in table.replicas():
        read = table.replica(replica.name).to_arrow(None, None, tail).to_pylist()
        seen.append({row["k"]: (row["d"].month, row["v"], row["s"]) for row in read})
        assert len(seen[-1]) == len(read), "no key is there twice"
    assert all(each == seen[0] for each in seen)
    return seen[0]


def start(k: int) -> tuple[int, int, str]:
    return (k // 10 + 1, 0, f"s{k % 4}")


def test_update_replaces_the_parts_with_rows_that_match(
    session: SparkSession, running: LocalCluster, months: Table
) -> None:
    before = parts(months)
    session.sql(f"update {named(months)} set v = v + k, s = concat(s, '!') where k % 20 = 7")
    assert found(months) == {k: (k // 10 + 1, k, f"s{k % 4}!") if k in (7, 27) else start(k) for k in range(KEYS)}
    index = months.history(1)[0].index
    assert parts(months) - before == {f"2024-01_0_0_0_{index}", f"2024-03_2_2_0_{index}"}
    assert before - parts(months) == {"2024-01_0_0_0", "2024-03_2_2_0"}
    wait_for(lambda: not uploads_left(running, months), "the upload and its scratch folder go")


def test_rows_that_get_another_partition_move_there(session: SparkSession, months: Table) -> None:
    session.sql(f"update {named(months)} set d = d + interval 1 month, v = 1 where k in (select id from range(8, 12))")
    moved = {8: (2, 1, "s0"), 9: (2, 1, "s1"), 10: (3, 1, "s2"), 11: (3, 1, "s3")}
    assert found(months) == {k: moved.get(k, start(k)) for k in range(KEYS)}
    index = months.history(1)[0].index
    assert parts(months) == {
        f"2024-01_0_0_0_{index}",
        f"2024-02_1_1_0_{index}",
        "2024-03_2_2_0",
        f"2024-02_{index}_{index}_0",
        f"2024-03_{index}_{index}_0",
    }
    # A whole part moves, and the order key changes.
    session.sql(f"update {named(months)} set d = date'2024-07-01', k = k + 100 where month(d) = 2")
    late = {k + 100: (7, *start(k)[1:]) for k in range(12, 20)} | {108: (7, 1, "s0"), 109: (7, 1, "s1")}
    assert (
        found(months) == {k: moved.get(k, start(k)) for k in range(KEYS) if not 12 <= k < 20 and k not in (8, 9)} | late
    )


@pytest.mark.parametrize(
    ("condition", "gone"),
    [
        ("k % 10 = 3", {3, 13, 23}),
        ("k in (select id * 3 from range(4))", {0, 3, 6, 9}),
        ("exists (select 1 from range(40) where id = k + 12)", set(range(28))),
        ("not exists (select 1 from range(3, 40) where id = k)", {0, 1, 2}),
        ("d < (select max(d) from {t} where k < 25) and s = 's1'", {1, 5, 9, 13, 17}),
        ("s = 's0' or k = (select max(id) from range(3))", {*range(0, 30, 4), 2}),
        ("month(d) = 2 and length(s) = 2", set(range(10, 20))),
        ("k > (select max(id) from range(100))", set()),
    ],
)
def test_delete_by_any_condition(session: SparkSession, months: Table, condition: str, gone: set[int]) -> None:
    before = parts(months)
    session.sql(f"delete from {named(months)} where {condition.format(t=named(months))}")
    assert found(months) == {k: start(k) for k in range(KEYS) if k not in gone}
    touched = {f"2024-0{k // 10 + 1}_{k // 10}_{k // 10}_0" for k in gone}
    assert before - parts(months) == touched
    assert len(parts(months)) == len(before), "a part that loses all rows is a part without rows"


def test_delete_that_can_be_a_mutation_is_one(session: SparkSession, months: Table) -> None:
    session.sql(f"delete from {named(months)} where k < 3")
    session.sql(f"delete from {named(months)} where k % 10 = 3")
    assert [entry.kind for entry in months.history(2)] == ["rewrite", "mutate"]


def test_merge_changes_deletes_and_inserts_rows_at_once(session: SparkSession, months: Table) -> None:
    before, index = parts(months), months.history(1)[0].index
    session.sql(
        f"""merge into {named(months)} t using (select id * 5 as k, date'2024-04-01' as d from range(8)) s on t.k = s.k
        when matched and t.k < 5 then delete
        when matched and t.k < 10 then update set v = s.k, d = s.d
        when matched then update set v = s.k
        when not matched and s.k = 30 then insert (k, d) values (s.k, s.d)
        when not matched then insert (k, d, v, s) values (s.k, date'2024-01-31', 1, 'new')"""
    )
    want: dict[int, Any] = {k: start(k) for k in range(1, KEYS)}
    want |= {5: (4, 5, "s1"), 10: (2, 10, "s2"), 15: (2, 15, "s3"), 20: (3, 20, "s0"), 25: (3, 25, "s1")}
    want |= {30: (4, None, None), 35: (1, 1, "new")}
    assert found(months) == want
    entries = months.history()
    assert [entry.kind for entry in entries if entry.index > index] == ["rewrite"]
    new = entries[0].index
    assert parts(months) == {f"{part}_{new}" for part in before} | {f"2024-0{m}_{new}_{new}_0" for m in (1, 4)}


def test_merge_leaves_the_parts_alone_whose_rows_stay(session: SparkSession, months: Table) -> None:
    before = parts(months)
    session.sql(
        f"""merge into {named(months)} t using (select 15L as k) s on t.k = s.k
        when matched then update set v = 1
        when not matched by source and t.k > 25 then update set s = 'far'
        when not matched by source and t.k = 20 then delete"""
    )
    want = {k: (3, 0, "far") if k > 25 else start(k) for k in range(KEYS) if k != 20} | {15: (2, 1, "s3")}
    assert found(months) == want
    assert before & parts(months) == {"2024-01_0_0_0"}


def test_merge_of_a_table_with_itself_reads_one_snapshot(session: SparkSession, months: Table) -> None:
    # Another program's rows: no read at the level eventual has to show them.
    other = replitree.connect(months_url(session)).table(months.name)
    other.insert({"k": [100], "d": [date(2024, 3, 1)], "v": [7], "s": ["new"]})
    session.sql(
        f"""merge into {named(months)} t using (select k + 1 as k, v, d from {named(months)} where k >= 28) s on t.k = s.k
        when matched then update set v = s.v + 1
        when not matched then insert (k, d, v, s) values (s.k, s.d, s.v, 'shifted')"""
    )
    want: dict[int, Any] = {k: start(k) for k in range(KEYS)}
    assert found(months) == want | {
        29: (3, 1, "s1"),
        30: (3, 0, "shifted"),
        100: (3, 7, "new"),
        101: (3, 7, "shifted"),
    }


def months_url(session: SparkSession) -> str:
    return str(session.conf.get(f"{CATALOG}.url"))


def test_merge_equals_the_same_merge_in_duckdb(session: SparkSession, running: LocalCluster, months: Table) -> None:
    chance = random.Random(7)
    database = duckdb.connect()
    database.register("first", months.to_arrow())
    database.execute("create table t as select * from first")
    for number in range(5):
        keys = chance.sample(range(60), 25)
        source = pa.table(
            {
                "k": pa.array(keys, pa.int64()),
                "d": pa.array([date(2024, chance.randint(1, 5), 1 + chance.randrange(28)) for _ in keys], pa.date32()),
                "v": pa.array([chance.choice([None, chance.randrange(9)]) for _ in keys], pa.int32()),
                "s": pa.array([chance.choice(["a", "it's", None]) for _ in keys]),
            }
        )
        session.createDataFrame(source).createOrReplaceTempView("source")
        database.register("source", source)
        statement = (
            "merge into {} t using source s on t.k = s.k and (t.v is null or t.v < 8)"
            " when matched and s.s is null then delete"
            " when matched then update set v = s.v, s = t.s || s.s, d = s.d"
            f" when not matched and s.k % 7 <> {number} then insert (k, d, v, s) values (s.k + {100 * number}, s.d, s.v, s.s)"
        )
        # DuckDB refuses no match of one row with several, and Spark none here: keys of the source differ.
        database.execute(statement.format("t"))
        session.sql(statement.format(named(months)))
        want = database.sql("select k, d, v, s from t").to_arrow_table().to_pylist()
        tail = months.status().log_tail - 1
        rows_now = months.replica(running.names[0]).to_arrow(None, None, tail).to_pylist()
        assert sorted(map(repr, rows_now)) == sorted(map(repr, want))


def test_columns_of_every_type_are_written_as_they_were(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    table = running.create_table(name, SCHEMA, order_by="k", partition_by="month(d)", wait_replicas=2)
    table.insert(rows(0, ROWS // 2))
    table.insert(rows(ROWS // 2, ROWS // 2))
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        session.sql(f"update {named(table)} set i4 = i4 - 1 where k % 7 = 1")
    finally:
        session.conf.unset("spark.sql.session.timeZone")
    want = rows(0, ROWS).to_pylist()
    for row in want:
        row["i4"] = row["i4"] - 1 if row["k"] % 7 == 1 else row["i4"]
    read = table.to_arrow(None, None, table.status().log_tail - 1).sort_by("k").to_pylist()
    assert read == want
    # Spark's own scan reads the new files with its filters.
    assert session.sql(f"select count(*) from {named(table)} where c = 0.0037 and i4 = -2").collect()[0][0] == 1
    running.drop_table(name)


def test_rows_show_their_part(session: SparkSession, months: Table) -> None:
    shown = session.sql(f"select _part, count(*), min(k) from {named(months)} where k > 3 group by _part").collect()
    assert sorted(map(tuple, shown)) == [("2024-01_0_0_0", 6, 4), ("2024-02_1_1_0", 10, 10), ("2024-03_2_2_0", 10, 20)]
    assert session.sql(f"select k from {named(months)} where _part = '2024-02_1_1_0' and k < 12").count() == 2
    assert "_part" not in session.table(named(months)).columns
    with pytest.raises(AnalysisException, match="can't name the column _part"):
        session.sql(f"delete from {named(months)} where _part = '2024-02_1_1_0' and k % 2 = 0")


# --- conflicts --------------------------------------------------------------------------------------------------------------


@contextmanager
def meanwhile(session: SparkSession, url: str, name: str, act: Callable[[Table], object]) -> Iterator[str]:
    """Give a view with the keys 1 and 11, whose reader does something to a table first: once the statement has begun."""

    def read(key: int) -> int:
        with replitree.connect(url) as connection:
            act(connection.table(name))
        return key

    # Without Arrow, as pandas is not needed.
    key = udf(read, "bigint", useArrow=False)
    frame = session.range(1, 12, 10).select(key("id").alias("k"))
    frame.createOrReplaceTempView("meanwhile")
    yield "meanwhile"
    session.catalog.dropTempView("meanwhile")


MERGE = "merge into {t} t using {s} s on t.k = s.k when matched then update set v = t.v + 1"


def test_change_of_the_same_rows_meanwhile_is_a_conflict(session: SparkSession, months: Table) -> None:
    url = months_url(session)
    with (
        meanwhile(session, url, months.name, lambda table: table.update({"v": "50"}, "k = 2")) as source,
        pytest.raises(PySparkException, match="MERGE has changed nothing, run it again"),
    ):
        session.sql(MERGE.format(t=named(months), s=source))
    assert found(months) == {k: (1, 50, "s2") if k == 2 else start(k) for k in range(KEYS)}
    session.sql(MERGE.format(t=named(months), s="(select 1L as k)"))
    assert found(months)[1] == (1, 1, "s1")


def insert_one(table: Table) -> None:
    row = {"k": [5_000], "d": [date(2024, 1, 1)], "v": [3], "s": ["new"]}
    table.insert(row, token="meanwhile")


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_insert_meanwhile_conflicts_if_the_statement_is_to_be_serializable(
    session: SparkSession, months: Table, isolation: str
) -> None:
    session.conf.set(f"{CATALOG}.isolation", isolation)
    try:
        with meanwhile(session, months_url(session), months.name, insert_one) as source:
            statement = MERGE.format(t=named(months), s=source)
            if isolation == "serializable":
                with pytest.raises(PySparkException, match="run it again"):
                    session.sql(statement)
            else:
                session.sql(statement)
    finally:
        session.conf.unset(f"{CATALOG}.isolation")
    changed = (1, 11) if isolation == "snapshot" else ()
    want = {k: (k // 10 + 1, 1, f"s{k % 4}") if k in changed else start(k) for k in range(KEYS)}
    assert found(months) == want | {5_000: (1, 3, "new")}


def test_parts_are_merged_again_after_a_statement_that_failed(
    session: SparkSession, running: LocalCluster, months: Table
) -> None:
    months.insert({"k": [200], "d": [date(2024, 1, 9)], "v": [0], "s": ["x"]})
    twice = "(select * from values (1L), (1L) as rows(k))"
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        session.sql(MERGE.format(t=named(months), s=twice))
    assert found(months)[1] == start(1)
    for replica in running.names:
        months.replica(replica).resume_merges()
    wait_for(lambda: months.optimize(final=True, timeout_s=10).merges, "what the statement kept is let go")
    wait_for(lambda: not uploads_left(running, months), "its upload goes")


# --- refusals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("update {t} set k = null where k = 1", "'k' may not be null, and has 1"),
        ("update {t} set v = 'many'", "(?i)cannot safely cast|CAST_INVALID_INPUT|INCOMPATIBLE_DATA"),
        ("update {t} set nothing = 1", "UNRESOLVED_COLUMN"),
        ("update {t} set v = cast(s as int)", "CAST_INVALID_INPUT"),
        (
            "merge into {t} t using (select 1L as k) s on t.k = s.k when matched then update set k = null",
            "MERGE has changed nothing: column 'k' may not be null",
        ),
    ],
)
def test_rows_that_do_not_fit_change_nothing(session: SparkSession, months: Table, statement: str, reason: str) -> None:
    before = parts(months)
    with pytest.raises(PySparkException, match=reason):
        session.sql(statement.format(t=named(months)))
    assert parts(months) == before


def test_isolation_that_is_none_is_refused(session: SparkSession, months: Table) -> None:
    session.conf.set(f"{CATALOG}.isolation", "best")
    try:
        with pytest.raises(AnalysisException, match="isolation of the catalog is snapshot or serializable"):
            session.sql(f"update {named(months)} set v = 1")
    finally:
        session.conf.unset(f"{CATALOG}.isolation")


@pytest.mark.parametrize("policy", ["replacing(w)", "summing"])
def test_tables_with_a_policy_are_refused(session: SparkSession, running: LocalCluster, name: str, policy: str) -> None:
    table = running.create_table(name, "k bigint not null, w bigint", order_by="k", policy=policy, wait_replicas=2)
    table.insert({"k": [1, 2], "w": [1, 1]})
    for statement in (f"update {named(table)} set w = 5", f"delete from {named(table)} where k % 2 = 1"):
        with pytest.raises(AnalysisException, match=r"has the policy .* may show others"):
            session.sql(statement)
    session.sql(f"delete from {named(table)} where k = 1")
    assert table.to_arrow(None, None, table.status().log_tail - 1).to_pylist() == [{"k": 2, "w": 1}]
    running.drop_table(name)


def test_parts_with_older_columns_are_refused_until_they_are_written_anew(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    table = running.create_table(name, "k bigint not null, v int", order_by="k", wait_replicas=2)
    table.insert({"k": [1, 2], "v": [1, 1]})
    # Files that lack a column need no other files.
    table.alter("ADD COLUMN w int DEFAULT 5")
    session.sql(f"update {named(table)} set v = v + w where k % 2 = 1")
    table.alter("ALTER COLUMN v TYPE bigint")
    with pytest.raises(AnalysisException, match=r"columns that were altered \(v\).* writes new files"):
        session.sql(f"update {named(table)} set v = 0 where k % 2 = 1")
    table.optimize(final=True)
    session.sql(f"update {named(table)} set v = v + 1 where k % 2 = 1")
    read = table.to_arrow(None, None, table.status().log_tail - 1).sort_by("k").to_pylist()
    assert read == [{"k": 1, "v": 7, "w": 5}, {"k": 2, "v": 1, "w": 5}]
    running.drop_table(name)


def test_column_named_as_that_of_the_part_is_read_and_its_table_refused(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    table = running.create_table(name, "k bigint not null, _part string", order_by="k", wait_replicas=2)
    table.insert({"k": [1], "_part": ["mine"]})
    assert session.sql(f"select _part from {named(table)} where _part = 'mine'").collect()[0][0] == "mine"
    with pytest.raises(AnalysisException, match="a column _part of its own"):
        session.sql(f"update {named(table)} set _part = 'other'")
    running.drop_table(name)


def test_explain_changes_nothing(session: SparkSession, running: LocalCluster, months: Table) -> None:
    before = parts(months)
    plan = session.sql(f"explain update {named(months)} set v = 1 where k > 25").collect()[0][0]
    assert "ReplaceData" in plan
    assert parts(months) == before
    wait_for(lambda: not uploads_left(running, months), "what was begun for the plan goes")


def test_another_replica_takes_the_statement_of_a_leader_that_is_dead(
    session: SparkSession, running: LocalCluster, months: Table
) -> None:
    for replica in running.names:
        months.replica(replica).resume_merges()

    def led_by() -> str:
        _, status = months.commander.ask("GET", "status", dict, timeout_s=10)
        return str(status["leader"] or "")

    leader = wait_for(led_by, "a replica leads")
    for replica in running.names:
        # Of rows that only the dead replica had, no other could make anything.
        months.replica(replica).snapshot(level="linearizable")
    running.kill(leader)
    try:
        session.sql(MERGE.format(t=named(months), s="(select 1L as k)"))
    finally:
        running.start(leader)
    assert found(months)[1] == (1, 1, "s1")
