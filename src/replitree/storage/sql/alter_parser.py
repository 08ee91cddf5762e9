"""From the text of an ``ALTER TABLE`` statement to an `Alter`.

Understood, in any case, with or without ``ALTER TABLE name`` in front, several separated by commas::

    ADD COLUMN price decimal(12,2) NOT NULL DEFAULT 0 AFTER amount
    ADD COLUMNS (a int, b string FIRST)
    DROP COLUMN a                          DROP COLUMNS (a, b)
    RENAME COLUMN a TO b
    ALTER COLUMN a TYPE bigint             ALTER COLUMN a SET DATA TYPE bigint
    ALTER COLUMN a SET DEFAULT 0           ALTER COLUMN a DROP DEFAULT
    ALTER COLUMN a DROP NOT NULL

What is inside a column has a path, as Spark and Iceberg write it, with ``element`` for what is in a list, ``key`` and ``value``
for what is in a map; a name with a dot stands in backquotes::

    ADD COLUMN a.b int AFTER c             DROP COLUMN points.element.z
    RENAME COLUMN a.b TO c                 ALTER COLUMN m.value.n TYPE bigint

Types are those of `replitree.storage.schema.types` and no others: other parsers of SQL take ``int8`` for 8 bytes, here
it has 8 bits. Defaults are literals of Spark's dialect.  Anything else is refused with `BadInput`, never guessed.

Guarantees: the alter fits the definition that it was read for; it may not fit a later one.

Absent on purpose: properties, comments of columns (they are taken, and not kept); and ``SET NOT NULL``.  That no row is null
would have to be known of all rows below the alter's place in the log, of which some are just being inserted, of parts that lie
aside and are attached later, and of snapshots of earlier positions, which are read with the columns of today.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from typing_extensions import override

from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.types import NESTING_MAX, SchemaParser, format_type
from replitree.storage.sql.defaults import sql_default
from replitree.storage.sql.evolve import (
    AddColumn,
    Alter,
    Change,
    DropColumn,
    DropDefault,
    DropNotNull,
    RenameColumn,
    SetDefault,
    WidenColumn,
    apply_alter,
    find_column,
)

ALTER_CHARACTERS_MAX = 100_000

OPERATORS = frozenset("+-*/%|&^([")
"""How an expression goes on, or begins, that is no literal."""


def parse_alter(text: str, definition: TableDefinition) -> Alter:
    """Read an ``ALTER TABLE`` statement.

    Parameters
    ----------
    text
        See the module's description.
    definition
        The table as it is now.

    Raises
    ------
    BadInput
        The text can't be read, is about another table, or asks for what this table can't have.
    """
    if len(text) > ALTER_CHARACTERS_MAX:
        raise BadInput(f"a statement may have {ALTER_CHARACTERS_MAX:,} characters; this has {len(text):,}")
    return _AlterParser(text.strip().removesuffix(";"), definition).statement()


class _AlterParser(SchemaParser):
    """Statements over the tokens of types and schemas.  What was read is applied at once: later actions see it."""

    def __init__(self, text: str, definition: TableDefinition) -> None:
        super().__init__(text)
        self._definition = definition
        self._changes: list[Change] = []

    def statement(self) -> Alter:
        if self.accept("alter", "table"):
            name = self.name()
            if name != self._definition.name:
                raise self.error(f"the table is {self._definition.name}, not {name}")
        self.action()
        while self.accept(","):
            self.action()
        self.end()
        return Alter(tuple(self._changes))

    def add(self, change: Change) -> None:
        # A later action may name what an earlier one has added or renamed.
        self._definition = apply_alter(self._definition, Alter((change,)))
        self._changes.append(change)

    def action(self) -> None:
        if self.accept("add"):
            _ = self.accept("columns") or self.accept("column")
            self.several(self.added)
        elif self.accept("drop"):
            _ = self.accept("columns") or self.accept("column")
            self.several(self.dropped)
        elif self.accept("rename", "column"):
            name, *inside = self.path()
            self.expect("to")
            self.add(RenameColumn(name=name, to=self.plain_name(), inside=tuple(inside)))
        elif self.accept("alter", "column") or self.accept("change", "column") or self.accept("modify", "column"):
            self.altered(*self.path())
        else:
            raise self.error("expected ADD COLUMN, DROP COLUMN, RENAME COLUMN or ALTER COLUMN")

    def several(self, item: Callable[[], None]) -> None:
        """Take one item, or some in parentheses."""
        if not self.accept("("):
            item()
            return
        item()
        while self.accept(","):
            item()
        self.expect(")")

    def added(self) -> None:
        name, *inside = self.path()
        self.accept(":")
        type_text = format_type(self.type(NESTING_MAX))
        nullable, default, after, first = True, None, None, False
        while True:
            if self.accept("not", "null"):
                nullable = False
            elif self.accept("default"):
                default = sql_default(self.constant(), type_text)
            elif self.accept("after"):
                after = self.plain_name()
            elif self.accept("first"):
                first = True
            elif self.accept("comment"):
                self.next("a comment in quotes")
            else:
                break
        change = AddColumn(name, type_text, nullable, default, after, first, inside=tuple(inside))
        self.add(change)

    def dropped(self) -> None:
        name, *inside = self.path()
        self.add(DropColumn(name=name, inside=tuple(inside)))

    def altered(self, name: str, *inside: str) -> None:
        if self.accept("type") or self.accept("set", "data", "type"):
            self.add(WidenColumn(name=name, type=format_type(self.type(NESTING_MAX)), inside=inside))
        elif inside:
            raise self.error("what is inside a column has no default and may be null; it can be given a wider TYPE")
        elif self.accept("set", "default"):
            default = sql_default(self.constant(), find_column(self._definition, name).type)
            self.add(DropDefault(name=name) if default is None else SetDefault(name=name, default=default))
        elif self.accept("drop", "default"):
            self.add(DropDefault(name=name))
        elif self.accept("drop", "not", "null"):
            self.add(DropNotNull(name=name))
        elif self.accept("set", "not", "null"):
            raise self.error(
                "rows that are there, or just being inserted, may be null: add another column NOT NULL with a DEFAULT, or"
                " copy the rows into a new table"
            )
        else:
            raise self.error("expected TYPE, SET DEFAULT, DROP DEFAULT or DROP NOT NULL")

    def path(self) -> tuple[str, ...]:
        """Take a column's name, or the path of what is inside one: names with dots between them."""
        names, expected = list[str](), True
        while expected or self.comes_dot():
            token = self.next("a name")
            # The tokenizer takes `a.b` for one word: dots are no signs of its own, as they stand in numbers.
            pieces = [token.text] if token.quoted else [piece for piece in re.split(r"(\.)", token.text) if piece]
            for piece in pieces:
                is_name = token.quoted or piece != "."
                if is_name != expected or token.comment or (not token.quoted and piece in "<>(),:[]="):
                    raise self.error(f"expected {'a name' if expected else 'a dot'}, found {token.text!r}")
                if is_name:
                    names.append(piece)
                expected = not is_name
        return tuple(names)

    def comes_dot(self) -> bool:
        """Tell whether a path goes on."""
        token = self.peek()
        return token is not None and not token.quoted and not token.comment and token.text.startswith(".")

    def plain_name(self) -> str:
        """Take the name of a column or field by itself, with no path before it."""
        names = self.path()
        if len(names) > 1:
            raise self.error(
                f"expected a name without a path, found {'.'.join(names)!r}; a name with a dot stands in backquotes"
            )
        return names[0]

    def constant(self) -> str:
        """Take the literal of a default, which is a whole expression."""
        literal, following = self.literal(), self.peek()
        if literal in OPERATORS or (following is not None and not following.comment and following.text[0] in OPERATORS):
            raise self.error("a DEFAULT is one constant, and no expression: write its value, such as DEFAULT 2")
        return literal

    def literal(self) -> str:
        """Take a literal: a word or number, a text, or a word and a text as in ``date'2018-01-31'``."""
        token = self.next("a value")
        if token.comment:
            return f"'{token.text}'"
        following = self.peek()
        if following is None or not following.comment:
            return token.text
        return f"{token.text}'{self.next('a text').text}'"

    @override
    def error(self, problem: str) -> BadInput:
        return BadInput(f"can't read the statement {self._text!r}: {problem}")
