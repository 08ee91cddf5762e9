"""Options: from the texts that Spark passes to a connection and a table.

Catalog tables lose their options, so everything but the table's name can also come from the environment.

Absent on purpose: a token as an option.  Spark shows options in plans and logs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from replitree.client.connection import Connection, connect
from replitree.client.table import SNAPSHOT_S, Table
from replitree.client.transport.access import URL_VARIABLE
from replitree.errors import BadInput
from replitree.protocol.sharded.cut import CUT_LEVELS
from replitree.protocol.state.read import READ_LEVELS

FOLDER_VARIABLE = "REPLITREE_DIR"

OF_CATALOG = "provider"
"""An option that only Spark's own catalog gives: the name of the source of one of its tables."""

WITHOUT_JAR = (
    "in a session without replitree's jar, CREATE TABLE … USING replitree makes a table in Spark's own catalog that can't be"
    " read or written, because Spark forgets its options: drop it there, if it is there. Start the session by"
    " replitree.spark.spark_session, or with the settings spark.jars and spark.sql.catalog.replitree (docs/sql.md), and create"
    " it in the catalog replitree; or name a table of the cluster by CREATE TEMPORARY VIEW … USING replitree OPTIONS (url …,"
    " table …)"
)
"""What a statement hears about such a table.  Of a read or a write Spark does not say for which table it is."""


def _hint(options: Mapping[str, str]) -> str:
    """Return what else may be wrong when a job has no option at all."""
    return "" if options else f". And {WITHOUT_JAR}"


def table_name(options: Mapping[str, str]) -> str:
    """Return the table's name.

    Raises
    ------
    BadInput
        There is none.
    """
    name = options.get("table")
    if not name:
        raise BadInput('which table? Say .option("table", "events") or load("events")' + _hint(options))
    return name


def columns(options: Mapping[str, str]) -> list[str] | None:
    """Return the names of the columns that a read wants, or None for all.

    Raises
    ------
    BadInput
        The option names none.

    Examples
    --------
    >>> columns({"columns": "k, s"})
    ['k', 's']
    """
    text = options.get("columns")
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names is not None and not names:
        raise BadInput("option columns names no column: leave it out for all")
    return names


def open_connection(options: Mapping[str, str]) -> Connection:
    """Connect to the cluster that options or environment name.

    Raises
    ------
    BadInput
        Neither names one.
    """
    url = options.get("url") or os.environ.get(URL_VARIABLE) or os.environ.get(FOLDER_VARIABLE)
    if not url:
        variables = f"{URL_VARIABLE} or {FOLDER_VARIABLE}"
        raise BadInput(f'which cluster? Say .option("url", "zk://…") or set {variables}' + _hint(options))
    return connect(url, token_file=options.get("tokenfile"))


def open_table(connection: Connection, options: Mapping[str, str]) -> Table:
    """Return the table that options name, at the replica that they name."""
    table = connection.table(table_name(options))
    replica = options.get("replica")
    return table.replica(replica) if replica else table


def number(options: Mapping[str, str], name: str) -> int | None:
    """Return a whole number, or None when the option is not there.

    Raises
    ------
    BadInput
        It is not a whole number.

    Examples
    --------
    >>> number({"partitions": "4"}, "partitions")
    4
    """
    text = options.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"option {name} is a whole number, not {text!r}") from None


LEVELS = (*READ_LEVELS, *(level for level in CUT_LEVELS if level not in READ_LEVELS))
"""The levels of reads.  A table refuses those that it has not: one is that of sharded tables."""


def read_level(options: Mapping[str, str]) -> Any:
    """Return the level of a read, one of `LEVELS`, or None when the option is not there.

    Raises
    ------
    BadInput
        There is no such level.

    Examples
    --------
    >>> read_level({"level": "Sequential"})
    'sequential'
    """
    text = options.get("level")
    for level in LEVELS:
        if text is not None and text.lower() == level:
            return level
    if text is not None:
        raise BadInput(f"option level is {', '.join(LEVELS)}, not {text!r}")
    return None


def flag(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option is on; it is off when it is not there.

    Raises
    ------
    BadInput
        It is neither ``true`` nor ``false``.

    Examples
    --------
    >>> flag({"mergeschema": "True"}, "mergeschema")
    True
    """
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise BadInput(f"option {name} is true or false, not {text!r}")
    return text == "true"


def read_as_of(options: Mapping[str, str]) -> int | str | None:
    """Return the index, the tag, the cut of a sharded table or the time that a read names, or None.

    Raises
    ------
    BadInput
        It names a version and a time.

    Examples
    --------
    >>> read_as_of({"asof": "41"}), read_as_of({"timestampasof": "2026-11-27T02:00Z"}), read_as_of({})
    (41, '2026-11-27T02:00Z', None)
    >>> read_as_of({"asof": "before-load"}), read_as_of({"asof": "5f0c@8589934612"})
    ('before-load', '5f0c@8589934612')
    """
    version, time = options.get("asof"), options.get("timestampasof")
    if version is not None and time is not None:
        raise BadInput("options asOf and timestampAsOf each say exactly what is included: give one of them")
    # A name of a tag begins with a letter.
    return (
        version
        if version is not None and (version[:1].isalpha() or "@" in version)
        else time
        if version is None
        else number(options, "asof")
    )


def seconds(options: Mapping[str, str], default: float = SNAPSHOT_S, option: str = "timeout") -> float:
    """Return how long to wait, in seconds: for replicas, unless another option is named.

    Raises
    ------
    BadInput
        It is not a positive number.
    """
    text = options.get(option)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        # Refused below, with the same words as a number out of range.
        value = -1.0
    if not 0 < value < float("inf"):
        raise BadInput(f"option {option} is a number of seconds above 0, not {text!r}")
    return value
