"""Statements that change rows of a table in a bucket: Spark's tasks put what they write, and no replica has a row of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark.session.catalog import CATALOG
from tests.spark.conftest import SharedSpark, uploads_left
from tests.spark.drivers import kill_driver_when
from tests.spark.stored import Stored, closed_gate, copies, let_uploads_age, without_credentials
from tests.storage.objects.seaweed import KEYS
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

ROWS = 3_000
Found = dict[int, tuple[int, str]]

LETTING_GO_S = 180.0
"""How long replicas may take until the last one has let go of what left the table, also on a busy machine."""

UPDATE = "update {t} set s = 'new' where k % 2 = 0 and k < (select count(*) from {t} where g = 0)"
DELETE = "delete from {t} where k in (select id from range(10, 20))"
MERGE = """merge into {t} using (select id from range(2500, 3500)) on k = id
    when matched then update set g = 5, s = 'moved'
    when not matched then insert (k, g, s) values (id, 6, 'put')"""


@pytest.fixture(scope="module")
def session(shared_spark: SharedSpark, credentials: Path, stored_cluster: LocalCluster) -> Iterator[SparkSession]:
    """Spark whose executors have the store's credentials; its driver has none, and reads through a replica."""
    without = {f"spark.executorEnv.{name}": "" for name in KEYS}
    with shared_spark.with_keys(credentials, without | {f"{CATALOG}.url": str(stored_cluster.folder)}) as made:
        made.conf.set("spark.sql.shuffle.partitions", "2")
        yield made


@pytest.fixture
def table(session: SparkSession, stored_cluster: LocalCluster, url: str) -> Iterator[Table]:
    """Keys 0 to 2,999, a thousand in each of three partitions, which tasks have put."""
    name = f"s_{len(stored_cluster.tables())}"
    made = stored_cluster.create_table(
        name, "k bigint not null, g int, s string", order_by="k", partition_by="g", storage=url, wait_replicas=2
    )
    made.insert(session.range(0, ROWS, 1, 1).selectExpr("id as k", "cast(id div 1000 as int) as g", "'old' as s"))
    yield made
    stored_cluster.drop_table(name)


def found(table: Table) -> Found:
    read = table.to_arrow(level="linearizable").to_pylist()
    assert len({row["k"] for row in read}) == len(read)
    return {row["k"]: (row["g"], row["s"]) for row in read}


