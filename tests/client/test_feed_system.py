"""The change feed with real processes that are killed while rows come, change and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import ReplitreeError
from tests.waiting import wait_for

pytestmark = pytest.mark.system

ROUNDS = 4
"""Rounds of changes, each while a replica is down."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"old_parts_lifetime_s": 0.0}
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3, durable=False, settings=settings) as cluster:
        yield cluster


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_pylist())


def changed(table: Table, start: int, end: int) -> Counter[str]:
    """The rows by which a table has changed; those that left count below 0."""
    found = Counter[str]()
    with table.changes(start, end) as changes:
        for row in changes.to_arrow().to_pylist():
            kind, _, _ = (row.pop(name) for name in ("_change_type", "_commit_version", "_commit_timestamp"))
            found[repr(row)] += 1 if kind in {"insert", "update_postimage"} else -1
    return Counter({row: count for row, count in found.items() if count})


def test_the_feed_is_exact_at_every_replica_through_kills(running: LocalCluster) -> None:
    table = running.create_table("t", "k bigint not null, s string", order_by="k", wait_replicas=3, feed="1 day")
    known: dict[int, Counter[str]] = {0: Counter()}
    for number in range(ROUNDS):
        victim = running.names[number % len(running.names)]
        table.insert({"k": list(range(10 * number, 10 * number + 10)), "s": ["a"] * 10}, quorum=2)
        # While one is away the others change the rows, and merge the parts that it has not seen.
        running.kill(victim)
        table.insert({"k": [1000 + number], "s": [None]}, quorum=2)
        table.update({"s": "concat(s, 'x')"}, f"k % 3 = {number % 3}", timeout_s=60.0)
        table.delete(f"k = {10 * number + 5}", timeout_s=60.0)
        table.optimize(final=True)
        snapshot = table.snapshot(level="linearizable")
        known[snapshot.index] = counted(snapshot.to_arrow())
        running.start(victim)
    ends = sorted(known)

    def wrong(name: str) -> list[tuple[int, int]]:
        """Ranges of which a replica does not give the rows yet."""
        alone, found = table.replica(name), list[tuple[int, int]]()
        for start, end in pairwise(ends):
            try:
                changes = changed(alone, start, end)
            except ReplitreeError:
                found.append((start, end))
                continue
            # Whatever it gives is exact; what it lacks it fetches.
            rows = Counter(known[start])
            rows.update(changes)
            assert {row: count for row, count in rows.items() if count} == known[end], (name, start, end)
        return found

    for name in running.names:
        wait_for(lambda name=name: not wrong(name), f"{name} has the whole feed", 120.0)  # type: ignore[misc]
    with table.changes(0) as changes:
        times = changes.to_arrow()["_commit_timestamp"].to_pylist()
    assert times == sorted(times)
    running.drop_table("t")
