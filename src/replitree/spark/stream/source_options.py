"""The options of a stream that reads a table: ``spark.readStream.format("replitree")``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructType

from replitree.client.read.as_of import parse_time
from replitree.client.transport.stored import through_of
from replitree.errors import BadInput
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.upkeep.consumers import check_consumer_name
from replitree.protocol.upkeep.tags import check_tag_name
from replitree.spark.read.feed_read import FEED_FIELDS, check_feed_schema, lease_of, tasks_of
from replitree.spark.session.options import columns, flag, number, seconds, table_name
from replitree.spark.stream.admission import Limits, Selection
from replitree.spark.stream.positions import SNAPSHOT, Beginning

POLL_WAIT_MS = 100
"""For how long a replica waits for a new entry before it answers that there is none, in milliseconds."""

POLL_WAIT_MS_MAX = 10_000
TIME = "time:"
NAMED = (SNAPSHOT, "earliest", "latest")
"""What ``startingVersion`` may say besides an index and a tag."""

LIMITS = {
    "entries": "maxEntriesPerTrigger",
    "parts": "maxPartsPerTrigger",
    "bytes": "maxBytesPerTrigger",
    "rows": "maxRowsPerTrigger",
}
"""The limits of one batch, and their options."""

NOT_OF_STREAMS = {
    "asof": "startingVersion says where it begins",
    "timestampasof": "startingTimestamp says where it begins",
    "level": "it begins with a linearizable snapshot, and misses nothing",
    "minindex": "it begins with a linearizable snapshot, and misses nothing",
    "record": "replitree.spark.recorded records what a stream writes",
    "endingversion": "it goes on; trigger(availableNow=True) ends it with what is there when the query begins",
}
"""Options of batch reads that a stream does not have, and what there is instead."""

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream that reads a table.

    Attributes
    ----------
    table
        The table's name.
    beginning
        Where a query without a checkpoint begins.
    selection
        Which rows it reads.
    limits
        How much a batch has at most.
    fails_on_loss
        Whether it stops where rows can't be read any more; otherwise it goes on behind them.
    consumer
        The consumer of the feed that holds what the stream has not read; None: nothing does.
    poll_s, timeout_s
        For how long a replica waits for something new, and the stream for replicas, in seconds.
    """

    table: str
    beginning: Beginning
    selection: Selection
    limits: Limits
    fails_on_loss: bool
    consumer: str | None
    poll_s: float
    timeout_s: float


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Read the options of a stream.

    Raises
    ------
    BadInput
        One is wrong, or for batch reads only.
    """
    for name, instead in NOT_OF_STREAMS.items():
        if name in options:
            raise BadInput(f"a stream has no option {name}: {instead}")
    table = table_name(options)
    # Those of the tasks, before any batch.
    lease_of(options), tasks_of(options), through_of(options.get("through")), flag(options, "final")
    wait_ms = POLL_WAIT_MS if (said := number(options, "pollwait")) is None else said
    if not 0 < wait_ms <= POLL_WAIT_MS_MAX:
        raise BadInput(f"option pollWait is 1 to {POLL_WAIT_MS_MAX} milliseconds, not {wait_ms}")
    selection = Selection(
        table, flag(options, "readchangefeed"), flag(options, "skipchangecommits"), flag(options, "ignoredeletes")
    )
    if selection.is_feed and (selection.skips_changes or selection.ignores_deletes):
        raise BadInput(
            "skipChangeCommits and ignoreDeletes are of streams of appended rows, and readChangeFeed=true reads all changes:"
            " leave one of them out"
        )
    return StreamOptions(
        table,
        Beginning(_where(options)),
        selection,
        Limits(**{field: _limit(options, name) for field, name in LIMITS.items()}),
        flag(options, "failondataloss") if "failondataloss" in options else True,
        None if (consumer := options.get("consumer")) is None else check_consumer_name(consumer),
        wait_ms / 1_000,
        seconds(options),
    )


def check_schema(options: Mapping[str, str], schema: StructType, *, is_feed: bool) -> None:
    """Check that Spark was told the columns that options name: a catalog tells it those of the table.

    Raises
    ------
    BadInput
        It was not.
    """
    names = schema.names
    if is_feed:
        check_feed_schema(schema)
        names = names[: -len(FEED_FIELDS.names)]
    wanted = columns(options)
    if wanted is not None and {name.lower() for name in wanted} != {name.lower() for name in names}:
        raise BadInput(
            f"option columns names {', '.join(wanted)}, and Spark was told {', '.join(names)}: leave one of them out; a"
            " table that the catalog names has all its columns, so name it by format('replitree')"
        )


def _where(options: Mapping[str, str]) -> str:
    """Return where a query begins, as its first offset says it."""
    version, time = options.get("startingversion"), options.get("startingtimestamp")
    if version is not None and time is not None:
        raise BadInput("startingVersion and startingTimestamp both say where the stream begins: give one of them")
    if time is not None:
        return f"{TIME}{parse_time(time).isoformat()}"
    if version is None or version.lower() in NAMED:
        return SNAPSHOT if version is None else version.lower()
    if "@" in version:
        # Of a sharded table.
        return str(parse_cut(version))
    if version[:1].isalpha():
        check_tag_name(version)
        return version
    index = number(options, "startingversion")
    assert index is not None, "it was given"
    if index < 0:
        raise BadInput(
            f"option startingVersion is an index of the log, 0 or above, a tag, a cut, or {', '.join(NAMED)}"
        )
    return str(index)


def _limit(options: Mapping[str, str], name: str) -> int | None:
    """Return a limit; of bytes it may have a unit, as in ``64m``.

    Examples
    --------
    >>> _limit({"maxbytespertrigger": "64m"}, "maxBytesPerTrigger"), _limit({}, "maxRowsPerTrigger")
    (67108864, None)
    """
    text = options.get(name.lower())
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip()) if name == LIMITS["bytes"] else re.fullmatch(r"(\d+)()", text.strip())
    value = 0 if found is None else int(found[1]) << 10 * " kmgt".index(found[2].lower() or " ")
    if value < 1:
        unit = ", which may have a unit, as in 64m" if name == LIMITS["bytes"] else ""
        raise BadInput(f"option {name} is a whole number above 0{unit}, not {text!r}")
    return value


__all__ = ["LIMITS", "NAMED", "TIME", "StreamOptions", "check_schema", "stream_options"]
