"""Old parts of thousands of tiny inserts are packed by a real replica, and every reader still gets every row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree_bench.table.packing import INSERTS, NAME, PACKS, measure_packing
from tests.waiting import wait_for

pytestmark = pytest.mark.system


def test_thousands_of_tiny_inserts_are_packed_and_read_after_a_kill(tmp_path: Path) -> None:
    def opened(settings: Mapping[str, object]) -> LocalCluster:
        return LocalCluster(tmp_path, 1, durable=False, settings=settings)

    # Each read of it asserts that every row is there, once.
    packed, plain = measure_packing(opened, lambda _: None)
    assert plain["folders"] > INSERTS
    assert packed["folders"] < 50
    assert packed["files"] < plain["files"] / 50
    with opened(PACKS) as cluster:
        table = cluster.table(NAME)
        # A reader has its copies when the replica is killed; the next one begins with packs alone.
        with table.changes(INSERTS // 2) as changes:
            cluster.kill("r1")
            cluster.start("r1")
        with table.changes(0) as changes:
            assert changes.to_arrow()["k"].to_pylist() == list(range(INSERTS))
        table.set_feed(None)
        wait_for(lambda: table.status().replicas[0].old_parts == 0, "the packs are deleted", 60.0)
        assert not list((cluster.folder / "r1" / "data" / "tables").glob("*/packs/*"))
        assert table.to_arrow().num_rows == INSERTS
