"""Inserts, streams, merges and final reads through Spark Connect: its tasks write where they can, here or by a replica.

The server is a process that sees the folder of one cluster and not that of another, as a server on another machine.  Its client
is a process of its own, too: one that has begun a session of its own begins none of Connect.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.cluster import LocalCluster
from tests.spark.conftest import uploads_left
from tests.spark.connect import ConnectServer
from tests.spark.standalone import hidden_from

pytestmark = pytest.mark.system

COLUMNS = "k bigint not null, g int, s string"
COUNT = 3000

CLIENT = """
import json, os, sys
import replitree
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from replitree.errors import ReplitreeError
from replitree.spark import into

url, place, *folders = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
told = {}


def streamed(name, access, table):
    # The server has no token: a file has it for what runs there.
    folder, token_file, zookeeper = f"{place}/{name}", f"{place}/{name}-token", access.url
    with open(os.open(token_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(access.token)
    spark.range(5).selectExpr("id as k", "1 as g", "'s' as s").coalesce(1).write.parquet(f"{folder}/in")
    stream = spark.readStream.schema("k bigint, g int, s string").parquet(f"{folder}/in")

    def insert(rows, number):
        with replitree.connect(zookeeper, token_file=token_file) as there:
            into(there.table("streamed"), "by hand")(rows, number)

    def without_name(rows, number):
        with replitree.connect(zookeeper, token_file=token_file) as there:
            into(there.table("streamed"))(rows, number)

    options = {"url": zookeeper, "table": "streamed", "tokenFile": token_file}
    # Spark begins a process for each query: what works runs where tasks do not see the replica, what is refused elsewhere.
    writers = {
        "format": stream.writeStream.format("replitree").options(**options),
        "in the function": stream.writeStream.foreachBatch(insert),
    }
    if name == "seen":
        writers = {
            "of the client": stream.writeStream.foreachBatch(into(table, "of the client")),
            "without a name": stream.writeStream.foreachBatch(without_name),
        }
    problems, read = {}, []

    def run(way, writer):
        ready = writer.option("checkpointLocation", f"{folder}/{way}").trigger(availableNow=True)
        for _ in range(20):
            try:
                ready.start().awaitTermination()
                problems[way] = ""
            except PySparkException as error:
                problems[way] = str(error)
            # Spark gives the process of the function ten seconds to start, which a busy machine does not keep.
            if "failed to connect back" not in problems[way]:
                break

    for way, writer in writers.items():
        run(way, writer)
    # The second query goes on behind what the first one has read.
    for key in (8, 9) if name == "hidden" else ():
        table.insert({"k": [key], "g": [1], "s": ["s"]})
        came = spark.readStream.format("replitree").options(**options).load()
        run("read", came.writeStream.format("parquet").option("path", f"{folder}/out"))
        read.append(sorted(row.k for row in spark.read.parquet(f"{folder}/out").collect()))
    return problems, read


for name, folder in zip(("seen", "hidden"), folders, strict=True):
    table = replitree.connect(folder).table("target")
    rows = spark.range(0, 3000, 1, 4).selectExpr("id as k", "cast(id % 3 as int) as g", "sha2(string(id), 256) as s")
    first, again = table.insert(rows, token="job"), table.insert(rows, token="job")
    some = table.insert(spark.sql("select 1L as k, 9 as g"), overwrite="partitions")
    empty = table.insert(rows.where("k < 0"))
    problems, read = streamed(name, replitree.connect(folder).access, replitree.connect(folder).table("streamed"))
    final = replitree.connect(folder).table("versions").to_df(spark, ["k", "s"], "k < 7", final=True)
    merged = table.optimize(spark=spark, final=True)
    refused = []
    for wrong in ("select 1L as k, 2 as other", "select cast(null as bigint) as k"):
        try:
            table.insert(spark.sql(wrong))
        except ReplitreeError as error:
            refused.append(f"{type(error).__name__}: {error}")
    try:
        table.insert(spark.sql("select raise_error('of the query') as s, 1L as k"))
    except PySparkException as error:
        refused.append("of the query" in str(error))
    told[name] = {
        "outcomes": [each.outcome for each in (first, again, some, empty)],
        "rows": first.rows,
        "merged": [each.applied for each in merged.merges],
        "refused": refused,
        "streamed": problems,
        "read": read,
        "final": sorted(map(list, final.collect())),
    }
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the server does not see."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def clusters(running: LocalCluster, hidden: Path, server: ConnectServer) -> Iterator[dict[str, LocalCluster]]:
    """A cluster whose folder the server sees, and one whose folder it does not see."""
    del server  # It starts meanwhile.
    with LocalCluster(hidden / "replicas", 1, durable=False) as apart:
        found = {"seen": running, "hidden": apart}
        for each in found.values():
            each.create_table("target", COLUMNS, order_by="k", partition_by="g", timeout_s=120)
            each.create_table("streamed", COLUMNS, order_by="k", feed="1 day", timeout_s=120)
            made = each.create_table("versions", COLUMNS, order_by="k", policy="replacing(g)", timeout_s=120)
            for version, first in enumerate((0, 5)):
                made.insert({"k": [first, first + 1, 5], "g": [version] * 3, "s": [f"{version}"] * 3})
        yield found
        running.drop_table("target")
        running.drop_table("streamed")
        running.drop_table("versions")


@pytest.fixture(scope="module")
def server(hidden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect"), hidden_from(hidden)) as started:
        yield started


@pytest.fixture(scope="module")
def told(
    server: ConnectServer, clusters: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a client has told of both clusters."""
    folders = [str(tmp_path_factory.mktemp("streams")), *(str(each.folder) for each in clusters.values())]
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, server.url, *folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("name", ["seen", "hidden"])
def test_a_frame_of_connect_is_one_insert_whether_or_not_its_tasks_see_the_replica(
    told: dict[str, Any], clusters: dict[str, LocalCluster], name: str
) -> None:
    assert told[name]["outcomes"] == ["inserted", "duplicate", "inserted", "empty"]
    assert told[name]["rows"] == COUNT
    table = clusters[name].table("target")
    found = table.to_arrow(level="linearizable").sort_by([("g", "ascending"), ("k", "ascending")])
    assert found["k"].to_pylist() == [*(k for g in range(3) for k in range(g, COUNT, 3)), 1]
    assert uploads_left(clusters[name], table) == []


@pytest.mark.parametrize("name", ["seen", "hidden"])
def test_a_final_read_is_merged_by_tasks_of_the_server(told: dict[str, Any], name: str) -> None:
    assert told[name]["final"] == [[0, "0"], [1, "0"], [5, "1"], [6, "1"]]


@pytest.mark.parametrize("name", ["seen", "hidden"])
def test_merges_are_made_by_tasks_of_the_server(told: dict[str, Any], name: str) -> None:
    assert told[name]["merged"]
    assert all(told[name]["merged"])


@pytest.mark.parametrize("name", ["seen", "hidden"])
def test_what_does_not_fit_is_refused_in_our_words_and_a_failed_query_in_those_of_spark(
    told: dict[str, Any], name: str
) -> None:
    unknown, null, query = told[name]["refused"]
    assert unknown.startswith("SchemaMismatch: table target has no column 'other'")
    assert null.startswith("SchemaMismatch: ")
    assert "'k'" in null
    assert query is True


def test_streams_write_by_format_and_by_a_function_that_connects_where_it_runs(
    told: dict[str, Any], clusters: dict[str, LocalCluster]
) -> None:
    assert told["hidden"]["streamed"] == {"format": "", "in the function": "", "read": ""}
    table = clusters["hidden"].table("streamed")
    assert sorted(table.to_arrow(level="linearizable")["k"].to_pylist()) == sorted([*range(5), *range(5), 8, 9])
    assert [each.batch for each in table.streams()] == [0, 0]
    assert uploads_left(clusters["hidden"], table) == []


def test_a_stream_reads_each_row_once_and_goes_on_in_its_checkpoint(told: dict[str, Any]) -> None:
    first = sorted([*range(5), *range(5), 8])
    assert told["hidden"]["read"] == [first, [*first, 9]]


def test_a_stream_without_a_connection_or_a_name_is_refused(told: dict[str, Any]) -> None:
    problems = told["seen"]["streamed"]
    assert "has no connection of the client: connect in it, def insert(rows, number)" in problems["of the client"]
    assert "under Spark Connect a query's id is not known: name the stream" in problems["without a name"]
