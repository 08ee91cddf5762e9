"""Clients that change what is in the table while others insert: deletes, updates, merges, columns, and drops of a partition.

What they delete is whole attempts of the writers, so that the account stays simple: a row is there, gone, or, when an answer
never came, one of both, the same for all rows of its attempt.  An update raises ``n`` by one, so that one that was done twice
shows.  A change whose outcome is unknown is repeated with its id, at any replica, until it is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from typing_extensions import override

from replitree.client.table import Table
from replitree.errors import BadInput, OutcomeUnknown, ReplitreeError, Unavailable
from tests.faults.workload import IDS, INSERT_S, Account, Client, rows

PAUSE_S = 0.2
CHANGE_S = 3.0
OWN = 90
"""Number of the first changer; each drops the partition of its own number now and then."""

OWN_ROWS = 10
SURE_S = 1.0
"""An insert that was answered so soon has no second try of itself still on its way."""

Change = Callable[[Table, str | None], object]


class Changer(Client):
    """Changes the table, by replicas drawn at random."""

    def __init__(self, number: int, table: Table, names: tuple[str, ...], account: Account, seed: int) -> None:
        super().__init__(f"changer-{number}", table, names, account, seed)
        self._number = OWN + number
        self._next = self._number * IDS
        self._columns: list[str] = []
        self._made = 0
        self._may_come_again: set[str] = set()

    @override
    def _act(self) -> None:
        actions = (
            self._delete,
            self._update,
            self._update,
            self._optimize,
            self._insert_own,
            self._insert_own,
            self._drop_own,
            self._alter,
        )
        if not self._stop.wait(PAUSE_S):
            self._random.choice(actions)()

    def _do(self, what: str, change: Change) -> bool | None:
        """Make a change; True when it is certainly in the log, False when certainly not, None when that is unknown."""
        known_as = None
        self.doing = what
        while True:
            try:
                change(self._somewhere(), known_as)
            except OutcomeUnknown as error:
                self.doing = f"{what}: {error}"
                self._account.count(f"{what} unknown")
                known_as = error.token
            except Unavailable as error:
                self.doing = f"{what}: {error}"
                self._account.count(f"{what} refused")
                if known_as is None:
                    return False
            except BadInput as error:
                if known_as is None:
                    raise AssertionError(f"{what} failed for good: {error!r}") from error
                return True  # the earlier try has made it impossible
            except ReplitreeError as error:
                raise AssertionError(f"{what} failed for good: {error!r}") from error
            else:
                self._account.count(what)
                return True
            if self._give_up.wait(PAUSE_S):
                return None

    def _delete(self) -> None:
        chosen = self._account.any_token(self._random, "w")
        if chosen is None:
            return
        token, ids = chosen
        where = f"id >= {ids.start} AND id < {ids.stop}"
        self._account.remove([token], certain=False)
        place = self._account.partition.get(token)
        done = self._do("delete", lambda at, known_as: at.delete(where, place, command_id=known_as, timeout_s=CHANGE_S))
        if done:
            self._account.remove([token], certain=True)
        elif done is False:
            self._account.acknowledge(token, None)

    def _update(self) -> None:
        chosen = self._account.any_token(self._random, "w")
        if chosen is None:
            return
        self._update_rows(*chosen)

    def _update_rows(self, token: str, ids: range) -> None:
        where = f"id >= {ids.start} AND id < {ids.stop}"
        values = {"n": "n + 1", "note": "'changed'"}
        with self._account.lock:
            self._account.perhaps_added[token] += 1
        place = self._account.partition.get(token)
        done = self._do(
            "update", lambda at, known_as: at.update(values, where, place, command_id=known_as, timeout_s=CHANGE_S)
        )
        with self._account.lock:
            if done:
                self._account.added[token] += 1
            elif done is False:
                self._account.perhaps_added[token] -= 1

    def _optimize(self) -> None:
        final = self._random.random() < 0.3
        self._do("optimize", lambda at, _: at.optimize(final=final, timeout_s=CHANGE_S))

    def _alter(self) -> None:
        """Add a column, or drop one of those that were added."""
        if self._columns and self._random.random() < 0.5:
            name = self._columns.pop()
            sql = f"DROP COLUMN {name}"
        else:
            self._made += 1
            name = f"x{self._number}_{self._made}"
            sql = f"ADD COLUMN {name} int DEFAULT {self._made}"
        done = self._do("alter", lambda at, known_as: at.alter(sql, command_id=known_as, timeout_s=CHANGE_S))
        if done and sql.startswith("ADD"):
            self._columns.append(name)

    def _insert_own(self) -> None:
        ids = range(self._next, self._next + OWN_ROWS)
        self._next = ids.stop
        token = f"own{self._number}-{ids.start}"
        data = rows(ids, (self._number,), token)
        self._account.begin(token, ids)
        began = time.monotonic()
        done = self._do("insert own", lambda at, _: at.insert(data, token=token, timeout_s=INSERT_S))
        if done:
            self._account.acknowledge(token, None)
        elif done is False:
            self._account.remove([token], certain=True)
        if time.monotonic() - began > SURE_S:
            self._may_come_again.add(token)

    def _drop_own(self) -> None:
        """Drop the partition.  An insert of which a try is still on its way may come again: its token went with its rows."""
        prefix = f"own{self._number}-"
        with self._account.lock:
            own = [token for token in self._account.acknowledged if token.startswith(prefix)]
        partition = str(self._number)
        self._account.remove(own, certain=False)
        done = self._do(
            "drop", lambda at, known_as: at.drop_partition(partition, command_id=known_as, timeout_s=CHANGE_S)
        )
        if done:
            self._account.remove([token for token in own if token not in self._may_come_again], certain=True)
        elif done is False:
            for token in own:
                self._account.acknowledge(token, None)


def changers(count: int, table: Table, names: tuple[str, ...], account: Account, seed: int) -> list[Changer]:
    """Return so many changers, none started."""
    return [Changer(number, table, names, account, seed) for number in range(count)]
