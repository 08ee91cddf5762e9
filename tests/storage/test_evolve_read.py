"""Parts of every schema version show the newest columns."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.errors import StoreError
from replitree.storage.parts.conform import conform
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.parts.verified import CheckedPart
from replitree.storage.rewrite.read import read_batches, read_parts, wanted_parts
from replitree.storage.schema.adapt import adapt, stored_rows
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.layout import is_plain, layout_of
from replitree.storage.sql.evolve import (
    AddColumn,
    Alter,
    DropColumn,
    DropNotNull,
    RenameColumn,
    SetDefault,
    WidenColumn,
    apply_alter,
)
from replitree.storage.sql.literals import NoMeaningError, coerce
from replitree.storage.sql.predicate import ColumnRef, IsNull, Node, Not, Operator, Predicate
from tests.storage.evolving import EXAMPLES, Story, stories, table


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_every_row_shows_what_the_model_says(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(stories(Path(folder)))
        found = read_parts(story.parts, story.definition)
        assert found.schema.equals(story.definition.arrow_schema)
        assert story.sorted(found) == story.expected()
        assert read_batches(story.parts, story.definition).read_all().equals(found)


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_condition_keeps_the_same_rows_in_files_and_in_memory(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(stories(Path(folder)))
        predicate = Predicate("drawn", data.draw(_conditions(story)), story.definition)
        everything = read_parts(story.parts, story.definition)
        expected = everything.filter(predicate.to_arrow())
        found = read_parts(story.parts, story.definition, where=predicate)
        assert found.to_pylist() == expected.to_pylist()
        chosen = wanted_parts([CheckedPart(path, read_manifest(path)) for path in story.parts], predicate)
        left_out = [path for path in story.parts if path not in {part.folder for part in chosen}]
        assert read_parts(left_out, story.definition).filter(predicate.to_arrow()).num_rows == 0


@st.composite
def _conditions(draw: st.DrawFn, story: Story) -> Node:
    column = draw(st.sampled_from(story.definition.columns))
    ref = ColumnRef((column.name,), column.arrow_type)
    shown = [row[column.id] for row in story.rows if row[column.id] is not None]
    if not shown or draw(st.integers(0, 3)) == 0:
        return Not(IsNull(ref)) if draw(st.booleans()) else IsNull(ref)
    value = draw(st.sampled_from(shown))
    operator = draw(st.sampled_from(Operator))
    try:
        return coerce(ref, operator, Decimal(value) if type(value) is int else value)
    except NoMeaningError:
        return IsNull(ref)


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_rows_in_memory_are_adapted_to_any_later_version(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(stories(Path(folder)))
        version = data.draw(st.integers(1, story.definition.schema_version))
        definition = story.definition.at(version)
        parts = [part for part in story.parts if read_manifest(part).schema_version <= version]
        for part in parts:
            manifest = read_manifest(part)
            rows = pa.concat_tables([pq.read_table(part / file.name) for file in manifest.files])
            adapted = adapt(rows, manifest.schema_version, definition)
            assert adapted.equals(read_parts([part], definition))
            stored = adapt(rows, manifest.schema_version, definition.stored)
            assert stored.equals(stored_rows(adapted, definition))


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_what_a_part_was_written_with_is_in_its_manifest(data: st.DataObject) -> None:
    """Statistics and content hash speak of stored names, so a rename makes none of them wrong."""
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(stories(Path(folder)))
        for part in story.parts:
            manifest = read_manifest(part)
            then = story.definition.at(manifest.schema_version).stored
            rows = pa.concat_tables([pq.read_table(part / file.name) for file in manifest.files]).cast(
                then.arrow_schema
            )
            assert content_hash(rows, then.arrow_schema) == manifest.content_hash
            assert set(manifest.columns) == set(story.definition.stored.key_columns)


# --- single stories ---------------------------------------------------------------------------------------------------------


def _part(folder: Path, definition: TableDefinition, **columns: list[object]) -> Path:
    rows = conform(columns, definition)
    [manifest] = stage_table(rows, definition, folder / f"v{definition.schema_version}", sync=False)
    return folder / f"v{definition.schema_version}" / manifest.partition


def test_column_that_is_added_again_is_another_column(tmp_path: Path) -> None:
    one = define_table("t", "k bigint, price int", order_by="k")
    two = apply_alter(one, Alter((DropColumn("price"),)))
    three = apply_alter(two, Alter((AddColumn("Price", "string", default="none"),)))
    parts = [
        _part(tmp_path, one, k=[1], price=[5]),
        _part(tmp_path, two, k=[2]),
        _part(tmp_path, three, k=[3], Price=["x"]),
    ]
    assert read_parts(parts, three).to_pylist() == [
        {"k": 1, "Price": "none"},
        {"k": 2, "Price": "none"},
        {"k": 3, "Price": "x"},
    ]
    assert pq.read_schema(parts[2] / "data-0.parquet").names == ["k", "Price~2"]


def test_two_columns_that_exchange_their_names_keep_their_values(tmp_path: Path) -> None:
    one = define_table("t", "a int, b int", order_by="a")
    swap = Alter((RenameColumn("a", "c"), RenameColumn("b", "a"), RenameColumn("c", "b")))
    two = apply_alter(one, swap)
    parts = [_part(tmp_path, one, a=[1], b=[2]), _part(tmp_path, two, a=[20], b=[10])]
    assert read_parts(parts, two).to_pylist() == [{"b": 1, "a": 2}, {"b": 10, "a": 20}]
    assert read_parts(parts, two, ["a"], "b > 5").to_pylist() == [{"a": 20}]
    assert (two.order_by, two.schema_version) == (("b",), 2)


def test_default_that_is_changed_changes_no_row(tmp_path: Path) -> None:
    one = define_table("t", "k bigint", order_by="k")
    two = apply_alter(one, Alter((AddColumn("n", "int", nullable=False, default=1),)))
    three = apply_alter(two, Alter((SetDefault("n", 2),)))
    parts = [_part(tmp_path, one, k=[1]), _part(tmp_path, two, k=[2]), _part(tmp_path, three, k=[3])]
    assert read_parts(parts, three, ["n"]).to_pydict() == {"n": [1, 1, 2]}
    assert read_parts(parts, three, ["k"], "n = 1").to_pydict() == {"k": [1, 2]}
    assert conform([{"k": 4}, {"k": 5, "n": 9}], three).to_pydict() == {"k": [4, 5], "n": [2, 9]}


def test_part_without_a_column_is_pruned_by_the_default_that_it_shows(tmp_path: Path) -> None:
    one = define_table("t", "k bigint", order_by="k")
    two = apply_alter(one, Alter((AddColumn("n", "int", default=1), AddColumn("s", "string"))))
    part = _part(tmp_path, one, k=[1])
    (part / "data-0.parquet").unlink()
    for where in ("n = 2", "n is null", "s = 'a'", "s is not null"):
        assert read_parts([part], two, where=where).num_rows == 0
    with pytest.raises(StoreError):
        read_parts([part], two, where="n = 1")


def test_parts_are_pruned_by_key_columns_that_were_renamed_and_widened(tmp_path: Path) -> None:
    one = define_table("t", "k int, v string", order_by="k", partition_by="bucket(8,k)")
    two = apply_alter(one, Alter((RenameColumn("k", "id"), WidenColumn("id", "bigint"))))
    parts = [_part(tmp_path, one, k=[5], v=["a"]), _part(tmp_path, two, id=[2**40], v=["b"])]
    assert read_parts(parts, two, ["v"], f"id = {2**40}").to_pydict() == {"v": ["b"]}
    (parts[0] / "data-0.parquet").unlink()
    assert read_parts(parts, two, ["v"], "id > 1000").to_pydict() == {"v": ["b"]}


def test_columns_that_are_all_new_still_count_the_rows(tmp_path: Path) -> None:
    one = define_table("t", "a int, b int")
    two = apply_alter(one, Alter((AddColumn("c", "int", default=7), DropColumn("a"), DropColumn("b"))))
    part = _part(tmp_path, one, a=[1, 2, 3], b=[None, 4, 5])
    assert read_parts([part], two).to_pydict() == {"c": [7, 7, 7]}
    assert read_parts([part], two, where="c = 7").num_rows == 3
    assert read_parts([part], two, where="c = 8").num_rows == 0


def test_structs_keep_their_fields_when_they_are_renamed_or_missing(tmp_path: Path) -> None:
    one = define_table("t", "k int, r struct<x: int, y: string>")
    two = apply_alter(one, Alter((RenameColumn("r", "q"), AddColumn("r", "struct<x: bigint>"))))
    parts = [_part(tmp_path, one, k=[1], r=[{"x": 1, "y": "a"}]), _part(tmp_path, two, k=[2], q=[None], r=[{"x": 9}])]
    assert read_parts(parts, two, ["k"], "q.x = 1").to_pydict() == {"k": [1]}
    assert read_parts(parts, two, ["k"], "r.x is null").to_pydict() == {"k": [1]}
    assert read_parts(parts, two, ["q"]).to_pylist() == [{"q": {"x": 1, "y": "a"}}, {"q": None}]


def test_rows_come_in_the_order_of_the_parts_whatever_their_versions(tmp_path: Path) -> None:
    one = define_table("t", "k bigint", order_by="k")
    two = apply_alter(one, Alter((AddColumn("n", "int"),)))
    old, new = _part(tmp_path, one, k=[1, 2]), _part(tmp_path, two, k=[3, 4])
    assert read_parts([new, old, new], two, ["k"]).to_pydict() == {"k": [3, 4, 1, 2, 3, 4]}
    batches = list(read_batches([old, new, old], two, where="k > 1"))
    assert [batch.column("k").to_pylist() for batch in batches] == [[2], [3, 4], [2]]


def test_part_that_is_newer_than_the_definition_is_refused(tmp_path: Path) -> None:
    one = define_table("t", "k bigint", order_by="k")
    two = apply_alter(one, Alter((AddColumn("n", "int"),)))
    with pytest.raises(StoreError, match="read the table's definition again"):
        read_parts([_part(tmp_path, two, k=[1])], one)


def test_renames_alone_keep_one_layout() -> None:
    one = table()
    two = apply_alter(one, Alter((RenameColumn("v", "w"),)))
    three = apply_alter(two, Alter((DropNotNull("k"),)))
    assert layout_of(three, 1) == layout_of(three, 2) == layout_of(three, 3)
    assert is_plain(layout_of(one, 1))
    assert not is_plain(layout_of(three, 1))
    assert isinstance(three.column("w"), Column)
    assert three.stored.arrow_schema.names == one.arrow_schema.names
