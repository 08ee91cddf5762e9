"""The client against real replica processes and a real ZooKeeper."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.connection import Connection, connect
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.errors import (
    BadInput,
    CoordinationUnavailable,
    NotAuthorized,
    ReplicaUnavailable,
    SchemaMismatch,
    TableExists,
    TableNotFound,
)

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False) as cluster:
        yield cluster


@pytest.fixture
def table(running: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Table]:
    name = "t_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:50]
    yield running.create_table(
        name, "d date, k bigint not null, v double, s string", order_by="k", partition_by="month(d)"
    )
    running.drop_table(name)


def wait_until(condition: Callable[[], object], deadline_s: float = 30.0) -> None:
    end = time.monotonic() + deadline_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.02)


def numbers(start: int, count: int) -> pa.Table:
    keys = range(start, start + count)
    days = pa.array([17_532 + k % 60 for k in keys], pa.int32()).cast(pa.date32())
    columns = [days, pa.array(keys, pa.int64()), pa.array([k / 3 for k in keys]), pa.array([f"s{k}" for k in keys])]
    return pa.table(columns, names=["d", "k", "v", "s"])


def keys(table: Table, replica: str | None = None) -> list[int]:
    at = table.replica(replica) if replica else table
    found: list[int] = at.to_arrow(columns=["k"])["k"].to_pylist()
    return sorted(found)


def test_rows_inserted_anywhere_are_read_everywhere(running: LocalCluster, table: Table) -> None:
    for start, name in ((0, "r1"), (100, "r2"), (200, "r1")):
        assert table.insert(numbers(start, 100), replica=name).outcome == "inserted"
        assert keys(table, "r2" if name == "r1" else "r1") == list(range(start + 100)), "a handle reads its own writes"
    hashes = [
        sorted((part.part, part.manifest.content) for part in table.replica(name).snapshot().parts)
        for name in running.names
    ]
    assert hashes[0] == hashes[1]


def test_the_same_rows_and_the_same_token_are_inserted_once(table: Table) -> None:
    first = table.insert(numbers(0, 10))
    again = table.insert(numbers(0, 10))
    assert (first.outcome, again.outcome, again.index) == ("inserted", "duplicate", first.index)
    table.insert(numbers(10, 10), token="a")
    assert table.insert(numbers(20, 10), token="a").outcome == "duplicate"
    assert table.insert(numbers(0, 10), deduplicate=False).outcome == "inserted"
    assert len(keys(table)) == 30


def test_large_inserts_and_streams_become_one_insert(table: Table) -> None:
    large = numbers(0, 150_000)
    first = table.insert(large)
    assert (first.outcome, first.rows) == ("inserted", 150_000)
    assert table.insert(large).outcome == "duplicate"
    stream = pa.RecordBatchReader.from_batches(
        large.schema, iter(numbers(150_000, 80_000).to_batches(max_chunksize=9000))
    )
    assert table.insert(stream, token="stream").index == (first.index or 0) + 1
    assert keys(table) == list(range(230_000))
    assert table.to_arrow(where="k between 1000 and 1009").num_rows == 10
    months = {part.manifest.partition for part in table.snapshot().select("d < date'2018-02-01'")}
    assert months == {"2018-01"}


def test_many_threads_insert_through_one_handle(table: Table) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: table.insert(numbers(i * 10, 10)), range(80)))
    assert {result.outcome for result in results} == {"inserted"}
    assert keys(table) == list(range(800))


def test_nested_values_come_back_as_they_were(running: LocalCluster) -> None:
    schema = "k bigint, a array<struct<x: int, y: string>>, m map<string, decimal(10,2)>, ts timestamp, n timestamp_ntz"
    table = running.create_table("nested", schema)
    rows = [
        {"k": 1, "a": [{"x": 1, "y": None}, None], "m": [("p", None)], "ts": None, "n": None},
        {"k": None, "a": None, "m": [], "ts": None, "n": None},
    ]
    table.insert(rows)
    assert table.to_arrow().to_pylist() == rows
    running.drop_table("nested")


def test_wrong_rows_are_refused_and_nothing_is_inserted(table: Table) -> None:
    for rows, message in (
        ({"k": [1], "nope": [1]}, "'nope'"),
        ({"k": ["text"]}, "'k'"),
        ({"k": [None]}, "'k'"),
        ({"v": [1.0]}, "'k'"),
    ):
        with pytest.raises(SchemaMismatch, match=message):
            table.insert(rows)
    assert keys(table) == []


def test_wrong_names_and_tables(running: LocalCluster, table: Table) -> None:
    with pytest.raises(TableNotFound):
        running.table("not_there")
    with pytest.raises(BadInput):
        running.table("../x")
    with pytest.raises(TableExists):
        running.create_table(table.name, "k bigint")
    with pytest.raises(BadInput, match="no replica 'r7'"):
        table.insert(numbers(0, 1), replica="r7")
    with pytest.raises(BadInput, match="no replica 'r7'"):
        running.kill("r7")


def test_wrong_token_is_refused(running: LocalCluster, table: Table) -> None:
    with (
        Connection(Access(running.access.url, "not the token of this cluster")) as stranger,
        pytest.raises(NotAuthorized),
    ):
        stranger.table(table.name).insert(numbers(0, 1))
    with Connection(Access(running.access.url, "")) as nobody, pytest.raises(NotAuthorized, match="REPLITREE_TOKEN"):
        nobody.table(table.name)
    with connect(running.folder) as friend:
        friend.table(table.name).insert(numbers(0, 1))


def test_status_tells_of_every_replica(running: LocalCluster, table: Table) -> None:
    table.insert(numbers(0, 10))
    for name in running.names:
        table.replica(name).snapshot()  # returns when it has the rows
    status = table.status()
    assert (status.log_tail, status.rows) == (1, 10)
    assert [(r.name, r.state, r.reachable, r.rows) for r in status.replicas] == [
        ("r1", "active", True, 10),
        ("r2", "active", True, 10),
    ]
    cluster = running.status()
    assert table.name in {found.name for found in cluster.tables}
    assert all(server.coordination_requests for server in cluster.servers)


def test_killed_replica_is_left_and_comes_back_equal(running: LocalCluster, table: Table) -> None:
    table.insert(numbers(0, 10))
    running.kill("r1")
    assert [each.name for each in running.processes if not each.pid] == ["r1"]
    for start in (10, 20, 30):
        assert table.insert(numbers(start, 10)).outcome == "inserted"
    with pytest.raises(ReplicaUnavailable):
        table.insert(numbers(99, 1), replica="r1", timeout_s=0.5)
    down = {replica.name: replica for replica in table.status().replicas}["r1"]
    assert (down.state, down.reachable) == ("down", False)
    running.start("r1")
    assert keys(table, "r1") == keys(table, "r2") == list(range(40))


def test_data_stay_when_the_cluster_is_stopped_and_opened_again(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, durable=False) as cluster:
        cluster.create_table("kept", "k bigint").insert({"k": [1, 2, 3]})
        other = LocalCluster(tmp_path, 1, durable=False)
        with pytest.raises((CoordinationUnavailable, ReplicaUnavailable)):
            other.open()
        assert cluster.table("kept").to_arrow().num_rows == 3, "the first is not disturbed"
    with LocalCluster(tmp_path, 1, durable=False) as cluster:
        assert cluster.table("kept").to_arrow().num_rows == 3
        assert cluster.table("kept").insert({"k": [1, 2, 3]}).outcome == "duplicate"
    assert not any(process.pid for process in cluster.processes)


def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import json, sys, replitree.client.cluster as c\n"
        f"cluster = c.LocalCluster({str(tmp_path)!r}, 2, durable=False); cluster.open()\n"
        "print(json.dumps([*(p.pid for p in cluster.processes), cluster.zookeeper.pid(0)]), flush=True)\n"
        "sys.stdin.read()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = json.loads(owner.stdout.readline())
    assert all(is_alive(pid) for pid in pids)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    wait_until(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: int) -> bool:
    try:
        found = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return found.rpartition(")")[2].split()[0] != "Z"


def test_zookeeper_that_is_not_there_is_named() -> None:
    with (
        Connection(Access("zk://127.0.0.1:1/x", "token")) as connection,
        pytest.raises(CoordinationUnavailable),
    ):
        connection.tables()


def test_client_on_another_machine_sends_and_fetches_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("replitree.client.insert.upload", "replitree.client.read.near"):
        monkeypatch.setattr(f"{module}.this_machine", lambda: "another machine")
    assert table.insert(numbers(0, 150_000), token="far").outcome == "inserted"
    assert table.insert(numbers(0, 150_000), token="far").outcome == "duplicate"
    snapshot = table.snapshot()
    assert not snapshot.is_local
    assert sorted(snapshot.to_arrow()["k"].to_pylist()) == list(range(150_000))
    assert snapshot.to_arrow(where="k < 10 and d < date'2018-02-01'").num_rows == 10
