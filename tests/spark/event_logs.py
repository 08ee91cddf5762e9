"""What Spark and its executors write down of a session: a search for secrets, which proves each time that it finds one.

Spark 4 compresses event logs, and writes them from a thread of its own.  So each search plants a secret first, in the
description of a job and on the standard error of its task, and waits until it reads that: earlier jobs stand before it.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"


def logging_to(folder: Path) -> dict[str, object]:
    """Return the settings of a session that writes what it does into a folder, in plain text."""
    return {
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": f"file://{folder}",
        "spark.eventLog.compress": False,
    }


def told(spark: SparkSession, wanted: Sequence[str], workers: Path | None = None) -> list[tuple[str, str]]:
    """Return each wanted text that the session's event log has, or what its executors have printed.

    Parameters
    ----------
    spark
        With the settings of `logging_to`.
    wanted
        Texts of ASCII.
    workers
        The folder of a standalone cluster, with the logs of its processes; by default only the event log is searched.

    Returns
    -------
    list
        Each with the log that has it.
    """
    planted = f"planted-{secrets.token_hex(8)}"

    # Inside, so that it travels by value: executors can't import tests.
    def written(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    context = spark.sparkContext
    context.setJobDescription(planted)
    context.parallelize([planted], 1).foreach(written)
    context.setJobDescription("")
    events = Path((spark.conf.get("spark.eventLog.dir") or "").removeprefix("file://"))
    wait_for(lambda: _found([planted], events, "**/events_*"), f"the planted secret is found in {events}")
    if workers is not None:
        wait_for(lambda: _found([planted], workers, "work-*/**/stderr"), f"the planted secret is found in {workers}")
    found = _found(wanted, events, "**/*")
    return found + (_found(wanted, workers, "work-*/**/std*") + _found(wanted, workers, "*.log") if workers else [])


def _found(wanted: Sequence[str], folder: Path, pattern: str) -> list[tuple[str, str]]:
    logs = [path for path in folder.glob(pattern) if path.is_file()]
    return [
        (text, str(path)) for path in logs for data in [path.read_bytes()] for text in wanted if text.encode() in data
    ]


__all__ = ["logging_to", "told"]
