"""The page on tables as sources of streams: its program runs, and every option of Delta Lake does what the table says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark.session.option_names import known_options
from replitree.spark.stream.source_options import stream_options
from tests.project.source import ROOT
from tests.spark.stream_queries import run_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PAGE = (ROOT / "docs/stream-sources.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_DELTA = PAGE.partition("## Options of Delta Lake")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| (`.*?`) \| (\w+)", re.MULTILINE)
NUMBERS = ("startingVersion", "endingVersion", "maxFilesPerTrigger", "maxBytesPerTrigger")


def keys(table: Table) -> list[int]:
    found: list[int] = sorted(table.to_arrow(level="linearizable")["id"].to_pylist())
    return found


def options_of_delta() -> list[tuple[str, str]]:
    return [(name, what) for names, what in ROW.findall(OF_DELTA) for name in re.findall(r"`(\w+)`", names)]


@pytest.mark.system
def test_programs_of_the_page_run(spark: SparkSession, running: LocalCluster, tmp_path: Path) -> None:
    columns = "id bigint not null, amount int"
    source = running.create_table("orders", columns, order_by="id", feed="7 days", wait_replicas=2)
    target = running.create_table("paid", columns, order_by="id", wait_replicas=2)
    names: dict[str, Any] = {"spark": spark, "url": str(running.folder), "checkpoint": str(tmp_path / "checkpoint")}
    try:
        source.insert({"id": [1, 2], "amount": [5, 0]})
        (program,) = PROGRAM.findall(PAGE)

        def start() -> StreamingQuery:
            exec(program, names)
            query: StreamingQuery = names["query"]
            return query

        run_until(start, lambda: keys(target) == [1])
        source.insert({"id": [3], "amount": [7]})
        run_until(start, lambda: keys(target) == [1, 3])
    finally:
        for table in (source, target):
            running.drop_table(table.name)


@pytest.mark.parametrize(("name", "what"), options_of_delta())
def test_an_option_of_delta_does_what_the_page_says(name: str, what: str) -> None:
    value = "3" if name in NUMBERS else "2026-11-01" if name == "startingTimestamp" else "true"
    given = {"table": "t", name: value}
    if what == "refused":
        with pytest.raises(BadInput, match=f"option {name}|option {name.lower()}"):
            stream_options(known_options(given))
        return
    assert what in ("works", "alias")
    without = stream_options({"table": "t"})
    # `true` is what it is by default.
    assert (stream_options(known_options(given)) == without) is (name == "failOnDataLoss")


def test_all_options_of_delta_are_in_the_table() -> None:
    assert len(options_of_delta()) == 15


def test_the_tests_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) == 5
    tests = (ROOT / "tests/spark/test_stream_read.py").read_text(encoding="utf-8")
    assert {name for name in named if f"def {name}(" not in tests} == set()
