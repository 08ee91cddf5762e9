"""A cluster whose log is cleaned when a test says so, and what its tests look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from replitree.coordination.port import Coordination
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Get
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.replica.perform.availability import State
from tests.replica.inprocess import ROOT, InProcessCluster, Node, rows, wait_for

KEEP_MIN, KEEP_MAX = 3, 5
TABLE = TablePlace(layout.table_path(ROOT, "t"))


def long_life(
    folder: Path, replicas: int = 2, connect: Callable[[], Coordination] | None = None, **settings: Any
) -> InProcessCluster:
    """Give a cluster that keeps 3 to 5 entries, and has the table `t`, partitioned by `k` in tens."""
    keep = {"min_replicated_logs_to_keep": KEEP_MIN, "max_replicated_logs_to_keep": KEEP_MAX}
    cluster = InProcessCluster(folder, replicas, connect, **{**keep, "clean_log_delay_s": 3600.0, **settings})
    cluster.create_table(partition_by="truncate(10, k)")
    return cluster


def insert(node: Node, first: int, count: int) -> None:
    """Insert `count` times ten rows, from the key `first` on."""
    for number in range(count):
        status, answer = node.insert(rows(first + 10 * number))
        assert (status, answer.get("outcome")) == (200, "inserted"), answer


def clean(node: Node) -> None:
    """Clean the log, whoever leads."""
    table = node.table()
    epoch = table.availability.active_epoch()
    assert epoch is not None
    pulled = table.progress
    tail = log_end(node)
    wait_for(lambda: pulled.place is not None and pulled.place.pointer.index >= tail, f"{node.name} has pulled the log")
    table.cleaner.clean(epoch)


def entries(node: Node) -> tuple[int, ...]:
    """Return the indexes of the entries in the log."""
    names = node.coordination.perform(Children(layout.log(TABLE))) or ()
    return tuple(layout.index_of(TABLE, f"{layout.log(TABLE)}/{name}") for name in names)


def log_end(node: Node) -> int:
    """Return the index after the log's last entry."""
    return max(entries(node), default=-1) + 1


def is_lost(asked: Node, name: str) -> bytes:
    """Return what a replica's `is_lost` says."""
    node = asked.coordination.perform(Get(layout.is_lost(Replica(TABLE, name))))
    assert node is not None
    value: bytes = node.value
    return value


def recoveries(node: Node) -> float:
    """Return how many recoveries a node's process has finished."""
    return float(node.table().metrics.recoveries.labels("t")._value.get())  # noqa: SLF001 - prometheus has no other way


def wait_active(node: Node) -> None:
    def is_active() -> bool:
        is_served = node.server is not None and "t" in node.server._tables  # noqa: SLF001
        return is_served and node.table().availability.state is State.ACTIVE

    wait_for(is_active, f"{node.name} active", 60.0)
