"""What Spark's tasks insert into a source of materialised views comes to their targets, too, in the same commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from replitree.client.cluster import LocalCluster
from replitree.errors import BadInput
from tests.spark.test_write import save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


def test_what_tasks_write_is_in_the_target_and_what_overwrites_is_refused(
    spark: SparkSession, running: LocalCluster
) -> None:
    running.create_table("viewed", "k bigint not null, s string", order_by="k")
    running.create_table("viewed_sums", "s string, n bigint, v bigint", order_by="s", policy="summing(n, v)")
    table, sums = running.table("viewed"), running.table("viewed_sums")
    frame = spark.range(0, 900, 1, 4).selectExpr("id as k", "concat('s', id % 3) as s")
    table.insert(frame.where("k < 300"))
    table.create_view("v", "viewed_sums", {"s": "s", "n": "count(*)", "v": "sum(k)"}, group_by="s")
    table.insert(frame.where("k >= 300 and k < 600"), token="second")
    assert table.insert(frame.where("k >= 300 and k < 600"), token="second").outcome == "duplicate"
    save(frame.where("k >= 600"), running, table)
    found = sums.to_arrow(level="linearizable").to_pylist()
    total = {text: sum(row["v"] for row in found if row["s"] == text) for text in ("s0", "s1", "s2")}
    assert total == {f"s{rest}": sum(range(rest, 900, 3)) for rest in range(3)}
    assert sum(row["n"] for row in found) == 900
    with pytest.raises(BadInput, match="an insert that overwrites would leave"):
        table.insert(frame, overwrite="all")
    with pytest.raises(PySparkException, match="an insert that overwrites would leave"):
        save(frame, running, table, mode="overwrite")
    assert table.to_arrow(["k"], level="linearizable").num_rows == 900
    table.drop_view("v")
    running.drop_table("viewed_sums")
    running.drop_table("viewed")
