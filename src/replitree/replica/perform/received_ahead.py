"""Parts that are received before the executor asks for them: which are on their way, and which thread may touch their folders.

One part is received by one thread at a time: what `fetch` is at work on is not begun, and what was begun `fetch` waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from replitree.protocol.core.effects import FetchPart
from replitree.storage.disk.fetch import ReceivedPart

AHEAD_PARTS_MAX = 64
"""Parts on their way, or received and not asked for yet; when there are so many, the first of the latter is forgotten."""


class ReceivedAhead:
    """The parts of one table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, Future[ReceivedPart | None]] = {}
        self._fetching: set[str] = set()

    def begin(self, fetch: FetchPart, receive: Callable[[], Future[ReceivedPart | None]]) -> None:
        """Have a part received, unless it is already, or is being fetched, or too many are."""
        with self._lock:
            if len(self._begun) >= AHEAD_PARTS_MAX:
                # The oldest one that no entry asked for makes room; its files on disk count as an abandoned fetch.
                found = next((part for part, future in self._begun.items() if future.done()), None)
                if found is not None:
                    del self._begun[found]
            is_new = fetch.part not in self._begun and fetch.part not in self._fetching
            if is_new and len(self._begun) < AHEAD_PARTS_MAX:
                self._begun[fetch.part] = receive()

    @contextmanager
    def taking(self, fetches: Sequence[FetchPart]) -> Iterator[list[ReceivedPart]]:
        """Give what was received of these parts, once it is here whole; meanwhile none of them is begun."""
        with self._lock:
            mine = {fetch.part for fetch in fetches} - self._fetching
            self._fetching |= mine
            begun = {fetch.part: self._begun.pop(fetch.part, None) for fetch in fetches}
        try:
            received = ((fetch, future.result()) for fetch in fetches if (future := begun[fetch.part]) is not None)
            yield [part for fetch, part in received if part is not None and part.manifest.content == fetch.content_hash]
        finally:
            with self._lock:
                self._fetching -= mine
