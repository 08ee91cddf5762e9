"""The benchmarks' standalone cluster, with Java machines that live a minute; skipped where this kernel hides no folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import ReplitreeError
from replitree_bench.kit.standalone import StandaloneSpark, way_to_hide
from tools.class_archive import java_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULT_BYTES_MAX = 1 << 20
"""What tasks of one job may give to their driver."""


def hidden_from(hidden: Path) -> tuple[str, ...]:
    """Return the first words of a command that does not see a folder."""
    try:
        return way_to_hide(hidden)
    except ReplitreeError as error:
        pytest.skip(str(error))


def standalone_spark(hidden: Path, workers: int = 2) -> StandaloneSpark:
    """Return a cluster whose executors do not see a folder; it is not started."""
    return StandaloneSpark(hidden_from(hidden), workers, java_options().split())


@contextmanager
def created(replicas: LocalCluster, store: Path | None = None) -> Iterator[Table]:
    """Create the table of a test, on disks or in a folder as its object store, and drop it in the end."""
    storage = "local" if store is None else f"file://{store}"
    made = replicas.create_table(
        "target", "k bigint not null, g int, s string", order_by="k", partition_by="g", storage=storage, timeout_s=120
    )
    yield made
    replicas.drop_table("target")


def made_rows(spark: SparkSession, count: int, tasks: int = 4) -> DataFrame:
    """Rows of more bytes than tasks may give to the driver."""
    return spark.range(0, count, 1, tasks).selectExpr(
        "id as k", "cast(id % 3 as int) as g", "sha2(string(id), 256) as s"
    )
