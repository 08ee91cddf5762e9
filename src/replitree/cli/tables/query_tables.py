"""Which tables a query names, found out before Spark is started.

Guarantees: `named_tables` never leaves a table out that the query may read: where the statement can't be parsed here, it names
every table whose name occurs as a word.  `unknown_table` names one only when the query certainly reads a table or view of that
name, and there is none.

Absent on purpose: judging the query itself.  That is Spark's; sqlglot accepts other statements than Spark does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from replitree.storage.sql.sql_parser import NotRead, parse_all, text_of

if TYPE_CHECKING:
    from sqlglot import exp

SHOW_TABLES = re.compile(r"show\s+tables\s*;?\s*", re.IGNORECASE)
"""A statement that is answered without Spark."""

_EXPLAIN = re.compile(
    r"explain\s+(?:(?:extended|codegen|cost|formatted)\s+)?(?=select|with|from|values|\()", re.IGNORECASE
)
_TABLE = re.compile(r"table\s+(`[^`]+`|\w+)\s*;?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(
    r"(?:describe|desc)\s+(?:table\s+)?(?:(?:extended|formatted)\s+)?(`[^`]+`|\w+)\s*;?\s*", re.IGNORECASE
)
_WORD = re.compile(r"\w+")


def named_tables(statement: str, known: Collection[str]) -> tuple[str, ...]:
    """Return those of the known tables that a statement may read, by name.

    >>> named_tables("select * from a join B using (k)", ["a", "b", "c"])
    ('a', 'b')
    >>> named_tables("show columns from c", ["a", "b", "c"])
    ('c',)
    """
    found = _read_by(statement)
    names = {word.lower() for word in _WORD.findall(statement)} if found is None else found[0]
    return tuple(sorted(table for table in known if table.lower() in names))


def unknown_table(statement: str, known: Collection[str]) -> str | None:
    """Return a table that a query reads and that is not there; None when there is none, or the query can't be parsed here.

    >>> unknown_table("with b as (select 1) select * from a, b", ["a"]) is None
    True
    >>> unknown_table("select * from evnts", ["events"])
    'evnts'
    """
    found = _read_by(statement)
    if found is None:
        return None
    read, defined = found
    there = {table.lower() for table in known} | defined
    return next((name for name in sorted(read) if name not in there), None)


def conditions_of(statement: str) -> tuple[str, ...]:
    """Return the conditions of a query that reads one table once: rows for which one of them is not true do not matter.

    >>> conditions_of("select a.k, count(*) from t a where a.k > 1 and (v = 2 or v is null) group by a.k")
    ('k > 1', 'v = 2 OR v IS NULL')
    >>> conditions_of("select * from t where k in (select k from u)"), conditions_of("select * from t, u where t.k = u.k")
    ((), ())
    """
    from sqlglot import exp

    tree = _parsed(statement)
    is_plain = isinstance(tree, exp.Select) and not any(tree.find_all(exp.Join, exp.Subquery, exp.CTE, exp.Lateral))
    if (
        tree is None
        or not is_plain
        or len(list(tree.find_all(exp.Select))) > 1
        or len(list(tree.find_all(exp.Table))) != 1
    ):
        return ()
    where = tree.args.get("where")
    if where is None:
        return ()
    conditions = where.this.flatten() if isinstance(where.this, exp.And) else (where.this,)
    found = []
    for condition in conditions:
        for column in condition.find_all(exp.Column):
            column.set("table", None)
        found.append(text_of(condition))
    return tuple(found)


def _read_by(statement: str) -> tuple[set[str], set[str]] | None:
    """Return the names that a statement reads, and those that it defines itself, in lower case; None: not certain."""
    simple = _TABLE.fullmatch(statement) or _DESCRIBE.fullmatch(statement)
    if simple is not None:
        return {simple[1].strip("`").lower()}, set()
    tree = _parsed(_EXPLAIN.sub("", statement, count=1))
    if tree is None:
        return None
    from sqlglot import exp

    # A common table expression may read a table of its own name, so a name can be in both sets.
    defined = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    read = set()
    for table in tree.find_all(exp.Table):
        # A path, or a table of another catalog of Spark.
        if table.db:
            continue
        if not isinstance(table.this, exp.Identifier):
            if isinstance(table.this, exp.Anonymous) and table.this.name.lower() == "identifier":
                # `identifier(…)`: an expression computes the name.
                return None
            # A function that returns a table.
            continue
        read.add(table.name.lower())
    return read, defined


def _parsed(statement: str) -> exp.Query | None:
    """Return the one query that a statement is; None when sqlglot finds anything else."""
    from sqlglot import exp

    # sqlglot warns of statements that it keeps as text.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        trees = parse_all(statement)
    except (NotRead, RecursionError):
        # Spark reads more than sqlglot does, and its message about a mistake is the one that the user gets.
        return None
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None
