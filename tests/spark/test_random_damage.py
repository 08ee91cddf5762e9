"""Random damage to a replica's files while Spark reads them: frames, the data source and SQL show right rows, or an error."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from replitree.errors import ReplitreeError
from replitree.spark.read.views import sql_views
from tests.damage.hurt import HURTS, hurt
from tests.damage.run import summed_above
from tests.damage.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

PARTITIONS = 12
DAMAGES = 5
"""In each of the rounds: one before and one after a restart of the replica."""

Read = Callable[["SparkSession", World, str], "DataFrame"]


def _frame(spark: SparkSession, world: World, where: str) -> DataFrame:
    return world.table_at_victim().to_df(spark, where=where)


def _source(spark: SparkSession, world: World, where: str) -> DataFrame:
    options = {
        "url": world.connection.url,
        "token_file": str(world.cluster.folder / "token"),
        "replica": world.victim.name,
    }
    return spark.read.format("replitree").options(**options).load("t").where(where)


def _sql(spark: SparkSession, world: World, where: str) -> DataFrame:
    sql_views(spark, world.connection, ("t",))
    return spark.sql(f"select * from t where {where}")


READS: dict[str, Read] = {"to_df": _frame, "format": _source, "sql": _sql}


@pytest.fixture(params=[pytest.param(False, id="small", marks=pytest.mark.nightly), pytest.param(True, id="summed")])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A damaged replica; `summed`: its data files have several blocks, and sums files."""
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper", durable=False) as server,
        summed_above(1024 if request.param else 1 << 20),
    ):
        url = f"zk://{LOCALHOST}:{server.ports[0]}"
        made = World(tmp_path, PARTITIONS, random.Random(5), rows_max=6000 if request.param else 400, zookeeper=url)
        yield made
        made.close()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((row["p"], row["k"], row["v"], row["s"]) for row in frame.collect())


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(rows[name].to_pylist() for name in ("p", "k", "v", "s")), strict=True))


def test_no_damaged_row_is_shown_by_spark(spark: SparkSession, world: World) -> None:
    chance = random.Random(7)
    shown = {"right rows": 0, "error": 0}
    for is_restarted in (False, True):
        damaged: dict[int, str] = {}
        for number in chance.sample(range(PARTITIONS), DAMAGES):
            kind, way = chance.choice(["data", "manifest"]), chance.choice(list(HURTS))
            if hurt(world.files(kind)[number], way, chance, world.others(kind, way, number)) is not None:
                damaged[number] = f"{kind}, {way}"
        if is_restarted:
            world.victim.restart()
        for number, what in damaged.items():
            for name, read in READS.items():
                try:
                    found = rows_of(read(spark, world, f"p = {number}"))
                except (ReplitreeError, PySparkException, Py4JError):
                    shown["error"] += 1
                    continue
                assert found == tuples(world.truth[number]), (what, name)
                shown["right rows"] += 1
        assert world.repair() == {}
    assert shown["right rows"] > shown["error"], shown
    for name, read in READS.items():
        every = pa.concat_tables(list(world.truth.values()))
        assert rows_of(read(spark, world, "k >= 0")) == tuples(every), name
