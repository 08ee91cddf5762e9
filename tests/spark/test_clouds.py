"""Spark on stores of Google and Azure: driver and executors each find an identity of their own, and no plan has either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session.session import spark_session
from replitree.spark.source import register
from tests.spark.conftest import SharedSpark
from tests.storage.objects.azure_server import AzureServer
from tests.storage.objects.gcs_server import GcsServer
from tests.storage.objects.providers import LONG_S, Provider, service_account
from tests.storage.objects.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.system, pytest.mark.nightly]

DRIVER, EXECUTORS = "token-of-the-driver", "token-of-executors"
ROWS = 40_000


@dataclass
class Cloud:
    """A store, and the settings of machines with two identities there."""

    server: S3Server
    of_driver: dict[str, str]
    of_executors: dict[str, str]


@pytest.fixture(params=["gs", "az"])
def on_cloud(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    server = GcsServer() if request.param == "gs" else AzureServer()
    server.state.tokens = {DRIVER, EXECUTORS}
    with server, Provider((DRIVER, LONG_S)) as first, Provider((EXECUTORS, LONG_S)) as second:
        settings = []
        for name, provider in (("driver", first), ("executors", second)):
            (tmp_path / name).mkdir()
            settings.append(
                {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path / name, provider))}
                if request.param == "gs"
                else {
                    "IDENTITY_ENDPOINT": f"{provider.url}/azure/token",
                    "IDENTITY_HEADER": "proof",
                    "AZURE_TOKEN_CREDENTIALS": "prod",
                }
            )
        for name, value in settings[0].items():
            monkeypatch.setenv(name, value)
        yield Cloud(server, *settings)


@pytest.fixture
def session(on_cloud: Cloud, shared_spark: SharedSpark) -> Iterator[SparkSession]:
    shared_spark.stop()
    environment: dict[str, object] = {f"spark.executorEnv.{k}": v for k, v in on_cloud.of_executors.items()}
    made = spark_session(master="local[2]", conf={"spark.driver.memory": "1g"} | environment)
    made.sparkContext.setLogLevel("OFF")
    # Java may have been started by another test: only a source that is registered runs with this session's environment.
    register(made)
    yield made
    made.stop()


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())  # noqa: SLF001 - there is no other way to all of it


def test_tasks_write_and_read_with_the_identity_of_their_machine(
    session: SparkSession, on_cloud: Cloud, tmp_path: Path
) -> None:
    state = on_cloud.server.state

    def used(begin: int) -> set[str]:
        return {each.removeprefix("Bearer ") for each in state.secrets[begin:]}

    with LocalCluster(tmp_path / "cluster", 1, durable=False) as cluster:
        table = cluster.create_table("t", "k bigint not null, s string", storage=on_cloud.server.url())
        begin = len(state.secrets)
        rows = session.range(0, ROWS, 1, 2).selectExpr("id k", "sha2(string(id), 256) s")
        given = {"url": str(cluster.folder), "table": "t", "through": "store"}
        rows.write.format("replitree").options(**given).mode("append").save()
        assert EXECUTORS in used(begin), "tasks have put the files"
        begin = len(state.secrets)
        source = session.read.format("replitree").options(**given).load()
        assert source.selectExpr("count(s)", "sum(k)").first() == (ROWS, ROWS * (ROWS - 1) // 2)
        assert EXECUTORS in used(begin)
        frame = table.to_df(session)
        assert frame.selectExpr("count(s)", "sum(k)").first() == (ROWS, ROWS * (ROWS - 1) // 2)
        for each in (source, frame):
            assert "token-of-" not in plan_of(each)
            assert "PRIVATE KEY" not in plan_of(each)
