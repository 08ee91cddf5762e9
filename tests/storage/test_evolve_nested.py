"""What is inside a column changes, and parts of every version show it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.errors import BadInput, SchemaMismatch, UnsupportedFormat
from replitree.storage.parts.conform import conform
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.rewrite.merge import final_batches, merge_parts
from replitree.storage.rewrite.mutate import mutate_part
from replitree.storage.rewrite.read import read_batches, read_parts
from replitree.storage.schema.adapt import adapt, stored_rows
from replitree.storage.schema.definition import TableDefinition, decode_definition, define_table
from replitree.storage.schema.layout import is_plain, layout_of
from replitree.storage.schema.nested import reshape
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import AddColumn, Alter, Change, DropColumn, RenameColumn, WidenColumn, apply_alter
from replitree.storage.sql.mutation import delete_where, update_where
from replitree.storage.sql.schema_union import union_by_name
from tests.storage.evolving import EXAMPLES
from tests.storage.nesting import nested_stories


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_every_row_shows_what_the_model_says(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(nested_stories(Path(folder)))
        table = story.definition
        found = read_parts(story.parts, table)
        found.validate(full=True)
        assert found.schema.equals(table.arrow_schema)
        assert story.sorted(found) == story.expected()
        assert read_batches(story.parts, table).read_all().equals(found)
        assert decode_definition(table.encode_metadata(), table.encode_columns()) == table
        merged = merge_parts(story.parts, table, Path(folder) / "merged")
        assert story.sorted(read_parts([Path(folder) / "merged" / merged.partition], table)) == story.expected()
        final = pa.Table.from_batches(final_batches(story.parts, table), table.arrow_schema)
        assert story.sorted(final) == story.expected()
        for part in story.parts:
            manifest = read_manifest(part)
            rows = pa.concat_tables([pq.read_table(part / file.name) for file in manifest.files])
            assert adapt(rows, manifest.schema_version, table).equals(read_parts([part], table))
            stored = adapt(rows, manifest.schema_version, table.stored)
            assert stored.equals(stored_rows(adapt(rows, manifest.schema_version, table), table))
            then = table.at(manifest.schema_version).stored.arrow_schema
            assert content_hash(rows.cast(then), then) == manifest.content_hash


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_sliced_values_are_reshaped_like_whole_ones(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(nested_stories(Path(folder), 3))
        table = story.definition
        stored, shown = table.stored.arrow_schema.field("c").type, table.arrow_schema.field("c").type
        manifest = read_manifest(story.parts[0])
        rows = pq.read_table(story.parts[0] / manifest.files[0].name)
        values = pa.concat_arrays(rows.column(table.column("c").stored_name).chunks * 3)
        start = data.draw(st.integers(0, len(values)))
        stop = data.draw(st.integers(start, len(values)))
        found = reshape(values[start:stop], stored, shown)
        found.validate(full=True)
        assert found.to_pylist() == reshape(values, stored, shown).to_pylist()[start:stop]


# --- single stories ---------------------------------------------------------------------------------------------------------


def nested_table() -> TableDefinition:
    return define_table(
        "t",
        "k bigint, r struct<a: int, b: string>, l array<struct<x: tinyint, y: tinyint>>, m map<string, struct<n: int>>",
        order_by="k",
        table_id="0" * 32,
    )


def altered(statement: str, definition: TableDefinition | None = None) -> TableDefinition:
    definition = definition or nested_table()
    return apply_alter(definition, parse_alter(statement, definition))


def part(folder: Path, definition: TableDefinition, *rows: dict[str, Any]) -> Path:
    name = f"v{definition.schema_version}"
    [manifest] = stage_table(conform(list(rows), definition), definition, folder / name, sync=False)
    return folder / name / manifest.partition


@pytest.mark.parametrize(
    ("statement", "change"),
    [
        ("ADD COLUMN r.c int", AddColumn("r", "int32", inside=("c",))),
        ("add columns (r.c int after a)", AddColumn("r", "int32", after="a", inside=("c",))),
        ("add column `l`.element.`z z` int first", AddColumn("l", "int32", first=True, inside=("element", "z z"))),
        ("drop column m . value . n, drop column m", None),
        ("drop column l.element.x", DropColumn("l", inside=("element", "x"))),
        ("rename column r.`b` to `c.d`", RenameColumn("r", "c.d", inside=("b",))),
        ("alter column L.Element.X type int", WidenColumn("L", "int32", inside=("Element", "X"))),
        ("alter column `m`.value.`n` set data type bigint", WidenColumn("m", "int64", inside=("value", "n"))),
    ],
)
def test_path_is_read(statement: str, change: Change | None) -> None:
    if change is None:  # read, and refused for what it asks
        with pytest.raises(BadInput, match="a struct has at least one field"):
            parse_alter(statement, nested_table())
        return
    assert parse_alter(statement, nested_table()).changes == (change,)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("ADD COLUMN r.a int", "there is a 'r.a' already"),
        ("ADD COLUMN r.A int", "there is a 'r.A' already"),
        ("ADD COLUMN r.c int NOT NULL", "it may be null and has no default"),
        ("ADD COLUMN r.c int DEFAULT 1", "it may be null and has no default"),
        ("ADD COLUMN r.c int FIRST AFTER a", "can't be first and after"),
        ("ADD COLUMN r.c int AFTER z", "nothing is called 'z'.*there is a, b"),
        ("ADD COLUMN k.c int", "only fields of structs"),
        ("ADD COLUMN l.z int", "only fields of structs"),
        ("ADD COLUMN m.key.z int", "keys of a map"),
        ("ADD COLUMN z.c int", "no column 'z'"),
        ("ADD COLUMN r.`` int", "can't be a column's name"),
        ("DROP COLUMN m.value.n", "a struct has at least one field"),
        ("DROP COLUMN l.element", "only fields of structs"),
        ("DROP COLUMN r.z", "nothing is called 'z'"),
        ("DROP COLUMN r.a.z", "only fields of structs"),
        ("RENAME COLUMN r.a TO b", "there is another one"),
        ("RENAME COLUMN r.a TO a", "this name already"),
        ("RENAME COLUMN r.a TO r.c", "a name without a path"),
        ("RENAME COLUMN l.element TO e", "only fields of structs"),
        ("ALTER COLUMN r.a TYPE tinyint", "not every int32 is one; add a field"),
        ("ALTER COLUMN r.a TYPE int", "is int32 already"),
        ("ALTER COLUMN l.element TYPE int", "name what is inside, as in l.element.x"),
        ("ALTER COLUMN r TYPE struct<a: bigint, b: string>", "name what is inside, as in r.a"),
        ("ALTER COLUMN r.a SET DEFAULT 1", "no default"),
        ("ALTER COLUMN r.a DROP NOT NULL", "no default and may be null"),
        ("DROP COLUMN r.", "expected a name at the end"),
        ("DROP COLUMN .r", "expected a name, found '.r'"),
        ("DROP COLUMN r..a", "expected a name, found 'r..a'"),
        ("DROP COLUMN r.'a'", "expected a name, found 'a'"),
        ("DROP COLUMN r.,", "expected a name, found ','"),
        ("DROP COLUMN r.`a`b", "left over"),
    ],
)
def test_change_inside_that_is_not_possible_is_refused(statement: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_alter(statement, nested_table())


def test_name_with_a_dot_is_no_path() -> None:
    table = define_table("t", pa.schema([("a.b", pa.int32()), ("k", pa.int32())]))
    with pytest.raises(BadInput, match=r"a name with a dot stands in backquotes: `a\.b`"):
        parse_alter("DROP COLUMN a.b", table)
    assert altered("DROP COLUMN `a.b`", table).arrow_schema.names == ["k"]
    assert altered("ADD COLUMN `c.d` int", table).arrow_schema.names == ["a.b", "k", "c.d"]


def test_field_that_is_added_again_is_another_field(tmp_path: Path) -> None:
    one = nested_table()
    two = altered("DROP COLUMN r.b", one)
    three = altered("ADD COLUMN r.B string", two)
    parts = [
        part(tmp_path, one, {"k": 1, "r": {"a": 1, "b": "old"}}),
        part(tmp_path, two, {"k": 2, "r": {"a": 2}}),
        part(tmp_path, three, {"k": 3, "r": {"a": 3, "B": "new"}}),
    ]
    found = read_parts(parts, three, ["r"]).column("r").to_pylist()
    assert found == [{"a": 1, "B": None}, {"a": 2, "B": None}, {"a": 3, "B": "new"}]
    assert three.column("r").stored_type == "struct<a:int32,B~2:string>"
    assert pq.read_schema(parts[2] / "data-0.parquet").field("r").type.names == ["a", "B~2"]
    assert not is_plain(layout_of(three, 1))
    assert is_plain(layout_of(one, 1))


def test_two_fields_that_exchange_their_names_keep_their_values(tmp_path: Path) -> None:
    one = nested_table()
    two = altered("RENAME COLUMN l.element.x TO z, RENAME COLUMN l.element.y TO x, RENAME COLUMN l.element.z TO y", one)
    parts = [part(tmp_path, one, {"k": 1, "l": [{"x": 1, "y": 2}]}), part(tmp_path, two, {"k": 2, "l": [{"x": 4}]})]
    assert read_parts(parts, two, ["l"]).column("l").to_pylist() == [[{"y": 1, "x": 2}], [{"y": None, "x": 4}]]


def test_conditions_look_at_fields_by_their_new_names(tmp_path: Path) -> None:
    one = nested_table()
    two = altered("RENAME COLUMN r.a TO n, ALTER COLUMN r.n TYPE bigint, ADD COLUMN r.extra int", one)
    old = part(tmp_path, one, {"k": 1, "r": {"a": 7, "b": "x"}}, {"k": 2, "r": None}, {"k": 3, "r": {"a": 9}})
    new = part(tmp_path, two, {"k": 4, "r": {"n": 2**40, "extra": 1}})
    keys = {
        "r.n > 7": [3, 4],
        "r.n = 7 OR r.extra = 1": [1, 4],
        "r.extra IS NULL": [1, 2, 3],
        "r IS NULL": [2],
        "r.n < k": [],
    }
    for where, expected in keys.items():
        assert read_parts([old, new], two, ["k"], where).column("k").to_pylist() == expected


def test_mutation_sees_new_names_and_writes_old_ones(tmp_path: Path) -> None:
    one = nested_table()
    two = altered("RENAME COLUMN r.a TO n, DROP COLUMN l.element.x, ADD COLUMN s struct<n: int, b: string>", one)
    two = altered("RENAME COLUMN s.b TO c, RENAME COLUMN r.b TO c", two)
    rows = [{"k": k, "r": {"a": k, "b": "b"}, "l": [{"x": 1, "y": k}]} for k in range(4)]
    source = part(tmp_path, one, *rows)
    deleted = mutate_part(source, two, delete_where("r.n = 1", two), tmp_path / "deleted")
    assert deleted is not None
    left = read_parts([tmp_path / "deleted" / deleted.partition], two, ["k", "r", "l"]).to_pylist()
    assert left == [{"k": k, "r": {"n": k, "c": "b"}, "l": [{"y": k}]} for k in (0, 2, 3)]
    change = update_where({"s": "r", "l": "case when r.n = 2 then null else l end"}, "r.n > 1", two)
    updated = mutate_part(source, two, change, tmp_path / "updated")
    assert updated is not None
    found = read_parts([tmp_path / "updated" / updated.partition], two, ["s", "l"]).to_pylist()
    assert [row["s"] for row in found] == [None, None, {"n": 2, "c": "b"}, {"n": 3, "c": "b"}]
    assert [row["l"] for row in found] == [[{"y": 0}], [{"y": 1}], None, [{"y": 3}]]


def test_schema_of_rows_adds_and_widens_fields_inside() -> None:
    table = nested_table()
    inside = pa.struct([("x", pa.int32()), ("z", pa.list_(pa.int8()))])
    rows = pa.schema(
        [
            ("r", pa.struct([("new", pa.string()), ("a", pa.int64())])),
            ("l", pa.large_list(inside)),
            ("m", pa.map_(pa.string(), pa.struct([("n", pa.int16()), ("o", pa.bool_())]))),
        ]
    )
    alter = union_by_name(rows, table)
    assert alter is not None
    changed = apply_alter(table, alter)
    assert {column.name: column.type for column in changed.columns} == {
        "k": "int64",
        "r": "struct<a:int64,b:string,new:string>",
        "l": "list<struct<x:int32,y:int8,z:list<int8>>>",
        "m": "map<string,struct<n:int32,o:boolean>>",
    }
    assert union_by_name(rows, changed) is None
    with pytest.raises(SchemaMismatch):
        union_by_name(pa.schema([("r", pa.struct([("b", pa.int32())]))]), table)


def test_definition_with_contradicting_types_is_refused() -> None:
    table = altered("RENAME COLUMN r.a TO n")
    columns = table.encode_columns().replace(b"struct<a:int32,b:string>", b"struct<a:int32>", 1)
    with pytest.raises(UnsupportedFormat, match="type in data files"):
        decode_definition(table.encode_metadata(), columns)


def test_alter_without_a_path_is_written_as_before() -> None:
    assert Alter((DropColumn("a"),)).encode() == b'{"changes":[{"do":"drop column","name":"a"}],"format":1}'
    assert b'"inside":["b"]' in Alter((DropColumn("a", inside=("b",)),)).encode()
