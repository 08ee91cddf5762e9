"""Histories written by hand, each with exactly one thing wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replitree.wire.history_format import Operation, Ranges

A, B, C = ((1, 2),), ((3, 4),), ((5, 6),)
AB: Ranges = ((1, 4),)


def insert(client: str, call: int, answer: int | None, rows: Ranges, outcome: Any = "ok", **more: Any) -> Operation:
    """Return an insert."""
    return Operation("insert", client, "t", call, outcome, answer, rows=rows, **more)


def read(
    client: str, call: int, answer: int | None, rows: Ranges, level: Any = "linearizable", **more: Any
) -> Operation:
    """Return a read that was answered."""
    more.setdefault("outcome", "ok")
    return Operation("read", client, "t", call, answer=answer, rows=rows, level=level, **more)


@dataclass(frozen=True, slots=True)
class Known:
    """A history and what is wrong with it."""

    rule: str
    anomaly: str
    operations: tuple[Operation, ...]
    fewest: int


def known(rule: str, anomaly: str, fewest: int, *operations: Operation) -> Known:
    """Return a history with its verdict."""
    return Known(rule, anomaly, operations, fewest)


KNOWN = {
    "a row that nobody inserted": known(
        "S1", "garbage_read", 1, insert("x", 0, 10, A), read("y", 20, 30, ((1, 2), (9, 9)), "eventual")
    ),
    "an insert that was refused": known(
        "S2", "aborted_read", 2, insert("x", 0, 10, A, "failed"), read("y", 20, 30, A, "eventual")
    ),
    "rows twice in a read": known(
        "S3", "duplicate_rows", 1, insert("x", 0, 10, A), read("y", 20, 30, ((1, 2), (2, 2)), "eventual")
    ),
    "an insert acknowledged at two positions": known(
        "S3", "duplicate_rows", 2,
        insert("x", 0, 10, A, index=3, token="a"), insert("x", 20, 30, A, index=5, token="a"),
    ),
    "half an insert": known("S4", "torn_insert", 2, insert("x", 0, 10, A), read("y", 5, 30, ((2, 2),), "eventual")),
    "half an insert of several partitions": known(
        "S4", "torn_insert", 2,
        insert("x", 0, 10, ((1, 2), (8, 8))), insert("z", 0, 10, ((3, 7),)), read("y", 5, 30, ((1, 7),), "eventual"),
    ),
    "no closing read has it": known(
        "S5", "lost_write", 2, insert("x", 0, 10, A), read("y", 50, 60, (), "eventual", closing=True, replica="r1")
    ),
    "replicas end differently": known(
        "S6", "divergence", 3,
        insert("x", 0, None, A, "unknown"),
        read("y", 50, 60, A, "eventual", closing=True, replica="r1"),
        read("z", 50, 60, (), "eventual", closing=True, replica="r2"),
    ),
    "an insert whose quorum failed": known(
        "S7", "dirty_read", 2, insert("x", 0, 10, A, "failed", index=0, quorum=2), read("y", 5, 9, A, "sequential")
    ),
    "an insert whose quorum failed, at a position that nobody told": known(
        "S7", "dirty_read", 2, insert("x", 0, 10, A, "failed", quorum=2), read("y", 5, 9, A, "as_of", index=3)
    ),
    "an insert whose quorum is open": known(
        "S7", "dirty_read", 2, insert("x", 0, 40, A, index=0, settled=4, quorum=2), read("y", 5, 9, A, index=2)
    ),
    "too few replicas had it": known(
        "S8", "ack_without_quorum", 1, insert("x", 0, 10, A, quorum=2, holders=("r1",), token="a")
    ),
    "one replica is silent for good": known(
        "P1", "wedged_replica", 2,
        read("y", 50, 60, (), "eventual", closing=True, replica="r1"),
        read("z", 50, 60, (), "eventual", closing=True, replica="r2", outcome="failed"),
    ),
    "all are silent for good": known(
        "P2", "unavailable", 1, read("z", 50, 60, (), "eventual", closing=True, replica="r2", outcome="failed")
    ),
    "an acknowledged insert is not seen": known(
        "L1", "stale_read", 2, insert("x", 0, 10, A), read("y", 20, 30, ())
    ),
    "an insert is seen before it was asked for": known(
        "L2", "future_read", 2, insert("x", 20, 30, A), read("y", 0, 10, A, "eventual")
    ),
    "a strict read shows the first try of an insert, which fails": known(
        "L2", "future_read", 2,
        insert("x", 0, 30, A, "failed", quorum=2), read("y", 10, 20, A, "sequential"), insert("x", 40, 50, A, quorum=2),
    ),
    "a read shows what is above its position": known(
        "L2", "future_read", 2, insert("x", 0, 30, A, index=7), read("y", 5, 20, A, "as_of", index=7)
    ),
    "the log has a hole": known(
        "L3", "hole", 3,
        insert("x", 0, 30, A, index=1), insert("z", 0, 30, B, index=2), read("y", 10, 20, B),
    ),
    "a read shows an insert that waited above its position": known(
        "L2", "future_read", 2, insert("x", 0, 30, A, index=7, quorum=2), read("y", 5, 20, A, "as_of", index=7)
    ),
    "the log has a hole below an insert that waited": known(
        "L3", "hole", 3,
        insert("x", 0, 30, A, index=1), insert("z", 0, 30, B, index=2, quorum=2), read("y", 10, 20, B),
    ),
    "a read lacks what is below its position": known(
        "L3", "hole", 2, insert("x", 0, 30, A, index=6), read("y", 5, 20, (), "as_of", index=7)
    ),
    "what was seen is gone": known(
        "L4", "nonmonotonic_read", 3,
        insert("x", 0, None, A, "unknown"), read("y", 10, 20, A), read("z", 30, 40, ()),
    ),
    "two reads disagree about the order": known(
        "L5", "long_fork", 4,
        insert("x", 0, 90, A), insert("z", 0, 90, B), read("y", 10, 40, A), read("w", 10, 40, B),
    ),
    "the second insert without the first": known(
        "L6", "write_order_inversion", 3,
        insert("x", 0, 10, A), insert("z", 20, 30, B), read("y", 40, 50, B, "sequential"),
    ),
    "positions against the order of time": known(
        "L6", "write_order_inversion", 2, insert("x", 0, 10, A, index=5), insert("z", 20, 30, B, index=4)
    ),
    "a client goes back": known(
        "Q1", "nonmonotonic_read", 3,
        insert("x", 0, None, A, "unknown"),
        read("y", 10, 20, A, "sequential", replica="r1"), read("y", 30, 40, (), "sequential", replica="r2"),
    ),
    "a client does not see its own insert": known(
        "Q2", "read_your_writes", 2, insert("x", 0, 10, A), read("x", 20, 30, (), "sequential")
    ),
    "a replica goes back": known(
        "Q4", "nonmonotonic_read", 3,
        insert("x", 0, None, A, "unknown"),
        read("y", 10, 20, A, "sequential", replica="r1"), read("z", 30, 40, (), "sequential", replica="r1"),
    ),
    "reads of some rows in a circle": known(
        "W1", "no_order", 6,
        insert("x", 0, 90, A), insert("z", 0, 90, B), insert("w", 0, 90, C),
        read("p", 1, 80, A, "sequential", scope=AB),
        read("q", 1, 80, B, "sequential", scope=((3, 6),)),
        read("s", 1, 80, C, "sequential", scope=((1, 2), (5, 6))),
    ),
}  # fmt: skip
"""What is wrong, and a history with nothing else wrong."""

FINE = {
    "nothing": (),
    "a concurrent insert is seen or not": (
        insert("x", 0, 50, A), read("y", 10, 20, A), read("z", 10, 30, ()), read("w", 60, 70, A),
    ),
    "an unknown insert that shows up late": (
        insert("x", 0, 10, A, "unknown"), read("y", 20, 30, ()), read("y", 40, 50, A),
    ),
    "an unknown insert that never shows up": (insert("x", 0, 10, A, "unknown"), read("y", 20, 30, ())),
    "a retry is the same insert": (
        insert("x", 0, 10, A, "unknown", token="a"), insert("x", 20, 30, A, token="a"), read("y", 40, 50, A),
    ),
    "a retry after a failure": (insert("x", 0, 10, A, "failed"), insert("x", 20, 30, A), read("y", 40, 50, A)),
    "a sequential read lags": (insert("x", 0, 10, A), read("y", 20, 30, (), "sequential")),
    "an eventual read shows anything that was inserted": (
        insert("x", 0, 10, A), insert("x", 20, 30, B), read("y", 40, 50, B, "eventual"), read("y", 60, 70, A, "eventual"),
    ),
    "an eventual read shows an insert that waits, and then fails": (
        insert("x", 0, 90, A, "failed", quorum=2), read("y", 10, 20, A, "eventual"), read("z", 20, 30, ()),
    ),
    "an eventual read shows the first try of an insert, which fails": (
        insert("x", 0, 30, A, "failed", quorum=2), read("y", 10, 20, A, "eventual"), insert("x", 40, 50, A, quorum=2),
    ),
    "an insert that waits counts from a position that nobody told": (
        insert("x", 0, 90, A, index=0, quorum=2), insert("z", 0, 10, B, index=1),
        read("y", 20, 30, B, index=2), read("y", 40, 50, AB, index=5),
    ),
    "an open insert is passed over by later ones": (
        insert("x", 0, 90, A, index=0, settled=3, quorum=2), insert("z", 0, 10, B, index=1), read("y", 20, 30, B, index=2),
    ),
    "a group has one position": (
        insert("x", 0, 10, A, index=0), insert("z", 0, 10, B, index=0), read("y", 20, 30, AB, index=1),
    ),
    "a read as of an old position": (
        insert("x", 0, 10, A, index=0), insert("x", 20, 30, B, index=1), read("y", 40, 50, A, "as_of", index=1),
    ),
    "tables are judged by themselves": (
        insert("x", 0, 10, A), Operation("read", "y", "other", 20, "ok", 30, "linearizable"),
    ),
    "partitions too": (
        insert("x", 0, 10, A, partition="p"), read("y", 20, 30, (), partition="q"),
    ),
    "reads of some rows": (
        insert("x", 0, 10, A), insert("x", 20, 30, B), read("y", 40, 50, A, scope=A), read("z", 40, 50, B, scope=((3, 9),)),
    ),
}  # fmt: skip
"""Histories in which every promise was kept."""
