"""Mutations: what a log entry says is to be done to rows, and everything that is checked before it may say so.

A `MutationCommand` deletes the rows for which a condition is true, or gives some of their columns new values.  It is text,
as people wrote it, so that every replica reads it with the same definition and does the same.

Guarantees: `decode_mutation(m.encode()) == m`; a mutation that `check_mutation` lets pass can be applied to every part of the
table, unless some row has no value for an expression (a number that does not fit, a null where none may be), which only the
rows can tell.  Column names are those of the definition of the moment; the log entry says which schema version that is.

Refused, because a mutation leaves every row in its place and is the same on every replica:

* setting a column of the order key or of the partition transforms: delete the rows and insert them again
* whatever depends on time, chance or settings
* comments, several statements at once, statements without ``WHERE`` (``WHERE true`` says that all rows are meant)

Absent on purpose: which parts are mutated (the log says), and rewriting them (`replitree.storage.rewrite.mutate`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from replitree.decoding import json_decoder
from replitree.errors import BadInput, UnsupportedFormat
from replitree.storage.files.formats import decode_known
from replitree.storage.files.names import format_name
from replitree.storage.parts.manifest import PartManifest, is_partition_id
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.merge_policy import PolicyKind
from replitree.storage.sql.expression import Constant, Expression, condition_values, evaluate
from replitree.storage.sql.expression_kernels import NoValueError
from replitree.storage.sql.expression_parser import parse_assignment, varying_function
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.storage.sql.sql_parser import NotRead, parse_all, parse_one, refuse_doubled_quotes, tokens_of

if TYPE_CHECKING:
    from sqlglot import exp

FORMAT = 1
MUTATION_BYTES_MAX = 256 << 10
"""Bytes of a mutation: its log entry stays far below ZooKeeper's limit of 1 MB."""

NESTING_MAX = 30
"""Levels inside each other; ``a AND b AND c`` is one.  A reader of the log may have less stack left."""

OPERANDS_MAX = 100
"""Operands of one chain, such as ``a + b + c``, of any operator but AND and OR, whose chains may be as long as the text."""


class MutationKind(Enum):
    """The kind of change to the rows."""

    DELETE = "delete"
    UPDATE = "update"


class MutationCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One mutation.

    Attributes
    ----------
    kind
        Delete or update.
    where
        SQL of the condition, in Spark's dialect; a row for which it is null is left as it is.
    assignments
        Column and SQL of its new value, in the order of the table's columns.  All of them see the old row.
    partition
        Id of the one partition that is meant; None means all.
    """

    format: int
    kind: MutationKind
    where: str
    assignments: tuple[tuple[str, str], ...] = ()
    partition: str | None = None

    def encode(self) -> bytes:
        """Bytes for a log entry; equal mutations have equal bytes."""
        return _encoder.encode(self)

    @property
    def text(self) -> str:
        """The same as text."""
        return self.encode().decode()


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = json_decoder(MutationCommand)


def decode_mutation(data: bytes | str) -> MutationCommand:
    """Read a mutation from its bytes or text.

    Raises
    ------
    UnsupportedFormat
        A newer replitree wrote it, or none did.
    """
    return decode_known(_decoder, data, "a mutation", (FORMAT,))


def as_statement(command: str, table: str) -> str:
    """Return a mutation's text as the statement that it is; one that can't be read, as it stands.

    >>> as_statement('{"format":1,"kind":"delete","where":"k = 1"}', "events")
    'DELETE FROM events WHERE k = 1'
    >>> as_statement('{"format":1,"kind":"update","where":"true","assignments":[["v","v + 1"],["a b","0"]]}', "events")
    'UPDATE events SET v = v + 1, `a b` = 0 WHERE true'
    >>> as_statement("of a newer version", "events")
    'of a newer version'
    """
    try:
        mutation = decode_mutation(command)
    except UnsupportedFormat:
        return command
    if mutation.kind is MutationKind.DELETE:
        return f"DELETE FROM {table} WHERE {mutation.where}"  # noqa: S608 - it is shown, not run
    changes = ", ".join(f"{format_name(column)} = {value}" for column, value in mutation.assignments)
    return f"UPDATE {table} SET {changes} WHERE {mutation.where}"  # noqa: S608 - it is shown, not run


# --- making one -----------------------------------------------------------------------------------------------------------


def delete_where(where: str, definition: TableDefinition, *, partition: str | None = None) -> MutationCommand:
    """Make the mutation that deletes rows.

    Parameters
    ----------
    where
        Which, see `replitree.storage.sql.predicate_parser`.
    partition
        Only in the partition with this id.

    Raises
    ------
    BadInput
        It can't be used; says why.
    """
    return _checked(
        MutationCommand(format=FORMAT, kind=MutationKind.DELETE, where=where, partition=partition), definition
    )


def update_where(
    assignments: Mapping[str, str], where: str, definition: TableDefinition, *, partition: str | None = None
) -> MutationCommand:
    """Make the mutation that gives columns new values.

    Parameters
    ----------
    assignments
        SQL by column, see `replitree.storage.sql.expression_parser`.
    where, partition
        In which rows, as in `delete_where`.

    Raises
    ------
    BadInput
        It can't be used; says why.
    """
    return _update(tuple(assignments.items()), where, definition, partition)


def parse_mutation(statement: str, definition: TableDefinition, *, partition: str | None = None) -> MutationCommand:
    """Read ``DELETE FROM t WHERE …`` or ``UPDATE t SET a = …, b = … WHERE …``.

    Raises
    ------
    BadInput
        It is no such statement of this table, or can't be used; says why.
    """
    from sqlglot import exp

    # The text goes into the log as it stands: a comment at its end would swallow what is put behind it.
    _refuse_comments(statement)
    try:
        trees = parse_all(statement)
    except NotRead as error:
        raise BadInput(f"can't read the statement {statement!r}: {error}") from error
    except RecursionError as error:
        raise BadInput("the statement is nested too deeply; use IN (…) for many values") from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Delete | exp.Update):
        raise BadInput("a mutation is one statement: DELETE FROM t WHERE … or UPDATE t SET column = … WHERE …")
    _check_statement(tree, definition)
    settings, where = _pieces(statement)
    _check_piece(where, tree.args["where"].this)
    if isinstance(tree, exp.Delete):
        return delete_where(where, definition, partition=partition)
    given = []
    for each, text in zip(tree.expressions, settings, strict=True):
        if not isinstance(each, exp.EQ) or not isinstance(each.this, exp.Column):
            raise BadInput(f"SET takes column = value, separated by commas; this is {text!r}")
        if len(each.this.parts) > 1:
            raise BadInput(f"{text!r}: only a whole column can be set")
        value = text[_outer(text, "=")[0][1] :].strip()
        _check_piece(value, each.expression)
        given.append((each.this.name, value))
    return _update(given, where, definition, partition)


def _update(
    given: Sequence[tuple[str, str]], where: str, definition: TableDefinition, partition: str | None
) -> MutationCommand:
    by_column: dict[str, str] = {}
    for name, text in given:
        column = _settable(name, definition)
        if column.name in by_column:
            raise BadInput(f"column {column.name!r} is set twice")
        by_column[column.name] = text
    ordered = tuple((c.name, by_column[c.name]) for c in definition.columns if c.name in by_column)
    mutation = MutationCommand(
        format=FORMAT, kind=MutationKind.UPDATE, where=where, assignments=ordered, partition=partition
    )
    return _checked(mutation, definition)


def _check_statement(tree: exp.Delete | exp.Update, definition: TableDefinition) -> None:
    """Refuse a statement that has anything that would have to be understood beside table, assignments and condition."""
    from sqlglot import exp

    table = tree.this
    unknown = sorted(name for name, part in tree.args.items() if part and name not in {"this", "expressions", "where"})
    if not isinstance(table, exp.Table) or [name for name, part in table.args.items() if part] != ["this"] or unknown:
        what = unknown[0] if unknown else "another table, or a name for it"
        raise BadInput(f"a mutation names the table, {definition.name}, and a condition; {what} is not understood here")
    if table.name.lower() != definition.name.lower():
        raise BadInput(f"the statement is about {table.name!r}, and this is the table {definition.name!r}")
    if tree.args.get("where") is None:
        raise BadInput("a mutation needs WHERE; say WHERE true if all rows are meant")


def _pieces(statement: str) -> tuple[list[str], str]:
    """Cut a statement into the texts of its assignments and of its condition, as they were written."""
    wheres, sets = _outer(statement, "WHERE"), _outer(statement, "SET")
    if len(wheres) != 1 or len(sets) > 1:
        raise BadInput("a column that is called like a word of SQL stands in backquotes")
    [(where, after)] = wheres
    condition = statement[after:].strip().rstrip(";").rstrip()
    if not sets:
        return [], condition
    middle = statement[sets[0][1] : where]
    commas = _outer(middle, ",")
    starts = [0, *(after for _, after in commas)]
    stops = [*(before for before, _ in commas), len(middle)]
    return [middle[start:stop].strip() for start, stop in zip(starts, stops, strict=True)], condition


def _outer(text: str, word: str) -> list[tuple[int, int]]:
    """Give begin and end of each place where a word or sign stands outside of parentheses and quotes."""
    found, depth = [], 0
    # Of tokens, not of characters: a word inside of quotes is part of a token.
    for token in tokens_of(text):
        place = token.start, token.end + 1
        depth += {"(": 1, ")": -1}.get(text[slice(*place)], 0)
        if not depth and text[slice(*place)].upper() == word:
            found.append(place)
    return found


def _check_piece(text: str, tree: exp.Expr) -> None:
    """Refuse a piece that, when it is read by itself, is not what it was in the statement."""
    # Cut out by position: a keyword inside of an expression could have been cut at.
    if parse_one(text) != tree:
        raise BadInput(f"{text!r} has another meaning by itself; give condition and values one by one")


def _refuse_comments(text: str) -> None:
    try:
        tokens = tokens_of(text)
    except NotRead as error:
        raise BadInput(f"can't read {text[:200]!r}: {error}") from error
    if any(token.comments for token in tokens):
        raise BadInput(f"{text[:200]!r} has a comment, which the log has no place for; leave it out")


# --- checks -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column, and the expression of the column's type that it is set to; `text` is what was written."""

    column: Column
    expression: Expression
    text: str


