"""Commands over HTTP: any replica takes them, all replicas end alike, and the answer says what is certain."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Commit, CoordinationEffect, Reason, Refused, Sync, Unknown
from replitree.protocol.propose import propose
from replitree.storage.parts.encode import stage_table
from tests.replica.inprocess import InProcessCluster, Node, as_stream, rows, wait_for

TABLE = "/v1/tables/t"


@pytest.fixture
def partitioned(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with a table partitioned by `k` in tens, that merge nothing by themselves."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table(partition_by="truncate(10, k)")
    for node in cluster.nodes:
        node.post("merges/pause")
    yield cluster
    cluster.close()


def refused(node: Node, what: str, body: dict[str, Any]) -> str:
    """Send a command that is refused as wrong input; return the message."""
    status, answer = node.request("POST", f"{TABLE}/{what}", json.dumps(body).encode())
    assert status == 400, answer
    return str(answer["message"])


def column(node: Node, name: str) -> list[object]:
    """Values of a column of all visible rows, sorted by key, as the files have them."""
    replica = node.table()
    tables = [
        pq.read_table(replica.store.file_path(part, file.name), columns=["k", name])
        for part in replica.progress.visible()[1]
        for file in replica.store.manifest(part).files
    ]
    found: list[object] = pa.concat_tables(tables).sort_by("k").column(name).to_pylist()
    return found


# --- mutations --------------------------------------------------------------------------------------------------------------


def test_a_delete_reaches_every_replica_and_says_how_many_parts(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    first.insert(rows(0, 30))
    partitioned.wait_equal(list(range(30)))
    answer = second.post("mutations", {"sql": "DELETE FROM t WHERE k < 5"})
    assert {key: answer[key] for key in ("index", "applied", "finished", "removed", "added", "reason")} == {
        "index": 1,
        "applied": True,
        "finished": True,
        "removed": 1,
        "added": 1,
        "reason": "",
    }
    partitioned.wait_equal(list(range(5, 30)))
    parts = partitioned.wait_alike()
    assert sorted(parts) == ["0_0_0_0_1", "10_0_0_0", "20_0_0_0"]


def test_a_mutation_that_no_row_can_match_changes_no_part(partitioned: InProcessCluster) -> None:
    first, _ = partitioned.nodes
    first.insert(rows(0, 20))
    partitioned.wait_equal(list(range(20)))
    answer = first.post("mutations", {"sql": "DELETE FROM t WHERE k = 1000"})
    assert (answer["applied"], answer["finished"], answer["removed"]) == (False, True, 0)
    assert sorted(partitioned.wait_alike()) == ["0_0_0_0", "10_0_0_0"]


def test_a_mutation_lists_a_partition_of_which_a_part_is_broken_here(partitioned: InProcessCluster) -> None:
    """Nobody can tell from its manifest what is in it."""
    first, _ = partitioned.nodes
    first.insert(rows(0, 20))
    partitioned.wait_equal(list(range(20)))
    first.table().progress.hide(("10_0_0_0",))
    first.post("mutations", {"sql": "DELETE FROM t WHERE k = 3"}, wait_s=0)
    wait_for(lambda: "10_0_0_0_1" in partitioned.nodes[1].contents(), "the part has its new name elsewhere")


def test_a_mutation_rewrites_only_the_parts_that_it_touches(partitioned: InProcessCluster) -> None:
    first = partitioned.nodes[0]
    first.insert(rows(0, 30))
    store = first.table().store
    before = {part: store.file_path(part, "data-0.parquet").stat().st_ino for part in ("0_0_0_0", "10_0_0_0")}
    # No statistics of s: every part is in scope.
    first.post("mutations", {"kind": "update", "where": "s = '3'", "assignments": [["s", "'three'"]]})
    after = {part: store.file_path(f"{part}_1", "data-0.parquet").stat().st_ino for part in before}
    assert after["10_0_0_0"] == before["10_0_0_0"]
    assert after["0_0_0_0"] != before["0_0_0_0"]
    partitioned.wait_alike()
    for node in partitioned.nodes:
        assert column(node, "s")[3] == "three"


def test_a_mutation_of_one_partition_leaves_the_others(partitioned: InProcessCluster) -> None:
    first = partitioned.nodes[0]
    first.insert(rows(0, 20))
    answer = first.post("mutations", {"sql": "DELETE FROM t WHERE k > 4", "partition": "10"})
    assert answer["removed"] == 1
    partitioned.wait_equal(list(range(10)))


def test_inserts_after_a_mutation_are_not_mutated(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    first.insert(rows(0, 10))
    first.post("mutations", {"sql": "DELETE FROM t WHERE true"})
    second.insert(rows(0, 5), token="again")
    partitioned.wait_equal(list(range(5)))
    partitioned.wait_alike()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sql": "DELETE FROM t"}, "WHERE"),
        ({"sql": "DELETE FROM t WHERE q = 1"}, "q"),
        ({"sql": "DELETE FROM u WHERE k = 1"}, "'u'"),
        ({"sql": "UPDATE t SET k = 1 WHERE k = 2"}, "order key"),
        ({"kind": "delete"}, "where"),
        ({"kind": "delete", "where": "k = 1", "assignments": [["s", "'x'"]]}, "sets no columns"),
        ({"kind": "update", "where": "k = 1", "assignments": [["s", "'x'"], ["s", "'y'"]]}, "twice"),
        ({"sql": "DELETE FROM t WHERE k = 1", "id": ""}, "id"),
        ({"sql": "DELETE FROM t WHERE k = 1", "colour": "red"}, "colour"),
    ],
)
def test_a_wrong_mutation_is_refused_and_never_logged(
    cluster: InProcessCluster, body: dict[str, Any], words: str
) -> None:
    assert words in refused(cluster.nodes[0], "mutations", body)
    assert cluster.nodes[0].insert(rows(0))[1]["index"] == 0


def test_a_mutation_that_fails_on_one_part_is_shown_and_can_be_killed(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    first.insert(rows(0, 20))
    partitioned.wait_equal(list(range(20)))
    failing = "UPDATE t SET s = cast(9223372036854775800 + k AS string) WHERE k < 4 OR k > 12"
    answer = first.post("mutations", {"sql": failing}, wait_s=0.3)
    assert answer["finished"] is False
    wait_for(lambda: "10_0_0_0" in first.get("mutations")["mutations"][0]["reason"], "the part is named")
    index = answer["index"]
    row = first.get("mutations")["mutations"][0]
    assert (row["index"], row["parts_done"], row["parts_left"], row["finished"]) == (index, 1, 1, False)
    later = first.insert(rows(100, 5))[1]["index"]
    assert second.get("snapshot", min_index=later + 1)["index"] == later + 1
    status, behind = second.request("GET", f"{TABLE}/snapshot?level=sequential&min_index={later + 1}&wait_s=0.2")
    assert (status, behind["error"]) == (503, "ReplicaBehind")
    assert f"has not executed the mutation at {index} of the log yet" in behind["message"]
    status, killed = second.request("DELETE", f"{TABLE}/mutations/{index}?wait_s=10")
    assert (status, killed["killed"], killed["finished"]) == (200, 1, True)
    partitioned.wait_alike()
    partitioned.wait_equal([*range(20), *range(100, 105)])
    assert all(mutation["finished"] for mutation in first.get("mutations")["mutations"])
    assert second.request("DELETE", f"{TABLE}/mutations/{index}")[1]["killed"] == 0


def test_only_mutations_can_be_killed(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    first.insert(rows(0))
    assert first.request("DELETE", f"{TABLE}/mutations/0")[0] == 400
    assert first.request("DELETE", f"{TABLE}/mutations/nonsense")[0] == 400
    index = first.post("drop", {"all": True})["index"]
    status, body = first.request("DELETE", f"{TABLE}/mutations/{index}")
    assert (status, body["error"]) == (400, "BadInput")
    assert "not a mutation" in body["message"]


def test_a_command_repeated_with_its_id_is_done_once(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    body = {"sql": "UPDATE t SET v = v + 1 WHERE true", "id": "mine"}
    answer = first.post("mutations", body)
    assert first.post("mutations", body) == answer
    second.restart()
    wait_for(lambda: cluster.is_active(second), "active again")
    assert second.post("mutations", body)["index"] == answer["index"]
    assert column(second, "v") == [key / 3 + 1 for key in range(10)]


def test_a_command_given_to_two_replicas_at_once_is_done_once(cluster: InProcessCluster) -> None:
    cluster.nodes[0].insert(rows(0))
    cluster.wait_equal(list(range(10)))
    body = {"sql": "UPDATE t SET v = v + 1 WHERE true", "id": "both / at once"}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda node: node.post("mutations", body), cluster.nodes))
    assert answers[0]["index"] == answers[1]["index"] == 1
    wait_for(lambda: all(column(node, "v")[0] == 1 for node in cluster.nodes), "the update everywhere")
    assert [column(node, "v") for node in cluster.nodes] == [[key / 3 + 1 for key in range(10)]] * 2
    assert cluster.nodes[0].end_of_log() == 2


def test_a_command_whose_entry_is_gone_is_not_done_again(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    body = {"sql": "UPDATE t SET v = v + 1 WHERE true", "id": "mine"}
    first.post("mutations", body)

    def search_log(*_: object) -> Generator[Any, Any, None]:
        yield Sync(layout.log(second.table().replica.table))

    monkeypatch.setattr(propose, "search_log", search_log)
    assert "done before" in refused(second, "mutations", body)


def test_a_command_whose_answer_is_lost_is_settled(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cluster.nodes[0]
    first.insert(rows(0))
    cluster.wait_equal(list(range(10)))
    real: Callable[[CoordinationEffect], object] = first.coordination.perform
    lost: list[bool] = []

    def perform(effect: CoordinationEffect) -> object:
        if isinstance(effect, Commit) and b'"kind":"mutate"' in str(effect).encode() and not lost:
            lost.append(True)
            real(effect)
            return Unknown()
        return real(effect)

    monkeypatch.setattr(first.coordination, "perform", perform)
    answer = first.post("mutations", {"sql": "DELETE FROM t WHERE k < 5"})
    assert lost
    assert (answer["index"], answer["applied"]) == (1, True)
    cluster.wait_equal(list(range(5, 10)))


@pytest.mark.parametrize(("is_done", "status"), [(True, 504), (False, 503)])
def test_where_coordination_is_lost_with_the_answer_only_what_was_not_sent_is_certain(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, is_done: bool, status: int
) -> None:
    """The replica can't look what became of its commit, since every read after it fails."""
    first = cluster.nodes[0]
    first.insert(rows(0))
    cluster.wait_equal(list(range(10)))
    real: Callable[[CoordinationEffect], object] = first.coordination.perform
    lost: list[str] = []

    def perform(effect: CoordinationEffect) -> object:
        if isinstance(effect, Commit) and b'"kind":"mutate"' in str(effect).encode() and not lost:
            lost.append(threading.current_thread().name)
            if is_done:
                real(effect)
                return Unknown()
            return Refused(effect.operations[0], Reason.BAD_VERSION)  # its epoch is an older one
        if [threading.current_thread().name] == lost:
            raise CoordinationUnavailable("no connection to ZooKeeper")
        return real(effect)

    with monkeypatch.context() as patched:
        patched.setattr(first.coordination, "perform", perform)
        answer = first.request("POST", f"{TABLE}/mutations", b'{"sql": "DELETE FROM t WHERE k < 5", "id": "mine"}')
    assert (answer[0], "OutcomeUnknown" in str(answer[1])) == (status, is_done), answer
    wait_for(lambda: cluster.is_active(first), "active again")
    again = first.post("mutations", {"sql": "DELETE FROM t WHERE k < 5", "id": "mine"})
    assert (again["index"], again["applied"]) == (1, True)
    cluster.wait_equal(list(range(5, 10)))


