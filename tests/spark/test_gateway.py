"""The gateway without Spark: as Hadoop's client asks it, and as others might."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import xxhash
from typing_extensions import override

from replitree.errors import StoreError
from replitree.spark.blocks import TAIL_BYTES, Blocks, StoredObject
from replitree.spark.gateway import Gateway
from replitree.storage.manifest import FileEntry, PartManifest
from replitree.storage.objects import ObjectStore, open_store
from replitree.storage.objects.shares import ShareObjects
from tests.waiting import wait_for

SHARE = "5" * 32
CONTENT = bytes(range(256)) * 50
"""Of the only file."""


@pytest.fixture
def store() -> ObjectStore:
    return open_store("memory:///")


@pytest.fixture
def objects(store: ObjectStore, tmp_path: Path) -> ShareObjects:
    made = ShareObjects(lambda: store, "t1")
    (tmp_path / "data-0.parquet").write_bytes(CONTENT)
    made.put(SHARE, tmp_path, MANIFEST)
    return made


MANIFEST = PartManifest(
    partition="all",
    rows=1,
    bytes=len(CONTENT),
    schema_version=1,
    files=(FileEntry("data-0.parquet", 1, len(CONTENT), "0" * 32),),
    content_hash="0" * 32,
).shared_as(SHARE)
NAME = f"{SHARE}-data-0.parquet"
FOLDER = f"/webhdfs/v1/tables/t1/{xxhash.xxh3_128_hexdigest(NAME.encode())}"
PATH = f"{FOLDER}/{NAME}"
KEY = f"tables/t1/{SHARE}/data-0.parquet"


@pytest.fixture(scope="module")
def running() -> Iterator[Gateway]:
    made = Gateway()
    yield made
    made.close()


@pytest.fixture
def gateway(running: Gateway) -> Gateway:
    """A gateway that has kept nothing."""
    running.forget()
    return running


class Client:
    """Asks as Hadoop's client does."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self.secret = gateway.options["dfs.webhdfs.rest-csrf.custom-header"]
        self.authority = url.removeprefix("webhdfs://").partition("/")[0]

    def ask(self, query: str, path: str = PATH, *, header: str | None = None) -> tuple[int, bytes, dict[str, str]]:
        with closing(http.client.HTTPConnection(self.authority, timeout=10)) as connection:
            connection.request("GET", f"{path}?{query}", headers={self.secret if header is None else header: '""'})
            with closing(connection.getresponse()) as answer:
                return answer.status, answer.read(), dict(answer.getheaders())

    def error(self, query: str, path: str = PATH, *, header: str | None = None) -> tuple[int, str]:
        status, body, _ = self.ask(query, path, header=header)
        return status, json.loads(body)["RemoteException"]["exception"]


@pytest.fixture
def client(gateway: Gateway, objects: ShareObjects) -> Client:
    return Client(gateway, gateway.publish(objects, [MANIFEST]))


def given(gateway: Gateway, source: StoredObject) -> str:
    """Let an object be read that nobody would publish; return its path."""
    gateway._folders["/given"] = {"file": source}  # noqa: SLF001 - as said
    return "/webhdfs/v1/given/file"


def test_url_names_the_files_and_no_secret(gateway: Gateway, objects: ShareObjects) -> None:
    url = gateway.publish(objects, [MANIFEST])
    assert url.startswith("webhdfs://127.0.0.1:")
    assert url.endswith(FOLDER.removeprefix("/webhdfs/v1"))
    assert url == gateway.publish(objects, [MANIFEST]), "the same files have the same place"
    secret = gateway.options["dfs.webhdfs.rest-csrf.custom-header"]
    assert len(secret) > 64
    assert secret not in url


@pytest.mark.parametrize("op", ["GETFILESTATUS", "LISTSTATUS", "GETFILEBLOCKLOCATIONS"])
def test_what_is_said_of_a_file_has_its_length_and_no_content_type(client: Client, op: str) -> None:
    status, body, headers = client.ask(f"op={op}&user.name=me")
    assert status == 200
    assert f'"length": {len(CONTENT)}' in body.decode()
    assert "Content-Type" not in headers


