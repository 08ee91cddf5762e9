"""The gateway without Spark: as Hadoop's client asks it, and as others might."""

from __future__ import annotations

import dataclasses
import http.client
import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import xxhash
from typing_extensions import override

from replitree.errors import CorruptPart, StoreError
from replitree.spark.store.blocks import TAIL_BYTES, Blocks, ServedObject
from replitree.spark.store.gateway import Gateway
from replitree.storage.files.sums import BLOCK_BYTES, is_summed, sums_of
from replitree.storage.objects import ObjectStore, open_store
from replitree.storage.parts import checked_bytes
from replitree.storage.parts.checked_bytes import Problem
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.parts.verified import CheckedFile, StoredFile
from replitree.storage.shares.object_bytes import ObjectBytes, sums_key
from replitree.storage.shares.shares import ShareObjects
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
    files=(FileEntry("data-0.parquet", 1, len(CONTENT), xxhash.xxh3_128_hexdigest(CONTENT)),),
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
    return Client(gateway, published(gateway, objects))


def published(gateway: Gateway, objects: ShareObjects) -> str:
    return gateway.publish(objects.root, {NAME: objects.file(MANIFEST, MANIFEST.files[0])})


def stored(store: ObjectStore, key: str, data: bytes, *, with_sums: bool = True) -> StoredFile:
    """Return the object that once had these bytes, with its sums object."""
    entry = FileEntry(key, 1, len(data), xxhash.xxh3_128_hexdigest(data))
    if with_sums and is_summed(len(data)):
        store.create(sums_key(f"a/{key}"), sums_of(data).encoded)
    return StoredFile(Path(f"a/{key}"), entry, lambda: ObjectBytes(store, f"a/{key}", entry))


def given(gateway: Gateway, file: StoredFile) -> str:
    """Let an object be read that is in no share; return its path."""
    return f"/webhdfs/v1{urlsplit(gateway.publish('given', {'file': file})).path}/file"


def test_url_names_the_files_and_no_secret(gateway: Gateway, objects: ShareObjects) -> None:
    url = published(gateway, objects)
    assert url.startswith("webhdfs://127.0.0.1:")
    assert url.endswith(FOLDER.removeprefix("/webhdfs/v1"))
    assert url == published(gateway, objects), "the same files have the same place"
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
        self.hurt = 0
        """So many further answers have a wrong byte."""

    @override
    def get_range(self, key: str, first: int, size: int) -> bytes | None:
        self.reads.append((first, size))
        if first >= self.broken_from:
            raise StoreError("the store is away")
        found = super().get_range(key, first, size)
        if self.hurt and found:
            self.hurt -= 1
            return flipped(found, 0)
        return found


def clear_sums() -> None:
    """Forget what sums this process has kept."""
    checked_bytes._kept.clear()  # noqa: SLF001 - as said


LARGE = random.Random(1).randbytes(21 * BLOCK_BYTES - 1000)
"""Bytes of an object that has a sums object: 20 whole blocks and one that is nearly whole."""

BLOCK, TAIL = 2 * BLOCK_BYTES, 2 * BLOCK_BYTES - 1000
"""Bytes of a block of the gateway, and of the last one, when it is to have at least 64 KiB."""

SIZE = len(LARGE)


