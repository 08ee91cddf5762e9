"""Spark: tables as DataFrames, DataFrames as inserts, ``format("replitree")``, and a session with the right settings.

What is exported here is imported when it is first used, so that the data source's own process starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replitree.spark.read import snapshot_df, to_df
    from replitree.spark.session import spark_session
    from replitree.spark.source import ReplitreeSource, register
    from replitree.spark.views import sql_views
    from replitree.spark.write import insert_df

__all__ = ["ReplitreeSource", "insert_df", "register", "snapshot_df", "spark_session", "sql_views", "to_df"]

_HOMES = {
    "ReplitreeSource": "replitree.spark.source",
    "insert_df": "replitree.spark.write",
    "register": "replitree.spark.source",
    "snapshot_df": "replitree.spark.read",
    "spark_session": "replitree.spark.session",
    "sql_views": "replitree.spark.views",
    "to_df": "replitree.spark.read",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
