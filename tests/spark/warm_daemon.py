"""Spark's daemon of Python workers, which forks a worker when all that it imports is imported.

A worker of Spark's own daemon imports after the fork, for almost a second of CPU, and the sessions of these tests start dozens.
Sessions of tests that start Spark elsewhere, on a cluster, or through a command have Spark's daemon.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module

IMPORTED = (
    *("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.worker"),
    *("pyspark.sql.worker.commit_data_source_write", "pyspark.sql.worker.create_data_source"),
    *("pyspark.sql.worker.lookup_data_sources", "pyspark.sql.worker.plan_data_source_read"),
    *("pyspark.sql.worker.write_into_data_source", "replitree.coordination.zookeeper"),
    *("replitree.spark.read.source_read", "replitree.spark.source", "replitree.spark.write.source_write"),
    "replitree.storage.parts.checked_files",
)


def main() -> None:
    """Import, and be Spark's daemon."""
    # Spark imports after the fork because numpy may start threads, which the forked process would lack.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for module in IMPORTED:
        import_module(module)
    daemon = import_module("pyspark.daemon")
    # A worker looks for garbage after each task: 50 ms of CPU where it looks in all that was imported, 5 times the task itself.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
