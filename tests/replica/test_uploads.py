"""Uploads: committed once however often it is asked for, and removed when nobody will commit them any more."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replitree.protocol.effects import Owner
from replitree.replica.identity import machine_id, process_started
from replitree.replica.upload_life import LIFETIME_S, SILENCE_S, Silence, Writer, is_given_up
from replitree.replica.uploads import LIFE_SUFFIX, SWEEP_S, NoSuchUpload, Uploads
from replitree.storage.encode import stage_table
from replitree.storage.folder_walk import below
from replitree.storage.manifest import PartManifest
from tests.replica.inprocess import InProcessCluster, Node, rows

NOW = 1_000_000_000.0
ALIVE = Writer(machine_id(), os.getpid(), process_started(os.getpid()) or 0)
ELSEWHERE = Writer("another machine", 1, 1)


# --- life -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("owner", list(Owner))
def test_who_is_surely_gone_or_breaks_a_promise_is_given_up_soon(owner: Owner, renews: bool) -> None:
    soon = owner is Owner.DEAD or (owner is Owner.UNCLEAR and renews)
    limit = SILENCE_S if soon else LIFETIME_S
    assert not is_given_up(Silence(limit, owner, renews))
    assert is_given_up(Silence(limit + 1, owner, renews))


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
    assert node.table().commands.tail() == 1


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
        assert go_on.wait(20)
        return seal(*args)

    monkeypatch.setattr(node.table().uploads, "seal", slowly)
    answers: list[tuple[int, Any]] = []
    requests = [threading.Thread(target=lambda: answers.append(commit(node, upload, manifests))) for _ in range(2)]
    requests[0].start()
    assert begun.wait(20)
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
            assert go_on.wait(20)
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
