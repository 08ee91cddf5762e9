"""Spark sees in our files, order and conditions what we see in them."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.java import java_home
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.conform import conform
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.order import sort_rows
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.row_buckets import xxhash64
from tests.formats.samples import DEFINITION, rows
from tests.storage.support import bench_table
from tests.storage.test_row_buckets import array_of, golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(java_home())
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    session.stop()


def _data_files(part: Path) -> list[str]:
    """Files, not the folder: Spark would take the manifest for Parquet."""
    return [str(path) for path in sorted(part.glob("data-*.parquet"))]


def test_spark_reads_every_type_as_it_was_inserted(spark: SparkSession, tmp_path: Path) -> None:
    [part] = stage_table(rows(), DEFINITION, tmp_path / "s1")
    frame = spark.read.parquet(*_data_files(tmp_path / "s1" / part.partition))
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema][-6:-3] == [
        ("d", "date"),
        ("t", "timestamp"),
        ("n", "timestamp_ntz"),
    ]
    found = conform(frame.toArrow(), DEFINITION)
    assert content_hash(found, DEFINITION.arrow_schema) == part.content_hash


def test_spark_reads_large_parts_by_its_vectorised_reader(spark: SparkSession, tmp_path: Path) -> None:
    definition = bench_table()
    count = 300_000
    table = pa.table(
        {
            "d": pa.array(np.full(count, 17532, np.int32)).cast(pa.date32()),
            "k": np.arange(count) * 7,
            "v": np.arange(count) / 3,
            "s": pa.array([f"s{i % 100}" for i in range(count)]),
        }
    ).cast(definition.arrow_schema)
    [part] = stage_table(table, definition, tmp_path / "s1")
    frame = spark.read.parquet(*_data_files(tmp_path / "s1" / part.partition))
    assert "ColumnarToRow" in frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001
    assert frame.where("k >= 700 and k < 7000").count() == 900
    assert content_hash(conform(frame.toArrow(), definition).sort_by("k"), definition.arrow_schema) == part.content_hash


def test_files_that_spark_wrote_are_adopted(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select date'2018-01-01' d, id k, id / 3 v, cast(id as string) s, timestamp'2018-01-01 00:00:00' t, "
        "timestamp_ntz'2018-01-01 00:00:00' n, cast(id as decimal(9,2)) m, array(id, null) l, map('a', id) p, "
        "named_struct('x', id) r, cast('ab' as binary) y, true b, cast(1 as float) f, cast(id % 100 as tinyint) i "
        "from range(1000)"
    )
    frame.repartitionByRange(2, "k").sortWithinPartitions("k").write.parquet(str(tmp_path / "out"))
    definition = define_table(
        "t",
        "d date, k bigint, v double, s string, t timestamp, n timestamp_ntz, m decimal(9,2), l array<bigint>, "
        "p map<string,bigint>, r struct<x:bigint>, y binary, b boolean, f float, i tinyint",
        order_by="k",
        partition_by="month(d)",
    )
    store = PartStore(tmp_path / "table")
    part = adopt_files(sorted((tmp_path / "out").glob("*.parquet")), definition, tmp_path / "s1")
    store.staged.adopt(tmp_path / "s1", "s1")
    assert (part.partition, part.rows, len(part.files)) == ("2018-01", 1000, 2)
    store.staged.publish("s1", {"2018-01": "2018-01_1_1_0"})
    found = read_parts([store.part_path("2018-01_1_1_0")], definition)
    assert content_hash(found, definition.arrow_schema) == part.content_hash
    expected = conform(frame.orderBy("k").toArrow(), definition)
    assert content_hash(expected, definition.arrow_schema) == part.content_hash


ODD: dict[str, list[Any]] = {
    "k": [3, None, -(2**63), 2**63 - 1, 0, 1, 2],
    "v": [math.nan, None, -math.inf, math.inf, 0.0, -0.0, 1.5],
    "s": ["b", None, "", "ä", "a", "ab", "\U0001f600"],
    "m": [None, None, "-1.50", "1.50", "0.00", "1.00", "9999.99"],
    "d": [None, None, "2018-01-01", "2018-01-31", "1969-12-31", "0001-01-01", "9999-12-31"],
    "t": [None, None, "2018-01-01", "2018-01-31", "1969-12-31", "1970-01-01", "9999-12-31"],
    "b": [None, True, False, True, False, True, False],
}
ODD_TABLE = define_table("t", "k bigint, v double, s string, m decimal(6,2), d date, t timestamp, b boolean, row int")


def _odd_rows() -> pa.Table:
    import datetime as dt
    from decimal import Decimal

    columns: dict[str, Any] = {name: ODD[name] for name in ("k", "v", "s", "b")}
    columns["m"] = [None if v is None else Decimal(v) for v in ODD["m"]]
    columns["d"] = [None if v is None else dt.date.fromisoformat(v) for v in ODD["d"]]
    moments = [None if v is None else dt.datetime.fromisoformat(v) for v in ODD["t"]]
    columns["t"] = [None if m is None else m.replace(tzinfo=dt.UTC) for m in moments]
    return conform({**columns, "row": list(range(7))}, ODD_TABLE)


CONDITIONS = [
    "k > 2.5",
    "k < 1e30",
    "not k >= 2.5",
    "k = 1.5",
    "k != 1.5",
    "k in (1, 2, null)",
    "k not in (1, 2)",
    "k not in (1, null)",
    "k <=> null",
    "k between 0 and 2",
    "v > 1",
    "v >= double('NaN')",
    "v = double('NaN')",
    "v < double('NaN')",
    "v <= double('NaN')",
    "v != double('NaN')",
    "not v > 1",
    "v = 0",
    "v in (0, 1.5)",
    "v < k",
    "v >= k",
    "k != v",
    "s > 'a'",
    "s like 'a%'",
    "s not like 'a_'",
    "s ilike 'A%'",
    "startswith(s, 'a')",
    "s in ('a', '')",
    "s = ''",
    "m > 1",
    "m = 1.50",
    "m = 1.505",
    "m <= 1.505",
    "m < 123456789",
    "d >= '2018-01-01'",
    "d < date'1970-01-01'",
    "d = timestamp'2018-01-01 00:00:00'",
    "d < timestamp'2018-01-01 00:00:01'",
    "t >= '2018-01-01'",
    "t > timestamp'2018-01-01 00:00:00'",
    "t = date'2018-01-31'",
    "t < timestamp'1970-01-01 01:00:00+01:00'",
    "b",
    "not b",
    "b is true",
    "b is not true",
    "b is not false",
    "b is null or k = 3",
    "not (k > 0 and v > 0)",
    "not (k > 0 or v > 0)",
]


def test_conditions_keep_the_rows_that_spark_keeps(spark: SparkSession, tmp_path: Path) -> None:
    stage_table(_odd_rows(), ODD_TABLE, tmp_path / "s1")
    folder = tmp_path / "s1" / "all"
    frame = spark.read.parquet(*_data_files(folder))  # not cached: a cached frame of Spark 4.3 loses NaN rows by itself
    for condition in CONDITIONS:
        expected = sorted(row["row"] for row in frame.where(condition).collect())
        assert read_parts([folder], ODD_TABLE, ["row"], condition).column("row").to_pylist() == expected, condition


@pytest.mark.parametrize("column", ["k", "v", "s", "m", "d", "t", "b"])
def test_rows_are_sorted_as_spark_sorts_them(spark: SparkSession, tmp_path: Path, column: str) -> None:
    stage_table(_odd_rows(), ODD_TABLE, tmp_path / "s1")
    frame = spark.read.parquet(*_data_files(tmp_path / "s1" / "all"))
    expected = [row["row"] for row in frame.orderBy(column, "row").collect()]
    assert sort_rows(_odd_rows(), [column]).column("row").to_pylist() == expected


def test_spark_hashes_keys_as_we_do(spark: SparkSession, tmp_path: Path) -> None:
    frozen, hashes = golden()
    random = np.random.default_rng(5)
    # the frozen values in an order of its own in each column, so that every chain is a new one
    columns = {kind: [values[at] for at in random.integers(0, len(values), 5_000)] for kind, values in frozen.items()}
    for name, given in (("frozen", frozen), ("mixed", columns)):
        arrays = {kind: array_of(kind, values) for kind, values in given.items()}
        pq.write_table(pa.table(list(arrays.values()), [f"c{at}" for at in range(len(arrays))]), tmp_path / name)
        frame = spark.read.parquet(str(tmp_path / name))
        keys = {key: [list(arrays).index(kind) for kind in key.split(" ")] for key in hashes}
        asked = [f"xxhash64({', '.join(f'c{at}' for at in places)}) as h{n}" for n, places in enumerate(keys.values())]
        found = frame.selectExpr(*asked).toArrow()
        for column, key in zip(found.columns, keys, strict=True):
            assert column.to_pylist() == xxhash64([arrays[kind] for kind in key.split(" ")]).tolist(), key
            assert name != "frozen" or column.to_pylist() == hashes[key]
