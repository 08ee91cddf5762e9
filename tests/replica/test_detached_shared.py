"""Parts of a table on a store that are detached: each replica has its own copy, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import TableOutcome, drop_replica
from tests.replica.inprocess import Node, rows, wait_for
from tests.replica.test_sharing import TABLE, SharedCluster


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def detached(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.get("detached")["detached"]
    return found


def kept_rows(node: Node, name: str) -> int:
    """Rows in the files of a detached part, on that replica's own disk."""
    folder = node.table().store.root / "detached" / name
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


def detach(shared: SharedCluster, *nodes: Node) -> str:
    """Detach all rows; return the name under which these replicas have them."""
    nodes[0].post("drop", {"all": True, "detach": True}, wait_s=20)
    wait_for(lambda: all(detached(node) for node in nodes), "kept")
    ((row,), *_) = [detached(node) for node in nodes]
    assert [kept_rows(node, row["name"]) for node in nodes] == [10] * len(nodes)
    return str(row["name"])


@pytest.mark.slow
def test_what_one_replica_has_detached_and_thrown_away_the_other_one_still_detaches(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    shared.wait_alike()
    second.stop()
    name = detach(shared, first)
    assert first.request("DELETE", f"/v1/tables/t/detached/{name}")[0] == 200
    assert detached(first) == []
    wait_for(lambda: [owner.split()[0] for some in shared.owners().values() for owner in some] == ["r2"], "r1 let go")
    assert shared.stored() == shared.shares()
    second.restart()
    wait_for(lambda: bool(detached(second)), "kept by the other one")
    shared.wait_empty()
    (row,) = detached(second)
    assert second.post("attach", {"name": row["name"]})["rows"] == 10
    shared.wait_equal(list(range(10)))
    assert len(shared.shares()) == 1


@pytest.mark.parametrize("stays", [0, 1])
def test_a_replica_that_is_dropped_takes_nothing_from_what_is_detached(shared: SharedCluster, stays: int) -> None:
    node, other = shared.nodes[stays], shared.nodes[1 - stays]
    assert node.insert(rows(0))[0] == 200
    shared.wait_alike()
    name = detach(shared, *shared.nodes)
    shared.wait_empty()
    other.stop()
    other.coordination.close()
    assert shared.run(drop_replica(Replica(TABLE, other.name), shared=True)) is TableOutcome.DONE
    shared.nodes = [node]
    shared.wait_empty()
    assert kept_rows(other, name) == 10
    assert node.post("attach", {"name": name})["rows"] == 10
    shared.wait_equal(list(range(10)))
    shared.nodes.append(other)
