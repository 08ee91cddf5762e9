"""A driver of Spark that a nemesis kills: ``python -m replitree_verify.nemesis.spark_driver ORDER.json``.

::

    rate-micro-batch ──▶ sink of the table, recorded     ─┐  both go on from their checkpoints
    stream of the table ──▶ a file for each batch seen   ─┘  when another driver takes over
    now and then: a recorded read of the whole table

A line of its standard input is the name of a file: the driver ends the stream in, brings the stream out to the end of the
table's log, and makes that file in its folder.  It ends when the input does, so never after the process that started it.

A query that fails, because no replica answers, is started again from its checkpoint, as a service would start it.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from replitree.decoding import json_decoder
from replitree.spark import RecordedSession, recorded, spark_session
from replitree.spark.session.catalog import CATALOG
from replitree.wire.history_format import to_ranges
from replitree.wire.history_recorder import Recorder
from replitree_verify.nemesis.seen import SeenBatches
from replitree_verify.nemesis.stream import CHECKPOINT_IN, HISTORY, SEEN, DriverOrder, last_batch
from replitree_verify.nemesis.visitors import EXPECTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_S = 0.2
"""How often the driver looks after its queries, in seconds."""

READ_EVERY_S = 3.0
"""The longest pause between two recorded reads, in seconds."""

READ_S = 3
"""How long a read waits for a replica, in seconds."""

ONE_MORE_S_MAX = 90.0
"""How long the stream in may take to end one more batch, when all faults are over, in seconds."""

IDLE_S_MAX = 20.0
"""How long the driver waits for the end of a batch before it stops a query, in seconds."""

BATCH_ROWS = 4
TRIGGER = "500 milliseconds"
FAILED = (PySparkException, Py4JError, *EXPECTED)
"""How Spark tells that a replica did not answer."""


@contextmanager
def forgiven(what: str) -> Iterator[None]:
    """Pass what a fault may cause by; the log of the driver has it."""
    try:
        yield
    except FAILED as error:
        sys.stderr.write(f"{what} failed: {str(error).partition(chr(10))[0]}\n")


@dataclass(slots=True)
class Running:
    """A query that is started again when it has failed."""

    start: Callable[[], StreamingQuery]
    query: StreamingQuery | None = None
    wanted: bool = True

    def look_after(self) -> None:
        """Start it, if it is wanted and does not run."""
        if self.wanted and (self.query is None or not self.query.isActive):
            with forgiven("start of a query"):
                self.query = self.start()

    def stop(self) -> None:
        """Stop it, if it can be between two batches: the outcome of one that is interrupted is not known."""
        self.wanted = False
        end = time.monotonic() + IDLE_S_MAX
        while self.query is not None and self.query.isActive:
            with forgiven("end of a query"):
                if not self.query.status["isTriggerActive"] or time.monotonic() >= end:
                    self.query.stop()
            time.sleep(LOOK_S)


class Driver:
    """The queries of one process.

    Parameters
    ----------
    order
        What it gets.
    """

    def __init__(self, order: DriverOrder) -> None:
        self._order, self._folder = order, Path(order.folder)
        self._named = {"url": order.url, "tokenFile": order.token_file}
        cluster = {f"{CATALOG}.{name}": text for name, text in self._named.items()}
        own = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": 1}
        self._spark = spark_session(master="local[2]", conf=own | cluster)
        self._spark.sparkContext.setLogLevel("OFF")
        recorder = Recorder(self._folder / HISTORY, append=True, name=f"driver-{secrets.token_hex(6)}")
        self._session: RecordedSession = recorded(self._spark, recorder)
        self._random = random.Random(f"{order.seed}/{os.getpid()}")  # noqa: S311 - no secret
        self._seen = SeenBatches(self._folder / SEEN)
        self._in = Running(lambda: self._into().trigger(processingTime=TRIGGER).start())
        self._out = Running(lambda: self._from().trigger(processingTime=TRIGGER).start())
        self._read_at = 0.0

    def _into(self) -> DataStreamWriter:
        order = self._order
        rate: Any = self._spark.readStream.format("rate-micro-batch")
        rows = rate.option("rowsPerBatch", BATCH_ROWS).option("numPartitions", 1).load()
        numbered = rows.selectExpr(f"value + {order.first} AS id", "cast(value % 2 AS int) AS shelf")
        writer = self._session.write_stream(numbered).options(**self._named)
        writer = writer.option("table", order.table)
        if order.quorum:
            writer = writer.option("quorum", order.quorum)
        return writer.option("checkpointLocation", str(self._folder / CHECKPOINT_IN))

    def _from(self) -> DataStreamWriter:
        stream = self._spark.readStream.format("replitree").options(**self._named).load(self._order.table)

        def note(rows: DataFrame, batch: int) -> None:
            self._seen.note(batch, to_ranges(rows.select("id").toArrow().column(0).to_pylist()))

        return stream.writeStream.foreachBatch(note).option("checkpointLocation", str(self._folder / "checkpoint-out"))

    def look_after(self) -> None:
        """Start what has failed, and read now and then."""
        self._in.look_after()
        self._out.look_after()
        if self._in.wanted and time.monotonic() >= self._read_at:
            name, level = self._order.table, self._random.choice(self._order.levels)
            ways: tuple[Callable[[], object], ...] = (
                lambda: self._session.load(name, level=level, timeout=READ_S, **self._named),
                lambda: self._session.table(f"replitree.default.{name}", level=level, timeout=READ_S),
                lambda: self._session.sql(f"SELECT * FROM replitree.default.{name} WITH (level = '{level}')"),  # noqa: S608
            )
            with forgiven("read"):
                self._random.choice(ways)()
            self._read_at = time.monotonic() + self._random.uniform(0.0, READ_EVERY_S)

    def drain(self, name: str) -> None:
        """End the stream in, bring the stream out to the end of the log, and make a file that says so.  Tries until it has."""
        # The stream in ends one batch more: that in which the last driver was killed is repeated, however late it was killed.
        commits = self._folder / CHECKPOINT_IN / "commits"
        before, end = last_batch(commits), time.monotonic() + ONE_MORE_S_MAX
        while self._in.wanted and last_batch(commits) <= before and time.monotonic() < end:
            self._in.look_after()
            time.sleep(LOOK_S)
        self._in.stop()
        self._out.stop()
        while not (self._folder / name).exists():
            with forgiven("last query of the stream out"):
                self._from().trigger(availableNow=True).start().awaitTermination()
                (self._folder / name).touch()
            time.sleep(LOOK_S)


def listen(told: SimpleQueue[str]) -> None:
    """Pass on the lines of the input; end this process when it ends."""
    for line in iter(sys.stdin.readline, ""):
        told.put(line)
    # Whatever is under way may be killed at any time, so it may also end like this; Java ends with its input.
    os._exit(0)


def main(file: str) -> None:
    """Run the queries of an order, for as long as the input lasts."""
    told = SimpleQueue[str]()
    threading.Thread(target=listen, args=(told,), daemon=True).start()
    driver = Driver(json_decoder(DriverOrder).decode(Path(file).read_bytes()))
    while True:
        try:
            name = told.get(timeout=LOOK_S)
        except Empty:
            driver.look_after()
        else:
            driver.drain(name.strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
