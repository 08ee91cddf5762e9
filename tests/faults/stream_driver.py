"""A Spark driver whose streaming query copies a folder of files into a table, one file in each batch.

``python -m tests.faults.stream_driver URL TOKEN_FILE FOLDER CHECKPOINT``

It ends when every file is in the table.  A query that fails, because no replica answers or ZooKeeper has no leader, is started
again from its checkpoint, as a service would start it.
"""

from __future__ import annotations

import sys

from pyspark.errors import StreamingQueryException

from replitree.spark import spark_session

SCHEMA = "k bigint, batch int"
TABLE = "target"
FAILURES_MAX = 200
"""A query that fails so often in one driver is not stopped by the faults alone."""

BEGINS, FAILED = "the query begins", "the query failed"
"""Lines of its log, which the harness reads."""

MAY_NOT_BE = "StreamReplaced"
"""What no fault may cause: the checkpoint is always the same."""


def main(url: str, token_file: str, folder: str, checkpoint: str) -> int:
    """Run the query to its end; return the exit status."""
    spark = spark_session(master="local[1]", conf={"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": 1})
    spark.sparkContext.setLogLevel("OFF")
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)
    writer = stream.writeStream.format("replitree").option("url", url).option("tokenFile", token_file)
    writer = writer.option("table", TABLE).option("quorum", 2).option("checkpointLocation", checkpoint)
    for _ in range(FAILURES_MAX):
        print(BEGINS, flush=True)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(f"{FAILED}: {error}", flush=True)
            if MAY_NOT_BE in str(error):
                return 2
        else:
            return 0
    return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
