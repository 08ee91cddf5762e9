"""The page on streams: its programs run, in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from tests.project.source import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

PAGE = (ROOT / "docs/streams.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_programs_of_the_page_run(spark: SparkSession, running: LocalCluster, tmp_path: Path) -> None:
    table = running.create_table("orders", "id bigint not null", order_by="id", wait_replicas=2)
    (tmp_path / "in").mkdir()
    spark.range(5).write.parquet(str(tmp_path / "in/0"))
    names: dict[str, Any] = {
        "stream": spark.readStream.schema("id bigint").parquet(str(tmp_path / "in/*")),
        "rows": spark.range(5, 7),
        "arrow_rows": pa.table({"id": pa.array([7], pa.int64())}),
        "table": table,
        "url": str(running.folder),
        "checkpoint": str(tmp_path / "checkpoint"),
        "other": str(tmp_path / "other"),
        "by_catalog": str(tmp_path / "by_catalog"),
        "spark": spark,
    }
    try:
        for program in PROGRAM.findall(PAGE):
            exec(program, names)
            query = names.pop("query", None)
            if query is not None:
                query.processAllAvailable()
                query.stop()
        found = sorted(table.to_arrow(level="linearizable")["id"].to_pylist())
        assert found == sorted([*range(5), *range(5), *range(5), 5, 6, 7])
        assert "nightly" not in {each.id for each in table.streams()}
    finally:
        running.drop_table("orders")
