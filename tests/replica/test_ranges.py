"""Ranges of data files on a replica's disk, which readers on other machines ask for."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from replitree.replica.http import http_exchange
from replitree.storage.parts.manifest import FileEntry
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, rows, wait_for

FILE = "data-0.parquet"


def answered(node: Node, route: str, wanted: str) -> tuple[int, bytes, str | None]:
    """Ask for a range; return status, body, and which range it is."""
    connection = http.client.HTTPConnection(node.address, timeout=20)
    try:
        connection.request("GET", route, headers={"Authorization": f"Bearer {TOKEN}", "Range": wanted})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Range")
    finally:
        connection.close()


def inserted(node: Node) -> tuple[Path, str, FileEntry]:
    """Insert rows; return their file, its route, and what the manifest says of it."""
    assert node.insert(rows(0, 100))[0] == 200
    wait_for(node.contents, "the rows are there")
    (part,) = node.contents()
    store = node.table().store
    (entry,) = store.manifest(part).files
    return store.file_path(part, FILE), f"/v1/tables/t/parts/{part}/files/{FILE}?checksum={entry.checksum}", entry


def test_short_ranges_are_answered_as_long_ones(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    node = cluster.nodes[0]
    path, route, entry = inserted(node)
    data, size = path.read_bytes(), entry.bytes
    right = {
        "bytes=0-0": (206, data[:1], f"bytes 0-0/{size}"),
        "bytes=7-99": (206, data[7:100], f"bytes 7-99/{size}"),
        "bytes=100-": (206, data[100:], f"bytes 100-{size - 1}/{size}"),
        f"bytes=100-{10 * size}": (206, data[100:], f"bytes 100-{size - 1}/{size}"),
        "bytes=-20": (206, data[-20:], f"bytes {size - 20}-{size - 1}/{size}"),
    }
    wrong = [f"bytes={size}-", "bytes=9-3", "bytes=0-1,5-6", "pages=1-2"]
    short = {wanted: answered(node, route, wanted) for wanted in (*right, *wrong)}
    monkeypatch.setattr(http_exchange, "SHORT_RANGE_BYTES", 0)
    assert {wanted: short[wanted] for wanted in right} == right
    assert short == {wanted: answered(node, route, wanted) for wanted in (*right, *wrong)}, "by aiohttp's own code"
    assert {short[wanted][0] for wanted in wrong} == {416}
