"""A table on an object store: what the fetch of a large part moves and takes, and how many copies three replicas keep.

Keys::

    fetch_bytes        what one fetch of the part reads: from the other replica, and as proof from the store
    fetch_p50_ms       … and how long it takes, until the part has its name on the receiver's disk, synced
    storage_copies     bytes of the store and of all replicas' table folders, over the bytes of the part
    merged_copies      the same after inserts were merged with it, over the bytes of the merged part
    part_bytes         size of the part's data files
    insert_s           the insert of the part, with the way into the store
    visible_s          from its answer until both other replicas show the part

A fetch is done by the replicas' own code for it, from a running replica, into a folder that is new each time; the commit that
registers the part and its mark, which is one more request to ZooKeeper, is in `visible_s`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.errors import ReplitreeError
from replitree.protocol.core.effects import Fetched, FetchPart
from replitree.replica.perform.exchange import Exchange, Peer
from replitree.storage.disk.store import PartStore
from replitree.storage.objects import open_store
from replitree.storage.shares.shares import ShareObjects
from replitree_bench.kit.folders import bytes_below
from replitree_bench.kit.report import Measured, Report, medians, quantile

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.client import LocalCluster, Table
    from replitree.client.read.snapshot import SnapshotPart

REPLICAS = 3
FETCHES = 20
"""In one round."""

COLUMNS = 7
ROW_BYTES = 8 * COLUMNS
"""Of the files: the keys hardly count, they compress."""
SETTLED_S_MAX = 300.0
LOOK_S = 0.2
ADDED, ADDED_SHARE = 3, 16
"""Parts that are merged with the large one, each with one of so many of its rows."""
INSERT_S_MAX = 600.0
SETTINGS: dict[str, object] = {
    "shared_cache_bytes": 0,
    "old_parts_lifetime_s": 1.0,
    "insert_timeout_s": INSERT_S_MAX,
}

Say = Callable[[str], None]


def run_shared(
    *, rounds: int, say: Say, folder: Path | None = None, store: str | None = None, part_bytes: int = 1 << 30
) -> Report:
    """Measure a table on an object store.

    Parameters
    ----------
    rounds
        How often the part is fetched `FETCHES` times.
    say
        Told how far it is.
    folder
        Where everything goes; a temporary folder by default.
    store
        URL of the object store; by default a folder.
    part_bytes
        About how large the part is.
    """
    from replitree.client.cluster import LocalCluster

    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    try:
        with LocalCluster(place / "replitree", REPLICAS, settings=SETTINGS) as cluster:
            bench = SharedBench(cluster, store or f"file://{place}/objects", place, part_bytes)
            say(f"inserting a part of about {part_bytes >> 20} MiB")
            first = bench.fill()
            found = []
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                found.append(bench.measure())
            say("waiting until copies for readers are gone")
            found[-1]["storage_copies"] = bench.copies()
            say(f"merging it with {ADDED} smaller ones")
            bench.merge()
            found[-1]["merged_copies"] = bench.copies()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    notes = {"store": store or "a folder", "fetches": f"{FETCHES} in each round"}
    return Report("shared", {**medians(found), **first}, {}, rounds, "", notes)


class SharedBench:
    """A table with one large part.

    Parameters
    ----------
    cluster
        Of three replicas.
    url
        The object store.
    place
        Where fetched parts go.
    part_bytes
        About how large the part is.
    """

    def __init__(self, cluster: LocalCluster, url: str, place: Path, part_bytes: int) -> None:
        self._cluster = cluster
        self._place = place
        self._rows = max(1, part_bytes // ROW_BYTES)
        columns = ", ".join(f"c{number} bigint" for number in range(COLUMNS))
        self._table: Table = cluster.create_table(
            "shared", f"k bigint not null, {columns}", order_by="k", storage=url, wait_replicas=REPLICAS
        )
        self._objects = ShareObjects(lambda: open_store(url), self._table.definition.table_id)

    def fill(self) -> Measured:
        """Insert the part, and wait until all replicas show it."""
        begin = time.perf_counter()
        done = self._table.replica("r1").insert(_rows(self._rows), timeout_s=INSERT_S_MAX)
        inserted = time.perf_counter()
        for name in ("r2", "r3"):
            self._table.replica(name).snapshot(done.index, timeout_s=SETTLED_S_MAX)
        visible = time.perf_counter()
        measured = {"insert_s": inserted - begin, "visible_s": visible - inserted}
        return {**medians([measured]), "part_bytes": float(self._part().manifest.bytes)}

    def measure(self) -> Measured:
        """Fetch the part again and again, each time as a replica that never had it."""
        part, times, moved = self._part(), list[float](), 0
        source = next(each for each in self._cluster.replicas() if each.name == "r1")
        peer = Peer(source.address, self._cluster.access.token, self._table.name)
        for _ in range(FETCHES):
            folder = Path(tempfile.mkdtemp(prefix="fetched-", dir=self._place))
            store = PartStore(folder / "table")
            store.shared.objects = self._objects
            exchange = Exchange(store, lambda _name, _fresh: peer, 1, shares=True)
            begin = time.perf_counter()
            (outcome,) = exchange.fetch([FetchPart(part.part, part.manifest.content, ("r1",))])
            times.append(time.perf_counter() - begin)
            exchange.close()
            if not isinstance(outcome, Fetched):
                raise ReplitreeError(f"the part could not be fetched: {outcome}")
            taken = store.manifest(part.part)
            if taken.share_id is None:
                raise ReplitreeError("the rows were copied: the bench does not reach the replicas' store")
            moved = exchange.received_bytes + len(taken.encode())
            shutil.rmtree(folder)
        return {"fetch_bytes": float(moved), "fetch_p50_ms": quantile(times, 0.5) * 1000}

    def merge(self) -> None:
        """Insert smaller parts, and let everything be merged into one, which all replicas show."""
        count = max(1, self._rows // ADDED_SHARE)
        for number in range(ADDED):
            self._table.insert(_rows(count, self._rows + number * count), timeout_s=INSERT_S_MAX)
        self._table.optimize(final=True)
        deadline = time.monotonic() + SETTLED_S_MAX
        while time.monotonic() < deadline and any(
            len(self._table.replica(name).snapshot().parts) > 1 for name in ("r1", "r2", "r3")
        ):
            time.sleep(LOOK_S)

    def copies(self, enough: float = 1.01) -> float:
        """Wait until there are fewer copies, or copies for readers must be gone, and count what is kept."""
        size = self._part().manifest.bytes
        deadline, found = time.monotonic() + SETTLED_S_MAX, 0.0
        while time.monotonic() < deadline:
            found = self._kept() / size
            if found < enough:
                break
            time.sleep(LOOK_S)
        return found

    def _kept(self) -> int:
        """Bytes in the store and in the replicas' folders of the table."""
        objects = sum(each.bytes for each in self._objects.store.list(self._objects.root))
        name = self._table.definition.folder_name
        return objects + sum(bytes_below(Path(each.data) / "tables" / name) for each in self._cluster.processes)

    def _part(self) -> SnapshotPart:
        parts = self._table.replica("r1").snapshot().parts
        if len(parts) != 1:
            raise ReplitreeError(f"the table has {len(parts)} parts, and should have one")
        return parts[0]


def _rows(count: int, first: int = 0) -> pa.Table:
    """Rows that do not compress, with the keys from `first` on."""
    import numpy as np
    import pyarrow as pa

    draw = np.random.default_rng(7)
    columns = {f"c{number}": pa.array(draw.integers(-(2**62), 2**62, count)) for number in range(COLUMNS)}
    return pa.table({"k": pa.array(np.arange(first, first + count)), **columns})


__all__ = ["SharedBench", "run_shared"]
