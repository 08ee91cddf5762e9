"""Recorder: clients write down what they ask and hear.

Guarantees: an insert is in the file before it is asked for, so that a client that is killed leaves it behind as unknown; each
line is one write to the end of the file, so that threads do not mix theirs; nothing else of the client changes.

Each thread is a client of its own.  Processes write files of their own, which are judged together::

    recorder = Recorder("history.jsonl")
    with recorder.insert("t", [1, 2, 3], token="a") as asked:
        asked.settle(index=table.insert(rows, token="a").index)
    with recorder.read("t", "linearizable") as asked:
        asked.show(numbers, index=…)
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec

from replitree.errors import BadInput, NotAuthorized, ReplitreeError, TableNotFound, Unavailable
from replitree.wire.history_format import Level, Operation, Outcome, encode_header, encode_line, to_ranges

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Names this run of the machine: all its processes have one monotonic clock."""

CERTAIN = (BadInput, NotAuthorized, TableNotFound, Unavailable)
"""Errors after which nothing was inserted for sure."""

_numbers = count(1)


class OpenOperation:
    """An operation that is under way.

    Parameters
    ----------
    operation
        As it began.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def settle(
        self,
        *,
        index: int | None = None,
        settled: int | None = None,
        replica: str | None = None,
        holders: Iterable[str] | None = None,
    ) -> None:
        """Take down what the answer to an insert says.

        Parameters
        ----------
        index, settled
            Position of its entry, and of the entry by which it counts, when that is another one.
        replica, holders
            The replica that answered, and those that had the insert then.
        """
        known = {"index": index, "settled": settled, "replica": replica}
        found = {name: value for name, value in known.items() if value is not None}
        self.operation = msgspec.structs.replace(self.operation, **found)
        if holders is not None:
            self.operation = msgspec.structs.replace(self.operation, holders=tuple(holders))

    def show(self, rows: Iterable[int], *, index: int | None = None, replica: str | None = None) -> None:
        """Take down what a read showed.

        Parameters
        ----------
        rows
            The numbers of its rows, each as often as it was there.
        index
            Everything below this position was to be shown.
        replica
            The replica that answered.
        """
        self.settle(index=index, replica=replica)
        self.operation = msgspec.structs.replace(self.operation, rows=to_ranges(list(rows)))


class Recorder:
    """Writes a history.  Any thread may use it; each is a client of its own.

    Parameters
    ----------
    file
        Where to; a new file.
    key
        The column that numbers the rows; by default the first one of a table's order key.
    name
        Of this recorder among all; by default its machine, its process and its number in it.

    Raises
    ------
    BadInput
        The file is there already, or can't be made.
    """

    def __init__(self, file: str | os.PathLike[str], key: str | None = None, name: str | None = None) -> None:
        self.key = key
        self._name = name or f"{socket.gethostname()}-{os.getpid()}-{next(_numbers)}"
        self._lock = threading.Lock()
        self._clients = threading.local()
        self._count = 0
        try:
            # Never an old file: all lines of a history are of the one clock that its first line names.
            self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except FileExistsError as error:
            raise BadInput(f"{file} is there already: name another file for this history, or remove it") from error
        except OSError as error:
            raise BadInput(f"{file} can't be made: {error.strerror}") from error
        os.write(self._file, encode_header(clock()))

    @contextmanager
    def insert(
        self, table: str, rows: Iterable[int], *, token: str | None = None, replica: str | None = None, quorum: int = 1
    ) -> Iterator[OpenOperation]:
        """Record the insert that is done inside.

        Parameters
        ----------
        table, rows, token, replica, quorum
            What is inserted; see `Operation`.
        """
        asked = OpenOperation(
            Operation(
                "insert", self._client(), table, time.monotonic_ns(), "unknown", rows=to_ranges(list(rows)),
                token=token, replica=replica, quorum=quorum,
            )
        )  # fmt: skip
        # Before it is asked for: a client that is killed leaves it behind as unknown.
        self._write(asked.operation)
        with self._ended(asked):
            yield asked

    @contextmanager
    def read(
        self, table: str, level: Level, *, replica: str | None = None, index: int | None = None, closing: bool = False
    ) -> Iterator[OpenOperation]:
        """Record the read that is done inside.

        Parameters
        ----------
        table, level, replica, index, closing
            What is asked for; see `Operation`.
        """
        asked = OpenOperation(
            Operation(
                "read", self._client(), table, time.monotonic_ns(), "unknown", level=level,
                replica=replica, index=index, closing=closing,
            )
        )  # fmt: skip
        with self._ended(asked):
            yield asked

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    @contextmanager
    def _ended(self, asked: OpenOperation) -> Iterator[None]:
        outcome: Outcome = "unknown"
        try:
            yield
            outcome = "ok"
        except ReplitreeError as error:
            outcome = "failed" if isinstance(error, CERTAIN) else "unknown"
            raise
        finally:
            # A read changes nothing: one without an answer has only failed.
            if asked.operation.kind == "read" and outcome != "ok":
                outcome = "failed"
            rows = () if asked.operation.kind == "read" and outcome != "ok" else asked.operation.rows
            ended = msgspec.structs.replace(asked.operation, outcome=outcome, answer=time.monotonic_ns(), rows=rows)
            self._write(ended)

    def _client(self) -> str:
        """Return this thread's name among the clients."""
        name: str | None = getattr(self._clients, "name", None)
        if name is None:
            with self._lock:
                self._count += 1
                name = self._clients.name = f"{self._name}-{self._count}"
        return name

    def _write(self, operation: Operation) -> None:
        with self._lock:
            # One write to the end of the file: processes do not mix their lines either.
            if self._file >= 0:
                os.write(self._file, encode_line(operation))


def clock() -> str:
    """Return the name of this machine's monotonic clock."""
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()}, process {os.getpid()}"
