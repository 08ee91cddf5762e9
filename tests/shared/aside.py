"""A client that keeps parts aside: it detaches a partition and attaches it again, and freezes the table.

Each time a new partition is taken out, whose rows nobody else knows.  They come back by one replica; where another one is asked
to attach the same part, that is a duplicate.  A frozen snapshot is read when what it was made of may be gone: it has rows of
its own.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from typing_extensions import override

from replitree.client.change.change_results import DetachedPart, Frozen
from replitree.client.table import Table
from replitree.errors import BadInput, OutcomeUnknown, SchemaMismatch, StoreError, Unavailable
from replitree.storage.parts.manifest import read_manifest
from tests.faults.changer import CHANGE_S, PAUSE_S, SURE_S, Changer
from tests.faults.workload import INSERT_S, Account, rows

NUMBER = 20
"""Of the first of them, among clients that change."""

DETACH, ATTACH, FREEZE = "detach", "attach", "freeze"
PARTITIONS = 1000
"""So many partitions each of them may take out."""

ASIDE_PAUSE_S = 1.0
ASIDE_ROWS, ASIDE_INSERTS = 10, 2
FREEZE_S = 10.0


class Keeper(Changer):
    """Detaches, attaches and freezes."""

    def __init__(self, number: int, table: Table, names: tuple[str, ...], account: Account, seed: int) -> None:
        super().__init__(NUMBER + number, table, names, account, seed)
        self.name = f"keeper-{number}"
        self._cycles = 0
        self._frozen: list[Frozen] = []

    @override
    def _act(self) -> None:
        if not self._stop.wait(ASIDE_PAUSE_S):
            self._random.choice((self._take_out_and_back, self._freeze_or_read))()

    # --- detached parts ---

    def _take_out_and_back(self) -> None:
        self._cycles += 1
        partition = str(self._number * PARTITIONS + self._cycles)
        tokens = [self._insert_into(int(partition)) for _ in range(ASIDE_INSERTS)]
        sure = [token for token in tokens if token is not None]
        if len(sure) < len(tokens):
            return  # a try that is still on its way would insert once more what is taken out
        self._account.remove(sure, certain=False)
        done = self._do(
            DETACH, lambda at, known_as: at.detach_partition(partition, command_id=known_as, timeout_s=CHANGE_S)
        )
        if done is False or (done and self._bring_back(partition)):
            for token in sure:
                self._account.acknowledge(token, None)

    def _insert_into(self, partition: int) -> str | None:
        """Insert some rows; return their token, or None when a try may still be on its way."""
        ids = range(self._next, self._next + ASIDE_ROWS)
        self._next = ids.stop
        token = f"aside{partition}-{ids.start}"
        data = rows(ids, (partition,), token)
        self._account.begin(token, ids)
        began = time.monotonic()
        done = self._do("insert aside", lambda at, _: at.insert(data, token=token, timeout_s=INSERT_S))
        if done:
            self._account.acknowledge(token, None)
        elif done is False:
            self._account.remove([token], certain=True)
        return token if done and time.monotonic() - began < SURE_S else None

    def _bring_back(self, partition: str) -> bool:
        """Attach what was taken out; whether all of it certainly is in the table again."""
        self.doing = f"look for what was detached of {partition}"
        while not self._give_up.wait(PAUSE_S):
            name = self._random.choice(self._names)
            parts = self._aside(name, partition)
            if sum(part.rows for part in parts) == ASIDE_ROWS * ASIDE_INSERTS:
                is_back = all(self._attach(name, part) for part in parts)
                self._attach_again(partition, {part.part for part in parts} if is_back else set())
                return is_back
        return False

    def _aside(self, name: str, partition: str) -> list[DetachedPart]:
        """Return what lies aside at a replica; nothing if it does not answer."""
        try:
            found = self._table.replica(name).detached()
        except Unavailable:
            return []
        by_part = {each.part: each for each in found if each.partition == partition}
        return [by_part[part] for part in sorted(by_part)]

    def _attach(self, name: str, part: DetachedPart) -> bool:
        """Attach a part, however often it takes; False: that is not certain, or a column of it was dropped meanwhile."""
        at, is_unknown = self._table.replica(name), False
        while not self._give_up.is_set():
            self.doing = f"attach {part.name} at {name}"
            try:
                at.attach(part.name, timeout_s=INSERT_S)
            except OutcomeUnknown:
                is_unknown = True
                self._account.count("attach unknown")
            except (Unavailable, StoreError):
                self._account.count("attach refused")
            except SchemaMismatch:
                self._account.count("attach of dropped columns")
                return False
            except BadInput as error:
                if not is_unknown:
                    raise AssertionError(f"{self.doing} failed for good: {error!r}") from error
                return True  # the earlier try has attached it
            else:
                self._account.count(ATTACH)
                return True
            self._give_up.wait(PAUSE_S)
        return False

    def _attach_again(self, partition: str, attached: set[str]) -> None:
        """Attach the same at another replica, which changes nothing."""
        name = self._random.choice(self._names)
        for part in self._aside(name, partition):
            if part.part not in attached:
                continue
            try:
                result = self._table.replica(name).attach(part.name, timeout_s=INSERT_S)
            except (OutcomeUnknown, Unavailable, StoreError, BadInput):
                continue
            assert result.outcome == "duplicate", f"{part.part} was attached twice: {result}"
            self._account.count("attach again")

    # --- frozen snapshots ---

    def _freeze_or_read(self) -> None:
        if self._frozen:
            self._read(self._frozen.pop())
        else:
            self._freeze()

    def _freeze(self) -> None:
        self._cycles += 1
        name, called = self._random.choice(self._names), f"frozen-{self._number}-{self._cycles}"
        self.doing = f"freeze {called} at {name}"
        at = self._table.replica(name)
        try:
            made = at.freeze(called, timeout_s=FREEZE_S)
        except (OutcomeUnknown, Unavailable, StoreError) as error:
            self._account.count(f"freeze: {type(error).__name__}")
            return
        self._account.count(FREEZE)
        self._frozen.append(made)

    def read_frozen(self) -> None:
        """Read what is still frozen."""
        while self._frozen:
            self._read(self._frozen.pop())

    def _read(self, frozen: Frozen) -> None:
        """Read a frozen snapshot, and remove it."""
        check_frozen(frozen)
        self._account.count("read frozen")
        try:
            self._table.replica(frozen.replica).remove_frozen(frozen.name)
        except (Unavailable, BadInput):  # it does not answer; or it has not, and was asked again
            self._account.count("frozen is left")


def check_frozen(frozen: Frozen) -> None:
    """Read all rows of a frozen snapshot where they lie: it is whole, and none is there twice."""
    folders = [path for path in Path(frozen.path).iterdir() if path.is_dir()]
    assert len(folders) == frozen.parts, f"{frozen.name} on {frozen.replica} has {len(folders)} parts: {frozen}"
    ids: Counter[int] = Counter()
    for folder in folders:
        for file in read_manifest(folder).files:
            read = pq.read_table(folder / file.name)
            assert read.num_rows == file.rows
            ids.update(read["id"].to_pylist())
    assert ids.total() == frozen.rows, f"{frozen.name} on {frozen.replica} has {ids.total()} rows: {frozen}"
    twice = [row for row, count in ids.items() if count > 1]
    assert not twice, f"{frozen.name} on {frozen.replica} has rows twice: {twice[:5]}"


__all__ = ["ATTACH", "DETACH", "FREEZE", "Keeper", "check_frozen"]
