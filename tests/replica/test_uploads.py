"""Uploads: committed once however often it is asked for, and removed when nobody will commit them any more."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from replitree import private
from replitree.protocol.core.effects import Owner
from replitree.replica.uploads.uploads import SWEEP_S, NoSuchUpload, Uploads
from replitree.storage.files.folder_walk import below
from replitree.storage.parts import upload_check
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import ColumnStats, PartManifest
from replitree.wire.identity import machine_id, process_started
from replitree.wire.upload_life import LIFE_SUFFIX, LIFETIME_S, SILENCE_S, UploadSilence, Writer, is_given_up
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for

NOW = 1_000_000_000.0
ALIVE = Writer(machine_id(), os.getpid(), process_started(os.getpid()) or 0)
ELSEWHERE = Writer("another machine", 1, 1)


# --- life -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("owner", list(Owner))
def test_who_is_surely_gone_or_breaks_a_promise_is_given_up_soon(owner: Owner, renews: bool) -> None:
    soon = owner is Owner.DEAD or (owner is Owner.UNCLEAR and renews)
    limit = SILENCE_S if soon else LIFETIME_S
    assert not is_given_up(UploadSilence(limit, owner, renews))
    assert is_given_up(UploadSilence(limit + 1, owner, renews))


class Clock:
    """Seconds that go on when a test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def dead() -> Writer:
    """A process of this machine that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_started(child.pid)
    child.communicate(b"\n")
    assert started is not None
    return Writer(machine_id(), child.pid, started)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def uploads(tmp_path: Path, clock: Clock) -> Uploads:
    return Uploads(tmp_path / "uploads", clock)


def opened(uploads: Uploads, writer: Writer, at: float = NOW) -> str:
    """Open an upload with a scratch folder beside it, all of it last touched at `at`."""
    upload, folder = uploads.open(writer)
    scratch = folder.with_name(f"{upload}_scratch")
    scratch.mkdir()
    (scratch / "task").write_text("rows")
    touch(uploads, upload, at)
    return upload


def touch(uploads: Uploads, upload: str, at: float) -> None:
    for top in uploads.root.glob(f"{upload}*"):
        for path in (top, *below(top)):
            os.utime(path, (at, at))


def left(uploads: Uploads) -> set[str]:
    return {path.name.partition("_")[0] for path in uploads.root.iterdir()}


def test_upload_of_a_dead_driver_goes_with_its_scratch_after_minutes(uploads: Uploads, clock: Clock) -> None:
    gone, lives, unknown = (opened(uploads, writer) for writer in (dead(), ALIVE, Writer()))
    clock.now = NOW + SILENCE_S
    assert uploads.sweep() == 0
    clock.now += SWEEP_S
    assert uploads.sweep() == 1
    assert left(uploads) == {lives, unknown}
    assert not list(uploads.root.glob(f"{gone}*"))
    clock.now = NOW + LIFETIME_S
    assert uploads.sweep() == 0
    clock.now += SWEEP_S
    assert uploads.sweep() == 2
    assert list(uploads.root.iterdir()) == []


def test_files_that_tasks_write_are_signs_of_life(uploads: Uploads, clock: Clock) -> None:
    upload = opened(uploads, dead())
    written = uploads.root / f"{upload}_scratch" / "task"
    os.utime(written, (NOW + SILENCE_S, NOW + SILENCE_S))
    clock.now = NOW + 2 * SILENCE_S
    assert uploads.sweep() == 0
    clock.now += SWEEP_S
    assert uploads.sweep() == 1


def test_who_renews_from_elsewhere_must_go_on(uploads: Uploads, clock: Clock) -> None:
    silent, renewing = opened(uploads, ELSEWHERE), opened(uploads, ELSEWHERE)
    uploads.renew(renewing)
    for at in (NOW + SILENCE_S, NOW + 2 * SILENCE_S):
        touch(uploads, renewing, at)
        clock.now = at + SILENCE_S
        assert uploads.sweep() == 0
    clock.now += SWEEP_S
    assert uploads.sweep() == 1
    assert left(uploads) == {silent}
    with pytest.raises(NoSuchUpload):
        uploads.renew(renewing)


def test_upload_that_is_being_committed_stays(uploads: Uploads, clock: Clock) -> None:
    upload = opened(uploads, dead())
    clock.now = NOW + 2 * LIFETIME_S
    with uploads.committing(upload), uploads.committing(upload):
        assert uploads.sweep() == 0
        assert uploads.folder(upload).is_dir()
    clock.now += SWEEP_S
    assert uploads.sweep() == 1


def test_nothing_is_looked_through_all_the_time(uploads: Uploads, clock: Clock) -> None:
    opened(uploads, dead(), NOW - 2 * SILENCE_S)
    clock.now = NOW + SWEEP_S - 1
    assert uploads.sweep() == 0
    clock.now += 1
    assert uploads.sweep() == 1


def test_life_of_an_upload_that_was_taken_is_forgotten(uploads: Uploads, clock: Clock) -> None:
    upload, folder = uploads.open(ALIVE)
    with uploads.committing(upload):
        folder.rename(folder.parent.parent / "staging")
    assert list(uploads.root.iterdir()) == []
    upload, folder = uploads.open(ALIVE)
    folder.rmdir()
    clock.now += SWEEP_S
    assert uploads.sweep() == 0
    assert list(uploads.root.iterdir()) == []


# --- commits ----------------------------------------------------------------------------------------------------------


def upload_rows(node: Node, folder: Path, first: int, count: int = 10) -> tuple[str, tuple[PartManifest, ...]]:
    """Upload rows to a replica."""
    manifests = stage_table(rows(first, count), node.table().definition, folder, sync=False)
    upload = node.post("uploads")["upload"]
    for manifest in manifests:
        for file in manifest.files:
            path = f"/v1/tables/t/uploads/{upload}/{manifest.partition}/{file.name}?checksum={file.checksum}"
            assert node.request("PUT", path, (folder / manifest.partition / file.name).read_bytes())[0] == 200
    return upload, manifests


def commit(
    node: Node, upload: str, manifests: tuple[PartManifest, ...], token: str | None = "job 7", **query: str
) -> tuple[int, Any]:
    text = "&".join(f"{key}={value}" for key, value in {**query, **({"token": "job%207"} if token else {})}.items())
    body = json.dumps({"manifests": msgspec.to_builtins(manifests)}).encode()
    return node.request("POST", f"/v1/tables/t/uploads/{upload}/commit?{text}", body)


@pytest.mark.parametrize("token", ["job 7", None])
def test_commit_whose_answer_was_lost_is_answered_the_same_again(
    cluster: InProcessCluster, tmp_path: Path, token: str | None
) -> None:
    node = cluster.nodes[0]
    upload, manifests = upload_rows(node, tmp_path / "up", 0)
    first = commit(node, upload, manifests, token)
    assert first == (200, {"outcome": "inserted", "index": 0, "rows": 10})
    assert commit(node, upload, manifests, token) == first
    cluster.wait_equal(list(range(10)))
    unknown_to_this_process = "0" * 32
    again = commit(node, unknown_to_this_process, manifests, token)
    assert again == (200, {"outcome": "duplicate", "index": 0, "rows": 10})
    assert node.end_of_log() == 1


def test_commit_that_is_repeated_while_it_runs_waits_for_its_answer(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.nodes[0]
    upload, manifests = upload_rows(node, tmp_path / "up", 0)
    begun, go_on, seal = threading.Event(), threading.Event(), node.table().uploads.seal
    sealed: list[str] = []

    def slowly(*args: Any) -> Path:
        sealed.append(upload)
        begun.set()
        assert go_on.wait(60)
        return seal(*args)

    monkeypatch.setattr(node.table().uploads, "seal", slowly)
    answers: list[tuple[int, Any]] = []
    requests = [threading.Thread(target=lambda: answers.append(commit(node, upload, manifests))) for _ in range(2)]
    requests[0].start()
    assert begun.wait(60)
    requests[1].start()
    go_on.set()
    for request in requests:
        request.join(20)
    assert answers == [(200, {"outcome": "inserted", "index": 0, "rows": 10})] * 2
    assert sealed == [upload]
    assert list(node.table().uploads.root.iterdir()) == []


def test_commit_that_takes_too_long_is_unknown_and_found_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = InProcessCluster(tmp_path, 1)
    try:
        cluster.create_table()
        (node,) = cluster.nodes
        upload, manifests = upload_rows(node, tmp_path / "up", 0)
        go_on, seal = threading.Event(), node.table().uploads.seal

        def late(*args: Any) -> Path:
            assert go_on.wait(60)
            return seal(*args)

        monkeypatch.setattr(node.table().uploads, "seal", late)
        timeout = asyncio.timeout
        monkeypatch.setattr(asyncio, "timeout", lambda _: timeout(0.05))
        status, answer = commit(node, upload, manifests)
        assert (status, answer["error"], answer["token"]) == (504, "OutcomeUnknown", "job 7")
        monkeypatch.undo()
        go_on.set()
        assert commit(node, upload, manifests) == (200, {"outcome": "inserted", "index": 0, "rows": 10})
    finally:
        cluster.close()


def test_commit_with_the_token_of_rows_that_were_dropped_inserts_its_own(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    node = cluster.nodes[0]
    assert commit(node, *upload_rows(node, tmp_path / "first", 0))[1]["outcome"] == "inserted"
    node.post("drop", {"all": True}, wait_s=20)
    cluster.wait_equal([])
    assert commit(node, *upload_rows(node, tmp_path / "again", 0))[1]["outcome"] == "inserted"
    cluster.wait_equal(list(range(10)))
    assert commit(node, *upload_rows(node, tmp_path / "twice", 0))[1]["outcome"] == "duplicate"
    assert list(node.table().uploads.root.iterdir()) == []


def test_failed_commit_can_be_repeated(cluster: InProcessCluster, tmp_path: Path) -> None:
    node = cluster.nodes[0]
    upload, manifests = upload_rows(node, tmp_path / "up", 0)
    (manifest,) = manifests
    wrong = msgspec.structs.replace(manifest.files[0], checksum="0" * 32)
    status, answer = commit(node, upload, (msgspec.structs.replace(manifest, files=(wrong,)),))
    assert (status, answer["error"]) == (410, "CorruptPart")
    assert commit(node, upload, manifests)[1]["outcome"] == "inserted"


def test_upload_that_never_became_an_insert_is_said_to_be_gone(cluster: InProcessCluster, tmp_path: Path) -> None:
    node = cluster.nodes[0]
    upload, manifests = upload_rows(node, tmp_path / "up", 0)
    assert node.request("DELETE", f"/v1/tables/t/uploads/{upload}")[0] == 200
    for query in ({}, {"overwrite": "all"}):
        status, answer = commit(node, upload, manifests, None, **query)
        assert (status, answer["error"], "no such upload" in answer["message"]) == (400, "BadInput", True)
    assert node.request("POST", f"/v1/tables/t/uploads/{upload}")[0] == 400


def test_a_disk_that_is_slow_to_take_a_file_delays_no_other_request(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, slow, asked = cluster.nodes[0], threading.Event(), threading.Event()
    open_file = private.open_file

    def opened(path: Path, mode: str) -> Any:
        if path.name.startswith("incoming-"):
            asked.set()
            assert slow.wait(60)
        return open_file(path, mode)

    monkeypatch.setattr(private, "open_file", opened)
    with ThreadPoolExecutor(1) as pool:
        upload = pool.submit(upload_rows, node, tmp_path / "up", 0)
        try:
            assert asked.wait(60)
            assert node.request("GET", "/v1/status")[0] == 200
        finally:
            slow.set()
        assert commit(node, *upload.result())[1]["outcome"] == "inserted"


def test_opening_says_who_writes_and_renewing_that_it_goes_on(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    uploads = node.table().uploads
    upload = node.post("uploads", msgspec.to_builtins(ELSEWHERE))["upload"]

    def life() -> Writer:
        return msgspec.json.decode((uploads.root / f"{upload}{LIFE_SUFFIX}").read_bytes(), type=Writer)

    assert life() == ELSEWHERE
    assert node.request("POST", f"/v1/tables/t/uploads/{upload}")[0] == 200
    assert life() == msgspec.structs.replace(ELSEWHERE, renews=True)
    assert node.request("POST", "/v1/tables/t/uploads", b'{"pid": "x"}')[0] == 400


# --- what is verified before a commit -----------------------------------------------------------------------------------


def _rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> bytes:
    out = io.BytesIO()
    pq.write_table(change(pq.read_table(path)), out)
    return out.getvalue()


def _damaged_page(path: Path) -> bytes:
    """A file whose first column can't be decoded; its footer is right."""
    data, column = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(0).column(0)
    end = column.data_page_offset + column.total_compressed_size
    data[end - 8 : end - 2] = b"\xa5" * 6
    return bytes(data)


