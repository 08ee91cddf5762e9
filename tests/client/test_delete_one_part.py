"""A delete that touches one part of fifty rewrites one part: the others keep their very files, on every replica."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.table import Table

pytestmark = pytest.mark.system

PARTS = 50
ROWS = 20_000
"""Rows of each part; a million in all."""

REPLICAS = ("r1", "r2")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Parts of neighbouring ranges of the order key, which nobody merges."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False) as cluster:
        table = cluster.create_table("t", "k bigint not null, v double, s string", order_by="k")
        table.pause_merges()
        for number in range(PARTS):
            keys = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
            table.insert({"k": keys, "v": keys.cast(pa.float64()), "s": keys.cast(pa.string())})
        yield table


def files(snapshot: Snapshot) -> dict[int, tuple[SnapshotPart, list[tuple[os.stat_result, bytes]]]]:
    """The data files of each part, by the block of its insert."""
    found = {}
    for part, folder in zip(snapshot.parts, snapshot.folders(snapshot.parts), strict=True):
        data = [
            (Path(folder / file.name).stat(), Path(folder / file.name).read_bytes()) for file in part.manifest.files
        ]
        found[int(part.part.split("_")[1])] = part, data
    return found


def test_delete_on_the_order_key_rewrites_the_one_part_that_it_touches(table: Table) -> None:
    low, high = 17 * ROWS + 5_000, 17 * ROWS + 14_999
    before_at = {}
    for name in REPLICAS:
        everything = table.status().log_tail - 1
        before_at[name] = table.replica(name).snapshot(everything, lease_s=120)
        assert len(before_at[name].parts) == PARTS
    before = {name: files(snapshot) for name, snapshot in before_at.items()}
    deleted = table.delete(f"k BETWEEN {low} AND {high}")
    assert (deleted.applied, deleted.finished, deleted.removed, deleted.added) == (True, True, PARTS, PARTS)
    shown = []
    for name in REPLICAS:
        with before_at[name], table.replica(name).snapshot(deleted.index) as snapshot:
            after = files(snapshot)
            shown.append(snapshot.to_arrow().sort_by("k"))
        assert len(after) == PARTS
        rewritten = []
        for block, (part, now) in after.items():
            old, then = before[name][block]
            assert part.part == f"{old.part}_{deleted.index}"
            same = [(one.st_ino, one_bytes) for one, one_bytes in then] == [(one.st_ino, b) for one, b in now]
            if not same:
                rewritten.append((block, old.manifest.rows, part.manifest.rows))
                assert {one.st_ino for one, _ in then}.isdisjoint(one.st_ino for one, _ in now)
                continue
            assert all(one.st_nlink == 2 for one, _ in now), (part.part, [one.st_nlink for one, _ in now])
            assert part.manifest.content == old.manifest.content
        [(_, rows_then, rows_now)] = rewritten
        assert (rows_then, rows_now) == (ROWS, ROWS - 10_000)
    assert shown[0].equals(shown[1])
    keys = shown[0].column("k").to_pylist()
    assert keys == [k for k in range(PARTS * ROWS) if not low <= k <= high]
