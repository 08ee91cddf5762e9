"""What of spark/ can be decided without a Spark session."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

import pyspark_replitree
from replitree.client.read.snapshot import SnapshotPart
from replitree.errors import BadInput, SchemaMismatch
from replitree.spark.read.final_units import pack
from replitree.spark.read.read import escaped
from replitree.spark.read.source_read import FileUnit, read_partition
from replitree.spark.session.columns import check_columns
from replitree.spark.session.option_names import known_options
from replitree.spark.session.options import number, open_connection, seconds, table_name
from replitree.spark.session.recorded import recorded
from replitree.spark.session.session import check_worker_python
from replitree.spark.session.types import columns_of, exchange_schema, spark_schema
from replitree.spark.source import ReplitreeReader, ReplitreeSource
from replitree.spark.write.source_write import plan_write
from replitree.spark.write.write_commit import gather
from replitree.spark.write.write_tasks import StagedMessage
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.rewrite.read import read_parts
from replitree.storage.rewrite.slices import Slice
from replitree.storage.rewrite.staging import stage_slices
from replitree.storage.schema.definition import define_table
from replitree.wire.history_recorder import Recorder

DEFINITION = define_table(
    "t",
    "k bigint not null, a array<struct<x: int, y: string>>, m map<string, decimal(10,2)>, ts timestamp, n timestamp_ntz",
    order_by="k",
)


def ddl(text: str) -> StructType:
    """Read a schema without a session, which Spark's own reader wants."""
    return spark_schema(define_table("any", text))


# --- types ---------------------------------------------------------------------------------------------------------------


def test_every_type_goes_to_spark_and_to_the_exchange_and_all_is_nullable() -> None:
    schema = spark_schema(DEFINITION)
    assert [field.simpleString() for field in schema.fields] == [
        "k:bigint",
        "a:array<struct<x:int,y:string>>",
        "m:map<string,decimal(10,2)>",
        "ts:timestamp",
        "n:timestamp_ntz",
    ]
    assert all(field.nullable for field in schema.fields)
    exchange = exchange_schema(schema)
    assert all(field.nullable for field in exchange)
    rows = {"k": [1], "a": [[{"x": 1, "y": None}]], "m": [[("p", None)]], "ts": [None], "n": [None]}
    table = pa.table({name: pa.array(rows[name], DEFINITION.arrow_schema.field(name).type) for name in rows})
    for name, values in rows.items():
        assert table[name].cast(exchange.field(name).type).to_pylist() == values


def test_schema_of_a_reader_may_be_narrower_but_not_other() -> None:
    assert columns_of(ddl("N timestamp_ntz, k bigint"), DEFINITION) == ["n", "k"]
    with pytest.raises(SchemaMismatch, match="no column 'x'"):
        columns_of(ddl("x int"), DEFINITION)
    with pytest.raises(SchemaMismatch, match="read it as that, then cast"):
        columns_of(ddl("k int"), DEFINITION)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k bigint, x int", "no column 'x'"),
        ("ts timestamp", "'k' is missing"),
        ("k string", "expected bigint, found string"),
        ("k decimal(10,0)", "found decimal"),
    ],
)
def test_rows_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        check_columns(ddl(text), DEFINITION)


def test_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="twice"):
        check_columns(StructType([StructField("k", LongType()), StructField("K", LongType())]), DEFINITION)


def test_types_that_keep_every_value_fit() -> None:
    wide = define_table("w", "a bigint, b double, c double, d decimal(20,2), e decimal(21,2)")
    given_ = ddl("E tinyint, d decimal(18,1), c int, b float, a smallint")
    assert check_columns(given_, wide) == ["e", "d", "c", "b", "a"]
    with pytest.raises(SchemaMismatch, match="'b'"):
        check_columns(ddl("b bigint"), wide)


# --- options and sources ---------------------------------------------------------------------------------------------------


