"""The conformance tests of stores against Azurite, the emulator of Azure's makers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from replitree.errors import NotAuthorized
from replitree.storage.objects import ObjectStore, open_store
from tests.storage.objects.azurite import KEY, Azurite, why_not
from tests.storage.objects.conformance import ObjectStoreConformance

pytestmark = [
    pytest.mark.system,
    pytest.mark.nightly,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "it runs"),
]

_PREFIXES = (f"prefix-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def store(azurite: Azurite) -> ObjectStore:
    return open_store(azurite.url(next(_PREFIXES)), environment={"AZURE_STORAGE_ACCOUNT_KEY": KEY})


class TestAzurite(ObjectStoreConformance):
    """Of a server of another project."""


def test_a_wrong_key_is_refused(azurite: Azurite) -> None:
    store = open_store(azurite.url("x"), environment={"AZURE_STORAGE_ACCOUNT_KEY": KEY.swapcase()})
    with pytest.raises(NotAuthorized, match="refuses"):
        store.create("a", b"x")
