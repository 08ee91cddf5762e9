"""A Spark session for each file, because other files of the same process stop theirs; one cluster for all."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.spark.read import source_read
from replitree.spark.session.session import spark_session
from replitree.spark.write import source_write
from tests.client.conftest import FakeCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Spark with two tasks at a time, each tried three times."""
    warnings.simplefilter("ignore", ResourceWarning)  # Spark leaves its gateway's sockets to the end of the process
    session = spark_session(
        master="local[2,3]",
        conf={
            "spark.sql.shuffle.partitions": 4,
            "spark.sql.execution.pyspark.udf.faulthandler.enabled": True,
            "spark.driver.memory": "1g",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


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

    for module in (source_read, source_write):
        monkeypatch.setattr(module, "open_connection", connect)
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


def uploads_left(cluster: LocalCluster, table: Table) -> list[str]:
    """Return what is in the upload folders of a table, on all replicas."""
    folders = [cluster.folder / name / "data" / "tables" / table.definition.folder_name for name in cluster.names]
    return [entry.name for folder in folders for entry in folder.glob("uploads/*")]
