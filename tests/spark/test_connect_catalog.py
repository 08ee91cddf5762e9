"""Streams from tables by Spark Connect, where the server was started with the jar: by the catalog, and by format."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from replitree import private
from replitree.client.cluster import LocalCluster
from replitree.spark.session.catalog import catalog_settings
from tests.spark.connect import ConnectServer
from tools import jar

pytestmark = [pytest.mark.system, pytest.mark.nightly]

CLIENT = """
import json, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

url, place, zookeeper, token_file = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
options = {"url": zookeeper, "tokenFile": token_file}
told = {}


def refusal():
    # Where the cluster is, neither the server nor this session has said.
    try:
        spark.readStream.table("replitree.default.orders").schema
    except PySparkException as error:
        return str(error)


told["without a url"] = refusal()
# The settings of a catalog are those of its first use in a session.
spark.stop()
spark = SparkSession.builder.remote(url).getOrCreate()
for key, value in options.items():
    spark.conf.set(f"spark.sql.catalog.replitree.{key}", value)
streams = {
    "table": lambda: spark.readStream.table("replitree.default.orders"),
    "changes": lambda: spark.readStream.option("startingVersion", 1).changes("replitree.default.orders"),
    "statement": lambda: spark.sql("SELECT * FROM STREAM replitree.default.orders WITH (startingVersion = 1)"),
    "format": lambda: spark.readStream.format("replitree").options(**options).load("orders"),
}


def ended(writer):
    for _ in range(20):
        try:
            return writer().awaitTermination()
        except PySparkException as error:
            # Spark gives the Python process of a query ten seconds to start, which a busy machine does not keep.
            if "failed to connect back" not in str(error):
                raise


for name, stream in streams.items():
    folder = f"{place}/{name}"
    ready = lambda rows: rows.writeStream.option("checkpointLocation", f"{folder}-checkpoint").trigger(availableNow=True)
    ended(lambda: ready(stream()).format("parquet").option("path", folder).start())
    told[name] = sorted(row.k for row in spark.read.parquet(folder).collect())
    if name == "format":
        ended(lambda: ready(stream()).option("checkpointLocation", f"{folder}-target").toTable("replitree.default.target"))
print(json.dumps(told), flush=True)
spark.stop()
"""


def test_a_server_with_the_jar_reads_streams_by_the_catalog_and_by_format(tmp_path: Path) -> None:
    # A single file of tests may be run after the Scala sources have changed.
    assert jar.main() == 0
    token_file, server_folder, out = tmp_path / "token", tmp_path / "server", tmp_path / "out"
    server_folder.mkdir()
    out.mkdir()
    with LocalCluster(tmp_path / "cluster", 1, durable=False) as cluster:
        for name in ("orders", "target"):
            cluster.create_table(name, "k bigint not null, s string", order_by="k", feed="1 day")
        for key in (1, 2):
            cluster.table("orders").insert({"k": [key], "s": ["a"]})
        private.write_file(token_file, cluster.access.token.encode())
        with ConnectServer(server_folder, settings=catalog_settings()) as server:
            words = [server.url, str(out), cluster.access.url, str(token_file)]
            done = subprocess.run([sys.executable, "-c", CLIENT, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert "which cluster? " in told["without a url"]
        assert "spark.sql.catalog.replitree.url in a new session" in told.pop("without a url")
        assert told == {"table": [1, 2], "changes": [2], "statement": [2], "format": [1, 2]}
        assert cluster.table("target").to_arrow(level="linearizable")["k"].to_pylist() == [1, 2]
