"""From the text of an ``ALTER TABLE`` statement to an `Alter`.

Understood, in any case, with or without ``ALTER TABLE name`` in front, several separated by commas::

    ADD COLUMN price decimal(12,2) NOT NULL DEFAULT 0 AFTER amount
    ADD COLUMNS (a int, b string FIRST)
    DROP COLUMN a                          DROP COLUMNS (a, b)
    RENAME COLUMN a TO b
    ALTER COLUMN a TYPE bigint             ALTER COLUMN a SET DATA TYPE bigint
    ALTER COLUMN a SET DEFAULT 0           ALTER COLUMN a DROP DEFAULT
    ALTER COLUMN a DROP NOT NULL

Types are those of `replitree.storage.types` and no others: other parsers of SQL take ``int8`` for 8 bytes, here it has 8 bits.
Defaults are literals of Spark's dialect.  Anything else is refused with `BadInput`, never guessed.

Guarantees: the alter fits the definition that it was read for; it may not fit a later one.

Absent on purpose: ``SET NOT NULL``, properties, comments of columns (they are taken, and not kept).
"""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from replitree.errors import BadInput
from replitree.storage.defaults import sql_default
from replitree.storage.definition import TableDefinition
from replitree.storage.evolve import (
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
from replitree.storage.types import NESTING_MAX, SchemaParser, format_type

ALTER_CHARACTERS_MAX = 100_000


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
            name = self.name()
            self.expect("to")
            self.add(RenameColumn(name=name, to=self.name()))
        elif self.accept("alter", "column") or self.accept("change", "column") or self.accept("modify", "column"):
            self.altered(self.name())
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
        name = self.name()
        self.accept(":")
        type_text = format_type(self.type(NESTING_MAX))
        nullable, default, after, first = True, None, None, False
        while True:
            if self.accept("not", "null"):
                nullable = False
            elif self.accept("default"):
                default = sql_default(self.literal(), type_text)
            elif self.accept("after"):
                after = self.name()
            elif self.accept("first"):
                first = True
            elif self.accept("comment"):
                self.next("a comment in quotes")
            else:
                break
        self.add(AddColumn(name=name, type=type_text, nullable=nullable, default=default, after=after, first=first))

    def dropped(self) -> None:
        self.add(DropColumn(name=self.name()))

    def altered(self, name: str) -> None:
        if self.accept("type") or self.accept("set", "data", "type"):
            self.add(WidenColumn(name=name, type=format_type(self.type(NESTING_MAX))))
        elif self.accept("set", "default"):
            default = sql_default(self.literal(), find_column(self._definition, name).type)
            self.add(DropDefault(name=name) if default is None else SetDefault(name=name, default=default))
        elif self.accept("drop", "default"):
            self.add(DropDefault(name=name))
        elif self.accept("drop", "not", "null"):
            self.add(DropNotNull(name=name))
        elif self.accept("set", "not", "null"):
            raise self.error("rows that are there may be null: add another column with a default instead")
        else:
            raise self.error("expected TYPE, SET DEFAULT, DROP DEFAULT or DROP NOT NULL")

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
