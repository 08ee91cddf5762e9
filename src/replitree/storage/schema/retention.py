"""Retention: for how long parts that have left a table stay readable, what the change feed needs, and when rows go.

The first two are texts such as ``7d``.  Empty: parts stay as long as each replica's own setting `old_parts_lifetime_s` says,
and the feed is off.  The third is a column and a time, as in ``at + 90 days`` (`RowTtl`).

An entry of the log that changes one of the three says all of them (`written_retention`): ``7d``, ``;feed=24h``,
``7d;feed=24h;ttl=at + 90 days``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from replitree.errors import BadInput
from replitree.storage.files.names import format_name

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_WORDS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_FEED, _TTL = ";feed=", ";ttl="
DAY_S = 86_400

TTL_DAYS_MAX = 365_000
"""Longest time of a `RowTtl`: what is subtracted from now stays a date that SQL can write."""

_COLUMN_AND_TIME = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([^\s`+][^`+]*?))\s*\+\s*(?:interval\s+)?(\S.*?)\s*", re.IGNORECASE | re.DOTALL
)
_KEEP = re.compile(
    r"([0-9]{1,9})\s*(?:(s|seconds?)|(m|min|minutes?)|(h|hours?)|(d|days?)|(w|weeks?))", re.ASCII | re.IGNORECASE
)


def parse_keep(text: str, name: str = "keep") -> str:
    """Read for how long parts are kept; return it as a table's definition has it.

    Parameters
    ----------
    text
        A number with a unit, or empty.
    name
        What the error calls it.

    Raises
    ------
    BadInput
        It is no number with a unit.

    Examples
    --------
    >>> parse_keep("7 days"), parse_keep("36h"), parse_keep("")
    ('7d', '36h', '')
    """
    if not text.strip():
        return ""
    found = _KEEP.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{name} is a number with a unit, as in '7 days', '36h' or '90 min', not {text!r}")
    unit = next(letter for letter, word in zip(_SECONDS, found.groups()[1:], strict=True) if word)
    return f"{int(found.group(1))}{unit}"


def parse_feed(text: str) -> str:
    """Read for how long the change feed is kept; return it as a table's definition has it, empty for ``off``.

    Raises
    ------
    BadInput
        It is no number with a unit.

    Examples
    --------
    >>> parse_feed("24 hours"), parse_feed("off"), parse_feed("")
    ('24h', '', '')
    """
    if text.strip().lower() == "off":
        return ""
    try:
        return parse_keep(text)
    except BadInput as error:
        raise BadInput(f"feed is 'off', or a number with a unit, as in '24h' or '7 days', not {text!r}") from error


@dataclass(frozen=True, slots=True)
class RowTtl:
    """When rows are to be removed: once the value of a column is older than a time.  A row with null there stays.

    Attributes
    ----------
    column
        Name of a date or timestamp column.
    time
        As `parse_keep` gives it, such as ``90d``.
    """

    column: str
    time: str

    @property
    def seconds(self) -> int:
        """The time, in seconds."""
        return int(self.time[:-1]) * _SECONDS[self.time[-1]]

    @property
    def text(self) -> str:
        """What `parse_ttl` reads.

        >>> RowTtl("at", "90d").text, RowTtl("the day", "1w").text
        ('at + 90 days', '`the day` + 1 week')
        """
        number, word = self.time[:-1], _WORDS[self.time[-1]]
        return f"{format_name(self.column)} + {number} {word}{'' if number == '1' else 's'}"


def parse_ttl(text: str) -> RowTtl | None:
    """Read when rows are to be removed; None for ``off`` and for nothing.

    Parameters
    ----------
    text
        A column, ``+``, and a number with a unit, as in ``at + 90 days``; with ``INTERVAL`` before the number, too.

    Raises
    ------
    BadInput
        It is nothing of that kind; whether the table has such a column, the definition's check says.

    Examples
    --------
    >>> parse_ttl("at + 90 days"), parse_ttl("`a b` + INTERVAL 36 HOURS"), parse_ttl("off")
    (RowTtl(column='at', time='90d'), RowTtl(column='a b', time='36h'), None)
    """
    if text.strip().lower() in ("", "off"):
        return None
    found = _COLUMN_AND_TIME.fullmatch(text)
    try:
        time = parse_keep(found[3]) if found is not None else ""
    except BadInput as error:
        raise _no_ttl(text) from error
    if found is None or not time:
        raise _no_ttl(text)
    ttl = RowTtl(found[1].replace("``", "`") if found[1] else found[2], time)
    if not 60 <= ttl.seconds <= TTL_DAYS_MAX * DAY_S:
        raise BadInput(
            f"ttl: rows stay for 1 minute to {TTL_DAYS_MAX:,} days, not for {text.rpartition('+')[2].strip()}"
        )
    return ttl


def _no_ttl(text: str) -> BadInput:
    return BadInput(
        "ttl is 'off', or a column and a time of minutes, hours, days or weeks, as in 'at + 90 days' or 'at + 36 hours',"
        f" not {text!r}"
    )


def ttl_text(ttl: RowTtl | None) -> str:
    """Return the text of when rows are removed; empty: never."""
    return "" if ttl is None else ttl.text


def written_retention(keep: str, feed: str, ttl: str = "") -> str:
    """Return what an entry of the log says of all three.

    >>> written_retention("7d", ""), written_retention("", "24h"), written_retention("", "", "at + 90 days")
    ('7d', ';feed=24h', ';ttl=at + 90 days')
    """
    return f"{keep}{_FEED if feed else ''}{feed}{_TTL if ttl else ''}{ttl}"


def read_retention(text: str) -> tuple[str, str, str]:
    """Return `keep`, `feed` and the text of `ttl` of an entry.

    >>> read_retention("7d"), read_retention("7d;feed=24h;ttl=at + 90 days"), read_retention(";ttl=at + 1 hour")
    (('7d', '', ''), ('7d', '24h', 'at + 90 days'), ('', '', 'at + 1 hour'))
    """
    # A column's name may have any characters: what is behind the first ";ttl=" is the ttl.
    rest, _, ttl = text.partition(_TTL)
    keep, _, feed = rest.partition(_FEED)
    return keep, feed, ttl


def keep_seconds(keep: str) -> int | None:
    """Return for how many seconds parts are kept; None: as each replica's own setting says.

    >>> keep_seconds("7d"), keep_seconds("")
    (604800, None)
    """
    return int(keep[:-1]) * _SECONDS[keep[-1]] if keep else None
