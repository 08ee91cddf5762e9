"""Materialised views on real processes: one that dies between commit and publish, inserts beside a creation, duplicates."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.connection import Connection
from replitree.errors import BadInput, ReplitreeError
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SELECT = {"s": "s", "n": "count(*)", "v": "sum(k)"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A running cluster of three replicas, with a source and a target."""
    with LocalCluster(tmp_path / "cluster", 3) as cluster:
        cluster.create_table("events", "k bigint not null, s string", order_by="k")
        cluster.create_table("sums", "s string, n bigint, v bigint", order_by="s", policy="summing(n, v)")
        yield cluster


def some(first: int, count: int = 10) -> dict[str, list[object]]:
    """Rows with the keys from `first` on, and one of three texts each."""
    keys = range(first, first + count)
    return {"k": list(keys), "s": [f"s{key % 3}" for key in keys]}


def sums(connection: Connection, name: str, replica: str) -> dict[str, tuple[int, int]]:
    """What a replica says of the rows: their number and the sum of their keys, by text."""
    handle = connection.table(name).replica(replica)
    found = handle.to_arrow(level="linearizable").to_pylist()
    count, total = Counter[str](), Counter[str]()
    for row in found:
        count[row["s"]] += row.get("n", 1)
        total[row["s"]] += row["v"] if "v" in row else row["k"]
    return {text: (count[text], total[text]) for text in count}


def assert_alike(connection: Connection) -> None:
    """The target is the view of the source on every replica."""
    expected = sums(connection, "events", "r1")
    assert {name: sums(connection, "sums", name) for name in ("r1", "r2", "r3")} == dict.fromkeys(
        ("r1", "r2", "r3"), expected
    )


def test_a_replica_that_dies_between_commit_and_publish_has_inserted_into_both_tables(cluster: LocalCluster) -> None:
    with replitree.connect(cluster.folder) as connection:
        events = connection.table("events")
        events.create_view("v", "sums", SELECT, group_by="s")
        for round_number in range(3):
            tail = connection.catalog.log_state("sums").tail
            token = f"round {round_number}"

            def send(token: str = token, first: int = 10 * round_number) -> None:
                # The answer is lost with the process, or the client asks another replica: the token makes it one insert.
                with suppress(ReplitreeError):
                    events.replica("r1").insert(some(first), token=token, timeout_s=2.0)

            sender = threading.Thread(target=send)
            sender.start()
            # The entries stand in both logs from here on; r1 has not published what it has staged, or has just begun to.
            wait_for(lambda tail=tail: connection.catalog.log_state("sums").tail > tail, "the commit")  # type: ignore[misc]
            cluster.kill("r1")
            sender.join()
            cluster.start("r1")
            again = events.insert(some(10 * round_number), token=token, timeout_s=60.0)
            assert again.outcome == "duplicate"
            assert_alike(connection)
        assert sum(count for count, _ in sums(connection, "sums", "r2").values()) == 30


def test_a_view_that_is_created_beside_inserts_has_each_row_once(cluster: LocalCluster) -> None:
    stop = threading.Event()

    def go_on(number: int) -> None:
        with replitree.connect(cluster.folder) as connection:
            table = connection.table("events").replica(f"r{number}")
            key = 1_000_000 * number
            while not stop.is_set():
                table.insert(some(key, 3))
                key += 3

    with replitree.connect(cluster.folder) as connection:
        events = connection.table("events")
        threads = [threading.Thread(target=go_on, args=(number,)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: connection.catalog.log_state("events").tail > 20, "inserts before the view")
        made = events.create_view("v", "sums", SELECT, group_by="s")
        wait_for(lambda: connection.catalog.log_state("events").tail > made.index + 30, "inserts after the view")
        stop.set()
        for thread in threads:
            thread.join()
        assert [(view.name, view.target, view.is_filled) for view in events.views()] == [("v", "sums", True)]
        assert_alike(connection)
        with pytest.raises(BadInput, match="drop them first"):
            connection.drop_table("events")
        with pytest.raises(BadInput, match="is the target of materialised views of events"):
            connection.drop_table("sums")
        events.drop_view("v")
        connection.drop_table("sums")


def test_an_insert_that_is_repeated_changes_neither_table(cluster: LocalCluster) -> None:
    with replitree.connect(cluster.folder) as connection:
        events = connection.table("events")
        events.create_view("v", "sums", SELECT, group_by="s")
        for name in ("r1", "r2", "r3", "r1"):
            events.replica(name).insert(some(0), token="once")
        assert_alike(connection)
        assert sum(count for count, _ in sums(connection, "sums", "r1").values()) == 10
        assert events.backfill_view("v").outcome == "duplicate"
