"""The two systems once more, for what needs one of their replicas to be killed and started again; see `longlife.Recovering`.

Both keep 10 log entries at least, and give up an inactive replica that is more than 50 behind; they look every second.
"""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Callable
from typing import TYPE_CHECKING

from replitree.client.read.snapshot import SnapshotBody
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import ReplitreeError
from replitree_bench.kit.systems import EQUAL_S_MAX, REPLICAS, SCHEMA, make_rows
from replitree_bench.table.longlife import is_marked_lost

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.client import LocalCluster, Table
    from replitree_bench.kit.clickhouse import ClickHouse

SETTINGS: dict[str, object] = {
    "min_replicated_logs_to_keep": 10,
    "max_replicated_logs_to_keep": 50,
    "clean_log_delay_s": 1.0,
    "clean_log_delay_random_s": 0.0,
}
"""Of our replicas."""

_THEIRS = (
    "SETTINGS max_replicated_logs_to_keep=50, min_replicated_logs_to_keep=10, "
    "cleanup_delay_period=1, cleanup_delay_period_random_add=0"
)
LOOK_S = 0.01


class OurRestarts:
    """Ours.

    Parameters
    ----------
    cluster
        Of two replicas, with `SETTINGS`.
    rows
        Makes the rows of an insert from the first key and their number; with `SCHEMA`.
    """

    def __init__(self, cluster: LocalCluster, rows: Callable[[int, int], pa.Table] = make_rows) -> None:
        self._cluster = cluster
        self._rows = rows
        self._name = ""
        self._tables: tuple[Table, ...] = ()
        self._last = -1

    def create(self, table: str) -> None:
        """See `Recovering`."""
        made = self._cluster.create_table(
            table, SCHEMA, order_by="k", partition_by="month(d)", wait_replicas=REPLICAS, timeout_s=EQUAL_S_MAX
        )
        self._name, self._last = table, -1
        self._tables = tuple(made.replica(f"r{number}") for number in range(1, REPLICAS + 1))

    def load(self, first: int, rows: int) -> None:
        """See `Recovering`."""
        result = self._tables[0].insert(self._rows(first, rows))
        if result.index is None:
            raise ReplitreeError(f"a block of the benchmark was not inserted: {result}")
        self._last = max(self._last, result.index)

    def wait_equal(self) -> float:
        """See `Recovering`; what is compared are the rows of what both show."""
        begin = time.perf_counter()
        rows = self._tables[0].snapshot(self._last, timeout_s=EQUAL_S_MAX).rows
        while time.perf_counter() - begin < EQUAL_S_MAX:
            try:
                if self._rows_of_second() == rows:
                    return time.perf_counter() - begin
            except ReplitreeError:  # the second one is starting
                pass
            time.sleep(LOOK_S)
        raise ReplitreeError(f"the replicas of {self._name} still differ after {EQUAL_S_MAX:.0f} s")

    def _rows_of_second(self) -> int:
        """Ask the second replica once; the growing pauses between a client's tries would count as recovery."""
        second = next(each for each in self._cluster.catalog.replicas(self._name) if each.name == "r2")
        path = f"/v1/tables/{self._name}/snapshot?min_index={self._last + 1}&wait_s={EQUAL_S_MAX:.0f}"
        answer = self._tables[1].http.request(second.address, "GET", path, timeout_s=EQUAL_S_MAX)
        return sum(part.manifest.rows for part in answer.decode(SnapshotBody).parts)

    def kill_second(self) -> None:
        """See `Recovering`."""
        self._cluster.kill("r2")

    def start_second(self) -> None:
        """See `Recovering`."""
        self._cluster.start("r2")

    def is_second_lost(self) -> bool:
        """See `Recovering`."""
        session = ZooKeeperCoordination(self._cluster.access.url)
        try:
            return is_marked_lost(session, self._cluster.catalog.place(self._name), "r2")
        finally:
            session.close()


class PeerRestarts:
    """ClickHouse."""

    def __init__(self, cluster: ClickHouse) -> None:
        self._cluster = cluster
        self._table = ""
        self._root = f"/clickhouse/tables/restarts-{time.time_ns()}"

    def create(self, table: str) -> None:
        """See `Recovering`."""
        self._table = table
        self._cluster.create_table(table, self._root, _THEIRS)

    def load(self, first: int, rows: int) -> None:
        """See `Recovering`."""
        self._cluster.query(
            1,
            f"INSERT INTO {self._table} SELECT toDate('2018-01-01'), number+{first}, number/3, toString(number) "  # noqa: S608
            f"FROM numbers({rows})",
        )

    def wait_equal(self) -> float:
        """See `Recovering`."""
        sql = f"SELECT count(), sum(k) FROM {self._table}"  # noqa: S608 - the name is ours
        begin = time.perf_counter()
        while time.perf_counter() - begin < EQUAL_S_MAX:
            try:
                if len({self._cluster.query(number, sql) for number in self._cluster.replicas}) == 1:
                    return time.perf_counter() - begin
            except (ReplitreeError, OSError, urllib.error.URLError):  # the second one is starting
                pass
            time.sleep(LOOK_S)
        raise ReplitreeError(f"ClickHouse's replicas still differ after {EQUAL_S_MAX:.0f} s")

    def kill_second(self) -> None:
        """See `Recovering`."""
        self._cluster.kill(2)

    def start_second(self) -> None:
        """See `Recovering`."""
        self._cluster.start(2)

    def is_second_lost(self) -> bool:
        """See `Recovering`."""
        path = f"{self._root}/{self._table}/replicas/r2"
        sql = f"SELECT value FROM system.zookeeper WHERE path='{path}' AND name='is_lost'"  # noqa: S608 - both are ours
        return self._cluster.query(1, sql).strip() == "1"
