"""``python -m tests.faults.streamed``: a stream into a table while its driver, replicas and the ensemble's leader are killed.

A driver of Spark brings rows into a table, those of one file in each batch (`tests.faults.stream_driver`).  It is killed
(SIGKILL) in the middle of batches, batch 0 among them, and started again from the same checkpoint; meanwhile the nemesis kills
replicas and the leader of the ensemble.  In the end every replica must have every key once: the multiset of the rows that the
query passes on.

With ``--from-table`` the rows come from another table, one insert in each batch, and Spark is a standalone cluster of two
workers that do not see the replicas' folders; their executors are killed, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from replitree.client.cluster import TOKEN_FILE
from replitree.client.table import Table
from replitree.errors import CoordinationUnavailable
from replitree_bench.kit.standalone import StandaloneSpark, way_to_hide
from tests.faults.arguments import say
from tests.faults.cluster import FaultCluster
from tests.faults.nemesis import Nemesis
from tests.faults.schedule import rounds
from tests.faults.stream_driver import BEGINS, FAILED, SCHEMA, TABLE, WAYS
from tests.spark.deaths import executors_below
from tests.waiting import wait_for

ROWS = 10
"""Rows of each file or insert, and so of each batch; the last one is not passed on (`tests.faults.stream_driver.WHERE`)."""

SOURCE = "source"

KINDS = ("kill", "kill", "zk-kill-leader")
"""What the nemesis does: each strike kills one process."""

FIRST_KILLS = 3
"""So many drivers are killed in batch 0, or where it has ended meanwhile in the next one."""

RUN_S_MAX = 4 * 3600.0
"""How long the last driver may take."""

LOOK_S = 0.1
"""How often the striker looks how far the stream has come."""

BATCH_S_MAX = 1800.0
"""How long one driver may take until it begins a batch: it starts Java, and waits for replicas and a leader."""

INTO_BATCH_S_MAX, INTO_FIRST_S_MAX = 0.6, 5.0
"""A driver is killed at a random moment of a batch, at most so many seconds after Spark has begun it; the first one is slow."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    Attributes
    ----------
    batches
        How many files the stream has.
    kills
        How many processes are killed in all, a third of them drivers.
    way
        How the rows go into the table: one of `WAYS`.
    seconds
        After so many seconds nothing is killed any more, and the files that no batch has begun are taken away.
    from_table
        Whether the rows come from a table, through executors that are killed, too.
    """

    seed: int
    batches: int
    kills: int
    way: str = "format"
    seconds: float = float("inf")
    from_table: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw.

    Attributes
    ----------
    kills
        How many processes of each kind were killed.
    repeated
        Drivers that were killed after Spark had begun a batch and before Spark had noted its end.
    taken
        Those of them whose batch the table had: the next driver sends a duplicate.
    failures
        How often a query failed by itself, and was started again.
    """

    seed: int
    way: str
    batches: int
    rows: int
    kills: dict[str, int]
    repeated: int
    taken: int
    failures: int
    seconds: float


class Stream:
    """Where the rows come from, the checkpoint, and the driver of the moment.

    Parameters
    ----------
    cluster
        Has the table, and the rows if they come from a table.
    spark
        The standalone cluster for rows of a table; None: files, which the driver reads itself.
    """

    def __init__(self, cluster: FaultCluster, plan: Plan, spark: StandaloneSpark | None) -> None:
        self._cluster, self._plan, self._spark = cluster, plan, spark
        self._folder, self._checkpoint = cluster.folder / "in", cluster.folder / "checkpoint"
        self.log = cluster.folder / "driver.log"
        self._driver: subprocess.Popen[bytes] | None = None
        self._begins = 0
        rows = (rows_of(number) for number in range(plan.batches))
        if spark is not None:
            copies = len(cluster.names)
            source = cluster.connection.create_table(SOURCE, SCHEMA, order_by="k", feed="1 day", wait_replicas=copies)
            for each in rows:
                source.insert(each)
            return
        self._folder.mkdir(parents=True)
        for number, each in enumerate(rows):
            pq.write_table(each, self._folder / f"{number:06d}.parquet")

    def launch(self) -> None:
        """Start a driver in a process group of its own."""
        spark = self._spark
        source = self._folder if spark is None else SOURCE
        places = (self._cluster.ensemble.url, self._cluster.folder / TOKEN_FILE, source, self._checkpoint)
        master = () if spark is None else (spark.master,)
        command = [sys.executable, "-m", "tests.faults.stream_driver", self._plan.way, *map(str, places), *master]
        self._begins = self._count(BEGINS)
        with self.log.open("ab") as log:
            self._driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def has_ended(self) -> bool:
        """Whether all rows are in the table; fails if the driver has given up."""
        assert self._driver is not None
        code = self._driver.poll()
        assert code in (None, 0), f"the driver ended with {code}; its log is {self.log}"
        return code == 0

    def kill(self) -> None:
        """Kill the driver with its Java (SIGKILL)."""
        driver = self._driver
        if driver is not None:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()

    def begun(self) -> int:
        """Return the last batch that Spark has begun; -1: none."""
        return self._last("offsets")

    def ended(self) -> int:
        """Return the last batch of which Spark knows that it is in the table; -1: none."""
        return self._last("commits")

    def _last(self, what: str) -> int:
        folder = self._checkpoint / what
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def is_in_batch(self, least: int) -> bool:
        """Whether the driver of the moment has a query, and Spark has begun a batch from this one on and not ended it."""
        return self._count(BEGINS) > self._begins and self.begun() >= max(least, self.ended() + 1)

    def cut(self) -> int:
        """Take the files away that no batch has; return how many are left.  No driver runs."""
        # Spark may have given the next batch its file before it begins it.
        left = min(self.begun() + 2, len(list(self._folder.glob("*.parquet"))))
        for path in sorted(self._folder.glob("*.parquet"))[left:]:
            path.unlink()
        return left

    def failures(self) -> int:
        """Return how many queries have failed by themselves."""
        return self._count(FAILED)

    def _count(self, line: str) -> int:
        return self.log.read_text(encoding="utf-8", errors="replace").count(line) if self.log.exists() else 0


