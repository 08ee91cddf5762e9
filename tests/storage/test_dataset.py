"""Parts as Arrow's datasets: rows, names and types as readers see them, and statistics that prove what they say."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.errors import BadInput, StoreError
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import FileEntry, PartManifest, read_manifest
from replitree.storage.parts.verified import CheckedFile, CheckedPart
from replitree.storage.rewrite.dataset import parts_dataset
from replitree.storage.rewrite.read import read_parts
from replitree.storage.rewrite.renamed_footer import renamed_tail
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.layout import layout_of
from replitree.storage.sql.evolve import AddColumn, Alter, DropColumn, RenameColumn, apply_alter
from tests.storage.evolving import EXAMPLES, stories
from tests.storage.nesting import nested_stories
from tests.storage.support import values

KINDS = "k int, x double, f float, s string, m decimal(12,2), t timestamp, n timestamp_ntz, d date, y binary, b boolean"


def dataset(
    parts: Sequence[Path], definition: TableDefinition, columns: Sequence[str] | None = None
) -> ds.FileSystemDataset:
    manifests = {f"{number}-{part.name}": (part, read_manifest(part)) for number, part in enumerate(parts)}

    def find(name: str, manifest: PartManifest, entry: FileEntry) -> CheckedFile:
        files = CheckedPart(manifests[name][0], manifest).files
        return next(file for file in files if file.entry == entry)

    return parts_dataset(
        {name: manifest for name, (_, manifest) in manifests.items()}, definition, columns, find, no_need
    )


def no_need(names: Sequence[str]) -> None:
    """The parts are here."""
    assert names is not None


def nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


# --- columns that change ----------------------------------------------------------------------------------------------------


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_parts_of_every_version_show_the_newest_columns(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(stories(Path(folder)))
        found = dataset(story.parts, story.definition)
        assert found.schema.equals(nullable(story.definition.arrow_schema))
        assert story.sorted(found.to_table()) == story.expected()
        some = data.draw(st.lists(st.sampled_from(story.definition.arrow_schema.names), min_size=1, unique=True))
        assert dataset(story.parts, story.definition, some).to_table().to_pylist() == (
            found.to_table(columns=some).to_pylist()
        )
        column = data.draw(st.sampled_from(story.definition.columns))
        shown = [row[column.id] for row in story.rows if row[column.id] is not None and not is_nan(row[column.id])]
        if shown:
            value = pa.scalar(data.draw(st.sampled_from(shown)), column.arrow_type)
            condition = data.draw(st.sampled_from(CONDITIONS))(pc.field(column.name), pc.scalar(value))
            expected = found.to_table().filter(condition)
            assert found.to_table(filter=condition).to_pylist() == expected.to_pylist()


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_parts_show_the_newest_fields_inside_columns(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(nested_stories(Path(folder)))
        found = dataset(story.parts, story.definition)
        assert story.sorted(found.to_table()) == story.expected()


def altered(folder: Path) -> tuple[TableDefinition, list[Path]]:
    """Two parts: one is older than a column that has the name of a dropped one."""
    first = define_table("t", "k int not null, v string, r struct<a: int>", order_by="k", table_id="0" * 32)
    old = conform([{"k": 1, "v": "old", "r": {"a": 1}}], first)
    stage_table(old, first, folder / "old", sync=False)
    alter = Alter((DropColumn("v"), AddColumn("v", "int", default=7), RenameColumn("k", "key")))
    second = apply_alter(first, alter)
    new = conform([{"key": 2, "v": 8, "r": {"a": 2}}], second)
    stage_table(new, second, folder / "new", sync=False)
    return second, [folder / "old" / "all", folder / "new" / "all"]


def test_a_column_with_the_name_of_a_dropped_one_shows_its_default(tmp_path: Path) -> None:
    definition, parts = altered(tmp_path)
    found = dataset(parts, definition)
    assert found.to_table(columns=["key", "v"]).to_pylist() == [{"key": 1, "v": 7}, {"key": 2, "v": 8}]
    assert found.count_rows(filter=pc.field("v") == 7) == 1
    assert [fragment.path for fragment in found.get_fragments(filter=pc.field("key") > 1)] == ["1-all/data-0.parquet"]
    old, new = (fragment.to_table() for fragment in found.get_fragments())
    assert (old.column_names, new.column_names) == (["key", "v~", "r"], ["key", "r", "v"])


def test_a_footer_that_is_damaged_is_refused(tmp_path: Path) -> None:
    definition, parts = altered(tmp_path)
    data = (parts[0] / "data-0.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    tail = data[-8 - length :]
    layout = layout_of(definition, 1)
    assert pq.read_schema(pa.BufferReader(data[: -len(tail)] + renamed_tail(tail, layout))).names == ["key", "v~", "r"]
    refused = 0
    for place in range(length):
        damaged = bytearray(tail)
        damaged[place] ^= 0xFF
        try:
            renamed_tail(bytes(damaged), layout)
        except StoreError:
            refused += 1
    # Most damage hits values that are only copied; the file's checksums find that.
    assert refused > 10
    with pytest.raises(StoreError, match="can't be read"):
        renamed_tail(b"", layout)


# --- what statistics prove --------------------------------------------------------------------------------------------------


def is_nan(value: object) -> bool:
    """Whether a value is no constant for a condition: beside NaN Arrow's reader leaves out rows of any Parquet file."""
    return isinstance(value, float) and math.isnan(value)


