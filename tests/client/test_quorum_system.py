"""A quorum on real processes: what was acknowledged survives the death of one that had it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree.errors import TooFewReplicas

pytestmark = pytest.mark.system


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A running cluster of three replicas."""
    with LocalCluster(tmp_path / "cluster", 3) as cluster:
        cluster.create_table("t", "k bigint not null, v string", order_by="k")
        yield cluster


def test_an_acknowledged_insert_survives_the_death_of_its_writer(cluster: LocalCluster) -> None:
    with replitree.connect(cluster.folder) as connection:
        writer = connection.table("t").replica("r1")
        done = writer.insert({"k": [1, 2], "v": ["a", "b"]}, quorum=2, quorum_timeout_s=30.0)
        assert (done.outcome, done.index) == ("inserted", 0)
        cluster.kill("r1")
        for name in ("r2", "r3"):
            shown = connection.table("t").replica(name).to_arrow(["k"], min_index=0)
            assert sorted(shown["k"].to_pylist()) == [1, 2]
        again = connection.table("t").replica("r2").insert({"k": [3], "v": ["c"]}, quorum="majority", timeout_s=60.0)
        assert again.outcome == "inserted", "two of three are a majority"
        cluster.start("r1")
        back = connection.table("t").replica("r1").to_arrow(["k"], min_index=again.index)
        assert sorted(back["k"].to_pylist()) == [1, 2, 3]


def test_without_enough_processes_nothing_is_inserted(cluster: LocalCluster) -> None:
    with replitree.connect(cluster.folder) as connection:
        table = connection.table("t").replica("r1")
        for name in ("r2", "r3"):
            cluster.stop(name)
        with pytest.raises(TooFewReplicas, match=r"a quorum of 2 was asked for.*nothing was inserted"):
            table.insert({"k": [1], "v": ["a"]}, quorum=2)
        assert table.insert({"k": [1], "v": ["a"]}).outcome == "inserted"
