"""SQL: the 22 queries of TPC-H on the catalog, beside plain Parquet files of the same rows in the same session.

Keys::

    total_s             all queries, the sum of their medians; each is planned and run
    plan_s              of that, until Spark has the physical plan
    plan_worst_ms       the query whose planning takes longest
    plan_more_worst_ms  the query whose planning takes longest beside the peer's of the same query: the difference
    q01_s … q22_s       one query
    frames_s            only by ``format("replitree")``: the frames of all tables are made, which is not in the others
    rows                of lineitem

The peer reads copies of the table's own data files, as tables of Spark's own catalog: same row groups, order and encodings.
The results of both are compared, row by row; floats to nine digits.

By ``format("replitree")`` the tables are views of frames, and the peer's are views of ``spark.read.parquet`` of these copies.

The queries are in ``tpch.sql``, with the constants of the benchmark's validation run.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.errors import ReplitreeError
from replitree.spark.session.catalog import CATALOG
from replitree_bench.kit.report import Measured
from replitree_bench.table.bulk import find_generator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.cluster import LocalCluster

Show = Callable[[], object]
"""Makes the names of tables in queries mean those of one way to read them."""

KEYS = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey, ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey, l_linenumber",
}
"""The tables, with their order keys."""

WARM_UPS, TIMES = 1, 4
"""Runs of a query in a round: the first ones are not measured; of the others each way begins as many as the other."""

DIGITS = 9
"""Of a float that two plans may sum in another order."""


def queries() -> dict[str, str]:
    """Return the queries by their names, ``q01`` to ``q22``."""
    text = Path(__file__).with_name("tpch.sql").read_text(encoding="utf-8")
    return dict(re.findall(r"^-- (q\d\d)\n(.*?)(?=^-- |\Z)", text, re.MULTILINE | re.DOTALL))


def generate(folder: Path, scale: float) -> None:
    """Generate TPC-H's tables as Parquet files with tpchgen-cli.

    Raises
    ------
    ReplitreeError
        The generator is not installed, or failed.
    """
    command = [find_generator(), "parquet", "-s", str(scale), f"--output-dir={folder}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ReplitreeError(f"tpchgen-cli failed: {ran.stderr.strip()[-500:]}")


class SqlBench:
    """TPC-H in tables of a cluster, and in the same files without it.

    Parameters
    ----------
    spark, cluster
        Where to read.
    generated
        Folder of the generated files.
    asked
        The queries to run, by their names; those of ``tpch.sql`` by default.
    by_format
        Read by ``format("replitree")``, not by the catalog.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: LocalCluster,
        generated: Path,
        asked: Mapping[str, str] | None = None,
        *,
        by_format: bool = False,
    ) -> None:
        self._spark = spark
        self._folder, self._copies = cluster.folder, generated / "plain"
        self._queries = queries() if asked is None else asked
        self._by_format = by_format
        self._rows = 0
        spark.conf.set(f"{CATALOG}.url", str(cluster.folder))
        spark.sql("create database plain")
        for name, key in KEYS.items():
            frame = spark.read.parquet(str(generated / f"{name}.parquet"))
            table = cluster.create_table(name, frame.schema.toDDL(), order_by=key)
            table.insert(frame)
            snapshot = table.snapshot()
            copies = self._copies / name
            copies.mkdir(parents=True)
            for number, file in enumerate(snapshot.files()):
                shutil.copyfile(file, copies / f"{number}.parquet")
            spark.sql(f"create table plain.{name} using parquet location '{copies}'")
            self._rows = snapshot.rows if name == "lineitem" else self._rows

    def measure(self, _number: int) -> tuple[Measured, Measured]:
        """Run every query both ways, in turn; return ours and plain Spark's.

        Raises
        ------
        ReplitreeError
            The results differ.
        """
        ours, plain = Times(), Times()
        show_ours, show_plain = self._views(ours, plain) if self._by_format else self._catalogs()
        for name, text in self._queries.items():
            for number in range(WARM_UPS + TIMES):
                ways = (show_ours, ours), (show_plain, plain)
                # The second run of a query finds its code compiled: they take turns.
                found = [self._run(show, name, text, times) for show, times in ways[:: 1 if number % 2 else -1]]
                if found[0] != found[1]:
                    raise ReplitreeError(f"{name} has other results on the tables than on plain Parquet files")
        more = {"plan_more_worst_ms": ours.plan_more_worst_ms(plain)}
        return ours.measured() | more | {"rows": self._rows}, plain.measured() | {"rows": self._rows}

    def _catalogs(self) -> tuple[Show, Show]:
        """Return what makes the names of queries mean the tables of each catalog."""
        use = [f"use {namespace}" for namespace in ("replitree.default", "spark_catalog.plain")]
        return lambda: self._spark.sql(use[0]), lambda: self._spark.sql(use[1])

    def _views(self, ours: Times, plain: Times) -> tuple[Show, Show]:
        """Make frames of all tables both ways; return what makes the names of queries mean those of each."""
        read = self._spark.read
        begin = time.perf_counter()
        source = {name: read.format("replitree").option("url", str(self._folder)).load(name) for name in KEYS}
        between = time.perf_counter()
        files = {name: read.parquet(str(self._copies / name)) for name in KEYS}
        ours.frames_s, plain.frames_s = between - begin, time.perf_counter() - between

        def show(frames: Mapping[str, DataFrame]) -> None:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)

        return lambda: show(source), lambda: show(files)

    def _run(self, show: Show, name: str, text: str, times: Times) -> list[tuple[object, ...]]:
        """Run a query on the tables that are shown; return its rows, with floats as they can be compared."""
        show()
        begin = time.perf_counter()
        frame = self._spark.sql(text)
        frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - Python has no planning alone
        planned = time.perf_counter()
        rows = frame.collect()
        times.add(name, planned - begin, time.perf_counter() - begin)
        return [tuple(map(comparable, row)) for row in rows]


class Times:
    """What the runs of each query took, and making the frames that they read; None when they read none."""

    def __init__(self) -> None:
        self.frames_s: float | None = None
        self._plan: dict[str, list[float]] = {}
        self._whole: dict[str, list[float]] = {}

    def add(self, name: str, plan_s: float, whole_s: float) -> None:
        """Note one run."""
        self._plan.setdefault(name, []).append(plan_s)
        self._whole.setdefault(name, []).append(whole_s)

    def measured(self) -> Measured:
        """Return medians of the runs after the warm-ups."""
        plan, whole = medians(self._plan), medians(self._whole)
        frames = {} if self.frames_s is None else {"frames_s": self.frames_s}
        return {
            "total_s": sum(whole.values()),
            "plan_s": sum(plan.values()),
            "plan_worst_ms": max(plan.values()) * 1e3,
            **{f"{name}_s": seconds for name, seconds in whole.items()},
            **frames,
        }

    def plan_more_worst_ms(self, other: Times) -> float:
        """Return by how much the planning of one query takes longer than the other's, in the worst case, in milliseconds."""
        plan, others = medians(self._plan), medians(other._plan)
        return max(plan[name] - others[name] for name in plan) * 1e3


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median of each query's runs after the warm-ups."""
    return {name: statistics.median(some[WARM_UPS:]) for name, some in times.items()}


def comparable(value: object) -> object:
    """Return a value of a result; two plans may add floats in another order."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
