"""replitree: a replicated columnar table for PySpark.

::

    import replitree

    with replitree.local(replicas=3) as cluster:                      # or replitree.connect("zk://host:2181/path")
        events = cluster.create_table("events", "k bigint not null, v double", order_by="k")
        events.insert({"k": [1, 2], "v": [0.5, None]}, token="first load")
        frame = events.to_df(spark, where="k > 1")

Errors are in `replitree.errors`; all are `ReplitreeError`, and each message says what to do.

Importing this module is quick: what it exports is imported when it is first used.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from replitree.errors import ReplitreeError

if TYPE_CHECKING:
    from replitree.client.cluster import LocalCluster, local
    from replitree.client.connection import Connection, connect
    from replitree.client.insert.insert import InsertResult
    from replitree.client.read.snapshot import Snapshot
    from replitree.client.table import Table
    from replitree.spark.session.session import spark_session

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # a library is quiet until its user wants to hear it

__all__ = [
    "Connection",
    "InsertResult",
    "LocalCluster",
    "ReplitreeError",
    "Snapshot",
    "Table",
    "__version__",
    "connect",
    "local",
    "spark_session",
]

_HOMES = {
    "Connection": "replitree.client.connection",
    "InsertResult": "replitree.client.insert.insert",
    "LocalCluster": "replitree.client.cluster",
    "Snapshot": "replitree.client.read.snapshot",
    "Table": "replitree.client.table",
    "connect": "replitree.client.connection",
    "local": "replitree.client.cluster",
    "spark_session": "replitree.spark.session.session",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
