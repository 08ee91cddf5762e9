"""`replitree optimize`: merge parts now."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import WAIT_S, Cluster, Name, Wait, check_name, on_cluster
from replitree.cli.output import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Enum):
    """The engine that makes the merged parts."""

    REPLICA = "replica"
    SPARK = "spark"


EngineOption = Annotated[
    Engine, typer.Option("--engine", help="Who makes the merged parts: each replica, or Spark, for very large ones.")
]

Partition = Annotated[
    str | None, typer.Option("--partition", metavar="ID", help="Only this partition.", show_default="all")
]
Final = Annotated[
    bool, typer.Option("--final", help="Into one part for each partition, and apply the table's policy to all rows.")
]
Cleanup = Annotated[
    bool,
    typer.Option(
        "--cleanup",
        help="With --final and replacing(version, is_deleted): remove deletions, when no writer has older rows left.",
    ),
]


@on_cluster
def optimize(
    table: Name,
    at: Cluster,
    partition: Partition = None,
    final: Final = False,
    cleanup: Cleanup = False,
    engine: EngineOption = Engine.REPLICA,
    wait: Wait = WAIT_S,
) -> None:
    """Merge parts now, and wait for it; the exit status is 3 when it takes longer.

    With `--engine spark` the time of the Spark job does not count as waiting.
    """
    import msgspec

    check_name(table)
    with at.connect() as connection:
        # ZooKeeper is asked before Spark is started, so that a missing table is reported at once.
        known = connection.table(table)
        if engine is Engine.SPARK:
            with _spark() as spark:
                result = known.optimize(partition, final=final, cleanup=cleanup, timeout_s=wait, spark=spark)
        else:
            result = known.optimize(partition, final=final, cleanup=cleanup, timeout_s=wait)
    why = f": {result.reason}" if result.reason else ""
    sources = sum(len(merge.sources) for merge in result.merges)
    text = f"{counted(len(result.merges), 'merge')} of {counted(sources, 'part')} of {table}"
    if not result.merges:
        text = f"{'nothing to merge' if result.finished else 'nothing was merged'} in {table}{why}"
    elif not result.finished:
        left = sum(not merge.finished for merge in result.merges)
        text += f" in the log, {left:,} not finished yet{why}" if left else f", and not all that was to be merged{why}"
    at.out.done({"table": table, **msgspec.to_builtins(result)}, text, finished=result.finished)


@contextmanager
def _spark() -> Iterator[SparkSession]:
    """Run Spark for as long as the command needs it."""
    from replitree.spark.session.quiet import quiet_children
    from replitree.spark.session.session import spark_session

    # The command itself reports an error that PySpark would log here, too.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with quiet_children():
        spark = spark_session(app_name="replitree optimize")
    try:
        spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        spark.stop()
