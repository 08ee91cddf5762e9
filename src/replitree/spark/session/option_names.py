"""The names of the options of ``format("replitree")``: one spelling for each, and other formats' names for it.

Spark hands options over in lower case, and so they are known inside; messages show them as the docs do.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from replitree.errors import BadInput

NAMES = (
    "table",
    "url",
    "tokenFile",
    "replica",
    "columns",
    "where",
    "minIndex",
    "level",
    "asOf",
    "timestampAsOf",
    "final",
    "readChangeFeed",
    "startingVersion",
    "endingVersion",
    "startingTimestamp",
    "skipChangeCommits",
    "ignoreDeletes",
    "maxPartsPerTrigger",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "maxEntriesPerTrigger",
    "failOnDataLoss",
    "pollWait",
    "consumer",
    "partitions",
    "lease",
    "through",
    "insertToken",
    "txnAppId",
    "txnVersion",
    "newCheckpoint",
    "partitionOverwriteMode",
    "quorum",
    "quorumTimeout",
    "mergeSchema",
    "record",
    "recordKey",
    "timeout",
)
"""The options, as docs and messages show them."""

ALIASES = {
    "versionasof": "asOf",
    "token_file": "tokenFile",
    "readchangedata": "readChangeFeed",
    "maxfilespertrigger": "maxPartsPerTrigger",
}
"""Other names of an option, in lower case."""

PATH = "path"
"""What ``load("events")`` and ``save("events")`` say: the table, when no option does."""

REFUSED = {
    "replacewhere": "give partitionOverwriteMode=dynamic with mode overwrite, which replaces whole partitions, or delete the"
    " rows with DELETE FROM … WHERE before an append",
    **dict.fromkeys(
        ("order_by", "orderby"),
        "a table gets its order key when it is created: CREATE TABLE … TBLPROPERTIES (order_by = 'k'), and then the write;"
        " a table that toTable has just created has none, so drop that one before",
    ),
    "maxrecordsperfile": "a task writes one file for each partition; repartition the rows for more",
    "optimizewrite": "merges join small parts by themselves, and `replitree optimize` at once",
    "autocompact": "merges join small parts by themselves",
    "datachange": "a merge is no change of rows here, and everything that is written is one",
    "usermetadata": "the log keeps no text of yours; name a version by table.tag('before-load')",
    "ignorechanges": "a stream never sends again what did not change: skipChangeCommits=true passes entries by that change"
    " rows, and readChangeFeed=true reads the changes",
    "witheventtimeorder": "the first batch of a stream is the whole table: for a query with watermarks begin with"
    " startingVersion=latest or earliest, or with an index",
    "schematrackinglocation": "a query that is started again goes on with the table's present columns",
    "excluderegex": "files have no names of their own here: where=… chooses rows, and columns=… columns",
    "endingtimestamp": "endingVersion is the index of the last entry; table.index_of tells that of a time",
    "overwriteschema": "columns change by ALTER TABLE, and mergeSchema=true adds those that the rows have",
}
"""Options of other table formats that there are none of here, and what there is instead."""

_FROM_SPARK = ("location", "owner", "provider", "checkpointlocation", "queryname")
"""Spark passes these of tables that a catalog knows, and of streams; they say nothing here."""

_BY_LOWER = {name.lower(): name for name in NAMES}


def known_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in lower case, with one name for each.

    Parameters
    ----------
    given
        As Spark passes them, in any case.

    Raises
    ------
    BadInput
        One is unknown, or given under two names with two values.

    Examples
    --------
    >>> known_options({"versionAsOf": "7", "TOKENFILE": "t"})
    {'asof': '7', 'tokenfile': 't'}
    """
    found: dict[str, str] = {}
    for key, value in given.items():
        lower = str(key).lower()
        if lower == PATH or lower.startswith(("option.", "spark.")) or lower in _FROM_SPARK:
            continue
        if lower in REFUSED:
            raise BadInput(f"format replitree has no option {key}: {REFUSED[lower]}")
        name = ALIASES.get(lower, _BY_LOWER.get(lower))
        if name is None:
            near = difflib.get_close_matches(lower, [*_BY_LOWER, *ALIASES], n=1)
            hint = (
                f"did you mean {ALIASES.get(near[0], _BY_LOWER.get(near[0]))}?"
                if near
                else f"it has {', '.join(NAMES)}"
            )
            raise BadInput(f"format replitree has no option {key!r}: {hint}")
        if found.setdefault(name.lower(), str(value)) != str(value):
            raise BadInput(
                f"option {name} is given twice, as {found[name.lower()]!r} and, by the name {key}, as {value!r}"
            )
    paths = [value for key, value in given.items() if str(key).lower() == PATH]
    if paths:
        found.setdefault("table", str(paths[0]))
    return found


__all__ = ["ALIASES", "NAMES", "PATH", "REFUSED", "known_options"]
