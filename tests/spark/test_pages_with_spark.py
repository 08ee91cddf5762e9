"""The page on streams runs from top to bottom, with the session that all files share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.spark.session import session as spark_module
from tests.client.test_pages_system import WITH_SPARK
from tests.pages import PageRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


@pytest.mark.parametrize("page", sorted(WITH_SPARK))
def test_the_page_runs_from_top_to_bottom(
    spark: SparkSession, running: LocalCluster, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replitree-data").symlink_to(running.folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("replitree.spark.spark_session", lambda: spark)
    monkeypatch.setattr(spark_module, "spark_session", lambda: spark)
    # Spark's processes run in the folder in which the session began, not in this one.
    runner = PageRunner(
        page, replaced={"replitree-data": str(running.folder), "checkpoint-": f"{tmp_path}/checkpoint-"}
    )
    try:
        assert runner.run() >= 1
    finally:
        runner.names["cluster"].close()
        for table in running.tables():
            if table in ("arrivals", "paid"):
                running.drop_table(table)
