"""A sharded table in an object store on real processes: servers are killed, and the objects are what its shards own."""

from __future__ import annotations

from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.storage.objects import open_store
from tests.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.nightly]


def test_servers_are_killed_while_rows_go_into_the_store(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/objects"
    with LocalCluster(tmp_path / "cluster", 3) as cluster:
        cluster.create_table("d", "k bigint not null, v string", order_by="k", shard_by="k", shards=2, storage=url)
        with replitree.connect(cluster.folder) as connection:
            table = connection.table("d")
            assert isinstance(table, ShardedTable)
            for number, victim in enumerate(("r1", "r2", "r1")):
                keys = list(range(100 * number, 100 * (number + 1)))
                cluster.kill(victim)
                done = table.insert({"k": keys, "v": ["a"] * 100}, token=f"{number}", timeout_s=60.0)
                assert done.outcome in ("inserted", "duplicate")
                cluster.start(victim)
            assert sorted(table.to_arrow(["k"])["k"].to_pylist()) == list(range(300))

            def is_clean() -> bool:
                report = connection.fsck("d", grace_s=0.0)
                return report.clean and report.shares > 0

            wait_for(is_clean, "all objects are owned", 90.0)
            connection.drop_table("d")
            assert not list(open_store(url).list("tables"))
            assert connection.left_objects() == ()
