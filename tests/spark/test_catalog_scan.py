"""What Spark's planner does with a scan of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session.catalog import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


def test_scan_sends_the_configuration_of_its_readers_once(
    spark: SparkSession, running: LocalCluster, name: str
) -> None:
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    table = running.create_table(name, "k bigint not null", order_by="k")
    table.insert({"k": range(10)})
    frame = spark.sql(f"select * from replitree.default.{name} where k > 3")
    scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head().scan()  # noqa: SLF001 - Python has it not
    # Two factories are equal only when they have the same broadcast.
    assert scan.createReaderFactory().equals(scan.createReaderFactory())
    running.drop_table(name)
