"""Statements about partitions: each is one entry of the log, and leaves the other partitions alone."""

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