def start() -> Found:
    return {k: (k // 1000, "old") for k in range(ROWS)}


@contextmanager
def through(session: SparkSession, way: str) -> Iterator[None]:
    session.conf.set(f"{CATALOG}.through", way)
    try:
        yield
    finally:
        session.conf.unset(f"{CATALOG}.through")


def parts(table: Table) -> set[str]:
    return {part.part for part in table.snapshot(level="linearizable").parts}


def settled(table: Table, stored: Stored, before: set[str]) -> None:
    """Wait until the store has exactly what parts of now and those before have; frames keep the latter for a while."""

    def only_parts_own() -> bool:
        # Now, each time: a merge may come meanwhile, and its result owns another share.
        now = {share for part in table.snapshot(level="linearizable").parts for share in part.manifest.shares}
        return stored.attempts() == () and now <= stored.owned() <= now | before

    wait_for(only_parts_own, "only parts own shares", LETTING_GO_S)
    wait_for(lambda: stored.shares() == stored.owned(), "of the others the objects are gone", LETTING_GO_S)


def test_what_statements_write_is_put_by_their_tasks(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    want, shares, before = start(), set[str](), set[str]()
    for statement in (UPDATE, DELETE, MERGE):
        before |= parts(table)
        shares |= stored.owned()
        with through(session, "store"):
            session.sql(statement.format(t=f"replitree.default.{table.name}"))
        of_new = [path for path in copies(stored_cluster, table) if path.parent.name not in before]
        # What the statement reads the driver gets from a replica, as it has no credentials.
        assert of_new == [], f"no replica has had a row that it has written: {statement}"
    want |= dict.fromkeys(range(0, 1000, 2), (0, "new"))
    want = {k: row for k, row in want.items() if k not in range(10, 20)}
    want |= dict.fromkeys(range(2500, 3000), (5, "moved")) | dict.fromkeys(range(3000, 3500), (6, "put"))
    assert found(table) == want
    settled(table, stored, shares)
    wait_for(lambda: uploads_left(stored_cluster, table) == [], "its upload is gone")


def test_without_credentials_the_rows_of_a_statement_go_through_a_replica(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored, credentials: Path
) -> None:
    shares = stored.owned()
    statement = f"update replitree.default.{table.name} set s = 'new' where k % 500 = 1"
    with without_credentials(credentials):
        with (
            through(session, "store"),
            pytest.raises(PySparkException, match=r"UPDATE has changed nothing: .*credentials"),
        ):
            session.sql(statement)
        assert found(table) == start()
        session.sql(statement)
    assert found(table) == start() | {k: (k // 1000, "new") for k in range(1, ROWS, 500)}
    settled(table, stored, shares)
    wait_for(lambda: uploads_left(stored_cluster, table) == [], "its upload is gone")


def test_a_statement_that_another_change_comes_before_leaves_nothing(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    url, name, shares = str(stored_cluster.folder), table.name, stored.owned()

    def read(key: int) -> int:
        import replitree

        with replitree.connect(url) as other:
            other.table(name).update({"s": "'theirs'"}, "k = 7")
        return key

    session.udf.register("meanwhile", read, "bigint")
    with pytest.raises(PySparkException, match="MERGE has changed nothing, run it again"):
        session.sql(
            f"merge into replitree.default.{name} using (select meanwhile(id) as id from range(1, 2, 1, 1)) on k = id"
            " when matched then update set s = 'ours'"
        )
    assert found(table) == start() | {7: (0, "theirs")}
    settled(table, stored, shares)
    wait_for(lambda: uploads_left(stored_cluster, table) == [], "its upload is gone")


PLANNER = """#!{python}
import pathlib, runpy, sys
if sys.argv[2] == "replitree.spark.catalog":
    from replitree.spark.catalog.rewriting import Rewriting
    Rewriting.commit = lambda *_: pathlib.Path({gate!r}).read_bytes()  # which ends when the test has ended
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""A Python whose planner never commits."""

DRIVER = """
import sys
from replitree.spark import spark_session
folder, table, credentials, python = sys.argv[1:]
session = spark_session(
    master="local[2]",
    conf={
        "spark.driver.memory": "512m",
        "spark.executorEnv.REPLITREE_STORE_CREDENTIALS": credentials,
        "spark.sql.catalog.replitree.url": folder,
        "spark.sql.catalog.replitree.python": python,
        "spark.sql.catalog.replitree.through": "store",
    },
)
session.sql(f"update replitree.default.{table} set s = 'new' where k % 100 = 1")
"""


def test_a_driver_that_is_killed_while_it_changes_rows_leaves_nothing_for_good(
    stored_cluster: LocalCluster, table: Table, stored: Stored, credentials: Path, tmp_path: Path
) -> None:
    shares, python = stored.owned(), tmp_path / "python"
    with closed_gate(tmp_path) as gate:
        python.write_text(PLANNER.format(python=sys.executable, gate=str(gate)))
        python.chmod(0o755)
        kill_driver_when(
            lambda: len(set(stored.attempts()) & stored.shares()) == 3,
            "tasks have put",
            DRIVER,
            stored_cluster.folder,
            table.name,
            credentials,
            python,
        )
    assert stored.owned() == shares
    let_uploads_age(stored_cluster, table)
    wait_for(lambda: stored.attempts() == (), "what was put in vain is given up", 90)
    assert found(table) == start()
    settled(table, stored, shares)
