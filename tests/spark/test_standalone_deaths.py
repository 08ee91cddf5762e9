"""Executors and workers are killed when a task has written its files and its driver does not know that yet.

The replica advertises the address of a server in front of it.  That one kills the task's executor, or its worker, when the
replica has taken the task's files, and never answers the task.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree_bench.kit.standalone import StandaloneSpark
from tests.spark.conftest import uploads_left
from tests.spark.deaths import executor_of, parent
from tests.spark.passing import Passed, Passing
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.system,
    # PySpark says so when a function in Python is made.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Cannot infer the eval type from type hints:UserWarning"),
]

ROWS = 3000

END_S_MAX = 300.0
"""How long an executor may take to end when its worker was killed, in seconds: minutes where other tests fill the cores."""


class Killing:
    """Kills the executor of a task whose file the replica has, or the executor's worker.

    Parameters
    ----------
    folder
        Of the replica.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.victims = deque[str]()
        """Whom the next tasks cost: ``executor`` or ``worker``."""
        self.killed: list[tuple[str, bool]] = []
        """Each victim, and whether the replica had the file when it died."""

    def answered(self, passed: Passed, port: int) -> bool:
        """See `Passing`: the answer to a task that has sent its file gets lost, and so does the task."""
        if passed.method != "PUT" or "/tasks/" not in passed.path or not self.victims:
            return True
        victim = self.victims.popleft()
        upload, _, *place = passed.path.split("/")[5:]
        process = executor_of(port)
        has_file = any(self._folder.rglob(f"uploads/{upload}_scratch/{'/'.join(place)}"))
        os.kill(parent(process) if victim == "worker" else process, signal.SIGKILL)
        self.killed.append((victim, has_file))
        # A worker's executor ends by itself as soon as it notices.
        wait_for(lambda: not _is_running(process), "the executor has ended", END_S_MAX)
        return False


def _is_running(process: int) -> bool:
    """Whether a process runs: its parent may not have asked for its end yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def killing(hidden: Path) -> Killing:
    return Killing(hidden / "gated")


@pytest.fixture(scope="module")
def gated(hidden: Path, killing: Killing, standalone: StandaloneSpark) -> Iterator[LocalCluster]:
    """A replica that is asked through a server which kills."""
    del standalone  # Its processes start meanwhile.

    def listens() -> str:
        lines = cluster.log_file("r1").read_bytes().splitlines()
        return str(next(msgspec.json.decode(line)["address"] for line in lines if line.startswith(b'{"ready":true')))

    with Passing(listens, killing.answered) as passing:
        cluster = LocalCluster(hidden / "gated", 1, durable=False, settings={"advertise": passing.address})
        with cluster:
            yield cluster


@pytest.fixture(scope="module")
def replicas(gated: LocalCluster) -> LocalCluster:
    """The cluster of the catalog."""
    return gated


def by_source(spark: SparkSession, replicas: LocalCluster) -> None:
    options = {"table": "target", "url": str(replicas.folder)}
    rows = spark.range(0, ROWS, 1, 2).selectExpr("id as k", "1 as g", "sha2(string(id), 256) as s")
    rows.write.format("replitree").options(**options).mode("append").save()


def by_insert(spark: SparkSession, replicas: LocalCluster) -> None:
    del replicas
    spark.sql(
        f"insert into replitree.default.target select id, 1, sha2(string(id), 256) from range(0, {ROWS}, 1, 2)"
    ).collect()


@pytest.mark.parametrize(
    ("load", "victim"),
    [
        # By day a worker, and an executor in the test below; at night the other pairs, too.
        pytest.param(by_source, "executor", marks=pytest.mark.nightly),
        (by_source, "worker"),
        pytest.param(by_insert, "executor", marks=pytest.mark.nightly),
        pytest.param(by_insert, "worker", marks=pytest.mark.nightly),
    ],
)
def test_one_is_killed_when_its_task_has_sent_its_file(
    elsewhere: SparkSession,
    standalone: StandaloneSpark,
    replicas: LocalCluster,
    target: Table,
    killing: Killing,
    load: Callable[[SparkSession, LocalCluster], None],
    victim: str,
) -> None:
    killing.victims.append(victim)
    load(elsewhere, replicas)
    assert_killed(standalone, killing, victim)
    rows = target.to_arrow(level="linearizable")
    assert sorted(rows["k"].to_pylist()) == list(range(ROWS))
    assert sorted(len(part.manifest.files) for part in target.snapshot().parts) == [2], "a file of each task"
    assert uploads_left(replicas, target) == []


@pytest.mark.parametrize(
    ("statement", "victim"),
    [
        pytest.param("update", "executor", marks=pytest.mark.nightly),
        ("update", "worker"),
        ("merge", "executor"),
        pytest.param("merge", "worker", marks=pytest.mark.nightly),
    ],
)
def test_one_is_killed_when_its_task_of_a_statement_has_sent_its_file(
    elsewhere: SparkSession,
    standalone: StandaloneSpark,
    replicas: LocalCluster,
    target: Table,
    killing: Killing,
    statement: str,
    victim: str,
) -> None:
    target.insert({"k": list(range(60)), "g": [1] * 60, "s": ["old"] * 60})
    statements = {
        "update": "update {t} set s = 'new' where k % 4 = (select min(id) from range(4))",
        "merge": "merge into {t} using (select id from range(0, 64, 4)) on k = id when matched then update set s = 'new'"
        " when not matched then insert (k, g, s) values (id, 1, 'new')",
    }
    killing.victims.append(victim)
    elsewhere.sql(statements[statement].format(t="replitree.default.target")).collect()
    assert_killed(standalone, killing, victim)
    found = target.to_arrow(level="linearizable").sort_by("k").to_pylist()
    wanted = [*range(60), *([60] if statement == "merge" else [])]
    assert [(row["k"], row["s"]) for row in found] == [(k, "old" if k % 4 else "new") for k in wanted]
    assert uploads_left(replicas, target) == []


def assert_killed(standalone: StandaloneSpark, killing: Killing, victim: str) -> None:
    assert killing.killed == [(victim, True)]
    killing.killed.clear()
    assert standalone.replace_the_killed() == (victim == "worker")
