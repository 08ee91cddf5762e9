"""Cuts over HTTP: what replicas of two tables have seen, and snapshots of both at one transaction."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.tree import Tree
from replitree.errors import CoordinationUnavailable, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.sharded.cut import Cut, EnsembleValue, cut_of, ensemble, parse_cut
from replitree.replica.perform.progress import Progress
from replitree.replica.table.cuts import Cuts
from tests.replica.inprocess import ROOT, InProcessCluster, Node, rows

T = TypeVar("T")
TABLES = ("t", "u")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas, each with two tables, which stand for the shards of one."""
    cluster = InProcessCluster(tmp_path)
    for table in TABLES:
        cluster.create_table(table)
    yield cluster
    cluster.close()


def read(node: Node, table: str, at: object, **query: object) -> tuple[int, Any]:
    """Ask a replica for a snapshot at a cut."""
    return node.request("GET", f"/v1/tables/{table}/cut/snapshot?{urlencode({'at': str(at), **query})}")


def rows_at(node: Node, table: str, at: object, **query: object) -> int:
    """How many rows a table has at a cut."""
    status, body = read(node, table, at, wait_s=20, **query)
    assert status == 200, body
    return sum(part["manifest"]["rows"] for part in body["parts"])


def consistent(cluster: InProcessCluster, last: Cut | None = None) -> Cut:
    """Return the cut of a consistent read, which asks another replica for each table."""
    # The second answer knows of all that the first one was told.
    for node in cluster.nodes:
        node.get("cut")
    nodes = zip(cluster.nodes, TABLES, strict=True)
    found = cut_of([parse_cut(node.get("cut", table=table, wait_s=20)["cut"]) for node, table in nodes], last)
    assert isinstance(found, Cut)
    return found


