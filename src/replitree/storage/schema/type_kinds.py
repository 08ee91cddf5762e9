"""Kinds of column types, by their text form: what can be said of a type before Arrow is loaded.

Arrow takes longer to load than most commands take for their work.

Guarantees: what is said here of a text form is what Arrow says of its type.

Absent on purpose: reading what is no text form, such as Spark's words (`replitree.storage.schema.types.parse_type`).
"""

from __future__ import annotations

import re

DECIMAL_PRECISION_MAX = 38
"""Digits of the largest decimal that Spark has."""

WHOLE_NUMBERS = frozenset({"int8", "int16", "int32", "int64"})
NUMBERS = WHOLE_NUMBERS | {"float", "double", "decimal"}
MOMENTS = frozenset({"date", "timestamp"})
NESTED = frozenset({"list", "struct", "map"})

SIMPLE = frozenset(
    {"boolean", "float", "double", "string", "binary", "date", "timestamp[us,UTC]", "timestamp[us]"} | WHOLE_NUMBERS
)
"""The text forms of types that have no numbers and no other types inside."""

_DECIMAL = re.compile(r"decimal\(([1-9][0-9]?),(0|[1-9][0-9]?)\)", re.ASCII)
_KIND = re.compile(r"[a-z]+[0-9]*", re.ASCII)


def kind_of(text: str) -> str:
    """Return the word that a text form begins with.

    Examples
    --------
    >>> kind_of("timestamp[us,UTC]"), kind_of("decimal(12,2)"), kind_of("list<string>"), kind_of("int64")
    ('timestamp', 'decimal', 'list', 'int64')
    """
    found = _KIND.match(text)
    return found.group() if found is not None else ""


def is_plain_text(text: str) -> bool:
    """Tell whether this is the text form of a type that has no other types inside."""
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
        return text in SIMPLE
    return int(decimal[2]) <= int(decimal[1]) <= DECIMAL_PRECISION_MAX


__all__ = [
    "DECIMAL_PRECISION_MAX",
    "MOMENTS",
    "NESTED",
    "NUMBERS",
    "SIMPLE",
    "WHOLE_NUMBERS",
    "is_plain_text",
    "kind_of",
]