def _far_footer(path: Path) -> bytes:
    """A file that lacks its first bytes, so that its footer points beyond its end."""
    return path.read_bytes()[600:]


WRONG_FILES: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "no Parquet": (lambda path: b"x" * path.stat().st_size, "can't be decoded"),
    "nothing": (lambda _: b"", "can't be decoded"),
    "a page that can't be decoded": (_damaged_page, "can't be read|can't be decoded"),
    "a footer that points outside": (_far_footer, "outside of the file|can't be"),
    "other columns": (
        lambda path: _rewritten(path, lambda t: t.rename_columns(["k", *"abcdef"[: t.num_columns - 1]])),
        "missing|no column",
    ),
    "another type": (
        lambda path: _rewritten(path, lambda t: t.set_column(0, "k", t.column("k").cast(pa.string()))),
        "expected",
    ),
    "fewer rows": (lambda path: _rewritten(path, lambda t: t.slice(1)), "rows"),
    "rows in another order": (
        lambda path: _rewritten(path, lambda t: t.take(pa.array(range(len(t) - 1, -1, -1)))),
        "not sorted",
    ),
    "other rows": (
        lambda path: _rewritten(path, lambda t: t.set_column(0, "k", pa.array(range(1, len(t) + 1), t.schema[0].type))),
        "content hash",
    ),
}
SAMPLED = ("no Parquet", "nothing", "a page that can't be decoded", "other columns", "another type", "fewer rows")


