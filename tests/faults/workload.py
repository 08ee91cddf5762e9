"""Writers that keep inserting with tokens, and the account of what they were told.

A writer repeats an insert with the same token until it has an answer: so at the end every attempt is acknowledged, or the
writer was stopped in the middle and the attempt is *open* (it may be in the table or not, but never in part and never twice).
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from replitree.client.table import Table
from replitree.errors import OutcomeUnknown, ReplitreeError, Unavailable

SCHEMA = "id bigint not null, writer int not null, note string"
BATCH_ROWS_MAX = 50
PAUSE_S = 0.05


@dataclass(slots=True)
class Account:
    """What all writers were told."""

    acknowledged: dict[str, range] = field(default_factory=dict)
    open: dict[str, range] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Writer:
    """One client: inserts batches of fresh ids at replicas drawn at random.

    Parameters
    ----------
    number
        Which writer; its ids do not meet those of another.
    table
        Where to.
    """

    def __init__(self, number: int, table: Table, names: tuple[str, ...], account: Account, seed: int) -> None:
        self._number = number
        self._table = table
        self._names = names
        self._account = account
        self._random = random.Random(f"{seed}/{number}")
        self._stop = threading.Event()
        self._give_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{number}", daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Begin no new insert, settle the last one, and end."""
        self._stop.set()
        self._thread.join(timeout_s)
        self._give_up.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        first = self._number * 1_000_000_000
        try:
            while not self._stop.is_set():
                ids = range(first, first + self._random.randint(1, BATCH_ROWS_MAX))
                first = ids.stop
                self._insert(f"w{self._number}-{ids.start}", ids)
        except BaseException as error:  # noqa: BLE001 - reported at the end of the run
            self.failure = error

    def _insert(self, token: str, ids: range) -> None:
        """Insert one batch, however often it takes."""
        account = self._account
        with account.lock:
            account.open[token] = ids
        data = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "writer": pa.array([self._number] * len(ids), pa.int32()),
                "note": pa.array([token] * len(ids), pa.string()),
            }
        )
        while not self._give_up.is_set():
            try:
                result = self._table.insert(data, token=token, replica=self._random.choice(self._names), timeout_s=5.0)
            except (OutcomeUnknown, Unavailable) as error:
                self._count(type(error).__name__)
                self._give_up.wait(PAUSE_S)
                continue
            except ReplitreeError as error:
                raise AssertionError(f"insert {token} failed for good: {error!r}") from error
            self._count(result.outcome)
            with account.lock:
                account.acknowledged[token] = account.open.pop(token)
            return

    def _count(self, answer: str) -> None:
        with self._account.lock:
            self._account.answers[answer] += 1