@dataclass(frozen=True, slots=True)
class CheckedMutation:
    """A mutation that was read with the table's definition, ready to be applied."""

    mutation: MutationCommand
    definition: TableDefinition
    predicate: Predicate
    assignments: tuple[Assignment, ...]


@lru_cache(maxsize=64)
def check_mutation(mutation: MutationCommand, definition: TableDefinition) -> CheckedMutation:
    """Read a mutation with the definition of the schema version that it was written for.

    Raises
    ------
    BadInput
        Something of it can't be used: a name, a type, a function, a column that can't be set; says what to use instead.
    """
    # The first check: the others parse the text, whose size a client chooses.
    size = len(mutation.encode())
    if size > MUTATION_BYTES_MAX:
        raise BadInput(f"a mutation may have {MUTATION_BYTES_MAX:,} bytes; this has {size:,}: use several")
    if mutation.partition is not None and not is_partition_id(mutation.partition):
        raise BadInput(f"{mutation.partition!r} can't be a partition's id; `replitree table partitions` shows them")
    if (mutation.kind is MutationKind.UPDATE) != bool(mutation.assignments):
        raise BadInput("an update sets columns, and a delete none")
    refuse_unusable(mutation.where)
    predicate = parse_predicate(mutation.where, definition, recorded=True)
    assignments = []
    for name, text in mutation.assignments:
        column = _settable(name, definition)
        refuse_unusable(text)
        expression = parse_assignment(text, column, definition)
        if not column.nullable and isinstance(expression, Constant) and expression.value is None:
            raise BadInput(f"column {column.name!r} may not be null")
        assignments.append(Assignment(column, expression, text))
    names = [assignment.column.name for assignment in assignments]
    # Equal mutations must have equal bytes: replicas compare them.
    if names != sorted(set(names), key=definition.arrow_schema.names.index):
        raise BadInput("a column is set twice, or the columns are not in the table's order")
    checked = CheckedMutation(mutation, definition, predicate, tuple(assignments))
    # Applied to no rows: what the kernels can't calculate with these types shows here, and not on every replica later.
    rows = pa.RecordBatch.from_pylist([], schema=checked.definition.arrow_schema)
    try:
        condition_values(checked.predicate, rows)
        for assignment in checked.assignments:
            evaluate(assignment.expression, rows)
    except (pa.ArrowException, NoValueError, RecursionError) as error:
        raise BadInput(f"the mutation can't be calculated: {error}; use cast to narrower types, or Spark") from error
    return checked


