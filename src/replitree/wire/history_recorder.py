"""Recorder: clients write down what they ask and hear.

Guarantees: an insert is in the file before it is asked for, so that a client that is killed leaves it behind as unknown; each
line is one write to the end of the file, so that threads do not mix theirs; nothing else of the client changes.

Each thread is a client of its own.  Processes write files of their own, which are judged together::

    recorder = Recorder("history.jsonl")
    with recorder.insert("t", [1, 2, 3], token="a") as asked:
        asked.settle(index=table.insert(rows, token="a").index)
    with recorder.read("t", "linearizable") as asked:
        asked.show(numbers, index=…)

A process that ends with each insert, as Spark's commits do, appends to the file of another one (``append``).  What a killed
process has left of a line goes with the next one: it was killed before it asked for anything.
"""

from __future__ import annotations

import fcntl
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

HALF_LINE_BYTES = 64 << 10
"""Bytes that are read at once to find where a line begins."""

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
    append
        Write behind what other recorders of this machine have in the file; it is made when it is not there.

    Raises
    ------
    BadInput
        The file is there already, or can't be made.  With `append`: it can't be opened, or is of another run of the machine.
    """

    def __init__(
        self, file: str | os.PathLike[str], key: str | None = None, name: str | None = None, *, append: bool = False
    ) -> None:
        self.key = key
        self.file = Path(file).absolute()
        """Where to."""
        self._name = name or f"{socket.gethostname()}-{os.getpid()}-{next(_numbers)}"
        self._lock = threading.Lock()
        self._clients = threading.local()
        self._count = 0
        self._file = _opened(self.file, append=append)

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
        self,
        table: str,
        level: Level,
        *,
        replica: str | None = None,
        index: int | None = None,
        closing: bool = False,
        call: int | None = None,
    ) -> Iterator[OpenOperation]:
        """Record the read that is done inside.

        Parameters
        ----------
        table, level, replica, index, closing
            What is asked for; see `Operation`.
        call
            When it was asked for, in nanoseconds of the monotonic clock, after this thread's last operation; by default now.
        """
        asked = OpenOperation(
            Operation(
                "read", self._client(), table, call or time.monotonic_ns(), "unknown", level=level,
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
            if self._file < 0:
                return
            # One write to the end of the file, by one process at a time: lines do not mix, and what precedes is whole.
            with _locked(self._file):
                _drop_half_line(self._file)
                os.write(self._file, encode_line(operation))


def _opened(file: Path, *, append: bool) -> int:
    """Open a file that begins with the header.

    Raises
    ------
    BadInput
        It is there already, or can't be made.  With `append`: it can't be opened, or its times are of another clock.
    """
    header = encode_header(clock())
    # Never an old file: all lines of a history are of the one clock that its first line names.
    others = 0 if append else os.O_EXCL
    try:
        opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | others, 0o644)
    except FileExistsError as error:
        raise BadInput(f"{file} is there already: name another file for this history, or remove it") from error
    except OSError as error:
        raise BadInput(f"{file} can't be made: {error.strerror}") from error
    # Two may have found no file at once: the first one that has the lock writes the header.
    with _locked(opened):
        begin = os.pread(opened, len(header), 0)
        if not begin:
            os.write(opened, header)
    if begin not in (b"", header):
        os.close(opened)
        raise BadInput(
            f"{file} has no history of this run of this machine, whose times could not be compared: name another file"
        )
    return opened


@contextmanager
def _locked(file: int) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _drop_half_line(file: int) -> None:
    """Remove the end of a file that a process was killed in the middle of writing.  The file is locked."""
    end = os.fstat(file).st_size
    if os.pread(file, 1, end - 1) == b"\n":
        return
    # From the end, some kilobytes at a time: histories are long.
    while end > 0:
        begin = max(0, end - HALF_LINE_BYTES)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            os.ftruncate(file, begin + found + 1)
            return
        end = begin


def clock() -> str:
    """Return the name of this machine's monotonic clock."""
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()}, process {os.getpid()}"
