"""A standalone cluster whose executors share no disk with the replicas: TPC-H's queries, and loads of lineitem.

Keys of the queries, beside those of `replitree_bench.table.sql`::

    scan_all_s, scan_few_s   every column of lineitem; three of its columns with a condition
    scans_s                  these two, q01 and q06: queries that do little but scan lineitem
    read_bytes               what the tasks of one run of all queries read, as Spark counts it; of the peer that is what
                             pruning leaves, as Spark's own scan prunes plain files of the same bytes
    sent_bytes, requests     what the replicas sent for it of data files, and to how many requests, by their own count

Keys of the loads::

    rows_per_s               lineitem by ``df.write.format("replitree")``; the peer is Spark's own sorted Parquet write
    sql_rows_per_s           the same by ``INSERT … SELECT``
    driver_bytes             results of the tasks of one load, and its manifests: all of the load that the driver carries

The peer is the same session on the same executors, with files in a folder that these see.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from replitree.client.transport.http import HttpClient
from replitree.errors import ReplitreeError
from replitree.spark.session.catalog import CATALOG
from replitree_bench.kit.jobs import counted
from replitree_bench.table.bulk import CODEC, LINEITEM_KEY
from replitree_bench.table.sql import SqlBench, queries

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from replitree.client.cluster import LocalCluster
    from replitree_bench.kit.report import Measured

SCANS = {
    "scan_all": "select count(*), bit_xor(xxhash64(*)) from lineitem",
    "scan_few": "select count(*), sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date'1995-01-01'",
}
"""Queries that do little but read."""

SCANNING = ("scan_all", "scan_few", "q01", "q06")

IN_THREADS = "parquet.hadoop.vectored.io.enabled"
"""Setting of Parquet's reader: it asks for the columns of a row group at once."""

SENT = re.compile(r"^replitree_sent_(files|bytes)_total\{.*\} (\S+)$", re.MULTILINE)
"""The replicas' counters of data files that were asked for."""


def sent(cluster: LocalCluster) -> tuple[int, int]:
    """Return how many requests for data files all replicas have answered, and the bytes of the answers."""
    found = {"files": 0, "bytes": 0}
    with closing(HttpClient(cluster.access.token, cluster.access.tls)) as http:
        for server in cluster.servers():
            text = http.request(server.address, "GET", "/metrics", timeout_s=30).content().decode()
            for what, number in SENT.findall(text):
                found[what] += int(float(number))
    return found["files"], found["bytes"]


class ElsewhereSql:
    """TPC-H's queries and some scans, on a cluster whose executors do not see the replicas' disks.

    Parameters
    ----------
    spark, cluster, generated
        As `SqlBench`; executors see the generated files.
    """

    def __init__(self, spark: SparkSession, cluster: LocalCluster, generated: Path) -> None:
        self._spark, self._cluster = spark, cluster
        self._queries = queries() | SCANS
        self._bench = SqlBench(spark, cluster, generated, self._queries)

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Run every query both ways, in turn; return ours and plain Spark's.  Raises as `SqlBench.measure`."""
        ours, plain = self._bench.measure(number)
        for measured in (ours, plain):
            measured["scans_s"] = sum(measured[f"{name}_s"] for name in SCANNING)
        before = sent(self._cluster)
        ours["read_bytes"] = self._read("replitree.default")
        requests, size = (after - least for after, least in zip(sent(self._cluster), before, strict=True))
        # Hadoop counts nothing of what its local file system reads in threads of its own.
        self._spark.conf.set(IN_THREADS, "false")
        plain["read_bytes"] = self._read("spark_catalog.plain")
        self._spark.conf.unset(IN_THREADS)
        # The peer has no requests; what its scans leave of the files is what ours have to send at least.
        return ours | {"sent_bytes": size, "requests": requests}, plain | {"sent_bytes": plain["read_bytes"]}

    def _read(self, namespace: str) -> int:
        """Return the bytes that the tasks of all queries read in a namespace."""
        self._spark.sql(f"use {namespace}")
        return sum(counted(self._spark, self._spark.sql(text).collect)[1].read for text in self._queries.values())


class ElsewhereLoads:
    """Lineitem into tables, and into plain files of the same order and codec.

    Parameters
    ----------
    spark, cluster
        Where to write.
    lineitem
        The generated file; executors see it, and the folder beside it that takes the plain files.
    """

    def __init__(self, spark: SparkSession, cluster: LocalCluster, lineitem: Path) -> None:
        self._spark, self._cluster, self._lineitem = spark, cluster, lineitem
        spark.conf.set(f"{CATALOG}.url", str(cluster.folder))
        frame = spark.read.parquet(str(lineitem))
        frame.createOrReplaceTempView("generated")
        self._frame, self._rows = frame, frame.count()
        # A load of each way warms Spark up.
        self.measure(-1)

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Load each way, in turn; return ours and plain Spark's.

        Raises
        ------
        ReplitreeError
            Rows are missing.
        """
        peer = self._plain(number)
        source_s, source = self._load(f"source_{number + 1}", self._by_source)
        sql_s, by_sql = self._load(f"sql_{number + 1}", self._by_sql)
        speeds = {"rows_per_s": self._rows / source_s, "sql_rows_per_s": self._rows / sql_s}
        carried = {"driver_bytes": source, "sql_driver_bytes": by_sql}
        return speeds | carried | {"rows": self._rows}, dict.fromkeys(speeds, self._rows / peer)

    def _by_source(self, name: str) -> None:
        options = {"table": name, "url": str(self._cluster.folder)}
        self._frame.write.format("replitree").options(**options).mode("append").save()

    def _by_sql(self, name: str) -> None:
        target = {"target": f"replitree.default.{name}"}
        self._spark.sql("insert into identifier(:target) select * from generated", target)

    def _load(self, name: str, load: Callable[[str], None]) -> tuple[float, int]:
        """Load a new table; return the seconds, and the bytes that the driver carried."""
        table = self._cluster.create_table(name, self._frame.schema.toDDL(), order_by=LINEITEM_KEY)
        begin = time.perf_counter()
        _, moved = counted(self._spark, lambda: load(name))
        seconds = time.perf_counter() - begin
        snapshot = table.snapshot(level="linearizable")
        if snapshot.rows != self._rows:
            raise ReplitreeError(f"{snapshot.rows:,} rows arrived, not {self._rows:,}")
        carried = moved.results + sum(len(part.manifest.encode()) for part in snapshot.parts)
        self._cluster.drop_table(name)
        return seconds, carried

    def _plain(self, number: int) -> float:
        target = self._lineitem.parent / f"plain-{number + 1}"
        begin = time.perf_counter()
        ordered = self._frame.sortWithinPartitions(*LINEITEM_KEY)
        ordered.write.option("compression", CODEC).parquet(str(target))
        return time.perf_counter() - begin


__all__ = ["ElsewhereLoads", "ElsewhereSql", "sent"]
