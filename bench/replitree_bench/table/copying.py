"""How fast a replica that was given up fetches a gigabyte, beside a plain copy of the same files on the same disk.

Keys::

    fetch_mb               megabytes (10⁶) of the parts' files
    fetch_s                seconds from the start of the lost replica's process until both show the same rows
    fetch_restart_s        the same when nothing was missing: the process, its session, its tables
    copy_s                 seconds to copy the files of these parts into another folder, synced, file by file
    fetch_speed_of_copy    copy_s / (fetch_s - fetch_restart_s)

The files hardly compress.  Both read what was written just before, so mostly from memory, and both wait for the disk.  The
fetch goes over loopback HTTP, between two processes, and hashes everything.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replitree.storage.files.durable import sync_folder
from replitree.storage.schema.definition import define_table
from replitree_bench.kit.folders import bytes_below
from replitree_bench.kit.report import Measured
from replitree_bench.kit.systems import SCHEMA, make_rows
from replitree_bench.table.longlife import BLOCKS, wait_lost
from replitree_bench.table.restarts import OurRestarts

if TYPE_CHECKING:
    from replitree.client import LocalCluster

INSERTS = 24
ROWS = 1_000_000
TEXT = 48
"""Letters of each row's text."""

MB = 1_000_000
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8)


def random_rows(first: int, rows: int) -> pa.Table:
    """Return rows of `SCHEMA` whose numbers and texts are random, the same for the same arguments.

    Parameters
    ----------
    first, rows
        The first key, and how many.
    """
    draw = np.random.default_rng(first)
    text = _LETTERS[draw.integers(0, len(_LETTERS), rows * TEXT, dtype=np.uint8)]
    ends = np.arange(0, (rows + 1) * TEXT, TEXT, dtype=np.int32)
    made = make_rows(first, rows)
    columns = [
        made.column("d"),
        made.column("k"),
        pa.array(draw.random(rows)),
        pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text)),
    ]
    return pa.Table.from_arrays(columns, schema=define_table("rows", SCHEMA).arrow_schema)


def measure_copy(
    cluster: LocalCluster, place: Path, number: int, *, inserts: int = INSERTS, rows: int = ROWS
) -> Measured:
    """Let a replica be given up, insert, and measure its way back, and a copy.

    Parameters
    ----------
    cluster
        Of two replicas, with `replitree_bench.table.restarts.SETTINGS`.
    place
        A folder on the disk of the replicas, for the copy.
    number
        Of the round.
    inserts, rows
        How many, and the rows of each.
    """
    name = f"copied_{number}"
    system = OurRestarts(cluster, random_rows)
    system.create(name)
    system.load(0, 1)
    system.wait_equal()
    restart_s = _restart(system)
    system.kill_second()
    for block in range(BLOCKS):
        system.load(1 + block, 1)
    wait_lost(system)
    for insert in range(inserts):
        system.load((insert + 1) * rows, rows)
    begin = time.perf_counter()
    system.start_second()
    system.wait_equal()
    fetch_s = time.perf_counter() - begin
    parts = _newest_parts(cluster)
    copy_s = copy_synced(parts, place / name)
    size = bytes_below(parts)
    cluster.drop_table(name)
    return {
        "fetch_mb": size / MB,
        "fetch_s": fetch_s,
        "fetch_restart_s": restart_s,
        "copy_s": copy_s,
        "fetch_speed_of_copy": copy_s / (fetch_s - restart_s),
    }


def _restart(system: OurRestarts) -> float:
    """Kill the second replica while both are equal, start it; return the seconds of the start."""
    system.kill_second()
    begin = time.perf_counter()
    system.start_second()
    system.wait_equal()
    return time.perf_counter() - begin


def _newest_parts(cluster: LocalCluster) -> Path:
    """Return the folder of parts that the second replica has changed last."""
    return max(Path(cluster.processes[1].data).glob("tables/*/parts"), key=lambda parts: parts.stat().st_mtime)


def copy_synced(source: Path, target: Path) -> float:
    """Copy a folder of parts, wait for the disk, remove the copy; return the seconds of the copying.

    Parameters
    ----------
    source, target
        Folders; the target must not exist.
    """
    begin = time.perf_counter()
    target.mkdir()
    for part in sorted(source.iterdir()):
        copy = target / part.name
        copy.mkdir()
        for file in part.iterdir():
            with (copy / file.name).open("wb") as written, file.open("rb") as read:
                shutil.copyfileobj(read, written, 1 << 20)
                written.flush()
                os.fsync(written.fileno())
        sync_folder(copy)
    sync_folder(target)
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    return seconds
