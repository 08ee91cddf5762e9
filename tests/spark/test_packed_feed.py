"""Spark reads changes whose parts lie in packs: by the catalog and by the format, the rows of the client."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session.catalog import CATALOG
from replitree_bench.table.packing import FOLDERS, PACKS
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INSERTS = 120
FEW = 20


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in frame.collect())


def folders(cluster: LocalCluster) -> int:
    return len([*(cluster.folder / "r1" / "data" / "tables").glob("*/parts/*")])


@pytest.mark.system
def test_changes_in_packs_have_the_rows_of_the_client_by_the_catalog_and_by_the_format(
    tmp_path: Path, spark: SparkSession
) -> None:
    with LocalCluster(tmp_path, 1, durable=False, settings=FOLDERS) as cluster:
        table = cluster.create_table("packed", "k bigint not null, s string, l array<int>", order_by="k", feed="1 day")
        for key in range(INSERTS):
            table.insert({"k": [key, key], "s": [f"s{key}", None], "l": [[key, None], None]})
        table.optimize(final=True)
        table.update({"s": "concat(s, 'x')"}, "k < 60")
        table.delete("k % 2 = 0")
        wait_for(lambda: (table.status().replicas[0].old_parts or 0) >= INSERTS + 2, "the parts have left the table")
    with LocalCluster(tmp_path, 1, durable=False, settings=PACKS) as cluster:
        table = cluster.table("packed")
        wait_for(lambda: (table.status().replicas[0].packed_parts or 0) >= INSERTS + 2, "all old parts are packed")
        wait_for(lambda: folders(cluster) < FEW, "their folders are gone")
        spark.conf.set(f"{CATALOG}.url", str(cluster.folder))
        # Each reader has other entries first, so that it meets packs, and no folders that another one has left.
        half = INSERTS // 2
        by_catalog = counted(
            spark.sql(f"SELECT * FROM replitree.default.packed CHANGES FROM VERSION 0 TO VERSION {half - 1}")
        )
        assert half <= folders(cluster) < half + FEW, "those of these entries are unpacked"
        source = spark.read.format("replitree").options(url=str(cluster.folder), readChangeFeed="true")
        by_format = counted(source.option("startingVersion", half).load("packed"))
        with table.changes(0) as changes:
            wanted = counted(changes.to_df(spark))
        assert by_catalog + by_format == wanted
        assert sum(wanted.values()) == 2 * INSERTS + 2 * 60 + INSERTS
        # Once more from the folders.
        assert counted(spark.sql("SELECT * FROM replitree.default.packed CHANGES FROM VERSION 0")) == wanted