class Striker(threading.Thread):
    """Lets the nemesis strike while the stream goes on, spread over its batches.

    Parameters
    ----------
    plan, strikes
        How many batches there are, and how many strikes.
    spark
        The standalone cluster, of which every second turn kills an executor; None: there is none.
    """

    def __init__(
        self, nemesis: Nemesis, stream: Stream, plan: Plan, strikes: int, spark: StandaloneSpark | None
    ) -> None:
        super().__init__(name="striker", daemon=True)
        self._nemesis, self._stream, self._plan, self._strikes = nemesis, stream, plan, strikes
        self._spark, self._chance = spark, random.Random(f"{plan.seed}/executors")
        self.executors = 0
        self._stopped = threading.Event()
        self._failure: BaseException | None = None

    @override
    def run(self) -> None:
        try:
            for turn, what in enumerate(rounds(self._plan.seed, self._nemesis.scene, KINDS)):
                done = self._nemesis.struck.total() + self.executors
                if done >= self._strikes:
                    return
                while self._stream.begun() < self._plan.batches * done // self._strikes:
                    self._nemesis.look_after()
                    if self._stopped.wait(LOOK_S):
                        return
                if self._spark is not None and turn % 2:
                    self._kill_executor(self._spark)
                else:
                    self._nemesis.round(what)
        except BaseException as error:  # noqa: BLE001 - the thread of the run raises it
            self._failure = error

    def _kill_executor(self, spark: StandaloneSpark) -> None:
        """Kill an executor, as soon as there is one: its worker starts another."""
        while not self._stopped.wait(LOOK_S):
            with suppress(ProcessLookupError):
                if found := executors_below(spark.folder):
                    os.kill(self._chance.choice(found), signal.SIGKILL)
                    self.executors += 1
                    return

    def check(self) -> None:
        """Raise what has ended the thread before its time."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Strike no more, and return when everything is healed."""
        self._stopped.set()
        self.join()


@dataclass(slots=True)
class Killed:
    """The drivers that were killed; its fields are those of a `Report`."""

    drivers: int = 0
    repeated: int = 0
    taken: int = 0


