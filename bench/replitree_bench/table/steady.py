"""A steady stream of small inserts on real replicas that merge: how many parts there are, and what that costs.

Keys::

    asked_per_s, seconds       inserts that fell due per second, and for how long
    inserts_per_s              acknowledged inserts per second; below `asked_per_s` replicas or machine could not keep up
    p50_ms, p99_ms             latency of an insert, from the moment at which it was sent
    p50_due_ms, p99_due_ms     the same from the moment at which it fell due: what a user waits when the stream does not
    partition_parts_max        most parts of a partition that a replica showed, looked at every `LOOK_S` on each
    partition_parts_end        parts of that kind when the stream ended
    parts_merged               parts that merges made on replica 1
    write_amplification        bytes of all data files that inserts and merges made on replica 1, per byte of those of inserts
    row_write_amplification    the same in rows: how often a row was written.  The files of small inserts are mostly footers and
                               pages, which a merge makes fewer of, so in bytes a merge costs less than the rows it writes
    client_cores               how busy this process was: near 1.0, it was the limit

Inserts fall due at equal distances.  Each has `BLOCK_ROWS` rows, goes to replica 1 and 2 in turn, and is sent by whichever
client is free; when all are busy it is late, and the next one is not put off for that.  All rows are of one partition.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.errors import CorruptPart, ReplitreeError
from replitree.protocol.core.parts import parse_part
from replitree.storage.parts.manifest import read_manifest
from replitree_bench.kit.report import Measured, quantile
from replitree_bench.kit.systems import BLOCK_ROWS, REPLICAS, SCHEMA, make_rows

if TYPE_CHECKING:
    from replitree.client import LocalCluster, Table

SECONDS = 600.0
RATE = 100.0
CLIENTS = 16
LOOK_S = 0.5
SCAN_S = 10.0
"""How often the part files are looked through: merged parts stay on disk for minutes, so none is missed."""

WAIT_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Stream:
    """What the clients of a stream did.

    Attributes
    ----------
    inserts
        How many were acknowledged.
    seconds
        From the first that fell due to the last answer.
    latencies_s, due_s
        Of each insert, since it was sent and since it fell due, in no order.
    client_cores
        CPU seconds of this process per second.
    """

    inserts: int
    seconds: float
    latencies_s: tuple[float, ...]
    due_s: tuple[float, ...]
    client_cores: float


def run_stream(insert: Callable[[int], None], *, seconds: float, rate: float, clients: int) -> Stream:
    """Call `insert` with 0, 1, …, `rate` times per second.

    Raises
    ------
    Exception
        The first one that an insert raised; the others stop.
    """
    count = max(1, round(seconds * rate))
    numbers = itertools.count()
    latencies: list[float] = []
    dues: list[float] = []
    problems: list[BaseException] = []
    stop = threading.Event()
    begin, begin_cpu = time.perf_counter(), time.process_time()

    def work() -> None:
        while not stop.is_set() and (number := next(numbers)) < count:
            due = begin + number / rate
            if stop.wait(max(0.0, due - time.perf_counter())):
                return
            sent = time.perf_counter()
            try:
                insert(number)
            except BaseException as problem:  # noqa: BLE001 - raised again below, in the caller's thread
                problems.append(problem)
                stop.set()
                return
            answered = time.perf_counter()
            latencies.append(answered - sent)
            dues.append(answered - due)

    threads = [threading.Thread(target=work, name=f"client-{i}", daemon=True) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    if problems:
        raise problems[0]
    return Stream(len(latencies), took, tuple(latencies), tuple(dues), cpu / took)


def partition_parts(parts: Iterable[str]) -> int:
    """Return the number of parts of the partition that has the most.

    >>> partition_parts(["a_0_0_0", "a_1_4_1", "b_0_0_0"])
    2
    """
    return max(Counter(parse_part(part).partition for part in parts).values(), default=0)


def write_amplification(sizes: Mapping[str, int]) -> float:
    """Return the bytes, or rows, of all parts, by name, per byte, or row, of those that inserts made.

    >>> write_amplification({"a_0_0_0": 100, "a_1_1_0": 100, "a_0_1_1": 150})
    1.75
    """
    inserted = sum(size for part, size in sizes.items() if parse_part(part).level == 0)
    return sum(sizes.values()) / inserted if inserted else 0.0


@dataclass(slots=True)
class PartWatch:
    """Looks at the parts of a table while a stream goes on.

    Attributes
    ----------
    tables
        The table, by each of its replicas.
    folder
        Where replica 1 has its parts.
    parts_max
        Most parts of a partition so far.
    sizes, rows
        Bytes of the data files, and rows, of every part that was seen on replica 1, by name.
    problem
        Why it could not go on looking.
    """

    tables: tuple[Table, ...]
    folder: Path
    parts_max: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    problem: Exception | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look until `stop` is called."""
        scan_at = 0.0
        try:
            while not self._stop.wait(LOOK_S):
                self.look()
                if time.monotonic() >= scan_at:
                    self.scan()
                    scan_at = time.monotonic() + SCAN_S
        except Exception as problem:  # noqa: BLE001 - raised by `check`, in the caller's thread
            self.problem = problem

    def stop(self) -> None:
        """Let `run` end."""
        self._stop.set()

    def check(self) -> None:
        """Raise what kept `run` from looking until the end."""
        if self.problem is not None:
            raise ReplitreeError(f"the parts could not be counted any more: {self.problem}") from self.problem

    def look(self) -> int:
        """Return how many parts the fullest partition shows now, on the replica that shows more."""
        now = max(partition_parts(part.part for part in table.snapshot(-1).parts) for table in self.tables)
        self.parts_max = max(self.parts_max, now)
        return now

    def scan(self) -> None:
        """Take note of the sizes of parts that are new on the disk; old ones are still there."""
        for part in self.folder.iterdir():
            if part.name not in self.sizes:
                with contextlib.suppress(CorruptPart):  # it has just gone
                    manifest = read_manifest(part)
                    self.sizes[part.name], self.rows[part.name] = manifest.bytes, manifest.rows


