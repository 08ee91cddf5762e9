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
    "restore": "`replitree table restore-to` makes a table what it was at an earlier version",
    "optimize": "`replitree optimize` merges parts now",
    "vacuum": "replicas remove by themselves what no read needs, and `replitree table keep` says for how long they keep it",
    "call": "`replitree optimize` and the commands of `replitree table` do what procedures do in a session of Spark",
}
"""What does it instead, by the first word."""

DESCRIBED = re.compile(r"(?:describe|desc)\s+(?P<what>history|detail)\s+[\w`.]+\s*;?\s*", re.IGNORECASE)
"""Statements of Delta Lake; Spark would look for a table `history`."""

DESCRIBED_BY = {"history": "`replitree table log TABLE`", "detail": "`replitree table show TABLE`"}


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
    described = DESCRIBED.fullmatch(statement)
    if described is not None:
        what = described["what"].lower()
        raise BadInput(
            f"DESCRIBE {what.upper()} is not a statement for `replitree sql`: {DESCRIBED_BY[what]} shows that"
        )
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
