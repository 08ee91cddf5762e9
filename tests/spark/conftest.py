"""One Spark session and one cluster for all files; a file that needs other settings ends it before it begins its own.

So it is with a standalone cluster of Spark's: the files that need one share its processes, and its session where they can.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.spark.read import source_read
from replitree.spark.session.catalog import CATALOG
from replitree.spark.session.session import spark_session
from replitree.spark.source import register
from replitree.spark.write import source_write
from replitree.storage.objects.location import CREDENTIALS_FILE_VARIABLE
from replitree_bench.kit.standalone import StandaloneSpark
from tests.client.conftest import FakeCluster
from tests.shared.stores import BUCKET, FAULTY, empty_store, kinds_of
from tests.shared.stores import credentials as keys_of_the_store  # otherwise this process has none
from tests.spark.event_logs import logging_to
from tests.spark.standalone import RESULT_BYTES_MAX, created, standalone_spark
from tests.spark.stored import Stored
from tests.spark.warm_session import begin_warm_session
from tests.storage.objects.seaweed import KEYS, Seaweed
from tools import jar
from tools.class_archive import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSpark:
    """Spark with two tasks at a time, each tried three times.

    A session that ends takes its Python workers with it: a file that begins another one pays for six kinds of them again.
    """

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._master, self._conf = "", dict[str, object]()

    def session(self) -> SparkSession:
        """Return the session; the first caller begins it."""
        if self._master:
            self.stop()
        if self._session is None:
            # `make` has made it; a single file of tests may be run without, after the Scala sources have changed.
            assert jar.main() == 0
            warnings.simplefilter(
                "ignore", ResourceWarning
            )  # Spark leaves its gateway's sockets to the end of the process
            self._session = begin_warm_session(
                "local[2,3]",
                {
                    "spark.sql.shuffle.partitions": 4,
                    "spark.sql.execution.pyspark.udf.faulthandler.enabled": True,
                    "spark.driver.memory": "1g",
                },
            )
            self._session.sparkContext.setLogLevel("OFF")
        return self._session

    def elsewhere(self, master: str, conf: Mapping[str, object]) -> SparkSession:
        """Return a session of a master with these settings; the first caller ends the session before, and begins it."""
        if self._session is None or (self._master, self._conf) != (master, conf):
            self.stop()
            self._session = spark_session(master=master, conf=conf)
            self._session.sparkContext.setLogLevel("OFF")
            self._master, self._conf = master, dict(conf)
        return self._session

    @contextmanager
    def with_keys(self, credentials: Path, conf: Mapping[str, object]) -> Iterator[SparkSession]:
        """Begin a session with other settings, whose tasks have a store's credentials and try twice, instead of the shared one.

        What the first session of a Java machine finds by itself runs with that machine's environment for ever; a source that a
        session registers runs with the environment that the session gives to its executors.
        """
        self.stop()
        keys = {"spark.driver.memory": "1g", f"spark.executorEnv.{CREDENTIALS_FILE_VARIABLE}": credentials}
        made = begin_warm_session("local[2,2]", keys | dict(conf))
        made.sparkContext.setLogLevel("OFF")
        register(made)
        yield made
        made.stop()

    def stop(self) -> None:
        """End the session, if there is one."""
        if self._session is not None:
            self._session.stop()
            self._session = None
        self._master, self._conf = "", {}


@pytest.fixture(scope="package")
def shared_spark() -> Iterator[SharedSpark]:
    """The session of all files with the same settings; it ends before files of another folder run.

    A file with other settings stops it: a process has one session at a time, and Spark would return this one again.
    """
    shared = SharedSpark()
    yield shared
    shared.stop()


@pytest.fixture(scope="module")
def spark(shared_spark: SharedSpark) -> SparkSession:
    """Spark with two tasks at a time, each tried three times."""
    return shared_spark.session()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two replicas in a folder whose name Spark's readers would take for a pattern."""
    folder = tmp_path_factory.mktemp("cluster") / "a [b] {c} *"
    with LocalCluster(folder, 2, durable=False) as cluster:
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Scripted replicas, to which the data source connects."""
    made = FakeCluster(tmp_path)

    def connect(_: object) -> Connection:
        return made.connect()

    monkeypatch.setattr(source_read, "open_connection", connect)
    monkeypatch.setattr(source_write, "kept_connection", connect)
    yield made
    made.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A table name for this test."""
    return "t_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:50]


@pytest.fixture
def table(running: LocalCluster, name: str) -> Iterator[Table]:
    """An empty table, partitioned and ordered."""
    yield running.create_table(
        name, "d date, k bigint not null, v double, s string", order_by="k", partition_by="month(d)"
    )
    running.drop_table(name)


def keys_file(folder: Path) -> Path:
    """Write the credentials of the tests' S3 servers into a file."""
    access, secret = (KEYS[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    file = folder / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")
    return file


def uploads_left(cluster: LocalCluster, table: Table) -> list[str]:
    """Return what is in the upload folders of a table, on all replicas."""
    folders = [cluster.folder / name / "data" / "tables" / table.definition.folder_name for name in cluster.names]
    return [entry.name for folder in folders for entry in folder.glob("uploads/*")]


# --- a standalone cluster whose executors do not see the replicas' folders ---


@pytest.fixture(scope="package")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that executors do not see."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="package")
def standalone(hidden: Path) -> Iterator[StandaloneSpark]:
    with standalone_spark(hidden) as started:
        yield started


@pytest.fixture(scope="package")
def replicas(hidden: Path, standalone: StandaloneSpark) -> Iterator[LocalCluster]:
    del standalone  # Its processes start meanwhile.
    with LocalCluster(hidden / "replicas", 2, durable=False) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sessions of that cluster write their event logs."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def elsewhere(
    standalone: StandaloneSpark, replicas: LocalCluster, shared_spark: SharedSpark, events: Path
) -> SparkSession:
    conf: dict[str, object] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.maxResultSize": RESULT_BYTES_MAX,
        "spark.executor.memory": "512m",
        # A worker that a test adds is left to another driver.
        "spark.cores.max": 2,
        "spark.sql.shuffle.partitions": 2,
        # Each query runs once here: compiling it costs more than running it.
        "spark.sql.codegen.wholeStage": False,
        "spark.executor.extraJavaOptions": java_options(),
        f"{CATALOG}.url": str(replicas.folder),
    }
    return shared_spark.elsewhere(standalone.master, conf | logging_to(events))


@pytest.fixture
def target(replicas: LocalCluster) -> Iterator[Table]:
    with created(replicas) as made:
        yield made


@pytest.fixture(scope="module")
def stored_cluster(tmp_path_factory: pytest.TempPathFactory, s3_server: Seaweed) -> Iterator[LocalCluster]:
    """Two replicas with the store's credentials."""
    assert s3_server.port
    settings = {"old_parts_lifetime_s": 0.2}
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False, settings=settings)
    with keys_of_the_store():
        cluster.open()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keys_file(tmp_path_factory.mktemp("keys"))


@pytest.fixture(params=kinds_of(BUCKET, at_night=(FAULTY,)))
def url(request: pytest.FixtureRequest, tmp_path: Path, s3_server: Seaweed) -> Iterator[str]:
    """The URL of an empty store, without credentials in this process."""
    with empty_store(request.param, tmp_path, lambda: s3_server) as found:
        yield found


@pytest.fixture
def stored(stored_cluster: LocalCluster, table: Table) -> Iterator[Stored]:
    made = Stored(stored_cluster, table)
    yield made
    made.close()
