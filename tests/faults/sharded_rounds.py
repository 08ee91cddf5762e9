"""``python -m tests.faults.sharded_rounds --rounds 200 --seed 1``: SIGKILL while rows are inserted, changed and moved.

Three servers host all shards of one table.  Clients insert rows by tokens, delete and update them by commands with ids, and
read; a process moves buckets.  A round kills (SIGKILL) a server at a random moment, or the process that moves buckets, or both;
what was killed comes back at once or later, and moves whose process is gone are carried on by a server.  A client repeats
whatever it did not hear the end of, under the same token or id.

After each `SLICE_ROUNDS` rounds nothing moves any more, and the rows of each shard on each replica are read: the replicas are
equal, every acknowledged row is there once with the updates that were acknowledged, no other row is, and each lies at the owner
of its bucket.

How long all of that takes depends on what else the machine does.  A client repeats for as long as servers are killed;
afterwards whatever is waited for may take as long as the servers get anything done (`tests.faults.patience`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, OutcomeUnknown, ReplicaUnavailable, SnapshotExpired, Unavailable
from replitree.storage.schema.row_buckets import row_buckets
from replitree_verify.nemesis.shards import hosted
from tests.faults.arguments import say
from tests.faults.patience import Patience
from tests.waiting import wait_for

SCHEMA = "k bigint not null, p int not null, n bigint not null"
BUCKETS = 64
ROWS = 30
PARTITIONS = 4
SLICE_ROUNDS = 25
ANSWER_S = 20.0
"""How long a client waits for one answer, in seconds."""

SESSION_S = 15.0
"""The timeout of sessions, in seconds: on a busy machine servers hear nothing of coordination for longer than some seconds."""

SETTINGS: dict[str, object] = {"carry_moves_after_s": 1.0, "session_timeout_s": SESSION_S, "disk_reserve_bytes": 0}
CRASHES = (ReplicaUnavailable, Unavailable, OutcomeUnknown, SnapshotExpired)
"""What a client hears while servers die: it asks again."""


@dataclass(slots=True)
class Ledger:
    """What clients were told.

    Attributes
    ----------
    rows
        The first key of each insert that was acknowledged, with how many updates of its rows were acknowledged.
    deleted
        The first keys of inserts whose deletion has begun.
    answers
        How often each answer was heard.
    """

    rows: dict[int, int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def due(self) -> set[int]:
        """Return the first keys whose rows every later read has to show."""
        with self.lock:
            return self.rows.keys() - self.deleted

    def heard(self) -> int:
        """Return how many answers were heard that were no errors."""
        with self.lock:
            return sum(count for answer, count in self.answers.items() if ":" not in answer)

    def expected(self) -> Counter[tuple[int, int, int]]:
        """Return the rows that there are when nothing is under way."""
        return Counter(
            (key, key % PARTITIONS, updates)
            for first, updates in self.rows.items()
            if first not in self.deleted
            for key in range(first, first + ROWS)
        )


class Clients:
    """The clients of a run: two insert, one changes rows, and one reads.

    Parameters
    ----------
    folder
        The cluster's.
    ledger
        Where they note what they were told.
    seed
        What they do is drawn from it.
    insert_every_s, change_every_s
        How long one rests after an insert and before a change, in seconds.
    reads
        Whether one reads.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        seed: int,
        *,
        insert_every_s: float = 0.0,
        change_every_s: float = 0.2,
        reads: bool = True,
    ) -> None:
        self._folder, self._ledger, self._seed = folder, ledger, seed
        self._insert_every_s, self._change_every_s, self._reads = insert_every_s, change_every_s, reads
        self._keys, self._commands = iter(range(0, 1 << 40, ROWS)), iter(range(1 << 40))
        self._stopped, self._lost = threading.Event(), threading.Event()
        self.problems = list[str]()

    @contextmanager
    def running(self, patience: Patience) -> Iterator[None]:
        """Let them work; at the end each finishes what it has begun, however long servers need for it."""
        self._stopped.clear()
        self._lost.clear()
        works = (self._insert, self._insert, self._change, *([self._read] if self._reads else []))
        threads = [
            threading.Thread(target=self._guarded, args=(number, work), daemon=True)
            for number, work in enumerate(works)
        ]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._stopped.set()
            try:
                patience.wait(lambda: not any(each.is_alive() for each in threads), "clients come to their end")
            finally:
                self._lost.set()
                for each in threads:
                    each.join()
        assert not self.problems, self.problems

    def _guarded(self, number: int, work: Callable[[ShardedTable, random.Random], None]) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        try:
            with replitree.connect(self._folder) as connection:
                table = connection.table("d")
                assert isinstance(table, ShardedTable)
                while not self._stopped.is_set() and not self.problems:
                    work(table, chance)
        except Exception:  # noqa: BLE001 - whatever it is, the run has failed
            self.problems.append(traceback.format_exc())

    def _until_answered(self, what: str, do: Callable[[], object]) -> None:
        while True:
            try:
                do()
            except CRASHES as error:
                self._heard(f"{what}: {type(error).__name__}")
                if self._lost.is_set():
                    raise
            except BadInput as error:
                # A repeated command took place, and its entry has left the log since: that is an answer.
                if "was done before" not in str(error):
                    raise
                return self._heard(f"{what}: done before")
            else:
                return self._heard(what)

    def _heard(self, answer: str) -> None:
        with self._ledger.lock:
            self._ledger.answers[answer] += 1

    def _insert(self, table: ShardedTable, chance: random.Random) -> None:
        first = next(self._keys)
        keys = range(first, first + ROWS)
        rows = {"k": list(keys), "p": [key % PARTITIONS for key in keys], "n": [0] * ROWS}
        quorum = "majority" if chance.random() < 0.3 else None
        self._until_answered("insert", lambda: table.insert(rows, token=f"t{first}", quorum=quorum, timeout_s=ANSWER_S))
        with self._ledger.lock:
            self._ledger.rows[first] = 0
        self._stopped.wait(self._insert_every_s)

    def _change(self, table: ShardedTable, chance: random.Random) -> None:
        due = sorted(self._ledger.due())
        if self._stopped.wait(self._change_every_s) or not due:
            return
        first, name = chance.choice(due), f"c{self._seed}-{next(self._commands)}"
        where = f"k >= {first} AND k < {first + ROWS}"
        if chance.random() < 0.3:
            with self._ledger.lock:
                self._ledger.deleted.add(first)
            self._until_answered("delete", lambda: table.delete(where, command_id=name, timeout_s=ANSWER_S))
            return
        self._until_answered("update", lambda: table.update({"n": "n + 1"}, where, command_id=name, timeout_s=ANSWER_S))
        with self._ledger.lock:
            self._ledger.rows[first] += 1

    def _read(self, table: ShardedTable, _chance: random.Random) -> None:
        due, found = self._ledger.due(), list[int]()

        def read() -> None:
            found[:] = table.to_arrow(["k"], level="linearizable", timeout_s=ANSWER_S)["k"].to_pylist()

        self._until_answered("read", read)
        with self._ledger.lock:
            due -= self._ledger.deleted
        there = set(found)
        if len(there) != len(found):
            self.problems.append(f"a read shows {len(found) - len(there)} rows twice")
        lacking = [key for first in sorted(due) for key in range(first, first + ROWS) if key not in there]
        if lacking:
            self.problems.append(f"a read lacks {len(lacking)} rows that were acknowledged, from {lacking[0]} on")


