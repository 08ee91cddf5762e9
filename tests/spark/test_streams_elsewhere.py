"""Streams whose tasks do not see the replicas' folder: executors of a standalone cluster, and a server of Spark Connect."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark import into
from tests.spark.conftest import uploads_left

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.system

ROWS, QUERY_S_MAX = 10, 300


class Copy:
    """A stream of files with ten rows each, one file in each batch, into the table."""

    def __init__(self, spark: SparkSession, folder: Path, table: Table) -> None:
        self._spark, self._folder, self._table = spark, folder, table
        self.files = 0

    def add(self, files: int) -> None:
        for _ in range(files):
            rows = self._spark.range(ROWS * self.files, ROWS * (self.files + 1), 1, 1)
            rows = rows.selectExpr("id k", "cast(id % 2 as int) g", "string(id) s")
            rows.write.parquet(str(self._folder / f"in/{self.files}"))
            self.files += 1

    def writer(self) -> DataStreamWriter:
        reader = self._spark.readStream.schema("k bigint, g int, s string").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder / "in/*")).writeStream

    def run(self, writer: DataStreamWriter, to_table: str = "") -> None:
        ready = writer.option("checkpointLocation", str(self._folder / "checkpoint")).trigger(availableNow=True)
        query = ready.toTable(to_table) if to_table else ready.start()
        assert query.awaitTermination(QUERY_S_MAX)

    def forget_end(self) -> None:
        """Make the checkpoint what it is when the driver dies after the table's commit of the last batch."""
        last = max((self._folder / "checkpoint/commits").glob("[0-9]*"), key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("way", ["format", "toTable", "into"])
def test_each_batch_of_tasks_that_do_not_see_the_folder_is_inserted_once(
    elsewhere: SparkSession, replicas: LocalCluster, target: Table, tmp_path: Path, way: str
) -> None:
    copy = Copy(elsewhere, tmp_path, target)

    def run() -> None:
        writer = copy.writer()
        if way == "format":
            copy.run(writer.format("replitree").option("url", str(replicas.folder)).option("table", target.name))
        elif way == "into":
            copy.run(writer.foreachBatch(into(target, "by hand")))
        else:
            copy.run(writer, f"replitree.default.{target.name}")

    copy.add(2)
    run()
    copy.forget_end()
    copy.add(1)
    run()
    found = Counter(target.to_arrow(level="linearizable")["k"].to_pylist())
    assert found == Counter(range(ROWS * copy.files))
    assert [each.batch for each in target.streams()] == [copy.files - 1]
    assert uploads_left(replicas, target) == []
