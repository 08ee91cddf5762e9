"""Spark and one machine judge alike, whatever a stretch of the file is."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.cli.main import main
from replitree.errors import BadInput
from replitree.wire.history_format import Operation, encode_header, encode_line
from replitree_verify.histories import spark_job
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
from replitree_verify.histories.spark_job import check_with_spark
from tests.spark.warm_session import begin_warm_session
from tests.verify.histories.generate import Shape, correct
from tests.verify.histories.known import KNOWN, A, insert, read
from tests.verify.histories.large import write_large
from tests.verify.histories.spoil import INJECTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    warnings.simplefilter("ignore", ResourceWarning)  # Spark leaves its gateway's sockets to the end of the process
    session = begin_warm_session("local[2]", {"spark.default.parallelism": 2, "spark.driver.memory": "1g"})
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def write(file: Path, operations: list[Operation]) -> Path:
    file.write_bytes(encode_header("boot") + b"".join(map(encode_line, operations)))
    return file


def assert_alike(spark: SparkSession, *files: Path, stretch_bytes: int) -> set[str]:
    """Judge on both sides; return the rules that were broken."""
    here = check(read_files(files))
    there = check_with_spark(spark, files, stretch_bytes=stretch_bytes)
    assert replace(there, seconds=0.0) == replace(here, seconds=0.0)
    return set(here.counts)


def test_right_and_wrong_histories_are_judged_alike(spark: SparkSession, tmp_path: Path) -> None:
    found: set[str] = set()
    for number, (name, (_, spoil)) in enumerate(list(INJECTED.items())[::3]):
        operations = correct(number, Shape(operations=60, failed=0.1), closing=True)
        spoil(operations, random.Random(number))
        file = write(tmp_path / f"{name}.jsonl", operations)
        found |= assert_alike(spark, file, stretch_bytes=max(1000, file.stat().st_size // 3))
    assert len(found) > 6
    assert assert_alike(spark, write(tmp_path / "fine.jsonl", correct(99)), stretch_bytes=900) == set()


def test_tables_and_files_are_judged_together(spark: SparkSession, tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", [insert("x", 0, 10, A), Operation("insert", "z", "u", 0, "ok", 9, rows=A)])
    two = write(
        tmp_path / "two.jsonl", [read("y", 20, 30, ()), Operation("read", "w", "u", 20, "ok", 29, "linearizable", A)]
    )
    assert assert_alike(spark, one, two, stretch_bytes=100) == {"L1"}
    circle = write(tmp_path / "circle.jsonl", list(KNOWN["reads of some rows in a circle"].operations))
    assert assert_alike(spark, circle, stretch_bytes=300) == {"W1"}


def test_a_long_history_is_judged_alike(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_job, "BLOCK_SEGMENTS", 1000)
    file = tmp_path / "long.jsonl"
    write_large(file, 20_000, stale={77, 5000, 9998})
    assert assert_alike(spark, file, stretch_bytes=1 << 20) == {"L1"}


def test_a_wrong_line_is_named_as_on_one_machine(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "wrong.jsonl", correct(3, Shape(operations=40)))
    with file.open("a", encoding="utf-8") as out:
        out.write('{"kind": "delete"}\n')
    with pytest.raises(BadInput) as here:
        read_files([file])
    with pytest.raises(BadInput) as there:
        check_with_spark(spark, [file], stretch_bytes=700)
    assert str(here.value) == str(there.value)
    assert "line 42: " in str(there.value)


def test_the_command_line_judges_with_spark(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "stale.jsonl", [insert("x", 0, 10, A), read("y", 20, 30, ())])
    capsys.readouterr()
    assert main(["verify", "history", str(file), "--spark", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"] == {"L1": 1}