@pytest.mark.parametrize(
    ("wrong", "is_small"), [*((name, True) for name in WRONG_FILES), *((name, False) for name in SAMPLED)]
)
def test_an_upload_that_can_not_be_read_is_refused_before_the_commit(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, is_small: bool
) -> None:
    if not is_small:
        monkeypatch.setattr(upload_check, "WHOLE_BYTES_MAX", 0)
    node, (damage, message) = cluster.nodes[0], WRONG_FILES[wrong]
    (manifest,) = stage_table(rows(0, 1000), node.table().definition, tmp_path / "up", sync=False)
    data = damage(tmp_path / "up" / manifest.partition / manifest.files[0].name)
    file = msgspec.structs.replace(manifest.files[0], bytes=len(data), checksum=xxhash.xxh3_128_hexdigest(data))
    upload = node.post("uploads")["upload"]
    path = f"/v1/tables/t/uploads/{upload}/{manifest.partition}/{file.name}?checksum={file.checksum}"
    assert node.request("PUT", path, data)[0] == 200
    status, answer = commit(node, upload, (msgspec.structs.replace(manifest, bytes=len(data), files=(file,)),))
    assert (status, answer["error"]) in ((400, "BadInput"), (400, "SchemaMismatch")), answer
    assert re.search(message, answer["message"]), answer
    assert node.end_of_log() == 0
    node.insert(rows(0))
    cluster.wait_equal(list(range(10)))


