"""Uploads whose files others put into the object store: taken by reference once, and nothing is left of the others."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replitree.client.connection import Connection
from replitree.client.insert.stored_upload import PutParts, name_files, put_parts, reach
from replitree.client.insert.upload import Upload
from replitree.client.transport.access import Access
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, StoreError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Epoch, Procedure
from replitree.protocol.shares import uploading
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree.spark.write.store_write import sent
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.joined import joined_manifest
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.shares.shares import ShareObjects
from replitree.wire.upload_life import SILENCE_S
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, rows, wait_for
from tests.replica.test_moving import MovingCluster
from tests.replica.test_sharing import TABLE, SharedCluster
from tests.replica.test_uploads import commit, upload_rows


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


class Job:
    """What a Spark job does: it opens an upload, its tasks put files, the driver commits."""

    def __init__(self, cluster: SharedCluster, node: Node, folder: Path) -> None:
        self._cluster, self._node, self._folder = cluster, node, folder
        self._tasks = 0
        self.http = HttpClient(TOKEN)
        opened = node.post("uploads")
        self.upload = Upload("t", opened["upload"], ReplicaInfo("r1", node.address), "", None, opened["store"])

    @property
    def objects(self) -> ShareObjects:
        return reach(self._cluster.definition, self.upload.store)

    def task(self, first: int, count: int = 10) -> PutParts:
        """Put the rows of one task attempt."""
        self._tasks += 1
        folder = self._folder / f"task-{self._tasks}"
        manifests = stage_table(rows(first, count), self._cluster.definition, folder, sync=False)
        return put_parts(self.http, self.upload, self.objects, folder, manifests)

    def commit(self, *tasks: PutParts, token: str = "job") -> tuple[int, Any]:
        manifest = joined_manifest([each for task in tasks for each in task.manifests])
        tags = {"all": {name: tag for task in tasks for name, tag in task.tags.get("all", {}).items()}}
        return self.commit_as(manifest, tags, token)

    def commit_as(self, manifest: PartManifest, tags: dict[str, dict[str, str]], token: str = "job") -> tuple[int, Any]:
        body = json.dumps({"manifests": msgspec.to_builtins([manifest]), "tags": tags}).encode()
        return self._node.request("POST", f"{self.upload.route}/commit?token={token}", body)

    def discard(self) -> int:
        return self._node.request("DELETE", self.upload.route)[0]


@pytest.fixture
def job(shared: SharedCluster, tmp_path: Path) -> Job:
    return Job(shared, shared.nodes[0], tmp_path)


def attempts(cluster: SharedCluster) -> tuple[str, ...]:
    found: tuple[str, ...] = cluster.admin.perform(Children(layout.all_writing(TABLE)))
    return found


def repaired(cluster: SharedCluster, grace_s: float) -> list[tuple[str, str]]:
    """What fsck finds and does."""
    access = Access("zk://nowhere:1/replitree", TOKEN)
    with closing(Connection(access, lambda: MemoryCoordination(cluster.shared))) as connection:
        report = connection.fsck("t", with_repair=True, grace_s=grace_s)
    return [(each.kind, each.repair) for each in report.findings]


def noted(node: Node) -> list[str]:
    """What the disk of a replica has noted of uploads."""
    return [path.name for path in (node.table().store.root / "attempts").iterdir()]


def test_objects_of_several_tasks_become_one_part_by_reference(shared: SharedCluster, job: Job) -> None:
    tasks = [job.task(10 * number) for number in range(3)]
    (share,) = attempts(shared)
    assert shared.stored() == {share}
    assert job.commit(*tasks) == (200, {"outcome": "inserted", "index": 0, "rows": 30})
    shared.wait_equal(list(range(30)))
    shared.wait_settled()
    assert shared.shares() == {share}
    (part,) = shared.nodes[0].contents()
    assert shared.owners() == {share: {f"r1 {part}", f"r2 {part}"}}
    manifest = shared.nodes[1].table().store.manifest(part)
    assert [file.name for file in manifest.files] == ["data-0.parquet", "data-1.parquet", "data-2.parquet"]
    assert noted(shared.nodes[0]) == []


def test_of_a_task_that_was_attempted_twice_one_stays(shared: SharedCluster, job: Job) -> None:
    first, lost, again = job.task(0), job.task(10), job.task(10)
    assert lost.manifests[0].files[0].name != again.manifests[0].files[0].name
    assert job.commit(first, again)[0] == 200
    shared.wait_equal(list(range(20)))
    shared.wait_settled()
    (share,) = shared.shares()
    names = {found.key.rpartition("/")[2] for found in job.objects.store.list(f"{job.objects.root}/{share}")}
    assert names == {"data-0.parquet", "data-2.parquet", "manifest.json"}


def test_who_seals_an_upload_with_other_files_deletes_nothing_of_what_was_sealed(
    shared: SharedCluster, job: Job
) -> None:
    sharing = shared.nodes[0].table().sharing
    assert sharing is not None
    first = joined_manifest(job.task(0).manifests)
    sharing.uploads.seal(job.upload.id, [first], {})
    other = joined_manifest(job.task(10).manifests)
    with pytest.raises(BadInput, match="another manifest: an upload is committed once"):
        sharing.uploads.seal(job.upload.id, [other], {})
    assert job.objects.is_here(first)
    sharing.uploads.seal(job.upload.id, [first], {})
    names = {found.key.rpartition("/")[2] for found in job.objects.store.list(job.objects.root)}
    assert names == {"data-0.parquet", "manifest.json"}


def test_an_insert_that_is_there_already_leaves_no_objects(shared: SharedCluster, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}").mkdir()
        job = Job(shared, shared.nodes[0], tmp_path / f"{number}")
        status, answer = job.commit(job.task(0))
        assert (status, answer["outcome"]) == (200, ["inserted", "duplicate"][number])
    shared.wait_equal(list(range(10)))
    shared.wait_settled()
    assert len(shared.stored()) == 1


def test_the_token_of_rows_that_were_dropped_inserts_those_in_the_store(shared: SharedCluster, tmp_path: Path) -> None:
    jobs = []
    for number in range(2):
        (tmp_path / f"{number}").mkdir()
        jobs.append(Job(shared, shared.nodes[0], tmp_path / f"{number}"))
        status, answer = jobs[-1].commit(jobs[-1].task(0))
        assert (status, answer["outcome"]) == (200, "inserted")
        shared.wait_equal(list(range(10)))
        if not number:
            shared.nodes[0].post("drop", {"all": True}, wait_s=20)
            shared.wait_equal([])
    shared.wait_settled()


def test_the_token_of_rows_that_were_dropped_inserts_those_that_the_replica_puts(
    shared: SharedCluster, tmp_path: Path
) -> None:
    node = shared.nodes[0]
    for number in range(2):
        assert commit(node, *upload_rows(node, tmp_path / f"{number}", 0))[1]["outcome"] == "inserted"
        shared.wait_equal(list(range(10)))
        if not number:
            node.post("drop", {"all": True}, wait_s=20)
            shared.wait_equal([])
    shared.wait_settled()


def test_a_discarded_job_leaves_nothing(shared: SharedCluster, job: Job) -> None:
    job.task(0)
    assert len(shared.stored()) == 1
    assert job.discard() == 200
    shared.wait_empty()
    wait_for(lambda: noted(shared.nodes[0]) == [], "the disk has forgotten it")
    with pytest.raises(BadInput, match="no such upload"):
        job.task(10)


def test_a_job_that_is_discarded_while_a_task_begins_leaves_nothing(
    shared: SharedCluster, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the note on the disk and that in coordination, upkeep finds an upload that is gone."""
    sharing = shared.nodes[0].table().sharing
    assert sharing is not None
    begin_attempts = uploading.begin_attempts

    def is_discarded_first(sharer: Sharer, epoch: Epoch, shares: tuple[ShareId, ...]) -> Procedure[bool]:
        assert job.discard() == 200
        sharing.work()
        return begin_attempts(sharer, epoch, shares)

    monkeypatch.setattr(uploading, "begin_attempts", is_discarded_first)
    status, _ = shared.nodes[0].request("POST", f"{job.upload.route}/objects", b'{"files": {"all": 1}}')
    assert status == 200, "the upload was there when the request came"
    shared.wait_empty()
    wait_for(lambda: noted(shared.nodes[0]) == [], "the disk has forgotten it")


