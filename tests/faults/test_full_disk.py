"""A disk that is really full: one replica's data on a file system of a few megabytes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import ReplitreeError
from tests.faults.checks import wait_until_equal
from tests.waiting import wait_for

pytestmark = pytest.mark.system

DISK_MIB = 192
RESERVE_MIB = 64
"""What a replica keeps free, `disk_reserve_bytes`."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two replicas; the data of r1 lie on a small file system of their own."""
    small = tmp_path / "cluster" / "r1" / "data"
    small.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system of its own can be mounted by root only")
    try:
        with LocalCluster(tmp_path / "cluster", 2) as cluster:
            yield cluster
    finally:
        subprocess.run(["umount", str(small)], check=True)


def rows(first: int, count: int, width: int = 8) -> pa.Table:
    noise = np.random.default_rng(first).bytes(count * width)
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    return pa.table(
        {
            "id": np.arange(first, first + count, dtype=np.int64),
            "b": pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(noise)]),
        }
    )


def fill(folder: Path, leave_mib: int) -> Path:
    """Use up the disk that a folder is on, but for so many MiB."""
    ballast = folder / "ballast"
    found = os.statvfs(folder)
    ballast.write_bytes(bytes(found.f_bavail * found.f_frsize - (leave_mib << 20)))
    return ballast


def is_active(table: Table, name: str) -> bool:
    return any(replica.name == name and replica.state == "active" for replica in table.status().replicas)


def ids(table: Table, name: str) -> list[int]:
    found: list[int] = table.replica(name).to_arrow(columns=["id"])["id"].to_pylist()
    return sorted(found)


def test_a_full_disk_refuses_inserts_and_takes_them_again_when_there_is_room(cluster: LocalCluster) -> None:
    table = cluster.create_table("t", "id bigint, b binary", order_by="id", wait_replicas=2)
    first, second = table.replica("r1"), table.replica("r2")
    first.insert(rows(0, 1000))
    ballast = fill(cluster.folder / "r1" / "data", 0)
    wait_for(lambda: not is_active(table, "r1"), "r1 is read-only")
    with pytest.raises(ReplitreeError, match="disk full"):
        first.insert(rows(1000, 10), token="refused", timeout_s=5.0)
    assert ids(table, "r1") == list(range(1000))
    second.insert(rows(1000, 1000))
    ballast.unlink()
    wait_for(lambda: is_active(table, "r1"), "r1 is active again")
    first.insert(rows(2000, 1000))
    wait_until_equal(table, cluster.names)
    assert ids(table, "r1") == ids(table, "r2") == list(range(3000))


def test_a_disk_that_fills_in_the_middle_of_an_insert_loses_and_doubles_nothing(cluster: LocalCluster) -> None:
    table = cluster.create_table("t", "id bigint, b binary", order_by="id", wait_replicas=2)
    first = table.replica("r1")
    ballast = fill(cluster.folder / "r1" / "data", RESERVE_MIB + 8)
    large = rows(0, 12_000, width=8192)  # 94 MiB, more than is left
    with pytest.raises(ReplitreeError):
        first.insert(large, token="large")
    assert ids(table, "r2") == []
    ballast.unlink()
    wait_for(lambda: is_active(table, "r1"), "r1 is active again")
    table.replica("r1").insert(large, token="large")
    wait_until_equal(table, cluster.names)
    assert ids(table, "r1") == ids(table, "r2") == list(range(12_000))
