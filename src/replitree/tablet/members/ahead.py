"""Requests to an object store that start before their answers are needed: the end of a log is read while its fence is raised.

Blobs are never replaced.  So the bytes of a blob that was read before a fence was raised are those that a listing after the
fence names.  A blob that the early read missed, or could not read, is read after the fence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future

from replitree.errors import ReplitreeError
from replitree.tablet.group.ids import BlobId

AHEAD_OBJECTS = 64
AHEAD_BYTES = 32 << 20
"""The end of a log that is read ahead: as many objects as are on their way at once, and as many bytes."""

Blob = tuple[BlobId, bytes | None]


class Ahead:
    """The newest blobs of a channel, on their way.

    Parameters
    ----------
    pool
        Whose threads ask.
    listing
        Returns the blobs that there are, ascending, with the bytes of their objects.
    read
        Reads one.
    """

    def __init__(
        self, pool: Executor, listing: Callable[[], list[tuple[BlobId, int]]], read: Callable[[BlobId], Blob | None]
    ) -> None:
        self._blobs: dict[BlobId, Future[Blob | None]] = {}
        self._beginning = threading.Lock()
        self._pool = pool
        self._listing = listing
        self._read = read
        pool.submit(self._begin)

    def _begin(self) -> None:
        size = 0
        for blob, each in reversed(self._listing()[-AHEAD_OBJECTS:]):
            size += each
            if size > AHEAD_BYTES:
                return
            # `blob` takes the same lock: it finds either no read, or one that was submitted.
            with self._beginning:
                self._blobs[blob] = self._pool.submit(self._read, blob)

    def blob(self, blob: BlobId) -> Blob | None:
        """Return a blob that was read ahead, or is just being read; None when it has to be read.

        A read that has no thread yet is not waited for: the threads of the pool may all belong to the callers that wait.
        """
        with self._beginning:
            coming = self._blobs.get(blob)
        # A read that has not begun is cancelled: the caller reads by itself.
        if coming is None or coming.cancel():
            return None
        try:
            found = coming.result()
        except ReplitreeError:
            # The caller reads it itself, and reports what is wrong then.
            return None
        return found if found is not None and found[1] is not None else None
