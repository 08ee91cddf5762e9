"""A client that changes what is in the table while others insert: deletes, updates, merges, and drops of its own partition.

What it deletes is whole attempts of the writers, so that the account stays simple: a row is there, gone, or, when an answer
never came, one of both, the same for all rows of its attempt.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pyarrow as pa

from replitree.client.table import Table
from replitree.errors import OutcomeUnknown, ReplitreeError, Unavailable
from tests.faults.workload import Account

PAUSE_S = 0.2
OWN = 99
"""Number of the writer whose partition is dropped now and then."""


class Changer:
    """One client that changes the table, by replicas drawn at random."""

    def __init__(self, table: Table, names: tuple[str, ...], account: Account, seed: int) -> None:
        self._table = table
        self._names = names
        self._account = account
        self._random = random.Random(f"{seed}/changes")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changer", daemon=True)
        self._next = OWN * 1_000_000_000
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Begin no new change, and end."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        actions = (self._delete, self._update, self._optimize, self._insert_own, self._drop_own)
        try:
            while not self._stop.wait(PAUSE_S):
                self._random.choice(actions)()
        except BaseException as error:  # noqa: BLE001 - reported at the end of the run
            self.failure = error

    def _somewhere(self) -> Table:
        return self._table.replica(self._random.choice(self._names))

    def _try(self, what: str, change: Callable[[], object]) -> bool | None:
        """Make a change; True when it is certainly in the log, False when certainly not, None when that is unknown."""
        try:
            change()
        except OutcomeUnknown:
            self._count(f"{what} unknown")
            return None
        except Unavailable:
            self._count(f"{what} refused")
            return False
        except ReplitreeError as error:
            raise AssertionError(f"{what} failed for good: {error!r}") from error
        self._count(what)
        return True

    def _count(self, answer: str) -> None:
        with self._account.lock:
            self._account.answers[answer] += 1

    def _a_token(self) -> tuple[str, range] | None:
        with self._account.lock:
            tokens = sorted(
                token for token, ids in self._account.acknowledged.items() if ids.start < OWN * 1_000_000_000
            )
            token = self._random.choice(tokens) if tokens else None
            return None if token is None else (token, self._account.acknowledged[token])

    def _delete(self) -> None:
        chosen = self._a_token()
        if chosen is None:
            return
        token, ids = chosen
        where = f"id >= {ids.start} AND id < {ids.stop}"
        done = self._try("delete", lambda: self._somewhere().delete(where, timeout_s=5.0))
        self._gone([token], done)

    def _gone(self, tokens: list[str], done: bool | None) -> None:
        """Take attempts out of the account, for good or perhaps."""
        if done is not False:
            with self._account.lock:
                for token in tokens:
                    ids = self._account.acknowledged.pop(token)
                    if done is None:
                        self._account.open[token] = ids

    def _update(self) -> None:
        chosen = self._a_token()
        if chosen is not None:
            ids = chosen[1]
            where = f"id >= {ids.start} AND id < {ids.stop}"
            self._try("update", lambda: self._somewhere().update({"note": "'changed'"}, where, timeout_s=5.0))

    def _optimize(self) -> None:
        self._try("optimize", lambda: self._somewhere().optimize(final=self._random.random() < 0.3, timeout_s=5.0))

    def _insert_own(self) -> None:
        ids = range(self._next, self._next + 10)
        self._next = ids.stop
        token = f"own-{ids.start}"
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "writer": pa.array([OWN] * len(ids), pa.int32()),
                "note": pa.array([token] * len(ids), pa.string()),
            }
        )
        done = self._try("insert own", lambda: self._somewhere().insert(rows, token=token, timeout_s=5.0))
        if done is not False:
            with self._account.lock:
                (self._account.acknowledged if done else self._account.open)[token] = ids

    def _drop_own(self) -> None:
        done = self._try("drop", lambda: self._somewhere().drop_partition(str(OWN), timeout_s=5.0))
        with self._account.lock:
            own = [token for token in self._account.acknowledged if token.startswith("own-")]
        self._gone(own, done)
