"""Statements about partitions, procedures, defaults and delete markers: what each does, and what the wrong ones say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from replitree.client.cluster import LocalCluster
from replitree.spark.read.read import session_conf
from replitree.spark.session.catalog import CATALOG
from replitree.spark.write.write_tasks import SESSION_MODE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def session(spark: SparkSession, running: LocalCluster) -> SparkSession:
    """The session, whose catalog is that of the cluster."""
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    return spark


def test_overwrite_of_partitions_is_one_entry_and_leaves_the_other_partitions(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    there = f"replitree.default.{name}"
    session.sql(f"create table {there} (k bigint not null, p int, s string) partitioned by (p, bucket(99, k))")
    session.sql(f"insert into {there} values (0, 1, 'a'), (1, 1, 'b'), (2, 2, 'c'), (3, null, 'd')")
    tail = running.table(name).status().log_tail

    def found() -> list[tuple[object, ...]]:
        return [tuple(row) for row in session.sql(f"select k, p, s from {there} order by k").collect()]

    for statement in (
        f"overwrite {there} partition (p = 1) select 1, 'a'",
        f"into {there} replace where k = 1 table {there}",
    ):
        with pytest.raises(AnalysisException, match="partitionOverwriteMode to dynamic"):
            session.sql(f"insert {statement}")
    with session_conf(session, {SESSION_MODE: "dynamic"}):
        session.sql(f"insert overwrite {there} select k, p, 'new' from {there} where k in (0, 3)")
        assert found() == [(0, 1, "new"), (1, 1, "b"), (2, 2, "c"), (3, None, "new")]
        session.sql(f"insert overwrite {there} partition (p = 2) select 2, 'two'")
        session.sql(f"insert overwrite {there} select * from {there} where k > 99")
    session.table(there).where("k = 1").selectExpr("k", "p", "'last' as s").writeTo(there).overwritePartitions()
    assert found() == [(0, 1, "new"), (1, 1, "last"), (2, 2, "two"), (3, None, "new")]
    assert running.table(name).status().log_tail == tail + 3, "no rows are no entry"
    session.sql(f"drop table {there}")


def test_partitions_are_listed_and_dropped(session: SparkSession, running: LocalCluster, name: str) -> None:
    there = f"replitree.default.{name}"
    session.sql(
        f"create table {there} (c decimal(5, 2), d date, s string, x bigint) partitioned by (c, months(d), s, bucket(2, x))"
    )
    session.sql(f"insert into {there} values (-1.5, date'2024-01-02', 'it/s=a-b', 1), (2, date'2024-02-02', null, 1)")

    def shown(partition: str = "") -> list[str]:
        return [row.partition for row in session.sql(f"show partitions {there} {partition}").collect()]

    first, second = "c=-1.50/d_month=2024-01/s=it%2Fs%3Da-b/x_bucket=0", "c=2.00/d_month=2024-02/s=null/x_bucket=0"
    assert shown() == [first, second]
    assert shown("partition (d_month = '2024-02')") == [second]
    tail = running.table(name).status().log_tail
    whole = "c = -1.5, d_month = '2024-01', s = '{}', x_bucket = 0"
    for statement, message in {
        f"drop partition ({whole.format('other')})": "PARTITIONS_NOT_FOUND",
        "drop partition (d = '2024-01')": "PARTITIONS_NOT_FOUND",
        "drop partition (c = 2)": "must match the partition spec",
        f"add partition ({whole.format('new')})": "INSERT them",
    }.items():
        with pytest.raises(AnalysisException, match=message) as raised:
            session.sql(f"alter table {there} {statement}")
        noted = f"TRUNCATE TABLE {there} PARTITION" in str(getattr(raised.value, "__notes__", ""))
        assert noted is (message == "must match the partition spec")
    session.sql(f"alter table {there} drop if exists partition ({whole.format('other')})")
    assert running.table(name).status().log_tail == tail
    session.sql(f"alter table {there} drop partition ({whole.format('it/s=a-b').replace('-1.5', '-1.50')})")
    assert (shown(), session.table(there).select("x", "s").collect()) == ([second], [(1, None)])
    session.sql(f"truncate table {there} partition (c = '2.00', d_month = '2024-02', s = null, x_bucket = 0)")
    assert (shown(), session.table(there).count()) == ([], 0)
    assert running.table(name).status().log_tail == tail + 2
    session.sql(f"insert into {there} select c, date'2024-01-02', 's', 1 from values (1), (2), (3) as v(c)")
    several = ", ".join(f"partition ({whole.format('s').replace('-1.5', each)})" for each in ("1.00", "3.00"))
    session.sql(f"alter table {there} drop {several}")
    assert [row.c for row in session.table(there).collect()] == [2]
    assert running.table(name).status().log_tail == tail + 4, "one entry for both"
    session.sql(
        f"insert into {there} select c, date'2024-02-02', s, 1 from values (2, 's'), (2, 't'), (3, 't') as v(c, s)"
    )
    with pytest.raises(AnalysisException, match="no partition with these values: SHOW PARTITIONS names"):
        session.sql(f"truncate table {there} partition (s = 'nowhere')")
    session.sql(f"truncate table {there} partition (d_month = '2024-02', c = 2)")
    assert shown() == ["c=2.00/d_month=2024-01/s=s/x_bucket=0", "c=3.00/d_month=2024-02/s=t/x_bucket=0"]
    session.sql(f"truncate table {there} partition (x_bucket = 0)")
    assert (shown(), session.table(there).count()) == ([], 0)
    assert running.table(name).status().log_tail == tail + 7, "one entry for all partitions that have the values"
    session.sql(f"drop table {there}")


def test_procedures_do_what_the_client_does(session: SparkSession, running: LocalCluster, name: str) -> None:
    table = running.create_table(name, "k bigint not null, p int", order_by="k", partition_by="p", wait_replicas=2)
    for first in (0, 2, 4):
        table.insert({"k": [first, first + 1], "p": [1, -2]})

    def call(procedure: str) -> dict[str, object]:
        (row,) = session.sql(f"call replitree.{procedure}").collect()
        return dict(row.asDict())

    merged = call(f"optimize('{name}', '1', final => true)")
    assert (merged["finished"], merged["reason"]) == (True, "")
    assert "merge" in {each.kind for each in table.history()}
    # A merge that begins by itself would be an entry of the log, too.
    table.pause_merges()
    frozen = call(f"default.freeze('default.{name}', name => 'before', note => 'it''s mine')")
    assert (frozen["name"], frozen["rows"]) == ("before", 6)
    kept, _ = table.frozen_everywhere()
    assert [(each.name, each.note, each.path) for each in kept] == [("before", "it's mine", frozen["path"])]
    dropped = call(f"drop_partition(table => 'replitree.default.{name}', partition => '~m2')")
    assert dropped["index"] == table.status().log_tail - 1
    assert session.table(f"replitree.default.{name}").where("p = -2").count() == 0
    assert call(f"detach_partition('{name}', '1')")["index"] == table.status().log_tail - 1
    assert session.table(f"replitree.default.{name}").count() == 0
    listed = {row.procedure_name for row in session.sql("show procedures in replitree").collect()}
    assert listed == {"optimize", "freeze", "drop_partition", "detach_partition", "tag", "delete_tag", "restore_to"}
    table.insert({"k": [1], "p": [1]})
    for wrong, message in {
        f"drop_partition('{name}', '7')": "has no partition '7': it has '1'",
        f"drop_partition('{name}', null)": "needs a partition",
        "optimize('x.y')": "namespace default",
        "optimize('nowhere')": "does not exist",
        f"snapshot('{name}')": "did you mean freeze",
        "nothing()": "there are optimize, freeze",
        "other.optimize('x')": "SCHEMA_NOT_FOUND",
        f"optimize('{name}', colour => 'red')": "Did you mean",
        f"freeze('{name}', 'a b')": "use letters",
    }.items():
        with pytest.raises(AnalysisException, match=message):
            session.sql(f"call replitree.{wrong}")
    running.drop_table(name)


def test_defaults_are_what_inserts_get_that_leave_columns_out(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    there = f"replitree.default.{name}"
    session.sql(
        f"create table {there} (k bigint not null, s string default 'it\\'s', n int not null default -7,"
        " t timestamp default timestamp'2024-01-31 10:00:00')"
    )
    assert running.table(name).definition.schema_version == 1
    session.sql(f"insert into {there} (k) values (1)")
    session.sql(f"alter table {there} add column c decimal(5, 2) default 1.5 after k")
    session.sql(f"alter table {there} alter column s set default 'new'")
    session.sql(f"alter table {there} alter column t drop default")
    session.sql(f"alter table {there} alter column n drop not null")
    session.range(2, 3).selectExpr("id as k").writeTo(there).append()
    session.sql(f"insert into {there} (k, n, c) values (3, null, default)")
    session.sql(f"update {there} set n = default where k = 3")
    session.sql(f"merge into {there} using (select 4L as id) on k = id when not matched then insert (k) values (id)")
    found = session.sql(f"select k, cast(c as string), s, n, t is null from {there} order by k").collect()
    assert [tuple(row) for row in found] == [
        (1, "1.50", "it's", -7, False),
        (2, "1.50", "new", -7, True),
        (3, "1.50", "new", -7, True),
        (4, "1.50", "new", -7, True),
    ]
    for wrong, message in {
        f"alter table {there} add column z int not null": "needs a default",
        f"alter table {there} add column z int comment 'no'": "without comments",
        f"alter table {there} alter column s set default current_user()": "a DEFAULT is one constant",
        f"create table {there}_2 (d date default current_date())": "give one constant",
        f"create table {there}_2 (s string default 'it''s')": "for a quote in a text",
        f"create table {there}_2 (a array<int> default array(1))": "leave the default out",
        f"create table {there}_2 (k bigint generated always as identity)": "writers share no counter",
        f"create table {there}_2 (t timestamp, d date generated always as (cast(t as date)))": "column d can't be generated",
    }.items():
        with pytest.raises(AnalysisException, match=message):
            session.sql(wrong)
    assert f"{name}_2" not in running.tables()
    session.sql(f"drop table {there}")


def test_tag_shows_its_version_in_sql_and_in_both_readers(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    there, tag = f"replitree.default.{name}", "before-load"
    session.sql(f"create table {there} (k bigint not null) tblproperties (keep = '7 days')")
    assert running.table(name).definition.keep == "7d"
    session.sql(f"insert into {there} values (0), (1)")
    running.table(name).tag(tag)
    session.sql(f"insert into {there} values (2)")
    assert session.sql(f"select count(*) from {there} version as of '{tag}'").collect()[0][0] == 2
    assert session.table(there).count() == 3
    assert session.read.option("versionAsOf", tag).table(there).count() == 2
    assert session.read.format("replitree").options(url=str(running.folder), versionAsOf=tag).load(name).count() == 2
    with pytest.raises(AnalysisException, match="has no tag 'yesterday'; it has before-load"):
        session.sql(f"select * from {there} version as of 'yesterday'").collect()
    assert session.sql(f"call replitree.tag('{name}', 'later')").collect()[0]["rows"] == 3
    restored = session.sql(f"call replitree.restore_to('{name}', version => '{tag}')").collect()[0]
    assert (restored["rows"], session.table(there).count()) == (2, 2)
    said = session.sql(f"select command from {there}.history order by index desc limit 1").collect()[0][0]
    assert said == f"restore_to {running.table(name).tags()[0].index}"
    assert session.sql(f"select count(*) from {there} version as of 'later'").collect()[0][0] == 3
    assert session.sql(f"call replitree.delete_tag('{name}', 'later')").collect()[0]["name"] == "later"
    session.sql(f"drop table {there}")


def test_properties_of_a_table_are_changed_and_taken_back(
    session: SparkSession, running: LocalCluster, name: str
) -> None:
    there = f"replitree.default.{name}"
    session.sql(f"create table {there} (k bigint) tblproperties (keep = '7 days')")

    def kept() -> str:
        shown = {row["key"]: str(row["value"]) for row in session.sql(f"show tblproperties {there}").collect()}
        return shown.get("keep", "")

    before = kept()
    session.sql(f"alter table {there} set tblproperties ('keep' = '36h')")
    assert (before, kept()) == ("7d", "36h")
    session.sql(f"alter table {there} unset tblproperties ('keep')")
    assert kept() == ""
    for properties, said in (("'parts_max' = '9'", "fill another table"), ("'keep' = 'long'", "7 days")):
        with pytest.raises(Exception, match=said):
            session.sql(f"alter table {there} set tblproperties ({properties})")
    assert running.table(name).status().log_tail == 2, "each change is one entry"
    session.sql(f"drop table {there}")


def test_final_reads_leave_deleted_keys_out(session: SparkSession, running: LocalCluster, name: str) -> None:
    named = f"replitree.default.{name}"
    create = (
        f"create table {named} (k bigint, s string, w int, gone boolean)"
        " tblproperties (order_by = 'k', policy = 'replacing(w, {})')"
    )
    with pytest.raises(AnalysisException, match="a delete marker is a boolean or a whole number, 's' is not"):
        session.sql(create.format("s"))
    session.sql(create.format("gone"))
    table = running.table(name)
    assert table.definition.policy.text == "replacing(w, gone)"
    shown = session.sql(f"show tblproperties {named}").collect()
    assert ("policy", "replacing(w, gone)") in [tuple(row) for row in shown]
    session.sql(f"insert into {named} values (1, 'a', 1, null), (2, 'b', 1, false), (3, 'c', 1, true)")
    session.sql(f"insert into {named} values (2, null, 2, true), (4, 'd', 1, null)")
    wanted = [(1, "a"), (4, "d")]
    final = session.read.option("final", True).table(named)
    assert sorted((r["k"], r["s"]) for r in final.collect()) == wanted
    assert (final.select("s").count(), final.where("k < 3").count(), final.where("gone").count()) == (2, 1, 0)
    source = session.read.format("replitree").option("url", str(running.folder)).option("final", "true").load(name)
    assert sorted((r["k"], r["s"]) for r in source.collect()) == wanted
    assert sorted(map(tuple, table.to_df(session, ["k", "s"], final=True).collect())) == wanted
    assert sorted(map(tuple, table.to_df(session, ["k", "s"], "upper(s) <> 'A'", final=True).collect())) == wanted[1:]
    assert table.optimize(final=True).finished
    # At the level eventual another replica may answer, which has not merged yet.
    merged = f"select k, w, gone from {named} with (level = 'linearizable') order by k"
    assert [tuple(r) for r in session.sql(merged).collect()] == [
        (1, 1, None),
        (2, 2, True),
        (3, 1, True),
        (4, 1, None),
    ]
    assert sorted(map(tuple, table.to_df(session, ["k", "s"], final=True).collect())) == wanted
    running.drop_table(name)
