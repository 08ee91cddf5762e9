"""A statement of which some tasks see the replica's folder and others do not: the replica makes parts of all their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.insert.upload import send_file
from replitree.client.table import Table
from replitree.protocol.core.parts import parse_part
from replitree.spark.catalog.rewriting import BegunStatement, Rewriting
from replitree.spark.session.catalog import CATALOG
from replitree.spark.session.session import spark_session
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts.manifest import FileEntry
from replitree_bench.kit.standalone import StandaloneSpark
from tests.spark.conftest import SharedSpark, uploads_left
from tests.spark.standalone import standalone_spark
from tools.class_archive import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

MONTHS = (date(2024, 1, 15), date(2024, 2, 15), date(2024, 3, 15))
GROUPS = 8


def in_month(month: date, keys: range, text: str) -> pa.Table:
    columns = {"d": [month] * len(keys), "k": list(keys), "v": [k / 2 for k in keys], "s": [text] * len(keys)}
    return pa.table({"d": pa.array(columns["d"], pa.date32()), **{name: columns[name] for name in "kvs"}})


class Tasks:
    """The tasks of a statement: each writes a file as the executor's JVM does, and leaves it here, or sends it."""

    def __init__(self, begun: BegunStatement, folder: Path) -> None:
        self._begun = begun
        self._folder = folder
        self._number = 0

    def wrote(self, rows: pa.Table, *, sees: bool) -> str:
        """Write a file; return its place."""
        plan, self._number = self._begun.plan, self._number + 1
        path = (self._begun.folder if sees else self._folder) / f"rows-{self._number}-0.parquet"
        pq.write_table(rows.cast(plan.definition.stored.arrow_schema), path)
        if sees:
            return str(path)
        attempt, file = f"task-{self._number}", FileEntry("data-0.parquet", 0, path.stat().st_size, file_checksum(path))
        send_file(plan.table.http, plan.upload, "all", path, file, attempt)
        return f"{attempt}/all/{file.name}"


def test_files_that_tasks_have_left_and_files_that_they_have_sent_are_one_statement(
    running: LocalCluster, table: Table, tmp_path: Path
) -> None:
    for number, month in enumerate(MONTHS):
        table.insert(in_month(month, range(10 * number, 10 * number + 10), "old"))
    rewriting = Rewriting()
    begun = rewriting.begin(table)
    tasks = Tasks(begun, tmp_path)
    first, second, _ = sorted(
        (source.part for source in begun.snapshot.parts), key=lambda part: parse_part(part).block_min
    )
    january, february, _ = MONTHS
    written = [
        (first, tasks.wrote(in_month(january, range(10), "left"), sees=True)),
        (second, tasks.wrote(in_month(february, range(10, 15), "sent"), sees=False)),
        # Spark may divide the rows of a part over tasks.
        (second, tasks.wrote(in_month(february, range(15, 20), "left"), sees=True)),
        ("", tasks.wrote(in_month(january, range(100, 102), "new"), sees=True)),
        ("", tasks.wrote(in_month(february, range(102, 104), "new"), sees=False)),
    ]
    ((_, index),) = rewriting.commit(begun.id, "MERGE", [first, second], written, "")
    rewriting.end(begun.id)
    found = table.to_arrow(min_index=index, level="linearizable").sort_by("k")
    texts = ["left"] * 10 + ["sent"] * 5 + ["left"] * 5 + ["old"] * 10 + ["new"] * 4
    assert list(zip(found["k"].to_pylist(), found["s"].to_pylist(), strict=True)) == list(
        zip([*range(30), *range(100, 104)], texts, strict=True)
    )
    counts = Counter(part.manifest.partition for part in table.snapshot(level="linearizable").parts)
    assert sorted(counts.values()) == [1, 2, 2], "the new rows of each partition are one part"
    assert uploads_left(running, table) == []


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    found = tmp_path / "hidden"
    found.mkdir()
    return found


@pytest.fixture
def mixed(hidden: Path) -> Iterator[StandaloneSpark]:
    """A cluster with two executors; one of them sees the folder."""
    with standalone_spark(hidden, workers=1) as started:
        started.add_worker(1, sees=True)
        yield started


@pytest.fixture
def replicas(hidden: Path, mixed: StandaloneSpark) -> Iterator[LocalCluster]:
    del mixed  # It has set who may see the folder.
    with LocalCluster(hidden / "replicas", 2, durable=False) as cluster:
        yield cluster


@pytest.fixture
def session(mixed: StandaloneSpark, replicas: LocalCluster, shared_spark: SharedSpark) -> Iterator[SparkSession]:
    shared_spark.stop()
    made = spark_session(
        master=mixed.master,
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": 2,
            # One task for each executor, although there are few rows.
            "spark.sql.adaptive.enabled": False,
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            "spark.executor.extraJavaOptions": java_options(),
            f"{CATALOG}.url": str(replicas.folder),
        },
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.mark.nightly
def test_an_executor_that_sees_the_folder_and_one_that_does_not_write_one_statement(
    session: SparkSession, replicas: LocalCluster
) -> None:
    table = replicas.create_table("mixed", "k bigint not null, g int, s string", order_by="k", partition_by="g")
    rows = session.range(800).selectExpr("id as k", f"cast(id % {GROUPS} as int) as g", "'old' as s")
    table.insert(rows)
    session.sparkContext.setJobGroup("merge", "")
    session.sql(
        "merge into replitree.default.mixed using (select id from range(0, 1000, 5)) on k = id when matched then update set"
        " s = 'new' when not matched then insert (k, g, s) values (id, 99, 'put')"
    ).collect()
    found = table.to_arrow(level="linearizable").sort_by("k").to_pylist()
    wanted = [(k, k % GROUPS, "old" if k % 5 else "new") for k in range(800)]
    assert [tuple(row.values()) for row in found] == wanted + [(k, 99, "put") for k in range(800, 1000, 5)]
    assert len(executors_that_wrote(session, "merge")) == 2
    assert uploads_left(replicas, table) == []


def executors_that_wrote(session: SparkSession, group: str) -> set[str]:
    """Return the executors of the tasks of a job group's last stage, which writes."""
    context = session.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()  # noqa: SLF001 - Python has no tasks
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stage = max(number for job in jobs if job is not None for number in job.stageIds)
    tasks = store.taskList(stage, 0, 100)
    return {tasks.apply(number).executorId() for number in range(tasks.size())}
