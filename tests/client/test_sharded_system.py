"""A sharded table on real processes: inserts go on when a replica dies, which comes back to the shards placed on it."""

from __future__ import annotations

from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.sharded.sharded_table import ShardedTable
from tests.waiting import wait_for

pytestmark = pytest.mark.system


def test_inserts_go_on_when_a_replica_dies(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 3) as cluster:
        cluster.create_table("d", "k bigint not null, v string", order_by="k", shard_by="k", shards=2, replicas=2)
        with replitree.connect(cluster.folder) as connection:
            table = connection.table("d")
            assert isinstance(table, ShardedTable)
            assert [table.info.placement.of(shard) for shard in table.info.map.shards] == [("r1", "r2"), ("r1", "r3")]
            before = {"k": list(range(100)), "v": ["a"] * 100}
            assert table.insert(before, token="before", quorum=2, quorum_timeout_s=30.0).outcome == "inserted"
            # It hosts both shards, so it may be the coordinator, the participant, or both.
            cluster.kill("r1")
            for number in range(5):
                keys = list(range(100 * (number + 1), 100 * (number + 2)))
                done = table.insert({"k": keys, "v": ["b"] * 100}, token=f"after-{number}", timeout_s=60.0)
                assert done.outcome in ("inserted", "duplicate")
            assert table.insert(before, token="before").outcome == "duplicate"
            assert sorted(table.to_arrow(["k"])["k"].to_pylist()) == list(range(600))
            cluster.start("r1")
            shards = table.info.names
            wait_for(
                lambda: all(
                    status.active and status.lag == 0
                    for each in connection.status("d").tables
                    for status in each.replicas
                ),
                "r1 has what it missed of both shards",
                60.0,
            )
            assert [[each.name for each in connection.catalog.replicas(name)] for name in shards] == [
                ["r1", "r2"],
                ["r1", "r3"],
            ]
            connection.drop_table("d")
            assert connection.tables() == ()
