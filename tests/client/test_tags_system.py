"""Tags with real processes that are killed while rows come and go."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import SnapshotExpired
from tests.waiting import wait_for

pytestmark = pytest.mark.system

ROUNDS = 4
"""Tags that are made, each while a replica is killed."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"old_parts_lifetime_s": 0.0}
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3, durable=False, settings=settings) as cluster:
        yield cluster


def keys(table: Table, as_of: int | str) -> list[int]:
    return sorted(table.to_arrow(as_of=as_of)["k"].to_pylist())


def test_tagged_versions_survive_kills_of_all_replicas(running: LocalCluster) -> None:
    table = running.create_table("t", "k bigint not null", order_by="k", wait_replicas=3)
    expected, index = dict[str, list[int]](), 0
    for number in range(ROUNDS):
        # Enough replicas have the rows that one of them may be killed.
        table.insert({"k": [10 * number, 10 * number + 1]}, quorum=2)
        name, victim = f"round-{number}", running.names[number % len(running.names)]
        expected[name] = [10 * number, 10 * number + 1]
        index = table.tag(name).index
        running.kill(victim)
        table.truncate()
        running.start(victim)
        assert keys(table, name) == keys(table, index) == expected[name]
    for victim in running.names:
        running.kill(victim)
        running.start(victim)
    assert {tag.name: keys(table, tag.name) for tag in table.tags()} == expected

    def tagged() -> list[int]:
        replicas = running.status("t").tables[0].replicas
        assert all(replica.lacking == () for replica in replicas)
        return [replica.tagged_parts or 0 for replica in replicas]

    wait_for(lambda: sum(tagged()) >= ROUNDS, "replicas say what tags keep", 60.0)
    for name in expected:
        table.delete_tag(name)
    wait_for(lambda: tagged() == [0, 0, 0], "tags keep nothing", 60.0)
    with pytest.raises(SnapshotExpired):
        keys(table, index)
    running.drop_table("t")


def test_retention_of_a_table_holds_while_replicas_are_killed(running: LocalCluster) -> None:
    table = running.create_table("kept", "k bigint not null", order_by="k", wait_replicas=3, keep="1 hour")
    index = table.insert({"k": [1, 2]}, quorum=3).counts_at
    assert index is not None
    running.kill("r2")
    table.set_keep("7 days", timeout_s=30.0)
    table.truncate()
    running.start("r2")
    # The replicas' own setting is 0, so that without the table's the parts would be gone by now.
    wait_for(
        lambda: [each.old_parts for each in running.status("kept").tables[0].replicas] == [1, 1, 1], "parts stay", 60.0
    )
    assert keys(table, index + 1) == [1, 2]
    for victim in running.names:
        running.kill(victim)
    for victim in running.names:
        running.start(victim)
    for name in running.names:
        read = table.replica(name).to_arrow(as_of=index + 1, timeout_s=60.0)
        assert sorted(read["k"].to_pylist()) == [1, 2], "every replica knows it, though all were killed at once"
    table.set_keep(None)
    wait_for(
        lambda: [each.old_parts for each in running.status("kept").tables[0].replicas] == [0, 0, 0], "they go", 60.0
    )
    running.drop_table("kept")


def test_restore_while_replicas_are_killed_is_done_once_and_alike(running: LocalCluster) -> None:
    table = running.create_table(
        "back", "d date, k bigint not null", order_by="k", partition_by="month(d)", wait_replicas=3
    )
    days = [dt.date(2024, 1 + number % 3, 1) for number in range(300)]
    table.insert({"d": days, "k": list(range(300))}, quorum=3)
    table.tag("good")
    for victim in running.names:
        table.delete("k % 2 = 0")
        table.insert({"d": days[:1], "k": [1000]})
        running.kill(victim)
        result = table.restore_to("good", token=f"after-{victim}", timeout_s=60.0)
        assert (table.restore_to("good", token=f"after-{victim}").index, result.rows) == (result.index, 300)
        running.start(victim)
        for name in running.names:
            read = table.replica(name).to_arrow(min_index=result.counts_at, timeout_s=60.0)
            assert sorted(read["k"].to_pylist()) == list(range(300))
    assert keys(table, "good") == list(range(300))
    running.drop_table("back")
