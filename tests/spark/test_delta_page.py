"""The page on statements of Delta Lake: each row is run once, in the page's order, and does what the page says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pyspark
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import ParseException, PySparkException

from replitree.client.cluster import LocalCluster
from replitree.spark.session.catalog import CATALOG
from replitree.spark.write.write_tasks import SESSION_MODE
from tests.project.source import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.system, pytest.mark.nightly]

PAGE = (ROOT / "docs" / "delta-statements.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<code>`.*`) \| (?P<here>as is|instead|refused)(?P<rest>.*) \|$", re.MULTILINE)
CODE = re.compile(r"``(.+?) ``|`(.+?)`")
TIME = "2026-01-31 10:00:00"
SINCE = re.compile(r"from Spark (\d+\.\d+) on")
SOURCE = 'format("replitree")'
ROWS_MIN = 50


class Row(NamedTuple):
    """What Delta shows, what becomes of it here, what is named instead ("": nothing is), and which Spark has it first."""

    shown: str
    here: str
    instead: str
    since: str


def version(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version of Spark; of "" none."""
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def code(text: str) -> str:
    """Return the first code of a cell; "" when it has none."""
    found = CODE.search(text)
    return "" if found is None else found[1] or found[2]


ROWS = [
    Row(
        code(row["code"]),
        row["here"],
        code(row["rest"]) if row["here"] == "instead" else "",
        "".join(SINCE.findall(row["rest"])),
    )
    for row in ROW.finditer(PAGE)
]


def run(spark: SparkSession, text: str, names: dict[str, Any]) -> None:
    """Run a statement of Python, or statements of SQL."""
    if text.startswith(("df.", "spark.")):
        exec(text.replace(SOURCE, f"{SOURCE}.option('url', url)"), names)
        return
    for statement in text.split("; "):
        spark.sql(statement).collect()


def test_every_row_of_the_page_does_what_it_says(spark: SparkSession, running: LocalCluster) -> None:
    assert len(ROWS) == len(re.findall(r"^\| `", PAGE, re.MULTILINE)) >= ROWS_MIN
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    spark.sql("use replitree.default")
    before, problems, time = set(running.tables()), list[str](), ""
    names = {"spark": spark, "df": spark.sql("select 9 as id"), "url": str(running.folder)}
    try:
        for row in ROWS:
            if TIME in row.shown:
                # Of the last entry: coordination's clock has that behind it.
                time = spark.sql("select cast(max(time) as string) from replitree.default.people.history").collect()[0][
                    0
                ]
            try:
                run(spark, row.shown.replace(TIME, time), names)
                failed = ""
            except (PySparkException, Py4JError) as error:
                failed = str(error).strip().split("\n", 1)[0] or type(error).__name__
                notes = getattr(error, "__notes__", [])
                if isinstance(error, ParseException) and not notes:
                    problems.append(f"{row.shown}: Spark can't read it, and no note says what there is instead")
            works = row.here == "as is" and version(pyspark.__version__) >= version(row.since)
            if works is bool(failed):
                problems.append(f"{row.shown}: {failed or 'it works'}")
            if row.instead:
                try:
                    run(spark, row.instead, names)
                except (PySparkException, Py4JError) as error:
                    problems.append(f"{row.instead}: {error}")
    finally:
        spark.conf.unset(SESSION_MODE)
        spark.sql("use spark_catalog.default")
        for table in set(running.tables()) - before:
            running.drop_table(table)
    assert "\n".join(problems) == ""
