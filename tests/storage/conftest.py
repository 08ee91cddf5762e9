"""Members of blob groups of every kind, three of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.blob_providers import InDirectories, InMemory, Provider
from tests.storage.blob_service_provider import BehindServices
from tests.storage.blob_store_providers import (
    InBuckets,
    InFolders,
    InMemoryStores,
    in_containers,
    in_google_buckets,
    in_test_buckets,
)
from tests.storage.objects.seaweed import KEYS, Seaweed

KINDS = (
    "memory",
    "directory",
    "service",
    "store-memory",
    pytest.param("store-folder", marks=pytest.mark.slow),
    pytest.param("store-bucket", marks=pytest.mark.slow),
    pytest.param("store-google", marks=(pytest.mark.slow, pytest.mark.nightly)),
    pytest.param("store-azure", marks=(pytest.mark.slow, pytest.mark.nightly)),
    # By day the conformance of stores runs on a real S3 server, and groups on the other stores.
    pytest.param("store-seaweed", marks=(pytest.mark.system, pytest.mark.nightly)),
)
_PLACES = (f"group-{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture(params=KINDS)
def provider(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with _provider(request, tmp_path, monkeypatch) as provider:
        yield provider
        provider.close()


@contextmanager
def _provider(request: pytest.FixtureRequest, root: Path, patch: pytest.MonkeyPatch) -> Iterator[Provider]:
    match request.param:
        case "memory":
            yield InMemory()
        case "directory":
            yield InDirectories(root, patch.setattr)
        case "service":
            yield BehindServices(root, patch.setattr)
        case "store-memory":
            yield InMemoryStores(patch.setattr)
        case "store-folder":
            yield InFolders(patch.setattr, root)
        case "store-bucket":
            with in_test_buckets(patch.setattr) as provider:
                yield provider
        case "store-google":
            with in_google_buckets(patch.setattr) as provider:
                yield provider
        case "store-azure":
            with in_containers(patch.setattr) as provider:
                yield provider
        case _:
            server, place = request.getfixturevalue("seaweed"), next(_PLACES)
            yield InBuckets(patch.setattr, lambda prefix: server.url(f"{place}/{prefix}"), KEYS)
