"""Audit records: which token has asked a server to change what, and what became of it; one JSON line each, in a file.

::

    {"time":"2026-01-31T12:00:00.123Z","token":"etl","what":"POST insert","table":"events","id":"load-1","status":200}

The server records all requests whose route needs `write` or `admin`, and every request that a known token may not make (403).
Requests without a valid token are in the server's log (`replitree.replica.http.refusals`), a few of many.

Guarantees: no secret, no row and no condition is recorded; ids are those that clients have chosen, cut at `ID_CHARACTERS_MAX`.
A request never waits for the disk: a thread writes, and when it falls `WAITING_MAX` records behind, further ones are counted
and left out, which the next record says (``"left_out"``).  The file is rotated at `audit_bytes_max` bytes.

Absent on purpose: syncs.  Records of the last seconds before a power loss may be gone.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from replitree import private
from replitree.replica.kit.logs import Log

FILE = "audit.jsonl"
ID_CHARACTERS_MAX = 200
WAITING_MAX = 100_000


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line.

    Attributes
    ----------
    time
        When the answer was given, as ISO 8601 in UTC.
    token
        The name of the token; ``cluster``: the cluster's own.
    what
        Method and route, below the table.
    table, id
        Which table, and what the client calls the request; "": nothing.
    status
        Of the answer: 200, 403 (not permitted), 504 (unknown), ….
    left_out
        Records before this one that were not written.
    """

    time: str
    token: str
    what: str
    table: str = ""
    id: str = ""
    status: int = 0
    left_out: int = 0


class Audit:
    """Writes the records of one server.  `note` may be called on any thread, and never blocks.

    Parameters
    ----------
    folder
        Where the file lies; None: nothing is recorded.
    bytes_max, files
        When the file is rotated, and how many are kept, the one that is written included.
    log
        Returns the log that hears when the file can't be written.
    """

    def __init__(self, folder: Path | None, bytes_max: int, files: int, log: Callable[[], Log]) -> None:
        self._path = None if folder is None else folder / FILE
        self._bytes_max = bytes_max
        self._files = files
        self._log = log
        self._waiting: queue.Queue[AuditRecord | None] = queue.Queue(WAITING_MAX)
        self._left_out = 0
        self._thread: threading.Thread | None = None

    def note(self, token: str, what: str, table: str, known_as: str, status: int) -> None:
        """Record a request that was answered."""
        if self._path is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
            self._thread.start()
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        left_out, self._left_out = self._left_out, 0
        record = AuditRecord(time, token, what, table, known_as[:ID_CHARACTERS_MAX], status, left_out)
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._left_out = left_out + 1

    def close(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _write_all(self) -> None:
        ended = False
        while not ended:
            records = [self._waiting.get()]
            while len(records) < WAITING_MAX and not self._waiting.empty():
                records.append(self._waiting.get())
            ended = records[-1] is None
            try:
                self._write([each for each in records if each is not None])
            except OSError as error:
                self._log().error("audit records are lost", problem=error.strerror or str(error), records=len(records))

    def _write(self, records: Sequence[AuditRecord]) -> None:
        assert self._path is not None, "there is a thread only with a file"
        data = b"".join(msgspec.json.encode(each) + b"\n" for each in records)
        with private.open_file(self._path, "ab") as file:
            file.write(data)
            size = file.tell()
        if size >= self._bytes_max:
            for number in range(self._files - 1, 0, -1):
                older = self._path.with_name(f"{FILE}.{number}")
                newer = self._path if number == 1 else self._path.with_name(f"{FILE}.{number - 1}")
                if newer.exists():
                    newer.replace(older)
            if self._files == 1:
                self._path.unlink()


__all__ = ["FILE", "Audit", "AuditRecord"]
