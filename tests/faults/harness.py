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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from replitree.client.cluster import LocalCluster
from replitree.client.snapshot import Snapshot
from replitree.client.table import Table
from replitree.errors import ReplitreeError
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
    """

    seed: int
    rounds: int
    seconds: float
    replicas: int = 3
    writers: int = 4
    kinds: tuple[str, ...] = KINDS


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
        table = cluster.create_table("t", SCHEMA, order_by="id", settings={"parts_delay": 90_000, "parts_max": 100_000})
        account = Account()
        writers = [Writer(number, table, cluster.names, account, plan.seed) for number in range(plan.writers)]
        for writer in writers:
            writer.start()
        nemesis = Nemesis(cluster, table, random.Random(plan.seed), plan.kinds)
        faults = nemesis.run(plan.rounds, lambda: time.monotonic() - began > plan.seconds or _failed(writers))
        for writer in writers:
            writer.finish(SETTLE_S / 2)
        _raise_failure(writers)
        parts = reckon(table, cluster.names, account)
        restart_all(cluster)
        assert reckon(table, cluster.names, account) == parts
        assert_no_staging(cluster)
        rows = sum(len(ids) for ids in account.acknowledged.values())
        return Report(
            plan.seed, dict(faults), dict(account.answers), rows, len(account.open), parts, time.monotonic() - began
        )


def _failed(writers: list[Writer]) -> bool:
    return any(writer.failure is not None for writer in writers)


def _raise_failure(writers: list[Writer]) -> None:
    for writer in writers:
        if writer.failure is not None:
            raise writer.failure


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


def assert_no_staging(cluster: LocalCluster) -> None:
    """After a restart nothing is left of inserts that never happened."""
    left = sorted(cluster.folder.glob("*/data/tables/*/staging/*"))
    assert not left, f"staging is left over: {left[:5]}"


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
