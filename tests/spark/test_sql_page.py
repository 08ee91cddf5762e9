"""The pages on SQL and on writing: their statements and their programs run, in their order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session import session as spark_module
from replitree.spark.session.catalog import CATALOG
from tests.project.source import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

PAGES = "\n".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("sql.md", "sql-statements.md"))
BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_statements_and_programs_of_the_pages_run(
    spark: SparkSession, running: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, object] = {}

    def session(*, conf: dict[str, object]) -> SparkSession:
        settings.update(conf)
        return spark

    monkeypatch.setattr(spark_module, "spark_session", session)
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    table = running.create_table("events", "id bigint not null, kind string", order_by="id", wait_replicas=2)
    names: dict[str, Any] = {"table": table, "spark": spark}
    blocks = BLOCK.findall(PAGES)
    assert {language for language, _ in blocks} == {"python", "sql"}
    try:
        for language, text in blocks:
            if language == "python":
                exec(text, names)
                continue
            for statement in filter(None, map(str.strip, text.split(";"))):
                spark.sql(statement).collect()
    finally:
        spark.sql("use spark_catalog.default")
        running.drop_table("events")
    assert settings == {f"{CATALOG}.url": "replitree-data"}


def test_programs_of_the_page_on_writing_run(spark: SparkSession, running: LocalCluster) -> None:
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    columns = "id bigint not null, kind string"
    table = running.create_table("events", columns, order_by="id", partition_by="bucket(2, id)", wait_replicas=2)
    blocks = BLOCK.findall((ROOT / "docs/writing.md").read_text(encoding="utf-8"))
    names = {"table": table, "url": str(running.folder), "spark": spark, "pa": pa}
    kept = []
    try:
        for language, text in blocks:
            assert language == "python"
            exec(text, names)
            kept.append(sorted(table.to_arrow(level="linearizable")["id"].to_pylist()))
    finally:
        running.drop_table("events")
    first = [*range(1, 9), *range(10, 20), *range(10, 20)]
    assert kept == [sorted(first), sorted([*first, 20]), sorted([*first, 20, 30]), [1]]