def test_what_is_not_certain_is_said_to_be_unknown(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    first.insert(rows(0))
    first.coordination.suspend()
    status, body = first.request("POST", f"{TABLE}/drop", b'{"all": true, "id": "mine"}')
    assert status in (503, 504), body
    first.coordination.resume()
    wait_for(lambda: cluster.is_active(first), "active again")
    assert first.post("drop", {"all": True, "id": "mine"})["applied"] is True
    cluster.wait_equal([])


# --- drops ------------------------------------------------------------------------------------------------------------------


def test_drops_of_a_partition_of_blocks_and_of_all(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    for number in range(3):
        first.insert(rows(0 + number, 30), token=str(number))
    assert second.post("drop", {"partition": "10"})["removed"] == 3
    assert second.post("drop", {"blocks": [1, 1]})["removed"] == 3
    partitioned.wait_alike()
    first.post("optimize", {"partition": "0"}, wait_s=0)
    for node in partitioned.nodes:
        node.post("merges/resume")
    wait_for(lambda: "0_0_2_1" in partitioned.wait_alike(), "merged")
    straddled = first.post("drop", {"blocks": [2, 2], "partition": "0"})
    assert (straddled["applied"], straddled["finished"]) == (False, True)
    assert first.post("drop", {"all": True})["applied"] is True
    assert first.post("drop", {"all": True})["applied"] is False
    assert partitioned.wait_alike() == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "what to drop"),
        ({"all": True, "partition": "0"}, "or a partition"),
        ({"blocks": [3, 1]}, "no range"),
        ({"blocks": [-1, 1]}, "no range"),
        ({"partition": "../x"}, "partition's id"),
        ({"partition": 7}, "partition"),
    ],
)
def test_a_wrong_drop_is_refused(cluster: InProcessCluster, body: dict[str, Any], words: str) -> None:
    assert words in refused(cluster.nodes[0], "drop", body)


