"""Reads at cuts from a client's point of view: real replicas in this process, and replicas that fail as a test says."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest

from replitree.client.connection import Connection
from replitree.client.read.engines import duckdb_view
from replitree.client.sharded.server_reads import ServerReads
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.errors import (
    BadInput,
    ReplicaBehind,
    ReplicaUnavailable,
    SnapshotExpired,
    Unavailable,
)
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.sharded.shard_map import Shard, encode_map, first_map
from tests.client.test_sharded import create
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import ROOT, InProcessCluster, rows
from tests.waiting import wait_for

LEVELS = ("consistent", "linearizable")

cluster, connection = cluster_and_connection()


@pytest.fixture(autouse=True)
def _no_server_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each shard be asked by itself; `test_server_reads.py` has reads by one request."""
    monkeypatch.setattr(ServerReads, "take", lambda *_: None)


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    # A quorum of two needs both replicas of each shard.
    return create(connection, wait_replicas=2)


def keys(table: ShardedTable, **read: Any) -> list[int]:
    """The keys that a read shows, sorted."""
    return sorted(table.to_arrow(["k"], **read)["k"].to_pylist())


class Requests:
    """The requests of clients, which a test answers in the place of replicas.

    `fail` says what becomes of one: an error, or None: the replica answers.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail: Callable[[str, str, str], Exception | None]) -> None:
        self.sent: list[tuple[str, str]] = []
        request = HttpClient.request

        def stubbed(client: HttpClient, address: str, method: str, path: str, *more: Any, **options: Any) -> Any:
            self.sent.append((method, path))
            problem = fail(address, method, path)
            if problem is not None:
                raise problem
            return request(client, address, method, path, *more, **options)

        monkeypatch.setattr(HttpClient, "request", stubbed)

    def to(self, part: str, method: str = "GET") -> list[str]:
        """The paths of one kind of request."""
        return [path for sent, path in self.sent if sent == method and part in path]


def once(part: str, problem: Exception) -> Callable[[str, str, str], Exception | None]:
    """Let the first request whose path contains `part` fail."""
    failed = threading.Event()

    def fail(_: str, __: str, path: str) -> Exception | None:
        if part in path and not failed.is_set():
            failed.set()
            return problem
        return None

    return fail


@pytest.mark.parametrize("level", LEVELS)
def test_a_connection_sees_what_it_has_inserted(connection: Connection, table: ShardedTable, level: str) -> None:
    for number in range(5):
        table.insert(rows(40 * number, 40))
        assert keys(table, where="k < 1000", level=level) == list(range(40 * number + 40))
        table.insert(rows(1_000 + number, 1))
        assert connection.table("d").to_arrow(where=f"k = {1_000 + number}", level=level).num_rows == 1  # type: ignore[arg-type]
        assert keys(table, where="k < 1000", level=level) == list(range(40 * number + 40))


@pytest.mark.parametrize("level", LEVELS)
def test_an_insert_with_a_quorum_is_seen_in_every_shard(table: ShardedTable, level: str) -> None:
    for number in range(3):
        table.insert(rows(40 * number, 40), quorum=2)
        # The last key of each shard: only the first shard's end of the quorum is known to the client.
        for key in range(40 * number, 40 * number + 4):
            assert keys(table, where=f"k = {key}", level=level) == [key]


def test_one_read_asks_once_what_is_to_be_in_its_cut(table: ShardedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.insert(rows(0, 40))
    requests = Requests(monkeypatch, lambda *_: None)
    assert len(keys(table)) == 40
    of = [each.definition.table_id for each in table.find(None).all]
    asked = sorted(path.partition("&")[2] for path in requests.to("/cut?"))
    assert asked == sorted(f"written=0&of={table_id}" for table_id in of)
    requests.sent.clear()
    assert len(keys(table)) == 40
    assert [path.partition("&")[2] for path in requests.to("/cut?")] == ["", ""]
    requests.sent.clear()
    assert keys(table, where="k = 7") == [7]
    assert (len(requests.to("/cut?")), len(requests.to("/cut/snapshot?"))) == (1, 1)


def test_cuts_of_a_connection_never_go_back(cluster: InProcessCluster, table: ShardedTable) -> None:
    cuts = []
    for number in range(4):
        table.insert(rows(10 * number))
        for level in ("consistent", "linearizable", "consistent"):
            snapshot = table.snapshot(level=level)
            assert snapshot.cut is not None
            cuts.append(parse_cut(snapshot.cut).zxid)
    assert cuts == sorted(cuts)
    del cluster


@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_one_insert_are_seen_together(cluster: InProcessCluster, table: ShardedTable, level: str) -> None:
    inserted, problems = 12, list[Exception]()

    def insert() -> None:
        try:
            with cluster.connect() as writer:
                for number in range(inserted):
                    writer.table("d").insert(rows(20 * number, 20), token=f"{number}")
        except Exception as error:  # noqa: BLE001 - raised by the test
            problems.append(error)

    writer = threading.Thread(target=insert)
    writer.start()
    seen, reads = 0, 0
    while seen < 20 * inserted and not problems and reads < 500:
        found = keys(table, level=level)
        assert found == list(range(len(found)))
        assert len(found) % 20 == 0, "an insert is torn"
        assert len(found) >= seen, "the reader went back"
        seen, reads = len(found), reads + 1
    writer.join(30)
    assert not problems
    assert seen == 20 * inserted


def test_an_earlier_cut_is_read_again(cluster: InProcessCluster, table: ShardedTable) -> None:
    table.insert(rows(0, 20))
    cut = table.snapshot().cut
    table.insert(rows(20, 20))
    assert len(keys(table)) == 40
    assert keys(table, as_of=cut) == list(range(20))
    assert table.scan(as_of=cut, where="k = 3").count() == 1
    with cluster.connect() as other:
        assert other.table("d").snapshot(as_of=cut).rows == 20
    assert len(keys(table)) == 40, "an earlier cut is not the connection's last one"


@pytest.mark.parametrize("level", [*LEVELS, "eventual"])
def test_a_read_by_an_earlier_map_begins_again(
    cluster: InProcessCluster, connection: Connection, table: ShardedTable, level: str
) -> None:
    # As a move of buckets will do it: all buckets but one are those of the second shard from now on.
    path = layout.shard_map(layout.sharded(ROOT, "d"))
    before = table.info.map
    moved = first_map(("k",), {Shard(0): 1, Shard(1): 15}, 16)
    assert isinstance(cluster.admin.perform(fx.Commit(fx.Set(path, encode_map(moved), fx.Version(0)))), fx.Applied)
    assert connection.table("d").insert(rows(0, 40)).outcome == "inserted"
    assert table.info.map == before
    for key in range(40):
        assert keys(table, where=f"k = {key}", level=level) == [key]
    assert table.info.map == moved


def test_a_time_means_a_cut_of_all_shards(
    connection: Connection, cluster: InProcessCluster, table: ShardedTable
) -> None:
    table.insert(rows(0, 20))
    names = table.info.names
    # Coordination's clock counts milliseconds: what comes later was written later.
    times = [connection.catalog.now_ms()]
    wait_for(lambda: connection.catalog.now_ms() > times[0] + 1, "the clock goes on")
    table.insert(rows(20, 1))
    wait_for(lambda: connection.catalog.now_ms() > times[0] + 5, "the clock goes on")
    then = datetime.fromtimestamp((times[0] + 1) / 1000, UTC)
    assert keys(table, as_of=then) == list(range(20))
    assert table.scan(as_of=then.isoformat(), where="k = 20").count() == 0
    assert len(keys(table)) == 21
    with pytest.raises(BadInput, match="not over"):
        table.snapshot(as_of="2300-01-01")
    with pytest.raises(BadInput, match="is no time and no tag"):
        table.snapshot(as_of="2026-13-01")
    with pytest.raises(SnapshotExpired, match="was created"):
        table.snapshot(as_of="1969-01-01")
    for name in names:
        cluster.clean(1, table=name)
    with pytest.raises(SnapshotExpired, match="can't be told any more"):
        table.snapshot(as_of=then)


def test_a_snapshot_is_unchanged_until_a_shard_changes(table: ShardedTable) -> None:
    table.insert(rows(0, 40))
    known = table.snapshot()
    assert table.is_unchanged(known)
    assert table.is_unchanged(known, level="linearizable")
    table.insert(rows(40, 1))
    assert not table.is_unchanged(known)
    assert table.is_unchanged(table.snapshot())
    assert not table.is_unchanged(table.snapshot(level="eventual"))
    assert not table.is_unchanged(table.snapshot(where="k = 7"))


def test_a_condition_that_no_row_can_match_asks_no_replica(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = Requests(monkeypatch, lambda *_: None)
    snapshot = table.snapshot(where="k = 1 and k = 2")
    assert (snapshot.shards, snapshot.cut, snapshot.rows) == ((), None, 0)
    assert not requests.sent


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("problem", [ReplicaBehind("not yet"), ReplicaUnavailable("gone"), AnswerLost("lost")])
@pytest.mark.parametrize("part", ["/cut?", "/cut/snapshot?"])
def test_another_replica_is_asked(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: str, part: str, problem: Exception
) -> None:
    table.insert(rows(0, 40))
    requests = Requests(monkeypatch, once(part, problem))
    assert len(keys(table, level=level)) == 40
    assert len(requests.to("/cut/snapshot?")) == 2 + (part == "/cut/snapshot?")


@pytest.mark.parametrize("level", LEVELS)
def test_a_cut_that_is_gone_gives_way_to_a_newer_one(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    table.insert(rows(0, 40))
    requests = Requests(monkeypatch, once("/cut/snapshot?", SnapshotExpired("removed")))
    with table.snapshot(level=level, lease_s=30) as snapshot:  # type: ignore[arg-type]
        assert snapshot.rows == 40
    assert len(requests.to("/cut/snapshot?")) == 4
    # Of the first cut the one shard that was there, of the second both.
    assert len(requests.to("/leases/", "DELETE")) == 3


def test_cuts_that_are_gone_again_and_again_end_the_read(table: ShardedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(
        monkeypatch, lambda _, __, path: SnapshotExpired("removed") if "/cut/snapshot?" in path else None
    )
    with pytest.raises(SnapshotExpired, match="removed"):
        table.snapshot()
    assert len(requests.to("/cut/snapshot?")) == 2 * 4


def test_a_cut_that_was_given_is_looked_for_at_every_replica(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.insert(rows(0, 40))
    cut = table.snapshot().cut
    with monkeypatch.context() as patched:
        Requests(patched, once("/cut/snapshot?", SnapshotExpired("removed")))
        assert len(keys(table, as_of=cut)) == 40
    gone = Requests(
        monkeypatch, lambda _, __, path: SnapshotExpired("removed") if "d~0/cut/snapshot?" in path else None
    )
    with pytest.raises(SnapshotExpired, match="removed"):
        table.snapshot(as_of=cut)
    assert len(gone.to("d~0/cut/snapshot?")) == 2, "each replica once"


@pytest.mark.parametrize("level", LEVELS)
def test_a_shard_that_can_not_be_read_makes_the_read_fail(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    table.insert(rows(0, 40))
    Requests(monkeypatch, lambda _, __, path: ReplicaUnavailable("all are gone") if "/d~1/cut" in path else None)
    with pytest.raises(Unavailable, match="all are gone"):
        table.snapshot(level=level, timeout_s=0.3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="level='eventual'"):
        table.snapshot(level=level, skip_unavailable=True)  # type: ignore[arg-type]


def test_a_read_of_whatever_is_there_names_the_shards_that_are_missing(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.insert(rows(0, 40))
    whole = table.snapshot(level="eventual")
    assert (whole.cut, whole.missing, whole.rows) == (None, (), 40)
    Requests(monkeypatch, lambda _, __, path: ReplicaUnavailable("all are gone") if "/d~1/" in path else None)
    with table.snapshot(level="eventual", skip_unavailable=True, lease_s=30, timeout_s=0.2) as snapshot:
        assert snapshot.missing == ("d~1",)
        assert "without d~1" in repr(snapshot)
        assert Counter(snapshot.to_arrow()["k"].to_pylist()) == Counter(whole.shards[0].to_arrow()["k"].to_pylist())
    with pytest.raises(Unavailable, match="all are gone"):
        table.snapshot(level="eventual", timeout_s=0.2)


def test_a_replica_that_is_behind_is_waited_for_no_longer_than_the_time_limit(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    Requests(monkeypatch, lambda _, __, path: ReplicaBehind("not yet") if "/cut/snapshot?" in path else None)
    with pytest.raises(ReplicaBehind, match="not yet"):
        table.snapshot(timeout_s=0.3)


def test_parts_that_are_gone_before_they_are_read_are_read_at_a_newer_cut(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replitree.client.read.snapshot import Snapshot

    table.insert(rows(0, 40))
    cut, read, gone = table.snapshot().cut, Snapshot.to_arrow, list[str]()

    def first_gone(self: Snapshot, *more: Any, **options: Any) -> Any:
        if not gone:
            gone.append(self.replica)
            raise SnapshotExpired("the part is gone")
        return read(self, *more, **options)

    monkeypatch.setattr(Snapshot, "to_arrow", first_gone)
    assert len(keys(table)) == 40
    gone.clear()
    with pytest.raises(SnapshotExpired):
        keys(table, as_of=cut)


def test_replicas_of_different_ensembles_have_no_cut(table: ShardedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    from replitree.client.sharded.shard_table import SeenBody, ShardTable

    other = SeenBody("0ther@7")
    with monkeypatch.context() as patched:
        seen = ShardTable.seen
        patched.setattr(ShardTable, "seen", lambda self, *more: other if self.name == "d~1" else seen(self, *more))
        with pytest.raises(ReplicaUnavailable, match="different ensembles"):
            table.snapshot()
    assert table.snapshot().cut
    monkeypatch.setattr(ShardTable, "seen", lambda *_: other)
    with pytest.raises(SnapshotExpired, match="set up anew"):
        table.snapshot()


def test_a_replica_that_has_not_heard_of_an_entry_is_behind(cluster: InProcessCluster, table: ShardedTable) -> None:
    table.insert(rows(0, 40))
    for node in cluster.nodes:
        status, body = node.request("GET", "/v1/tables/d~0/cut?written=7&wait_s=1")
        assert (status, body["error"]) == (503, "ReplicaBehind")
        assert "does not find the entry at 7" in body["message"]


def test_an_entry_that_was_removed_is_in_the_cut(cluster: InProcessCluster, table: ShardedTable) -> None:
    for number in range(3):
        table.insert(rows(40 * number, 40))
    (node,) = cluster.nodes[:1]
    before = node.request("GET", "/v1/tables/d~0/cut?written=1&wait_s=20")[1]
    cluster.clean(2, table="d~0")
    after = node.request("GET", "/v1/tables/d~0/cut?written=1&wait_s=20")[1]
    assert after["written"] > before["written"] > 0
    assert len(keys(table)) == 120


# --- engines ----------------------------------------------------------------------------------------------------------


def test_a_dataset_has_the_files_of_all_shards(table: ShardedTable) -> None:
    table.insert(rows(0, 100))
    found = table.scan(["k", "v"]).dataset()
    assert found.schema.names == ["k", "v"]
    assert sorted(found.to_table()["k"].to_pylist()) == list(range(100))
    few = table.snapshot().dataset(["v", "k"], "k >= 90")
    assert few.count_rows() == 10
    assert sorted(few.to_table(filter=pc.field("k") < 95)["k"].to_pylist()) == list(range(90, 95))
    assert table.scan(where="k = 1 and k = 2").dataset().count_rows() == 0
    with pytest.raises(BadInput, match="to_reader"):
        table.scan(final=True).dataset()


def test_duckdb_and_polars_read_the_files_of_all_shards(table: ShardedTable) -> None:
    table.insert(rows(0, 100))
    con = duckdb.connect()
    assert table.scan().native_paths() is None
    with table.snapshot(lease_s=30) as snapshot:
        paths = snapshot.scan(["k"]).native_paths()
        assert paths is not None
        assert len(paths) == 2
        duckdb_view(con, snapshot.scan(), "held")
        assert con.execute("SELECT count(*), sum(k) FROM held").fetchall() == [(100, 4950)]
    for scan in (table.scan(), table.scan(where="k < 50"), table.scan(final=True), table.scan(where="k + 1 < 51")):
        relation = scan.to_duckdb(con, "shown")
        frame = scan.to_polars(lazy=True)
        assert relation.filter("k = 7").fetchall() == [(7, 7 / 3, "7")]
        assert frame.filter(pl.col("k") == 7).collect()["s"].to_list() == ["7"]
        assert scan.to_polars().height == scan.count() == scan.to_pandas().shape[0]
    assert con.execute("SELECT count(*) FROM shown").fetchall() == [(50,)]


def test_a_plan_has_that_of_each_shard(table: ShardedTable) -> None:
    table.insert(rows(0, 100))
    plan = table.scan(where="k < 50").explain()
    assert plan.count("condition") == 2
    assert "d~0 at 1" in plan
