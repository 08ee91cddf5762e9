"""Texts of users become trees of sqlglot, or bad input: whatever the library raises while it reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from replitree.errors import BadInput

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokenizer_core import Token

_T = TypeVar("_T")

_INCOMPLETE = re.compile(r"Required keyword: '\w+' missing for <class '(?:\w+\.)*(\w+)'>")
"""How sqlglot says that something is missing."""

_SIGNS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""What sqlglot calls comparisons."""


class NotRead(BadInput):
    """A text can't be read as SQL; the message is what is wrong, and may be empty."""


def parse_one(text: str) -> exp.Expr:
    """Return the tree of one statement or expression in Spark's dialect.

    Raises
    ------
    NotRead
        There is none, or it can't be read.
    RecursionError
        It is nested too deeply.
    """
    import sqlglot

    return _asked(lambda: sqlglot.parse_one(text, dialect="spark"))


def parse_all(text: str) -> tuple[exp.Expr, ...]:
    """Return the trees of all statements of a text.  Raises as `parse_one`, but for a text without any."""
    import sqlglot

    return _asked(lambda: tuple(tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None))


def tokens_of(text: str) -> tuple[Token, ...]:
    """Return the tokens of a text.  Raises `NotRead`."""
    import sqlglot

    return _asked(lambda: tuple(sqlglot.tokenize(text, dialect="spark")))


def refuse_doubled_quotes(text: str) -> None:
    """Refuse ``'it''s'``: Spark 4 and SQL read a quote in one text, and these parsers two texts that stand side by side.

    Raises
    ------
    NotRead
        The text has such a literal.
    """
    for one, other in pairwise(tokens_of(text)):
        if "STRING" in one.token_type.name and other.token_type.name == "STRING" and one.end + 1 == other.start:
            raise NotRead("a doubled quote in a text is read in two ways: write \\' for a quote in a text")


def text_of(tree: exp.Expr) -> str:
    """Return what a tree says in Spark's dialect, without comments.

    Raises
    ------
    RecursionError
        It is nested too deeply.
    """
    from sqlglot.errors import SqlglotError

    try:
        return tree.sql(dialect="spark", comments=False)
    # The library reads names of types while it writes, and raises TokenError where its stack has no room.
    except SqlglotError as error:
        raise RecursionError(str(error)) from error


def _asked(read: Callable[[], _T]) -> _T:
    from sqlglot.errors import SqlglotError

    try:
        return read()
    except SqlglotError as error:
        raise NotRead(_problem(error)) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # the library computes with literals while it reads them: of 1e30.1BD the decimal module says ConversionSyntax
        raise NotRead("it has a literal or a piece that means nothing") from error


def _problem(error: Exception) -> str:
    """Return what sqlglot found wrong, on one line and without the names of its classes.

    >>> _problem(ValueError("Required keyword: 'this' missing for <class 'sqlglot.expressions.query.Where'>. Line 1"))
    'WHERE is not complete. Line 1'
    """
    first = (str(error).splitlines() or [""])[0]
    if first.startswith("No expression was parsed"):
        return ""
    if first.startswith("Error tokenizing"):
        return "a quote is not closed, or a character means nothing here"
    return _INCOMPLETE.sub(lambda found: f"{_SIGNS.get(found[1], found[1].upper())} is not complete", first)


__all__ = ["NotRead", "parse_all", "parse_one", "refuse_doubled_quotes", "text_of", "tokens_of"]
