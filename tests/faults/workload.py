"""Clients that insert and read, and the account of what they were told.

A writer repeats an insert with the same token until it has an answer: so at the end every attempt is acknowledged, or the
writer was stopped in the middle and the attempt is *open* (it may be in the table or not, but never in part and never twice).
One batch in three goes to two partitions at once.

A reader asks a replica, drawn at random, for what has been acknowledged before, and fails when it is not whole.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from typing_extensions import override

from replitree.client.table import Table
from replitree.errors import OutcomeUnknown, ReplitreeError, SnapshotExpired, StoreError, Unavailable

SCHEMA = "id bigint not null, writer int not null, note string, n int"
BATCH_ROWS_MAX = 50
PAUSE_S = 0.05
READ_PAUSE_S = 0.5
USUAL_S, REST_S_MAX = 0.5, 5.0
"""A client whose last thing took longer than usual rests for the rest of it: on a slow machine the replicas keep up."""
INSERT_S, READ_S = 5.0, 3.0
SECOND_PARTITION = 10
"""A batch that goes to two partitions goes to the writer's own and to this many more."""

IDS = 1_000_000_000
"""Each client has so many ids of its own."""


@dataclass(slots=True)
class Account:
    """What all clients were told.

    Attributes
    ----------
    acknowledged
        Tokens that are in the table for certain, with their ids.
    index
        Where in the log they are.
    open
        Tokens that are in the table, or not: all rows of one alike.
    added, perhaps_added
        How often ``n`` of a token's rows was raised by one for certain, and at most.
    """

    acknowledged: dict[str, range] = field(default_factory=dict)
    index: dict[str, int] = field(default_factory=dict)
    open: dict[str, range] = field(default_factory=dict)
    added: Counter[str] = field(default_factory=Counter)
    perhaps_added: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    partition: dict[str, str] = field(default_factory=dict)
    """Of the attempts that went to one partition only: which."""

    def count(self, answer: str) -> None:
        """Take note of an answer."""
        with self.lock:
            self.answers[answer] += 1

    def begin(self, token: str, ids: range) -> None:
        """Take note of an attempt that has no answer yet."""
        with self.lock:
            self.open[token] = ids

    def acknowledge(self, token: str, index: int | None) -> None:
        """Take note of a good answer."""
        with self.lock:
            self.acknowledged[token] = self.open.pop(token)
            if index is not None:
                self.index[token] = index

    def remove(self, tokens: Sequence[str], *, certain: bool) -> None:
        """Take attempts out, for good or perhaps."""
        with self.lock:
            for token in tokens:
                ids = self.acknowledged.pop(token, None) or self.open.get(token)
                if certain:
                    self.open.pop(token, None)
                elif ids is not None:
                    self.open[token] = ids

    def any_token(self, chance: random.Random, prefix: str) -> tuple[str, range] | None:
        """Return an acknowledged attempt whose token begins so."""
        with self.lock:
            tokens = sorted(token for token in self.acknowledged if token.startswith(prefix))
            token = chance.choice(tokens) if tokens else None
            return None if token is None else (token, self.acknowledged[token])

    def is_in(self, token: str) -> bool:
        """Whether an attempt is in the table for certain."""
        with self.lock:
            return token in self.acknowledged


class Client(ABC):
    """A thread that does something again and again until it is told to finish."""

    def __init__(self, name: str, table: Table, names: tuple[str, ...], account: Account, seed: int) -> None:
        self._table = table
        self._names = names
        self._account = account
        self._random = random.Random(f"{seed}/{name}")
        self._stop = threading.Event()
        self._give_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.name = name
        self.doing = ""
        """What it waits for, for people."""
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stop.set()

    def finish(self, timeout_s: float) -> None:
        """Begin nothing new, settle the last thing, and end; after `timeout_s` leave it unsettled."""
        self._stop.set()
        self._thread.join(timeout_s)
        self._give_up.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._act()
                self._stop.wait(min(max(0.0, time.monotonic() - began - USUAL_S), REST_S_MAX))
        except BaseException as error:  # noqa: BLE001 - reported at the end of the run
            self.failure = error

    @abstractmethod
    def _act(self) -> None:
        """Do it once."""

    def _somewhere(self) -> Table:
        return self._table.replica(self._random.choice(self._names))


class Writer(Client):
    """Inserts batches of fresh ids at replicas drawn at random.

    Parameters
    ----------
    number
        Which writer; its ids do not meet those of another.
    """

    def __init__(self, number: int, table: Table, names: tuple[str, ...], account: Account, seed: int) -> None:
        super().__init__(f"writer-{number}", table, names, account, seed)
        self._number = number
        self._next = number * IDS

    @override
    def _act(self) -> None:
        ids = range(self._next, self._next + self._random.randint(1, BATCH_ROWS_MAX))
        self._next = ids.stop
        partitions = (
            (self._number, self._number + SECOND_PARTITION) if self._random.random() < 1 / 3 else (self._number,)
        )
        token = f"w{self._number}-{ids.start}"
        if len(partitions) == 1:
            self._account.partition[token] = str(partitions[0])
        self._insert(token, ids, partitions)

    def _insert(self, token: str, ids: range, partitions: tuple[int, ...]) -> None:
        """Insert one batch, however often it takes."""
        self.doing = f"insert {token}"
        self._account.begin(token, ids)
        data = rows(ids, partitions, token)
        while not self._give_up.is_set():
            try:
                result = self._somewhere().insert(data, token=token, timeout_s=INSERT_S)
            except (OutcomeUnknown, Unavailable) as error:
                self._account.count(type(error).__name__)
                self.doing = f"insert {token}: {error}"
                self._give_up.wait(PAUSE_S)
                continue
            except ReplitreeError as error:
                raise AssertionError(f"insert {token} failed for good: {error!r}") from error
            self._account.count(result.outcome)
            self._account.acknowledge(token, result.index)
            return


class Reader(Client):
    """Reads at replicas drawn at random."""

    @override
    def _act(self) -> None:
        self._stop.wait(READ_PAUSE_S)
        chosen = self._account.any_token(self._random, "w")
        index = self._account.index.get(chosen[0]) if chosen is not None else None
        if chosen is None or index is None:
            return
        token, ids = chosen
        where = f"id >= {ids.start} AND id < {ids.stop}"
        try:
            snapshot = self._somewhere().snapshot(min_index=index, timeout_s=READ_S)
            found = Counter(snapshot.to_arrow(columns=["id"], where=where)["id"].to_pylist())
        except (Unavailable, SnapshotExpired, StoreError) as error:
            self._account.count(f"read: {type(error).__name__}")
            return
        if not self._account.is_in(token):
            return  # it was deleted meanwhile, or perhaps
        wrong = {row: found[row] for row in ids if found[row] != 1}
        self._account.count("read")
        assert not wrong, (
            f"{snapshot.replica} at index {snapshot.index} shows {token} (index {index}) not once: {wrong}"
        )


def rows(ids: range, partitions: tuple[int, ...] = (0,), note: str = "x") -> pa.Table:
    """Return rows of the workload's schema, spread over partitions."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "writer": pa.array([partitions[row % len(partitions)] for row in ids], pa.int32()),
            "note": pa.array([note] * len(ids), pa.string()),
            "n": pa.array([0] * len(ids), pa.int32()),
        }
    )
