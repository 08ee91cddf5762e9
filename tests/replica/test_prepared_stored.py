"""Merges whose results others put into the object store: registered by reference, and nothing is left of those in vain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from replitree.client.insert.stored_upload import PutParts
from replitree.client.insert.upload import Upload
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.errors import StoreError
from replitree.replica.parts import prepared
from replitree.spark.merge.damaged import Damaged
from replitree.spark.merge.store_merge import NotReached, StoreMerge, merged_in_store
from replitree.storage.parts import encode
from replitree.storage.rewrite.merge import merge_parts
from tests.replica.inprocess import TOKEN, Node, rows, wait_for
from tests.replica.test_borrowed import in_pieces
from tests.replica.test_make_once import fill
from tests.replica.test_sharing import SharedCluster
from tests.replica.test_stored_uploads import attempts, noted, repaired
from tests.shared.stores import BUCKET, FOLDER, on

W = TypeVar("W")
R = TypeVar("R")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, f"file://{tmp_path}/objects")
    yield cluster
    cluster.close()


@pytest.fixture
def anywhere(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def run(work: Sequence[W], do: Callable[[W], R]) -> list[R]:
    """Do the work of Spark's tasks in this process."""
    return [do(each) for each in work]


class Job:
    """What a Spark job does that merges: it has a merge planned, tasks put the result, the driver has it published."""

    def __init__(self, cluster: SharedCluster, node: Node, ranges: int = 3) -> None:
        self._node = node
        planned = node.post("merges/plan", {"final": True})
        (self.merge,) = planned["merges"]
        self.lease = planned["lease"]
        opened = node.post("uploads")
        self.upload = Upload("t", opened["upload"], ReplicaInfo(node.name, node.address), "", None, opened["store"])
        sources = tuple(msgspec.convert(each, SnapshotPart) for each in self.merge["sources"])
        definition = (cluster.definition.encode_metadata(), cluster.definition.encode_columns())
        self.work = StoreMerge(definition, sources, (node.address,), HttpClient(TOKEN), self.upload, ranges)

    def put(self) -> PutParts:
        """Put the result."""
        (found,) = merged_in_store(run, [self.work])
        assert isinstance(found, PutParts), found
        return found

    def body(self, put: PutParts) -> dict[str, Any]:
        (manifest,) = put.manifests
        return {
            "upload": self.upload.id,
            "sources": [source["part"] for source in self.merge["sources"]],
            "schema_version": self.merge["schema_version"],
            "files": msgspec.to_builtins(manifest.files),
            "manifest": msgspec.to_builtins(manifest),
            "tags": put.tags["all"],
        }

    def send(self, body: dict[str, Any]) -> tuple[int, Any]:
        return self._node.request("POST", "/v1/tables/t/merges/result", json.dumps(body).encode())

    def publish(self, put: PutParts) -> tuple[int, Any]:
        status, answer = self.send(self.body(put))
        if status == 200:
            self.end()
        return status, answer

    def discard(self) -> int:
        self.end()
        return self._node.request("DELETE", self.upload.route)[0]

    def end(self) -> None:
        """Let go of the parts."""
        self._node.request("DELETE", f"/v1/tables/t/leases/{self.lease}")


def made_here(shared: SharedCluster, folder: Path) -> str:
    """The content hash of what a replica's own code makes of all parts."""
    store, parts = shared.nodes[0].table().store, sorted(shared.nodes[0].contents())
    store.bring(parts)
    return merge_parts([store.part_path(part) for part in parts], shared.definition, folder).content


def wait_given_up(shared: SharedCluster, kept: set[str]) -> None:
    """Wait until there are no attempts, and the store has only these shares."""
    wait_for(lambda: attempts(shared) == () and shared.stored() == kept, "what was put in vain is gone", 60.0)
    wait_for(lambda: noted(shared.nodes[0]) == [], "the disk has forgotten it")


@on(FOLDER, BUCKET)
def test_a_result_in_the_store_is_registered_by_reference_and_is_what_a_replica_makes(
    anywhere: SharedCluster, tmp_path: Path
) -> None:
    shared = anywhere
    keys, job = fill(shared), Job(shared, shared.nodes[0])
    expected = made_here(shared, tmp_path / "kernel")
    put = job.put()
    (share,) = attempts(shared)
    assert len(put.manifests[0].files) == 3
    status, outcome = job.publish(put)
    assert (status, outcome["applied"], outcome["finished"]) == (200, True, True)
    assert job.publish(put) == (200, outcome), "the same again proposes nothing twice"
    shared.wait_equal(keys)
    shared.wait_settled()
    assert shared.shares() == {share}
    assert shared.wait_alike() == {outcome["result"]: expected}
    assert shared.owners() == {share: {f"r1 {outcome['result']}", f"r2 {outcome['result']}"}}
    assert noted(shared.nodes[0]) == []


