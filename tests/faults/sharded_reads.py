"""``python -m tests.faults.sharded_reads --reads 100000 --seed 1``: are cuts whole while servers die and rows move?

Servers, kills, moves and the check at the end are those of `tests.faults.sharded_rounds`.  An insert has `ROWS` rows with
consecutive keys, which lie in all shards; an update or a delete is of all rows of one insert.  Processes read all the time at
the level ``consistent``, each through a connection of its own, and look at every insert that they see:

=========  ===========================================================================================================
torn       it shows some rows of an insert, and not all; or rows that an update has changed beside others
twice      it shows a row twice
back       its cut is before that of an earlier read of this connection
=========  ===========================================================================================================

Most reads are of the last `WINDOW` rows, every `WHOLE_EVERY`-th one is of all.  A server, a mover or both are killed each time
that so many reads were answered: so a slow machine sees as many kills for a read as a fast one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty

import numpy as np
import pyarrow as pa

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.protocol.sharded.cut import parse_cut
from tests.faults.arguments import say
from tests.faults.patience import FOREVER_S, Patience
from tests.faults.sharded_rounds import (
    ANSWER_S,
    BUCKETS,
    CRASHES,
    ROWS,
    SCHEMA,
    SETTINGS,
    Clients,
    Ledger,
    MovesInProcesses,
    carried_out,
    check_rows,
    kill_something,
    moves,
)

READERS = 2
WINDOW = 100 * ROWS
WHOLE_EVERY = 20
TELL_S = 0.5
"""How often a reader tells what it has seen, in seconds."""

READS_A_KILL = 250
INSERT_S, CHANGE_S = 1.0, 20.0
"""How long a client rests after an insert, and after a change, in seconds: the readers shall have most of the machine."""


@dataclass(slots=True)
class Tally:
    """What readers have seen.

    Attributes
    ----------
    reads, inserts_seen
        How many reads were answered, and how many inserts these showed, one after the other.
    torn, twice, back
        Reads with such a finding.
    errors
        How often each error was heard.
    findings
        The first ones, as text.
    """

    reads: int = 0
    inserts_seen: int = 0
    torn: int = 0
    twice: int = 0
    back: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what another reader has seen."""
        self.reads += other.reads
        self.inserts_seen += other.inserts_seen
        self.torn, self.twice, self.back = self.torn + other.torn, self.twice + other.twice, self.back + other.back
        self.errors += other.errors
        self.findings = (self.findings + other.findings)[:10]

    def look(self, rows: pa.Table, cut: str) -> None:
        """Look at the rows of one read, with their keys and how often they were updated."""
        keys, updates = (rows[name].to_numpy() for name in ("k", "n"))
        order = np.argsort(keys, kind="stable")
        keys, updates = keys[order], updates[order]
        self.reads += 1
        if not len(keys):
            return
        inserts, begins, counts = np.unique(keys // ROWS, return_index=True, return_counts=True)
        self.inserts_seen += len(inserts)
        is_twice = len(np.unique(keys)) < len(keys)
        differ = np.minimum.reduceat(updates, begins) != np.maximum.reduceat(updates, begins)
        partial = inserts[(counts < ROWS) | differ]
        self.twice += is_twice
        self.torn += bool(len(partial))
        if is_twice or len(partial):
            self.findings.append(f"at {cut}: rows twice: {is_twice}; torn inserts {(partial[:5] * ROWS).tolist()}")


def read_on(folder: Path, number: int, told: Queue[Tally | str], stopped: Event) -> None:
    """Read until `stopped` is set, or the run has died, and tell what was seen; a process of its own."""
    run_itself = multiprocessing.parent_process()
    assert run_itself is not None
    try:
        with replitree.connect(folder) as connection:
            table, tally, begins, cut = connection.table("d"), Tally(), 0, 0
            assert isinstance(table, ShardedTable)
            since = time.monotonic()
            while not stopped.is_set() and run_itself.is_alive():
                number += 1
                where = None if number % WHOLE_EVERY == 0 else f"k >= {begins}"
                try:
                    with table.snapshot(level="consistent", where=where, timeout_s=ANSWER_S) as snapshot:
                        rows, shown = snapshot.to_arrow(["k", "n"], where=where), str(snapshot.cut)
                except CRASHES as error:
                    tally.errors[type(error).__name__] += 1
                else:
                    tally.look(rows, shown)
                    tally.back += parse_cut(shown).zxid < cut
                    cut = max(cut, parse_cut(shown).zxid)
                    if len(rows):
                        newest = int(np.max(rows["k"].to_numpy()))
                        begins = max(begins, newest // ROWS * ROWS - WINDOW)
                if time.monotonic() >= since + TELL_S:
                    told.put(tally)
                    tally, since = Tally(), time.monotonic()
            told.put(tally)
    except Exception:  # noqa: BLE001 - whatever it is, the run has failed
        told.put(traceback.format_exc())


class Readers:
    """The readers of a run, each a process.

    Parameters
    ----------
    folder
        The cluster's.
    count
        How many.
    """

    def __init__(self, folder: Path, count: int) -> None:
        there = multiprocessing.get_context("spawn")
        self._told: Queue[Tally | str] = there.Queue()
        self._stopped = there.Event()
        self._processes: list[SpawnProcess] = [
            there.Process(target=read_on, args=(folder, 7 * number, self._told, self._stopped), daemon=True)
            for number in range(count)
        ]
        self.tally, self.problems = Tally(), list[str]()

    @contextmanager
    def reading(self, patience: Patience) -> Iterator[None]:
        """Let them read; in the end each ends its last read, however long that takes."""
        for each in self._processes:
            each.start()
        try:
            yield
        finally:
            self._stopped.set()
            # What a process has put into a queue has to be taken out of it before the process can end.
            patience.wait(lambda: self.hear() and not any(each.is_alive() for each in self._processes), "readers end")
            self.hear()

    def hear(self) -> bool:
        """Take what readers have told since the last call; True."""
        while True:
            try:
                heard = self._told.get_nowait()
            except Empty:
                return True
            if isinstance(heard, str):
                self.problems.append(heard)
            else:
                self.tally.add(heard)
                self.problems += heard.findings


@dataclass(frozen=True, slots=True)
class ReadsReport:
    """What a run saw: see `Tally`; `rows` are there in the end, each once on each replica."""

    seed: int
    reads: int
    inserts_seen: int
    torn: int
    twice: int
    back: int
    errors: dict[str, int]
    servers_killed: int
    movers_killed: int
    moves_begun: int
    acknowledged: int
    answers: dict[str, int]
    rows: int
    seconds: float


def run(
    folder: Path,
    reads: int,
    seed: int,
    tell: Callable[[str], object] = say,
    *,
    readers: int = READERS,
    reads_a_kill: int = READS_A_KILL,
    seconds: float = FOREVER_S,
) -> ReadsReport:
    """Carry a run out.

    Parameters
    ----------
    folder
        An empty folder.
    reads
        So many reads are answered.
    seed
        What is killed, changed and moved is drawn from it.
    tell
        Hears how far it is.
    readers, reads_a_kill
        How many processes read, and how many reads are answered between two kills.
    seconds
        The readers stop after so long, also when there were fewer reads.

    Raises
    ------
    AssertionError
        A read was torn, showed rows twice or went back; or a row is missing in the end.
    """
    began, chance, ledger, killed = time.monotonic(), random.Random(seed), Ledger(), Counter[str]()
    with LocalCluster(folder, 3, settings=SETTINGS) as cluster:
        # Without partitions: a read opens fewer parts, and there are more reads.
        cluster.create_table("d", SCHEMA, order_by="k", shard_by="k", shards=2, buckets=BUCKETS, wait_replicas=3)
        reading, mover = Readers(cluster.folder, readers), MovesInProcesses(cluster.folder, chance)
        # The processes read in the place of a client.
        clients = Clients(cluster.folder, ledger, seed, insert_every_s=INSERT_S, change_every_s=CHANGE_S, reads=False)
        patience = Patience(cluster, lambda: (ledger.heard(), reading.tally.reads))
        with clients.running(patience), reading.reading(patience):
            while reading.tally.reads < reads and time.monotonic() < began + seconds:
                enough = min(reads, reading.tally.reads + reads_a_kill)
                patience.wait(
                    lambda enough=enough: (
                        reading.hear()  # type: ignore[misc]  # mypy knows no type of a default
                        and (reading.tally.reads >= enough or bool(reading.problems or clients.problems))
                    ),
                    "reads are answered",
                )
                assert not reading.problems, reading.problems
                if clients.problems:
                    break
                told = kill_something(cluster, patience, mover, chance, clients, killed)
                seen = reading.tally
                tell(
                    f"{seen.reads:,} reads, {seen.torn} torn, {seen.twice} twice, {seen.back} back, {dict(seen.errors)};"
                    f" {len(ledger.rows):,} inserts; {told}"
                )
        assert not reading.problems, reading.problems
        mover.kill()
        patience.wait(lambda: not moves(cluster), "moves come to their end")
        rows, seen = check_rows(cluster, ledger, patience), reading.tally
    return ReadsReport(
        seed,
        seen.reads,
        seen.inserts_seen,
        seen.torn,
        seen.twice,
        seen.back,
        dict(sorted(seen.errors.items())),
        killed["server"],
        killed["mover"],
        mover.begun,
        len(ledger.rows),
        dict(sorted(ledger.answers.items())),
        rows,
        round(time.monotonic() - began, 1),
    )


def main() -> int:
    """Do a run; 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=FOREVER_S, help="stop reading after so long")
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="work below this folder")
    arguments = parser.parse_args()
    return carried_out(
        lambda place: run(place, arguments.reads, arguments.seed, readers=arguments.readers, seconds=arguments.seconds),
        arguments.seed,
        arguments.dir,
    )


if __name__ == "__main__":
    sys.exit(main())
