"""The lock of a blob directory: it is held during each request, and names the process that last changed the directory.

::

    <directory>/lock    16 bytes: the mark of the process that last changed the directory, or FAILED

A process writes its own mark, under the lock, before it changes anything.  So a process that finds its own mark knows that
nothing has changed since, and need not read again what others may have written.  Another file in the lock's place, as when a
copy of the directory was put there, counts as a change, whatever it contains; so does a lock without a mark.  The process keeps
the last held lock open; when it reads the directory it checks that the lock is still the one at its path
(`DirectoryLock.look`).

A process that could not sync its writes marks the lock as `FAILED`, and no process uses the directory any more: a read may show
bytes that are not on the disk.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

from replitree.errors import StoreError
from replitree.tablet.group.admission import MEND_IT

MARK_BYTES = 16
UNMARKED = bytes(MARK_BYTES)
FAILED = b"a sync failed!\r\n"
assert len(FAILED) == MARK_BYTES


class Descriptor:
    """An open file, closed when the last reference to it is gone.

    Parameters
    ----------
    path
        Which file.
    flags
        As of `os.open`.

    Raises
    ------
    OSError
        It can't be opened.
    """

    def __init__(self, path: str, flags: int) -> None:
        self.number = os.open(path, flags | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class DirectoryLock:
    """Keeps others out: other processes, and other objects of this one.  Threads that share an object need a lock beside it.

    Parameters
    ----------
    path
        The lock's file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._mark = secrets.token_bytes(MARK_BYTES)
        self._file: Descriptor | None = None
        self._identity = (-1, -1)
        self._is_marked = False
        self._given_up: str | None = None

    def acquire(self) -> bool:
        """Wait for the lock that was held the last time; tell whether nothing has changed since this object marked it.

        Raises
        ------
        OSError
            There is no such file.
        StoreError
            A sync has failed here, or it was given up.
        """
        if self._given_up is not None:
            raise StoreError(self._given_up)
        file = self._file
        if file is None:
            file = self._file = Descriptor(self._path, os.O_RDWR)
            # Another file than before: what is known was read under the old one.
            found, self._is_marked = os.fstat(file.number), False
            self._identity = found.st_dev, found.st_ino
        # It ends with the process, however that ends.
        fcntl.flock(file.number, fcntl.LOCK_EX)
        try:
            mark = os.pread(file.number, MARK_BYTES, 0)
        except OSError:
            self.release()
            raise
        self._is_marked &= mark == self._mark
        if mark == FAILED:
            self.release()
            # Another directory may come in its place.
            self._file = None
            folder = Path(self._path).parent
            raise StoreError(f"{folder} could not be synced once and is not used any more: {MEND_IT}")
        return self._is_marked

    def look(self) -> bool:
        """Hold the lock that is at the path now, whichever was acquired; tell as `acquire`, and raise as it."""
        found = os.stat(self._path)  # noqa: PTH116 - for every request
        # The lock was exchanged, with its directory most likely: the one at the path is the one that counts.
        if (found.st_dev, found.st_ino) != self._identity:
            self.release()
            self._file = None
            return self.acquire()
        return self._is_marked

    def mark(self) -> None:
        """Say that this object is about to change something, or knows all that there is.  Only while the lock is held.

        Raises
        ------
        OSError
            The disk refused.
        """
        if not self._is_marked:
            assert self._file is not None
            # Not synced: after a crash of the machine every process begins anew anyway.
            os.pwrite(self._file.number, self._mark, 0)
            self._is_marked = True

    def give_up(self, why: str) -> None:
        """Refuse to acquire it from now on, for this reason."""
        self._given_up = why

    def mark_failed(self) -> None:
        """Forbid every process to use the directory, if the disk still takes that write.  Only while the lock is held."""
        assert self._file is not None
        with suppress(OSError):
            os.pwrite(self._file.number, FAILED, 0)
            os.fsync(self._file.number)
        self._is_marked = False

    def forget(self) -> None:
        """Take that this object does not know any more what there is."""
        self._is_marked = False

    def release(self) -> None:
        """Release it, if this object has acquired it."""
        if self._file is not None:
            fcntl.flock(self._file.number, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; only while the lock is not held."""
        self._file, self._is_marked = None, False