class Seen:
    """A large object, and what is read of it."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = Counting(store)
        store.create("a/large", LARGE)
        self.file = stored(self.store, "large", LARGE)
        self.object = ServedObject(self.file)

    def reads(self) -> list[tuple[int, int]]:
        return sorted(self.store.reads)


@pytest.fixture
def seen(store: ObjectStore) -> Iterator[Seen]:
    clear_sums()
    yield Seen(store)
    clear_sums()


@pytest.mark.parametrize("first", [0, 1, BLOCK - 1001, BLOCK, SIZE - TAIL - 1, SIZE - TAIL, SIZE - 1, SIZE])
@pytest.mark.parametrize("tail", [1, BLOCK_BYTES, 3 * BLOCK_BYTES, 2 * SIZE])
def test_a_stream_gives_the_bytes_from_a_position(seen: Seen, first: int, tail: int) -> None:
    with closing(Blocks(block_bytes=BLOCK, tail_bytes=tail)) as blocks:
        assert b"".join(blocks.stream(seen.object, first)) == LARGE[first:]
    assert all(place % BLOCK_BYTES == 0 for place, _ in seen.reads()), (
        "whole blocks of the sums are read, and none twice"
    )


def test_a_block_is_read_once_and_only_what_is_wanted(seen: Seen) -> None:
    seen.object.read(0, 1)  # brings the sums object
    seen.store.reads.clear()
    with closing(Blocks(block_bytes=BLOCK, tail_bytes=BLOCK_BYTES)) as blocks:
        last = SIZE - TAIL
        for first in (SIZE - 1, last, SIZE - 100):
            next(blocks.stream(seen.object, first))
        assert seen.reads() == [(last, TAIL)]
        stream = blocks.stream(seen.object, 2 * BLOCK - BLOCK_BYTES + 7)
        assert len(next(stream)) == BLOCK - 7
        assert seen.reads() == [(BLOCK + BLOCK_BYTES, BLOCK), (last, TAIL)], (
            "nothing is read ahead for who may jump away"
        )
        next(stream)
        wait_for(lambda: len(seen.reads()) == 5, "who reads on is read ahead for")
        assert [place for place, _ in seen.reads()[:4]] == [BLOCK_BYTES + number * BLOCK for number in (1, 2, 3, 4)]


def test_blocks_are_forgotten_the_longest_unused_first(seen: Seen) -> None:
    seen.object.read(0, 1)
    seen.store.reads.clear()
    with closing(Blocks(block_bytes=BLOCK, tail_bytes=BLOCK_BYTES, cache_bytes=2 * BLOCK)) as blocks:
        for first in (0, SIZE - 1, 0, SIZE // 2, 0):
            next(blocks.stream(seen.object, first))
        assert len(seen.reads()) == 3
        next(blocks.stream(seen.object, SIZE - 1))
        assert seen.reads().count((SIZE - TAIL, TAIL)) == 2


def test_a_failure_is_not_remembered(seen: Seen) -> None:
    with closing(Blocks(block_bytes=BLOCK, tail_bytes=BLOCK_BYTES)) as blocks:
        seen.store.broken_from = 0
        with pytest.raises(StoreError, match="away"):
            next(blocks.stream(seen.object, 0))
        seen.store.broken_from = 1 << 40
        assert LARGE.startswith(bytes(next(blocks.stream(seen.object, 0))))


# --- damage -------------------------------------------------------------------------------------------------------------------


def replace_object(store: ObjectStore, key: str, data: bytes) -> None:
    store.delete([key])
    store.create(key, data)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(flipped(LARGE, 5), id="first page header"),
        pytest.param(flipped(LARGE, SIZE - 60), id="footer"),
        pytest.param(LARGE[:500_000] + bytes(512) + LARGE[500_512:], id="block of zeros"),
        pytest.param(LARGE[: SIZE // 2], id="truncated"),
        pytest.param(random.Random(2).randbytes(SIZE), id="swapped, same size"),
        pytest.param(LARGE + b"x", id="longer"),
        pytest.param(None, id="gone"),
    ],
)
@pytest.mark.parametrize("with_sums", [True, False])
def test_of_a_damaged_object_no_wrong_byte_is_sent(
    client: Client, gateway: Gateway, store: ObjectStore, damaged: bytes | None, with_sums: bool
) -> None:
    clear_sums()
    file = stored(store, "large", LARGE, with_sums=with_sums)
    if damaged is not None:
        store.create("a/large", damaged)
    path = given(gateway, file)
    failed = 0
    for first in (0, 400_000, SIZE - 100):
        try:
            status, body, _ = client.ask(f"op=OPEN&offset={first}", path)
        except http.client.IncompleteRead as cut:
            status, body = 0, cut.partial
        if status in (404, 500):
            failed += 1
            wanted = "FileNotFoundException" if damaged is None else "ChecksumException"
            assert json.loads(body)["RemoteException"]["exception"] == wanted
        elif damaged is not None and damaged.startswith(LARGE):
            assert LARGE[first:].startswith(body), "what is beyond the end of the right bytes is not read"
        else:
            failed += not status
            assert LARGE[first:].startswith(body)
    assert failed or (damaged is not None and damaged.startswith(LARGE)), "it was noticed"


@pytest.mark.parametrize("kind", ["missing", "damaged", "of another file", "cut off"])
def test_without_good_sums_an_object_is_read_whole_once(seen: Seen, store: ObjectStore, kind: str) -> None:
    key, good = sums_key("a/large"), sums_of(LARGE).encoded
    store.delete([key])
    if kind != "missing":
        other = sums_of(random.Random(3).randbytes(SIZE)).encoded
        store.create(key, {"damaged": flipped(good, 100), "of another file": other, "cut off": good[:-1]}[kind])
    assert bytes(seen.object.read(0, 10)) == LARGE[:10]
    assert sum(size for _, size in seen.reads()) == len(good) + SIZE + BLOCK_BYTES, "the sums, all of it, the block"
    seen.store.reads.clear()
    assert bytes(ServedObject(seen.file).read(SIZE - 10, 10)) == LARGE[-10:]
    assert len(seen.reads()) == 1, "the sums are kept for others of this process"


def test_a_transfer_that_went_wrong_once_is_read_again(seen: Seen) -> None:
    seen.object.read(0, 1)
    seen.store.hurt = 1
    assert bytes(seen.object.read(BLOCK_BYTES, 10)) == LARGE[BLOCK_BYTES : BLOCK_BYTES + 10]
    seen.store.hurt = 2
    with pytest.raises(CorruptPart, match="has changed"):
        seen.object.read(BLOCK_BYTES, 10)


def test_a_damaged_object_is_replaced_by_a_good_copy_once_for_all_who_read(seen: Seen, tmp_path: Path) -> None:
    asked: list[str] = []

    def replace(file: CheckedFile, problem: Problem) -> Path:
        asked.append(str(problem))
        (tmp_path / "copy").write_bytes(LARGE)
        return tmp_path / "copy"

    replace_object(seen.store, "a/large", flipped(LARGE, SIZE // 2))
    made = ServedObject(dataclasses.replace(seen.file, replace=replace))
    with closing(Blocks(block_bytes=BLOCK, tail_bytes=BLOCK_BYTES)) as blocks:
        assert b"".join(blocks.stream(made, 0)) == LARGE
    assert len(asked) == 1
    replace_object(seen.store, "a/large", LARGE[:1000])
    assert bytes(made.read(5, 10)) == LARGE[5:15], "the copy is read from now on"


# --- streams ------------------------------------------------------------------------------------------------------------------


def test_an_object_that_is_shorter_than_it_should_be_is_an_error(
    client: Client, gateway: Gateway, store: ObjectStore
) -> None:
    path = given(gateway, stored(store, "short", bytes(5 << 20)))
    store.create("a/short", bytes(1 << 20))
    assert client.error(f"op=OPEN&offset={4 << 20}", path) == (500, "ChecksumException")


def test_what_breaks_off_is_shorter_than_was_said(client: Client, gateway: Gateway, store: ObjectStore) -> None:
    store.create("a/broken", bytes(3 << 20))
    counting = Counting(store)
    path = given(gateway, stored(counting, "broken", bytes(3 << 20)))
    counting.broken_from = 2 << 20
    with pytest.raises(http.client.IncompleteRead) as caught:
        client.ask("op=OPEN&offset=0", path)
    assert len(caught.value.partial) == (3 << 20) - TAIL_BYTES


def test_who_closes_early_ends_the_answer(client: Client, gateway: Gateway, store: ObjectStore) -> None:
    size = 64 << 20
    store.create("a/large", bytes(size))
    path = given(gateway, stored(store, "large", bytes(size)))
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
