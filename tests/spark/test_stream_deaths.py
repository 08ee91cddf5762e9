"""From a table through a transformation into another table, while drivers are killed: each row arrives once."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from tests.spark.drivers import kill_driver_when
from tests.spark.stream_queries import finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.system, pytest.mark.slow]

KILLS_AT_NIGHT = 6
ROWS, ENTRIES = 15, 3
"""Rows of an entry of the source, and entries of a batch."""

STREAM = f"""
def changed(spark, cluster, source):
    rows = spark.readStream.format("replitree").option("url", cluster).option("maxEntriesPerTrigger", {ENTRIES})
    return rows.load(source).where("k % 7 <> 0").selectExpr("k", "concat(s, '!') AS s")

def into(rows, cluster, target, checkpoint):
    writer = rows.writeStream.format("replitree").option("url", cluster).option("table", target)
    return writer.option("checkpointLocation", checkpoint)
"""
PROGRAM = f"""
import os, sys
from pathlib import Path
from pyspark.sql.functions import udf
from tests.spark.stream_queries import finished
from tests.spark.warm_session import begin_warm_session
{STREAM}
cluster, source, target, checkpoint, gate = sys.argv[1:]

spark = begin_warm_session("local[1]", {{"spark.driver.memory": "1g"}})

@udf("string")
def held(text):
    Path(gate + ".reached").touch()
    os.open(gate, os.O_RDONLY)
    return text

rows = changed(spark, cluster, source)
writer = into(rows.select("k", held("s").alias("s")) if gate else rows, cluster, target, checkpoint)
while True:
    finished(writer.start)
"""


class Pipe:
    """Two tables, and the checkpoint of the query between them."""

    def __init__(self, running: LocalCluster, name: str, checkpoint: Path) -> None:
        columns = "k bigint not null, s string"
        self.source = running.create_table(f"{name}_in", columns, order_by="k", feed="1 day", wait_replicas=2)
        self.target = running.create_table(f"{name}_out", columns, order_by="k", wait_replicas=2)
        self.checkpoint, self._url, self._entries = checkpoint, str(running.folder), 0

    def add(self) -> None:
        """Insert rows, some of which are equal to earlier ones."""
        keys = list(range(10 * self._entries, 10 * self._entries + ROWS))
        self.source.insert({"k": keys, "s": [f"s{key}" for key in keys]})
        self._entries += 1

    def last(self, log: str) -> int:
        """Return the last batch in a log of Spark's; -1: there is none."""
        names = [file.name for file in (self.checkpoint / log).glob("[0-9]*")]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def sent(self) -> int:
        """Return the last batch that the target has; -1: there is none."""
        return max((each.batch for each in self.target.streams()), default=-1)

    def kill_when(self, look: Callable[[], bool], what: str, gate: Path | str = "") -> None:
        """Run the query in a process of its own until there is something to see, and kill it; rows come all the while.

        With a gate, tasks wait there for ever.
        """

        def looked() -> bool:
            # Some batches ahead of the query: at the end it has to read all that it has not.
            if self._entries < ENTRIES * (self.sent() + 4):
                self.add()
            return look()

        arguments = (self._url, self.source.name, self.target.name, self.checkpoint, gate)
        kill_driver_when(looked, what, PROGRAM, *arguments)

    def forget_end(self) -> None:
        """Make the checkpoint what it is when the driver dies after the target's commit of its last batch, before Spark's."""
        for file in (self.checkpoint / "commits").glob(f"*{self.sent()}*"):
            if file.name in {str(self.sent()), f".{self.sent()}.crc"}:
                file.unlink()

    def end(self, spark: SparkSession) -> None:
        """Run the query to the end of the source, and compare the tables."""
        names: dict[str, Any] = {}
        exec(STREAM, names)
        rows = names["changed"](spark, self._url, self.source.name)
        writer = names["into"](rows, self._url, self.target.name, str(self.checkpoint))
        finished(writer.trigger(availableNow=True).start)
        came = rows_of(self.source)
        assert sum(came.values()) == ROWS * self._entries
        assert rows_of(self.target) == Counter({(key, f"{s}!"): times for (key, s), times in came.items() if key % 7})


def rows_of(table: Table) -> Counter[tuple[int, str]]:
    found = table.to_arrow(level="linearizable")
    return Counter(zip(found["k"].to_pylist(), found["s"].to_pylist(), strict=True))


@pytest.fixture
def pipe(running: LocalCluster, name: str, tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(running, name[:40], tmp_path / "checkpoint")
    yield made
    for table in (made.source, made.target):
        running.drop_table(table.name)


@pytest.mark.timeout(1_800)  # as below
def test_a_driver_that_is_killed_loses_and_doubles_no_row(spark: SparkSession, pipe: Pipe, tmp_path: Path) -> None:
    pipe.add()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # The driver dies in the middle of batch 0: Spark has written down its end, and the target has none of it.
    pipe.kill_when(Path(f"{gate}.reached").exists, "a task of batch 0 has rows", gate)
    assert (pipe.last("offsets"), pipe.sent()) == (0, -1)
    pipe.add()  # batch 0 may have all others
    pipe.end(spark)
    # Spark takes the last batch, which the target has, for one that is not finished.  At night drivers die there, too.
    pipe.forget_end()
    assert 0 <= pipe.last("commits") < pipe.sent()
    pipe.add()
    pipe.end(spark)


@pytest.mark.timeout(3_600)  # each driver starts Java, and reads some batches
@pytest.mark.parametrize("seed", range(2))
def test_many_drivers_that_are_killed_lose_and_double_no_row(spark: SparkSession, pipe: Pipe, seed: int) -> None:
    chance = random.Random(seed)
    pipe.add()
    for _ in range(KILLS_AT_NIGHT):
        last = chance.choice([lambda: pipe.last("offsets"), lambda: pipe.last("commits"), pipe.sent])
        aim = last() + chance.randint(1, 4)
        pipe.kill_when(lambda last=last, aim=aim: last() >= aim, f"batch {aim}")  # type: ignore[misc]
        if chance.random() < 0.5:
            pipe.source.optimize(final=True)
    pipe.end(spark)
