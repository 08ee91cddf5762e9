"""Admission: how many entries of the change feed one batch of a stream takes, and which of their rows.

An entry is never split.  One that is larger than a limit is a batch by itself.

=================================  ==========================================================================================
entry                              a stream of appended rows
=================================  ==========================================================================================
only rows come                     reads them
rows leave, none come              stops before it; passes it by with ``ignoreDeletes`` or ``skipChangeCommits``
rows change, or leave and come     stops before it; passes it by, both halves, with ``skipChangeCommits``
nothing comes, leaves or changes   passes it by: merges, and mutations that match no row
=================================  ==========================================================================================

A stream of the feed itself (``readChangeFeed``) reads all rows of every entry.

Whatever decides here is a fact of the log, so a repeated batch takes the same units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby

from replitree.client.read.feed import FeedPage, FeedUnit
from replitree.errors import BadInput


class NotAppendOnly(BadInput):
    """A stream of appended rows has come to an entry that changes or deletes rows; `index`: the entry of the log."""

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True, slots=True)
class Amount:
    """What is to be read of some entries: how many of them, their parts, and the bytes and rows of these."""

    entries: int = 0
    parts: int = 0
    bytes: int = 0
    rows: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Amount)))


@dataclass(frozen=True, slots=True)
class Limits:
    """At most this much for one batch; None: no limit."""

    entries: int | None = None
    parts: int | None = None
    bytes: int | None = None
    rows: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self != Limits()

    def allow(self, amount: Amount) -> bool:
        """Return whether a batch may have this much.

        Examples
        --------
        >>> Limits(rows=10).allow(Amount(entries=3, rows=10)), Limits(rows=10).allow(Amount(rows=11))
        (True, False)
        """
        pairs = ((getattr(self, each.name), getattr(amount, each.name)) for each in fields(Limits))
        return all(limit is None or found <= limit for limit, found in pairs)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of the feed a stream reads.

    Attributes
    ----------
    table
        The table's name.
    is_feed
        All rows, with the columns of the feed; otherwise those that come.
    skips_changes, ignores_deletes
        Of appended rows: see the module's table.
    """

    table: str
    is_feed: bool
    skips_changes: bool = False
    ignores_deletes: bool = False

    def wanted(self, page: FeedPage) -> Iterator[tuple[int, tuple[FeedUnit, ...]]]:
        """Give for each entry of a page its index, and the units that are read: none, if it is passed by.

        Raises
        ------
        NotAppendOnly
            The next entry changes or deletes rows.
        """
        for index, units in groupby(page.body.units, lambda unit: unit.index):
            yield index, self._of_entry(page, index, tuple(units))

    def _of_entry(self, page: FeedPage, index: int, units: tuple[FeedUnit, ...]) -> tuple[FeedUnit, ...]:
        if self.is_feed:
            return units
        came = tuple(unit for unit in units if unit.type == "insert")
        changed, only_leave = False, not came
        for unit in units:
            if unit.type == "insert":
                continue
            after, before = page.part(unit.part).manifest, page.part(unit.before).manifest if unit.before else None
            if after.rows > 0 if before is None else after.content != before.content:
                changed = True
                # A mutation after which a part has fewer rows is a DELETE; otherwise it is an UPDATE.
                only_leave &= unit.type == "delete" or (
                    unit.type == "mutate" and before is not None and after.rows < before.rows
                )
        if not changed:
            return came
        if self.skips_changes or (self.ignores_deletes and only_leave):
            return ()
        what, besides = ("deletes", ", or ignoreDeletes=true") if only_leave else ("changes or replaces", "")
        raise NotAppendOnly(
            f"entry {index} of table {self.table} {what} rows that were there, and the stream reads appended rows only. Set"
            f" skipChangeCommits=true{besides} to pass such entries by, with the same checkpoint; or readChangeFeed=true to get"
            " the changes as rows, with a new one",
            index,
        )


def amount_of(page: FeedPage, units: Sequence[FeedUnit]) -> Amount:
    """Return how much the units of one entry are; of compared parts both are read."""
    manifests = [page.part(name).manifest for unit in units for name in (unit.before, unit.part) if name]
    return Amount(1, len(manifests), sum(each.bytes for each in manifests), sum(each.rows for each in manifests))


__all__ = ["Amount", "Limits", "NotAppendOnly", "Selection", "amount_of"]
