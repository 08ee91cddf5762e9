"""ClickHouse's tests of merges, mutations and drops, with the same assertions; `docs/clickhouse-tests.md` maps them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from replitree.storage.rewrite.merge import merge_parts
from tests.replica.inprocess import InProcessCluster, Node, as_stream, rows, wait_for

TABLE = "/v1/tables/t"


def post(node: Node, what: str, body: dict[str, Any] | None = None, **query: str) -> Any:
    """Send a command that must be taken; return its answer."""
    path = f"{TABLE}/{what}" + (f"?{urlencode(query)}" if query else "")
    status, answer = node.request("POST", path, json.dumps(body or {}).encode())
    assert status == 200, answer
    return answer


def overwrite(node: Node, data: pa.Table, what: str) -> Any:
    status, answer = node.request("POST", f"{TABLE}/insert?{urlencode({'overwrite': what})}", as_stream(data))
    assert status == 200, answer
    return answer


def part_count(node: Node) -> int:
    _, parts = node.table().progress.visible()
    return len(parts)


def wait_alike(cluster: InProcessCluster) -> dict[str, str]:
    """Wait until nothing is left to do and all replicas have the same parts with the same content."""
    return cluster.wait_alike()


@pytest.fixture
def partitioned(tmp_path: Path) -> Any:
    """Two replicas with a table partitioned by `k` in tens."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table(partition_by="truncate(10, k)")
    yield cluster
    cluster.close()


