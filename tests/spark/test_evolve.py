"""Spark reads parts of several schema versions as one table, and writes the stored names."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.client.read.part_cache import PartCache
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.transport.catalog import this_machine
from replitree.errors import SchemaMismatch
from replitree.spark.read.read import snapshot_df
from replitree.spark.read.source_read import FilesPartition, FileUnit, ReadPlan, read_partition
from replitree.spark.session.columns import conformed, literal
from replitree.spark.session.nested import with_stored_names
from replitree.spark.session.types import exchange_schema, spark_schema, spark_type
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.conform import conform
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.types import format_type
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import AddColumn, Alter, DropColumn, RenameColumn, WidenColumn, apply_alter
from tests.examples import examples
from tests.formats.samples import FULL
from tests.storage.evolving import EXAMPLES, Story, plain_default, stories, table
from tests.storage.nesting import NestedStory, nested_stories

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings(  # threads of kazoo, which earlier tests have left, use the module `random`
    "ignore:Do not use the .random. module:hypothesis.errors.HypothesisDeprecationWarning"
)


class NoSource(PartCache):
    """Every part is on this machine."""

    def __init__(self) -> None:
        pass


def snapshot(story: Story | NestedStory) -> Snapshot:
    """Give a story's parts as a replica on this machine would."""
    parts = [SnapshotPart(f"all_{i}_{i}_0", str(p), read_manifest(p)) for i, p in enumerate(story.parts)]
    return Snapshot(story.definition, len(parts), "r1", tuple(parts), this_machine(), NoSource())


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Three schema versions; every kind of change."""
    found = Story(tmp_path, table(partition_by=()))
    found.insert([{"b": 1, "v": 0.5, "s": "x"}, {"b": 2, "v": None, "s": None}])
    found.alter(RenameColumn("v", "w"), AddColumn("n", "int", nullable=False, default=7, first=True), DropColumn("s"))
    found.insert([{"b": 3, "w": 1.5, "n": 8}, {"b": 4, "w": 2.5}])
    found.alter(WidenColumn("n", "bigint"), WidenColumn("w", "double"), AddColumn("s", "date", default=17562))
    found.insert([{"b": 5, "w": 0.1, "n": 2**40}])
    return found


def same(frame: DataFrame, story: Story) -> bool:
    found = conform(frame.toArrow(), story.definition)
    return story.sorted(found) == story.expected()


# --- without a session ----------------------------------------------------------------------------------------------------


def _task_rows(story: Story, **options: str) -> pa.Table:
    definition = story.definition
    schema = spark_schema(definition)
    nodes = (definition.encode_metadata(), definition.encode_columns())
    plan = ReadPlan({"table": "t", **options}, nodes, tuple(schema.names), schema)
    parts = snapshot(story).parts
    units = [FileUnit(part, file.name, this_machine()) for part in parts for file in part.manifest.files]
    return pa.Table.from_batches(read_partition(FilesPartition(plan, units)), exchange_schema(schema))


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_task_of_the_data_source_reads_every_version(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = data.draw(stories(Path(folder)))
        assert story.sorted(conform(_task_rows(story), story.definition)) == story.expected()


def test_condition_of_the_data_source_is_about_the_newest_columns(story: Story) -> None:
    assert _task_rows(story, where="n = 7").num_rows == 3
    assert _task_rows(story, where="w > 1 and s = date'2018-01-31'").column("b").to_pylist() == [3, 4]


# --- with Spark -----------------------------------------------------------------------------------------------------------


@pytest.mark.system
def test_frame_shows_what_the_model_says(spark: SparkSession, story: Story) -> None:
    frame = snapshot_df(snapshot(story), spark)
    assert frame.schema == spark_schema(story.definition)
    assert same(frame, story)
    assert sorted(r["b"] for r in frame.where("n = 7").collect()) == [1, 2, 4]
    pruned = snapshot_df(snapshot(story), spark, ["s", "b"], "w > 1 and s = date'2018-01-31'")
    assert sorted(r["b"] for r in pruned.collect()) == [3, 4]
    assert pruned.columns == ["s", "b"]


@pytest.mark.system
def test_random_stories_read_alike_with_spark(spark: SparkSession) -> None:
    @settings(max_examples=examples(8))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            story = data.draw(stories(Path(folder)))
            assert same(snapshot_df(snapshot(story), spark), story)

    check()


@pytest.mark.system
def test_random_stories_of_nested_columns_read_alike_with_spark(spark: SparkSession) -> None:
    @settings(max_examples=examples(8))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            story = data.draw(nested_stories(Path(folder)))
            frame = snapshot_df(snapshot(story), spark)
            assert frame.schema == spark_schema(story.definition)
            assert story.sorted(conform(frame.toArrow(), story.definition)) == story.expected()

    check()


@pytest.mark.system
def test_rows_are_written_with_the_stored_names_of_fields(spark: SparkSession, tmp_path: Path) -> None:
    one = define_table(
        "t", "k bigint, r struct<a: int, b: array<struct<x: int, y: int>>>, m map<string, struct<n: int>>"
    )
    statement = (
        "RENAME COLUMN r.a TO z, DROP COLUMN r.b.element.x, ADD COLUMN r.b.element.x string, "
        "RENAME COLUMN m.value.n TO o"
    )
    two = apply_alter(one, parse_alter(statement, one))
    rows = [
        {"k": 1, "r": {"z": 5, "b": [{"y": 1, "x": "s"}, None]}, "m": [("q", {"o": 1}), ("p", None)]},
        {"k": 2, "r": None, "m": None},
        {"k": 3, "r": {"z": None, "b": None}, "m": []},
    ]
    expected = conform(rows, two)
    frame = with_stored_names(conformed(spark.createDataFrame(expected), two), two)
    frame.coalesce(1).write.parquet(str(tmp_path / "files"))
    files = sorted((tmp_path / "files").glob("*.parquet"))
    manifest = adopt_files(files, two, tmp_path / "adopted")
    assert read_parts([tmp_path / "adopted" / manifest.partition], two).sort_by("k").to_pylist() == expected.to_pylist()
    assert manifest.schema_version == 2


def _scans(frame: DataFrame) -> int:
    return str(frame._jdf.queryExecution().optimizedPlan()).count("parquet")  # noqa: SLF001 - nothing else tells


@pytest.mark.system
def test_versions_with_equal_columns_are_one_relation(spark: SparkSession, tmp_path: Path) -> None:
    story = Story(tmp_path, table(partition_by=()))
    story.insert([{"b": 1}])
    frame = snapshot_df(snapshot(story), spark)
    assert _scans(frame) == 1
    assert "Project" not in str(frame._jdf.queryExecution().optimizedPlan())  # noqa: SLF001
    story.alter(RenameColumn("v", "w"))
    story.insert([{"w": 2.5}])
    assert _scans(snapshot_df(snapshot(story), spark)) == 1
    story.alter(AddColumn("n", "int"))
    story.insert([{"n": 1}])
    frame = snapshot_df(snapshot(story), spark)
    assert _scans(frame) == 2
    assert same(frame, story)


@pytest.mark.system
def test_table_of_nothing_but_new_columns_counts_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    story = Story(tmp_path, define_table("t", "k int"))
    story.insert([{}, {}, {}])
    story.alter(AddColumn("n", "int", default=1), DropColumn("k"))
    frame = snapshot_df(snapshot(story), spark)
    assert frame.count() == 3
    assert [row["n"] for row in frame.collect()] == [1, 1, 1]
    assert frame.where("n = 2").count() == 0


@pytest.mark.system
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_literals_are_the_values_whatever_the_zone(spark: SparkSession, zone: str) -> None:
    from tests.formats.samples import DEFINITION

    plain = [c for c in DEFINITION.columns if c.name not in {"l", "r", "p"}]
    scalars = {}
    for column in plain:
        default = plain_default(FULL[column.name], column.type)
        scalars[column.name] = (
            apply_alter(define_table("t", "x int"), Alter((AddColumn("c", column.type, default=default),)))
            .column("c")
            .initial_scalar
        )
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.range(1).select(*[literal(scalar).alias(name) for name, scalar in scalars.items()])
        assert [f.dataType for f in frame.schema] == [spark_type(c.arrow_type) for c in plain]
        found = conform(frame.toArrow(), define_table("t", pa.schema([(c.name, c.arrow_type) for c in plain])))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert found.to_pylist() == [{name: scalar.as_py() for name, scalar in scalars.items()}]
    assert {name: format_type(s.type) for name, s in scalars.items()} == {c.name: c.type for c in plain}


@pytest.mark.system
def test_frame_that_is_written_gets_defaults_and_stored_names(
    spark: SparkSession, story: Story, tmp_path: Path
) -> None:
    definition = story.definition
    frame = conformed(spark.sql("select cast(id as int) k, cast(2.5 as double) w from range(9, 12)"), definition)
    assert frame.columns == ["n", "k", "b", "w", "s"]
    stored = frame.toDF(*definition.stored.arrow_schema.names).sortWithinPartitions("k")
    stored.coalesce(1).write.parquet(str(tmp_path / "out"))
    part = adopt_files(sorted((tmp_path / "out").glob("*.parquet")), definition, tmp_path / "adopted")
    assert part.schema_version == 3
    rows: list[dict[str, Any]] = read_parts([tmp_path / "adopted" / part.partition], definition).to_pylist()
    assert [(r["n"], r["k"], r["b"], r["w"], str(r["s"])) for r in rows] == [
        (7, k, None, 2.5, "2018-01-31") for k in (9, 10, 11)
    ]
    with pytest.raises(SchemaMismatch, match="'v'"):
        conformed(spark.sql("select 1 k, 2 v"), definition)
