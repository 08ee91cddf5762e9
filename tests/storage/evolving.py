"""Tables that change: alters drawn at random, and a plain model of what every row must show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.columns import Column, Plain
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.types import format_type
from replitree.storage.schema.widen import can_widen, keeps_partitions
from replitree.storage.sql.defaults import plain_of_scalar
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
)
from tests.examples import examples
from tests.storage.support import PLAIN_TYPES, values

EXAMPLES = examples(14)
"""Each of these examples writes and reads files."""

NAMES = ("a", "b", "c", "k", "v", "price~2", "Price", "odd name")
FEW_TYPES = [
    pa.int8(),
    pa.int32(),
    pa.float32(),
    pa.decimal128(4, 1),
    pa.string(),
    pa.date32(),
    pa.timestamp("us"),
    pa.bool_(),
]


def table(**options: Any) -> TableDefinition:
    """Two key columns of narrow types, and two others."""
    schema = "k int not null, b tinyint, v float, s string"
    return define_table(
        "t", schema, **{"order_by": "k", "partition_by": "bucket(2,b)", "table_id": "0" * 32, **options}
    )


def wider(column: Column, definition: TableDefinition) -> list[pa.DataType]:
    """The types that a column may be given."""
    key = {transform.column for transform in definition.partition_by}
    return [
        target
        for target in [*PLAIN_TYPES, pa.decimal128(14, 2), pa.decimal128(20, 0)]
        if can_widen(column.arrow_type, target)
        and (column.name not in key or keeps_partitions(column.arrow_type, target))
    ]


@st.composite
def changes(draw: st.DrawFn, definition: TableDefinition) -> Change | None:
    """A change that the table can have, or None when the drawn kind fits nothing."""
    kind = draw(st.sampled_from(["add", "drop", "rename", "widen", "default", "no default", "null"]))
    column = draw(st.sampled_from(definition.columns))
    free = [n for n in NAMES if n.lower() not in {c.name.lower() for c in definition.columns}]
    if kind == "add" and free:
        return draw(_added(draw(st.sampled_from(free)), definition))
    if kind == "drop" and column.name not in definition.key_columns and len(definition.columns) > 1:
        return DropColumn(column.name)
    if kind == "rename" and free:
        return RenameColumn(column.name, draw(st.sampled_from(free)))
    if kind == "widen" and (types := wider(column, definition)):
        return WidenColumn(column.name, format_type(draw(st.sampled_from(types))))
    if kind == "default":
        value = draw(_defaults(column.arrow_type))
        return SetDefault(column.name, value) if value is not None else None
    if kind == "no default" and column.has_default:
        return DropDefault(column.name)
    return DropNotNull(column.name) if kind == "null" and not column.nullable else None


@st.composite
def _added(draw: st.DrawFn, name: str, definition: TableDefinition) -> AddColumn:
    arrow = draw(st.sampled_from(FEW_TYPES))
    default = draw(_defaults(arrow))
    after = draw(st.none() | st.sampled_from([c.name for c in definition.columns]))
    nullable = default is None or draw(st.booleans())
    first = after is None and draw(st.booleans())
    return AddColumn(name, format_type(arrow), nullable, default, after, first)


def plain_default(value: object, type_text: str) -> Plain | None:
    """A value as it stands in JSON as the default of a column."""
    (scalar,) = conform({"value": [value]}, define_table("t", f"value {type_text}")).column(0)
    return plain_of_scalar(scalar)


def _defaults(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    given = values(arrow).filter(lambda v: not isinstance(v, float) or abs(v) < 1e30)
    return given.map(lambda value: plain_default(value, format_type(arrow)))


@dataclass
class Story:
    """A table that lives: its parts on disk, and beside them what each row must show, by the ids of columns.

    Column 1 of every row is another number, so rows can be told apart whatever becomes of the columns.
    """

    folder: Path
    definition: TableDefinition = field(default_factory=table)
    parts: list[Path] = field(default_factory=list)
    rows: list[dict[int, Any]] = field(default_factory=list)

    def alter(self, *some: Change) -> None:
        """Change the columns; rows that are there show the default of an added one."""
        before = {column.id for column in self.definition.columns}
        self.definition = apply_alter(self.definition, Alter(some))
        for column in self.definition.columns:
            if column.id not in before:
                for row in self.rows:
                    row[column.id] = column.initial_scalar.as_py()

    def insert(self, given: Sequence[Mapping[str, Any]], version: int | None = None) -> None:
        """Write rows as parts of a schema version, the newest by default; `k` is numbered here."""
        then = self.definition if version is None else self.definition.at(version)
        key = next(column.name for column in then.columns if column.id == 1)
        rows = conform([{**row, key: len(self.rows) + i} for i, row in enumerate(given)], then)
        folder = self.folder / f"s{len(self.parts)}"
        self.parts += [folder / manifest.partition for manifest in stage_table(rows, then, folder, sync=False)]
        ids = {column.name: column.id for column in then.columns}
        late = {c.id: c.initial_scalar.as_py() for c in self.definition.columns if not c.is_in(then.schema_version)}
        self.rows += [late | {ids[name]: value for name, value in row.items()} for row in rows.to_pylist()]

    def expected(self, definition: TableDefinition | None = None) -> list[dict[str, Any]]:
        """Give what all rows show, in the order of their numbers."""
        columns = (definition or self.definition).columns
        return [{column.name: row[column.id] for column in columns} for row in self.rows]

    def sorted(self, found: pa.Table) -> list[dict[str, Any]]:
        """Give what was read in the order of the rows' numbers."""
        key = next(column.name for column in self.definition.columns if column.id == 1)
        rows: list[dict[str, Any]] = found.to_pylist()
        return sorted(rows, key=lambda row: row[key])


@st.composite
def inserted(draw: st.DrawFn, definition: TableDefinition) -> list[dict[str, Any]]:
    """Some rows of a table; columns that have a default, or may be null, may be left out."""
    columns = [c for c in definition.columns if c.id != 1]
    left_out = draw(st.sets(st.sampled_from([c.name for c in columns]))) if columns else set()
    given = [c for c in columns if c.name not in left_out or not (c.nullable or c.has_default)]
    one = {c.name: _given(c) for c in given}
    return draw(st.lists(st.fixed_dictionaries(one), min_size=1, max_size=4))


def _given(column: Column) -> st.SearchStrategy[Any]:
    # No NaN: a row that has one is not equal to itself.
    found = values(column.arrow_type).filter(lambda value: value == value)  # noqa: PLR0124
    return found if column.nullable else found.filter(lambda value: value is not None)


@st.composite
def stories(draw: st.DrawFn, folder: Path, alters_max: int = 6) -> Story:
    """A table with some rows, then alters and inserts; some inserts come from writers that know an older version."""
    story = Story(folder)
    story.insert(draw(inserted(story.definition)))
    for _ in range(draw(st.integers(1, alters_max))):
        change = draw(changes(story.definition))
        if change is not None:
            story.alter(change)
        newest = story.definition.schema_version
        version = newest - draw(st.sampled_from([0, 0, 1, 2]))
        if version > 0 and draw(st.booleans()):
            story.insert(draw(inserted(story.definition.at(version))), version)
    return story