def measure(
    cluster: LocalCluster,
    *,
    seconds: float = SECONDS,
    rate: float = RATE,
    clients: int = CLIENTS,
    say: Callable[[str], None] = print,
) -> Measured:
    """Run the stream once on a cluster of `REPLICAS` replicas.

    Parameters
    ----------
    seconds, rate
        For how long, and how many inserts fall due per second.
    clients
        Threads that send.
    """
    made = cluster.create_table(
        "steady", SCHEMA, order_by="k", partition_by="month(d)", wait_replicas=REPLICAS, timeout_s=WAIT_S_MAX
    )
    tables = tuple(made.replica(f"r{number}") for number in range(1, REPLICAS + 1))
    watch = PartWatch(tables, parts_folder(cluster))
    watcher = threading.Thread(target=watch.run, name="parts", daemon=True)
    watcher.start()
    say(f"{rate:g} inserts per second for {seconds:g} s")
    try:
        stream = run_stream(lambda number: _insert(tables, number), seconds=seconds, rate=rate, clients=clients)
        at_end = watch.look()
    finally:
        watch.stop()
        watcher.join()
    watch.check()
    watch.scan()
    _check_equal(tables, stream.inserts * BLOCK_ROWS)
    return _measured(stream, watch, at_end, seconds, rate)


def _insert(tables: tuple[Table, ...], number: int) -> None:
    rows = make_rows(number * BLOCK_ROWS, BLOCK_ROWS).combine_chunks().to_batches()[0]
    result = tables[number % len(tables)].insert(rows)
    if result.outcome != "inserted":
        raise ReplitreeError(f"a block of the benchmark was not inserted: {result}")


def parts_folder(cluster: LocalCluster) -> Path:
    """Return the folder in which the first replica has the parts of its only table."""
    (found,) = Path(cluster.processes[0].data).glob("tables/*/parts")
    return found


def _check_equal(tables: tuple[Table, ...], rows: int) -> None:
    found = [table.snapshot(timeout_s=WAIT_S_MAX).rows for table in tables]
    if set(found) != {rows}:
        raise ReplitreeError(f"{rows} rows were acknowledged, and the replicas show {found}")


def _measured(stream: Stream, watch: PartWatch, at_end: int, seconds: float, rate: float) -> Measured:
    return {
        "asked_per_s": rate,
        "seconds": seconds,
        "inserts_per_s": stream.inserts / stream.seconds,
        "p50_ms": 1e3 * quantile(stream.latencies_s, 0.5),
        "p99_ms": 1e3 * quantile(stream.latencies_s, 0.99),
        "p50_due_ms": 1e3 * quantile(stream.due_s, 0.5),
        "p99_due_ms": 1e3 * quantile(stream.due_s, 0.99),
        "partition_parts_max": watch.parts_max,
        "partition_parts_end": at_end,
        "parts_merged": sum(parse_part(part).level > 0 for part in watch.sizes),
        "write_amplification": write_amplification(watch.sizes),
        "row_write_amplification": write_amplification(watch.rows),
        "client_cores": stream.client_cores,
    }
