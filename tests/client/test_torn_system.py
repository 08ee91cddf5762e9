"""Reads at cuts on real processes: none is torn, and none goes back, while inserts come and replicas are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.protocol.sharded.cut import CutLevel
from tests.client.torn_reads import Counted, TornReads

pytestmark = pytest.mark.system


def counted(folder: Path, level: CutLevel, reads: int, live_s: float) -> Counted:
    """Read a table of four shards on three replicas."""
    with LocalCluster(folder / "cluster", 3) as cluster:
        return TornReads(cluster, level).count(reads, live_s)


def assert_right(found: Counted, reads: int) -> None:
    assert found.reads >= reads
    assert found.inserts > 0
    assert found.kills > 0
    assert (found.torn, found.twice, found.back) == (0, 0, 0), found


def test_no_consistent_read_is_torn_while_replicas_are_killed(tmp_path: Path) -> None:
    assert_right(counted(tmp_path, "consistent", 150, 1.0), 150)


@pytest.mark.nightly
def test_no_linearizable_read_is_torn_while_replicas_are_killed(tmp_path: Path) -> None:
    assert_right(counted(tmp_path, "linearizable", 1_000, 3.0), 1_000)


@pytest.mark.nightly
@pytest.mark.timeout(10_800)
def test_none_of_a_hundred_thousand_consistent_reads_is_torn(tmp_path: Path) -> None:
    assert_right(counted(tmp_path, "consistent", 100_000, 5.0), 100_000)
