"""`replitree sql`: Spark SQL over the tables, each at one snapshot."""

from __future__ import annotations

import csv
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Folder, Json, Url, connect
from replitree.cli.output import Output
from replitree.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN_ROWS_MAX = 1000
"""Rows that are shown as a table; csv and json give all of them."""


class SqlFormat(StrEnum):
    """How the rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


Query = Annotated[
    str, typer.Argument(metavar="QUERY", help='As in "select count(*) from events"; - reads standard input.')
]
Format = Annotated[SqlFormat, typer.Option("--output", help="How to print the rows; json is one object per line.")]


def sql(
    query: Query, output: Format = SqlFormat.TABLE, url: Url = None, folder: Folder = None, as_json: Json = False
) -> None:
    """Ask with Spark SQL; every table is seen at one position of its number line."""
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise BadInput('the query is empty: replitree sql "select count(*) from events"')
    with connect(url, folder) as connection:
        connection.tables()  # asks ZooKeeper before Spark is started: a wrong address is found out at once
        from pyspark.errors import PySparkException

        from replitree.spark.quiet import quiet_children
        from replitree.spark.session import spark_session
        from replitree.spark.views import sql_views

        # PySpark logs an error of the query before it raises it, as JSON with the whole plan.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        with quiet_children():
            spark = spark_session(app_name="replitree sql")
        try:
            spark.sparkContext.setLogLevel("ERROR")
            sql_views(spark, connection)
            _print(spark.sql(text), SqlFormat.JSON if as_json else output, as_json=as_json)
        except PySparkException as error:
            raise BadInput(f"Spark can't answer this query: {_first_line(error)}") from error
        finally:
            spark.stop()


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
        rows = frame.take(SHOWN_ROWS_MAX + 1)
        Output().table("", frame.columns, [tuple(row) for row in rows[:SHOWN_ROWS_MAX]])
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
