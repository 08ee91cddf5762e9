"""Bulk loads: one insert of 5,000,000 rows, and a TPC-H table through Spark.

Keys::

    rows_per_s, insert_s       one insert of 5 M rows of the common schema; ours from Arrow rows in memory by
                               `table.insert`, the peer's by ``INSERT … SELECT … FROM numbers``
    second_replica_s           from the acknowledgement until the second replica has it
    spark_rows_per_s           lineitem through Spark into a table (ours), sorted by its key
    spark_parquet_rows_per_s   Spark's own sorted Parquet write of the same rows, same codec (the peer of the key above)

Ours syncs every file and folder to disk before it acknowledges; neither ClickHouse nor Spark does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.errors import ReplitreeError
from replitree_bench.kit.report import Measured
from replitree_bench.kit.systems import System

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import Connection

ROWS = 5_000_000
TPCH_SCALE = 0.5
"""Gives 2,999,671 rows of lineitem."""

LINEITEM_KEY = ("l_orderkey", "l_linenumber")
CODEC = "zstd"


def measure_arrow(system: System, number: int, rows: int = ROWS) -> Measured:
    """Insert `rows` rows at once."""
    system.create(f"bulk_{number}")
    seconds = system.bulk(rows)
    return {"rows_per_s": rows / seconds, "insert_s": seconds, "second_replica_s": system.wait_equal()}


def find_generator() -> str:
    """Return the path of tpchgen-cli; asked for before anything is measured.

    Raises
    ------
    ReplitreeError
        It is not installed.
    """
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise ReplitreeError(
            'tpchgen-cli is not installed, and the Spark loads need it: pip install --editable "bench[peers]", or --no-spark'
        )
    return program


def generate_lineitem(folder: Path, scale: float = TPCH_SCALE) -> Path:
    """Generate TPC-H's lineitem with tpchgen-cli; return the Parquet file.

    Raises
    ------
    ReplitreeError
        The generator is not installed, or failed.
    """
    command = [find_generator(), "parquet", "-s", str(scale), "--tables=lineitem", f"--output-dir={folder}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ReplitreeError(f"tpchgen-cli failed: {ran.stderr.strip()[-500:]}")
    return folder / "lineitem.parquet"


class SparkLoad:
    """Spark writes the same rows, in the same order, into a table and into plain Parquet files.

    Parameters
    ----------
    spark, connection
        Where to read, and where to write.
    lineitem
        The rows.
    folder
        For the plain files.
    """

    def __init__(self, spark: SparkSession, connection: Connection, lineitem: Path, folder: Path) -> None:
        self._spark = spark
        self._connection = connection
        self._lineitem = lineitem
        self._folder = folder
        frame = self._frame()
        self._schema = frame.schema.toDDL()
        self._rows = frame.count()

    def into_table(self, number: int) -> Measured:
        """Load a new table."""
        table = self._connection.create_table(f"lineitem_{number}", self._schema, order_by=LINEITEM_KEY)
        begin = time.perf_counter()
        result = table.insert(self._frame())
        seconds = time.perf_counter() - begin
        if result.rows != self._rows:
            raise ReplitreeError(f"{result.rows:,} rows arrived, not {self._rows:,}")
        self._connection.drop_table(table.name)
        return {"spark_rows_per_s": self._rows / seconds, "spark_insert_s": seconds}

    def into_parquet(self, number: int) -> Measured:
        """Write plain files, sorted in each file as the table's are."""
        target = self._folder / f"plain-{number}"
        begin = time.perf_counter()
        sorted_rows = self._frame().sortWithinPartitions(*LINEITEM_KEY)
        sorted_rows.write.option("compression", CODEC).parquet(str(target))
        seconds = time.perf_counter() - begin
        shutil.rmtree(target)
        per_second = self._rows / seconds
        return {"spark_rows_per_s": per_second, "spark_parquet_rows_per_s": per_second, "spark_insert_s": seconds}

    def _frame(self) -> DataFrame:
        return self._spark.read.parquet(str(self._lineitem))
