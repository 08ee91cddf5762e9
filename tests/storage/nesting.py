"""Columns with insides that change: a model whose fields have ids of their own, and statements drawn at random."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from replitree.storage.files.names import format_path
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.types import format_type
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter

NAMES = ("a", "b", "Cc", "odd name", "x.y", "element")
WIDER = {"tinyint": "smallint", "smallint": "int", "int": "bigint"}


@dataclass(frozen=True)
class Leaf:
    """A plain type."""

    type: str


@dataclass(frozen=True)
class Field:
    """A field of a struct; `id` names it for good."""

    id: int
    name: str
    node: Node


@dataclass(frozen=True)
class Struct:
    """A struct."""

    fields: tuple[Field, ...]


@dataclass(frozen=True)
class List:
    """A list."""

    inner: Node


@dataclass(frozen=True)
class Map:
    """A map from strings."""

    inner: Node


Node: TypeAlias = Leaf | Struct | List | Map

_ids = itertools.count()


def nodes(depth: int) -> st.SearchStrategy[Node]:
    """A type; its fields get fresh ids."""
    leaf: st.SearchStrategy[Node] = st.sampled_from(["tinyint", "smallint", "string"]).map(Leaf)
    if depth == 0:
        return leaf
    return st.one_of(leaf, structs(depth), nodes(depth - 1).map(List), nodes(depth - 1).map(Map))


@st.composite
def structs(draw: st.DrawFn, depth: int) -> Struct:
    """A struct of one to three fields."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    return Struct(tuple(Field(next(_ids), name, draw(nodes(depth - 1))) for name in names))


def type_of(node: Node) -> pa.DataType:
    """The Arrow type."""
    match node:
        case Leaf(text):
            return {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}.get(
                text, pa.string()
            )
        case Struct(fields):
            return pa.struct([(each.name, type_of(each.node)) for each in fields])
        case List(inner):
            return pa.list_(pa.field("element", type_of(inner)))
        case Map(inner):
            return pa.map_(pa.string(), type_of(inner))


def given(node: Node) -> st.SearchStrategy[Any]:
    """Values in the model's form: structs are dicts by the ids of their fields."""
    match node:
        case Leaf("string"):
            return st.none() | st.sampled_from(["", "x", "é"])
        case Leaf():
            return st.none() | st.integers(-100, 100)
        case Struct(fields):
            return st.none() | st.fixed_dictionaries({each.id: given(each.node) for each in fields})
        case List(inner):
            return st.none() | st.lists(given(inner), max_size=2)
        case Map(inner):
            pairs = st.tuples(st.sampled_from(["k", "l"]), given(inner))
            return st.none() | st.lists(pairs, max_size=2, unique_by=lambda pair: pair[0])


def shown(node: Node, value: Any) -> Any:
    """What a value shows under a type of a later time: fields that it lacks are null."""
    if value is None:
        return None
    match node:
        case Leaf():
            return value
        case Struct(fields):
            return {each.name: shown(each.node, value.get(each.id)) for each in fields}
        case List(inner):
            return [shown(inner, each) for each in value]
        case Map(inner):
            return [(key, shown(inner, each)) for key, each in value]


