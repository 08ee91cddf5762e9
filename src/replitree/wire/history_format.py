r"""The file of a history: JSON lines, a header and then one operation a line.

::

    {"format": "replitree-history", "version": 1, "clock": "3f1c…"}
    {"kind": "insert", "client": "c1", "table": "t", "call": 100, "outcome": "ok", "answer": 250, "rows": [[1, 3]], "index": 0}
    {"kind": "read", "client": "c2", "table": "t", "call": 300, "outcome": "ok", "answer": 420, "level": "linearizable",
     "rows": [[1, 3]], "index": 1}

* Times are nanoseconds of one monotonic clock, which `clock` names; files of one clock are judged together.
* A row has one number for ever, and numbers are written as ranges ``[first, last]``.  An insert that is tried again has the
  same rows.  In a read a row that is there twice is in two ranges.
* ``failed`` says that it certainly did not happen and never will; who is not sure says ``unknown``.
* A client does one thing after the other.  An insert may have two lines with one `call`: the first, without an answer, is
  written before it is asked for, so that a client that is killed leaves it behind as unknown.

Absent on purpose: removal of rows.  A history is of tables from which nothing is deleted while it is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from replitree.errors import BadInput

FORMAT = "replitree-history"
VERSION = 1

NUMBER_MAX = (1 << 62) - 1
"""Highest number of a row, a time or an index."""

Kind = Literal["insert", "read"]
Level = Literal["eventual", "sequential", "linearizable", "as_of"]
Outcome = Literal["ok", "failed", "unknown"]
Ranges = tuple[tuple[int, int], ...]

LEVELS: tuple[Level, ...] = ("eventual", "sequential", "linearizable", "as_of")
OUTCOMES: tuple[Outcome, ...] = ("ok", "failed", "unknown")


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line.

    Attributes
    ----------
    format, version
        `FORMAT` and `VERSION`.
    clock
        Names the clock of all times in the file.
    """

    format: str
    version: int
    clock: str


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One operation of a client: its request and its answer.

    Attributes
    ----------
    kind, client, table
        The kind of operation, the client that asked for it, and the table.
    call, answer
        When it was asked for, and when the client stopped waiting; None when it never did.
    outcome
        What it heard.
    level
        What a read was promised.
    rows
        The rows of an insert, or those that a read showed.
    scope
        The rows that a read was about; None for all of the table.
    index
        Position of an insert's entry in the log; of a read: what the log has below it is shown.
    settled
        Position of the entry by which an insert counts, when that is not its own.
    token
        Names an insert, however often it is tried.
    replica
        The replica that answered.
    partition
        The part of the table that it is about, when that is judged by itself.
    quorum, holders
        How many replicas had to have an insert when it was acknowledged, and which had it.
    closing
        Asked after all faults were over and every replica had caught up.
    """

    kind: Kind
    client: str
    table: str
    call: int
    outcome: Outcome
    answer: int | None = None
    level: Level | None = None
    rows: Ranges = ()
    scope: Ranges | None = None
    index: int | None = None
    settled: int | None = None
    token: str | None = None
    replica: str | None = None
    partition: str | None = None
    quorum: int = 1
    holders: tuple[str, ...] | None = None
    closing: bool = False


def to_ranges(numbers: list[int]) -> Ranges:
    """Return numbers of rows as ranges in ascending order; a number that is there twice is in two ranges.

    >>> to_ranges([3, 1, 2, 9, 2])
    ((1, 3), (2, 2), (9, 9))
    """
    found: list[list[int]] = []
    repeated: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        elif found and number == found[-1][1]:
            repeated.append((number, number))
        else:
            found.append([number, number])
    return tuple(sorted([*((first, last) for first, last in found), *repeated]))


def check_numbers(found: Sequence[Any], key: str, table: str) -> None:
    """Do nothing if a history can have rows of these numbers.

    Raises
    ------
    BadInput
        One of them is null, negative or too high; names table, column and number.
    """
    for wrong in found:
        if isinstance(wrong, int) and 0 <= wrong <= NUMBER_MAX:
            continue
        raise BadInput(
            f"column {key} of table {table} has {wrong}; it numbers the rows of a history, with whole numbers from 0 to"
            f" {NUMBER_MAX}: record with Recorder(file, key=…), another column"
        )


def encode_header(clock: str) -> bytes:
    """Return the first line of a file."""
    return msgspec.json.encode(Header(FORMAT, VERSION, clock)) + b"\n"


def encode_line(operation: Operation) -> bytes:
    """Return an operation as a line."""
    return msgspec.json.encode(operation) + b"\n"
