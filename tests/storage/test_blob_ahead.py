"""What is read before anybody waits for it: how much, and that nobody waits for what has not begun."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from typing_extensions import override

from replitree.errors import StoreError
from replitree.tablet.group.ids import BlobId
from replitree.tablet.members import ahead as blob_ahead
from replitree.tablet.members.ahead import AHEAD_OBJECTS, Ahead
from tests.storage.blob_providers import blob_id


class Later(ThreadPoolExecutor):
    """A pool that does the first thing at once, and others when it is told."""

    def __init__(self) -> None:
        super().__init__(1)
        self.waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []
        self._is_first = True

    @override
    def submit(self, work: Any, /, *given: Any, **_: Any) -> Future[Any]:
        """Do it at once, or let it wait."""
        future = Future[Any]()
        if self._is_first:
            self._is_first = False
            future.set_result(work(*given))
        else:
            self.waiting.append((future, work, given))
        return future

    def go_on(self) -> None:
        """Do what waits and was not cancelled."""
        for future, work, given in self.waiting:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(*given))
                except StoreError as error:
                    future.set_exception(error)


def blobs(count: int, size: int = 1) -> list[tuple[BlobId, int]]:
    """Return as many blobs of a log, with the bytes of their objects."""
    return [(blob_id(1, step), size) for step in range(count)]


def test_end_of_a_log_is_read_and_no_more_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, read = Later(), list[BlobId]()
    Ahead(pool, lambda: blobs(AHEAD_OBJECTS + 9), read.append)
    pool.go_on()
    assert read == [blob for blob, _ in reversed(blobs(AHEAD_OBJECTS + 9)[9:])]
    monkeypatch.setattr(blob_ahead, "AHEAD_BYTES", 25)
    pool, read = Later(), []
    Ahead(pool, lambda: blobs(9, size=10), read.append)
    pool.go_on()
    assert read == [blob_id(1, 8), blob_id(1, 7)]


def test_nobody_waits_for_a_read_that_has_not_begun() -> None:
    pool, read = Later(), list[BlobId]()

    def noted(blob: BlobId) -> tuple[BlobId, bytes]:
        read.append(blob)
        return blob, b"x"

    ahead = Ahead(pool, lambda: blobs(2), noted)
    assert ahead.blob(blob_id(1, 0)) is None
    pool.go_on()
    assert read == [blob_id(1, 1)]  # the other one is read by who asked for it
    assert ahead.blob(blob_id(1, 0)) is None
    assert ahead.blob(blob_id(1, 1)) == (blob_id(1, 1), b"x")
    assert ahead.blob(blob_id(1, 2)) is None


def test_what_could_not_be_read_ahead_is_read_again() -> None:
    pool = Later()

    def broken(blob: BlobId) -> tuple[BlobId, bytes | None]:
        if blob.step:
            raise StoreError("no answer")
        return blob, None

    ahead = Ahead(pool, lambda: blobs(2), broken)
    pool.go_on()
    assert [ahead.blob(blob) for blob, _ in blobs(2)] == [None, None]