def test_a_file_is_read_in_two_steps_from_any_position(client: Client) -> None:
    status, body, headers = client.ask("op=OPEN&buffersize=4096")
    assert (status, body) == (307, b"")
    place = headers["Location"].removeprefix(f"http://{client.authority}{PATH}?")
    for offset in (0, 1, 4096, len(CONTENT) - 1, len(CONTENT)):
        status, body, headers = client.ask(f"{place}&offset={offset}")
        assert (status, body) == (200, CONTENT[offset:])
        assert headers["Content-Length"] == str(len(CONTENT) - offset)
    for wrong in (str(len(CONTENT) + 1), "-1", "x"):
        assert client.error(f"{place}&offset={wrong}") == (400, "IllegalArgumentException")


def test_nobody_reads_without_the_secret(client: Client) -> None:
    for header in ("X-XSRF-HEADER", client.secret[:-1]):
        assert client.error("op=OPEN&offset=0", header=header) == (401, "AccessControlException")
        assert client.error("op=GETFILESTATUS", header=header) == (401, "AccessControlException")
    assert client.ask("op=OPEN&offset=0", header=client.secret.lower())[0] == 200


def test_only_what_was_published_is_there_and_nothing_can_be_changed(client: Client, store: ObjectStore) -> None:
    other = f"/webhdfs/v1/{KEY}".replace("data-0.parquet", "manifest.json")
    assert store.get(other.removeprefix("/webhdfs/v1/")) is not None, "it is in the store"
    for path in (other, f"/webhdfs/v1/{KEY}", FOLDER, "/webhdfs/v1/", "/", "/webhdfs/v1/tables/t1/../../etc/passwd"):
        assert client.error("op=OPEN&offset=0", path) == (404, "FileNotFoundException")
    assert client.error("op=LISTSTATUS", "/webhdfs/v1/tables/t1") == (404, "FileNotFoundException")
    assert client.error("op=DELETE") == (400, "UnsupportedOperationException")
    assert store.get(KEY) == CONTENT


def test_a_folder_lists_its_files(client: Client) -> None:
    _, body, _ = client.ask("op=GETFILESTATUS", FOLDER)
    assert json.loads(body)["FileStatus"]["type"] == "DIRECTORY"
    _, body, _ = client.ask("op=LISTSTATUS", FOLDER)
    (file,) = json.loads(body)["FileStatuses"]["FileStatus"]
    assert (file["pathSuffix"], file["length"], file["type"]) == (NAME, len(CONTENT), "FILE")


def test_an_object_that_is_gone_is_an_error(client: Client, objects: ShareObjects) -> None:
    objects.delete(SHARE)
    assert client.error("op=OPEN&offset=0") == (404, "FileNotFoundException")


# --- blocks -------------------------------------------------------------------------------------------------------------------


class Counting(ObjectStore):
    """Remembers what was read of it, and may fail."""

    def __init__(self, behind: ObjectStore) -> None:
        super().__init__(behind._raw, behind.name)  # noqa: SLF001 - the same objects
        self.reads: list[tuple[int, int]] = []
        self.broken_from = 1 << 40

    @override
    def get_range(self, key: str, first: int, size: int) -> bytes | None:
        self.reads.append((first, size))
        if first >= self.broken_from:
            raise StoreError("the store is away")
        return super().get_range(key, first, size)


@pytest.fixture
def counted(store: ObjectStore) -> StoredObject:
    store.create("a", CONTENT)
    return StoredObject(Counting(store), "a", len(CONTENT))


def reads(source: StoredObject) -> list[tuple[int, int]]:
    assert isinstance(source.store, Counting)
    return sorted(source.store.reads)


