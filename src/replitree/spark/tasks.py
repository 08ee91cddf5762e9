"""Tasks: work that is not rows, spread over Spark's executors.

Each piece of work is one task, and gives one value.  It is repeated when it fails, as any task is, so it must leave nothing
behind that a second try would trip over.

Absent on purpose: DataFrames.  Their functions on Arrow batches want pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from replitree.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

W = TypeVar("W")

_OURS = "replitree.errors."


def run_tasks(spark: SparkSession, work: Sequence[W], do: Callable[[W], bytes]) -> list[bytes]:
    """Do each piece of work in a task of its own; return what they gave, in their order.

    Parameters
    ----------
    spark
        The session.
    work
        The pieces; they travel to all tasks, so they are small.
    do
        Done with each; a function of a module that executors can import.

    Raises
    ------
    Unavailable
        A piece failed as often as Spark tries a task.
    """
    if not work:
        return []
    pieces = list(work)
    numbers = spark.sparkContext.parallelize(range(len(pieces)), len(pieces))
    try:
        return numbers.map(lambda number: do(pieces[number])).collect()
    except (PySparkException, Py4JError) as error:
        raise Unavailable(f"the Spark job failed: {reason_of(str(error))}") from error


def reason_of(story: str) -> str:
    r"""Return what went wrong in a task, from what Spark tells: our own error, or the last line.

    Examples
    --------
    >>> reason_of("Traceback:\n  File x\nreplitree.errors.CorruptPart: part a is damaged\n\tat org.apache.Spark")
    'CorruptPart: part a is damaged'
    """
    lines = [line.strip() for line in story.splitlines() if line.strip()]
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    return (ours or lines or ["no reason was given"])[-1]