CONDITIONS: list[Any] = [
    lambda field, value: field == value,
    lambda field, value: field != value,
    lambda field, value: field < value,
    lambda field, value: field >= value,
    lambda field, value: ~(field <= value),
    lambda field, value: ~(field > value),
    lambda field, value: (field > value).is_null(),
    lambda field, value: field.is_null() | (field < value),
    lambda field, value: ~((field < value) & field.is_valid()),
    lambda field, value: ~(field < value) & ~(field > value),
]


@settings(max_examples=EXAMPLES * 3)
@given(st.data())
def test_a_filter_finds_the_rows_that_it_finds_in_all_parts(data: st.DataObject) -> None:
    columns = define_table("t", KINDS).arrow_schema
    order = data.draw(st.permutations(columns.names))[:3]
    definition = define_table("t", KINDS, order_by=tuple(order), table_id="0" * 32)
    rows = st.fixed_dictionaries({field.name: values(field.type) for field in columns})
    with tempfile.TemporaryDirectory() as folder:
        parts, every = [], []
        for number, some in enumerate(
            data.draw(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=3))
        ):
            table = conform(some, definition)
            stage_table(table, definition, Path(folder) / str(number), sync=False)
            parts.append(Path(folder) / str(number) / "all")
            every += some
        found = dataset(parts, definition)
        whole = read_parts(parts, definition)
        name = data.draw(st.sampled_from(order))
        present = [row[name] for row in every if row[name] is not None and not is_nan(row[name])]
        drawn = values(columns.field(name).type).filter(lambda value: not is_nan(value))
        value = data.draw(st.sampled_from(present) if present else drawn)
        scalar = pa.scalar(value, columns.field(name).type)
        condition = data.draw(st.sampled_from(CONDITIONS))(pc.field(name), pc.scalar(scalar))
        # In memory there are no statistics that could prove anything.
        expected = ds.dataset(whole.cast(nullable(whole.schema))).to_table(filter=condition)
        assert str(found.to_table(filter=condition).to_pylist()) == str(expected.to_pylist())
        assert found.count_rows(filter=condition) == expected.num_rows


def test_statistics_leave_out_parts_and_no_file_is_opened_early(tmp_path: Path) -> None:
    definition = define_table("t", "k int, s string", order_by="k", table_id="0" * 32)
    parts = []
    for number in range(3):
        rows = conform([{"k": number * 10 + i, "s": None} for i in range(10)], definition)
        stage_table(rows, definition, tmp_path / str(number), sync=False)
        parts.append(tmp_path / str(number) / "all")
    opened: list[str] = []
    prepared: list[str] = []

    def find(name: str, manifest: PartManifest, entry: FileEntry) -> CheckedFile:
        opened.append(name)
        return CheckedPart(parts[int(name)], manifest).files[0]

    found = parts_dataset(
        {str(n): read_manifest(part) for n, part in enumerate(parts)}, definition, None, find, prepared.extend
    )
    assert opened == prepared == []
    assert found.count_rows(filter=pc.field("k") == 15) == 1
    assert set(opened) == set(prepared) == {"1"}
    assert [fragment.path for fragment in found.get_fragments()] == [f"{n}/data-0.parquet" for n in range(3)]


def test_a_table_without_parts_has_columns(tmp_path: Path) -> None:
    definition = define_table("t", "k int, s string", table_id="0" * 32)
    assert dataset([], definition).to_table().schema.names == ["k", "s"]
    with pytest.raises(BadInput, match="nope"):
        dataset([], definition, ["nope"])