def test_both_tables_are_shown_at_one_moment_at_whichever_replica(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    cuts = [consistent(cluster)]
    for number, table in enumerate(("t", "u", "t", "u")):
        assert first.insert(rows(10 * number), table=table)[0] == 200
        cuts.append(consistent(cluster, cuts[-1]))
    assert cuts == sorted(cuts, key=lambda each: each.zxid)
    for node in (first, second):
        shown = [tuple(rows_at(node, table, at) for table in TABLES) for at in cuts]
        assert shown == [(0, 0), (10, 0), (10, 10), (20, 10), (20, 20)]


def test_a_replica_that_has_not_heard_of_a_cut_says_so(cluster: InProcessCluster) -> None:
    at = consistent(cluster)
    status, body = read(cluster.nodes[0], "t", Cut(at.ensemble, type(at.zxid)(at.zxid + 1000)))
    assert (status, body["error"]) == (503, "ReplicaBehind")
    assert "has not heard of the cut" in body["message"]


def test_a_snapshot_at_a_cut_has_a_lease(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    assert first.insert(rows(0))[0] == 200
    status, body = read(first, "t", consistent(cluster), lease_s=30, wait_s=20)
    assert (status, body["lease_s"], body["index"]) == (200, 30, 1)
    assert first.request("DELETE", f"/v1/tables/t/leases/{body['lease']}")[0] == 200


def test_a_cut_of_another_ensemble_and_what_is_no_cut_are_refused(cluster: InProcessCluster) -> None:
    first, at = cluster.nodes[0], consistent(cluster)
    status, body = read(first, "t", Cut("5f0c", at.zxid))
    assert (status, body["error"]) == (410, "SnapshotExpired")
    assert "ensemble that was replaced" in body["message"]
    assert read(first, "t", "7")[0] == 400
    assert cluster.admin.perform(fx.Exists(ensemble(ROOT)))


def test_a_cut_whose_entries_were_removed_is_gone(cluster: InProcessCluster) -> None:
    first, old = cluster.nodes[0], consistent(cluster)
    for number in range(2):
        assert first.insert(rows(10 * number))[0] == 200
    cluster.clean(2)
    status, body = read(first, "t", old)
    assert (status, body["error"]) == (410, "SnapshotExpired")
    assert rows_at(first, "t", consistent(cluster)) == 20


def test_a_table_that_is_no_shard_has_no_clock(cluster: InProcessCluster) -> None:
    status, body = cluster.nodes[0].request("POST", "/v1/tables/t/cut")
    assert (status, body["error"]) == (503, "CoordinationUnavailable")
    assert "no shard of a sharded table" in body["message"]


def test_a_linearizable_cut_has_what_was_acknowledged_before(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = layout.sharded(ROOT, "d")
    for path in (f"{ROOT}/sharded", place):
        cluster.admin.perform(fx.Commit(fx.Create(path)))
    monkeypatch.setattr(layout, "sharded_of", lambda _: place)
    first, second = cluster.nodes
    before = consistent(cluster)
    assert first.insert(rows(0))[0] == 200
    at = parse_cut(first.post("cut", table="u")["cut"])
    assert at.zxid > before.zxid
    assert first.insert(rows(10))[0] == 200
    # This replica's session learns of the cut by the clock.
    assert rows_at(second, "t", at, clock=1) == rows_at(first, "t", at, clock=1) == 10
    assert parse_cut(second.post("cut")["cut"]).zxid > at.zxid


# --- questions that readers share -------------------------------------------------------------------------------------


class Asking:
    """Asks coordination about the cuts of one shard; a test lets the answers come."""

    def __init__(self) -> None:
        self.shared = SharedTree(Tree())
        self.coordination, self.gate, self.begun = MemoryCoordination(self.shared), Event(), Event()
        self.place = layout.sharded("/c", "d")
        paths = ("/c", "/c/tables", "/c/sharded", self.place)
        shard = TablePlace("/c/tables/d~0", incarnation="s0")
        for commit in (fx.Commit(*map(fx.Create, paths)), fx.Commit(*table_nodes(shard, b"", b"", encode_log(shard)))):
            assert isinstance(self.coordination.perform(commit), fx.Applied)
        self.questions = 0
        self.cuts = Cuts(lambda: self.coordination, Progress(Replica(shard, "r1")), self._asked)
        self.log = layout.log_create(shard)

    def _asked(self) -> None:
        self.questions += 1
        self.begun.set()
        assert self.gate.wait(60)

    def append(self) -> None:
        """Put an entry into the log."""
        self.coordination.perform(fx.Commit(fx.Create(self.log, sequential=True)))


def test_many_readers_of_cuts_share_a_question_that_begins_after_they_came() -> None:
    asking = Asking()

    async def ask(question: Callable[[], Coroutine[Any, Any, T]]) -> list[T]:
        asking.questions = 0
        asking.gate.clear()
        asking.begun.clear()
        first = asyncio.create_task(question())
        await asyncio.to_thread(asking.begun.wait, 10)
        others = [asyncio.create_task(question()) for _ in range(50)]
        await asyncio.sleep(0)  # no time passes: the others begin
        asking.append()  # acknowledged while the first question is on its way
        asking.gate.set()
        return [await first, *await asyncio.gather(*others)]

    ends = asyncio.run(ask(lambda: asking.cuts.end(10)))
    assert [each.end and each.end.index for each in ends[1:]] == [1] * 50
    assert asking.questions == 2
    cuts = asyncio.run(ask(lambda: asking.cuts.clock(10)))
    assert len({each.zxid for each in cuts[1:]}) == 1
    assert cuts[1].zxid > cuts[0].zxid
    assert asking.questions == 2
    # Nothing is asked for a cut that an earlier answer has seen; the clock tells of another one.
    asking.questions = 0
    known = asyncio.run(asking.cuts.known(Cut(ends[1].ensemble, Zxid(1)), 10, by_clock=False))
    assert (known.end is not None, asking.questions) == (True, 0)
    clocked = asyncio.run(asking.cuts.known(cuts[1], 10, by_clock=True))
    assert clocked.end is not None
    assert clocked.end.seen >= cuts[1].zxid
    assert asking.questions <= 1


def test_what_an_earlier_session_has_told_counts_for_nothing() -> None:
    asking = Asking()
    asking.gate.set()
    first = asyncio.run(asking.cuts.end(10))
    assert first.end is not None
    asking.coordination = MemoryCoordination(asking.shared)
    other = EnsembleValue("0ther")
    asking.coordination.perform(fx.Commit(fx.Set(ensemble("/c"), msgspec.json.encode(other), fx.ANY_VERSION)))
    with pytest.raises(SnapshotExpired, match="ensemble that was replaced"):
        asyncio.run(asking.cuts.known(Cut(first.ensemble, first.end.seen), 10, by_clock=False))
    assert asyncio.run(asking.cuts.end(10)).ensemble == "0ther"


def test_a_session_that_keeps_changing_tells_no_cut() -> None:
    asking = Asking()
    asking.gate.set()
    sessions = itertools.count()
    asking.cuts = Cuts(
        lambda: SimpleNamespace(session_id=next(sessions), perform=asking.coordination.perform),
        Progress(Replica(TablePlace("/c/tables/d~0"), "r1")),
    )
    with pytest.raises(CoordinationUnavailable, match="could not be read"):
        asyncio.run(asking.cuts.end(10))
