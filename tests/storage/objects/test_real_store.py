"""The same tests against a real S3 server, and what it keeps when it is killed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from replitree.errors import NotAuthorized, StoreError
from replitree.storage.objects import ObjectStore, open_store
from tests.storage.objects.conformance import ObjectStoreConformance
from tests.storage.objects.seaweed import KEYS, Seaweed

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


_PREFIXES = (f"prefix-{number}" for number in itertools.count())


@pytest.fixture
def store(seaweed: Seaweed) -> ObjectStore:
    return open_store(seaweed.url(next(_PREFIXES)), environment=KEYS)


class TestRealStore(ObjectStoreConformance):
    """Of a server of another project."""


def test_wrong_credentials_are_refused(seaweed: Seaweed) -> None:
    store = open_store(seaweed.url("x"), environment=KEYS | {"AWS_SECRET_ACCESS_KEY": "wrong"})
    with pytest.raises(NotAuthorized, match="refuses"):
        store.create("a", b"x")


def test_what_was_acknowledged_survives_that_the_store_is_killed(seaweed: Seaweed) -> None:
    impatient = open_store(seaweed.url("killed"), environment=KEYS, patience_s=0.0)
    acknowledged: list[str] = []

    def write(writer: int) -> None:
        for number in itertools.count():
            try:
                impatient.create(f"{writer}/{number}", f"{writer} {number}".encode())
            except StoreError:
                return
            acknowledged.append(f"{writer}/{number}")
            if writer == 0 and number == 50:
                seaweed.kill()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    seaweed.start()
    patient = open_store(seaweed.url("killed"), environment=KEYS)
    assert len(acknowledged) > 50
    for key in acknowledged:
        assert patient.get(key) == key.replace("/", " ").encode()
