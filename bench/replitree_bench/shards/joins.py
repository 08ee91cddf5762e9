"""Joins of two sharded tables with equal buckets by Spark: without a shuffle, and with one, in turn.

Keys; the peer of each is the same statement with Spark's ``spark.sql.sources.v2.bucketing.enabled`` set to false::

    join_s        a join on the shard key, every row of one table with one of the other; the sum of a column of each
    grouped_s     the same, with a sum for each of `KINDS` values of a column
    rows          of each table

Both ways give the same rows, the plans of the first have no exchange below the join, and those of the second have two.
Otherwise the benchmark fails.  No table is broadcast.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replitree.spark.session.catalog import CATALOG
from replitree_bench.kit.report import Measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.cluster import LocalCluster

ROWS = 3_000_000
INSERTS = 3
"""Inserts that fill a table."""

SHARDS, BUCKETS = 2, 64
KINDS = 100
BUCKETING = "spark.sql.sources.v2.bucketing.enabled"
FROM = "from replitree.default.join_a a join replitree.default.join_b b on a.k = b.k"
STATEMENTS = {
    "join_s": f"select count(*), sum(a.v), sum(b.w) {FROM}",
    "grouped_s": f"select a.kind, count(*), sum(a.v), sum(b.w) {FROM} group by a.kind",
}


class JoinBench:
    """Two sharded tables of one key each, whose rows meet one by one.

    Parameters
    ----------
    cluster
        Where they are made.
    spark
        Joins them.
    """

    def __init__(self, cluster: LocalCluster, spark: SparkSession) -> None:
        self._spark = spark
        spark.conf.set(f"{CATALOG}.url", str(cluster.folder))
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        made = {
            "join_a": "k bigint not null, kind bigint, v bigint",
            "join_b": "k bigint not null, w bigint",
        }
        for name, columns in made.items():
            table = cluster.create_table(name, columns, order_by="k", shard_by="k", shards=SHARDS, buckets=BUCKETS)
            for keys in np.array_split(np.arange(ROWS), INSERTS):
                table.insert(
                    pa.table({"k": keys, "kind": keys % KINDS, "v": keys * 3, "w": keys * 7}).select(table.schema.names)
                )

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Run each statement in both ways; who begins changes from round to round."""
        found: dict[str, Measured] = {"true": Measured(rows=ROWS), "false": Measured(rows=ROWS)}
        for key, statement in STATEMENTS.items():
            answers = []
            for way in ("true", "false") if number % 2 == 0 else ("false", "true"):
                self._spark.conf.set(BUCKETING, way)
                self._spark.sql(statement).collect()
                frame, begun = self._spark.sql(statement), time.perf_counter()
                answers.append(sorted(frame.collect()))
                found[way][key] = time.perf_counter() - begun
                exchanges = _exchanges_below_join(frame)
                if exchanges != (0 if way == "true" else 2):
                    raise AssertionError(f"with {BUCKETING}={way} there are {exchanges} exchanges below the join")
            if answers[0] != answers[1] or not answers[0]:
                raise AssertionError(f"both ways must give the same rows: {statement}")
        return found["true"], found["false"]


def _exchanges_below_join(frame: DataFrame) -> int:
    """Return how many exchanges the plan that was run has below its join."""
    plan: str = frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 - Python has no way to a plan's text
    final = plan.partition("Initial Plan")[0]
    return final.partition("SortMergeJoin")[2].count("Exchange hashpartitioning(k")
