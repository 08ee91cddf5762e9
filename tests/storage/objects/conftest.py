"""Object stores of every kind, empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.storage.objects import ObjectStore, open_store, opening
from replitree.storage.objects.identity import BearerToken, Lasting
from tests.storage.objects.azure_server import KEY, AzureServer
from tests.storage.objects.gcs_server import TOKEN, GcsServer
from tests.storage.objects.s3_server import S3Server

AZURE_KEYS = {"AZURE_STORAGE_ACCOUNT_KEY": KEY}
KEYS = {"AWS_ACCESS_KEY_ID": "test-access", "AWS_SECRET_ACCESS_KEY": "test-secret"}


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


class Pauses(list[float]):
    """Remembers pauses instead of making them."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def bucket(server: S3Server, pauses: Pauses) -> ObjectStore:
    return open_store(server.url(), environment=KEYS, wait=pauses)


@pytest.fixture
def google_bucket(pauses: Pauses, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A bucket of Google's, to a process that has a token."""
    monkeypatch.setattr(opening, "google_source", lambda **_: Lasting("a token of the test", BearerToken(TOKEN)))
    with GcsServer() as server:
        server.state.tokens = {TOKEN}
        yield open_store(server.url(), wait=pauses)


@pytest.fixture
def container(pauses: Pauses) -> Iterator[ObjectStore]:
    """A container of Azure's."""
    with AzureServer() as server:
        yield open_store(server.url(), environment=AZURE_KEYS, wait=pauses)


@pytest.fixture(params=["memory", "folder", "bucket", "google_bucket", "container"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A store of each kind."""
    match request.param:
        case "memory":
            return open_store("memory:///")
        case "folder":
            return open_store(f"file://{tmp_path}/objects")
        case _:
            return request.getfixturevalue(request.param)  # type: ignore[no-any-return]
