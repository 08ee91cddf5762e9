"""The two systems behind one interface, so that both get exactly the same workload.

Schema: ``d date, k 64-bit integer, v double, s string``, partitioned by the month of d, ordered by k.  (ClickHouse's k is
unsigned, ours is signed: Spark has no unsigned integers.)  Requests alternate between the two replicas.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from replitree.errors import ReplitreeError

if TYPE_CHECKING:
    from replitree.client import Connection, InsertResult, Table
    from replitree_bench.kit.clickhouse import ClickHouse

REPLICAS = 2
BLOCK_ROWS = 100
EQUAL_S_MAX = 120.0
SCHEMA = "d date not null, k bigint not null, v double not null, s string not null"
DAY = dt.date(2018, 1, 1)

_ANOTHER_IS_OPEN = "Code: 286,"
"""ClickHouse's UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE: it has written nothing."""


class System(Protocol):
    """What the workloads ask of a system."""

    def create(self, table: str) -> None:
        """Make an empty table on both replicas; later calls mean this one."""

    def prepare(self, first: int, blocks: int) -> None:
        """Make `blocks` blocks of rows ready whose keys begin at block `first`."""

    def insert(self, block: int) -> None:
        """Insert one block of `BLOCK_ROWS` rows at replica 1 or 2 in turn; return when it is acknowledged."""

    def visible_after_s(self, block: int) -> float:
        """Insert one block at replica 1; return the seconds from the acknowledgement until replica 2 shows it."""

    def bulk(self, rows: int) -> float:
        """Insert `rows` rows at replica 1 in one statement; return the seconds until it is acknowledged."""

    def wait_equal(self) -> float:
        """Wait until both replicas show the same rows; return the seconds."""

    def coordination_requests(self) -> int:
        """Return the requests of the whole cluster to ZooKeeper so far; pings are not counted."""


class Peer:
    """ClickHouse: rows are made by the server (``FROM numbers``), so its client does nearly nothing."""

    def __init__(self, cluster: ClickHouse) -> None:
        self._cluster = cluster
        self._table = ""
        self._root = f"/clickhouse/tables/bench-{time.time_ns()}"

    def create(self, table: str) -> None:
        """See `System`."""
        self._table = table
        self._cluster.create_table(table, self._root)

    def prepare(self, first: int, blocks: int) -> None:
        """See `System`: nothing to do."""

    def insert(self, block: int) -> None:
        """See `System`."""
        self._cluster.query(
            1 + block % REPLICAS, f"INSERT INTO {self._table} {_numbers(block * BLOCK_ROWS, BLOCK_ROWS)}"
        )

    def insert_with_quorum(self, block: int) -> bool:
        """See `bench.quorum.QuorumSystem`."""
        sql = f"INSERT INTO {self._table} {_numbers(block * BLOCK_ROWS, BLOCK_ROWS)}"
        try:
            self._cluster.query(1 + block % REPLICAS, sql, insert_quorum=REPLICAS)
        except ReplitreeError as error:
            if _ANOTHER_IS_OPEN in str(error):
                return False
            raise
        return True

    def visible_after_s(self, block: int) -> float:
        """See `System`."""
        first = block * BLOCK_ROWS
        self._cluster.query(1, f"INSERT INTO {self._table} {_numbers(first, BLOCK_ROWS)}")
        sql = f"SELECT count() FROM {self._table} WHERE k = {first}"  # noqa: S608 - both are ours
        begin = time.perf_counter()
        while time.perf_counter() - begin < EQUAL_S_MAX:
            if self._cluster.query(2, sql).strip() == "1":
                return time.perf_counter() - begin
            time.sleep(0.001)
        raise ReplitreeError(f"ClickHouse's second replica did not show an insert in {EQUAL_S_MAX:.0f} s")

    def bulk(self, rows: int) -> float:
        """See `System`."""
        begin = time.perf_counter()
        self._cluster.query(1, f"INSERT INTO {self._table} {_numbers(0, rows)}")
        return time.perf_counter() - begin

    def wait_equal(self) -> float:
        """See `System`."""
        sql = f"SELECT count(), sum(k) FROM {self._table}"  # noqa: S608 - the name is ours
        begin = time.perf_counter()
        while time.perf_counter() - begin < EQUAL_S_MAX:
            if len({self._cluster.query(number, sql) for number in self._cluster.replicas}) == 1:
                return time.perf_counter() - begin
            time.sleep(0.01)
        raise ReplitreeError(f"ClickHouse's replicas still differ after {EQUAL_S_MAX:.0f} s")

    def coordination_requests(self) -> int:
        """See `System`."""
        return self._cluster.coordination_requests()


