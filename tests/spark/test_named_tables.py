"""`CREATE TABLE … USING replitree` in Spark's own catalog: it names a table of a cluster, or says what to do instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark.session.catalog import CATALOG, JAR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

CHILD_S_MAX = 300.0


@pytest.fixture
def table(running: LocalCluster, name: str) -> Iterator[Table]:
    """A table with two rows."""
    made = running.create_table(name, "k bigint not null, s string", order_by="k", feed="1 day", wait_replicas=2)
    made.insert({"k": [1, 2], "s": ["a", "b"]})
    yield made
    running.drop_table(name)


@pytest.fixture
def apart(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A database of Spark's own catalog."""
    spark.sql(f"create database spark_catalog.apart location '{tmp_path / 'apart'}'")
    yield "spark_catalog.apart"
    spark.sql("drop database spark_catalog.apart cascade")


def rows(spark: SparkSession, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


@pytest.mark.parametrize("columns", ["", "(k bigint, s string)"])
def test_a_table_of_sparks_catalog_names_one_of_a_cluster(
    spark: SparkSession, running: LocalCluster, table: Table, apart: str, columns: str
) -> None:
    there = f"{apart}.events"
    spark.sql(f"create table {there} {columns} using replitree options (url '{running.folder}', table '{table.name}')")
    assert rows(spark, f"select * from {there} order by k") == [(1, "a"), (2, "b")]
    assert f"'table' = '{table.name}'" in str(rows(spark, f"show create table {there}")[0][0])
    spark.sql(f"insert into {there} values (3, 'c')")
    assert rows(spark, f"select k from {there} order by k") == [(1,), (2,), (3,)]
    assert rows(spark, f"select k from {there} with (asOf = '1') order by k") == [(1,), (2,)]
    spark.sql(f"insert overwrite {there} select k, 'new' from {there} where k > 1")
    table.alter("ADD COLUMN n int DEFAULT 7")
    assert rows(spark, f"select * from {there} order by k") == [(2, "new", 7), (3, "new", 7)]
    # The table that it names is still there.
    spark.sql(f"drop table {there}")
    assert table.scan().count() == 2


def test_a_table_that_names_none_is_refused_at_once_with_what_to_do(
    spark: SparkSession, running: LocalCluster, table: Table, apart: str
) -> None:
    there, options = f"{apart}.lost", f"options (url '{running.folder}', table '{table.name}')"
    for statement, message in {
        f"create table {there} (k bigint) using replitree": r"OPTIONS \(url .* CREATE TABLE replitree\.default\.<name>",
        f"create table {there} using replitree": "USE replitree.default before",
        f"create table {there} using replitree as select 1L as k": "USE replitree.default before",
        f"create table {there} (k bigint, s string) using replitree {options} partitioned by (s)": "without columns and",
        f"create table {there} (k int) using replitree {options}": "avoid specifying the schema",
        f"create table {there} using replitree {options.replace(table.name, 'nowhere')}": "'nowhere' does not exist",
    }.items():
        with pytest.raises(AnalysisException, match=message):
            spark.sql(statement)
    # Spark lists the temporary views of the session, too.
    assert [there for there, _, is_temporary in rows(spark, f"show tables in {apart}") if not is_temporary] == []


def child(program: str, *arguments: object) -> dict[str, str]:
    """Run a program of Spark in a process of its own; return what it prints last, and its warnings under "log"."""
    begin = "import json, logging, sys\nlogging.basicConfig(format='LOG %(message)s')\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + program, *map(str, arguments)],
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=CHILD_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    logged = [line for line in done.stderr.splitlines() if line.startswith("LOG ") and "catalog replitree" in line]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found | {"log": "\n".join(logged)}


WITHOUT_JAR = """
from replitree.java import java_home
from replitree.spark.session.session import set_worker_python
import os
set_worker_python()
os.environ["JAVA_HOME"] = str(java_home())
from pyspark.sql import SparkSession
from tests.spark.stream_queries import finished
folder, url, table = sys.argv[1:]
made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.warehouse.dir", folder)
spark = made.getOrCreate()
said = {}
for name, statement in {
    "named": f"create table named using replitree options (url '{url}', table '{table}')",
    "listed": "create table listed (k bigint, s string) using replitree",
    "read": "select * from listed",
    "view": f"create temporary view v using replitree options (url '{url}', table '{table}')",
    "rows": "select count(*) from v",
}.items():
    try:
        said[name] = str(spark.sql(statement).collect())
    except Exception as error:
        said[name] = str(error)
stream = spark.readStream.format("replitree").option("url", url).option("table", table).load()
writer = stream.writeStream.format("memory").queryName("came").option("checkpointLocation", folder + "/checkpoint")
finished(writer.trigger(availableNow=True).start)
said["stream"] = str(spark.table("came").count())
print(json.dumps(said))
"""


def test_a_session_without_the_jar_says_so_as_soon_as_spark_asks(
    running: LocalCluster, table: Table, tmp_path: Path
) -> None:
    said = child(WITHOUT_JAR, tmp_path, running.folder, table.name)
    # Of listed columns Spark asks no source in Python: the first read is refused.
    for name in ("named", "read"):
        assert "replitree.spark.spark_session, or with the settings spark.jars and" in said[name], said[name]
    assert (said["listed"], said["view"], said["rows"]) == ("[]", "[]", "[Row(count(1)=2)]")
    assert said["stream"] == "2"


BROKEN_JAR = f"""
from pathlib import Path
from replitree.spark import spark_session, sql_views
from replitree.spark.session import catalog
import replitree
catalog.JAR = Path(sys.argv[1])
spark = spark_session(master="local[1]", conf={{"{CATALOG}.url": sys.argv[2]}})
connection = replitree.connect(sys.argv[2])
table = connection.table(sys.argv[3])
said = {{"to_df": str(table.to_df(spark).count())}}
said["format"] = str(spark.read.format("replitree").option("url", sys.argv[2]).load(sys.argv[3]).count())
sql_views(spark, connection, (sys.argv[3],))
said["views"] = str(spark.sql(f"select count(*) from {{sys.argv[3]}}").first()[0])
try:
    said["catalog"] = str(spark.sql(f"select * from replitree.default.{{sys.argv[3]}}"))
except Exception as error:
    said["catalog"] = str(error)
print(json.dumps(said))
"""


def test_a_jar_that_does_not_link_falls_back_with_one_clear_line(
    running: LocalCluster, table: Table, tmp_path: Path
) -> None:
    broken = tmp_path / JAR.name
    with zipfile.ZipFile(JAR) as found, zipfile.ZipFile(broken, "w") as made:
        for entry in found.namelist():
            if not entry.endswith("/SnapshotScan.class"):
                made.writestr(entry, found.read(entry))
    said = child(BROKEN_JAR, broken, running.folder, table.name)
    assert (said["to_df"], said["format"], said["views"]) == ("2", "2", "2")
    assert "spark_catalog requires a single-part namespace" in said["catalog"]
    (line,) = said["log"].splitlines()
    assert "SnapshotScan" in line
    assert line.endswith("reads tables by to_df, format and sql_views only")
