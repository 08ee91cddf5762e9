"""Reads of sharded tables by one request, where one server has a replica of each shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import ReplicaBehind, ReplicaUnavailable, ReplitreeError, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.stamps import GetStamped
from replitree.protocol.sharded.places import shard_name
from replitree.protocol.sharded.shard_map import Shard
from replitree.replica.http.sharded.cut_requests import snapshot_now
from replitree.replica.table import cuts
from replitree.replica.table.cuts import Cuts
from replitree.replica.table.table_replica import TableReplica
from tests.client.test_cut_reads import Requests, keys, once
from tests.client.test_sharded import create
from tests.replica.inprocess import ROOT, InProcessCluster, rows

LEVELS = ("consistent", "linearizable")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    made = InProcessCluster(tmp_path_factory.mktemp("servers"))
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    made = cluster.connect()
    yield made
    for name in made.tables():
        made.drop_table(name)
    made.close()


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    # A quorum of two needs both replicas of each shard.
    return create(connection, wait_replicas=2)


def to_each(requests: Requests) -> int:
    """How many requests for a cut went to shards by themselves."""
    return len(requests.to("/cut?")) + len(requests.to("/cut/snapshot?")) + len(requests.to("/cut?", "POST"))


@pytest.mark.parametrize("level", LEVELS)
def test_one_request_reads_all_shards(table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: Any) -> None:
    table.insert(rows(0, 40))
    requests = Requests(monkeypatch, lambda *_: None)
    with table.snapshot(level=level, lease_s=30) as snapshot:
        assert snapshot.rows == 40
    assert (len(requests.to("/cut/shards?", "POST")), to_each(requests)) == (1, 0)
    requests.sent.clear()
    assert keys(table, level=level, where="k = 7") == [7]
    assert (len(requests.to("/cut/shards?", "POST")), to_each(requests)) == (1, 0)
    assert keys(table, as_of=snapshot.cut) == list(range(40))


@pytest.mark.parametrize(("level", "writes"), [("consistent", 0), ("linearizable", 1)])
def test_one_question_to_coordination_tells_the_cut_the_map_and_the_ends_of_all_logs(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: Any, writes: int
) -> None:
    table.insert(rows(0, 40))
    # The first read after an insert asks where its entries are, and makes the clock.
    assert len(keys(table, level=level)) == 40
    assert len(keys(table, level=level)) == 40
    asked, perform = list[Any](), Cuts.perform

    def noted(cuts: Cuts, effect: Any) -> Any:
        asked.append(effect)
        return perform(cuts, effect)

    monkeypatch.setattr(Cuts, "perform", noted)
    assert len(keys(table, level=level)) == 40
    # Entries of the logs are asked for again only where others have come since.
    questions = [each for each in asked if isinstance(each, GetStamped) and not all("/log-" in at for at in each.paths)]
    assert len(questions) == 1
    shards = [TablePlace(f"{ROOT}/tables/{shard_name('d', Shard(number))}") for number in range(2)]
    assert {layout.log_parent(shard, 0) for shard in shards} < set(questions[0].paths)
    assert len([each for each in asked if isinstance(each, fx.Commit)]) == writes


@pytest.mark.parametrize("level", LEVELS)
def test_a_shard_that_has_not_executed_what_is_below_the_cut_is_waited_for(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: Any
) -> None:
    table.insert(rows(0, 40))
    assert len(keys(table, level=level)) == 40
    late = list[str]()

    def shown(shard: TableReplica, *asked: Any) -> bytes | None:
        if shard.replica.table.name.endswith("~1"):
            late.append(shard.replica.name)
            return None
        return snapshot_now(shard, *asked)

    monkeypatch.setattr("replitree.replica.http.sharded.server_cuts.snapshot_now", shown)
    assert keys(table, level=level) == list(range(40))
    assert len(late) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_server_that_can_not_tell_all_by_one_question_asks_for_each_shard(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: Any
) -> None:
    table.insert(rows(0, 40))
    assert len(keys(table, level=level)) == 40

    def rolled(*_: Any, **__: Any) -> fx.Procedure[None]:
        yield fx.CurrentSession()

    monkeypatch.setattr(cuts, "see_shards", rolled)
    requests = Requests(monkeypatch, lambda *_: None)
    assert keys(table, level=level) == list(range(40))
    assert (len(requests.to("/cut/shards?", "POST")), to_each(requests)) == (1, 0)


@pytest.mark.parametrize("level", LEVELS)
def test_a_read_shows_what_its_connection_has_written_and_what_others_have(
    table: ShardedTable, cluster: InProcessCluster, level: Any
) -> None:
    other = cluster.connect()
    theirs = other.table("d")
    for number in range(3):
        table.insert(rows(40 * number, 40), quorum=2)
        shown = list(range(40 * number + 40))
        assert keys(table, level=level) == shown
        # The last key of each shard: only the first shard's end of the quorum is known to the client.
        for key in range(40 * number, 40 * number + 4):
            assert keys(table, where=f"k = {key}", level=level) == [key]
        assert sorted(theirs.to_arrow(["k"], level="linearizable")["k"].to_pylist()) == shown
    other.close()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "problem", [ReplicaBehind("it is late"), ReplicaUnavailable("it is gone"), SnapshotExpired("removed")]
)
def test_a_server_that_fails_is_left_alone_and_the_replicas_of_each_shard_are_asked(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch, level: Any, problem: ReplitreeError
) -> None:
    table.insert(rows(0, 40))
    requests = Requests(monkeypatch, once("/cut/shards?", problem))
    assert len(keys(table, level=level)) == 40
    assert (len(requests.to("/cut/shards?", "POST")), to_each(requests) >= 3) == (1, True)
    requests.sent.clear()
    assert len(keys(table, level=level)) == 40
    # The other server has all shards, too.
    assert (len(requests.to("/cut/shards?", "POST")), to_each(requests)) == (1, 0)


@pytest.mark.parametrize(
    "query", ["shards=0", "level=eventual&shards=0", "level=consistent&shards=0,x", "level=consistent&shards=0,0"]
)
def test_a_request_that_can_not_be_right_is_refused(table: ShardedTable, cluster: InProcessCluster, query: str) -> None:
    del table
    status, answer = cluster.nodes[0].request("POST", f"/v1/tables/d~0/cut/shards?{query}")
    assert (status, answer["error"]) == (400, "BadInput"), answer


def test_a_server_that_does_not_have_a_shard_says_so(table: ShardedTable, cluster: InProcessCluster) -> None:
    del table
    status, answer = cluster.nodes[0].request("POST", "/v1/tables/d~0/cut/shards?level=consistent&shards=0,7")
    assert (status, answer["error"]) == (404, "TableNotFound")
