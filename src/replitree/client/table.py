"""A table, as a program sees it: insert rows, read rows, look at it.

A handle reads its own writes: whatever it, or another handle of the same table from the same connection, has inserted
is in every later snapshot, whichever replica answers.

Absent on purpose: anything that changes rows that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
from typing_extensions import override

from replitree.client.catalog import Catalog, ReplicaInfo
from replitree.client.http import HttpClient
from replitree.client.insert import TIMEOUT_S, Inserter, InsertResult, Written
from replitree.client.routing import Router
from replitree.client.snapshot import PartCache, Snapshot, SnapshotBody
from replitree.client.status import TableStatus, table_status
from replitree.storage.definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SNAPSHOT_S = 30.0
"""How long a snapshot may wait until a replica has what it must include, in seconds."""

ANSWER_S = 10.0
"""Of the time that one replica may be silent, how much is left for its answer to arrive; for the rest it may wait for
the log."""


class Table:
    """A table of a cluster.  Any thread may use it.

    Made by `Connection.table` and `Connection.create_table`.
    """

    def __init__(
        self,
        definition: TableDefinition,
        catalog: Catalog,
        http: HttpClient,
        written: Written,
        pinned: str | None = None,
    ) -> None:
        self._definition = definition
        self._catalog = catalog
        self._http = http
        self._written = written
        self._pinned = pinned
        self._router = Router(catalog, definition.name, pinned)
        self._inserter = Inserter(definition, catalog, http, self._router, written)

    @override
    def __repr__(self) -> str:
        at = f" at {self._pinned}" if self._pinned else ""
        return f"<Table {self.name}{at}: {len(self._definition.columns)} columns>"

    @property
    def name(self) -> str:
        """The table's name."""
        return self._definition.name

    @property
    def definition(self) -> TableDefinition:
        """Its columns, order key, partition transforms and settings."""
        return self._definition

    @property
    def schema(self) -> pa.Schema:
        """Its Arrow schema."""
        return self._definition.arrow_schema

    @property
    def inserter(self) -> Inserter:
        """What `insert` uses; for whoever writes part files by other means, such as Spark."""
        return self._inserter

    @property
    def http(self) -> HttpClient:
        """How this handle talks to replicas."""
        return self._http

    def replica(self, name: str) -> Table:
        """Return this table at one replica: it alone is asked, whatever its state.

        Parameters
        ----------
        name
            The replica's name.
        """
        return Table(self._definition, self._catalog, self._http, self._written, name)

    def replicas(self) -> tuple[ReplicaInfo, ...]:
        """Return the replicas that have joined this table, as coordination knows them."""
        return self._catalog.replicas(self.name)

    # --- writing ------------------------------------------------------------------------------------------------------

    def insert(
        self,
        data: Any,
        token: str | None = None,
        replica: str | None = None,
        *,
        deduplicate: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> InsertResult:
        """Insert rows, all or none, and return when they are on disk and in the log.

        Parameters
        ----------
        data
            A pyarrow Table, RecordBatch or RecordBatchReader; anything with ``__arrow_c_stream__``; a dict of columns;
            a list of dicts; or a Spark DataFrame.
        token
            Names this insert: a second one with the same token is a duplicate, whatever its rows.  By default equal
            content makes a duplicate.
        replica
            Insert at this replica only.
        deduplicate
            False: insert the rows even if the same rows are in the table already.
        timeout_s
            When to stop trying, in seconds.

        Raises
        ------
        SchemaMismatch, BadInput
            The rows do not fit; nothing was inserted.
        TooManyParts, Unavailable
            Nothing was inserted; try again later.
        OutcomeUnknown
            They may have been inserted; insert them again with the error's token (the same rows when it is empty).

        Examples
        --------
        ::

            table.insert({"k": [1, 2], "v": [0.5, None]})
            table.insert(arrow_table, token="load-2026-11-20")
        """
        target = self.replica(replica) if replica is not None and replica != self._pinned else self
        if type(data).__module__.startswith("pyspark."):
            write: Any = import_module("replitree.spark.write")  # by name, because Spark is a layer above the client
            result: InsertResult = write.insert_df(
                target, data, token=token, deduplicate=deduplicate, timeout_s=timeout_s
            )
            return result
        return target.inserter.insert(data, token, deduplicate=deduplicate, timeout_s=timeout_s)

    # --- reading ------------------------------------------------------------------------------------------------------

    def snapshot(self, min_index: int | None = None, *, timeout_s: float = SNAPSHOT_S) -> Snapshot:
        """Return the parts that a replica shows now.

        Parameters
        ----------
        min_index
            The insert at this log index (`InsertResult.index`) and all before it must be included.  By default whatever
            this connection has inserted must; -1 asks for nothing.
        timeout_s
            How long to wait until a replica has that much, in seconds.

        Raises
        ------
        Unavailable
            No replica has that much in time.
        """
        wanted = (self._written.index if min_index is None else min_index) + 1
        route = f"/v1/tables/{quote(self.name)}/snapshot?min_index={max(0, wanted)}"

        def call(replica: ReplicaInfo, seconds: float) -> SnapshotBody:
            path = f"{route}&wait_s={max(0.1, seconds - ANSWER_S):.1f}"
            answer = self._http.request(replica.address, "GET", path, timeout_s=seconds)
            return answer.decode(SnapshotBody).check()

        body = self._router.ask(call, timeout_s=timeout_s + ANSWER_S)
        addresses = [replica.address for replica in self._router.replicas()]
        source = PartCache(self._http, self.name, addresses)
        return Snapshot(self._definition, body.index, body.replica, body.parts, body.machine, source)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        timeout_s: float = SNAPSHOT_S,
    ) -> pa.Table:
        """Read rows at one snapshot.

        Parameters
        ----------
        columns
            Names, in the order wanted; all by default.
        where
            Spark SQL condition over this table's columns; parts that can't match are not opened.
        min_index, timeout_s
            As `snapshot`.

        Raises
        ------
        BadInput
            A column is unknown, or `where` can't be read.
        Unavailable
            No replica can show what must be included in time.
        """
        return self.snapshot(min_index, timeout_s=timeout_s).to_arrow(columns, where)

    def batches(
        self, columns: Sequence[str] | None = None, where: str | None = None, min_index: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read rows at one snapshot batch by batch, in bounded memory; parameters as `to_arrow`."""
        yield from self.snapshot(min_index).batches(columns, where)

    def to_df(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        timeout_s: float = SNAPSHOT_S,
    ) -> DataFrame:
        """Give one snapshot to Spark, through its own Parquet reader where it reaches the files.

        The frame is that snapshot for ever: call again to see later inserts.

        Parameters
        ----------
        spark
            A session; `replitree.spark.spark_session` makes one with the right settings.
        columns, where
            As `to_arrow`; both are pushed down to the files.
        min_index, timeout_s
            As `snapshot`.
        """
        return self.snapshot(min_index, timeout_s=timeout_s).to_df(spark, columns, where)

    def status(self) -> TableStatus:
        """Return how the table and each of its replicas is."""
        return table_status(self._catalog, self._http, self._definition)