@pytest.mark.parametrize("first", [0, 1, 999, 1000, 1001, 12_799, 12_800])
@pytest.mark.parametrize("tail", [1, 100, 1000, 20_000])
def test_a_stream_gives_the_bytes_from_a_position(counted: StoredObject, first: int, tail: int) -> None:
    blocks = Blocks(block_bytes=1000, tail_bytes=tail)
    assert b"".join(blocks.stream(counted, first)) == CONTENT[first:]
    blocks.close()


def test_a_block_is_read_once_and_only_what_is_wanted(counted: StoredObject) -> None:
    blocks = Blocks(block_bytes=1000, tail_bytes=1000)
    for first in (12_700, 12_000, 12_799):
        next(blocks.stream(counted, first))
    assert reads(counted) == [(11_800, 1000)]
    stream = blocks.stream(counted, 2500)
    assert len(next(stream)) == 300
    assert reads(counted) == [(1800, 1000), (11_800, 1000)], "nothing is read ahead for who may jump away"
    next(stream)
    wait_for(lambda: len(reads(counted)) == 5, "who reads on is read ahead for")
    assert reads(counted)[:4] == [(1800, 1000), (2800, 1000), (3800, 1000), (4800, 1000)]
    blocks.close()


def test_a_footer_is_read_without_what_is_before_it(counted: StoredObject) -> None:
    blocks = Blocks(block_bytes=1000, tail_bytes=100)
    for first in (12_799, 12_700, 12_699):
        next(blocks.stream(counted, first))
    assert reads(counted) == [(11_700, 1000), (12_700, 100)]
    blocks.close()


def test_blocks_are_forgotten_the_longest_unused_first(counted: StoredObject) -> None:
    blocks = Blocks(block_bytes=1000, tail_bytes=1000, cache_bytes=2000)
    for first in (0, 12_000, 0, 5000, 0):
        next(blocks.stream(counted, first))
    assert reads(counted) == [(0, 800), (4800, 1000), (11_800, 1000)]
    next(blocks.stream(counted, 12_000))
    assert reads(counted).count((11_800, 1000)) == 2
    blocks.close()


def test_a_failure_is_not_remembered(counted: StoredObject) -> None:
    blocks = Blocks(block_bytes=1000, tail_bytes=1000)
    assert isinstance(counted.store, Counting)
    counted.store.broken_from = 0
    with pytest.raises(StoreError, match="away"):
        next(blocks.stream(counted, 0))
    counted.store.broken_from = 1 << 40
    assert bytes(next(blocks.stream(counted, 0))) == CONTENT[:800]
    blocks.close()


def test_an_object_that_is_shorter_than_it_should_be_is_an_error(
    client: Client, gateway: Gateway, store: ObjectStore
) -> None:
    path = given(gateway, StoredObject(store, KEY, 5 << 20))
    assert client.error("op=OPEN&offset=0", path) == (404, "FileNotFoundException")


def test_what_breaks_off_is_shorter_than_was_said(client: Client, gateway: Gateway, store: ObjectStore) -> None:
    store.create("large", bytes(3 << 20))
    counting = Counting(store)
    counting.broken_from = 2 << 20
    path = given(gateway, StoredObject(counting, "large", 3 << 20))
    with pytest.raises(http.client.IncompleteRead) as caught:
        client.ask("op=OPEN&offset=0", path)
    assert len(caught.value.partial) == (3 << 20) - TAIL_BYTES


def test_who_closes_early_ends_the_answer(client: Client, gateway: Gateway, store: ObjectStore) -> None:
    size = 64 << 20
    store.create("large", bytes(size))
    path = given(gateway, StoredObject(store, "large", size))
    host, _, port = client.authority.partition(":")
    others = threading.enumerate()  # such as those of servers that other tests have left
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = f"GET {path}?op=OPEN&offset=0 HTTP/1.1\r\n{client.secret}: x\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
    wait_for(
        lambda: not any("process_request_thread" in each.name for each in threading.enumerate() if each not in others),
        "nobody goes on sending",
    )
