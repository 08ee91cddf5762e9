"""What Spark's catalog says of sharded tables, without a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.errors import BadInput
from replitree.spark.catalog.definitions import create
from replitree.spark.catalog.requests import PlannerRequest
from tests.replica.inprocess import InProcessCluster


def test_a_sharded_table_is_not_created_in_spark_sql(tmp_path: Path) -> None:
    properties = {"order_by": "k", "shard_by": "k", "shards": "3"}
    request = PlannerRequest(1, "create", table="d", columns="k BIGINT NOT NULL", properties=properties)
    cluster = InProcessCluster(tmp_path, 1)
    with cluster.connect() as connection:
        with pytest.raises(BadInput, match="can't be created in Spark SQL yet"):
            create(connection, request)
        assert connection.tables() == ()
    cluster.close()
