"""For how long parts that have left a table stay readable: a number and a unit, such as ``7d``.

Empty: as long as each replica's own setting `old_parts_lifetime_s` says.
"""

from __future__ import annotations

import re

from replitree.errors import BadInput

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_KEEP = re.compile(
    r"([0-9]{1,9})\s*(?:(s|seconds?)|(m|min|minutes?)|(h|hours?)|(d|days?)|(w|weeks?))", re.ASCII | re.IGNORECASE
)


def parse_keep(text: str) -> str:
    """Read for how long parts are kept; return it as a table's definition has it.

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
        raise BadInput(f"keep is a number with a unit, as in '7 days', '36h' or '90 min', not {text!r}")
    unit = next(letter for letter, word in zip(_SECONDS, found.groups()[1:], strict=True) if word)
    return f"{int(found.group(1))}{unit}"


def keep_seconds(keep: str) -> int | None:
    """Return for how many seconds parts are kept; None: as each replica's own setting says.

    >>> keep_seconds("7d"), keep_seconds("")
    (604800, None)
    """
    return int(keep[:-1]) * _SECONDS[keep[-1]] if keep else None