@pytest.mark.parametrize(
    "columns",
    [
        {"k": ColumnStats("int64", 5, 9)},
        {"k": ColumnStats("int64", 0, 8)},
        {"k": ColumnStats("int64", 0, 9, nulls=1)},
        {"k": ColumnStats("string", "a", "b")},
        {"v": ColumnStats("string", "a", "b")},
    ],
)
def test_statistics_that_would_hide_rows_are_refused(
    cluster: InProcessCluster, tmp_path: Path, columns: dict[str, ColumnStats]
) -> None:
    node = cluster.nodes[0]
    upload, (manifest,) = upload_rows(node, tmp_path / "up", 0)
    status, answer = commit(node, upload, (msgspec.structs.replace(manifest, columns=columns),))
    assert (status, answer["error"], "statistics" in answer["message"]) == (400, "BadInput", True), answer
    status, answer = commit(node, upload, (msgspec.structs.replace(manifest, schema_version=7),))
    assert (status, answer["error"]) == (400, "BadInput")
    assert commit(node, upload, (manifest,))[1]["outcome"] == "inserted"


def test_a_part_that_can_not_be_decoded_is_named_stops_no_other_merge_and_can_be_dropped(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_check.UploadCheck, "part", lambda *_: None)  # as of an earlier version
    definition = cluster.create_table("b", partition_by=["bucket(2, k)"])
    node, base = cluster.nodes[0], "/v1/tables/b"
    manifests = {each.partition: each for each in stage_table(rows(0, 1000), definition, tmp_path / "up", sync=False)}
    manifest = manifests["0"]
    data = _damaged_page(tmp_path / "up/0" / manifest.files[0].name)
    file = msgspec.structs.replace(manifest.files[0], checksum=xxhash.xxh3_128_hexdigest(data))
    upload = node.request("POST", f"{base}/uploads", b"{}")[1]["upload"]
    path = f"{base}/uploads/{upload}/0/{file.name}?checksum={file.checksum}"
    assert node.request("PUT", path, data)[0] == 200
    body = json.dumps({"manifests": msgspec.to_builtins((msgspec.structs.replace(manifest, files=(file,)),))}).encode()
    assert node.request("POST", f"{base}/uploads/{upload}/commit", body)[0] == 200
    for first in (2000, 2010):
        node.insert(rows(first), table="b")

    def status_text() -> str:
        return json.dumps(node.request("GET", f"{base}/status")[1])

    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(node.request, "POST", f"{base}/optimize", b'{"partition": "0"}')
        wait_for(lambda: "0_0_0_0 can't be read" in status_text(), "the status names the part that can't be decoded")
        status, merged = node.request("POST", f"{base}/optimize", b'{"partition": "1"}')
        assert (status, merged["finished"]) == (200, True), merged
        assert node.request("POST", f"{base}/drop", b'{"partition": "0"}')[0] == 200
        assert stuck.result()[0] == 200
    wait_for(lambda: set(node.contents("b")) == {"1_1_2_1"}, "the part is gone, and the merge that waited for it")
