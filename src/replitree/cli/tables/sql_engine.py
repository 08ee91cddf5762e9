"""What `replitree sql` asks of an engine, and what every engine must be told before a query begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from replitree.cli.tables.sql_rows import SqlFormat


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and what it must show of each table.

    Attributes
    ----------
    text
        The statement.
    known
        All tables of the cluster.
    level, timeout_s
        As of `Table.snapshot`, for all of its tables; a sharded table has other levels, and refuses those that it has not.
    as_of, min_index
        As of `Table.snapshot`, by the table's name; a table in `as_of` has no level.
    """

    text: str
    known: tuple[str, ...]
    level: Any = None
    as_of: Mapping[str, int | str] | None = None
    min_index: Mapping[str, int] | None = None
    timeout_s: float = 30.0


class Engine(Protocol):
    """Answers queries of one cluster, one after the other; each table of a query is one snapshot.

    An engine starts what it needs with the first query, and keeps it for the next ones.
    """

    def tables_of(self, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the known tables that a query may read.

        Raises
        ------
        BadInput
            The query certainly can't be answered; says why.
        """

    def answer(self, asked: Asked, named: tuple[str, ...], output: SqlFormat, *, as_json: bool) -> None:
        """Print the rows of a query that reads these tables.

        Raises
        ------
        BadInput
            The query is wrong.
        Unavailable
            A table can't be read, or not at the level that was asked for.
        """

    def close(self) -> None:
        """End what was started."""


def no_table(name: str, known: tuple[str, ...]) -> str:
    """Say that there is no such table, and which there are."""
    there = (
        f"The tables are {', '.join(known)}" if known else "There are no tables yet: replitree table create makes one"
    )
    return f"there is no table {name}. {there}"
