"""One run: writers and a nemesis on a real cluster, then the reckoning.

The reckoning, when every writer has its answers and nothing is hurt any more:

* every acknowledged row is on every replica exactly once;
* of an attempt that is still open all rows are there, or none;
* no other row is there;
* all replicas have the same parts with the same content, everything executed, and no staging left over after a restart.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from replitree.client.cluster import LocalCluster
from replitree.client.snapshot import Snapshot
from replitree.client.table import Table
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import ReplitreeError
from replitree.protocol import layout
from replitree.protocol.effects import Children, GetMany
from replitree.protocol.entries import decode_entry
from replitree.protocol.fold import fold
from tests.faults.changer import Changer
from tests.faults.nemesis import KINDS, Nemesis
from tests.faults.workload import SCHEMA, Account, Writer

SETTLE_S = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    Attributes
    ----------
    rounds, seconds
        It ends after so many faults or so many seconds, whichever comes first.
    changes
        Whether rows are deleted and changed, parts merged and partitions dropped meanwhile.
    """

    seed: int
    rounds: int
    seconds: float
    replicas: int = 3
    writers: int = 4
    kinds: tuple[str, ...] = KINDS
    changes: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw."""

    seed: int
    faults: dict[str, int]
    answers: dict[str, int]
    acknowledged_rows: int
    open_attempts: int
    parts: int
    seconds: float


def run(plan: Plan, folder: Path) -> Report:
    """Carry out a plan; raise AssertionError when the reckoning fails."""
    began = time.monotonic()
    with LocalCluster(folder, plan.replicas) as cluster:
        settings = {"parts_delay": 90_000, "parts_max": 100_000}
        table = cluster.create_table("t", SCHEMA, order_by="id", partition_by="writer", settings=settings)
        account = Account()
        writers = [Writer(number, table, cluster.names, account, plan.seed) for number in range(plan.writers)]
        clients: list[Writer | Changer] = [
            *writers,
            *([Changer(table, cluster.names, account, plan.seed)] if plan.changes else []),
        ]
        for client in clients:
            client.start()
        nemesis = Nemesis(cluster, table, random.Random(plan.seed), plan.kinds)
        faults = nemesis.run(plan.rounds, lambda: time.monotonic() - began > plan.seconds or _failed(clients))
        for client in reversed(clients):
            client.finish(SETTLE_S / 2)
        _raise_failure(clients)
        reckon(table, cluster.names, account)
        restart_all(cluster)
        parts = reckon(table, cluster.names, account)
        assert_equal_to_the_fold(cluster, table)
        wait_for(lambda: not staging(cluster), "nothing is left in staging", SETTLE_S)
        rows = sum(len(ids) for ids in account.acknowledged.values())
        return Report(
            plan.seed, dict(faults), dict(account.answers), rows, len(account.open), parts, time.monotonic() - began
        )


def _failed(clients: Sequence[Writer | Changer]) -> bool:
    return any(client.failure is not None for client in clients)


def _raise_failure(clients: Sequence[Writer | Changer]) -> None:
    for client in clients:
        if client.failure is not None:
            raise client.failure


def restart_all(cluster: LocalCluster) -> None:
    """Stop every replica in order and start it again."""
    for name in cluster.names:
        cluster.stop(name)
        cluster.start(name)


def reckon(table: Table, names: tuple[str, ...], account: Account) -> int:
    """Check what every replica shows against what the writers were told; return the number of parts."""
    snapshots = wait_until_equal(table, names)
    expected = {row: 1 for ids in account.acknowledged.values() for row in ids}
    for name in names:
        ids = Counter(table.replica(name).to_arrow(columns=["id"])["id"].to_pylist())
        twice = [row for row, count in ids.items() if count > 1]
        assert not twice, f"{name} has rows twice: {twice[:5]}"
        missing = [row for row in expected if row not in ids]
        assert not missing, f"{name} lacks {len(missing)} acknowledged rows: {missing[:5]}"
        for token, attempt in account.open.items():
            present = sum(row in ids for row in attempt)
            assert present in (0, len(attempt)), f"{name} has {present} of {len(attempt)} rows of {token}"
        known = set(expected).union(*account.open.values()) if account.open else set(expected)
        strangers = [row for row in ids if row not in known]
        assert not strangers, f"{name} has rows that nobody inserted: {strangers[:5]}"
    return len(snapshots[names[0]].parts)


def wait_until_equal(table: Table, names: tuple[str, ...]) -> dict[str, Snapshot]:
    """Wait until every replica shows the same parts at the same index, up to the log's tail."""
    deadline = time.monotonic() + SETTLE_S
    why = "nothing was asked yet"
    while time.monotonic() < deadline:
        try:
            tail = table.status().log_tail
            snapshots = {name: table.replica(name).snapshot(min_index=tail - 1, timeout_s=10.0) for name in names}
        except ReplitreeError as error:
            why = str(error)
            threading.Event().wait(0.2)
            continue
        contents = {name: content(snapshot) for name, snapshot in snapshots.items()}
        if len({frozenset(parts.items()) for parts in contents.values()}) == 1:
            return snapshots
        sizes = {name: len(parts) for name, parts in contents.items()}
        why = f"different parts: {sizes}"
        threading.Event().wait(0.2)
    raise AssertionError(f"the replicas are not equal after {SETTLE_S:g} s: {why}; {table.status()}")


def content(snapshot: Snapshot) -> dict[str, str]:
    """The content hash of every part of a snapshot."""
    return {part.part: part.manifest.content_hash for part in snapshot.parts}


def staging(cluster: LocalCluster) -> list[Path]:
    """Return what lies in staging: after a restart nothing, but for merges on their way."""
    return sorted(cluster.folder.glob("*/data/tables/*/staging/*"))


def assert_equal_to_the_fold(cluster: LocalCluster, table: Table) -> None:
    """Every replica shows the parts that the log says, once it has executed all of it."""
    coordination = ZooKeeperCoordination(cluster.url)
    try:
        wait_for(
            lambda: _is_the_fold(coordination, cluster, table), "every replica shows the fold of the log", SETTLE_S
        )
    finally:
        coordination.close()


def _is_the_fold(coordination: ZooKeeperCoordination, cluster: LocalCluster, table: Table) -> bool:
    place = layout.Table(layout.table_path(coordination.url.root, table.name))
    names = coordination.perform(Children(layout.log(place))) or ()
    paths = tuple(f"{layout.log(place)}/{name}" for name in names)
    nodes = coordination.perform(GetMany(paths)).nodes
    log = [
        (layout.index_of(place, path), decode_entry(node.value, path))
        for path, node in zip(paths, nodes, strict=True)
        if node is not None
    ]
    expected = {part.name for part in fold(log)}
    return all(
        {part.part for part in table.replica(name).snapshot(min_index=len(log) - 1).parts} == expected
        for name in cluster.names
    )


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
    """Wait until a condition holds; fail with `what` when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not in {deadline_s:g} s: {what}"
        threading.Event().wait(0.02)


def as_table(ids: range) -> pa.Table:
    """Rows of the workload's schema."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "writer": pa.array([0] * len(ids), pa.int32()),
            "note": pa.array(["x"] * len(ids), pa.string()),
        }
    )
