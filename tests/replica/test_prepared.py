"""Merges whose result somebody else makes: used by whoever took it, equal to what the others make, and gone in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replitree.replica.parts import prepared
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.parts.manifest import FileEntry, PartManifest, data_file
from replitree.storage.rewrite import merge
from replitree.storage.rewrite.empty import empty_content
from replitree.storage.rewrite.key_range import ranges_of
from replitree.storage.rewrite.merge import merge_parts, merge_range
from replitree.storage.schema.definition import TableSettings
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for
from tests.replica.test_lost_parts import break_part, lost_count
from tests.replica.test_merges import leader_of

Answer = tuple[int, Any]


@pytest.fixture
def made_by(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Under which folders replicas merge by themselves."""
    seen: list[Path] = []

    def watched(sources: list[Path], *args: Any, **how: Any) -> PartManifest:
        seen.append(sources[0])
        return merge_parts(sources, *args, **how)

    monkeypatch.setattr(merge, "merge_parts", watched)
    return seen


def filled(cluster: InProcessCluster, policy: str = "plain", count: int = 3) -> Node:
    """Create a table with a few overlapping parts that nobody merges yet; return its leader."""
    cluster.create_table(settings=TableSettings(row_group_rows=10), policy=policy)
    leader = leader_of(cluster)
    for number in range(count):
        cluster.nodes[number % 2].insert(rows(5 * number, 50), f"{number}")
    for node in cluster.nodes:
        wait_for(lambda node=node: node.table().progress.index >= count, "all parts are there")  # type: ignore[misc]
    return leader


def plan_of(node: Node, **body: Any) -> dict[str, Any]:
    (merge,) = node.post("merges/plan", {"final": True, **body})["merges"]
    found: dict[str, Any] = merge
    return found


def make(node: Node, merge: dict[str, Any], folder: Path, ranges: int = 3) -> dict[str, Any]:
    """Make a planned merge range by range, and send it; return the body that has it published."""
    definition = node.table().definitions.at(merge["schema_version"])
    sources = [Path(source["path"]) for source in merge["sources"]]
    manifests = [msgspec.convert(source["manifest"], PartManifest) for source in merge["sources"]]
    upload = node.post("uploads")["upload"]
    files: list[dict[str, Any]] = []
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(ranges_of(list(zip(sources, manifests, strict=True)), definition, ranges)):
        part = merge_range(sources, definition, folder / f"{number}", each)
        (file,) = part.files
        path = f"/v1/tables/t/uploads/{upload}/{part.partition}/{data_file(number)}?checksum={file.checksum}"
        status, _ = node.request("PUT", path, (folder / f"{number}" / part.partition / file.name).read_bytes())
        assert status == 200
        files.append(msgspec.to_builtins(FileEntry(data_file(number), file.rows, file.bytes, file.checksum)))
    names = [source["part"] for source in merge["sources"]]
    return {"upload": upload, "sources": names, "schema_version": merge["schema_version"], "files": files}


def send(node: Node, body: dict[str, Any]) -> Answer:
    return node.request("POST", "/v1/tables/t/merges/result", json.dumps(body).encode())


def left(table: TableReplica) -> list[str]:
    return [path.name for path in table.uploads.root.iterdir()]


def made(table: TableReplica) -> list[str]:
    """The folders of prepared parts."""
    return [name for name in left(table) if name.endswith("_made")]


def wait_swept(table: TableReplica) -> None:
    """Wait until no prepared part is left; the replica sweeps in the background, too, and may be in the middle of it."""

    def is_swept() -> bool:
        table.prepared.sweep()
        return made(table) == []

    wait_for(is_swept, lambda: f"the prepared parts are removed: {made(table)}")


@pytest.mark.parametrize("policy", ["plain", "replacing", "summing(v)"])
def test_prepared_part_is_published_and_equal_to_what_others_make(
    tmp_path: Path, made_by: list[Path], policy: str
) -> None:
    cluster = InProcessCluster(tmp_path)
    try:
        leader = filled(cluster, policy)
        merge = plan_of(leader)
        body = make(leader, merge, tmp_path)
        assert len(body["files"]) == 3
        status, outcome = send(leader, body)
        assert status == 200
        assert (outcome["applied"], outcome["finished"]) == (True, True)
        contents = cluster.wait_alike()
        assert outcome["result"] in contents
        assert len(leader.table().store.manifest(outcome["result"]).files) == 3
        assert not any(path.is_relative_to(tmp_path / leader.name) for path in made_by)
        assert len(made_by) == 1  # the other replica
        again = send(leader, body)
        assert again == (200, outcome)
        wait_swept(leader.table())
        assert left(leader.table()) == []
    finally:
        cluster.close()


@pytest.fixture
def leader(cluster: InProcessCluster) -> Node:
    """The leader of a table with three parts that are planned to be merged."""
    return filled_again(cluster)


def filled_again(cluster: InProcessCluster) -> Node:
    found = leader_of(cluster)
    for number in range(3):
        found.insert(rows(10 * number), f"{number}")
    return found


def test_planned_parts_are_not_merged_by_the_leader_while_the_lease_lasts(cluster: InProcessCluster) -> None:
    leader = filled_again(cluster)
    planned = leader.post("merges/plan", {"final": True, "lease_s": 60})
    table = leader.table()
    assert {part.name for part in table.merges.reserved()} == {each["part"] for each in planned["merges"][0]["sources"]}
    assert table.merges.choose() == ()
    assert leader.post("merges/plan", {"final": True})["merges"] == []
    leader.request("DELETE", f"/v1/tables/t/leases/{planned['lease']}")
    assert table.merges.reserved() == frozenset()
    assert plan_of(leader)["sources"] == planned["merges"][0]["sources"]


