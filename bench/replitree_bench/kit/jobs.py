"""What Spark counts of its jobs: the bytes that their tasks read, and those that they gave to the driver."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class JobBytes(NamedTuple):
    """Bytes of some jobs.

    Attributes
    ----------
    read
        What their tasks read of files, as Spark's file systems count it.
    results
        What their tasks gave to the driver.
    """

    read: int
    results: int


def counted(spark: SparkSession, do: Callable[[], T]) -> tuple[T, JobBytes]:
    """Do something with a session; return what it gave, and the bytes of the jobs that this thread has started for it."""
    context, group = spark.sparkContext, secrets.token_hex(8)
    context.setJobGroup(group, "")
    try:
        done = do()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # that is how Spark removes one
    jvm: Any = context._jsc.sc()  # noqa: SLF001 - Python has no stages with their metrics
    # Spark counts in a thread of its own.
    jvm.listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), jvm.statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    numbers = {stage for job in jobs if job for stage in job.stageIds}
    # A stage that was skipped, as its result was there, has read nothing. Of 1,000 stages Spark forgets those first.
    stages = [store.lastStageAttempt(stage) for stage in numbers if tracker.getStageInfo(stage) is not None]
    return done, JobBytes(sum(stage.inputBytes() for stage in stages), sum(stage.resultSize() for stage in stages))


__all__ = ["JobBytes", "counted"]
