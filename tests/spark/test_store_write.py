"""Spark writes into a table's bucket, on a real S3 server: tasks put the files, a replica takes them by reference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replitree.client.cluster import LocalCluster
from replitree.client.fsck import FsckReport
from replitree.client.table import Table
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol import layout
from replitree.protocol.effects import Children
from replitree.protocol.layout import Table as Place
from replitree.spark.session import spark_session
from replitree.spark.source import register
from replitree.storage.objects.location import CREDENTIALS_FILE_VARIABLE, open_store
from tests.spark.conftest import uploads_left
from tests.storage.objects.seaweed import KEYS, Seaweed
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROWS = 40_000
FATAL_KEY = ROWS - 1


@contextmanager
def keys_of_the_store() -> Iterator[None]:
    """Give this process, and what it starts meanwhile, the credentials of the server: otherwise it has none."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in KEYS.items():
            environment.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def stored_cluster(tmp_path_factory: pytest.TempPathFactory, s3_server: Seaweed) -> Iterator[LocalCluster]:
    """Two replicas with the store's credentials."""
    assert s3_server.port
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False)
    with keys_of_the_store():
        cluster.open()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "credentials"
    access, secret = (KEYS[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    path.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")
    return path


@pytest.fixture(scope="module")
def session(credentials: Path) -> Iterator[SparkSession]:
    """Spark whose tasks have the store's credentials, and try twice."""
    made = spark_session(
        master="local[2,2]",
        conf={"spark.driver.memory": "1g", f"spark.executorEnv.{CREDENTIALS_FILE_VARIABLE}": credentials},
    )
    made.sparkContext.setLogLevel("OFF")
    register(made)
    yield made
    made.stop()


@pytest.fixture
def table(stored_cluster: LocalCluster, s3_server: Seaweed) -> Iterator[Table]:
    name = f"t_{len(stored_cluster.tables())}_{os.urandom(3).hex()}"
    made = stored_cluster.create_table(
        name,
        "d date, k bigint not null, s string",
        order_by="k",
        partition_by="month(d)",
        storage=s3_server.url("write"),
        wait_replicas=2,
    )
    yield made
    stored_cluster.drop_table(name)


class Stored:
    """What the bucket and coordination have of a table."""

    def __init__(self, cluster: LocalCluster, table: Table) -> None:
        with keys_of_the_store():
            self._store = open_store(table.definition.store_url)
        self._root = f"tables/{table.definition.table_id}"
        self._session = ZooKeeperCoordination(cluster.access.url)
        self._place = Place(layout.table_path(self._session.url.root, table.name))

    def objects(self) -> set[str]:
        """Keys of all objects, without what they have in common."""
        return {found.key.removeprefix(f"{self._root}/") for found in self._store.list(self._root)}

    def attempts(self) -> tuple[str, ...]:
        return self._session.perform(Children(layout.all_writing(self._place))) or ()

    def owned(self) -> set[str]:
        return set(self._session.perform(Children(layout.shares(self._place))) or ())

    def put_late(self, share: str) -> None:
        self._store.create(f"{self._root}/{share}/data-77.parquet", b"late")

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def stored(stored_cluster: LocalCluster, table: Table) -> Iterator[Stored]:
    made = Stored(stored_cluster, table)
    yield made
    made.close()


def frame_of(spark: SparkSession, tasks: int = 4) -> DataFrame:
    return spark.range(0, ROWS, 1, tasks).select(
        F.expr("date_add(date'2018-01-01', cast(id % 59 as int))").alias("d"),
        F.col("id").alias("k"),
        F.concat(F.lit("s"), F.col("id") % 10).alias("s"),
    )


def failing(rows: DataFrame, attempts: int) -> DataFrame:
    """Let the task with `FATAL_KEY` fail as often, after its other rows."""

    def check(key: int) -> int:
        context = TaskContext.get()
        assert context is not None
        if key == FATAL_KEY and context.attemptNumber() < attempts:
            raise ValueError("as the test wants")
        return key

    return rows.withColumn("k", F.udf(check, "bigint", useArrow=False)("k"))


def save(frame: DataFrame, cluster: LocalCluster, table: Table, **options: str) -> None:
    given = {"url": str(cluster.folder), "table": table.name} | options
    frame.write.format("replitree").options(**given).mode("append").save()


def keys(table: Table) -> list[int]:
    found: list[int] = table.to_arrow(columns=["k"], min_index=table.status().log_tail - 1)["k"].to_pylist()
    return sorted(found)


def test_tasks_put_the_files_and_the_replica_takes_them_by_reference(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    save(frame_of(session), stored_cluster, table, through="store", inserttoken="job")
    copies = [path for name in stored_cluster.names for path in _data_files(stored_cluster, name, table)]
    assert copies == [], "no replica has had a row"
    assert keys(table) == list(range(ROWS))
    parts = table.snapshot().parts
    assert [len(part.manifest.files) for part in parts] == [4, 4], "each task has put one for each partition"
    files = {f"{part.manifest.share_id}/{file.name}" for part in parts for file in part.manifest.files}
    assert stored.objects() == files | {f"{part.manifest.share_id}/manifest.json" for part in parts}
    assert uploads_left(stored_cluster, table) == []
    save(frame_of(session), stored_cluster, table, through="store", inserttoken="job")
    assert len(keys(table)) == ROWS, "the same token again inserts nothing"
    wait_for(lambda: stored.attempts() == () and len(stored.owned()) == 2, "what the second job has put is gone")
    wait_for(lambda: {key.partition("/")[0] for key in stored.objects()} == stored.owned(), "its objects, too")


def _data_files(cluster: LocalCluster, replica: str, table: Table) -> list[Path]:
    return list((cluster.folder / replica / "data" / "tables" / table.definition.folder_name).rglob("data-*.parquet"))


def test_of_a_task_that_fails_and_is_tried_again_one_attempt_stays(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    save(failing(frame_of(session), 1), stored_cluster, table, through="store")
    assert keys(table) == list(range(ROWS))
    parts = table.snapshot().parts
    files = {f"{part.manifest.share_id}/{file.name}" for part in parts for file in part.manifest.files}
    assert stored.objects() == files | {f"{part.manifest.share_id}/manifest.json" for part in parts}


def test_a_job_that_fails_leaves_nothing(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    with pytest.raises(PySparkException, match="as the test wants"):
        save(failing(frame_of(session), 9), stored_cluster, table, through="store")
    wait_for(lambda: stored.attempts() == () and stored.objects() == set(), "everything is gone")
    assert keys(table) == []
    assert uploads_left(stored_cluster, table) == []


DRIVER = """
import sys
from pyspark.sql import functions as F
from replitree.spark.session import spark_session
from replitree.spark.source import register
folder, table, credentials, go_on, through = sys.argv[1:]
conf = {"spark.executorEnv.REPLITREE_STORE_CREDENTIALS": credentials} if credentials else {}
session = spark_session(master="local[2]", conf={"spark.driver.memory": "512m", **conf})
register(session)
def wait(key):
    import pathlib, time
    while key == 9999 and not pathlib.Path(go_on).exists():
        time.sleep(0.1)
    return key
rows = session.range(0, 10_000, 1, 2).select(F.udf(wait, "bigint", useArrow=False)("id").alias("k"))
options = {"url": folder, "table": table, **({"through": through} if through else {})}
rows.write.format("replitree").options(**options).mode("append").save()
"""


def test_a_driver_that_is_killed_leaves_nothing_visible_and_nothing_for_good(
    stored_cluster: LocalCluster, table: Table, stored: Stored, credentials: Path, tmp_path: Path
) -> None:
    arguments = [str(stored_cluster.folder), table.name, str(credentials), str(tmp_path / "never"), "store"]
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], start_new_session=True)
    try:
        wait_for(lambda: any(key.endswith("parquet") for key in stored.objects()), "the first task has put", 120)
    finally:
        os.killpg(driver.pid, 9)
        driver.wait(20)
    (share,) = stored.attempts()
    assert keys(table) == []
    assert uploads_left(stored_cluster, table) != [], "it is given up when it has been silent for long"
    assert _fsck(stored_cluster, table).findings == (), "which is its replica's to do"
    for name in stored_cluster.names:
        folder = stored_cluster.folder / name / "data" / "tables" / table.definition.folder_name / "uploads"
        for path in folder.glob("*"):
            os.utime(path, (1, 1))
    wait_for(lambda: stored.attempts() == () and stored.objects() == set(), "everything is gone", 90)
    stored.put_late(share)  # as a task that nobody could stop
    report = _fsck(stored_cluster, table)
    assert [(each.kind, each.share, each.repair) for each in report.findings] == [("orphan", share, "done")]
    assert stored.objects() == set()


def _fsck(cluster: LocalCluster, table: Table) -> FsckReport:
    with keys_of_the_store():
        return cluster.fsck(table.name, with_repair=True, grace_s=0.0)


@pytest.mark.nightly
def test_without_credentials_rows_go_through_a_replica_and_the_log_says_so(
    stored_cluster: LocalCluster, table: Table, stored: Stored, tmp_path: Path
) -> None:
    (tmp_path / "on").touch()
    arguments = [str(stored_cluster.folder), table.name, "", str(tmp_path / "on"), ""]
    driver = subprocess.run([sys.executable, "-c", DRIVER, *arguments], capture_output=True, text=True, check=False)
    assert driver.returncode == 0, driver.stderr
    assert "no credentials for the object store" in driver.stderr
    assert "the rows of this task go through replica r" in driver.stderr
    assert keys(table) == list(range(10_000))
    assert len(stored.owned()) == 1


def test_who_asks_for_the_store_is_told_when_a_replica_offers_none(
    session: SparkSession, stored_cluster: LocalCluster
) -> None:
    local = stored_cluster.create_table("local", "d date, k bigint not null, s string", order_by="k")
    with pytest.raises(PySparkException, match="leave the option through out"):
        save(frame_of(session), stored_cluster, local, through="store")
    save(frame_of(session), stored_cluster, local)
    assert keys(local) == list(range(ROWS))
