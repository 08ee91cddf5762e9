"""The plain loops beside a tablet on directories: writes and `fdatasync`, nothing else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from replitree.storage.files.durable import write_all

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def synced_loops(folder: Path, writes: Sequence[Sequence[int]], enough: int) -> float:
    """Write files in a thread each, with an `fdatasync` after each write; return after how many seconds enough are done.

    Parameters
    ----------
    folder
        Where; made.
    writes
        For each file the bytes of each write.
    enough
        How many files.
    """
    folder.mkdir()
    paths = [folder / str(number) for number in range(len(writes))]
    descriptors = [os.open(path, NEW) for path in paths]
    data, ready = memoryview(bytes(max(map(max, writes)))), threading.Barrier(len(writes) + 1)

    def write(descriptor: int, sizes: Sequence[int]) -> float:
        ready.wait()
        for size in sizes:
            _write_synced(descriptor, data[:size])
        return time.perf_counter()

    try:
        with ThreadPoolExecutor(len(writes)) as pool:
            ends = [pool.submit(write, *each) for each in zip(descriptors, writes, strict=True)]
            ready.wait()
            begin = time.perf_counter()
        return sorted(end.result() for end in ends)[enough - 1] - begin
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class SmallWrites:
    """The loops beside one client: some bytes are written to a file and synced, or to three files.

    Parameters
    ----------
    folder
        Where to write.
    data
        The bytes.
    """

    def __init__(self, folder: Path, data: bytes) -> None:
        self._data = data
        self._descriptors = [os.open(folder / f"small-{number}", NEW) for number in range(4)]
        self._queues = [SimpleQueue[threading.Semaphore | None]() for _ in range(3)]
        works = zip(self._descriptors[1:], self._queues, strict=True)
        self._threads = [threading.Thread(target=self._run, args=each, daemon=True) for each in works]
        self._done = threading.Semaphore(0)
        for thread in self._threads:
            thread.start()

    def _run(self, descriptor: int, queue: SimpleQueue[threading.Semaphore | None]) -> None:
        while (done := queue.get()) is not None:
            _write_synced(descriptor, self._data)
            done.release()

    def write_one(self) -> None:
        """Write and sync one file."""
        _write_synced(self._descriptors[0], self._data)

    def write_two_of_three(self) -> None:
        """Write and sync three files; return when two are done."""
        for queue in self._queues:
            queue.put(self._done)
        for _ in range(2):
            self._done.acquire()

    def wait(self) -> None:
        """Wait for the third."""
        self._done.acquire()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()
        for descriptor in self._descriptors:
            os.close(descriptor)


def _write_synced(descriptor: int, data: bytes | memoryview) -> None:
    write_all(descriptor, data)
    os.fdatasync(descriptor)
