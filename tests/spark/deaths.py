"""Deaths of executors, workers and drivers of a standalone cluster, at a moment that a task or a program chooses."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXECUTOR = b"CoarseGrainedExecutorBackend"
"""What the command line of an executor has."""


def dying(marker: Path, *, of_worker: bool = False) -> Callable[[], None]:
    """Return what kills the executor of the task that first calls it, or the executor's worker."""
    path = str(marker)

    # Inside, so that it travels by value: executors can't import tests.
    def first_one_dies() -> None:
        # The parent of the daemon that has forked this process is the executor, and its parent is the worker.
        process = os.getppid()
        for _ in range(2 if of_worker else 1):
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        assert process > 1, "the worker of this executor lives"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(process, signal.SIGKILL)

    return first_one_dies


def with_a_death(frame: DataFrame, marker: Path, *, of_worker: bool = False) -> DataFrame:
    """Return the frame with one executor, or its worker, killed by the task that comes first."""
    from pyspark.sql.functions import col, udf

    die = dying(marker, of_worker=of_worker)

    @udf("bigint")
    def first_one_dies(key: int) -> int:
        die()
        return key

    return frame.withColumn("k", first_one_dies(col("k")))


def executors_below(folder: Path) -> list[int]:
    """Return the process ids of the executors that work below a folder."""
    found = []
    for process in [path for path in Path("/proc").iterdir() if path.name.isdecimal()]:
        # Any process may end meanwhile.
        with suppress(OSError):
            if EXECUTOR in (process / "cmdline").read_bytes() and (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return sorted(found)


def executor_of(port: int) -> int:
    """Return the process id of the executor that has the connection from a local port, itself or in a Python worker."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    open_, own = "01", f":{port:04X}"
    sockets = {f"socket:[{words[9]}]" for words in lines if words[1].endswith(own) and words[3] == open_}
    for process in [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]:
        executor = _executor_above(process)
        if executor and _has_open(process, sockets):
            return executor
    raise AssertionError(f"no executor has the connection from port {port}")


def _executor_above(process: int) -> int:
    """Return the executor that a process is, or is of; 0 when there is none."""
    with suppress(FileNotFoundError, ProcessLookupError):
        while process > 1:
            if EXECUTOR in Path(f"/proc/{process}/cmdline").read_bytes():
                return process
            process = parent(process)
    return 0


def _has_open(process: int, what: set[str]) -> bool:
    """Whether a process has a descriptor of one of these; of one that ends meanwhile: no."""
    with suppress(OSError):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                if str(descriptor.readlink()) in what:
                    return True
    return False


def parent(process: int) -> int:
    """Return the process id of a process's parent."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


DRIVER = """
import os, sys
import replitree
from pyspark.sql.functions import udf
from replitree.spark.session.session import spark_session

master, folder, marker, gate = sys.argv[1:]
session = spark_session(
    master=master,
    conf={
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.cores.max": 1,
    },
)

@udf("bigint")
def last_one_waits(key):
    if key == 5999:
        open(marker, "w").close()
        os.open(gate, os.O_RDONLY)
    return key

rows = session.range(0, 6000, 1, 2).select(last_one_waits("id").alias("k"))
table = replitree.connect(folder).table("target")
table.insert(rows.selectExpr("k", "cast(k % 3 as int) as g", "sha2(string(k), 256) as s"), token="job")
"""
"""A driver whose job does not end by itself: its second task waits after the first one has sent its files."""
