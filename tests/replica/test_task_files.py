"""Files of Spark's tasks: which attempts count is known at the end, and what readers of ranges verify with."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from replitree.storage.files.sums import decode_sums, is_summed, sums_path
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.joined import joined_manifest
from replitree.storage.parts.manifest import FileEntry, PartManifest, data_file
from tests.replica.inprocess import InProcessCluster, Node, rows

UPLOADS = "/v1/tables/t/uploads"


def send(node: Node, upload: str, attempt: str, folder: Path, first: int) -> PartManifest:
    """Send the files of one attempt of a task."""
    (manifest,) = stage_table(rows(first, 10), node.table().definition, folder / attempt, sync=False)
    for file in manifest.files:
        path = f"{UPLOADS}/{upload}/tasks/{attempt}/{manifest.partition}/{file.name}?checksum={file.checksum}"
        data = (folder / attempt / manifest.partition / file.name).read_bytes()
        assert node.request("PUT", path, data)[0] == 200
    return manifest


def gather(node: Node, upload: str, *attempts: str) -> int:
    files = [
        {"attempt": each, "partition": "all", "file": data_file(0), "name": data_file(n)}
        for n, each in enumerate(attempts)
    ]
    return node.request("POST", f"{UPLOADS}/{upload}/gather", json.dumps({"files": files}).encode())[0]


def renamed(manifest: PartManifest, number: int) -> PartManifest:
    (file,) = manifest.files
    return msgspec.structs.replace(
        manifest, files=(FileEntry(data_file(number), file.rows, file.bytes, file.checksum),)
    )


def commit(
    node: Node, upload: str, pieces: list[PartManifest], *, says_pieces: bool = True
) -> tuple[int, dict[str, object]]:
    body = {"manifests": [msgspec.to_builtins(joined_manifest(pieces))]}
    if says_pieces:
        body["pieces"] = {"all": msgspec.to_builtins(pieces)}  # type: ignore[assignment]
    status, answer = node.request("POST", f"{UPLOADS}/{upload}/commit?token=job", json.dumps(body).encode())
    return status, answer


def test_files_of_the_attempts_that_count_become_one_insert(cluster: InProcessCluster, tmp_path: Path) -> None:
    node = cluster.nodes[0]
    uploads = node.table().uploads
    upload = node.post("uploads")["upload"]
    first = send(node, upload, "task-0-1-aa", tmp_path, 0)
    send(node, upload, "task-1-2-bb", tmp_path, 10)  # an attempt that does not count
    again = send(node, upload, "task-1-3-cc", tmp_path, 10)
    assert gather(node, upload, "task-0-1-aa", "task-1-3-cc") == 200
    assert gather(node, upload, "task-0-1-aa", "task-1-3-cc") == 200, "the first answer may have been lost"
    pieces = [renamed(first, 0), renamed(again, 1)]
    assert commit(node, upload, pieces)[1] == {"outcome": "inserted", "index": 0, "rows": 20}
    cluster.wait_equal(list(range(20)))
    assert list(uploads.root.iterdir()) == []


def test_rows_of_every_piece_are_verified(cluster: InProcessCluster, tmp_path: Path) -> None:
    node = cluster.nodes[0]
    upload = node.post("uploads")["upload"]
    first, second = (send(node, upload, f"task-{n}", tmp_path, 10 * n) for n in range(2))
    assert gather(node, upload, "task-0", "task-1") == 200
    pieces = [renamed(first, 0), renamed(second, 1)]
    wrong = msgspec.structs.replace(pieces[1], content_hash="0" * 32)
    assert "another content hash" in str(commit(node, upload, [pieces[0], wrong])[1]["message"])
    assert "another content hash" in str(commit(node, upload, pieces, says_pieces=False)[1]["message"])
    others = json.dumps(
        {
            "manifests": [msgspec.to_builtins(joined_manifest(pieces))],
            "pieces": {"all": msgspec.to_builtins([pieces[0], wrong])},
        }
    ).encode()
    status, answer = node.request("POST", f"{UPLOADS}/{upload}/commit?token=job", others)
    assert (status, "are not those of its manifest" in answer["message"]) == (400, True)
    assert commit(node, upload, pieces)[0] == 200


def test_a_file_that_was_not_sent_is_refused_and_names_stay_in_the_folder(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    node = cluster.nodes[0]
    upload = node.post("uploads")["upload"]
    send(node, upload, "task-0", tmp_path, 0)
    assert gather(node, upload, "task-1") == 400
    for attempt in ("..", "a.b", "A", "x" * 101, "%2e%2e"):
        assert node.request("PUT", f"{UPLOADS}/{upload}/tasks/{attempt}/all/data-0.parquet?checksum=0", b"x")[0] in (
            400,
            404,
        )
    assert node.request("PUT", f"{UPLOADS}/{upload}/tasks/task-0/all/manifest.json?checksum=0", b"x")[0] == 400
    assert node.request("DELETE", f"{UPLOADS}/{upload}")[0] == 200
    assert list(node.table().uploads.root.iterdir()) == []
    assert gather(node, upload, "task-0") == 400


# --- statements that rewrite rows ---------------------------------------------------------------------------------------


def adopt(node: Node, upload: str, part: str, places: list[str], new: list[str]) -> tuple[int, dict[str, Any]]:
    body = {"upload": upload, "schema_version": 1, "hashes": {part: ""}, "files": {part: places}, "new": new}
    status, answer = node.request("POST", "/v1/tables/t/rewrites/adopt", json.dumps(body).encode())
    return status, answer


def test_files_that_a_task_sends_with_a_crc_become_parts_of_a_rewrite(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    node = cluster.nodes[0]
    node.insert(rows(0, 10), "one")
    cluster.wait_equal(list(range(10)))
    (part,) = node.contents()
    upload = node.post("uploads")["upload"]
    (manifest,) = stage_table(rows(0, 4), node.table().definition, tmp_path / "made", sync=False)
    data = (tmp_path / "made" / "all" / manifest.files[0].name).read_bytes()
    place = f"{UPLOADS}/{upload}/tasks/task-7/all/data-0.parquet"
    assert node.request("PUT", f"{place}?crc32={zlib.crc32(data)}", data[:-1])[0] == 400, "bytes were lost on the way"
    assert node.request("PUT", place, data)[0] == 400
    assert node.request("PUT", f"{place}?crc32={zlib.crc32(data)}", data)[0] == 200
    for wrong in ("task-7/all/data-1.parquet", "task-7/data-0.parquet", "../all/data-0.parquet", "task-7"):
        status, answer = adopt(node, upload, part, [wrong], [])
        assert (status, wrong in answer["message"]) == (400, True), answer
    assert node.request("PUT", f"{place}?crc32={zlib.crc32(data)}", data)[0] == 200, "a refused request leaves no files"
    lost = f"{UPLOADS}/{upload}/tasks/task-8/all/data-0.parquet?crc32={zlib.crc32(data)}"
    assert node.request("PUT", lost, data)[0] == 200, "of an executor that died before it had told Spark"
    status, made = adopt(node, upload, part, ["task-7/all/data-0.parquet"], [])
    assert status == 200, made
    assert (made["rows"], made["inserts"]) == (4, {})
    assert made["results"][part]["content_hash"] == manifest.content_hash
    body = {"upload": upload, "id": "command", "schema_version": 1, "results": made["results"], "inserts": []}
    assert node.request("POST", "/v1/tables/t/rewrites/commit", json.dumps(body).encode())[0] == 200
    cluster.wait_equal(list(range(4)))
    assert list(node.table().uploads.root.iterdir()) == []


# --- reading ranges -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [100, 150_000])
def test_block_checksums_of_a_file_are_sent_whether_it_has_some_beside_it_or_not(
    cluster: InProcessCluster, count: int
) -> None:
    node = cluster.nodes[0]
    keys = pa.array([f"{key * 2_654_435_761 % 2**64:x}" * 4 for key in range(count)])
    node.insert(rows(0, count).set_column(2, "s", keys), "one")
    store = node.table().store
    (part,) = store.parts()
    (file,) = store.manifest(part).files
    assert is_summed(file.bytes) == (count > 100)
    path = f"/v1/tables/t/parts/{part}/files/{file.name}"
    sums = node.request("GET", f"{path}/sums?checksum={file.checksum}")[1]
    assert decode_sums(sums, file.bytes, file.checksum) is not None
    sums_path(store.file_path(part, file.name)).unlink(missing_ok=True)
    assert node.request("GET", f"{path}/sums?checksum={file.checksum}") == (200, sums)
    for other in (f"{path}?checksum={'0' * 32}", f"{path}/sums?checksum={'0' * 32}", f"{path}/sums"):
        status, answer = node.request("GET", other)
        assert (status, answer["error"]) == (410, "SnapshotExpired")
    store.file_path(part, file.name).write_bytes(b"x" * file.bytes)
    status, answer = node.request("GET", f"{path}/sums?checksum={file.checksum}")
    assert (status, answer["error"]) == (410, "CorruptPart")
