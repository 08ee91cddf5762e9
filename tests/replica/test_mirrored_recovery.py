"""ClickHouse's tests of lost, new and dropped replicas, with the same assertions; `docs/clickhouse-tests.md` maps them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.protocol.core.effects import NotFetched
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import LOST, NOT_LOST, TableOutcome, drop_replica
from replitree.replica.perform.availability import State
from tests.replica.inprocess import SCHEMA, InProcessCluster, Node, rows, wait_for
from tests.replica.longlife import KEEP_MAX, KEEP_MIN, TABLE, clean, entries, insert, is_lost, long_life, wait_active


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    cluster = long_life(tmp_path)
    yield cluster
    cluster.close()


def fields(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the fields of every log line of an event."""
    return [record.fields for record in caplog.records if record.getMessage() == event]  # type: ignore[attr-defined]


def one(key: int) -> pa.Table:
    return rows(key, 1)


def no_fetches(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """SYSTEM STOP FETCHES."""

    def none(fetches: Any) -> Any:
        return tuple(NotFetched(fetch.part, "fetches are stopped") for fetch in fetches)

    monkeypatch.setattr(node.table().exchange, "fetch", none)


def test_recovery_replica_recovery(cluster: InProcessCluster, caplog: pytest.LogCaptureFixture) -> None:
    first, second = cluster.nodes
    assert second.insert(one(0))[0] == 200
    cluster.wait_equal([0])
    second.stop()
    for key in range(1, 11):
        assert first.insert(one(key))[0] == 200
    clean(first)
    (marked,) = fields(caplog, "replicas marked lost")
    assert marked["replicas"] == ["r2"]
    second.restart()
    wait_active(second)
    cluster.wait_equal(list(range(11)))
    assert sum(second.keys()) == 55


def test_recovery_replica_choose_source_from_stale_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "replitree")
    cluster = long_life(tmp_path, 3)
    first, second, third = cluster.nodes
    insert(third, 0, 1)
    cluster.wait_equal(list(range(10)))
    second.stop()
    with monkeypatch.context() as stopped:
        no_fetches(first, stopped)
        insert(third, 100, 12)
        wait_for(lambda: first.table().progress.queue_length() == 12, "r1 has a long queue")
        clean(third)
        assert is_lost(third, "r2") == LOST
        second.restart()
        wait_active(second)
        (recovered,) = fields(caplog, "recovered")
        assert recovered["source"] == "r3"
        assert second.keys() == [*range(10), *range(100, 220)]
    cluster.wait_equal([*range(10), *range(100, 220)])
    cluster.close()


def test_recovery_replica_update_metadata(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 1)
    cluster.wait_equal(list(range(10)))
    second.stop()
    first.post("alter", {"sql": "ALTER TABLE t ADD COLUMN extra bigint DEFAULT 7"})
    first.post("mutations", {"sql": "UPDATE t SET extra = k WHERE k < 5"})
    first.post("alter", {"sql": "ALTER TABLE t RENAME COLUMN extra TO more"})
    insert(first, 100, 10)
    clean(first)
    assert is_lost(first, "r2") == LOST
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(10), *range(100, 200)])
    names = [[column.name for column in node.table().definition.columns] for node in cluster.nodes]
    assert names[0] == names[1]
    assert "more" in names[1]
    second.post("alter", {"sql": "ALTER TABLE t DROP COLUMN more"})
    insert(second, 300, 1)
    cluster.wait_equal([*range(10), *range(100, 200), *range(300, 310)])
    cluster.wait_alike()


def test_consistent_parts_after_clone_replica(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 2)
    cluster.wait_equal(list(range(20)))
    first.stop()
    insert(second, 20, 1)
    second.post("drop", {"partition": "0"})
    insert(second, 100, 20)
    clean(second)
    assert is_lost(second, "r1") == LOST
    first.restart()
    wait_active(first)
    cluster.wait_equal([*range(10, 30), *range(100, 300)])
    assert len(cluster.wait_alike()) <= 22
    assert [node.table().progress.queue_length() for node in cluster.nodes] == [0, 0]


def test_02448_a_part_that_was_dropped_out_of_the_middle_does_not_come_back(tmp_path: Path) -> None:
    cluster = InProcessCluster(
        tmp_path,
        min_replicated_logs_to_keep=KEEP_MIN,
        max_replicated_logs_to_keep=KEEP_MAX,
        clean_log_delay_s=3600.0,
    )
    cluster.create_table(schema=SCHEMA)
    first, second = cluster.nodes
    for node in cluster.nodes:
        node.post("merges/pause")
    insert(first, 0, 3)
    cluster.wait_equal(list(range(30)))
    second.stop()
    first.post("drop", {"blocks": [1, 1]})
    first.post("merges/resume")
    first.post("optimize", {"final": True}, wait_s=60)
    wait_for(lambda: len(first.contents()) == 1, "one part reaches over the hole")
    for number in range(10):
        first.insert(rows(100 + 10 * number))
    clean(first)
    assert is_lost(first, "r2") == LOST
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(10), *range(20, 30), *range(100, 200)])
    cluster.wait_alike()
    cluster.close()


def test_01396_an_inactive_replica_does_not_make_the_log_long(tmp_path: Path) -> None:
    cluster = long_life(tmp_path, clean_log_delay_s=0.02, clean_log_delay_random_s=0.02)
    first, second = cluster.nodes
    wait_for(lambda: first.table().leader.leader is not None, "somebody leads")
    second.stop()
    for key in range(60):
        assert first.insert(one(key))[0] == 200
    wait_for(lambda: len(entries(first)) < 15, "the log is short")
    assert (is_lost(first, "r1"), is_lost(first, "r2")) == (NOT_LOST, LOST)
    second.restart()
    wait_active(second)
    cluster.wait_equal(list(range(60)))
    assert is_lost(first, "r2") == NOT_LOST
    cluster.close()


def test_01305_a_replica_is_created_and_dropped_again_and_again_beside_inserts(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    done = threading.Event()
    inserted: list[int] = []

    def fill() -> None:
        key = 0
        while not done.is_set():
            status, answer = first.insert(one(key))
            assert (status, answer["outcome"]) == (200, "inserted")
            inserted.append(key)
            key += 1

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        for _ in range(4):
            second.stop()
            assert cluster.run(drop_replica(Replica(TABLE, "r2"))) is TableOutcome.DONE
            clean(first)
            second.restart()
            wait_active(second)
    finally:
        done.set()
        filling.join()
    assert inserted
    cluster.wait_equal(inserted)
    assert [node.table().availability.state for node in cluster.nodes] == [State.ACTIVE, State.ACTIVE]
