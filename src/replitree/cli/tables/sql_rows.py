"""How the rows of a query are printed, whichever engine has them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import ClassVar, Protocol

from replitree.cli.output import Output, console, width_of

SHOWN_ROWS_MAX = 1000
"""Rows that are shown as a table; csv and json give all of them."""


class SqlFormat(StrEnum):
    """How the rows are printed."""

    TABLE = "table"
    VERTICAL = "vertical"
    CSV = "csv"
    JSON = "json"


class Rows(Protocol):
    """The result of a query."""

    @property
    def columns(self) -> list[str]:
        """Names of its columns; two may be equal."""

    @property
    def types(self) -> list[str]:
        """Types of its columns, as the engine calls them."""

    def first(self, count: int) -> list[tuple[object, ...]]:
        """Return so many rows at most."""

    def tuples(self) -> Iterator[tuple[object, ...]]:
        """Give all rows."""

    def objects(self) -> Iterator[str]:
        """Give each row as a JSON object, whose names are those of `unique`."""


def print_rows(rows: Rows, output: SqlFormat, *, as_json: bool) -> None:
    """Print the result of a query.

    Parameters
    ----------
    rows
        The result.
    output
        How.
    as_json
        Print one JSON document instead, with the columns and all rows.
    """
    if as_json:
        import msgspec

        names = unique(rows.columns)
        columns = [{"name": name, "type": kind} for name, kind in zip(names, rows.types, strict=True)]
        # The objects are JSON already; they go into the document as they are.
        document = {"columns": columns, "rows": [msgspec.Raw(text.encode()) for text in rows.objects()]}
        print(msgspec.json.encode(document).decode(), flush=True)
    elif output is SqlFormat.JSON:
        for text in rows.objects():
            print(text)
    elif output is SqlFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows.columns)
        writer.writerows(rows.tuples())
    else:
        found = rows.first(SHOWN_ROWS_MAX + 1)
        has_room = width_of(rows.columns, found[:SHOWN_ROWS_MAX]) <= console().width
        show = Output().table if output is SqlFormat.TABLE and has_room else Output().vertical
        show("", rows.columns, found[:SHOWN_ROWS_MAX])
        if len(found) > SHOWN_ROWS_MAX:
            print(f"only the first {SHOWN_ROWS_MAX:,} rows are shown; --output csv or json gives all")


class Names:
    """Names as the result of a query: the answer of SHOW TABLES.

    Parameters
    ----------
    column
        The only column.
    names
        Its values.
    """

    types: ClassVar[list[str]] = ["string"]

    def __init__(self, column: str, names: Sequence[str]) -> None:
        self.columns = [column]
        self._names = names

    def first(self, count: int) -> list[tuple[object, ...]]:
        """See `Rows`."""
        return [(name,) for name in self._names[:count]]

    def tuples(self) -> Iterator[tuple[object, ...]]:
        """See `Rows`."""
        return iter(self.first(len(self._names)))

    def objects(self) -> Iterator[str]:
        """See `Rows`."""
        import msgspec

        return (msgspec.json.encode({self.columns[0]: name}).decode() for name in self._names)


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