def test_a_detached_partition_is_attached_once_by_whichever_replica(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    first.insert(rows(0, 20))
    partitioned.wait_equal(list(range(20)))
    first.post("drop", {"partition": "10", "detach": True})
    partitioned.wait_equal(list(range(10)))
    partitioned.wait_alike()
    (row,) = second.get("detached")["detached"]
    assert {key: row[key] for key in ("name", "part", "partition", "rows")} == {
        "name": "10_0_0_0",
        "part": "10_0_0_0",
        "partition": "10",
        "rows": 10,
    }
    assert second.post("attach", {"name": row["name"]}) == {"outcome": "inserted", "index": 2, "rows": 10}
    assert second.get("detached") == {"detached": []}
    assert first.post("attach", {"name": row["name"]}) == {"outcome": "duplicate", "index": 2, "rows": 10}
    partitioned.wait_equal(list(range(20)))
    assert sorted(partitioned.wait_alike()) == ["0_0_0_0", "10_2_2_0"]
    assert "it has none" in refused(first, "attach", {"name": row["name"]})


def test_a_frozen_snapshot_can_be_listed_attached_from_and_removed(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    index = first.insert(rows(0))[1]["index"]
    answer = second.post("freeze", {"name": "before", "note": "for the test"}, min_index=index + 1)
    assert (answer["index"], answer["parts"], answer["rows"]) == (1, 1, 10)
    assert second.get("frozen") == {"frozen": [answer]}
    assert first.get("frozen") == {"frozen": []}
    second.post("drop", {"all": True})
    cluster.wait_alike()
    shutil.copytree(Path(answer["path"]) / "all_0_0_0", second.table().store.root / "detached" / "all_0_0_0")
    assert second.post("attach", {"name": "all_0_0_0"})["outcome"] == "inserted"
    cluster.wait_equal(list(range(10)))
    assert second.request("DELETE", f"{TABLE}/frozen/before")[0] == 200
    assert second.get("frozen") == {"frozen": []}
    assert second.request("POST", f"{TABLE}/freeze", b'{"name": "../x"}')[0] == 400


def test_a_replica_that_is_behind_freezes_nothing(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    second.coordination.suspend()
    index = first.insert(rows(0))[1]["index"]
    path = f"{TABLE}/freeze?min_index={index + 1}&wait_s=0"
    status, answer = second.request("POST", path, b'{"name": "before"}')
    assert (status, answer["error"]) == (503, "ReplicaBehind")
    assert "nothing was frozen" in answer["message"]
    assert second.get("frozen") == {"frozen": []}
    second.coordination.resume()


def test_a_part_with_other_columns_is_not_attached(cluster: InProcessCluster, tmp_path: Path) -> None:
    from replitree.storage.schema.definition import define_table

    first = cluster.nodes[0]
    other = define_table("t", "k bigint not null, w int", order_by="k")
    stage_table(pa.table({"k": [1], "w": pa.array([1], pa.int32())}, schema=other.arrow_schema), other, tmp_path / "o")
    shutil.copytree(tmp_path / "o" / "all", first.table().store.root / "detached" / "all_3_3_0")
    assert "other columns" in refused(first, "attach", {"name": "all_3_3_0"})


# --- overwrite --------------------------------------------------------------------------------------------------------------


def overwrite(node: Node, data: pa.Table, what: str, token: str | None = None) -> Any:
    query = f"overwrite={what}" + (f"&token={token}" if token else "")
    return node.request("POST", f"{TABLE}/insert?{query}", as_stream(data))[1]


def test_an_overwrite_is_never_mixed_with_other_inserts(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    first.insert(rows(0, 30))
    assert overwrite(second, rows(5, 10), "partitions")["outcome"] == "inserted"
    partitioned.wait_equal([*range(5, 15), *range(20, 30)])
    assert overwrite(first, rows(7, 1), "all")["outcome"] == "inserted"
    partitioned.wait_equal([7])
    assert overwrite(first, rows(8, 1), "nonsense")["error"] == "BadInput"
    partitioned.wait_alike()


def test_the_same_rows_overwrite_again_what_came_between(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for number in range(4):
        assert overwrite(cluster.nodes[number % 2], rows(number % 2), "all")["outcome"] == "inserted"
    cluster.wait_equal(list(range(1, 11)))
    assert overwrite(first, rows(20), "all", token="once")["outcome"] == "inserted"
    assert overwrite(second, rows(20), "all", token="once")["outcome"] == "duplicate"
    cluster.wait_equal(list(range(20, 30)))
    cluster.wait_alike()


def test_an_upload_overwrites(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    first.insert(rows(0))
    opened = first.request("POST", f"{TABLE}/uploads")[1]
    folder = Path(opened["path"])
    manifests = stage_table(rows(50, 100), first.table().definition, folder / "x")
    (folder / "x" / "all").rename(folder / "all")
    (folder / "x").rmdir()
    commit = b'{"manifests":[' + manifests[0].encode() + b"]}"
    status, body = first.request("POST", f"{TABLE}/uploads/{opened['upload']}/commit?overwrite=all", commit)
    assert (status, body["outcome"]) == (200, "inserted")
    cluster.wait_equal(list(range(50, 150)))
