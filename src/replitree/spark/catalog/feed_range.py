"""The range of changes that a query wants: ``FROM t CHANGES FROM VERSION 3 TO VERSION 7``, or options of `spark.read.changes`.

Spark hands the range over as texts that are versions (indexes of the log, or cuts), or as numbers that are times; and it says
whether each end is included.  What comes out are options of ``format("replitree")``, whose ends are included.

Absent on purpose: what Spark derives for tables whose rows have an identity.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from replitree.client.read.table_log import EPOCH
from replitree.errors import BadInput
from replitree.spark.catalog.requests import PlannerRequest

NET_CHANGES = "netChanges"
MILLISECOND = timedelta(milliseconds=1)

OF_SPARK = (
    *("startingversion", "endingversion", "startingtimestamp", "endingtimestamp"),
    *("startingboundinclusive", "endingboundinclusive", "deduplicationmode", "computeupdates"),
)
"""Options of which Spark has made the range; it hands them over, too."""


def range_options(request: PlannerRequest, version_at: Callable[[datetime], int | str]) -> dict[str, str]:
    """Return the options that say a range, for each of `OF_SPARK`; "" where there is none.

    Parameters
    ----------
    request
        Its `ends`, `mode` and `computes`.
    version_at
        Returns the index of the log that a time means, as `replitree.client.table.Table.index_of`; of a sharded table the cut.

    Raises
    ------
    BadInput
        The table can't give what is asked for.

    Examples
    --------
    >>> found = range_options(PlannerRequest(0, "range", ends=("3", "7", False, True)), lambda time: 0)
    >>> {name: value for name, value in found.items() if value}
    {'startingversion': '4', 'endingversion': '7'}
    """
    if request.mode == NET_CHANGES or request.computes:
        raise BadInput(
            "rows have no identity of their own, so changes of several versions can't be made one (netChanges), and a delete"
            " and an insert no update (computeUpdates): leave deduplicationMode and computeUpdates out; an UPDATE has"
            " both images as it is"
        )
    start, end, has_start, has_end = request.ends
    first = last = ""
    if isinstance(start, int):
        # What was written at that time, to the millisecond, or after it.
        first = str(version_at(_time(start) - MILLISECOND if has_start else _time(start)))
    elif start is not None:
        first = _moved(start, 0 if has_start else 1)
    if isinstance(end, int):
        at = version_at(_time(end) if has_end else _time(end) - MILLISECOND)
        # An index is behind what the time has, and a cut has it.
        last = at if isinstance(at, str) else str(at - 1)
    elif end is not None:
        last = _moved(end, 0 if has_end else -1)
    return dict.fromkeys(OF_SPARK, "") | {"startingversion": first, "endingversion": last}


def _time(us: int) -> datetime:
    """Return a time that is given in microseconds since 1970."""
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError as error:
        raise BadInput("CHANGES FROM TIMESTAMP takes times of the years 1 to 9999") from error


def _moved(version: str, by: int) -> str:
    """Return the version that comes some entries later."""
    if not by:
        return version
    if not version.isdecimal():
        raise BadInput(f"an end that is not included is an index of the log, not {version!r}")
    return str(int(version) + by)


__all__ = ["NET_CHANGES", "OF_SPARK", "range_options"]
