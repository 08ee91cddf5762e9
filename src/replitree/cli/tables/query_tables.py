"""Which tables and columns a query names, and whether it can be read, found out before Spark is started.

Guarantees: `named_tables` never leaves a table out that the query may read: where the statement can't be parsed here, it names
every table whose name occurs as a word.  `unknown_table` and `unknown_column` name one only when the query certainly reads it,
and there is none.  `syntax_problem` is what sqlglot says; it reads nearly all of Spark's SQL, not all of it.

Absent on purpose: judging anything else, such as types.  That is Spark's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from replitree.errors import BadInput
from replitree.storage.sql.sql_parser import NotRead, parse_all, text_of

if TYPE_CHECKING:
    from sqlglot import exp

    from replitree.storage.schema.definition import TableDefinition

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
_READ = re.compile(r"[\s(]*(select|with|values|from|explain)\b", re.IGNORECASE)
"""Queries of which sqlglot reads more than the first word."""

_UNREADABLE = re.compile(r">>>|\bx\s+'|\bwindow\s*\(", re.IGNORECASE)
"""What Spark reads and sqlglot does not: a shift of bits, binary literals with a space, windows of time."""

_NO_COLUMNS = frozenset(
    {"all", "year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond"}
    | {"microsecond", "nanosecond", "user", "session_user", "current_user", "current_catalog", "current_database"}
    | {"current_schema", "current_time", "current_timezone", "localtimestamp", "current_date", "current_timestamp"}
    | {"grouping__id"}
)
"""What stands where a column could, and is none: units of time, functions without parentheses, words."""


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


def syntax_problem(statement: str) -> str | None:
    """Return why a query can't be read; None when it can, or when that is not known here.

    >>> syntax_problem("select k from users where")
    'WHERE is not complete. Line 1, Col: 25'
    >>> syntax_problem("select k frm users u where k = 1") is None, syntax_problem("show columns from users") is None
    (False, True)
    """
    if not _READ.match(statement) or _UNREADABLE.search(statement):
        return None
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        parse_all(_EXPLAIN.sub("", statement, count=1))
    except NotRead as error:
        return str(error).rstrip(".") or "it has no expression"
    except RecursionError:
        return None
    return None


def unknown_column(statement: str, tables: Mapping[str, TableDefinition]) -> str | None:
    """Return what is wrong with a column that a query reads and that none of its tables has; None when nothing certainly is.

    A query in which something else than a table gives names (a function in FROM or in LATERAL VIEW, VALUES, PIVOT) is not
    judged.

    Parameters
    ----------
    statement
        The query.
    tables
        The definitions of all tables that it reads.
    """
    tree = _parsed(_EXPLAIN.sub("", statement, count=1))
    if tree is None or not tables:
        return None
    from sqlglot import exp

    there = {table.lower() for table in tables} | {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    others = (exp.Lateral, exp.Values, exp.Pivot, exp.UDTF, exp.Unnest, exp.Lambda, exp.QueryTransform)
    # All names of columns must come from these tables or be given in the query.
    is_of_tables = all(
        isinstance(table.this, exp.Identifier) and not table.db and table.name.lower() in there
        for table in tree.find_all(exp.Table)
    )
    if not is_of_tables or any(tree.find_all(*others)):
        return None
    columns = {column.name.lower() for definition in tables.values() for column in definition.columns}
    by_name = {name.lower(): definition for name, definition in tables.items()}
    defined = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    aliased: dict[str, set[str]] = {}
    for source in tree.find_all(exp.Table, exp.Subquery, exp.CTE):
        table = source.name.lower() if isinstance(source, exp.Table) else ""
        aliased.setdefault(source.alias_or_name.lower(), set()).add("" if table in defined else table)
    # The tables by the names that the query gives them, but for names of several.
    single = {alias: next(iter(names)) for alias, names in aliased.items() if len(names) == 1}
    by_alias = {alias: by_name[table] for alias, table in single.items() if table in by_name}
    given = {name.lower() for name in _given_names(tree, by_alias)}
    for column in tree.find_all(exp.Column):
        name, of = column.name.lower(), [part.name.lower() for part in column.parts[:-1]]
        # `a.b` may also be a field of a struct; hidden columns of files begin with an underscore.
        is_of_alias = len(of) == 1 and of[0] in by_alias and of[0] not in columns | given
        is_judged = isinstance(column.this, exp.Identifier) and (not of or is_of_alias) and not name.startswith("_")
        if not is_judged or name in given | _NO_COLUMNS or (not of and name in columns):
            continue
        definition = by_alias[of[0]] if of else next(iter(tables.values()))
        if name in (each.name.lower() for each in definition.columns):
            continue
        if not of and len(tables) > 1:
            return f"no column {column.name!r} is in {' or '.join(sorted(tables))}"
        try:
            definition.column(column.name)
        except BadInput as error:
            return str(error)
    return None


def _given_names(tree: exp.Query, tables: Collection[str]) -> Iterator[str]:
    """Give the names that a query gives to columns and expressions, also those that Spark makes up."""
    from sqlglot import exp

    for alias in tree.find_all(exp.Alias):
        yield alias.alias
    for identifier in tree.find_all(exp.Identifier):
        if isinstance(identifier.parent, exp.TableAlias | exp.Aliases) and identifier.arg_key != "this":
            yield identifier.name
    # A generator in SELECT names its columns itself.
    if any(tree.find_all(exp.Explode, exp.Posexplode, exp.Inline, exp.Anonymous)):
        yield from ("col", "pos", "key", "value")
    for select in tree.find_all(exp.Select):
        for expression in select.expressions:
            # An expression without a name is called by its text, a field of a struct by the field's name.
            if not isinstance(expression, exp.Column):
                yield text_of(expression)
            elif expression.parts[0].name.lower() not in tables and len(expression.parts) > 1:
                yield expression.name


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