def kill_drivers(
    stream: Stream, striker: Striker, table: Table, plan: Plan, end: float, tell: Callable[[str], object]
) -> Killed:
    """Kill drivers in the middle of batches, until there are enough or the time is up.

    Every second one is killed as soon as the table has its batch, which Spark may not know yet: the next driver sends it again.
    """
    killed, chance, drivers = Killed(), random.Random(f"{plan.seed}/streamed"), plan.kills // 3
    for number in range(drivers):
        # The first drivers are killed in batch 0; of the others each gets its share of the batches done.
        least = max(0, plan.batches * (number - FIRST_KILLS) // drivers)

        def in_batch(least: int = least) -> bool:
            striker.check()
            assert not stream.has_ended(), "all rows are in the table before every driver was killed"
            return stream.is_in_batch(least) or time.monotonic() > end

        wait_for(in_batch, f"a batch from {least} on; the log is {stream.log}", BATCH_S_MAX)
        if time.monotonic() > end:
            break
        if number % 2:
            _wait_until_taken(stream, table)
        else:
            longest_s = INTO_FIRST_S_MAX if number < FIRST_KILLS else INTO_BATCH_S_MAX
            threading.Event().wait(chance.uniform(0, longest_s))
        stream.kill()
        begun, ended = stream.begun(), stream.ended()
        has_it = begun > ended and begun in _batches(table)
        killed = Killed(killed.drivers + 1, killed.repeated + (begun > ended), killed.taken + has_it)
        tell(f"driver killed: batch {begun} begun, batch {ended} ended; the table has {begun}: {has_it}")
        stream.launch()
    return killed


def _wait_until_taken(stream: Stream, table: Table) -> None:
    """Wait until the table has the batch that Spark has begun."""
    batch = stream.begun()
    wait_for(lambda: batch in _batches(table) or stream.ended() >= batch, f"batch {batch} in the table", BATCH_S_MAX)


def _batches(table: Table) -> tuple[int, ...]:
    """Return the last batch of each stream, when the ensemble has a leader again."""

    def look() -> tuple[tuple[int, ...]] | None:
        try:
            return (tuple(each.batch for each in table.streams()),)
        except CoordinationUnavailable:
            return None

    return wait_for(look, "the streams of the table")[0]


def run(plan: Plan, folder: Path, tell: Callable[[str], object] = print) -> Report:
    """Carry out a plan; raise AssertionError when a row is missing or there twice."""
    began = time.monotonic()
    end = began + plan.seconds
    with ExitStack() as stack:
        spark = stack.enter_context(StandaloneSpark(way_to_hide(folder))) if plan.from_table else None
        cluster = stack.enter_context(FaultCluster(folder))
        table = cluster.connection.create_table(TABLE, SCHEMA, order_by="k", wait_replicas=len(cluster.names))
        stream, nemesis = Stream(cluster, plan, spark), Nemesis(cluster, say=tell)
        striker = Striker(nemesis, stream, plan, plan.kills - plan.kills // 3, spark)
        stream.launch()
        striker.start()

        def at_end() -> bool:
            striker.check()
            return stream.has_ended() or time.monotonic() > end

        try:
            killed = kill_drivers(stream, striker, table, plan, end, tell)
            wait_for(at_end, "all rows are in the table", RUN_S_MAX)
            striker.stop()
            striker.check()
            batches = plan.batches
            if not stream.has_ended():
                stream.kill()
                batches = stream.cut()
                stream.launch()
                wait_for(stream.has_ended, "the files that are left are in the table", BATCH_S_MAX)
        finally:
            striker.stop()
            stream.kill()
        nemesis.calm()
        reckon(cluster, table, batches, stream.ended())
        return Report(
            seed=plan.seed,
            way=plan.way,
            batches=batches,
            rows=batches * ROWS,
            kills={"driver": killed.drivers, "executor": striker.executors, **nemesis.struck},
            repeated=killed.repeated,
            taken=killed.taken,
            failures=stream.failures(),
            seconds=round(time.monotonic() - began, 1),
        )


def rows_of(number: int) -> pa.Table:
    """Return the rows of one file or insert."""
    keys = pa.array(range(ROWS * number, ROWS * (number + 1)), pa.int64())
    return pa.table({"k": keys, "batch": pa.array([number] * ROWS, pa.int32())})


def reckon(cluster: FaultCluster, table: Table, batches: int, last: int) -> None:
    """Compare the multiset of keys in every replica with that of the rows that the query passes on, and its last batch."""
    wanted = Counter(key for key in range(ROWS * batches) if key % 10 != 9)
    for name in cluster.names:
        found = Counter(table.replica(name).to_arrow(level="linearizable")["k"].to_pylist())
        assert found == wanted, f"{name}: missing {sorted(wanted - found)[:20]}, too many {sorted(found - wanted)[:20]}"
    (stream,) = table.streams()
    # Spark notes the files of a batch before it begins the batch.  A driver that is killed in between leaves them to the next
    # batch, which has two files then, and the number of the last batch is lower.
    assert stream.batch == last < batches, f"the table has batch {stream.batch}, Spark has ended {last}"


def main() -> int:
    """Carry out one run; print its report as a line of JSON, and keep the folder when it fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100, help="processes that are killed; a third of them are drivers")
    parser.add_argument(
        "--way", choices=WAYS, default="format", help="the data source, or into with rows via tasks or driver"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="kill nothing after so long, and end")
    parser.add_argument("--from-table", action="store_true", help="rows of a table, through executors that are killed")
    arguments = parser.parse_args()
    if arguments.from_table and arguments.seconds != float("inf"):
        parser.error("--seconds takes files away that no batch has: with --from-table, name fewer batches instead")
    folder = Path(tempfile.mkdtemp(prefix=f"replitree-streamed-{arguments.seed}-"))
    print(f"seed {arguments.seed} in {folder}, which is kept if the run fails", flush=True)
    plan = Plan(**vars(arguments))
    report = run(plan, folder, say)
    print(json.dumps(dataclasses.asdict(report)), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
