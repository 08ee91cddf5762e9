"""A large part of the store is sent to who wants its rows piece by piece: nobody waits until all of it is at the source."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.protocol.core.parts import inserted_part
from replitree.replica.http import http_exchange, http_stored_ranges
from replitree.replica.perform import exchange
from replitree.storage.objects.store import ObjectStore
from replitree.storage.parts import encode
from tests.replica.inprocess import TOKEN, Node, rows, wait_for
from tests.replica.test_borrowed import KEYS, Borrowing, in_pieces
from tests.replica.test_sharing import SharedCluster, local_files
from tests.shared.stores import FAULTY, FOLDER, on

PIECE_BYTES = 100
FILE = "data-0.parquet"
ENOUGH_S = 20.0


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part is sent in ranges, piece by piece."""
    monkeypatch.setattr(http_exchange, "BUNDLE_INLINE_BYTES", 0)
    monkeypatch.setattr(exchange, "RANGE_BYTES", 10 * PIECE_BYTES)
    monkeypatch.setattr(http_stored_ranges, "CHUNK_BYTES", PIECE_BYTES)


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    """A table of one replica."""
    cluster = SharedCluster(tmp_path, store_url, 1)
    yield cluster
    cluster.close()


def insert(cluster: SharedCluster) -> tuple[str, bytes]:
    """Insert rows, and take their file away from the replica's disk; return the part and the file's bytes."""
    (node,) = cluster.nodes
    part = inserted_part("all", node.insert(rows(0, 100))[1]["index"]).name
    wait_for(lambda: part in node.contents(), "it has the part")
    store = node.table().store
    store.bring((part,))
    data = store.file_path(part, FILE).read_bytes()
    assert store.shared.evict(store.root / "parts", 0, 0.0) == len(data)
    assert len(data) > 2 * PIECE_BYTES
    return part, data


def store_of(node: Node) -> ObjectStore:
    """Return the store as the replica reaches it."""
    objects = node.table().store.shared.objects
    assert objects is not None
    return objects.store


def ask(node: Node, part: str, wanted: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Ask for a range of the part's file."""
    connection = http.client.HTTPConnection(node.address, timeout=ENOUGH_S)
    headers = {"Authorization": f"Bearer {TOKEN}", "Range": wanted}
    connection.request("GET", f"/v1/tables/t/parts/{part}/files/{FILE}", headers=headers)
    return connection, connection.getresponse()


def answered(node: Node, part: str, wanted: str) -> tuple[int, bytes, str | None]:
    """Ask for a range of the part's file; return status, body, and which range it is."""
    connection, answer = ask(node, part, wanted)
    try:
        return answer.status, answer.read(), answer.getheader("Content-Range")
    finally:
        connection.close()


@on(FOLDER, at_night=(FAULTY,))
def test_who_has_all_rows_on_its_disk_is_sent_a_large_part_of_which_the_source_brings_nothing(
    shared: SharedCluster,
) -> None:
    part, data = insert(shared)
    first = shared.nodes[0]
    second = shared.add("r2", zero_copy=False)
    wait_for(lambda: shared.is_active(second) and second.contents() == first.contents(), "the rows are there")
    assert second.table().store.file_path(part, FILE).read_bytes() == data
    assert local_files(first, part) == {"manifest.json"}
    assert second.keys() == list(range(100))


@pytest.mark.slow
def test_files_that_a_part_borrows_are_sent_from_the_shares_that_they_lie_in(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_cut", in_pieces)
    cluster = Borrowing(tmp_path, store_url)
    try:
        cluster.delete("k = 5")
        (part,) = cluster.wait_alike()
        assert len(cluster.manifest().shares) == 2
        for node in cluster.nodes:
            node.table().store.shared.evict(node.table().store.root / "parts", 0, 0.0)
        third = cluster.add("r3", zero_copy=False)
        wait_for(lambda: cluster.is_active(third) and third.keys() == [k for k in KEYS if k != 5], "the rows are there")
        assert third.table().store.manifest(part).shares == ()
        assert all(local_files(node, part) == {"manifest.json"} for node in cluster.nodes[:2])
    finally:
        cluster.close()


def test_the_first_piece_is_sent_before_the_store_gives_the_others(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, data = insert(shared)
    (node,) = shared.nodes
    objects, others = store_of(node), threading.Event()
    read = objects.get_range

    def slow(key: str, first: int, size: int) -> bytes | None:
        assert first == 0 or others.wait(ENOUGH_S)
        return read(key, first, size)

    monkeypatch.setattr(objects, "get_range", slow)
    connection, answer = ask(node, part, f"bytes=0-{len(data) - 1}")
    try:
        assert answer.read(PIECE_BYTES) == data[:PIECE_BYTES]
        others.set()
        assert answer.read() == data[PIECE_BYTES:]
    finally:
        others.set()
        connection.close()


def test_ranges_are_what_they_say(shared: SharedCluster) -> None:
    part, data = insert(shared)
    (node,) = shared.nodes
    size = len(data)
    for wanted, first, end in (
        (f"bytes=0-{size - 1}", 0, size),
        ("bytes=0-0", 0, 1),
        (f"bytes=7-{PIECE_BYTES + 7}", 7, PIECE_BYTES + 8),
        (f"bytes={PIECE_BYTES}-", PIECE_BYTES, size),
        ("bytes=-9", size - 9, size),
        (f"bytes=5-{size + 1000}", 5, size),
    ):
        assert answered(node, part, wanted) == (206, data[first:end], f"bytes {first}-{end - 1}/{size}"), wanted
    assert answered(node, part, f"bytes={size}-")[::2] == (416, f"bytes */{size}")
    assert answered(node, part, "bytes=x-")[0] == 400
    assert local_files(node, part) == {"manifest.json"}


def test_a_copy_that_is_here_is_sent_and_the_store_not_asked(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, data = insert(shared)
    (node,) = shared.nodes
    node.table().store.bring((part,))

    def not_asked(key: str, first: int, size: int) -> bytes | None:
        raise AssertionError(f"{key} was read from {first} on, {size} bytes")

    monkeypatch.setattr(store_of(node), "get_range", not_asked)
    assert answered(node, part, "bytes=3-9")[:2] == (206, data[3:10])


def test_of_an_object_that_is_gone_no_range_is_sent(shared: SharedCluster) -> None:
    part, _ = insert(shared)
    (share,) = shared.shares()
    shared.objects.delete([f"tables/{shared.definition.table_id}/{share}/{FILE}"])
    status, body, _ = answered(shared.nodes[0], part, "bytes=0-9")
    assert status == 503
    assert b"r1 lacks part" in body
    assert b"is missing" in body


def test_an_answer_of_which_a_later_piece_can_not_be_had_does_not_end_well(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, data = insert(shared)
    (node,) = shared.nodes
    objects = store_of(node)
    read = objects.get_range
    monkeypatch.setattr(objects, "get_range", lambda key, first, size: read(key, first, size) if first == 0 else None)
    connection, answer = ask(node, part, f"bytes=0-{len(data) - 1}")
    try:
        assert answer.status == 206
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
    finally:
        connection.close()