def paths(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Everything in a type, with its path."""
    yield path, node
    match node:
        case Struct(fields):
            for each in fields:
                yield from paths(each.node, (*path, each.name))
        case List(inner):
            yield from paths(inner, (*path, "element"))
        case Map(inner):
            yield from paths(inner, (*path, "value"))


def put(node: Node, path: tuple[str, ...], new: Node) -> Node:
    """A type with another one at a path."""
    if not path:
        return new
    match node:
        case Struct(fields):
            inside = (replace(e, node=put(e.node, path[1:], new)) if e.name == path[0] else e for e in fields)
            return Struct(tuple(inside))
        case List(inner):
            return List(put(inner, path[1:], new))
        case Map(inner):
            return Map(put(inner, path[1:], new))
    raise AssertionError(path)


@dataclass
class NestedStory:
    """A table `t(k, c)` whose column `c` changes inside, its parts, and what each row must show."""

    folder: Path
    node: Node
    parts: list[Path] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        schema = pa.schema([pa.field("k", pa.int64()), pa.field("c", type_of(self.node))])
        self.definition: TableDefinition = define_table("t", schema, order_by="k", table_id="0" * 32)
        self.versions: dict[int, Node] = {1: self.node}

    def insert(self, values: list[Any], version: int | None = None) -> None:
        """Write rows as a part of a version, the newest by default."""
        then = self.definition if version is None else self.definition.at(version)
        node = self.versions[then.schema_version]
        keys = range(len(self.rows), len(self.rows) + len(values))
        data = pa.table(
            {"k": pa.array(keys, pa.int64()), "c": pa.array([shown(node, v) for v in values], type_of(node))}
        )
        folder = self.folder / f"s{len(self.parts)}"
        [manifest] = stage_table(conform(data, then), then, folder, sync=False)
        self.parts.append(folder / manifest.partition)
        self.rows += values

    def alter(self, statement: str, node: Node) -> None:
        """Change the column, and the model as it should then be."""
        self.definition = apply_alter(self.definition, parse_alter(statement, self.definition))
        self.node = self.versions[self.definition.schema_version] = node
        assert self.definition.column("c").arrow_type == type_of(node)

    def expected(self) -> list[dict[str, Any]]:
        """What all rows show."""
        return [{"k": k, "c": shown(self.node, value)} for k, value in enumerate(self.rows)]

    def sorted(self, found: pa.Table) -> list[dict[str, Any]]:
        """What was read, in the order of the keys."""
        rows: list[dict[str, Any]] = found.sort_by("k").to_pylist()
        return rows


@st.composite
def changed(draw: st.DrawFn, node: Node) -> tuple[str, Node] | None:
    """A statement, and the type as it then is; None when what was drawn fits nothing."""
    kind = draw(st.sampled_from(["add", "drop", "rename", "widen"]))
    if kind == "widen":
        leaves = [(path, leaf) for path, leaf in paths(node) if isinstance(leaf, Leaf) and leaf.type in WIDER]
        if not leaves:
            return None
        path, leaf = draw(st.sampled_from(leaves))
        wide = WIDER[leaf.type]
        return f"ALTER COLUMN {_written(path)} TYPE {wide}", put(node, path, Leaf(wide))
    found = [(path, struct) for path, struct in paths(node) if isinstance(struct, Struct)]
    if not found:
        return None
    path, struct = draw(st.sampled_from(found))
    return draw(_field_changed(kind, node, path, struct))


@st.composite
def _field_changed(
    draw: st.DrawFn, kind: str, node: Node, path: tuple[str, ...], struct: Struct
) -> tuple[str, Node] | None:
    fields, free = struct.fields, [name for name in NAMES if name not in {each.name for each in struct.fields}]
    place = draw(st.integers(0, len(fields) - 1))
    one = fields[place]
    text = _written((*path, one.name))
    if kind == "drop":
        left = Struct((*fields[:place], *fields[place + 1 :]))
        return (f"DROP COLUMN {text}", put(node, path, left)) if len(fields) > 1 else None
    if not free:
        return None
    name = draw(st.sampled_from(free))
    if kind == "rename":
        new = Struct((*fields[:place], replace(one, name=name), *fields[place + 1 :]))
        return f"RENAME COLUMN {text} TO {format_path((name,))}", put(node, path, new)
    added = Field(next(_ids), name, draw(nodes(1)))
    statement = f"ADD COLUMN {_written((*path, name))} {format_type(type_of(added.node))}"
    where, at = draw(
        st.sampled_from(
            [("", len(fields)), (" FIRST", 0), (f" AFTER {format_path((one.name,))}", place + 1)],
        )
    )
    return statement + where, put(node, path, Struct((*fields[:at], added, *fields[at:])))


def _written(path: tuple[str, ...]) -> str:
    return format_path(("c", *path))


@st.composite
def nested_stories(draw: st.DrawFn, folder: Path, alters_max: int = 6) -> NestedStory:
    """A table with some rows, then alters and inserts, some by writers that know an older version."""
    story = NestedStory(folder, draw(structs(2) | structs(1).map(List) | structs(1).map(Map)))
    story.insert(draw(st.lists(given(story.node), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, alters_max))):
        change = draw(changed(story.node))
        if change is not None:
            story.alter(*change)
        version = max(1, story.definition.schema_version - draw(st.sampled_from([0, 0, 1])))
        if draw(st.booleans()):
            story.insert(draw(st.lists(given(story.versions[version]), min_size=1, max_size=3)), version)
    return story
