"""The story of the demo, step by step; each step tells what it does while it does it.

1. *start*     three replica processes on an embedded ZooKeeper, and Spark
2. *read*      Spark reads the data into blocks
3. *load*      the blocks go in through r1 and r2 in turn; r3 is killed on the way, and started again
4. *compare*   what is on the three disks, and with what went in
5. *ask*       five questions, all at one position of the number line
6. *repeat*    the same load again: nothing may change

Guarantees: `DemoVerdict.held` is true only when every comparison held.

Absent on purpose: how things look on the screen (`Teller`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from replitree.demo import compare, sources
from replitree.demo.picture import ReplicaPosition
from replitree.demo.sources import DemoData, Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client import LocalCluster, Table

REPLICAS = 3
VICTIM = "r3"
WRITERS = ("r1", "r2")
CATCH_UP_S = 60.0
LOOK_S = 0.2


class Teller(Protocol):
    """Shows the story."""

    def step(self, title: str) -> None:
        """Begin a step."""

    def say(self, text: str) -> None:
        """Tell one thing that happened."""

    def rows(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show a small table."""

    def line(self, tail: int, marks: Sequence[ReplicaPosition], *, keep: bool) -> None:
        """Show the number line; `keep` it on the screen, or draw over it the next time."""

    def check(self, text: str, *, held: bool) -> None:
        """Tell what a comparison showed."""


