"""A driver of Spark beside the visitors: a stream into the table, and one out of it; to kill the driver is a fault.

The driver is a process of its own (`replitree_verify.nemesis.spark_driver`), which this module starts, kills and starts again
from its checkpoints.  The judged history has the inserts of the stream in, and reads of the driver.  What the stream out has
seen is one closing read more, of a replica called `STREAM`: a row that it has lost is `divergence`, one that it has seen twice
is `duplicate_rows`, and a stream that does not come to its end is `wedged_replica`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import msgspec

from replitree import private
from replitree.client.transport.access import Access
from replitree.errors import SparkMissing, Unavailable
from replitree.wire.history_recorder import Recorder
from replitree_verify.nemesis.seen import SeenBatches
from replitree_verify.nemesis.strikes import RunFailed

HISTORY, SEEN, LOG, CHECKPOINT_IN = "spark.jsonl", "seen", "driver.log", "checkpoint-in"
"""In the folder: the history that all drivers write, the folder of the batches that they have seen, their log, and the
checkpoint of the stream in."""

STREAM = "stream out"
"""The replica of the closing read that has what the stream out has seen."""

LEVELS, CUT_LEVELS = ("eventual", "sequential", "linearizable"), ("consistent", "linearizable")
"""Levels of a driver's reads, of a table and of a sharded one."""

KILL = "kill the Spark driver"
HOLD_S = 5.0
"""How long the driver stays away at most, in seconds."""

DRAIN_S_MAX = 240.0
"""How long the last driver may take to bring the stream out to the end of the log, in seconds; it may start Java first."""

BEGIN_S_MAX = 300.0
"""How long the first driver may take until it has begun a batch, in seconds."""

LOOK_S = 0.2


class DriverOrder(msgspec.Struct, frozen=True):
    """What a driver gets.

    Attributes
    ----------
    url, token_file, table
        The cluster and its table.
    folder
        Where history, batches and checkpoints are.
    first
        The first number of the rows of its stream.
    quorum
        How many replicas have to have each batch; 0: it has no quorum, as batches that go into a sharded table.
    seed
        When it reads, and how, is drawn from it.
    levels
        Those of its reads.
    """

    url: str
    token_file: str
    table: str
    folder: str
    first: int
    quorum: int
    seed: int
    levels: tuple[str, ...]


class SparkDriver:
    """The driver of the moment, and those before it.

    Parameters
    ----------
    access
        Of the cluster.
    folder
        An empty folder of its own.
    table, first, quorum, seed, levels
        As of `DriverOrder`.
    """

    def __init__(
        self,
        access: Access,
        folder: Path,
        *,
        table: str,
        first: int,
        quorum: int,
        seed: int,
        levels: tuple[str, ...] = LEVELS,
    ) -> None:
        private.make_folder(folder)
        self._folder, self._table = folder, table
        self._token = folder / "token"
        private.write_file(self._token, access.token.encode())
        order = DriverOrder(access.url, str(self._token), table, str(folder), first, quorum, seed, levels)
        self._order = folder / "order.json"
        self._order.write_bytes(msgspec.json.encode(order))
        self._process: subprocess.Popen[bytes] | None = None
        self._offsets, self._begun = folder / CHECKPOINT_IN / "offsets", -1
        self._numbers = count()
        self.history, self.log = folder / HISTORY, folder / LOG
        Recorder(self.history).close()

    def launch(self) -> None:
        """Start a driver that goes on where the last one ended, in a process group of its own."""
        self._begun = last_batch(self._offsets)
        command = [sys.executable, "-m", "replitree_verify.nemesis.spark_driver", str(self._order)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def has_begun(self) -> bool:
        """Whether the driver of the moment has begun a batch of the stream in."""
        return self._process is not None and last_batch(self._offsets) > self._begun

    def wait_begun(self) -> None:
        """Wait until the driver of the moment has begun a batch: on a busy machine Java alone may take minutes.

        Raises
        ------
        RunFailed
            It has ended by itself, or has not begun within `BEGIN_S_MAX`.
        """
        end = time.monotonic() + BEGIN_S_MAX
        while not self.has_begun():
            self.check()
            if time.monotonic() >= end:
                raise RunFailed(f"the Spark driver has begun no batch within {BEGIN_S_MAX:g} s; its log is {self.log}")
            time.sleep(LOOK_S)

    def kill(self) -> None:
        """Kill the driver with its Java (SIGKILL)."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def close(self) -> None:
        """Kill the driver, and remove the file with the token."""
        self.kill()
        self._token.unlink(missing_ok=True)

    def check(self) -> None:
        """Do nothing if the driver runs.

        Raises
        ------
        RunFailed
            It has ended by itself.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            raise RunFailed(f"the Spark driver has ended by itself with {code}; its log is {self.log}")

    def has_inserted(self) -> bool:
        """Whether the stream in has brought a batch into the table."""
        return b'"kind":"insert"' in self.history.read_bytes()

    def drain(self) -> None:
        """End the stream in, and bring the stream out to the end of the table's log.

        Raises
        ------
        Unavailable
            It did not get there within `DRAIN_S_MAX`.
        RunFailed
            The driver has ended by itself.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        mark = f"drained-{next(self._numbers)}"
        # A driver that has ended leaves a pipe without a reader; `check` says so.
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{mark}\n".encode())
            self._process.stdin.flush()
        end = time.monotonic() + DRAIN_S_MAX
        while not (self._folder / mark).exists():
            self.check()
            if time.monotonic() >= end:
                raise Unavailable(
                    f"the stream out of {self._table} is not at its end after {DRAIN_S_MAX:g} s: {self.log}"
                )
            time.sleep(LOOK_S)

    def read_closing(self, file: Path) -> None:
        """Record what the stream out has seen, when it has come to the end, as a closing read; behind others in their file."""
        with closing(Recorder(file, name=STREAM, append=True)) as recorder:
            reading = recorder.read(self._table, "linearizable", replica=STREAM, closing=True)
            # A stream that does not come to the end is a replica that does not answer.
            with suppress(Unavailable), reading as asked:
                self.drain()
                asked.show(SeenBatches(self._folder / SEEN).rows())


class DriverFault:
    """The fault that kills the driver; what heals it starts another one.

    Parameters
    ----------
    driver
        The driver.
    """

    name, text, hold_s = KILL, "SIGKILL to the driver and its Java", HOLD_S

    def __init__(self, driver: SparkDriver) -> None:
        self._driver = driver

    def can_hurt(self) -> bool:
        """Tell whether the driver has begun a batch: one that starts Java has nothing to lose.

        Raises
        ------
        RunFailed
            It has ended by itself.
        """
        self._driver.check()
        return self._driver.has_begun()

    def hurt(self) -> None:
        """Kill the driver."""
        self._driver.kill()

    def mend(self) -> None:
        """Start a driver again."""
        self._driver.launch()


def last_batch(folder: Path) -> int:
    """Return the last batch that a folder of a checkpoint has, ``offsets`` or ``commits``; -1: none."""
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def check_spark() -> None:
    """Do nothing if PySpark is installed.  Raises `SparkMissing`."""
    if find_spec("pyspark") is None:
        raise SparkMissing(
            "--spark runs a driver of Spark, and PySpark is not installed: pip install 'replitree[spark]'"
        )


__all__ = [
    "CHECKPOINT_IN",
    "CUT_LEVELS",
    "HISTORY",
    "KILL",
    "LEVELS",
    "LOG",
    "SEEN",
    "STREAM",
    "DriverFault",
    "DriverOrder",
    "SparkDriver",
    "check_spark",
    "last_batch",
]
