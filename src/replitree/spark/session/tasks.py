"""Tasks: work spread over Spark's executors that gives its driver little.

Each piece of work, or each task's share of the rows of a frame, gives one value.  It is repeated when it fails, as any task
is, so it must leave nothing behind that a second try would trip over.

A session of Spark Connect has no context whose jobs this process could start.  There each piece of work is the one row of a
partition of a frame, and the work travels in the plan of a function over that frame.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from replitree.errors import Unavailable
from replitree.spark.session.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

W = TypeVar("W")
R = TypeVar("R")

VALUE = "value"

_OURS = "replitree.errors."


def is_connect(spark: SparkSession) -> bool:
    """Tell whether a session is one of Spark Connect: its JVM is a server's, which may be on another machine."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def run_tasks(spark: SparkSession, work: Sequence[W], do: Callable[[W], R]) -> list[R]:
    """Do each piece of work in a task of its own; return what they gave, in their order.

    Parameters
    ----------
    spark
        The session.
    work
        The pieces; they travel to all tasks, so they are small.
    do
        Done with each; a function of a module that executors can import.  What it gives is small, and can be pickled.

    Raises
    ------
    Unavailable
        A piece failed as often as Spark tries a task.
    """
    if not work:
        return []
    pieces = list(work)
    try:
        if is_connect(spark):
            told = run_over_rows(spark.range(0, len(pieces), 1, len(pieces)), partial(_numbered, pieces, do))
            # Of our own tasks, as the context's jobs pickle them, too.
            return [pickle.loads(each) for each in told]  # noqa: S301
        numbers = spark.sparkContext.parallelize(range(len(pieces)), len(pieces))
        return numbers.map(lambda number: do(pieces[number])).collect()
    except (PySparkException, Py4JError) as error:
        raise Unavailable(f"the Spark job failed: {reason_of(str(error))}") from error


def run_over_rows(frame: DataFrame, do: Callable[[Iterator[pa.RecordBatch]], bytes]) -> list[bytes]:
    """Do something with the rows of each task of a frame; return what that gave, in the order of the tasks.

    Parameters
    ----------
    frame
        The rows.
    do
        Done with the batches of one task, of which it takes all; a function that executors can import, or a part of one.

    Raises
    ------
    PySparkException
        The job failed.
    """
    return [bytes(row[VALUE]) for row in mapped(frame, partial(_one_row, do), f"{VALUE} binary").collect()]


def made_in_tasks(
    spark: SparkSession, work: Sequence[W], do: Callable[[W], Iterator[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """Return a frame whose rows are made by one task for each piece of work, each time that it is read.

    Parameters
    ----------
    spark, work
        As `run_tasks`.
    do
        Makes the rows of a piece of work, in exactly this schema; a function that executors can import.
    schema
        Of the frame.
    """
    pieces = list(work)
    numbers = spark.range(0, len(pieces), 1, max(1, len(pieces)))
    return mapped(numbers, partial(_rows_of, pieces, do), schema)


def mapped(
    frame: DataFrame, do: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """Return what a function makes of the batches of each task of a frame: `DataFrame.mapInArrow`, which wants pandas."""
    if is_connect(frame.sparkSession):
        return frame.mapInArrow(do, schema)
    # What `mapInArrow` does when it has found pandas, of which it needs nothing.
    apply = UserDefinedFunction(do, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = apply(*[frame[quoted(name)] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: SLF001 - see above


def _rows_of(
    pieces: Sequence[W], do: Callable[[W], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from do(pieces[number])


def _numbered(pieces: Sequence[W], do: Callable[[W], object], batches: Iterator[pa.RecordBatch]) -> bytes:
    """Do the piece of work whose number is the one row of a task."""
    (number,) = [number for batch in batches for number in batch.column(0).to_pylist()]
    return pickle.dumps(do(pieces[number]))


def _one_row(
    do: Callable[[Iterator[pa.RecordBatch]], bytes], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({VALUE: [do(batches)]})


def reason_of(story: str) -> str:
    r"""Return what went wrong in a task, from what Spark tells: our own error, or the last line.

    Examples
    --------
    >>> reason_of("Traceback:\n  File x\nreplitree.errors.CorruptPart: part a is damaged\n\tat org.apache.Spark")
    'CorruptPart: part a is damaged'
    """
    lines = [line.strip() for line in story.splitlines() if line.strip()]
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    # The last one: causes come after what they caused.
    return (ours or lines or ["no reason was given"])[-1]
