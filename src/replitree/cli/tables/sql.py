"""`replitree sql`: Spark SQL over the tables, each at one snapshot; and the statements that change a table.

``DELETE FROM``, ``UPDATE``, ``ALTER TABLE`` and ``TRUNCATE TABLE`` become entries of the table's log; Spark, which could not
do them, is not even started.  Queries are Spark's; anything else is refused, see `replitree.cli.tables.statements`.
"""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import ChangeOptions, check_name, on_cluster
from replitree.cli.output import Output, console, counted, width_of
from replitree.cli.tables.change import show
from replitree.cli.tables.query_tables import SHOW_TABLES, conditions_of, named_tables, unknown_table
from replitree.cli.tables.statements import change_of, without_comments
from replitree.errors import BadInput, ReplicaUnavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import Connection

SHOWN_ROWS_MAX = 1000
"""Rows that are shown as a table; csv and json give all of them."""


class Level(StrEnum):
    """The levels of reads, as `replitree.protocol.state.read` has them."""

    EVENTUAL = "eventual"
    SEQUENTIAL = "sequential"
    LINEARIZABLE = "linearizable"


class SqlFormat(StrEnum):
    """How the rows are printed."""

    TABLE = "table"
    VERTICAL = "vertical"
    CSV = "csv"
    JSON = "json"


Query = Annotated[
    str, typer.Argument(metavar="QUERY", help='As in "select count(*) from events"; - reads standard input.')
]
Format = Annotated[
    SqlFormat,
    typer.Option(
        "--output", help="How to print the rows; vertical: a line for each column; json: one object per line."
    ),
]


Indexes = list[str] | None
AtLevel = Annotated[
    Level | None, typer.Option("--level", help="What a query is promised; eventual when nothing is said.")
]
AsOf = Annotated[
    Indexes,
    typer.Option(
        "--as-of",
        metavar="[TABLE=]INDEX|TIME",
        help="Ask a table as it was when its log had so many entries, or at a time.",
    ),
]
MinIndex = Annotated[
    Indexes,
    typer.Option("--min-index", metavar="[TABLE=]INDEX", help="The entry at this log index must be included."),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.0, max=3600.0, help="How long to wait for a replica with all that."
    ),
]

Final = Annotated[
    bool,
    typer.Option(
        "--final",
        help="DELETE FROM in a table with replacing(version): delete every version of the keys whose winning row matches.",
    ),
]


@dataclass(frozen=True, slots=True)
class QueryOptions(ChangeOptions):
    """What a query needs besides: how fresh its tables must be, and how long to wait for that."""

    level: AtLevel = None
    as_of: AsOf = None
    min_index: MinIndex = None
    timeout: Timeout = 30.0
    final: Final = False

    @property
    def reads(self) -> bool:
        """Whether anything is said that only a query can heed."""
        return bool(self.level or self.as_of or self.min_index)


@on_cluster
def sql(query: Query, how: QueryOptions, output: Format = SqlFormat.TABLE) -> None:
    """Ask with Spark SQL, every table at one position of its number line; or change one table.

    DELETE FROM, UPDATE, ALTER TABLE and TRUNCATE TABLE change it; when they take longer than --wait, the exit status is 3.
    When no replica is as far as --level or --min-index ask in time, it is 4, and nothing is shown.
    """
    if query == "-":
        # In some locales Python reads bytes that are no text as lone surrogates, in others it refuses them.
        try:
            query = sys.stdin.read()
            query.encode()
        except UnicodeError as error:
            raise BadInput("standard input is no text in UTF-8: give the query in that form") from error
    text = without_comments(query)
    if not text:
        raise BadInput('the query is empty: replitree sql "select count(*) from events"')
    change = change_of(text)
    if change is not None:
        check_name(change["table"].strip("`"))
    with how.connect() as connection:
        if change is not None and how.reads:
            raise BadInput("--level, --as-of and --min-index are for queries: leave them out")
        if how.final and (change is None or not change["verb"].lower().startswith("delete")):
            raise BadInput("--final is for DELETE FROM: leave it out")
        if change is not None:
            _change(_ChangeStatement(text, change, how.command_id, how.wait, how.final), connection, how.out)
        elif how.command_id is not None:
            raise BadInput("--id repeats a change; a query has no id: leave it out")
        else:
            _ask(connection, text, SqlFormat.JSON if how.as_json else output, how)


@dataclass(frozen=True, slots=True)
class _ChangeStatement:
    """A statement that changes a table, what was read of its beginning, and what was said about it."""

    text: str
    begin: re.Match[str]
    command_id: str | None
    wait_s: float
    final: bool


