"""Spark gives the values that an update gives, and reads what a mutation leaves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from replitree.java import java_home
from replitree.storage.parts.encode import stage_table
from replitree.storage.rewrite.mutate import mutate_part
from replitree.storage.sql.mutation import delete_where
from tests.storage.expressions import DEFINITION, VALUES, batch
from tests.storage.test_expression import same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NOT_AS_IN_SPARK = {
    "w * 1e0": "Spark rounds a double to a decimal by itself, here that needs a way through digits that people choose",
}
"""What is refused here although Spark has a value."""


@pytest.fixture(scope="module")
def rows() -> Iterator[DataFrame]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(java_home())
    session: SparkSession = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .getOrCreate()
    )
    frame = session.createDataFrame(pa.Table.from_batches([batch()]))
    frame = frame.withColumn("n", frame["n"].cast("timestamp_ntz")).coalesce(1).cache()
    yield frame
    session.stop()


def test_values_are_those_of_spark(rows: DataFrame) -> None:
    wanted = [(text, target, values) for text, target, values in VALUES if isinstance(values, list)]
    frame = rows.selectExpr(*(f"cast({text} as {target}) as c{i}" for i, (text, target, _) in enumerate(wanted)))
    found = frame.toArrow().to_pydict()
    wrong = {
        f"{text} as {target}": (values, got)
        for (text, target, values), got in zip(wanted, found.values(), strict=True)
        if not all(map(same, plain(got), plain(values)))
    }
    assert wrong == {}


def plain(values: list[Any]) -> list[Any]:
    return [value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in values]


@pytest.mark.parametrize(
    ("text", "target"), [(text, target) for text, target, expected in VALUES if isinstance(expected, str)]
)
def test_what_has_no_value_has_none_in_spark(rows: DataFrame, text: str, target: str) -> None:
    from pyspark.errors import PySparkException

    asked = f"cast({text} as {target}) as c"
    if text in NOT_AS_IN_SPARK:
        assert len(rows.selectExpr(asked).collect()) == rows.count()
        return
    with pytest.raises(PySparkException):
        rows.selectExpr(asked).collect()


def test_a_part_of_which_all_rows_were_deleted_is_read_as_no_rows(rows: DataFrame, tmp_path: Path) -> None:
    stage_table(pa.Table.from_batches([batch()]), DEFINITION, tmp_path / "a")
    manifest = mutate_part(tmp_path / "a" / "all", DEFINITION, delete_where("true", DEFINITION), tmp_path / "b")
    assert manifest is not None
    files = [str(tmp_path / "b" / "all" / file.name) for file in manifest.files]
    frame = rows.sparkSession.read.parquet(*files)
    assert (frame.columns, frame.count()) == (rows.columns, 0)
    both = rows.sparkSession.read.parquet(*files, str(tmp_path / "a" / "all" / "data-0.parquet"))
    assert both.count() == 4


def test_the_table_has_the_columns_that_the_cases_name(rows: DataFrame) -> None:
    assert rows.columns == [column.name for column in DEFINITION.columns]
