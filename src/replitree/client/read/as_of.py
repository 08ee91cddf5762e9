"""Time travel: the index of the log that a time or a tag means.

Guarantees:

* A time means the table with every entry up to the last one that was written at or before it, and nothing later.  The answer
  for one time never changes, as long as the clock of coordination does not go back: a time that is not over is refused.
* Times are compared by the clock of coordination alone; the clock of this process counts for nothing.
* The log in coordination is read first, and replicas are asked for what it has no more.  An entry whose time no replica knows
  ends the search: the time is refused, never answered by a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from replitree.client.read.table_log import EPOCH, as_time, index_at
from replitree.client.read.tags import read_named, tag_names
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput, SnapshotExpired, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.upkeep.tags import check_tag_name
from replitree.wire.reached import Reached

AsOf: TypeAlias = int | str | datetime
"""An index of the log; the name of a tag; or a time: a `datetime`, or text in ISO 8601.  A time without a zone is in UTC."""


def parse_time(given: str | datetime) -> datetime:
    """Read a time; one without a zone is in UTC.

    Raises
    ------
    BadInput
        The text is no time in ISO 8601.

    Examples
    --------
    >>> parse_time("2026-11-27T03:00:00+01:00").isoformat()
    '2026-11-27T02:00:00+00:00'
    >>> parse_time("2026-11-27 02:00").isoformat()
    '2026-11-27T02:00:00+00:00'
    """
    time = given
    if isinstance(time, str):
        # "20261127" is a date in ISO 8601, and an index to everybody else.
        if time.isdecimal():
            raise BadInput(f"{given!r} is text: give an index of the log as a number, {given}")
        try:
            time = datetime.fromisoformat(time)
        except ValueError as error:
            raise BadInput(
                f"{given!r} is no time and no tag: write a time as in '2026-11-27T03:00:00+01:00' or"
                " '2026-11-27 02:00' (UTC)"
            ) from error
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError as error:
        raise BadInput(f"{given!r} is out of range in UTC") from error


def index_of(
    catalog: Catalog, table: str, as_of: AsOf | None, earlier: Callable[[int, Reached], Reached]
) -> int | None:
    """Return the index that a read's `as_of` means; an index is returned as it is.

    Parameters
    ----------
    catalog, table
        Where the table's log is.
    as_of
        What the read was asked for.
    earlier
        Goes on with a search that the kept log did not end (`replitree.client.read.earlier`).

    Raises
    ------
    BadInput
        The text is no time and no tag, or the time is not over by coordination's clock.
    SnapshotExpired
        No replica knows the entries of that time any more, or the table is younger.
    TableNotFound
        There is no such table.
    Unavailable, CoordinationUnavailable
        Coordination can't be asked, or a replica that may know earlier entries.
    """
    if not isinstance(as_of, str | datetime):
        return as_of
    # Times begin with a digit, and names of tags with a letter.
    if isinstance(as_of, str) and as_of[:1].isalpha():
        check_tag_name(as_of)
        place = catalog.place(table)
        tag = catalog.run(read_named(place, as_of))
        if tag is None:
            names = ", ".join(catalog.run(tag_names(place)))
            raise BadInput(f"table {table} has no tag {as_of!r}; it has {names or 'none'}")
        return tag.index
    time = parse_time(as_of)
    time_ms = (time - EPOCH) // timedelta(milliseconds=1)
    # The clock is asked before the log's end: every entry that is written after the question is younger than `time`.
    now_ms = catalog.now_ms()
    if time_ms >= now_ms:
        raise BadInput(
            f"{time.isoformat()} is not over: coordination's clock says {as_time(now_ms).isoformat()}; "
            "leave the time out to read what the table has now"
        )
    end, place = fx.LogIndex(catalog.log_tail(table)), catalog.place(table)
    reached = catalog.run(index_at(place, end, time_ms))
    if reached.index is None and reached.below > 0:
        reached = earlier(time_ms, reached)
    if reached.index is not None:
        return reached.index
    # This node is written when the table is created, and never again.
    node: fx.Node | None = catalog.perform(fx.Get(place.path))
    if node is None:
        raise TableNotFound(f"table {table!r} does not exist; see `replitree table list` for those that do")
    below = reached.below
    if below == 0 and node.changed_ms <= time_ms:
        return 0
    if below == 0:
        reason = f"the table was created at {as_time(node.changed_ms).isoformat()}"
    elif reached.written_ms:
        reason = f"versions are known from {as_time(reached.written_ms).isoformat()} on (index {below})"
    else:
        reason = f"it is not known when entries before index {below} were written"
    raise SnapshotExpired(f"what {table} was at {time.isoformat()} is not known: {reason}; ask for a later time")
