"""Changes of columns over HTTP: they take effect on every replica alike, also beside inserts and mutations."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.protocol.core.effects import Commit, CoordinationEffect
from replitree.storage.parts.encode import stage_table
from tests.replica.inprocess import InProcessCluster, rows, wait_for
from tests.replica.test_commands import TABLE, column, refused


def test_columns_change_for_every_replica(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    answer = first.post("alter", {"sql": "ALTER TABLE t ADD COLUMN x int DEFAULT 7"})
    assert (answer["index"], answer["applied"], answer["finished"], answer["schema_version"]) == (1, True, True, 2)
    wait_for(lambda: second.table().definition.schema_version == 2, "r2 follows")
    wide = rows(10).append_column("x", pa.array(range(10), pa.int32()))
    assert second.insert(wide)[1]["outcome"] == "inserted"
    assert first.insert(rows(20))[1]["outcome"] == "inserted"
    cluster.wait_equal(list(range(30)))
    assert first.get("status")["schema_version"] == 2
    assert first.post("optimize", {"final": True})["finished"] is True
    cluster.wait_alike()
    for node in cluster.nodes:
        assert column(node, "x") == [7] * 10 + list(range(10)) + [7] * 10


def test_an_insert_with_a_new_column_finds_it_before_the_entry_is_pulled(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes

    first.post("alter", {"sql": "ALTER TABLE t ADD COLUMN x int"})
    wide = rows(0).append_column("x", pa.array(range(10), pa.int32()))
    found = second.insert(wide)
    assert found[1].get("outcome") == "inserted", found


@pytest.mark.parametrize(("alters", "status"), [(1, 200), (100, 503)])
def test_a_mutation_beside_changes_of_columns_is_for_the_newest_ones(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, alters: int, status: int
) -> None:
    """The columns change between the moment at which a replica reads them and its commit."""
    first, second = cluster.nodes
    first.insert(rows(0))
    cluster.wait_equal(list(range(10)))
    real: Callable[[CoordinationEffect], object] = first.coordination.perform
    made: list[int] = []

    def perform(effect: CoordinationEffect) -> object:
        if isinstance(effect, Commit) and b'"kind":"mutate"' in str(effect).encode() and len(made) < alters:
            made.append(second.post("alter", {"sql": f"ALTER TABLE t ADD COLUMN x{len(made)} int"})["index"])
        return real(effect)

    with monkeypatch.context() as patched:
        patched.setattr(first.coordination, "perform", perform)
        found, answer = first.request(
            "POST", f"{TABLE}/mutations", b'{"sql": "DELETE FROM t WHERE k < 5", "id": "mine"}'
        )
    assert found == status, answer
    if status != 200:
        assert "change the columns all the time" in answer["message"]
    assert first.post("mutations", {"sql": "DELETE FROM t WHERE k < 5", "id": "mine"})["index"] == made[-1] + 1
    cluster.wait_equal(list(range(5, 10)))


def test_an_upload_for_older_columns_is_taken_unless_one_was_dropped(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    definition = first.table().definition

    def upload(key: int) -> tuple[int, Any]:
        opened = first.request("POST", f"{TABLE}/uploads")[1]
        folder = Path(opened["path"])
        manifests = stage_table(rows(key, 10), definition, folder / "x")
        (folder / "x" / "all").rename(folder / "all")
        (folder / "x").rmdir()
        commit = b'{"manifests":[' + manifests[0].encode() + b"]}"
        return first.request("POST", f"{TABLE}/uploads/{opened['upload']}/commit", commit)

    first.post("alter", {"sql": "ALTER TABLE t ADD COLUMN x int"})
    assert upload(0)[0] == 200
    first.post("alter", {"sql": "ALTER TABLE t DROP COLUMN v"})
    status, body = upload(10)
    assert (status, body["error"]) == (400, "SchemaMismatch")
    assert "'v' was dropped" in body["message"]
    cluster.wait_equal(list(range(10)))


def test_alters_at_two_replicas_at_once_both_count(cluster: InProcessCluster) -> None:
    with ThreadPoolExecutor(4) as pool:
        names = [f"c{number}" for number in range(8)]
        answers = list(
            pool.map(
                lambda named: cluster.nodes[named[0] % 2].post(
                    "alter", {"sql": f"ALTER TABLE t ADD COLUMN {named[1]} int"}
                ),
                enumerate(names),
            )
        )
    assert sorted(answer["schema_version"] for answer in answers) == list(range(2, 10))
    wait_for(lambda: all(node.table().definition.schema_version == 9 for node in cluster.nodes), "all follow")
    for node in cluster.nodes:
        assert {column.name for column in node.table().definition.columns} >= set(names)


def test_a_wrong_alter_is_refused_and_a_repeated_one_is_known(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert "order key" in refused(first, "alter", {"sql": "ALTER TABLE t DROP COLUMN k"})
    body = {"sql": "ALTER TABLE t ADD COLUMN x int", "id": "mine"}
    assert first.post("alter", body)["index"] == 0
    assert second.post("alter", body)["index"] == 0
    assert second.table().definition.schema_version == 2