@on(FOLDER, BUCKET)
def test_parts_whose_files_lie_in_several_shares_are_read_there(
    anywhere: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, node = anywhere, anywhere.nodes[0]
    monkeypatch.setattr(encode, "_cut", in_pieces)
    assert node.insert(rows(0, 30))[0] == 200
    node.post("mutations", {"sql": "DELETE FROM t WHERE k = 0"}, wait_s=20)
    assert node.insert(rows(30))[0] == 200
    shared.wait_equal(list(range(1, 40)))
    expected, job = made_here(shared, tmp_path / "kernel"), Job(shared, node)
    assert [len(source.manifest.shares) for source in job.work.sources] == [2, 1]
    assert job.publish(job.put())[0] == 200
    shared.wait_equal(list(range(1, 40)))
    assert list(shared.wait_alike().values()) == [expected]
    shared.wait_settled()
    assert len(shared.shares()) == 1


def test_a_result_in_one_range_is_not_read_again(shared: SharedCluster, tmp_path: Path) -> None:
    keys, job = fill(shared), Job(shared, shared.nodes[1], ranges=1)
    expected = made_here(shared, tmp_path / "kernel")
    assert job.publish(job.put())[0] == 200
    shared.wait_equal(keys)
    assert list(shared.wait_alike().values()) == [expected]


def test_of_a_task_that_was_attempted_twice_one_file_stays(shared: SharedCluster) -> None:
    keys, job = fill(shared), Job(shared, shared.nodes[0])
    lost, again = job.put(), job.put()
    assert not {file.name for file in lost.manifests[0].files} & {file.name for file in again.manifests[0].files}
    assert job.publish(again)[0] == 200
    shared.wait_equal(keys)
    shared.wait_settled()
    (share,) = shared.shares()
    found = shared.objects.list(f"tables/{shared.definition.table_id}/{share}")
    names = {each.key.rpartition("/")[2] for each in found}
    assert names == {file.name for file in again.manifests[0].files} | {"manifest.json"}


def test_a_job_that_is_discarded_leaves_nothing(shared: SharedCluster) -> None:
    keys = fill(shared)
    kept, job = shared.shares(), Job(shared, shared.nodes[0])
    job.put()
    assert repaired(shared, 0.0) == [], "an upload has what is there"
    assert job.discard() == 200
    wait_given_up(shared, kept)
    shared.wait_equal(keys)


@pytest.mark.slow
def test_a_result_that_is_too_late_is_given_up(shared: SharedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shared)
    job, table = Job(shared, shared.nodes[0]), shared.nodes[0].table()
    put = job.put()
    with monkeypatch.context() as stopped:
        stopped.setattr(table.merges, "propose_entries", lambda *_: ())  # its commit's answer is lost
        assert job.publish(put)[0] == 503
    job.end()
    assert repaired(shared, 0.0) == [], "a prepared part has what is there"
    shared.nodes[0].post("drop", {"all": True}, wait_s=20)
    status, outcome = job.publish(put)
    assert (status, outcome["applied"]) == (200, False)
    shared.wait_empty()
    wait_given_up(shared, set())


@pytest.mark.slow
def test_a_result_that_nobody_proposes_is_given_up(shared: SharedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = fill(shared)
    kept, job, table = shared.shares(), Job(shared, shared.nodes[0]), shared.nodes[0].table()
    put = job.put()
    with monkeypatch.context() as stopped:
        stopped.setattr(table.merges, "propose_entries", lambda *_: ())
        assert job.publish(put)[0] == 503
    assert table.sharing is not None
    table.sharing.work()
    assert len(attempts(shared)) == 1, "a prepared part has the share, though its upload is gone"
    clock = table.prepared._clock  # noqa: SLF001 - time passes
    monkeypatch.setattr(table.prepared, "_clock", lambda: clock() + prepared.KEPT_S + 1)
    wait_given_up(shared, kept)
    shared.wait_equal(keys)


@pytest.mark.slow
def test_a_restarted_replica_gives_up_what_was_prepared_and_merges_by_itself(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, node = fill(shared), shared.nodes[0]
    job = Job(shared, node)
    put = job.put()
    (share,) = attempts(shared)
    with monkeypatch.context() as stopped:
        stopped.setattr(node.table().merges, "propose_entries", lambda *_: ())
        assert job.publish(put)[0] == 503
    node.restart()
    wait_for(lambda: shared.is_active(node, "t"), "r1 is active again")
    node.post("optimize", {"final": True}, wait_s=20)
    shared.wait_equal(keys)
    shared.wait_settled()
    assert share not in shared.shares()
    assert noted(node) == []


@pytest.mark.slow
def test_an_upload_outlives_a_restart_of_its_replica(shared: SharedCluster) -> None:
    keys, node = fill(shared), shared.nodes[0]
    job = Job(shared, node)
    put = job.put()
    node.restart()
    wait_for(lambda: shared.is_active(node, "t"), "r1 is active again")
    status, outcome = job.publish(put)
    assert (status, outcome["applied"]) == (200, True)
    shared.wait_equal(keys)
    shared.wait_settled()


def test_parts_that_were_merged_meanwhile_leave_nothing_of_the_result(shared: SharedCluster) -> None:
    keys, node = fill(shared), shared.nodes[0]
    job = Job(shared, node)
    put = job.put()
    job.end()
    node.post("optimize", {"final": True}, wait_s=20)
    shared.wait_alike()
    status, answer = job.publish(put)
    assert (status == 200 and answer["applied"]) or (status, answer["error"]) == (410, "SnapshotExpired")
    job.discard()
    shared.wait_equal(keys)
    shared.wait_settled()


@pytest.mark.parametrize(
    "change",
    [{"rows": 29}, {"share": "0" * 32}, {"partition": "other"}, {"schema_version": 7}, {"files": []}],
    ids=str,
)
def test_results_that_are_not_what_is_said_are_refused(shared: SharedCluster, change: dict[str, Any]) -> None:
    keys = fill(shared)
    kept, job = shared.shares(), Job(shared, shared.nodes[0])
    body = job.body(job.put())
    end = shared.nodes[0].end_of_log()
    status, answer = job.send(body | {"manifest": body["manifest"] | change})
    assert status == 400, answer
    assert shared.nodes[0].end_of_log() == end
    job.discard()
    wait_given_up(shared, kept)
    shared.wait_equal(keys)


def test_a_result_with_rows_too_many_is_refused(shared: SharedCluster) -> None:
    fill(shared)
    job = Job(shared, shared.nodes[0])
    body = job.body(job.put())
    status, answer = job.send(body | {"sources": body["sources"][:2]})
    assert (status, "30 rows, and its sources have 20" in answer["message"]) == (400, True), answer


def test_who_does_not_reach_the_store_says_so_before_anything_is_done(shared: SharedCluster) -> None:
    fill(shared)
    job = Job(shared, shared.nodes[0])
    objects = shared.folder / "objects"
    aside = objects.rename(shared.folder / "aside")
    try:
        (found,) = merged_in_store(run, [job.work])
    finally:
        aside.rename(objects)
    assert isinstance(found, NotReached)
    assert "is its disk mounted here" in found.reason
    assert attempts(shared) == ()


def test_a_source_that_is_damaged_in_the_store_is_not_merged(shared: SharedCluster) -> None:
    fill(shared)
    job = Job(shared, shared.nodes[0])
    path = next((shared.folder / "objects" / "tables").rglob("data-0.parquet"))
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"?" + content[101:])
    (found,) = merged_in_store(run, [job.work])
    assert isinstance(found, Damaged)
    assert "data-0.parquet has changed" in found.reason
    assert {*found.parts} <= {source.part for source in job.work.sources}


def test_parts_that_are_not_in_the_store_are_sent_by_a_replica(shared: SharedCluster, tmp_path: Path) -> None:
    keys = fill(shared)
    job = Job(shared, shared.nodes[0])
    source = job.work.sources[0]
    local = msgspec.structs.replace(source, manifest=source.manifest.as_local())
    job.work = StoreMerge(
        job.work.definition, (local, *job.work.sources[1:]), job.work.addresses, job.work.http, job.upload, 3
    )
    assert job.publish(job.put())[0] == 200
    shared.wait_equal(keys)


@pytest.mark.slow
def test_a_share_that_could_not_be_handed_over_goes_with_its_upload(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, node = fill(shared), shared.nodes[0]
    job, store = Job(shared, node), node.table().store
    put = job.put()
    (share,) = attempts(shared)
    adopt, failures = store.staged.adopt, [StoreError("the disk is full, as the test wants")]

    def fails_once(folder: Path, staging: str) -> None:
        if failures and staging.startswith("make-"):
            raise failures.pop()
        adopt(folder, staging)

    monkeypatch.setattr(store.staged, "adopt", fails_once)
    assert job.publish(put)[0] == 200
    shared.wait_equal(keys)
    shared.wait_alike()
    shared.wait_settled()
    assert not failures
    assert share not in shared.shares(), "the replica has made it by itself"
    assert noted(node) == []


def test_a_merge_of_rows_that_come_later_is_another_one(shared: SharedCluster) -> None:
    keys, node = fill(shared), shared.nodes[0]
    job = Job(shared, node)
    put = job.put()
    assert node.insert(rows(100))[0] == 200
    assert job.publish(put)[0] == 200
    shared.wait_equal([*keys, *range(100, 110)])
    shared.wait_settled()
