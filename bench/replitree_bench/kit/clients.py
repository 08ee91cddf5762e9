"""Concurrent clients: threads of this process that take numbers from one counter until it is used up.

The clients must not be what is measured, so `Load` says how busy they were: the share of one core that this process used.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Load:
    """What a number of clients did together.

    Attributes
    ----------
    clients, requests
        How many.
    seconds
        From the first request to the last answer.
    latencies_s
        Of each request, in no order.
    client_cores
        CPU seconds of this process per second: near 1.0, its interpreter lock is what was measured.
    """

    clients: int
    requests: int
    seconds: float
    latencies_s: tuple[float, ...]
    client_cores: float

    @property
    def per_second(self) -> float:
        """Requests answered per second."""
        return self.requests / self.seconds


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_clients(clients: int, requests: int, request: Callable[[int], None]) -> Load:
    """Let `clients` threads call `request` with 0 … `requests` - 1, each number once.

    Raises
    ------
    Exception
        The first one that a request raised; the others stop.
    """
    numbers = itertools.count()
    latencies: list[float] = []
    problems: list[BaseException] = []
    ready = threading.Barrier(clients + 1)

    def work() -> None:
        ready.wait()
        while not problems and (number := next(numbers)) < requests:
            begin = time.perf_counter()
            try:
                request(number)
            except BaseException as problem:  # noqa: BLE001 - raised again below, in the caller's thread
                problems.append(problem)
                return
            latencies.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=work, name=f"client-{i}", daemon=True) for i in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.join()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    if problems:
        raise problems[0]
    return Load(clients, requests, seconds, tuple(latencies), cpu / seconds)
