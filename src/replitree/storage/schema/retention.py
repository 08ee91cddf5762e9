"""Retention: for how long parts that have left a table stay readable, and what the change feed needs; as in ``7d``.

Empty: parts stay as long as each replica's own setting `old_parts_lifetime_s` says, and the feed is off.

An entry of the log that changes one of the two says both (`written_retention`): ``7d``, ``;feed=24h``, ``7d;feed=24h``.
"""

from __future__ import annotations

import re

from replitree.errors import BadInput

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FEED = ";feed="
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


def written_retention(keep: str, feed: str) -> str:
    """Return what an entry of the log says of both.

    >>> written_retention("7d", ""), written_retention("", "24h")
    ('7d', ';feed=24h')
    """
    return f"{keep}{_FEED}{feed}" if feed else keep


def read_retention(text: str) -> tuple[str, str]:
    """Return `keep` and `feed` of an entry.

    >>> read_retention("7d"), read_retention("7d;feed=24h"), read_retention("")
    (('7d', ''), ('7d', '24h'), ('', ''))
    """
    keep, _, feed = text.partition(_FEED)
    return keep, feed


def keep_seconds(keep: str) -> int | None:
    """Return for how many seconds parts are kept; None: as each replica's own setting says.

    >>> keep_seconds("7d"), keep_seconds("")
    (604800, None)
    """
    return int(keep[:-1]) * _SECONDS[keep[-1]] if keep else None