def _numbers(first: int, rows: int) -> str:
    return f"SELECT toDate('{DAY}'), number+{first}, number/3, toString(number) FROM numbers({rows})"  # noqa: S608


def make_rows(first: int, rows: int) -> Any:
    """Return the same rows as an Arrow table."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from replitree.storage.schema.definition import define_table

    numbers = pa.array(np.arange(rows, dtype=np.int64))
    columns = [
        pa.array(np.full(rows, (DAY - dt.date(1970, 1, 1)).days, dtype=np.int32)).cast(pa.date32()),
        pa.array(np.arange(first, first + rows, dtype=np.int64)),
        pc.divide(numbers.cast(pa.float64()), 3.0),
        numbers.cast(pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=define_table("rows", SCHEMA).arrow_schema)


class Ours:
    """Ours: rows lie ready in the client as Arrow batches and travel over HTTP with every insert.

    Parameters
    ----------
    connection
        To a cluster of `REPLICAS` replicas.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._name = ""
        self._tables: tuple[Table, ...] = ()
        self._blocks: dict[int, Any] = {}
        self._last = -1
        self._lock = threading.Lock()

    def create(self, table: str) -> None:
        """See `System`."""
        made = self._connection.create_table(
            table, SCHEMA, order_by="k", partition_by="month(d)", wait_replicas=REPLICAS, timeout_s=EQUAL_S_MAX
        )
        self._name, self._last = table, -1
        self._tables = tuple(made.replica(f"r{number}") for number in range(1, REPLICAS + 1))

    def prepare(self, first: int, blocks: int) -> None:
        """See `System`."""
        rows = make_rows(first * BLOCK_ROWS, blocks * BLOCK_ROWS).combine_chunks().to_batches()[0]
        self._blocks = {first + i: rows.slice(i * BLOCK_ROWS, BLOCK_ROWS) for i in range(blocks)}

    def insert(self, block: int) -> None:
        """See `System`."""
        self._inserted(self._tables[block % REPLICAS].insert(self._blocks[block]))

    def insert_with_quorum(self, block: int) -> bool:
        """See `bench.quorum.QuorumSystem`."""
        self._inserted(self._tables[block % REPLICAS].insert(self._blocks[block], quorum=REPLICAS))
        return True

    def visible_after_s(self, block: int) -> float:
        """See `System`."""
        index = self._inserted(self._tables[0].insert(self._blocks[block]))
        begin = time.perf_counter()
        self._tables[1].snapshot(index)
        return time.perf_counter() - begin

    def bulk(self, rows: int) -> float:
        """See `System`; the rows are made before the clock starts."""
        data = make_rows(0, rows)
        begin = time.perf_counter()
        self._inserted(self._tables[0].insert(data))
        return time.perf_counter() - begin

    def wait_equal(self) -> float:
        """See `System`."""
        begin = time.perf_counter()
        counts = {table.snapshot(self._last, timeout_s=EQUAL_S_MAX).rows for table in self._tables}
        if len(counts) != 1:
            raise ReplitreeError(f"the replicas of {self._name} show different rows: {sorted(counts)}")
        return time.perf_counter() - begin

    def coordination_requests(self) -> int:
        """See `System`."""
        return sum(sum(server.coordination_requests.values()) for server in self._connection.servers())

    def _inserted(self, result: InsertResult) -> int:
        """Take note of an insert; return its index."""
        if result.outcome != "inserted" or result.index is None:
            raise ReplitreeError(f"a block of the benchmark was not inserted: {result}")
        with self._lock:
            self._last = max(self._last, result.index)
        return result.index
