"""A manifest that has changed on the disk hides no rows: its part is set aside, fetched again, and read elsewhere meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Commit, Set
from replitree.storage.disk.kept_definition import read_definition
from replitree.storage.parts.manifest import MANIFEST_FILE, SEALED_FORMAT, UNSEALED_FORMAT, ColumnStats, decode_manifest
from tests.replica.inprocess import InProcessCluster, Node, wait_for
from tests.replica.test_check import check, insert_parts
from tests.replica.test_lost_parts import lost_count


def manifest_of(node: Node, part: str) -> Path:
    return node.table().store.file_path(part, MANIFEST_FILE)


def narrow(path: Path) -> None:
    """Lower a bound, so that a reader who believes it leaves rows out."""
    data = path.read_bytes()
    assert data.count(b'"max":99}') == 1
    path.write_bytes(data.replace(b'"max":99}', b'"max":19}'))


def bounds(node: Node) -> dict[str, tuple[Any, Any]]:
    """The bounds of the key in a snapshot, by part."""
    parts = node.get("snapshot")["parts"]
    return {
        each["part"]: (each["manifest"]["columns"]["k"]["min"], each["manifest"]["columns"]["k"]["max"])
        for each in parts
    }


def test_a_changed_bound_is_not_sent_to_readers_after_a_restart(cluster: InProcessCluster) -> None:
    _, second = cluster.nodes
    part, _ = insert_parts(cluster, 2)
    before = bounds(second)
    narrow(manifest_of(second, part))
    second.restart()
    status, answer = second.request("GET", "/v1/tables/t/snapshot")
    assert status == 503
    assert (answer["error"], part in answer["message"]) == ("ReplicaUnavailable", True)
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert bounds(second) == before
    assert second.table().store.detached() == (f"broken_{part}_0",)


def test_the_manifest_of_another_part_is_not_sent_to_readers(cluster: InProcessCluster) -> None:
    """Both manifests are as they were written, so only what coordination knows tells that they were exchanged."""
    _, second = cluster.nodes
    part, other = insert_parts(cluster, 2)
    before = bounds(second)
    shutil.copyfile(manifest_of(second, other), manifest_of(second, part))
    second.restart()
    assert second.request("GET", "/v1/tables/t/snapshot")[0] == 503
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert bounds(second) == before


@pytest.mark.parametrize("field", ["bound", "rows"])
def test_a_check_finds_a_manifest_that_agrees_with_itself_but_was_changed(
    cluster: InProcessCluster, field: str
) -> None:
    _, second = cluster.nodes
    (part,) = insert_parts(cluster, 1)
    path = manifest_of(second, part)
    before = path.read_bytes()
    if field == "bound":
        narrow(path)
    else:
        path.write_bytes(before.replace(b'"rows":100', b'"rows":101'))
    (found,) = check(second)["broken"]
    assert (found["part"], "checksum" in found["problem"]) == (part, True)
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert path.read_bytes() == before
    assert check(second)["broken"] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {"k": ColumnStats("int64", 0, 19)}},
        {"columns": {"k": ColumnStats("int64", 0, 19)}, "format": UNSEALED_FORMAT},
        {"columns": {}},
        {"schema_version": 2},
        {"partition_values": (1,)},
        {"format": SEALED_FORMAT},
    ],
)
def test_a_manifest_of_the_same_rows_that_is_whole_and_is_not_the_one_that_was_registered_is_not_used(
    cluster: InProcessCluster, changes: dict[str, Any]
) -> None:
    """Such as one of before a rewrite, or of a part that was written for other columns; its checksum is right."""
    _, second = cluster.nodes
    (part,) = insert_parts(cluster, 1)
    path, before = manifest_of(second, part), bounds(second)
    registered = path.read_bytes()
    path.write_bytes(replace(decode_manifest(registered), **changes).encode())
    second.restart()
    assert second.request("GET", "/v1/tables/t/snapshot")[0] == 503
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert (path.read_bytes(), bounds(second)) == (registered, before)


def test_a_check_finds_the_manifest_of_the_same_rows_with_other_bounds(cluster: InProcessCluster) -> None:
    _, second = cluster.nodes
    (part,) = insert_parts(cluster, 1)
    path = manifest_of(second, part)
    registered = path.read_bytes()
    path.write_bytes(replace(decode_manifest(registered), columns={"k": ColumnStats("int64", 0, 19)}).encode())
    (found,) = check(second)["broken"]
    assert (found["part"], "registered with" in found["problem"]) == (part, True)
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert path.read_bytes() == registered


def test_a_damaged_manifest_is_not_taken_by_a_replica_that_fetches(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    (part,) = insert_parts(cluster, 1)
    before = manifest_of(second, part).read_bytes()
    narrow(manifest_of(first, part))
    shutil.rmtree(second.table().store.part_path(part))
    first.restart()
    check(second)
    assert second.request("GET", "/v1/tables/t/snapshot")[0] == 503
    assert json.loads(before)["columns"]["k"]["max"] == 99
    assert not manifest_of(second, part).exists()


# --- parts of earlier versions ------------------------------------------------------------------------------------------------


def make_earlier(cluster: InProcessCluster, *parts: str, **changes: Any) -> list[bytes]:
    """Make parts those of an earlier version: registered with the hash of their rows, with a manifest without a checksum.

    Returns their manifests with a checksum.  `changes`: what is wrong in the second replica's manifests.
    """
    sealed: list[bytes] = []
    for part in parts:
        manifest = decode_manifest(manifest_of(cluster.nodes[0], part).read_bytes())
        old = replace(manifest, format=UNSEALED_FORMAT)
        sealed.append(old.sealed().encode())
        for node in cluster.nodes:
            node.coordination.perform(
                Commit(Set(layout.part(node.table().replica, part), old.content.encode(), ANY_VERSION))
            )
            said = replace(old, **changes) if node is cluster.nodes[-1] else old
            manifest_of(node, part).write_bytes(said.encode())
    for node in cluster.nodes:
        node.restart()
    for node in cluster.nodes:
        wait_for(lambda node=node: cluster.is_active(node), f"{node.name} active")  # type: ignore[misc]
        node.post("merges/pause")
    return sealed


def test_parts_of_an_earlier_version_get_a_checksum_and_status_counts_those_left(cluster: InProcessCluster) -> None:
    _, second = cluster.nodes
    parts = insert_parts(cluster, 3)
    before = make_earlier(cluster, *parts)
    assert second.get("status")["without_checksums"] == 3
    second.table().checker.check_next()
    assert second.get("status")["without_checksums"] == 2
    assert check(second)["broken"] == []
    assert second.get("status")["without_checksums"] == 0
    assert [manifest_of(second, part).read_bytes() for part in parts] == before
    assert second.keys() == list(range(300))


def test_a_merge_gives_parts_of_an_earlier_version_a_digest_on_all_replicas(cluster: InProcessCluster) -> None:
    parts = insert_parts(cluster, 3)
    make_earlier(cluster, *parts)
    first, second = cluster.nodes
    assert [node.get("status")["without_digest"] for node in cluster.nodes] == [3, 3]
    for node in cluster.nodes:
        node.post("merges/resume")
    first.post("optimize", wait=True)
    wait_for(lambda: len(second.contents()) == 1, "merged")
    assert first.contents() == second.contents()
    assert [node.get("status")["without_digest"] for node in cluster.nodes] == [0, 0]
    cluster.wait_equal(list(range(300)))


def test_a_changed_bound_of_an_earlier_version_is_put_right_from_the_rows(cluster: InProcessCluster) -> None:
    _, second = cluster.nodes
    (part,) = insert_parts(cluster, 1)
    before = make_earlier(cluster, part, columns={"k": ColumnStats("int64", 0, 19)})
    assert check(second)["broken"] == []
    assert [manifest_of(second, part).read_bytes()] == before


def test_a_changed_number_of_rows_of_an_earlier_version_is_found(cluster: InProcessCluster) -> None:
    _, second = cluster.nodes
    (part,) = insert_parts(cluster, 1)
    (file,) = decode_manifest(manifest_of(second, part).read_bytes()).files
    make_earlier(cluster, part, rows=101, files=(replace(file, rows=101),))
    (found,) = check(second)["broken"]
    assert (found["part"], "rows" in found["problem"]) == (part, True)
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert second.keys() == list(range(100))


# --- what lies beside the parts -----------------------------------------------------------------------------------------------


def test_a_check_reports_damaged_detached_parts_and_frozen_snapshots_and_writes_the_definition_anew(
    cluster: InProcessCluster,
) -> None:
    _, second = cluster.nodes
    insert_parts(cluster, 1)
    second.post("freeze", {"name": "before"})
    second.post("drop", {"all": True, "detach": True})
    store = second.table().store
    wait_for(store.detached, "it is detached")
    assert "aside" not in check(second)
    (detached,) = store.detached()
    frozen, definition = store.frozen_path("before") / "frozen.json", store.root / "definition.json"
    for path in (store.root / "detached" / detached / MANIFEST_FILE, frozen, definition):
        path.write_bytes(path.read_bytes()[:-5])
    found = {each["part"]: each["problem"] for each in check(second)["aside"]}
    assert sorted(found) == ["definition.json", f"detached/{detached}", "frozen/before"]
    assert read_definition(store.root) == second.table().definition
    assert [each["part"] for each in check(second)["aside"]] == [f"detached/{detached}", "frozen/before"]


# --- manifests that are gone everywhere ---------------------------------------------------------------------------------------


@contextmanager
def impatient(folder: Path) -> Iterator[InProcessCluster]:
    """Two replicas that do not wait before they ask whether a part is lost."""
    cluster = InProcessCluster(folder, lost_part_after_s=0.0)
    cluster.create_table()
    yield cluster
    cluster.close()


def remove_manifests(cluster: InProcessCluster, part: str) -> None:
    for node in cluster.nodes:
        manifest_of(node, part).unlink()
    for node in cluster.nodes:
        node.restart()


def test_a_part_whose_manifest_is_gone_on_every_replica_is_written_anew_of_its_data_files(tmp_path: Path) -> None:
    with impatient(tmp_path) as cluster:
        part, _ = insert_parts(cluster, 2)
        before = decode_manifest(manifest_of(cluster.nodes[0], part).read_bytes())
        remove_manifests(cluster, part)
        for node in cluster.nodes:
            wait_for(lambda node=node: cluster.is_active(node), "active")  # type: ignore[misc]
            check(node)
        wait_for(lambda: not any(node.table().lacking for node in cluster.nodes), "they are whole")
        cluster.wait_equal(list(range(200)))
        after = decode_manifest(manifest_of(cluster.nodes[0], part).read_bytes())
        assert replace(after, files=before.files, bytes=before.bytes) == before
        assert cluster.nodes[0].contents() == cluster.nodes[1].contents()
        assert sum(map(lost_count, cluster.nodes)) == 0


def test_data_files_with_other_rows_do_not_become_a_part_whose_manifest_is_gone(tmp_path: Path) -> None:
    """They are not what the part is registered with, so no replica has the rows: the part is lost, and the files are kept."""
    with impatient(tmp_path) as cluster:
        part, other = insert_parts(cluster, 2)
        for node in cluster.nodes:
            data = node.table().store.part_path(part) / "data-0.parquet"
            data.chmod(0o600)
            shutil.copyfile(node.table().store.part_path(other) / "data-0.parquet", data)
        remove_manifests(cluster, part)
        for node in cluster.nodes:
            wait_for(lambda node=node: cluster.is_active(node), "active")  # type: ignore[misc]
            check(node)
        wait_for(lambda: sum(map(lost_count, cluster.nodes)) == 1, "it is lost")
        cluster.wait_equal(list(range(100, 200)))
        assert all(f"broken_{part}_0" in node.table().store.detached() for node in cluster.nodes)
