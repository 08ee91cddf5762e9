"""Tables, tablets and Spark's tasks on stores of every cloud: real processes, each with the identity that it finds itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from replitree.cli.main import main
from replitree.client.cluster import LocalCluster
from replitree.storage.files.folder_walk import below
from tests.storage.objects.azure_server import AzureServer
from tests.storage.objects.gcs_server import GcsServer
from tests.storage.objects.providers import LONG_S, SOON_S, Provider, service_account
from tests.storage.objects.s3_server import S3Server

pytestmark = pytest.mark.system

KINDS = ("s3", "gs", "az")


@dataclass
class Cloud:
    """A store, the settings of machines that have an identity there, and the secrets that no file may hold."""

    server: S3Server
    settings: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()


@contextmanager
def cloud(kind: str, folder: Path) -> Iterator[Cloud]:
    # The first credentials end soon: what runs longer than it takes to start needs the second ones.
    with Provider(("key-one-0001", SOON_S), ("key-two-0002", LONG_S)) as provider:
        match kind:
            case "s3":
                with S3Server() as server:
                    server.state.keys = {"key-two-0002"}
                    settings = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{provider.url}/container"}
                    yield Cloud(server, settings, ("secret-of-key-two-0002", "session-of-key-two-0002"))
            case "gs":
                with GcsServer() as server:
                    server.state.tokens = {"key-one-0001", "key-two-0002"}
                    file = service_account(folder, provider)
                    yield Cloud(server, {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}, ("key-two-0002", "PRIVATE KEY"))
            case _:
                with AzureServer() as server:
                    server.state.tokens = {"key-one-0001", "key-two-0002"}
                    endpoint = {"IDENTITY_ENDPOINT": f"{provider.url}/azure/token", "IDENTITY_HEADER": "proof"}
                    yield Cloud(server, endpoint | {"AZURE_TOKEN_CREDENTIALS": "prod"}, ("key-two-0002",))


@pytest.fixture(params=KINDS)
def on_cloud(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with cloud(request.param, tmp_path) as made:
        for name, value in made.settings.items():
            monkeypatch.setenv(name, value)
        yield made


def test_a_table_of_real_replicas_lies_there(on_cloud: Cloud, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        table = cluster.create_table("t", "k bigint not null", storage=on_cloud.server.url(), wait_replicas=2)
        table.insert({"k": [1, 2]})
        table.insert({"k": [3]})
        table.optimize(final=True)
        assert sorted(table.to_arrow(level="linearizable")["k"].to_pylist()) == [1, 2, 3]
        assert sorted(table.snapshot().through("store").to_arrow()["k"].to_pylist()) == [1, 2, 3]
        assert any("data-0.parquet" in key for key in on_cloud.server.state.objects)
        assert main(["fsck", "t", "--dir", str(cluster.folder)]) == 0
        written = b""
        for path in below(cluster.folder):
            with suppress(FileNotFoundError):  # the processes go on
                written += path.read_bytes() if path.is_file() else b""
        assert b"activated" in written
        for secret in on_cloud.secrets:
            assert secret.encode() not in written


def test_a_tablet_lies_there(on_cloud: Cloud, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "replitree.cli.main", "tablet", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=os.environ,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    group = str(tmp_path / "group")
    said = run("make", group, "--store", on_cloud.server.url("tablet"))
    said += run("verify", group)
    assert any(key.endswith("state") for key in on_cloud.server.state.objects)
    for secret in on_cloud.secrets:
        assert secret not in said
