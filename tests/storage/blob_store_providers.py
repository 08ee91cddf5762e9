"""Members on object stores of every kind, and what can happen to them."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import GenericError
from typing_extensions import override

from replitree.storage.files.durable import write_file
from replitree.storage.objects import ObjectStore, open_store, opening
from replitree.storage.objects.identity import BearerToken, Lasting
from replitree.tablet.group.ids import BlobId
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.store import BlobStore, key_of, make_blob_store
from tests.storage.blob_providers import GROUP
from tests.storage.objects.azure_server import AzureServer
from tests.storage.objects.conftest import AZURE_KEYS, KEYS
from tests.storage.objects.gcs_server import TOKEN, GcsServer
from tests.storage.objects.s3_server import S3Server

Patch = Callable[[object, str, object], None]
WRITES = ("put",)
REQUESTS = ("put", "get", "get_range", "head", "list", "delete")


class Faults:
    """Makes requests to chosen stores fail: before they are sent, or when they are done and their answer is on its way.

    Attributes
    ----------
    away, full
        The clients whose requests all fail; those that store nothing.
    lost
        For each request, by name, how many of the next answers get lost.
    done
        Called before each request that passes, with its name and the key.
    """

    def __init__(self, patch: Patch) -> None:
        self.away: list[Any] = []
        self.full: list[Any] = []
        self.lost: dict[str, int] = {}
        self.before: Callable[[str, str], None] = lambda *_: None
        for name in REQUESTS:
            patch(obstore, name, self._failing(name, getattr(obstore, name)))

    def _failing(self, name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        def request(raw: Any, key: Any = None, *arguments: Any, **options: Any) -> Any:
            if any(raw is each for each in self.away):
                raise GenericError("the store can't be reached")
            if name in WRITES and any(raw is each for each in self.full):
                raise GenericError("No space left on device (os error 28)")
            self.before(name, str(key))
            answer = whole(raw, key, *arguments, **options)
            if self.lost.get(name, 0):
                self.lost[name] -= 1
                raise GenericError("the answer did not come")
            return answer

        return request


class OnStores(ABC):
    """Three members, each on a store of its own; the stores are made by `_open`."""

    is_atomic = False

    def __init__(self, patch: Patch) -> None:
        self.faults = Faults(patch)
        self.incarnations: tuple[str, ...] = ("s0", "s1", "s2")
        self._opened: list[BlobStore] = []
        self._stores = [self._open(number) for number in range(3)]
        for number, incarnation in enumerate(self.incarnations):
            make_blob_store(self._stores[number], GROUP, number, incarnation)

    @abstractmethod
    def _open(self, number: int) -> ObjectStore:
        """Open an empty store, or the one that this member had."""

    def raw(self, number: int) -> Any:
        """Return the client of a member's store."""
        return self._stores[number]._raw  # noqa: SLF001 - faults are told by it

    def store(self, number: int) -> ObjectStore:
        """Return a member's store."""
        return self._stores[number]

    def close(self) -> None:
        for each in self._opened:
            each.close()

    def member(self, number: int) -> BlobMember:
        self._opened.append(BlobStore(self._stores[number]))
        return self._opened[-1]

    def take_away(self, number: int) -> None:
        self.faults.away.append(self.raw(number))

    def bring_back(self, number: int) -> None:
        self.faults.away.remove(self.raw(number))

    def save(self, number: int) -> Callable[[], None]:
        raw = self.raw(number)
        kept = {each["path"]: bytes(obstore.get(raw, each["path"]).bytes()) for each in _all(raw)}

        def put_back() -> None:
            self._clear(number)
            for key, data in kept.items():
                obstore.put(raw, key, data)

        return put_back

    def replace_by_empty(self, number: int) -> None:
        self._clear(number)
        make_blob_store(self._stores[number], GROUP, number, "another")

    def _clear(self, number: int) -> None:
        raw = self.raw(number)
        for each in list(_all(raw)):
            obstore.delete(raw, each["path"])

    def rot(self, number: int, blob: BlobId) -> None:
        """Change the last bit of the object."""
        raw = self.raw(number)
        data = bytearray(bytes(obstore.get(raw, key_of(blob)).bytes()))
        data[-1] ^= 1
        obstore.put(raw, key_of(blob), bytes(data))

    def fill(self, number: int) -> None:
        self.faults.full.append(self.raw(number))

    def make_room(self, number: int) -> None:
        self.faults.full.remove(self.raw(number))


def _all(raw: Any) -> Iterator[Any]:
    for chunk in obstore.list(raw):
        yield from chunk


class InMemoryStores(OnStores):
    """On stores in memory."""

    @override
    def _open(self, number: int) -> ObjectStore:
        return open_store("memory:///", patience_s=0.0)


class InFolders(OnStores):
    """On stores in folders, of which one that is away is really not there."""

    def __init__(self, patch: Patch, root: Path) -> None:
        self._root = root
        super().__init__(patch)
        patch(_folder_module(), "write_file", self._write)

    def _write(self, path: Path, data: bytes) -> None:
        if any(path.is_relative_to(self._root / str(number)) for number in range(3) if self._is_full(number)):
            raise OSError(28, "No space left on device")
        write_file(path, data)

    def _is_full(self, number: int) -> bool:
        return any(self.raw(number) is each for each in self.faults.full)

    @override
    def _open(self, number: int) -> ObjectStore:
        return open_store(f"file://{self._root}/{number}", patience_s=0.0)

    @override
    def take_away(self, number: int) -> None:
        (self._root / str(number)).rename(self._root / f"away-{number}")

    @override
    def bring_back(self, number: int) -> None:
        (self._root / f"away-{number}").rename(self._root / str(number))

    @override
    def save(self, number: int) -> Callable[[], None]:
        folder, copy = self._root / str(number), self._root / f"copy-{number}"
        shutil.copytree(folder, copy)

        def put_back() -> None:
            shutil.rmtree(folder)
            copy.rename(folder)

        return put_back


def _folder_module() -> object:
    from replitree.storage.objects import folder

    return folder


class InBuckets(OnStores):
    """In one bucket of a server, each below a prefix of its own."""

    def __init__(self, patch: Patch, url: Callable[[str], str], keys: dict[str, str]) -> None:
        self._url = url
        self._keys = keys
        super().__init__(patch)

    @override
    def _open(self, number: int) -> ObjectStore:
        return open_store(self._url(f"m{number}"), environment=self._keys, patience_s=0.0)


@contextmanager
def in_test_buckets(patch: Patch) -> Iterator[InBuckets]:
    """Members on a server in this process that speaks as much of S3 as is needed."""
    with S3Server() as server:
        yield InBuckets(patch, server.url, KEYS)


@contextmanager
def in_google_buckets(patch: Patch) -> Iterator[InBuckets]:
    """Members on a server in this process that speaks as much of Google Cloud Storage as is needed."""
    patch(opening, "google_source", lambda **_: Lasting("a token of the test", BearerToken(TOKEN)))
    with GcsServer() as server:
        server.state.tokens = {TOKEN}
        yield InBuckets(patch, server.url, {})


@contextmanager
def in_containers(patch: Patch) -> Iterator[InBuckets]:
    """Members on a server in this process that speaks as much of Azure Blob Storage as is needed."""
    with AzureServer() as server:
        yield InBuckets(patch, server.url, AZURE_KEYS)
