"""What Spark's planner does with a scan of the catalog."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session.catalog import CATALOG, JAR

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


def test_two_scans_with_one_condition_in_another_order_are_done_once(
    spark: SparkSession, running: LocalCluster, name: str
) -> None:
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    table = running.create_table(name, "k bigint not null, v int", order_by="k")
    table.insert({"k": range(100), "v": [k % 7 for k in range(100)]})
    grouped = f"select v, count(*) n from replitree.default.{name} where {{}} group by v"
    left, right = grouped.format("(k < 9 or v = 5) and k > 3"), grouped.format("k > 3 and (v = 5 or k < 9)")
    frame = spark.sql(f"select * from ({left}) a full join ({right}) b on a.v = b.v")
    found = frame.collect()
    assert len(found) == 5
    assert all(row[0] == row[2] and row[1] == row[3] for row in found)
    assert "ReusedExchange" in frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 - as above
    running.drop_table(name)


def test_java_finds_nothing_wrong_in_any_class_of_the_jar(spark: SparkSession) -> None:
    with zipfile.ZipFile(JAR) as found:
        classes = [
            name.removesuffix(".class").replace("/", ".") for name in found.namelist() if name.endswith(".class")
        ]
    utils = spark.sparkContext._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]  # noqa: SLF001 - as above
    assert len(classes) > 40
    for name in classes:
        # It checks the code of a class when it initializes it.
        assert utils.classForName(name, True, False).getName() == name
