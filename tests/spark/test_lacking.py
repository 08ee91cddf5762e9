"""Spark's reads while all replicas lack a part: only those fail that need it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from replitree.cli.tables.query_tables import conditions_of
from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import RowsUnavailable
from replitree.spark.read.views import sql_views
from tests.client.test_lacking import cluster, first_of, lose, table
from tests.replica.inprocess import TOKEN, InProcessCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cluster", "table"]

pytestmark = pytest.mark.system


@pytest.mark.usefixtures("spark")
def test_frames_and_queries_fail_only_when_they_need_a_part_that_is_lacking(
    spark: SparkSession,
    cluster: InProcessCluster,
    table: Table,
) -> None:
    part = first_of(cluster, 1994)
    for node in cluster.nodes:
        lose(node, part)
    assert table.to_df(spark, where="day >= date'1995-01-01'").count() == 8
    with pytest.raises(RowsUnavailable, match=part):
        table.to_df(spark)
    query = "select count(*) from t where day >= date'1995-01-01' and k > 0"
    connection = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(cluster.shared))
    try:
        sql_views(spark, connection, ("t",), conditions=conditions_of(query))
        assert spark.sql(query).first()[0] == 8  # type: ignore[index]
        begun = time.monotonic()
        with pytest.raises(RowsUnavailable, match=f"{part}.*reads that need none of partition 1994 still work"):
            sql_views(spark, connection, ("t",), conditions=conditions_of("select count(*) from t where k = 1994"))
        assert time.monotonic() - begun < 10.0
    finally:
        connection.close()
