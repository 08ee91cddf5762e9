"""A trace of what one process does at coordination: every commit before it is sent, and what became of it.

Format 1, JSON lines, one file for each process, named `<replica>-<process>-<time>.jsonl`:

* the first line is a `TraceHead`
* `CommitSent` stands in the file before the request is on its way: a process that is killed leaves it behind without a
  `CommitEnded`
* `CommitEnded` says what coordination answered, and at which place of its own order: the transaction number (zxid) of the
  answer
* `Told` is what the client of an insert heard, and up to where the process had seen what coordination did by then: no answer
  comes from what is later in that order

No row, no predicate and no secret is in a trace (`trace_hiding`).  A commit costs about a tenth of a millisecond.  Nothing is
synced, so a loss of power may take the last lines.  A trace that has reached `BYTES_MAX`, or that the disk takes no more of,
ends: the process goes on.

`replitree verify bridge --trace` reads the traces of all replicas together.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from replitree import private
from replitree.coordination.trace_hiding import hide_path, hide_value
from replitree.errors import StoreError
from replitree.protocol.core import effects as fx

FORMAT = 1

BYTES_MAX = 4 << 30
"""A trace ends at this size."""

SUFFIX = ".jsonl"


class TraceHead(msgspec.Struct, frozen=True, tag="head", tag_field="kind"):
    """Whose trace it is."""

    replica: str
    format: int = FORMAT


class TraceOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operation of a commit: `do` is check, create, set or delete."""

    do: str
    path: str
    value: str = ""
    version: int = -1
    ephemeral: bool = False
    sequential: bool = False

    def operation(self) -> fx.Operation:
        """Return it as it was."""
        match self.do:
            case "check":
                return fx.Check(self.path, self.version)
            case "create":
                return fx.Create(self.path, self.value.encode(), ephemeral=self.ephemeral, sequential=self.sequential)
            case "set":
                return fx.Set(self.path, self.value.encode(), self.version)
        return fx.Delete(self.path, self.version)


class CommitSent(msgspec.Struct, frozen=True, tag="sent", tag_field="kind"):
    """A commit that is about to be sent, by its number in the trace; `session` owns what is ephemeral in it."""

    number: int
    session: int
    steps: tuple[TraceOperation, ...]


class CommitEnded(msgspec.Struct, frozen=True, tag="ended", tag_field="kind", omit_defaults=True):
    """The outcome of a commit: `outcome` is applied, refused or unknown.

    `created` are the paths of what an applied one has created.
    """

    number: int
    outcome: str
    zxid: int = 0
    created: tuple[str, ...] = ()


class Told(msgspec.Struct, frozen=True, tag="told", tag_field="kind", omit_defaults=True):
    """An answer to a client: its insert is in the table at `index`, and was `settled` there if it has a quorum."""

    table: str
    zxid: int
    index: int
    settled: int | None = None


Line: TypeAlias = TraceHead | CommitSent | CommitEnded | Told

_encode = msgspec.json.Encoder().encode


class CommitTrace:
    """Writes the trace of one process.  Any thread may use it.

    Parameters
    ----------
    folder
        Where to; it is made if need be.
    replica
        Whose trace it is.
    bytes_max
        At which size it ends.

    Raises
    ------
    StoreError
        The file can't be made.
    """

    def __init__(self, folder: Path, replica: str, bytes_max: int = BYTES_MAX) -> None:
        self.file = folder / f"{replica}-{os.getpid()}-{time.time_ns()}{SUFFIX}"
        try:
            private.make_folder(folder, parents=True, exist_ok=True)
            self._output = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"the trace {self.file} can't be written: {error.strerror}; change `trace`") from error
        self._left = bytes_max
        self._number = 0
        self._lock = threading.Lock()
        self.seen: Callable[[], int] = lambda: 0
        """The last transaction that the process has seen; its performer sets it."""
        self._write(TraceHead(replica))

    @property
    def is_over(self) -> bool:
        """Whether nothing is written any more."""
        return self._left <= 0

    def sent(self, session: int, operations: Sequence[fx.Operation]) -> int:
        """Write down a commit that is about to be sent; return its number."""
        steps = tuple(map(_step, operations))
        # Under the lock, so that numbers are in order in the file.
        with self._lock:
            number, self._number = self._number, self._number + 1
            self._write(CommitSent(number, session, steps))
        return number

    def ended(self, number: int, outcome: fx.Committed, zxid: int) -> None:
        """Write down what became of a commit."""
        match outcome:
            case fx.Applied(created):
                line = CommitEnded(number, "applied", zxid, tuple(map(hide_path, created)))
            case fx.Refused():
                line = CommitEnded(number, "refused", zxid)
            case _:
                line = CommitEnded(number, "unknown")
        with self._lock:
            self._write(line)

    def told(self, table: str, answer: fx.ClientAnswer) -> None:
        """Write down what a client of an insert into the table at this path hears, if it hears where that is."""
        if isinstance(answer, fx.Inserted | fx.Duplicate) and answer.index is not None:
            # Before the line is written: what the client hears can't come from anything later.
            zxid = self.seen()
            with self._lock:
                self._write(Told(table, zxid, answer.index, answer.settled))

    def close(self) -> None:
        """End the trace."""
        with self._lock:
            if self._output >= 0:
                os.close(self._output)
            self._output, self._left = -1, 0

    def _write(self, line: Line) -> None:
        if self._left <= 0:
            return
        data = _encode(line) + b"\n"
        # Also when the write fails: the trace ends in any case.
        self._left -= len(data)
        try:
            whole = os.write(self._output, data) == len(data)
        except OSError:
            whole = False
        if not whole:
            # The disk takes no more: readers see the trace up to here.
            self._left = 0


def _step(operation: fx.Operation) -> TraceOperation:
    path = hide_path(operation.path)
    match operation:
        case fx.Check(_, version):
            return TraceOperation("check", path, version=version)
        case fx.Create(_, value, ephemeral, sequential):
            return TraceOperation("create", path, hide_value(operation.path, value), -1, ephemeral, sequential)
        case fx.Set(_, value, version):
            return TraceOperation("set", path, hide_value(operation.path, value), version)
    return TraceOperation("delete", path, version=operation.version)