def _checked(mutation: MutationCommand, definition: TableDefinition) -> MutationCommand:
    checked = check_mutation(mutation, definition).mutation
    # Log entries of older versions may have doubled quotes, and are read by `check_mutation`, too.
    for text in (checked.where, *(text for _, text in checked.assignments)):
        try:
            refuse_doubled_quotes(text)
        except NotRead as error:
            raise BadInput(f"can't read {text[:200]!r}: {error}") from error
    return checked


def _settable(name: str, definition: TableDefinition) -> Column:
    by_lower = {column.name.lower(): column for column in definition.columns}
    column = by_lower.get(name.lower())
    if column is None:
        near = [by_lower[n].name for n in difflib.get_close_matches(name.lower(), by_lower, n=1)]
        hint = (
            f"did you mean {near[0]!r}?" if near else f"its columns are {', '.join(definition.arrow_schema.names[:20])}"
        )
        raise BadInput(f"table {definition.name} has no column {name!r}; {hint}")
    if column.name in definition.key_columns:
        key = "order key" if column.name in definition.order_by else "partition key"
        raise BadInput(
            f"column {column.name!r} is of the {key}, so its rows would have to move: delete them and insert them again"
        )
    return column


def refuse_unusable(text: str) -> None:
    """Refuse what has no meaning that stays the same; what can't be read at all is for the parsers to say."""
    _refuse_comments(text)
    try:
        tree = parse_one(text)
    except (NotRead, RecursionError):
        return
    # A chain that can be read here may be too deep for a replica that has less stack left when it reads the log.
    from sqlglot import exp

    left = [(tree, 1, 1)]
    while left:
        node, level, operands = left.pop()
        if level > NESTING_MAX or operands > OPERANDS_MAX:
            raise BadInput(f"{text[:80]!r}… is nested too deeply; use IN (…) for many values, or several mutations")
        for child in node.iter_expressions():
            if type(child) is not type(node) or not isinstance(node, exp.Binary):
                left.append((child, level + 1, 1))
            else:
                left.append((child, level, operands + (not isinstance(node, exp.And | exp.Or))))
    varying = varying_function(tree)
    if varying:
        raise BadInput(f"can't use {text!r}: {varying} is not the same on every replica; write its value")


def cannot_touch(manifest: PartManifest, mutation: MutationCommand, definition: TableDefinition) -> bool:
    """Tell whether a part certainly has no row that the mutation deletes or updates, from what its manifest says.

    Raises
    ------
    BadInput
        As `check_mutation`.
    """
    if mutation.partition not in (None, manifest.partition):
        return True
    return not check_mutation(mutation, definition).predicate.may_match(manifest)


def can_judge_before_merges(mutation: MutationCommand, definition: TableDefinition) -> bool:
    """Return whether a part that `cannot_touch` any of its rows stays such a part when it is merged.

    A merge keeps rows or removes them, but a summing merge makes new values: a sum may match where no summand does.  Columns of
    the order key and the partition key keep their values in every merge.

    Raises
    ------
    BadInput
        As `check_mutation`.
    """
    if definition.policy.kind is not PolicyKind.SUMMING:
        return True
    return set(check_mutation(mutation, definition).predicate.columns) <= set(definition.key_columns)
