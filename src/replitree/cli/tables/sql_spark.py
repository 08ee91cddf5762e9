"""Queries of `replitree sql` that Spark answers: its session starts with the first of them, and stays for the others.

Spark takes some seconds to start.  So what certainly is wrong is found out before: unknown tables and columns, and statements
that sqlglot can't read (`replitree.cli.tables.query_tables`).  Once the session is there, Spark itself judges.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from replitree.cli.tables.query_tables import (
    conditions_of,
    named_tables,
    syntax_problem,
    unknown_column,
    unknown_table,
)
from replitree.cli.tables.sql_engine import Asked, no_table
from replitree.cli.tables.sql_rows import SqlFormat, print_rows, unique
from replitree.errors import BadInput, ReplicaUnavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import Connection


class SparkEngine:
    """Spark, on this machine.

    Parameters
    ----------
    connection
        The cluster.
    checks_syntax
        Refuse a query that sqlglot can't read before Spark is started.
    """

    def __init__(self, connection: Connection, *, checks_syntax: bool = True) -> None:
        self._connection = connection
        self._checks_syntax = checks_syntax
        self._spark: SparkSession | None = None

    def tables_of(self, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """See `Engine`."""
        missing, named = unknown_table(text, known), named_tables(text, known)
        if missing is not None:
            raise BadInput(no_table(missing, known))
        if self._spark is None:
            problem = syntax_problem(text) if self._checks_syntax else None
            if problem is not None:
                raise BadInput(f"the query can't be read: {problem}. If Spark takes it all the same, add --unchecked")
            unknown = unknown_column(text, {name: self._connection.table(name).definition for name in named})
            if unknown is not None:
                raise BadInput(unknown)
        return named

    def answer(self, asked: Asked, named: tuple[str, ...], output: SqlFormat, *, as_json: bool) -> None:
        """See `Engine`."""
        from replitree.spark.read.views import sql_views

        if self._spark is None:
            from replitree.spark.session.quiet import quiet_children
            from replitree.spark.session.session import spark_session

            # PySpark logs an error of the query before it raises it, as JSON with the whole plan.
            logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
            with quiet_children():
                self._spark = spark_session(app_name="replitree sql")
            self._spark.sparkContext.setLogLevel("ERROR")
        spark = self._spark
        with ExitStack() as held:
            make_views = partial(
                sql_views,
                spark,
                self._connection,
                # A table that can't be read does not concern queries of others.
                named,
                held=held,
                level=asked.level,
                min_index=asked.min_index,
                as_of=asked.as_of,
                timeout_s=asked.timeout_s,
                conditions=conditions_of(asked.text) if len(named) == 1 else (),
            )
            make_views()
            try:
                _answer(spark, asked, output, as_json=as_json)
            except _Damaged as damage:
                make_views(verify=True)
                # After some rows were printed, the query can't be repeated.
                if output is not SqlFormat.TABLE and not as_json:
                    raise ReplicaUnavailable(
                        f"a file was damaged, and its replica fetches it again: repeat the query ({damage})"
                    ) from damage
                _answer(spark, asked, output, as_json=as_json)

    def close(self) -> None:
        """Stop Spark, if it was started."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None


class _Damaged(ReplicaUnavailable):
    """Spark found a damaged block in a file while it answered."""


class _SparkRows:
    """Rows of a DataFrame: see `Rows`."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    @property
    def columns(self) -> list[str]:
        return list(self._frame.columns)

    @property
    def types(self) -> list[str]:
        return [kind for _, kind in self._frame.dtypes]

    def first(self, count: int) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self._frame.take(count)]

    def tuples(self) -> Iterator[tuple[object, ...]]:
        return (tuple(row) for row in self._frame.toLocalIterator())

    def objects(self) -> Iterator[str]:
        # Spark makes the objects, nulls included, so nested values and times look as Spark has them.
        from pyspark.sql import functions as f

        named = self._frame.toDF(*unique(self.columns))
        columns = ["`" + name.replace("`", "``") + "`" for name in named.columns]
        texts = named.select(f.to_json(f.struct(*columns), {"ignoreNullFields": "false"}))
        return (str(row[0]) for row in texts.toLocalIterator())


def _answer(spark: SparkSession, asked: Asked, output: SqlFormat, *, as_json: bool) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    from replitree.spark.read.views import is_damage

    try:
        print_rows(_SparkRows(spark.sql(asked.text)), output, as_json=as_json)
    except (PySparkException, Py4JError) as error:
        if is_damage(error):
            raise _Damaged(_first_line(error)) from error
        if isinstance(error, PySparkException) and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            # Spark's own message names the places where it looked, which mean nothing here.
            name = (error.getMessageParameters() or {}).get("relationName", "of this name")
            raise BadInput(no_table(name, asked.known)) from error
        if isinstance(error, PySparkException):
            raise BadInput(f"Spark can't answer this query: {_first_line(error)}") from error
        raise ReplicaUnavailable(f"Spark could not answer this query: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Return the part of Spark's message that is about the query, without its plan."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines[:2] if not line.startswith(("'", "+-", "==", ":-"))) or type(error).__name__
