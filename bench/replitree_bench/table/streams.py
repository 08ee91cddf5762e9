"""Streams: triggers with a table as source and sink, beside Spark's file source and Parquet sink on the same rows, in turn.

Keys; the peer of each but the last three is files to Parquet, or files to nothing, in the same session::

    trigger_ms            a trigger of `ROWS` rows from a table into a table, both by `format("replitree")`
    trigger_driver_ms     the same, into the table by `foreachBatch(into(table, via="driver"))`
    sink_ms               files into a table by `format("replitree")`
    sink_driver_ms        files into a table by `into(…, via="driver")`
    source_rows_per_s     triggers of `LARGE_ROWS` rows from a table to nothing (`noop`)
    seen_p50_ms           from the acknowledgement of an insert until `foreachBatch` has its rows; no peer
    idle_requests_per_s   requests to ZooKeeper of the whole cluster while a query waits; the peer: while none does; in
                          turn, and at rest: what the inserts before them leave to do is done
    rows                  of one trigger

A trigger is what Spark reports as `triggerExecution`; the median of a query's triggers counts, without the first `WARM_UPS`.
Every target has as many rows as the source afterwards.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from replitree_bench.kit.report import Measured, quantile
from replitree_bench.kit.systems import SCHEMA, make_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from replitree.client import LocalCluster, Table

BATCHES, ROWS = 20, 10_000
LARGE_BATCHES, LARGE_ROWS = 5, 1_000_000
WARM_UPS = 3
SEEN = 30
"""Inserts whose way into `foreachBatch` is measured in one round."""

SEEN_S_MAX = 60.0
IDLE_S = 30.0
"""How long an idle cluster is looked at with a query, and without one; `IDLE_TURNS` times."""

IDLE_TURNS = 2
REST_S = 10.0
"""A cluster of which no replica has committed anything for so long is at rest."""

REST_S_MAX = 180.0


class StreamBench:
    """Two tables with a change feed and the same rows as Parquet files: one of small batches, one of large ones.

    Parameters
    ----------
    cluster, spark
        The cluster, and a session that can read its tables.
    folder
        For files, checkpoints and what the peer writes.
    batches, rows, large_batches, large_rows
        How many batches, and the rows of each.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        spark: SparkSession,
        folder: Path,
        batches: int = BATCHES,
        rows: int = ROWS,
        large_batches: int = LARGE_BATCHES,
        large_rows: int = LARGE_ROWS,
    ) -> None:
        self._connection, self._spark, self._folder = cluster, spark, folder
        self._small = self._filled("small", batches, rows)
        self._large = self._filled("large", large_batches, large_rows)
        self._counts = {"small": batches * rows, "large": large_batches * large_rows}
        self._rows, self._large_rows = rows, large_rows
        self._numbers = itertools.count()

    def _filled(self, name: str, batches: int, rows: int) -> Table:
        import pyarrow.parquet as pq

        table = self._connection.create_table(name, SCHEMA, order_by="k", partition_by="month(d)", feed="7 days")
        files = self._folder / name
        files.mkdir()
        for number in range(batches):
            made = make_rows(number * rows, rows)
            table.insert(made)
            pq.write_table(made, files / f"{number:03}.parquet", compression="zstd")
        return table

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Run every query both ways, in turn; return ours and the peer's."""
        runs: list[tuple[str, Callable[[], float]]] = [
            ("ours trigger_ms", lambda: self._to_format(self._of_table(self._small))),
            ("ours trigger_driver_ms", lambda: self._by_driver(self._of_table(self._small))),
            ("peer trigger_ms", lambda: self._to_parquet(self._of_files("small"))),
            ("ours sink_ms", lambda: self._to_format(self._of_files("small"))),
            ("ours sink_driver_ms", lambda: self._by_driver(self._of_files("small"))),
            ("ours source_ms", lambda: self._to_nothing(self._of_table(self._large))),
            ("peer source_ms", lambda: self._to_nothing(self._of_files("large"))),
        ]
        found = {name: run() for name, run in (runs if number % 2 == 0 else runs[::-1])}
        ours: Measured = {
            name: found[f"ours {name}"] for name in ("trigger_ms", "trigger_driver_ms", "sink_ms", "sink_driver_ms")
        }
        theirs: Measured = dict.fromkeys(ours, found["peer trigger_ms"])
        ours["source_rows_per_s"] = self._large_rows / found["ours source_ms"] * 1000
        theirs["source_rows_per_s"] = self._large_rows / found["peer source_ms"] * 1000
        ours["seen_p50_ms"], ours["idle_requests_per_s"], theirs["idle_requests_per_s"] = self._seen()
        return ours | {"rows": self._rows}, theirs

    # --- sources and sinks ---

    def _of_table(self, table: Table) -> DataFrame:
        reader = self._spark.readStream.format("replitree").options(**self._options(table.name))
        return reader.option("startingVersion", "earliest").option("maxEntriesPerTrigger", 1).load()

    def _of_files(self, name: str) -> DataFrame:
        path = str(self._folder / name)
        reader = self._spark.readStream.schema(self._spark.read.parquet(path).schema)
        return reader.option("maxFilesPerTrigger", 1).parquet(path)

    def _options(self, table: str) -> dict[str, str]:
        return {"url": str(self._connection.folder), "table": table}

    def _target(self) -> Table:
        name = f"target_{next(self._numbers)}"
        return self._connection.create_table(name, SCHEMA, order_by="k", partition_by="month(d)")

    def _to_format(self, rows: DataFrame) -> float:
        target = self._target()
        took = self._run(rows.writeStream.format("replitree").options(**self._options(target.name)))
        return self._whole(took, target)

    def _by_driver(self, rows: DataFrame) -> float:
        from replitree.spark import into

        target = self._target()
        return self._whole(self._run(rows.writeStream.foreachBatch(into(target, via="driver"))), target)

    def _whole(self, took: float, target: Table) -> float:
        """Return the time, if all rows are there; the target is dropped."""
        found = target.scan().count()
        assert found == self._counts["small"], f"{found} rows of {self._counts['small']} arrived"
        self._connection.drop_table(target.name)
        return took

    def _to_parquet(self, rows: DataFrame) -> float:
        path = str(self._folder / f"written-{next(self._numbers)}")
        took = self._run(rows.writeStream.format("parquet").option("path", path))
        assert self._spark.read.parquet(path).count() == self._counts["small"]
        return took

    def _to_nothing(self, rows: DataFrame) -> float:
        return self._run(rows.writeStream.format("noop"))

    def _run(self, writer: DataStreamWriter) -> float:
        """Run a query to its end; return the median of its triggers, in milliseconds."""
        query = writer.option("checkpointLocation", self._checkpoint()).trigger(availableNow=True).start()
        query.awaitTermination()
        # A trigger that only notes where the query begins, or ends, adds no batch of rows.
        took = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows]
        assert len(took) > WARM_UPS, f"{len(took)} triggers had rows"
        return statistics.median(took[WARM_UPS:])

    def _checkpoint(self) -> str:
        return str(self._folder / f"checkpoint-{next(self._numbers)}")

    # --- from an insert to the driver ---

    def _seen(self) -> tuple[float, float, float]:
        """Return how long an insert takes to be seen, and the requests of an idle cluster with a query and without one."""
        name = f"seen_{next(self._numbers)}"
        table = self._connection.create_table(name, SCHEMA, order_by="k", feed="1 day")
        keys, arrived = set[int](), threading.Condition()

        def see(rows: DataFrame, _batch: int) -> None:
            found = [row.k for row in rows.select("k").collect()]
            with arrived:
                keys.update(found)
                arrived.notify_all()

        reader = self._spark.readStream.format("replitree").options(**self._options(name))
        rows = reader.option("startingVersion", "earliest").load()
        writer = rows.writeStream.foreachBatch(see).option("checkpointLocation", self._checkpoint())
        query = writer.start()
        try:
            took = [self._seen_after_s(table, key, keys, arrived, query) for key in range(WARM_UPS + SEEN)]
        finally:
            query.stop()
        self._wait_for_rest()
        with_query, without = list[float](), list[float]()
        for _ in range(IDLE_TURNS):
            query = writer.start()
            try:
                # Until it has found that there is nothing new: from then on it waits.
                query.processAllAvailable()
                with_query.append(self._requests_per_s())
            finally:
                query.stop()
            without.append(self._requests_per_s())
        self._connection.drop_table(name)
        return quantile(took[WARM_UPS:], 0.5) * 1000, statistics.mean(with_query), statistics.mean(without)

    def _wait_for_rest(self) -> None:
        begin, since, known = time.monotonic(), time.monotonic(), -1
        while time.monotonic() < since + REST_S:
            assert time.monotonic() < begin + REST_S_MAX, "replicas go on to commit though nothing is inserted"
            commits = sum(server.coordination_requests.get("commit", 0) for server in self._connection.servers())
            if commits != known:
                since, known = time.monotonic(), commits
            time.sleep(0.5)

    def _seen_after_s(
        self, table: Table, key: int, keys: set[int], arrived: threading.Condition, query: StreamingQuery
    ) -> float:
        table.insert(make_rows(key, 1))
        begin = time.perf_counter()
        with arrived:
            arrived.wait_for(lambda: key in keys or not query.isActive, SEEN_S_MAX)
        took_s = time.perf_counter() - begin
        assert key in keys, f"the query has not seen row {key}: {query.exception()}"
        return took_s

    def _requests_per_s(self) -> float:
        before, begin = self._requests(), time.monotonic()
        time.sleep(IDLE_S)
        return (self._requests() - before) / (time.monotonic() - begin)

    def _requests(self) -> int:
        return sum(sum(server.coordination_requests.values()) for server in self._connection.servers())


__all__ = ["StreamBench"]
