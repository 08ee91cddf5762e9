"""`replitree sql`: queries of the tables, each at one snapshot; and the statements that change a table.

Statements come from the command line, from standard input, from a file, or from a person at a terminal
(`replitree.cli.tables.sql_shell`).  Spark or DuckDB answers queries.  ``DELETE FROM``, ``UPDATE``, ``ALTER TABLE`` and
``TRUNCATE TABLE`` become entries of the table's log, and need neither; anything else is refused, see
`replitree.cli.tables.statements`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import ChangeOptions, check_name, on_cluster
from replitree.cli.output import Output, counted
from replitree.cli.tables.change import show
from replitree.cli.tables.query_tables import SHOW_TABLES
from replitree.cli.tables.sql_engine import Asked, Engine
from replitree.cli.tables.sql_rows import Names, SqlFormat, print_rows
from replitree.cli.tables.sql_shell import run_script, run_shell
from replitree.cli.tables.statements import change_of, without_comments
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.client import Connection


class Level(StrEnum):
    """The levels of reads: those of tables (`replitree.protocol.state.read`), and of sharded ones (`protocol.sharded.cut`)."""

    EVENTUAL = "eventual"
    SEQUENTIAL = "sequential"
    CONSISTENT = "consistent"
    LINEARIZABLE = "linearizable"


class SqlEngine(StrEnum):
    """What answers queries."""

    SPARK = "spark"
    DUCKDB = "duckdb"


Query = Annotated[
    str | None,
    typer.Argument(
        metavar="[QUERY]",
        help='As in "select count(*) from events"; - reads one from standard input. Without it: a shell, or statements '
        "from a pipe.",
        show_default=False,
    ),
]
Format = Annotated[
    SqlFormat,
    typer.Option(
        "--output", help="How to print the rows; vertical: a line for each column; json: one object per line."
    ),
]
EngineOption = Annotated[
    SqlEngine,
    typer.Option(
        "--engine", help="What answers queries: Spark, or DuckDB in its own SQL and in a fraction of a second."
    ),
]
File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Run the statements of a file, each ended by a semicolon."),
]
Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Let Spark read a query that can't be read before it is started.")
]


Indexes = list[str] | None
AtLevel = Annotated[
    Level | None,
    typer.Option(
        "--level",
        help="What a query is promised: eventual or linearizable; sequential of tables that are not sharded, consistent of"
        " sharded ones. Without it: eventual, and consistent of sharded tables.",
    ),
]
AsOf = Annotated[
    Indexes,
    typer.Option(
        "--as-of",
        metavar="[TABLE=]INDEX|TIME|CUT",
        help="Ask a table as it was when its log had so many entries, or at a time; a sharded one as it was at a cut.",
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
    engine: EngineOption = SqlEngine.SPARK
    unchecked: Unchecked = False

    @property
    def reads(self) -> bool:
        """Whether anything is said that only a query can heed."""
        return bool(self.level or self.as_of or self.min_index)

    def open(self, connection: Connection) -> Engine:
        """Return what answers queries; Spark starts with the first one that it gets.

        Raises
        ------
        EngineMissing
            DuckDB is not installed.
        """
        if self.engine is SqlEngine.DUCKDB:
            from replitree.cli.tables.sql_duckdb import DuckdbEngine

            return DuckdbEngine(connection)
        from replitree.cli.tables.sql_spark import SparkEngine

        return SparkEngine(connection, checks_syntax=not self.unchecked)


@on_cluster
def sql(how: QueryOptions, query: Query = None, file: File = None, output: Format = SqlFormat.TABLE) -> None:
    """Ask with Spark SQL or DuckDB, every table at one position of its number line; or change one table.

    DELETE FROM, UPDATE, ALTER TABLE and TRUNCATE TABLE change it; when they take longer than --wait, the exit status is 3.
    When no replica is as far as --level or --min-index ask in time, it is 4, and nothing is shown.
    """
    if query is not None and file is not None:
        raise BadInput("a query and --file are given: leave one of them out")
    text = script = None
    if query is not None:
        text = _checked(without_comments(_input() if query == "-" else query), how)
    elif how.command_id is not None or how.final:
        raise BadInput("--id and --final are about one statement: give it as QUERY")
    elif file is not None:
        try:
            script = file.read_text(encoding="utf-8")
        except UnicodeError as error:
            raise BadInput(f"{file} is no text in UTF-8: give the statements in that form") from error
    elif not sys.stdin.isatty():
        script = _input()
    with how.connect() as connection, closing(how.open(connection)) as engine:
        session = Session(connection, engine, how, output)
        if text is not None:
            session.run(text)
        elif script is not None:
            run_script(session.run, script)
        else:
            run_shell(session.run, connection.tables, str(how.engine), as_json=how.as_json)


def _checked(text: str, how: QueryOptions) -> str:
    """Return the statement of the command line, before a cluster is asked: its options must fit it."""
    if not text:
        raise BadInput('the query is empty: replitree sql "select count(*) from events"')
    change = change_of(text)
    if change is not None and how.reads:
        raise BadInput("--level, --as-of and --min-index are for queries: leave them out")
    if how.final and (change is None or not change["verb"].lower().startswith("delete")):
        raise BadInput("--final is for DELETE FROM: leave it out")
    if change is None and how.command_id is not None:
        raise BadInput("--id repeats a change; a query has no id: leave it out")
    if change is not None:
        check_name(change["table"].strip("`"))
    return text


@dataclass(frozen=True, slots=True)
class Session:
    """Runs statements on one cluster, with one engine for all of them.

    Attributes
    ----------
    connection
        The cluster.
    engine
        What answers queries.
    how
        What was said about all statements.
    output
        How rows are printed.
    """

    connection: Connection
    engine: Engine
    how: QueryOptions
    output: SqlFormat

    def run(self, statement: str) -> None:
        """Run one statement, and print its result.

        Raises
        ------
        BadInput
            It is neither a query nor a change, or it is wrong.
        Unavailable
            What it needs does not answer.
        Exit
            A change is in the log and was not finished in time.
        """
        text = without_comments(statement)
        change = change_of(text)
        if change is not None:
            self._change(text, change)
            return
        # Coordination is asked before Spark is started, so that a wrong address is reported at once.
        how, known = self.how, tuple(self.connection.tables())
        if SHOW_TABLES.fullmatch(text):
            print_rows(Names("tableName", known), self.output, as_json=how.as_json)
            return
        named = self.engine.tables_of(text, known)
        as_of = by_table(how.as_of, "--as-of", known, named)
        given = by_table(how.min_index, "--min-index", known, named)
        min_index = {table: index for table, index in given.items() if isinstance(index, int)}
        both = sorted({*as_of} & {*min_index})
        if both:
            raise BadInput(f"--as-of says exactly what is included of {both[0]}: leave --min-index out")
        asked = Asked(text, known, how.level.value if how.level else None, as_of, min_index, how.timeout)
        self.engine.answer(asked, named, self.output, as_json=how.as_json)

    def _change(self, text: str, begin: re.Match[str]) -> None:
        """Make a statement an entry of the table's log."""
        how, out = self.how, Output(self.how.as_json)
        name, verb = begin["table"].strip("`"), begin["verb"].split()[0].lower()
        check_name(name)
        table = self.connection.table(name)
        if verb == "truncate":
            if text[begin.end() :].strip(" ;\n\t"):
                raise BadInput(
                    "TRUNCATE TABLE takes a table and nothing else; `replitree table drop-partition` drops one partition"
                )
            result = table.truncate(command_id=how.command_id, timeout_s=how.wait)
            show(out, name, result, f"emptied: {counted(result.removed, 'part')}")
        elif verb == "alter":
            result = table.alter(text, command_id=how.command_id, timeout_s=how.wait)
            show(out, name, result, f"columns changed, now version {result.schema_version}")
        elif how.final:
            from replitree.storage.sql.mutation import parse_mutation

            where = parse_mutation(text, table.definition).where
            result = table.delete(where, final=True, command_id=how.command_id, timeout_s=how.wait)
            show(out, name, result, f"{counted(result.removed, 'part')} replaced")
        else:
            result = table.mutate(text, command_id=how.command_id, timeout_s=how.wait)
            show(out, name, result, f"{counted(result.removed, 'part')} replaced")


def _input() -> str:
    """Return standard input."""
    # In some locales Python reads bytes that are no text as lone surrogates, in others it refuses them.
    try:
        text = sys.stdin.read()
        text.encode()
    except UnicodeError as error:
        raise BadInput("standard input is no text in UTF-8: give the query in that form") from error
    return text


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
        It names no index (and no time, no tag and no cut either), or a table that is not there, or none although there are
        several.

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
        if (name and name not in tables) or not (is_index or option == "--as-of"):
            known = ", ".join(tables) or "none yet"
            raise BadInput(f"{option} {text}: a table and an index of its log, as in TABLE=41; the tables are {known}")
        if not is_index:
            from replitree.client.read.as_of import parse_time
            from replitree.protocol.sharded.cut import parse_cut
            from replitree.protocol.upkeep.tags import check_tag_name

            try:
                (parse_cut if "@" in index else check_tag_name if index[:1].isalpha() else parse_time)(index)
            except BadInput as error:
                raise BadInput(f"{option} {text}: {error}") from error
        found[name or meant[0]] = int(index) if is_index else index
    return found
