"""Batches of streams on running replicas: sent again, of another query, given up, forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import TableOutcome, join_table, leave_table, mark_dropped, remove_table
from tests.replica.inprocess import InProcessCluster, Node, as_stream, rows
from tests.replica.longlife import TABLE, clean, insert, long_life

DAY_MS = 24 * 3600 * 1000
KEPT_DAYS = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    cluster = long_life(tmp_path, deduplication_window=8, deduplication_window_s=100.0)
    yield cluster
    cluster.close()


def send(node: Node, batch: int, query: str = "q", **more: str) -> tuple[int, Any]:
    """Send ten rows as a batch of the stream ``etl/1``."""
    said = {"stream": "etl/1", "batch": str(batch)} | ({"query": query} if query else {}) | more
    return node.request("POST", f"/v1/tables/t/insert?{urlencode(said)}", as_stream(rows(1_000 + 10 * batch)))


def outcome(node: Node, batch: int, query: str = "q", **more: str) -> str:
    status, answer = send(node, batch, query, **more)
    return str(answer["outcome"]) if status == 200 else str(answer["error"])


def streams(node: Node) -> list[Any]:
    status, answer = node.request("GET", "/v1/tables/t/streams")
    assert status == 200
    return list(answer["streams"])


def test_a_batch_is_inserted_once_whichever_replica_is_asked(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert [outcome(first, 0), outcome(second, 0), outcome(second, 3), outcome(first, 2)] == [
        *("inserted", "duplicate"),
        *("inserted", "duplicate"),  # batches 1 and 2 had no rows
    ]
    cluster.wait_equal([*range(1_000, 1_010), *range(1_030, 1_040)])
    ((one),) = streams(second)
    assert (one["id"], one["query"], one["batch"]) == ("etl/1", "q", 3)


def test_the_last_batch_is_known_when_block_ids_and_the_log_are_forgotten(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert outcome(first, 4) == "inserted"
    cluster.shared.now_ms += 8 * DAY_MS
    insert(first, 0, 20)
    clean(first)
    assert len(first.coordination.perform(fx.Children(layout.blocks(TABLE))) or ()) == 8
    assert outcome(second, 4) == "duplicate"
    assert outcome(second, 5) == "inserted"


def test_a_stream_is_forgotten_long_after_its_last_batch_and_not_before(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert outcome(first, 4) == "inserted"
    cluster.shared.now_ms += (KEPT_DAYS - 1) * DAY_MS
    insert(first, 0, 1)
    clean(first)
    assert [each["batch"] for each in streams(second)] == [4]
    cluster.shared.now_ms += 2 * DAY_MS
    insert(first, 100, 1)
    clean(first)
    assert streams(second) == []
    assert outcome(second, 4) == "inserted"


def test_another_query_is_told_whose_the_stream_is_and_may_take_it_over(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert outcome(first, 7) == "inserted"
    status, answer = send(second, 0, "p")
    assert (status, answer["error"]) == (409, "StreamReplaced")
    assert (answer["stream"], answer["query"], answer["batch"]) == ("etl/1", "q", "7")
    assert "newCheckpoint=true" in answer["message"]
    assert outcome(second, 0, "") == "StreamReplaced"
    assert outcome(second, 0, "p", takes_over="true") == "inserted"
    assert outcome(first, 0, "p") == "duplicate"
    assert [(each["query"], each["batch"]) for each in streams(first)] == [("p", 0)]


def test_a_batch_that_fails_for_want_of_a_quorum_is_sent_again(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    third = Replica(TABLE, "r3")  # active, and does nothing
    cluster.run(join_table(third))
    joined = cluster.admin.perform(fx.Commit(fx.Create(layout.is_active(third), b"", ephemeral=True)))
    assert isinstance(joined, fx.Applied)
    assert outcome(first, 0, quorum="2") == "inserted"
    assert outcome(first, 1, quorum="3", quorum_timeout_s="0.3") == "QuorumNotReached"
    assert [each["batch"] for each in streams(second)] == [0]
    assert [outcome(second, 1, quorum="2"), outcome(first, 1, quorum="2")] == ["inserted", "duplicate"]
    cluster.wait_equal(list(range(1_000, 1_020)))


def test_an_operator_lets_a_table_forget_a_stream(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert outcome(first, 0) == "inserted"
    path = "/v1/tables/t/streams/etl%2F1"
    assert second.request("DELETE", path) == (200, {"forgotten": True})
    assert second.request("DELETE", path) == (200, {"forgotten": False})
    assert streams(first) == []
    assert outcome(first, 0) == "inserted"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"stream": "s"}, "not a number of a batch"),
        ({"stream": "s", "batch": "-1"}, "not a number of a batch"),
        ({"stream": "s", "batch": "9" * 30}, "not a number of a batch"),
        ({"stream": "s", "batch": "9" * 19}, "from 0 to"),
        ({"stream": "s", "batch": "1", "token": "a"}, "leave the token out"),
        ({"stream": "..", "batch": "1"}, "can't be a stream's id"),
        ({"stream": "é" * 100, "batch": "1"}, "can't be a stream's id"),
        ({"stream": "s", "batch": "1", "query": "q" * 400}, "at most 300 characters"),
    ],
)
def test_what_can_be_no_batch_is_refused(cluster: InProcessCluster, query: dict[str, str], why: str) -> None:
    status, answer = cluster.nodes[0].request("POST", f"/v1/tables/t/insert?{urlencode(query)}", as_stream(rows(0)))
    assert (status, why in answer["message"]) == (400, True)


def test_a_dropped_table_takes_its_streams_with_it(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    assert outcome(first, 0) == "inserted"
    for node in cluster.nodes:
        node.stop()
    assert cluster.run(mark_dropped(TABLE)) is TableOutcome.DONE
    for name in ("r1", "r2"):
        assert cluster.run(leave_table(Replica(TABLE, name))) is TableOutcome.DONE
    assert cluster.run(remove_table(TABLE)) is TableOutcome.DONE
    assert not cluster.admin.perform(fx.Exists(TABLE.path))
