"""`TIMESTAMP AS OF` beyond the log that coordination keeps, after a restart of the replica."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session.catalog import CATALOG_CLASS
from tests.client.test_times_system import SETTINGS
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


def test_timestamp_as_of_is_answered_when_the_log_was_cleaned(spark: SparkSession, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", 1, durable=False, settings=SETTINGS) as running:
        spark.conf.set("spark.sql.catalog.kept", CATALOG_CLASS)
        spark.conf.set("spark.sql.catalog.kept.url", str(running.folder))
        spark.sql("create table kept.default.t (k bigint not null) tblproperties (order_by = 'k', keep = '7 days')")
        spark.sql("insert into kept.default.t values (1), (2)")
        # TIMESTAMP AS OF has no zone of its own: the session's is UTC.
        time = spark.sql("select time from kept.default.t.history where kind = 'get'").collect()[0][0].isoformat()
        spark.sql("delete from kept.default.t where k = 1")
        for key in range(10):
            spark.sql(f"insert into kept.default.t values ({10 + key})")

        def is_cleaned() -> bool:
            # Replicas remember entries that ZooKeeper has forgotten, but not their ids.
            return (
                int(spark.sql("select min(index) from kept.default.t.history where size(ids) > 0").collect()[0][0]) > 2
            )

        wait_for(is_cleaned, "the log is cleaned", 60.0)
        for name in running.names:
            running.kill(name)
            running.start(name)
        then = f"select k from kept.default.t timestamp as of '{time}' order by k"
        assert [row.k for row in spark.sql(then).collect()] == [1, 2]
        read = spark.read.format("replitree").options(url=str(running.folder), timestampAsOf=time)
        assert read.load("t").count() == 2
        assert spark.table("kept.default.t").count() == 11
