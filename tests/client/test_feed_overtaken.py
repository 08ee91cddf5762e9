"""The feed has the rows of an insert also when an entry that removes them is in the log before the insert is published."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import ReplitreeError
from replitree.protocol.state.pull import Queued
from replitree.replica.perform.progress import Lane
from replitree.replica.table import maintenance
from tests.replica.fixtures import cluster_with_clock, hosted_everywhere
from tests.replica.inprocess import InProcessCluster, Node, wait_for

NAMES = ("d~0", "d~1")
SCHEMA = "k bigint not null"
ROWS = {"k": list(range(12))}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    """Two replicas whose old parts go at once, if nothing needs them."""
    monkeypatch.setattr(maintenance, "TAGS_S", 0.0)
    made = cluster_with_clock(tmp_path, old_parts_lifetime_s=0.0)
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


@pytest.fixture
def table(cluster: InProcessCluster, connection: Connection) -> ShardedTable:
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", shards=2, buckets=8, feed="1 day")
    assert isinstance(made, ShardedTable)
    hosted_everywhere(cluster, *NAMES)
    return made


@contextmanager
def nothing_executed(cluster: InProcessCluster, *names: str) -> Iterator[None]:
    """Let replicas pull the logs of some tables, and execute none of their entries meanwhile."""
    go_on, waiting, held = threading.Event(), set[tuple[str, str, Lane]](), hosted_everywhere(cluster, *names)

    def hold(node: Node, name: str) -> None:
        progress = node.table(name).progress
        take = progress.take

        def wait(lane: Lane, count: int, stopping: Callable[[], bool], wait_s: float) -> tuple[Queued, ...]:
            waiting.add((node.name, name, lane))
            return take(lane, count, stopping, wait_s) if go_on.wait(wait_s) else ()

        progress.take = wait  # type: ignore[method-assign]

    for each in held:
        hold(*each)
    try:
        wait_for(lambda: len(waiting) == len(held) * len(Lane), "no executor works")
        yield
    finally:
        go_on.set()


def let_pull(cluster: InProcessCluster, names: tuple[str, ...], *actions: Callable[[], Any]) -> None:
    """Begin actions one after the other, each of which appends an entry to each log; all replicas pull it before the next."""
    places = [node.table(name).progress for node in cluster.nodes for name in names]
    for action in actions:
        ends = [progress.pointer + 1 for progress in places]
        # It may wait until its entry is executed, which comes later.
        threading.Thread(target=_try, args=(action,), daemon=True).start()
        wait_for(lambda ends=ends: [each.pointer for each in places] == ends, "its entry is in all queues")  # type: ignore[misc]


def _try(action: Callable[[], Any]) -> None:
    # The replica that has appended the entry may be stopped meanwhile.
    with suppress(ReplitreeError):
        action()


def wait_fetched(cluster: InProcessCluster) -> None:
    """Wait until each replica has the rows that others have taken."""
    hosted = hosted_everywhere(cluster, *NAMES)
    wait_for(lambda: all(node.get("feed/end", name)["feed_from"] == 0 for node, name in hosted), "all have the feed")


def changed(table: Any, start: Any) -> dict[str, list[int]]:
    with table.changes(start) as changes:
        rows = changes.to_arrow().to_pylist()
    return {kind: sorted(row["k"] for row in rows if row["_change_type"] == kind) for kind in ("insert", "delete")}


BOTH = {"insert": ROWS["k"], "delete": ROWS["k"]}


def test_rows_that_a_truncate_removes_before_they_are_published_are_in_the_feed(
    cluster: InProcessCluster, table: ShardedTable
) -> None:
    start = table.snapshot().cut
    with nothing_executed(cluster, *NAMES):
        let_pull(cluster, NAMES, lambda: table.insert(ROWS), table.truncate)
    wait_for(lambda: changed(table, start) == BOTH, "the feed has all rows")
    # The other replica fetches them from the one that has taken them.
    wait_fetched(cluster)


def test_rows_that_an_overwrite_removes_before_they_are_published_are_in_the_feed(
    cluster: InProcessCluster, table: ShardedTable
) -> None:
    start, others = table.snapshot().cut, {"k": list(range(20, 32))}
    with nothing_executed(cluster, *NAMES):
        let_pull(
            cluster, NAMES, lambda: table.insert(ROWS), lambda: table.insert(others, overwrite="all"), table.truncate
        )
    # One entry needs the rows of both inserts, which different replicas may have taken.
    wait_fetched(cluster)
    keys = sorted(ROWS["k"] + others["k"])
    wait_for(lambda: changed(table, start) == {"insert": keys, "delete": keys}, "the feed has the rows of both inserts")


def test_a_replica_that_stopped_before_it_published_rows_gives_them_to_the_feed_at_its_next_start(
    cluster: InProcessCluster, table: ShardedTable
) -> None:
    start = table.snapshot().cut
    with nothing_executed(cluster, *NAMES):
        let_pull(cluster, NAMES, lambda: table.insert(ROWS), table.truncate)
        for node in cluster.nodes:
            node.restart()
    hosted_everywhere(cluster, *NAMES)
    wait_for(lambda: changed(table, start) == BOTH, "the feed has all rows")


def test_a_consumer_reads_rows_that_were_removed_before_they_were_published_also_when_the_feed_is_off(
    cluster: InProcessCluster, table: ShardedTable
) -> None:
    table.create_consumer("etl")
    with nothing_executed(cluster, *NAMES):
        let_pull(cluster, NAMES, lambda: table.insert(ROWS), table.truncate, lambda: table.set_feed(None))
        for node in cluster.nodes:
            for name in NAMES:
                node.table(name).definitions.catch_up()

    def read() -> dict[str, list[int]]:
        with table.changes(consumer="etl") as changes:
            rows = changes.to_arrow().to_pylist()
        kinds = {row["_change_type"] for row in rows}
        return {kind: sorted(row["k"] for row in rows if row["_change_type"] == kind) for kind in kinds}

    wait_for(lambda: read() == BOTH, "the consumer reads all rows")


def test_without_a_feed_rows_that_were_removed_before_they_were_published_are_not_kept(
    cluster: InProcessCluster, connection: Connection
) -> None:
    table = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", shards=2, buckets=8)
    hosted_everywhere(cluster, *NAMES)
    replicas = [node.table(name) for node in cluster.nodes for name in NAMES]
    wait_for(lambda: not any(each.old_parts.may_be_consumed for each in replicas), "the consumers were read")
    registered = list[str]()
    for each in replicas:
        reveal = each.progress.reveal

        def revealed(shown: Any, gone: Any = (), reveal: Any = reveal) -> Any:
            registered.extend(shown)
            return reveal(shown, gone)

        each.progress.reveal = revealed  # type: ignore[method-assign]
    with nothing_executed(cluster, *NAMES):
        let_pull(cluster, NAMES, lambda: table.insert(ROWS), table.truncate)
    wait_for(lambda: all(each.progress.queue_length() == 0 for each in replicas), "all is executed")
    assert registered == []