def test_options_are_found_in_any_case_and_unknown_ones_refused() -> None:
    source = ReplitreeSource({"TABLE": "t", "InsertToken": "a"})
    assert source._options() == {"table": "t", "inserttoken": "a"}  # noqa: SLF001 - Spark gives no other way in
    with pytest.raises(BadInput, match=r"no option 'colums': did you mean columns"):
        ReplitreeSource({"colums": "a"})._options()  # noqa: SLF001 - as above
    catalog = {"table": "t", "option.table": "t", "location": "x", "owner": "me", "provider": "replitree", "path": "p"}
    assert ReplitreeSource(catalog)._options() == {"table": "t"}  # noqa: SLF001 - as above


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"path": "t"}, {"table": "t"}),
        ({"versionAsOf": "7"}, {"asof": "7"}),
        ({"token_file": "f"}, {"tokenfile": "f"}),
        ({"txnVersion": "3", "txnAppId": "load"}, {"txnversion": "3", "txnappid": "load"}),
        ({"versionAsOf": "7", "asOf": "7"}, {"asof": "7"}),
    ],
)
def test_names_of_other_formats_mean_the_same(given: dict[str, str], meant: dict[str, str]) -> None:
    assert known_options(given) == meant


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tokenfil": "f"}, "did you mean tokenFile"),
        ({"versionOf": "f"}, "did you mean asOf"),
        ({"zzz": "f"}, "it has table, url, tokenFile"),
        ({"replaceWhere": "a = 1"}, "partitionOverwriteMode=dynamic"),
        ({"versionAsOf": "7", "asOf": "8"}, "given twice"),
    ],
)
def test_option_that_makes_no_sense_says_what_to_give(given: dict[str, str], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        known_options(given)


def test_overwrite_mode_that_does_not_exist_is_refused_before_anything_is_asked() -> None:
    source = ReplitreeSource({"table": "t", "partitionOverwriteMode": "sometimes"})
    with pytest.raises(BadInput, match="static or dynamic, not 'sometimes'"):
        source.writer(ddl("k bigint"), overwrite=True)


def test_source_does_not_push_filters() -> None:
    assert ReplitreeReader.pushFilters is DataSourceReader.pushFilters
    assert ReplitreeSource.name() == "replitree"
    assert pyspark_replitree.DefaultSource is ReplitreeSource


def test_options_that_are_missing_or_wrong_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLITREE_URL", raising=False)
    monkeypatch.delenv("REPLITREE_DIR", raising=False)
    for each in (table_name, open_connection):
        with pytest.raises(BadInput, match=r"CREATE TABLE … USING replitree .* TEMPORARY VIEW"):
            each({})
    with pytest.raises(BadInput, match=r'which table\? Say .option\("table", "events"\) or load\("events"\)$'):
        table_name({"url": "zk://"})
    assert table_name({"table": "t"}) == "t"
    with pytest.raises(BadInput, match="REPLITREE_URL"):
        open_connection({})
    with pytest.raises(BadInput, match="whole number"):
        number({"partitions": "x"}, "partitions")
    for text in ("x", "0", "-1", "inf", "nan"):
        with pytest.raises(BadInput, match="seconds"):
            seconds({"timeout": text})


def test_paths_are_not_patterns() -> None:
    assert escaped(Path("/a [b]/{c}*?")) == r"/a \[b\]/\{c\}\*\?"


# --- the worker's Python ----------------------------------------------------------------------------------------------------


def test_python_without_our_packages_is_refused_with_the_way_out(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(BadInput, match=r"can't import what they need .*pyarrow.*unset PYSPARK_PYTHON"):
        check_worker_python(str(bare))


def test_python_that_is_not_there_or_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can't be run"):
        check_worker_python(str(tmp_path / "nope"))
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho 2.7\n")
    other.chmod(0o755)
    with pytest.raises(BadInput, match=r"would run Python 2\.7"):
        check_worker_python(str(other))


# --- packing and gathering ------------------------------------------------------------------------------------------------


def unit(number_: int) -> FileUnit:
    manifest = PartManifest(
        partition="all", rows=1, bytes=1, schema_version=1, files=(FileEntry("f", 1, 1, ""),), content_hash=""
    )
    return FileUnit(SnapshotPart(f"all_{number_}_{number_}_0", "/nowhere", manifest), "data-0.parquet", "here")


@given(sizes=st.lists(st.integers(0, 1000), max_size=60), tasks=st.integers(1, 12))
def test_files_are_packed_into_few_tasks_of_about_equal_size(sizes: list[int], tasks: int) -> None:
    units = [unit(i) for i in range(len(sizes))]
    packed = pack(units, sizes, tasks)
    assert len(packed) == min(tasks, len(units))
    assert sorted(u.part.part for task in packed for u in task) == sorted(u.part.part for u in units)
    size_of = dict(zip((u.part.part for u in units), sizes, strict=True))
    loads = [sum(size_of[u.part.part] for u in task) for task in packed]
    if loads:
        assert max(loads) - min(loads) <= max(sizes)


def test_partition_of_nothing_reads_nothing() -> None:
    assert list(read_partition(InputPartition(None))) == []


def test_files_of_several_tasks_become_one_part_with_the_hash_of_all_rows(tmp_path: Path) -> None:
    definition = define_table("t", "d date, k bigint", order_by="k", partition_by="month(d)")
    staged = []
    for task, (first, day) in enumerate([(0, 17_532), (50, 17_532), (100, 17_600)]):
        keys = pa.array(range(first, first + 50), pa.int64())
        days = pa.array([day] * 50, pa.int32()).cast(pa.date32())
        rows = pa.table({"d": days, "k": keys}, schema=definition.arrow_schema)
        folder = tmp_path / f"task-{task}"
        staged.append((folder, StagedMessage(folder.name, stage_slices(iter([Slice(rows, True)]), definition, folder))))
    target = tmp_path / "upload"
    target.mkdir()
    manifests = gather(definition, staged, target)
    assert [(m.partition, m.rows, len(m.files)) for m in manifests] == [("2018-01", 100, 2), ("2018-03", 50, 1)]
    for manifest in manifests:
        (target / manifest.partition / "manifest.json").write_bytes(manifest.encode())
        found = read_parts([target / manifest.partition], definition)
        assert manifest.content_hash == content_hash(found, definition.arrow_schema)


@pytest.mark.parametrize(
    ("options", "overwrite", "why"),
    [
        ({"quorum": "2"}, True, "a job that overwrites can't have a quorum"),
        ({"quorum": "most"}, False, "say a number of replicas"),
        ({"quorumtimeout": "5"}, False, "say quorum, too"),
        ({"quorum": "2", "quorumtimeout": "soon"}, False, "option quorumtimeout is a number of seconds"),
    ],
)
def test_quorum_of_a_write_is_refused_before_anything_is_opened(
    options: dict[str, str], overwrite: bool, why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        plan_write(options, ddl("k long"), overwrite=overwrite)


def test_a_session_without_a_jvm_is_not_recorded(tmp_path: Path) -> None:
    connected: Any = type("SparkSession", (), {})()
    with closing(Recorder(tmp_path / "history.jsonl")) as recorder, pytest.raises(BadInput, match="Spark Connect"):
        recorded(connected, recorder)