@pytest.mark.slow
def test_a_job_whose_driver_is_gone_leaves_nothing(
    shared: SharedCluster, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.task(0)
    uploads = shared.nodes[0].table().uploads
    shared.nodes[0].request("POST", job.upload.route)  # a driver that renews, from another machine
    monkeypatch.setattr(uploads, "_clock", lambda: time.time() + 2 * SILENCE_S)
    wait_for(lambda: not uploads.has(job.upload.id), "the upload is given up", 60)
    shared.wait_empty()


def test_an_upload_outlives_a_restart_of_its_replica(shared: SharedCluster, job: Job) -> None:
    before = job.task(0)
    shared.nodes[0].restart()
    wait_for(lambda: shared.is_active(shared.nodes[0], "t"), "r1 is active again")
    assert len(attempts(shared)) == 1
    after = job.task(10)
    assert job.commit(before, after)[0] == 200
    shared.wait_equal(list(range(20)))
    shared.wait_settled()


def test_what_is_put_too_late_belongs_to_nobody_and_fsck_deletes_it(shared: SharedCluster, job: Job) -> None:
    named = name_files(job.http, job.upload, job.task(0).manifests)
    assert job.discard() == 200
    shared.wait_empty()
    late = job.objects.key(str(named[0].share_id), "data-1.parquet")
    job.objects.store.create(late, b"late")
    assert repaired(shared, 3600.0) == []
    assert repaired(shared, 0.0) == [("orphan", "done")]
    assert shared.stored() == set()


def test_who_knows_the_table_from_before_it_had_a_store_is_told_and_looks_again(tmp_path: Path, store_url: str) -> None:
    cluster = MovingCluster(tmp_path, store_url, 1)
    access = Access("zk://nowhere:1/replitree", TOKEN)
    try:
        with closing(Connection(access, lambda: MemoryCoordination(cluster.shared))) as connection:
            table = connection.table("t")
            before = table.definition
            cluster.nodes[0].post("storage", {"storage": store_url})
            store = wait_for(lambda: cluster.nodes[0].post("uploads").get("store"), "uploads may go into the store")
            with pytest.raises(StoreError, match="get the table anew"):
                reach(before, store)
            assert table.refresh().store_url == store_url
            assert reach(table.definition, store).store_id == store
    finally:
        cluster.close()


def test_fsck_leaves_an_upload_alone_that_goes_on(shared: SharedCluster, job: Job) -> None:
    task = job.task(0)
    assert repaired(shared, 0.0) == []
    assert job.commit(task)[0] == 200
    shared.wait_equal(list(range(10)))


@pytest.mark.parametrize("change", [{"rows": 11}, {"share": "0" * 32}, {"partition": "other"}], ids=str)
def test_objects_that_are_not_what_is_said_are_refused(shared: SharedCluster, job: Job, change: dict[str, Any]) -> None:
    manifest = job.task(0).manifests[0]
    files = tuple(msgspec.structs.replace(file, rows=change.get("rows", file.rows)) for file in manifest.files)
    status, answer = job.commit_as(msgspec.structs.replace(manifest, files=files, **change), {})
    assert status in (400, 410), answer
    assert shared.registered() == set()
    assert job.discard() == 200
    shared.wait_empty()


def test_an_upload_borrows_nothing_of_other_parts(shared: SharedCluster, job: Job) -> None:
    (manifest,) = job.task(0).manifests
    (file,) = manifest.files
    borrowing = manifest.shared_as(str(manifest.share_id), {file.name: "f" * 32})
    status, answer = job.commit_as(borrowing, {})
    assert (status, answer["error"]) == (400, "BadInput")
    assert "not in the share that was named for it" in answer["message"]
    assert job.commit_as(manifest, {})[0] == 200
    shared.wait_equal(list(range(10)))


def test_files_of_tasks_that_do_not_reach_the_store_are_put_by_the_replica(
    shared: SharedCluster, job: Job, tmp_path: Path
) -> None:
    near = job.task(0)
    manifests = stage_table(rows(10), shared.definition, tmp_path / "far", sync=False)
    far = sent(job.http, job.upload, tmp_path / "far", manifests)
    assert job.commit(near, far)[0] == 200
    shared.wait_equal(list(range(20)))
    shared.wait_settled()


def test_who_reaches_another_store_is_told(shared: SharedCluster) -> None:
    with pytest.raises(StoreError, match="another store"):
        reach(shared.definition, "another id")


def test_a_table_on_local_disks_names_no_objects(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, 1)
    try:
        cluster.create_table()
        (node,) = cluster.nodes
        opened = node.post("uploads")
        assert "store" not in opened
        status, answer = node.request(
            "POST", f"/v1/tables/t/uploads/{opened['upload']}/objects", b'{"files": {"all": 1}}'
        )
        assert (status, answer["error"]) == (400, "BadInput")
    finally:
        cluster.close()


def test_an_upload_is_not_discarded_while_it_is_committed(shared: SharedCluster, job: Job) -> None:
    task, uploads = job.task(0), shared.nodes[0].table().uploads
    with uploads.committing(job.upload.id):
        assert job.discard() == 400
    assert job.commit(task)[0] == 200


@pytest.mark.parametrize("failures", [0, 1])
def test_an_upload_that_could_not_be_staged_is_committed_again(
    shared: SharedCluster, job: Job, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """The disk fails after a part has its place in staging, and again while the part and its share are put back."""
    task, staged = job.task(0), shared.nodes[0].table().store.staged
    adopt, give_back = staged.adopt, staged.give_back
    left = [StoreError("no space left on device")] * failures

    def fails_late(folder: Path, staging: str) -> None:
        adopt(folder, staging)
        raise StoreError("no space left on device")

    def fails_first(staging: str, folder: Path, shares: Collection[str]) -> None:
        if left:
            raise left.pop()
        give_back(staging, folder, shares)

    with monkeypatch.context() as patch:
        patch.setattr(staged, "adopt", fails_late)
        patch.setattr(staged, "give_back", fails_first)
        status, answer = job.commit(task)
    assert (status, answer["error"]) == (503, "ReadOnly"), answer
    assert job.commit(task) == (200, {"outcome": "inserted", "index": 0, "rows": 10})
    shared.wait_equal(list(range(10)))
    shared.wait_settled()
    assert len(shared.stored()) == 1


def test_names_that_could_not_be_noted_are_not_told(
    shared: SharedCluster, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = shared.nodes[0].table().sharing
    assert uploads is not None

    def is_refused(*_: object) -> Generator[None, None, bool]:
        yield from ()
        return False

    def fails(*_: object) -> Generator[None, None, bool]:
        yield from ()
        raise AssertionError

    for begin_attempts in (is_refused, fails):
        with monkeypatch.context() as patch:
            patch.setattr(uploading, "begin_attempts", begin_attempts)
            status, _ = shared.nodes[0].request("POST", f"{job.upload.route}/objects", b'{"files": {"all": 1}}')
        assert status in (500, 503)
        assert (uploads.uploads.shares(), noted(shared.nodes[0])) == ((), [])
    assert job.commit(job.task(0))[0] == 200


def test_what_only_the_disk_has_noted_of_an_upload_is_named_anew(shared: SharedCluster, job: Job) -> None:
    unheard = "0" * 32
    note = shared.nodes[0].table().store.root / "attempts" / f"{job.upload.id}.json"
    note.write_bytes(
        b'{"all": {"share": "%s", "files": 1}}' % unheard.encode()
    )  # as a process leaves it that is killed then
    shared.nodes[0].restart()
    wait_for(lambda: shared.is_active(shared.nodes[0], "t"), "r1 is active again")
    task = job.task(0)
    (share,) = attempts(shared)
    assert share == task.manifests[0].share_id != unheard
    assert job.commit(task)[0] == 200
    shared.wait_equal(list(range(10)))
    shared.wait_settled()


def test_no_name_is_given_twice(shared: SharedCluster, job: Job) -> None:
    manifests = job.task(0).manifests
    names = [name_files(job.http, job.upload, manifests)[0].files[0].name for _ in range(3)]
    assert names == ["data-1.parquet", "data-2.parquet", "data-3.parquet"]
    shared.nodes[0].restart()
    wait_for(lambda: shared.is_active(shared.nodes[0], "t"), "r1 is active again")
    assert name_files(job.http, job.upload, manifests)[0].files[0].name == "data-4.parquet"
    for files in ({}, {"a/b": 1}, {"all": 0}, {"all": 1_000_000}):
        body = json.dumps({"files": files}).encode()
        status, answer = shared.nodes[0].request("POST", f"{job.upload.route}/objects", body)
        assert (status, answer) == (200, {"names": {}}) if not files else status == 400