def _change(change: _ChangeStatement, connection: Connection, out: Output) -> None:
    """Make the statement an entry of the table's log."""
    text, begin = change.text, change.begin
    name, verb = begin["table"].strip("`"), begin["verb"].split()[0].lower()
    table = connection.table(name)
    if verb == "truncate":
        if text[begin.end() :].strip(" ;\n\t"):
            raise BadInput(
                "TRUNCATE TABLE takes a table and nothing else; `replitree table drop-partition` drops one partition"
            )
        result = table.truncate(command_id=change.command_id, timeout_s=change.wait_s)
        show(out, name, result, f"emptied: {counted(result.removed, 'part')}")
    elif verb == "alter":
        result = table.alter(text, command_id=change.command_id, timeout_s=change.wait_s)
        show(out, name, result, f"columns changed, now version {result.schema_version}")
    elif change.final:
        from replitree.storage.sql.mutation import parse_mutation

        where = parse_mutation(text, table.definition).where
        result = table.delete(where, final=True, command_id=change.command_id, timeout_s=change.wait_s)
        show(out, name, result, f"{counted(result.removed, 'part')} replaced")
    else:
        result = table.mutate(text, command_id=change.command_id, timeout_s=change.wait_s)
        show(out, name, result, f"{counted(result.removed, 'part')} replaced")


def by_table(
    given: Sequence[str] | None, option: str, tables: Sequence[str], named: Sequence[str] = ()
) -> dict[str, int | str]:
    """Return the index, or for ``--as-of`` the time, that an option gives for each table.

    Parameters
    ----------
    given
        What the option says, as in ``TABLE=41``.
    option
        Its name.
    tables
        All tables.
    named
        Those that the query names; an index without a table means the only one.

    Raises
    ------
    BadInput
        It names no index, or a table that is not there, or none although there are several.

    >>> by_table(["41"], "--as-of", ["events"]), by_table(["a=1", "b=2026-11-27T02:00Z"], "--as-of", ["a", "b"])
    ({'events': 41}, {'a': 1, 'b': '2026-11-27T02:00Z'})
    """
    found: dict[str, int | str] = {}
    for text in given or ():
        name, _, index = text.rpartition("=")
        meant = named if len(named) == 1 else tables
        if not name and len(meant) != 1:
            raise BadInput(f"{option} {text}: say of which table, as in {option} TABLE={index}")
        is_index = index.isascii() and index.isdigit()
        is_known = is_index or (option == "--as-of" and _is_time(index))
        if not is_known or (name and name not in tables):
            known = ", ".join(tables) or "none yet"
            raise BadInput(f"{option} {text}: a table and an index of its log, as in TABLE=41; the tables are {known}")
        found[name or meant[0]] = int(index) if is_index else index
    return found


def _is_time(text: str) -> bool:
    from replitree.client.read.as_of import parse_time

    try:
        parse_time(text)
    except BadInput:
        return False
    return True


def _ask(connection: Connection, text: str, output: SqlFormat, how: QueryOptions) -> None:
    """Have Spark answer a query."""
    # ZooKeeper is asked before Spark is started, so that a wrong address is reported at once.
    known = connection.tables()
    if SHOW_TABLES.fullmatch(text):
        _show_tables(known, output, as_json=how.as_json)
        return
    missing, named = unknown_table(text, known), named_tables(text, known)
    if missing is not None:
        raise BadInput(_no_table(missing, known))
    as_of = by_table(how.as_of, "--as-of", known, named)
    given = by_table(how.min_index, "--min-index", known, named)
    min_index = {table: index for table, index in given.items() if isinstance(index, int)}
    both = sorted({*as_of} & {*min_index})
    if both:
        raise BadInput(f"--as-of says exactly what is included of {both[0]}: leave --min-index out")
    from replitree.spark.read.views import sql_views
    from replitree.spark.session.quiet import quiet_children
    from replitree.spark.session.session import spark_session

    # PySpark logs an error of the query before it raises it, as JSON with the whole plan.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with quiet_children():
        spark = spark_session(app_name="replitree sql")
    try:
        spark.sparkContext.setLogLevel("ERROR")
        with ExitStack() as held:
            make_views = partial(
                sql_views,
                spark,
                connection,
                # A table that can't be read does not concern queries of others.
                named,
                held=held,
                level=how.level.value if how.level else None,
                min_index=min_index,
                as_of=as_of,
                timeout_s=how.timeout,
                conditions=conditions_of(text) if len(named) == 1 else (),
            )
            make_views()
            try:
                _answer(spark, text, output, known, as_json=how.as_json)
            except _Damaged as damage:
                make_views(verify=True)
                # After some rows were printed, the query can't be repeated.
                if output is not SqlFormat.TABLE and not how.as_json:
                    raise ReplicaUnavailable(
                        f"a file was damaged, and its replica fetches it again: repeat the query ({damage})"
                    ) from damage
                _answer(spark, text, output, known, as_json=how.as_json)
    finally:
        spark.stop()


