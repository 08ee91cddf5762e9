"""A replica whose disk does not keep new columns changes nothing and says so; what is in the log is never called failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from replitree.errors import StoreError
from replitree.replica.kit import definitions
from replitree.storage.disk import kept_definition
from replitree.storage.schema.definition import TableDefinition
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for

ADD_X = b'{"sql": "ALTER TABLE t ADD COLUMN x int DEFAULT 7"}'
ADD_Y = b'{"sql": "ALTER TABLE t ADD COLUMN y int DEFAULT 8"}'
ALTER = "/v1/tables/t/alter"

Failing = Callable[[Node], AbstractContextManager[None]]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Let a replica's disk not keep definitions for a while."""
    keep = kept_definition.keep_definition

    @contextmanager
    def bad_disk(node: Node) -> Iterator[None]:
        bad = node.table().store.root

        def refuse(root: Path, definition: TableDefinition) -> None:
            if root == bad:
                raise StoreError("the disk is failing")
            keep(root, definition)

        with monkeypatch.context() as patch:
            patch.setattr(definitions, "keep_definition", refuse)
            yield

    return bad_disk


def version(node: Node) -> int:
    return node.table().definition.schema_version


def test_an_alter_that_is_in_the_log_is_not_called_failed(cluster: InProcessCluster, failing: Failing) -> None:
    first, second = cluster.nodes
    with failing(first):
        status, answer = first.request("POST", ALTER, ADD_X)
        assert (status, answer["index"], answer["schema_version"]) == (200, 0, 2)
        wait_for(lambda: version(second) == 2, "r2 follows")
        assert version(first) == 1
    wait_for(lambda: version(first) == 2, "r1 follows when its disk is good")
    assert first.insert(rows(0))[1]["outcome"] == "inserted"
    cluster.wait_alike()


def test_an_alter_by_a_replica_that_can_not_follow_changes_nothing(cluster: InProcessCluster, failing: Failing) -> None:
    first, second = cluster.nodes
    with failing(first):
        assert second.request("POST", ALTER, ADD_X)[0] == 200
        status, answer = first.request("POST", ALTER, ADD_Y)
        assert (status, answer["error"]) == (503, "ReadOnly")
        assert "the disk is failing" in answer["message"]
        assert (version(first), version(second)) == (1, 2)
    wait_for(lambda: version(first) == 2, "r1 follows when its disk is good")
    assert first.request("POST", ALTER, ADD_Y)[1]["schema_version"] == 3


def test_a_change_of_storage_that_is_noted_while_the_definition_is_read_is_read_once_more(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = cluster.nodes[0].table().definitions
    read, reads = known.read, list[str]()

    def noted_meanwhile() -> object:
        found = read()
        reads.append("read")
        if len(reads) == 1:
            known.expect_storage()
        return found

    monkeypatch.setattr(known, "read", noted_meanwhile)
    known.expect_storage()
    known.catch_up()
    known.catch_up()
    wait_for(lambda: len(reads) > 1, "it is read once more")
    wait_for(lambda: not known.is_behind, "nothing is left to read")
