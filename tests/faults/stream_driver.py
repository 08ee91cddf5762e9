"""A Spark driver whose streaming query brings rows into a table: those of one file, or of one insert, in each batch.

``python -m tests.faults.stream_driver WAY URL TOKEN_FILE SOURCE CHECKPOINT [MASTER]``, where the way is one of `WAYS`, and the
source is a folder of files, or the name of a table.

It ends when everything is in the table.  A query that fails, because no replica answers or ZooKeeper has no leader, is started
again from its checkpoint, as a service would start it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from replitree import connect
from replitree.spark import into, spark_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WAYS = ("format", "executors", "driver")
"""The data source; `into` with rows through tasks, or through the driver, whose batches are the fastest."""

SCHEMA = "k bigint, batch int"
TABLE = "target"
WHERE = "k % 10 <> 9"
"""The rows that the query passes on."""

FAILURES_MAX = 200
"""A query that fails so often in one driver is not stopped by the faults alone."""

BEGINS, FAILED = "the query begins", "the query failed"
"""Lines of its log, which the harness reads."""

MAY_NOT_BE = "StreamReplaced"
"""What no fault may cause: the checkpoint is always the same."""


def main(way: str, url: str, token_file: str, source: str, checkpoint: str, master: str = "local[1]") -> int:
    """Run the query to its end; return the exit status."""
    own = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m"}
    conf = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": 1} | own
    spark = spark_session(master=master, conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    named = {"url": url, "tokenFile": token_file}
    if Path(source).is_dir():
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(source)
    else:
        reader = spark.readStream.format("replitree").options(**named, startingVersion="earliest")
        stream = reader.option("maxEntriesPerTrigger", 1).load(source)
    stream = stream.where(WHERE)
    writer: DataStreamWriter
    if way == "format":
        writer = stream.writeStream.format("replitree").options(**named, table=TABLE, quorum=2)
    else:
        table = connect(url, token_file=token_file).table(TABLE)
        write = into(table, via="executors" if way == "executors" else "driver", quorum=2)
        writer = stream.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", checkpoint)
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
