"""SQL: the 22 queries of TPC-H on the catalog, beside plain Parquet files of the same rows in the same session.

Keys::

    total_s           all queries, the sum of their medians; each is planned and run
    plan_s            of that, until Spark has the physical plan
    plan_worst_ms     the query whose planning takes longest
    q01_s … q22_s     one query
    rows              of lineitem

The peer reads copies of the table's own data files, as tables of Spark's own catalog: same row groups, order and encodings.
The results of both are compared, row by row; floats to nine digits.

The queries are in ``tpch.sql``, with the constants of the benchmark's validation run.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.errors import ReplitreeError
from replitree.spark.session.catalog import CATALOG
from replitree_bench.kit.report import Measured
from replitree_bench.table.bulk import find_generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.cluster import LocalCluster

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

WARM_UPS, TIMES = 1, 3
"""Runs of a query in a round: the first ones are not measured."""

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
    """TPC-H in tables of the catalog and in views of plain files.

    Parameters
    ----------
    spark, cluster
        Where to read.
    generated
        Folder of the generated files.
    asked
        The queries to run, by their names; those of ``tpch.sql`` by default.
    """

    def __init__(
        self, spark: SparkSession, cluster: LocalCluster, generated: Path, asked: Mapping[str, str] | None = None
    ) -> None:
        self._spark = spark
        self._queries = queries() if asked is None else asked
        self._rows = 0
        spark.conf.set(f"{CATALOG}.url", str(cluster.folder))
        spark.sql("create database plain")
        for name, key in KEYS.items():
            frame = spark.read.parquet(str(generated / f"{name}.parquet"))
            table = cluster.create_table(name, frame.schema.toDDL(), order_by=key)
            table.insert(frame)
            snapshot = table.snapshot()
            copies = generated / "plain" / name
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
        for name, text in self._queries.items():
            for _ in range(WARM_UPS + TIMES):
                found = self._run("replitree.default", name, text, ours)
                if found != self._run("spark_catalog.plain", name, text, plain):
                    raise ReplitreeError(f"{name} has other results on the catalog than on plain Parquet files")
        return ours.measured() | {"rows": self._rows}, plain.measured() | {"rows": self._rows}

    def _run(self, namespace: str, name: str, text: str, times: Times) -> list[tuple[object, ...]]:
        """Run a query in a namespace; return its rows, with floats as they can be compared."""
        self._spark.sql(f"use {namespace}")
        begin = time.perf_counter()
        frame = self._spark.sql(text)
        frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - Python has no planning alone
        planned = time.perf_counter()
        rows = frame.collect()
        times.add(name, planned - begin, time.perf_counter() - begin)
        return [tuple(map(comparable, row)) for row in rows]


class Times:
    """What the runs of each query took."""

    def __init__(self) -> None:
        self._plan: dict[str, list[float]] = {}
        self._whole: dict[str, list[float]] = {}

    def add(self, name: str, plan_s: float, whole_s: float) -> None:
        """Note one run."""
        self._plan.setdefault(name, []).append(plan_s)
        self._whole.setdefault(name, []).append(whole_s)

    def measured(self) -> Measured:
        """Return medians of the runs after the warm-ups."""
        plan, whole = (
            {name: statistics.median(some[WARM_UPS:]) for name, some in each.items()}
            for each in (self._plan, self._whole)
        )
        return {
            "total_s": sum(whole.values()),
            "plan_s": sum(plan.values()),
            "plan_worst_ms": max(plan.values()) * 1e3,
            **{f"{name}_s": seconds for name, seconds in whole.items()},
        }


def comparable(value: object) -> object:
    """Return a value of a result; two plans may add floats in another order."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
