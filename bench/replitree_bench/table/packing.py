"""Packed old parts: what a change feed of many very small inserts costs, packed, beside the same parts in folders.

Keys; the peer is the same replica before it packs::

    inserts            inserts of one row each, merged into one part
    files, folders     below the table's folder
    disk_kb            what they take of the disk, in 2**10 bytes
    read_ms            ``table.changes(0).to_arrow()``; the unpacked parts were read once before
    read_again_ms      the same when the replica has unpacked the parts for a reader a moment ago
    pack_ms_per_part   milliseconds that the replica took to pack, and to remove the folders, for each part
    pack_files         packs
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from replitree_bench.kit.report import Measured

if TYPE_CHECKING:
    from replitree.client import LocalCluster, Table

INSERTS = 2_000
WAIT_S_MAX = 300.0
FEW = 100
"""Fewer parts are not packed."""

NAME, REPLICA = "packed", "r1"
PACKS: dict[str, object] = {"old_parts_lifetime_s": 0.0, "pack_old_parts_after_s": 0.0}
FOLDERS: dict[str, object] = {**PACKS, "pack_old_parts_after_s": 1e9}

Say = Callable[[str], None]
Opened = Callable[[dict[str, object]], "LocalCluster"]


def measure_packing(opened: Opened, say: Say, inserts: int = INSERTS) -> tuple[Measured, Measured]:
    """Fill a table, merge it, and read its feed from folders and from packs; return the packed side, and the other one.

    Parameters
    ----------
    opened
        Returns a cluster of one replica over one folder, not open yet, with settings.
    inserts
        How many inserts of one row; at least 1,000.
    """
    with opened(FOLDERS) as cluster:
        say(f"{inserts:,} inserts")
        table = cluster.create_table(NAME, "k bigint not null, v double", order_by="k", feed="1 day")
        for number in range(inserts):
            table.insert({"k": [number], "v": [number / 2]})
        table.optimize(final=True)
        _wait(lambda: (_status(table)[0] or 0) >= inserts, "the parts of the inserts have left the table")
        folder = cluster.folder / REPLICA / "data" / "tables"
        read_ms(table, inserts)
        plain = _counted(folder) | {"read_ms": read_ms(table, inserts)}
    with opened(PACKS) as cluster:
        say("packing")
        table = cluster.table(NAME)
        _wait(lambda: _status(table)[1] >= inserts - inserts % 1_000, "the old parts are packed")
        _wait(lambda: len([*folder.glob("*/parts/*")]) < FEW, "their folders have left")
        _wait(lambda: not [*folder.glob("*/removing/*")], "their folders are removed")
        packed = _counted(folder) | {"read_ms": read_ms(table, inserts), "read_again_ms": read_ms(table, inserts)}
        log = (cluster.folder / REPLICA / "server.log").read_text(encoding="utf-8")
        # Each round of maintenance tells what it has packed.
        took = [
            float(each) for line in log.splitlines() if "packed old parts" in line for each in _SECONDS.findall(line)
        ]
        packed["pack_ms_per_part"] = 1_000 * sum(took) / _status(table)[1]
        packed["pack_files"] = float(len([*folder.glob("*/packs/*.zip")]))
    return packed | {"inserts": float(inserts)}, plain


_SECONDS = re.compile(r"seconds\W+([0-9.]+)")


def read_ms(table: Table, rows: int) -> float:
    """Read the whole feed; return how long it took, in milliseconds.  Every row has to be there, once."""
    begin = time.perf_counter()
    with table.changes(0, columns=("k",)) as changes:
        found = changes.to_arrow()
    took = 1_000 * (time.perf_counter() - begin)
    assert sorted(found["k"].to_pylist()) == list(range(rows)), f"{found.num_rows} rows of {rows}"
    return took


def _status(table: Table) -> tuple[int | None, int]:
    """Return how many old parts the replica keeps, and how many of them are packed."""
    (replica,) = table.status().replicas
    return replica.old_parts, replica.packed_parts or 0


def _counted(folder: Path) -> Measured:
    found = [(place, folders, files) for place, folders, files in os.walk(folder)]
    paths = [Path(place, name) for place, folders, files in found for name in (*folders, *files)]
    return {
        "folders": float(sum(len(folders) for _, folders, _ in found)),
        "files": float(sum(len(files) for _, _, files in found)),
        "disk_kb": sum(path.lstat().st_blocks for path in paths) / 2,
    }


def _wait(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < end, f"not within {WAIT_S_MAX:.0f} s: {what}"
        time.sleep(0.2)


__all__ = ["FOLDERS", "INSERTS", "PACKS", "measure_packing", "read_ms"]