def test_wrong_results_are_refused_and_nothing_is_proposed(leader: Node, tmp_path: Path) -> None:
    merge = plan_of(leader)
    good = make(leader, merge, tmp_path, 1)
    (file,) = good["files"]
    names = good["sources"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"files": [file | {"checksum": "0" * 32}]}, "another checksum"),
        ({"files": [file | {"rows": 29}]}, "other rows"),
        ({"files": [file | {"name": "../../data-0.parquet"}]}, "data files"),
        ({"files": [file, file]}, "each once"),
        ({"files": []}, "data files"),
        ({"files": [file | {"name": "data-7.parquet"}]}, "not a file"),
        ({"sources": names[:2]}, "30 rows, and its sources have 20"),
        ({"sources": names[::-1]}, "order of their blocks"),
        ({"sources": []}, "at least one source"),
        ({"sources": ["../x"]}, "x"),
        ({"sources": [names[0], "other_9_9_0"]}, "one partition"),
        ({"upload": "../etc"}, "no such upload"),
        ({"upload": "0" * 32}, "no such upload"),
    ]
    end = leader.end_of_log()
    for number, (change, words) in enumerate(wrong):
        status, answer = send(leader, good | change)
        assert (status, words in answer["message"]) == (400, True), (change, answer)
        good = make(leader, merge, tmp_path / f"again {number}", 1)  # what was refused may have been moved
    status, answer = send(leader, good | {"sources": [*names[:2], "all_77_77_0"]})
    assert (status, answer["error"]) == (410, "SnapshotExpired")
    assert leader.end_of_log() == end
    wait_swept(leader.table())


def test_unsorted_result_is_refused(leader: Node, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    body = make(leader, plan_of(leader), tmp_path, 1)
    path = leader.table().uploads.root / body["upload"] / "all" / data_file(0)
    pq.write_table(pq.read_table(path).sort_by([("k", "descending")]), path)
    status, answer = send(leader, body)
    assert status == 400
    assert "not sorted" in answer["message"]


def test_result_for_parts_that_were_merged_meanwhile_is_refused_and_removed(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    leader = filled_again(cluster)
    planned = leader.post("merges/plan", {"final": True})
    body = make(leader, planned["merges"][0], tmp_path)
    leader.request("DELETE", f"/v1/tables/t/leases/{planned['lease']}")
    assert leader.post("optimize", {"final": True})["finished"]
    status, answer = send(leader, body)
    if status == 200:  # the same merge: it is in the log already
        assert answer["applied"]
    else:
        assert (status, answer["error"]) == (410, "SnapshotExpired")
    cluster.wait_equal(list(range(30)))


def test_prepared_part_whose_merge_does_not_apply_is_removed(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = filled_again(cluster)
    body = make(leader, plan_of(leader), tmp_path)
    table = leader.table()
    monkeypatch.setattr(table.merges, "propose_entries", lambda *_: ())  # its commit's answer is lost
    status, answer = send(leader, body)
    assert (status, answer["error"]) == (503, "Unavailable")
    monkeypatch.undo()
    leader.post("drop", {"all": True})
    status, outcome = send(leader, body)
    assert (status, outcome["applied"]) == (200, False)
    wait_swept(table)
    cluster.wait_equal([])


def test_prepared_part_that_nobody_proposes_goes_after_a_while(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = filled_again(cluster)
    table, now = leader.table(), [0.0]
    monkeypatch.setattr(table.prepared, "_clock", lambda: now[0])
    body = make(leader, plan_of(leader), tmp_path)
    monkeypatch.setattr(table.merges, "propose_entries", lambda *_: ())
    assert send(leader, body)[0] == 503
    now[0] = prepared.KEPT_S
    assert (table.prepared.sweep(), len(made(table))) == (0, 1)
    now[0] += 1
    wait_swept(table)


def test_restarted_replica_merges_by_itself_what_was_prepared(
    cluster: InProcessCluster, tmp_path: Path, made_by: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = filled_again(cluster)
    body = make(leader, plan_of(leader), tmp_path)
    monkeypatch.setattr(leader.table().merges, "propose_entries", lambda *_: ())
    assert send(leader, body)[0] == 503
    leader.restart()
    wait_for(lambda: cluster.is_active(leader), "it is active again")
    wait_swept(leader.table())
    assert leader.post("optimize", {"final": True})["finished"]
    contents = cluster.wait_alike()
    assert len(contents) == 1
    assert any(path.is_relative_to(tmp_path / leader.name) for path in made_by)
    cluster.wait_equal(list(range(30)))


def test_prepared_part_does_not_bring_back_the_rows_of_a_source_that_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = InProcessCluster(tmp_path, lost_part_after_s=0.0)
    cluster.create_table()
    leader = filled_again(cluster)
    cluster.wait_equal(list(range(30)))
    body = make(leader, plan_of(leader), tmp_path / "made")
    with monkeypatch.context() as stopped:
        stopped.setattr(leader.table().merges, "propose_entries", lambda *_: ())
        assert send(leader, body)[0] == 503
    lost, empty = body["sources"][0], empty_content(leader.table().definition)
    for node in cluster.nodes:
        break_part(node, lost)
    wait_for(lambda: sum(map(lost_count, cluster.nodes)) == 1, "one of them declares it lost")
    for node in cluster.nodes:
        wait_for(lambda node=node: node.contents().get(lost) == empty, f"{node.name} has the empty part")  # type: ignore[misc]
    status, outcome = send(leader, body)
    assert (status, outcome["applied"]) == (200, True)
    cluster.wait_equal(list(range(10, 30)))
    cluster.wait_alike()
    cluster.close()
