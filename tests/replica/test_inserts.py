"""What a client of one replica sees: answers, duplicates, refusals."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.coordination.memory import MemoryCoordination
from replitree.errors import ReplicaUnavailable, TableNotFound
from replitree.replica.insert import inserts
from replitree.replica.kit.config import Address
from replitree.replica.server import Server
from replitree.storage.schema.definition import TableSettings
from tests.replica.inprocess import ROOT, TOKEN, InProcessCluster, as_stream, rows, wait_for


def test_rows_inserted_at_any_replica_reach_all(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert first.insert(rows(0)) == (200, {"outcome": "inserted", "index": 0, "rows": 10})
    assert second.insert(rows(10)) == (200, {"outcome": "inserted", "index": 1, "rows": 10})
    cluster.wait_equal(list(range(20)))
    hashes = [
        {part: node.table().store.manifest(part).content for part in node.table().progress.visible()[1]}
        for node in cluster.nodes
    ]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 2


def test_same_token_is_inserted_once_whoever_is_asked(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert first.insert(rows(0), token="load-1")[1] == {"outcome": "inserted", "index": 0, "rows": 10}
    assert second.insert(rows(0), token="load-1")[1] == {"outcome": "duplicate", "index": 0, "rows": 10}
    cluster.wait_equal(list(range(10)))


def test_token_that_is_used_again_for_other_rows_is_a_duplicate_with_a_warning(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0), token="load-1")
    for node in (first, second):
        told = node.insert(rows(5), token="load-1")[1]
        assert told == {"outcome": "duplicate", "index": 0, "rows": 10, "differs": True}
        assert "differs" not in node.insert(rows(0), token="load-1")[1]
    cluster.wait_equal(list(range(10)))


def test_same_content_without_token_is_inserted_once(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert first.insert(rows(0))[1]["outcome"] == "inserted"
    assert second.insert(rows(0))[1] == {"outcome": "duplicate", "index": 0, "rows": 10}
    assert first.insert(rows(0), token="another")[1]["outcome"] == "inserted"


def test_concurrent_inserts_keep_their_own_answers(cluster: InProcessCluster) -> None:
    answers: dict[int, tuple[int, dict[str, object]]] = {}

    def client(number: int) -> None:
        for i in range(10):
            key = number * 10 + i
            answers[key] = cluster.nodes[number % 2].insert(rows(key * 10), token=f"token-{key % 40}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers.values()} == {200}
    assert sum(answer["outcome"] == "inserted" for _, answer in answers.values()) == 40
    wait_for(lambda: all(len(node.keys()) == 400 for node in cluster.nodes), "400 rows everywhere")
    assert cluster.nodes[0].keys() == cluster.nodes[1].keys()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"k": pa.array([1]), "w": pa.array([1])}), ("w",)),
        (pa.table({"k": pa.array(["x"])}), ("k", "int64", "string")),
        (pa.table({"v": pa.array([1.0])}), ("k",)),
        (pa.table({"k": pa.array([1, None], pa.int64())}), ("k", "null")),
    ],
    ids=["unknown column", "wrong type", "missing column", "null in a non-null column"],
)
def test_rows_that_do_not_fit_are_refused(cluster: InProcessCluster, table: pa.Table, words: tuple[str, ...]) -> None:
    status, body = cluster.nodes[0].insert(table)
    assert status == 400
    assert body["error"] == "SchemaMismatch"
    for word in words:
        assert word in body["message"]
    assert cluster.nodes[0].keys() == []


def test_empty_and_foreign_bodies_are_refused(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    assert node.insert(rows(0, 0))[1]["error"] == "BadInput"
    status, body = node.request("POST", "/v1/tables/t/insert", b"not arrow")
    assert (status, body["error"]) == (400, "BadInput")
    assert node.insert(rows(0), token="x" * 2000)[0] == 400


def test_wrong_token_is_refused_everywhere(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    for method, path in (
        ("GET", "/v1/status"),
        ("POST", "/v1/tables/t/insert"),
        ("GET", "/v1/tables/t/snapshot"),
        ("GET", "/v1/tables/t/bundle?part=all_0_0_0"),
        ("POST", "/v1/tables/t/uploads"),
    ):
        status, body = node.request(method, path, as_stream(rows(0)) if method == "POST" else None, token="wrong")
        assert (status, body["error"]) == (401, "NotAuthorized")
    assert node.request("GET", "/health", token="wrong")[0] == 200


def test_unknown_table_and_strange_names_are_refused(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    assert node.insert(rows(0), table="nothing")[1]["error"] == "TableNotFound"
    assert node.request("GET", "/v1/tables/t/parts/..%2F..%2Fsecret/manifest")[0] == 400
    assert node.request("GET", "/v1/tables/t/parts/all_0_0_0/files/..%2Fmanifest.json")[0] == 400
    assert node.request("GET", "/v1/tables/t/parts/all_0_0_0/files/data-0.parquet")[0] == 410


def test_too_many_parts_slow_inserts_down_and_then_refuse_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserts, "COUNT_CACHE_S", 0.0)
    cluster = InProcessCluster(tmp_path, replicas=1)
    try:
        cluster.create_table(settings=TableSettings(parts_delay=4, parts_max=5))
        node = cluster.nodes[0]
        outcomes = []
        for i in range(6):
            wait_for(lambda i=i: node.table().progress.visible_count() == min(i, 5), "executed")  # type: ignore[misc]
            outcomes.append(node.insert(rows(i * 10))[0])
        assert outcomes == [200] * 5 + [429]
        assert "parts_max" in node.insert(rows(100))[1]["message"]
    finally:
        cluster.close()


def test_a_server_that_is_starting_asks_for_patience_and_denies_no_table(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    assert node.server is not None
    unstarted = Server(node.config, TOKEN, Address("127.0.0.1", 1), MemoryCoordination(cluster.shared), ROOT)
    with pytest.raises(ReplicaUnavailable, match="starting"):
        unstarted.table("t")
    with pytest.raises(TableNotFound):
        node.server.table("nothing")