class MovesInProcesses:
    """Moves buckets by commands in processes of their own, one at a time."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance = folder, chance
        self._running: subprocess.Popen[bytes] | None = None
        self.begun = 0

    def begin(self) -> None:
        """Begin another one if none runs; it may find that buckets move already, and end."""
        if self._running is not None and self._running.poll() is None:
            return
        first, target = self._chance.randrange(BUCKETS // 2), self._chance.randrange(2)
        chosen = self._chance.choice(
            (
                ("move", "--buckets", f"{first}-{first + BUCKETS // 4}", "--to", str(target)),
                ("move", "--buckets", f"{first}-{first + BUCKETS // 4}", "--to", str(target)),
                ("rebalance", "--weight", f"{target}={self._chance.randint(1, 3)}"),
                ("back",),
            )
        )
        command = [sys.executable, "-m", "replitree.cli.main", "shard", chosen[0], "d", *chosen[1:]]
        self._running = subprocess.Popen(
            [*command, "--dir", str(self._folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.begun += 1

    def kill(self) -> bool:
        """Kill it; return whether it ran."""
        ran = self._running is not None and self._running.poll() is None
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        return ran


@dataclass(frozen=True, slots=True)
class RoundsReport:
    """What a run saw."""

    seed: int
    rounds: int
    servers_killed: int
    movers_killed: int
    moves_begun: int
    maps: int
    answers: dict[str, int]
    acknowledged_rows: int
    rows: int
    seconds: float


def run(
    folder: Path, rounds: int, seed: int, tell: Callable[[str], object] = say, slice_rounds: int = SLICE_ROUNDS
) -> RoundsReport:
    """Carry rounds out; raise AssertionError when something is wrong."""
    began, chance, ledger = time.monotonic(), random.Random(seed), Ledger()
    killed = Counter[str]()
    with LocalCluster(folder, 3, settings=SETTINGS) as cluster:
        cluster.create_table(
            "d", SCHEMA, order_by="k", partition_by="p", shard_by="k", shards=2, buckets=BUCKETS, wait_replicas=3
        )
        clients, mover = Clients(cluster.folder, ledger, seed), MovesInProcesses(cluster.folder, chance)
        patience = Patience(cluster, ledger.heard)
        done = 0
        while done < rounds:
            with clients.running(patience):
                for _ in range(min(slice_rounds, rounds - done)):
                    told = kill_something(cluster, patience, mover, chance, clients, killed)
                    done += 1
                    tell(f"round {done}: {told}; {len(ledger.rows) * ROWS:,} rows acknowledged")
                    if clients.problems:
                        break
            # The last one may have begun moves: a server carries them on.
            mover.kill()
            patience.wait(lambda: not moves(cluster), "moves come to their end")
            tell(f"round {done}: {check_rows(cluster, ledger, patience):,} rows, as acknowledged, on each replica")
        maps = cluster.shards("d").status()
    return RoundsReport(
        seed,
        done,
        killed["server"],
        killed["mover"],
        mover.begun,
        len(maps.owned),
        dict(sorted(ledger.answers.items())),
        len(ledger.rows) * ROWS,
        sum(ledger.expected().values()),
        round(time.monotonic() - began, 1),
    )


def moves(cluster: LocalCluster) -> bool:
    """Tell whether buckets move; True, too, when coordination does not answer."""
    try:
        return bool(cluster.status().moving)
    except Unavailable:
        return True


def kill_something(
    cluster: LocalCluster,
    patience: Patience,
    mover: MovesInProcesses,
    chance: random.Random,
    clients: Clients,
    killed: Counter[str],
) -> str:
    """Kill a server, a mover or both at a random moment; return what was killed."""
    mover.begin()
    pause(chance.uniform(0.0, 2.5), clients)
    what = chance.choice(("server", "mover", "server and mover"))
    told = list[str]()
    if "mover" in what and mover.kill():
        killed["mover"] += 1
        told.append("mover")
    if "server" in what:
        name = chance.choice(("r1", "r2", "r3"))
        cluster.kill(name)
        killed["server"] += 1
        told.append(name)
        pause(chance.choice((0.0, 0.0, 2.0)), clients)
        patience.start(name)
    pause(chance.uniform(0.0, 1.0), clients)
    return f"killed {' and '.join(told) or 'nothing: the mover had ended'}"


def pause(seconds: float, clients: Clients) -> None:
    """Wait, unless a client has found something wrong."""
    end = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= end or clients.problems, "a moment", seconds + 60.0)


def check_rows(cluster: LocalCluster, ledger: Ledger, patience: Patience) -> int:
    """Check the rows of all shards on all replicas; return how many there are.

    Raises
    ------
    AssertionError
        A row is missing, is there twice or in the wrong shard, or replicas differ; or a replica does not answer.
    """
    table = cluster.table("d")
    assert isinstance(table, ShardedTable)
    owners, total = table.info.map.owners, Counter[tuple[int, int, int]]()
    for number, (shard, _) in zip(table.info.map.shards, hosted(cluster, table, cluster.names), strict=True):
        copies = {name: rows_of(shard, name, patience) for name in ("r1", "r2", "r3")}
        first, *others = (counted(each) for each in copies.values())
        assert all(each == first for each in others), f"the replicas of {shard.name} differ: {differences(copies)}"
        wrong = [
            key
            for key, bucket in zip(
                copies["r1"]["k"].to_pylist(),
                row_buckets(copies["r1"], table.definition, table.info.map).tolist(),
                strict=True,
            )
            if owners[bucket] != number
        ]
        assert not wrong, f"{len(wrong)} rows lie in shard {number}, which does not own them: {wrong[:5]}"
        total += first
    expected = ledger.expected()
    missing, more = expected - total, total - expected
    assert not missing, f"{missing.total()} rows are missing: {sorted(missing)[:5]}"
    assert not more, f"{more.total()} rows are there twice, or again: {sorted(more)[:5]}"
    return total.total()


def rows_of(shard: replitree.Table, replica: str, patience: Patience) -> pa.Table:
    """Return the rows that a replica of a shard shows when it has executed its log."""
    found = list[pa.Table]()

    def read() -> bool:
        with suppress(*CRASHES), shard.replica(replica).snapshot(level="linearizable", timeout_s=ANSWER_S) as snapshot:
            found.append(snapshot.to_arrow(["k", "p", "n"]))
        return bool(found)

    patience.wait(read, f"{replica} has executed the log of {shard.name}")
    return found[0]


def counted(rows: pa.Table) -> Counter[tuple[int, int, int]]:
    """Return how often each row is there."""
    return Counter(zip(*(rows[name].to_pylist() for name in ("k", "p", "n")), strict=True))


def differences(copies: dict[str, pa.Table]) -> dict[str, list[tuple[int, int, int]]]:
    """Return some rows that each replica has and another one has not."""
    counts = {name: counted(rows) for name, rows in copies.items()}
    common = counts["r1"] & counts["r2"] & counts["r3"]
    return {name: sorted(rows - common)[:5] for name, rows in counts.items()}


def main() -> int:
    """Do the rounds; 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="work below this folder")
    arguments = parser.parse_args()
    return carried_out(lambda place: run(place, arguments.rounds, arguments.seed), arguments.seed, arguments.dir)


def carried_out(do: Callable[[Path], Any], seed: int, below: Path | None) -> int:
    """Carry a run out in a new folder, and print its report; return 1 when it fails, and leave the folder then."""
    place = Path(tempfile.mkdtemp(prefix=f"replitree-sharded-{seed}-", dir=below))
    try:
        report = do(place / "run")
    except Exception:  # noqa: BLE001 - whatever it is, the run has failed
        traceback.print_exc()
        print(f"FAILED: seed {seed}; logs and data are in {place}", flush=True)
        return 1
    shutil.rmtree(place, ignore_errors=True)
    print(json.dumps(dataclasses.asdict(report)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