class _Damaged(ReplicaUnavailable):
    """Spark found a damaged block in a file while it answered."""


def _answer(spark: SparkSession, text: str, output: SqlFormat, tables: Sequence[str], *, as_json: bool) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    from replitree.spark.read.views import is_damage

    try:
        _print(spark.sql(text), output, as_json=as_json)
    except (PySparkException, Py4JError) as error:
        if is_damage(error):
            raise _Damaged(_first_line(error)) from error
        if isinstance(error, PySparkException) and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            # Spark's own message names the places where it looked, which mean nothing here.
            name = (error.getMessageParameters() or {}).get("relationName", "of this name")
            raise BadInput(_no_table(name, tables)) from error
        if isinstance(error, PySparkException):
            raise BadInput(f"Spark can't answer this query: {_first_line(error)}") from error
        raise ReplicaUnavailable(f"Spark could not answer this query: {_first_line(error)}") from error


def _no_table(name: str, tables: Sequence[str]) -> str:
    """Say that there is no such table, and which there are."""
    known = (
        f"The tables are {', '.join(tables)}" if tables else "There are no tables yet: replitree table create makes one"
    )
    return f"there is no table {name}. {known}"


def _show_tables(tables: Sequence[str], output: SqlFormat, *, as_json: bool) -> None:
    """Answer SHOW TABLES, with the names alone; Spark need not be started for it."""
    if as_json:
        columns = [{"name": "tableName", "type": "string"}]
        Output(as_json=True).json({"columns": columns, "rows": [{"tableName": table} for table in tables]})
    elif output is SqlFormat.JSON:
        for table in tables:
            print(json.dumps({"tableName": table}))
    elif output is SqlFormat.CSV:
        print("\n".join(("tableName", *tables)))
    else:
        Output().table("", ("tableName",), [(table,) for table in tables])


def _first_line(error: Exception) -> str:
    """Return the part of Spark's message that is about the query, without its plan."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines[:2] if not line.startswith(("'", "+-", "==", ":-"))) or type(error).__name__


def _print(frame: DataFrame, output: SqlFormat, *, as_json: bool) -> None:
    if as_json:
        names = unique(frame.columns)
        columns = [{"name": name, "type": kind} for name, (_, kind) in zip(names, frame.dtypes, strict=True)]
        Output(as_json=True).json({"columns": columns, "rows": [json.loads(text) for text in _objects(frame)]})
    elif output is SqlFormat.JSON:
        for text in _objects(frame):
            print(text)
    elif output is SqlFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(frame.columns)
        writer.writerows(tuple(row) for row in frame.toLocalIterator())
    else:
        rows = [tuple(row) for row in frame.take(SHOWN_ROWS_MAX + 1)]
        has_room = width_of(frame.columns, rows[:SHOWN_ROWS_MAX]) <= console().width
        show = Output().table if output is SqlFormat.TABLE and has_room else Output().vertical
        show("", frame.columns, rows[:SHOWN_ROWS_MAX])
        if len(rows) > SHOWN_ROWS_MAX:
            print(f"only the first {SHOWN_ROWS_MAX:,} rows are shown; --output csv or json gives all")


def _objects(frame: DataFrame) -> Iterator[str]:
    """Give each row as a JSON object, nulls included; Spark makes them, so nested values and times look as Spark has them."""
    from pyspark.sql import functions as f

    named = frame.toDF(*unique(frame.columns))
    columns = ["`" + name.replace("`", "``") + "`" for name in named.columns]
    texts = named.select(f.to_json(f.struct(*columns), {"ignoreNullFields": "false"}))
    return (str(row[0]) for row in texts.toLocalIterator())


def unique(names: Sequence[str]) -> list[str]:
    """Give every column a name of its own: a query may have two of one name, a JSON object may not.

    >>> unique(["a", "b", "a"])
    ['a', 'b', 'a_2']
    """
    found: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate.lower() in (other.lower() for other in found):
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found