@dataclass(slots=True)
class DemoVerdict:
    """What the comparisons showed.

    Attributes
    ----------
    checks
        Each comparison and whether it held.
    """

    checks: dict[str, bool] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Whether all of them were made and held."""
        return bool(self.checks) and all(self.checks.values())


def run(wanted: Wanted, folder: Path, teller: Teller) -> DemoVerdict:
    """Tell the whole story.

    Parameters
    ----------
    wanted
        Which data.
    folder
        Where everything goes; empty or not there.
    teller
        Shows it to the user.
    """
    sources.check(wanted)
    begin = time.monotonic()
    from replitree.client.cluster import LocalCluster

    teller.step("Starting three replicas, ZooKeeper and Spark")
    cluster = LocalCluster(folder / "cluster", REPLICAS)
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(_start_spark, folder)
        try:
            with cluster:
                spark = session.result()
                for process in cluster.processes:
                    teller.say(f"{process.name} runs as process {process.pid}")
                teller.say(f"ZooKeeper at {cluster.url}")
                teller.say(f"Spark {spark.version}; all of it in {time.monotonic() - begin:.1f} s")
                verdict = _DemoStory(cluster, spark, teller).tell(wanted, folder)
        finally:
            # Also when the cluster did not start: Spark was started beside it.
            session.result().stop()
    verdict.seconds = time.monotonic() - begin
    return verdict


def _start_spark(folder: Path) -> SparkSession:
    from replitree.spark.session.quiet import quiet_children
    from replitree.spark.session.session import spark_session

    conf = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.sql.shuffle.partitions": 8}
    with quiet_children():
        spark = spark_session(app_name="replitree demo", conf=conf)
        spark.sparkContext.setLogLevel("ERROR")
    return spark


class _DemoStory:
    """The steps, and what they have in common."""

    def __init__(self, cluster: LocalCluster, spark: SparkSession, teller: Teller) -> None:
        self._cluster = cluster
        self._spark = spark
        self._teller = teller
        self._verdict = DemoVerdict()

    def tell(self, wanted: Wanted, folder: Path) -> DemoVerdict:
        """Tell it from the reading on."""
        what = wanted.repository or wanted.file
        self._teller.step(f"Spark reads {what or 'the inventory of this machine: every file, folder and link'}")
        begin = time.monotonic()
        data = sources.prepare(self._spark, wanted, folder / "input", self._teller.say)
        self._teller.say(f"{data.rows:,} rows in {len(data.blocks)} blocks, {time.monotonic() - begin:.1f} s")
        table = self._cluster.create_table(
            data.table, data.schema, order_by=data.order_by, partition_by=data.partition_by, wait_replicas=REPLICAS
        )
        tail = self._load(table, data)
        self._teller.step("Comparing what is on the three disks")
        contents = [compare.content(table, name, tail) for name in self._cluster.names]
        columns = ("replica", "index", "parts", "rows", "content hash")
        self._teller.rows("", columns, [(c.replica, c.index, c.parts, c.rows, c.content_hash) for c in contents])
        self._check("the three replicas have the same rows", held=compare.all_same(contents))
        names = table.schema.names
        went_in = compare.sum_of_files(self._spark, data.blocks, names)
        there = compare.sum_of(table.to_df(self._spark), names)
        self._check(f"the {went_in.rows:,} rows that went in are in the table, each once", held=went_in == there)
        snapshot = table.snapshot()
        self._teller.step(f"Five questions, answered by Spark at index {snapshot.index} of the number line")
        snapshot.to_df(self._spark).createOrReplaceTempView("data")
        for question in data.questions:
            frame = self._spark.sql(question.sql)
            self._teller.rows(question.text, frame.columns, [tuple(row) for row in frame.collect()])
        self._check("the questions saw every row", held=snapshot.to_df(self._spark).count() == data.rows)
        self._teller.step("The same load again: every block must be recognised")
        begin = time.monotonic()
        results = [
            self._insert(table, block, i, WRITERS[(i + 1) % len(WRITERS)]) for i, block in enumerate(data.blocks)
        ]
        duplicates = sum(result.outcome == "duplicate" for result in results)
        self._teller.say(f"{duplicates} of {len(results)} blocks were duplicates, {time.monotonic() - begin:.1f} s")
        status = table.status()
        self._draw(table, killed=False, keep=True)
        self._check("the repeated load inserted nothing", held=duplicates == len(results) and status.log_tail == tail)
        rows = {replica.rows for replica in status.replicas}
        self._check("every replica has as many rows as before", held=rows == {data.rows})
        self._verdict.rows = data.rows
        return self._verdict

    # --- the load ---

    def _load(self, table: Table, data: DemoData) -> int:
        """Insert all blocks; kill and start the victim on the way.  Returns the log's tail."""
        self._teller.step(
            f"Loading table {data.table} through {' and '.join(WRITERS)} in turn; {VICTIM} is killed on the way"
        )
        kill_before = len(data.blocks) // 3
        # With very few blocks it is still killed, and still started again.
        start_before = max(kill_before + 1, 2 * len(data.blocks) // 3)
        begin, killed = time.monotonic(), False
        for number, block in enumerate(data.blocks):
            if number == kill_before:
                killed = True
                pid = {process.name: process.pid for process in self._cluster.processes}[VICTIM]
                self._cluster.kill(VICTIM)
                self._teller.say(f"SIGKILL for {VICTIM} (process {pid}); the load goes on without it")
            if number == start_before:
                self._start_victim(table)
                killed = False
            writer = WRITERS[number % len(WRITERS)]
            result = self._insert(table, block, number, writer)
            what = f"{result.rows:,} rows {result.outcome} at index {result.index}"
            self._teller.say(f"block {number + 1}/{len(data.blocks)} → {writer}: {what}")
            self._draw(table, killed=killed, keep=number in (kill_before, start_before))
        if killed:
            self._start_victim(table)
        seconds = time.monotonic() - begin
        speed = f"{data.rows / seconds:,.0f} rows/s, every insert synced to disk"
        self._teller.say(f"{data.rows:,} rows acknowledged in {seconds:.1f} s ({speed})")
        begin = time.monotonic()
        while True:
            status = table.status()
            behind = [replica.name for replica in status.replicas if replica.index != status.log_tail]
            if not behind or time.monotonic() - begin > CATCH_UP_S:
                break
            time.sleep(LOOK_S)
        self._draw(table, killed=False, keep=True)
        if behind:
            self._teller.say(f"{', '.join(behind)} did not catch up in {CATCH_UP_S:.0f} s")
        else:
            self._teller.say(
                f"all replicas are at the end of the log, {time.monotonic() - begin:.1f} s after the last insert"
            )
        return status.log_tail

    # --- parts of the story ---

    def _insert(self, table: Table, block: Path, number: int, writer: str) -> Any:
        return table.replica(writer).insert(self._spark.read.parquet(str(block)), token=f"demo:{number}")

    def _start_victim(self, table: Table) -> None:
        self._draw(table, killed=True, keep=True)
        begin = time.monotonic()
        self._cluster.start(VICTIM)
        self._teller.say(f"{VICTIM} is started again ({time.monotonic() - begin:.1f} s) and fetches what it missed")

    def _draw(self, table: Table, *, killed: bool, keep: bool) -> None:
        status = table.status()
        marks: list[ReplicaPosition] = []
        for replica in status.replicas:
            # It is silent, too, but here the reason is known.
            if killed and replica.name == VICTIM:
                word = "killed"
            else:
                word = "silent" if not replica.reachable else "behind" if replica.lag else "alive"
            marks.append(ReplicaPosition(replica.name, replica.log_pointer, replica.queue, word))
        self._teller.line(status.log_tail, marks, keep=keep)

    def _check(self, text: str, *, held: bool) -> None:
        self._verdict.checks[text] = held
        self._teller.check(text, held=held)