def test_00226_duplicates_collapse_and_leave_nothing_unexpected(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    outcomes = [node.insert(rows(0, 5))[1]["outcome"] for node in (first, second, first)]
    assert outcomes == ["inserted", "duplicate", "duplicate"]
    post(first, "drop", {"partition": "0", "detach": True})
    wait_alike(partitioned)
    _, detached = first.request("GET", f"{TABLE}/detached")
    assert [part["rows"] for part in detached["detached"]] == [5]
    post(first, "attach", {"name": detached["detached"][0]["name"]})
    partitioned.wait_equal(list(range(5)))
    assert first.table().store.stagings() == ()


def test_00236_00623_a_truncate_at_any_replica_empties_both(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    cluster.wait_equal(list(range(10)))
    assert post(second, "drop", {"all": True})["applied"] is True
    cluster.wait_equal([])
    assert wait_alike(cluster) == {}


def test_00516_dropped_rows_may_be_inserted_again(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    assert first.insert(rows(0, 5))[1]["outcome"] == "inserted"
    assert first.insert(rows(0, 5))[1]["outcome"] == "duplicate"
    post(first, "drop", {"partition": "10"})
    assert second.insert(rows(0, 5))[1]["outcome"] == "duplicate"
    post(first, "drop", {"partition": "0"})
    wait_alike(partitioned)
    assert second.insert(rows(0, 5))[1]["outcome"] == "inserted"
    assert first.insert(rows(0, 5))[1]["outcome"] == "duplicate"
    partitioned.wait_equal(list(range(5)))


def test_00620_optimize_works_at_any_replica(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for node in cluster.nodes:
        post(node, "merges/pause")
    for number in range(4):
        first.insert(rows(10 * number))
    wait_alike(cluster)
    for node in cluster.nodes:
        post(node, "merges/resume")
    assert post(second, "optimize", {"final": True})["finished"] is True
    assert len(wait_alike(cluster)) == 1
    cluster.wait_equal(list(range(40)))


def test_00626_a_partition_is_replaced_on_both_replicas(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    first.insert(rows(0, 5))
    second.insert(rows(10, 5))
    overwrite(second, rows(5, 3), "partitions")
    partitioned.wait_equal([5, 6, 7, *range(10, 15)])
    overwrite(first, rows(20, 2), "partitions")
    partitioned.wait_equal([5, 6, 7, *range(10, 15), 20, 21])
    overwrite(first, rows(30, 1), "all")
    partitioned.wait_equal([30])
    wait_alike(partitioned)


def test_00652_mutations_among_inserts_and_a_new_replica_gets_the_end_of_it(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path)
    try:
        cluster.create_table()
        first, second = cluster.nodes
        indexes = []
        for number in range(4):
            first.insert(rows(10 * number))
            sql = f"DELETE FROM t WHERE k = {10 * number + 3}"
            indexes.append(post((first, second)[number % 2], "mutations", {"sql": sql})["index"])
        assert indexes == sorted(indexes)
        expected = [key for key in range(40) if key % 10 != 3]
        cluster.wait_equal(expected)
        third = Node("r3", tmp_path, cluster.shared)
        cluster.nodes.append(third)
        third.start()
        wait_for(lambda: cluster.is_active(third), "r3 active")
        cluster.wait_equal(expected)
        wait_alike(cluster)
    finally:
        cluster.close()


def test_00661_optimize_final_merges_every_partition(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes
    for number in range(6):
        (first, second)[number % 2].insert(rows(5 * number, 5))
    post(first, "optimize", {"final": True}, wait_s="60")
    assert len(wait_alike(partitioned)) == 3
    partitioned.wait_equal(list(range(30)))


def test_00721_a_replica_that_merges_to_something_else_fetches(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replitree.storage.rewrite import merge

    first, second = cluster.nodes
    real = merge_parts
    spoiled: list[str] = []

    def spoil(sources: Any, definition: Any, folder: Path, **options: Any) -> Any:
        if folder.is_relative_to(Path(second.config.data)):
            spoiled.append(folder.name)
            wait_for(lambda: part_count(first) == 1, "the other one has published its result")
            return real(list(sources)[:1], definition, folder, **options)  # a library that loses rows
        return real(sources, definition, folder, **options)

    monkeypatch.setattr(merge, "merge_parts", spoil)
    for number in range(3):
        first.insert(rows(10 * number))
    cluster.wait_equal(list(range(30)))  # who has the sources makes the result
    post(first, "optimize", {"final": True})
    assert len(wait_alike(cluster)) == 1
    assert spoiled
    cluster.wait_equal(list(range(30)))


def storm(*actions: Callable[[random.Random], object], rounds: int = 12) -> None:
    """Run actions at the same time, each `rounds` times; raise what one of them raised."""
    problems: list[BaseException] = []

    def run(number: int, action: Callable[[random.Random], object]) -> None:
        try:
            for step in range(rounds):
                action(random.Random(100 * number + step))
        except BaseException as problem:  # noqa: BLE001 - raised again below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(number, action)) for number, action in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


@pytest.mark.slow
def test_01103_optimize_and_drop_and_insert_at_once(partitioned: InProcessCluster) -> None:
    first, second = partitioned.nodes

    def insert(draw: random.Random) -> None:
        draw.choice((first, second)).insert(rows(draw.randrange(1000), 3), token=str(draw.random()))

    storm(
        insert,
        insert,
        lambda draw: post(draw.choice((first, second)), "optimize", {"final": draw.random() < 0.5}),
        lambda draw: post(draw.choice((first, second)), "drop", {"partition": str(10 * draw.randrange(100))}),
        lambda draw: post(draw.choice((first, second)), "drop", {"all": True}),
    )
    wait_alike(partitioned)
    assert first.keys() == second.keys()


@pytest.mark.slow
def test_01307_both_replicas_take_inserts_while_parts_are_merged(cluster: InProcessCluster) -> None:
    def insert_at(node: Node, begin: int) -> Callable[[random.Random], object]:
        numbers = iter(range(begin, begin + 100))
        return lambda _: node.insert(rows(next(numbers), 1))

    first, second = cluster.nodes
    storm(insert_at(first, 0), insert_at(second, 100), rounds=100)
    wait_alike(cluster)
    assert first.keys() == second.keys() == list(range(200))
    wait_for(lambda: part_count(first) < 100, "parts are merged")


def test_01396_a_replica_that_was_away_gets_everything(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    cluster.wait_equal(list(range(10)))
    assert second.server is not None
    second.server.stop(5.0)
    for number in range(1, 30):
        first.insert(rows(10 * number))
    post(first, "optimize", {"final": True})
    second.coordination = type(second.coordination)(cluster.shared)
    second.start()
    wait_for(lambda: cluster.is_active(second), "r2 active")
    cluster.wait_equal(list(range(300)))
    wait_alike(cluster)


def test_01451_a_single_part_is_detached_and_dropped(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for node in cluster.nodes:
        post(node, "merges/pause")
    indexes = [first.insert(rows(10 * number))[1]["index"] for number in range(3)]
    post(second, "drop", {"blocks": [indexes[0], indexes[0]], "detach": True})
    cluster.wait_equal(list(range(10, 30)))
    post(first, "drop", {"blocks": [indexes[2], indexes[2]]})
    cluster.wait_equal(list(range(10, 20)))
    _, detached = second.request("GET", f"{TABLE}/detached")
    post(second, "attach", {"name": detached["detached"][0]["name"]})
    cluster.wait_equal(list(range(20)))
    wait_alike(cluster)


@pytest.mark.slow
def test_replicated_mutations_random_inserts_mutations_and_kills(cluster: InProcessCluster) -> None:
    inserted: list[int] = []
    deleted: list[int] = []
    numbers = iter(range(10_000))
    lock = threading.Lock()

    def insert(draw: random.Random) -> None:
        with lock:
            number = next(numbers)
        draw.choice(cluster.nodes).insert(rows(number, 1))
        with lock:
            inserted.append(number)

    def delete(draw: random.Random) -> None:
        with lock:
            victim = draw.choice(inserted) if inserted else None
        if victim is not None:
            post(draw.choice(cluster.nodes), "mutations", {"sql": f"DELETE FROM t WHERE k = {victim}"})
            with lock:
                deleted.append(victim)

    storm(insert, insert, insert, delete, rounds=20)
    wait_alike(cluster)
    expected = sorted(set(inserted) - set(deleted))
    cluster.wait_equal(expected)
    for node in cluster.nodes:
        _, answer = node.request("GET", f"{TABLE}/mutations")
        assert all(mutation["finished"] for mutation in answer["mutations"])
