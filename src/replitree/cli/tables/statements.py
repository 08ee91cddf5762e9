"""What a text for `replitree sql` is: a query, one of the changes that are entries of a table's log, or neither.

A statement that is neither is refused before Spark is started: Spark would drop or fill a view that ends with the command, and
the table would not have changed.
"""

from __future__ import annotations

import re

from replitree.errors import BadInput

_IGNORED = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)+", re.DOTALL)
"""Space and comments."""

CHANGE = re.compile(
    r"(?P<verb>delete\s+from|update|alter\s+table|truncate\s+table)\s+(?P<table>`[^`]*`|[^\s`(;]+)", re.IGNORECASE
)
QUERY = re.compile(r"[\s(]*(select|with|values|from|table|show|describe|desc|explain)\b", re.IGNORECASE)
"""How a query begins."""

ELSEWHERE = {
    "insert": "`replitree insert TABLE FILE` inserts rows",
    "merge": "`replitree insert` adds rows, UPDATE and DELETE FROM change them",
    "create": "`replitree table create` makes a table",
    "drop": "`replitree table drop` drops a table, `replitree table drop-partition` a partition",
}
"""What does it instead, by the first word."""


def without_comments(text: str) -> str:
    r"""Return a statement without what stands before it and after it.

    >>> without_comments("-- how many\n select 1 ")
    'select 1'
    """
    begin = _IGNORED.match(text)
    return text[begin.end() if begin is not None else 0 :].strip()


def change_of(statement: str) -> re.Match[str] | None:
    """Return the verb and the table of a change; None when it is a query.

    Raises
    ------
    BadInput
        It is neither; says what to do instead.
    """
    change = CHANGE.match(statement)
    if change is not None or QUERY.match(statement):
        return change
    word = statement.split(maxsplit=1)[0]
    instead = ELSEWHERE.get(word.lower())
    if instead is not None:
        raise BadInput(f"{word.upper()} is not a statement for `replitree sql`: {instead}")
    raise BadInput(
        f"{word[:40]!r} begins neither a query (SELECT, WITH, VALUES, SHOW, DESCRIBE, EXPLAIN) "
        "nor a change (DELETE FROM, UPDATE, ALTER TABLE, TRUNCATE TABLE) of a table"
    )
