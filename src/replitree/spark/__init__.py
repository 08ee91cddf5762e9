"""Spark: tables as DataFrames, DataFrames as inserts, ``format("replitree")``, and a session with the right settings.

What is exported here is imported when it is first used, so that the data source's own process starts quickly.

PySpark is an extra of the distribution: without it every import of this package raises `SparkMissing`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from replitree.errors import SparkMissing

if TYPE_CHECKING:
    from replitree.spark.read.read import snapshot_df, to_df
    from replitree.spark.read.views import sql_views
    from replitree.spark.session.hints import note_statements
    from replitree.spark.session.recorded import RecordedSession, recorded
    from replitree.spark.session.session import spark_session
    from replitree.spark.source import ReplitreeSource, register
    from replitree.spark.stream.into import into
    from replitree.spark.write.write import insert_df

if find_spec("pyspark") is None:
    raise SparkMissing("PySpark is not installed: pip install 'replitree[spark]'")

__all__ = [
    "RecordedSession",
    "ReplitreeSource",
    "insert_df",
    "into",
    "note_statements",
    "recorded",
    "register",
    "snapshot_df",
    "spark_session",
    "sql_views",
    "to_df",
]

_HOMES = {
    "RecordedSession": "replitree.spark.session.recorded",
    "ReplitreeSource": "replitree.spark.source",
    "insert_df": "replitree.spark.write.write",
    "into": "replitree.spark.stream.into",
    "note_statements": "replitree.spark.session.hints",
    "recorded": "replitree.spark.session.recorded",
    "register": "replitree.spark.source",
    "snapshot_df": "replitree.spark.read.read",
    "spark_session": "replitree.spark.session.session",
    "sql_views": "replitree.spark.read.views",
    "to_df": "replitree.spark.read.read",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
