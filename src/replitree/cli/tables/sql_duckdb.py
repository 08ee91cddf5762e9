"""Queries of `replitree sql` that DuckDB answers, in its own SQL, without Java: a call takes less than a second.

Each table that a query names is a view of one snapshot.  DuckDB reads the columns and the row groups that the query needs: by
its own reader of Parquet where it may have the files, else through a dataset of Arrow's (`replitree.client.read.engines`).

DuckDB only reads.  What changes a table is refused here, or was an entry of the table's log before an engine was asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from replitree.cli.tables.sql_engine import Asked, no_table
from replitree.cli.tables.sql_rows import SqlFormat, print_rows, unique
from replitree.client.read.engines import duckdb_view, engine
from replitree.client.read.scan import LEASE_S
from replitree.client.read.snapshot import Snapshot
from replitree.errors import BadInput, ReplicaUnavailable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from replitree.client import Connection

FETCHED_ROWS = 10_000
"""Rows that are fetched at once."""

_WORD = re.compile(r"\w+")
_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


class DuckdbEngine:
    """DuckDB, in this process.

    Parameters
    ----------
    connection
        The cluster.

    Raises
    ------
    EngineMissing
        DuckDB is not installed.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._duckdb: Any = engine("duckdb")
        # Nothing is downloaded, and times are shown in UTC, as Spark's session shows them.
        settings = {"autoinstall_known_extensions": "false"}
        self._con: DuckDBPyConnection = self._duckdb.connect(config=settings)
        self._con.execute("SET TimeZone = 'UTC'")

    def tables_of(self, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """See `Engine`."""
        duckdb = self._duckdb
        try:
            statements = self._con.extract_statements(text)
        except duckdb.Error as error:
            raise BadInput(f"DuckDB can't read this query: {_first_lines(error)}") from error
        if len(statements) != 1:
            raise BadInput("give one statement at a time, or put them into a file for --file")
        if statements[0].type not in {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}:
            kind = str(statements[0].type).rpartition(".")[2]
            raise BadInput(
                f"{kind} is not a statement for DuckDB here, which only reads: DELETE FROM, UPDATE, ALTER TABLE and TRUNCATE"
                " TABLE change a table with every engine, and `replitree insert` inserts rows"
            )
        try:
            names = {name.lower() for name in self._con.get_table_names(text)}
        except duckdb.Error:
            # DuckDB binds a join before it names the tables of it, and they are not there yet.
            names = {word.lower() for word in _WORD.findall(text)}
        return tuple(sorted(table for table in known if table.lower() in names))

    def answer(self, asked: Asked, named: tuple[str, ...], output: SqlFormat, *, as_json: bool) -> None:
        """See `Engine`."""
        duckdb = self._duckdb
        with ExitStack() as held:
            snapshots = []
            for name in named:
                as_of = (asked.as_of or {}).get(name)
                snapshot = self._connection.table(name).snapshot(
                    (asked.min_index or {}).get(name),
                    level=asked.level if as_of is None else None,
                    as_of=as_of,
                    lease_s=LEASE_S,
                    timeout_s=asked.timeout_s,
                )
                snapshots.append(held.enter_context(snapshot))
            for name, snapshot in zip(named, snapshots, strict=True):
                duckdb_view(self._con, snapshot.scan(), name)
            try:
                # In a thread of its own: while DuckDB executes, the main thread would not see the signal.
                with ThreadPoolExecutor(1, thread_name_prefix="replitree-duckdb") as pool:
                    running = pool.submit(
                        lambda: print_rows(_DuckdbRows(self._con, asked.text), output, as_json=as_json)
                    )
                    try:
                        running.result()
                    except KeyboardInterrupt:
                        self._con.interrupt()
                        raise
            except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
                _check(snapshots)
                if isinstance(error, duckdb.CatalogException) and (found := _NO_TABLE.search(str(error))):
                    raise BadInput(no_table(found[1], asked.known)) from error
                raise BadInput(f"DuckDB can't answer this query: {_first_lines(error)}") from error
            except duckdb.Error as error:
                _check(snapshots)
                raise ReplicaUnavailable(f"DuckDB could not answer this query: {_first_lines(error)}") from error
            # Files may have gone when a lease was lost; DuckDB had some of them open.
            _check(snapshots)

    def close(self) -> None:
        """Close the database."""
        self._con.close()


_NO_TABLE = re.compile(r"Table with name (.+) does not exist")


def _check(snapshots: list[Snapshot]) -> None:
    """Do nothing, unless a snapshot has lost its lease.  Raises `LeaseLost`."""
    for snapshot in snapshots:
        snapshot.check()


class _DuckdbRows:
    """Rows of a query: see `Rows`."""

    def __init__(self, con: DuckDBPyConnection, text: str) -> None:
        self._con = con
        self._text = text
        # Binds the query, and runs nothing.
        self._relation = con.sql(text)

    @property
    def columns(self) -> list[str]:
        return list(self._relation.columns)

    @property
    def types(self) -> list[str]:
        return [str(kind).lower() for kind in self._relation.types]

    def first(self, count: int) -> list[tuple[object, ...]]:
        return list(self._relation.limit(count).fetchall())

    def tuples(self) -> Iterator[tuple[object, ...]]:
        self._con.execute(self._text)
        while found := self._con.fetchmany(FETCHED_ROWS):
            yield from found

    def objects(self) -> Iterator[str]:
        names = unique(self.columns)
        return (_ENCODER.encode(dict(zip(names, row, strict=True))).decode() for row in self.tuples())


def _first_lines(error: Exception) -> str:
    """Return DuckDB's message without the text of the query, which it repeats below an empty line."""
    return " ".join(str(error).split("\n\n", 1)[0].split())
