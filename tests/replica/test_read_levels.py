"""Read levels over HTTP: what a replica that is behind shows, what it waits for, and what it says when it can't show it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.errors import CoordinationUnavailable
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.state.read import end_of_log
from replitree.replica.perform.end_of_log import EndOfLog
from replitree.replica.perform.progress import Progress
from tests.replica.inprocess import ROOT, InProcessCluster, Node, as_stream, rows, wait_for
from tests.replica.lagging import LaggingCoordination

SOON_S = 0.2
"""Time enough for what is at hand, in seconds."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with the table `t`, whose sessions can lag; both have done what a start asks of coordination."""
    shared = SharedTree()
    cluster = InProcessCluster(tmp_path, connect=lambda: LaggingCoordination(shared))
    cluster.create_table()
    election = layout.leader_election(TablePlace(layout.table_path(ROOT, "t")))
    wait_for(lambda: len(cluster.admin.perform(fx.Children(election)) or ()) == 2, "both stand for leader")
    yield cluster
    cluster.close()


def read(node: Node, **query: object) -> tuple[int, Any]:
    """Ask a replica for a snapshot; return the status and the answer."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return node.request("GET", f"/v1/tables/t/snapshot?{text}")


def rows_of(body: dict[str, Any]) -> int:
    """How many rows a snapshot shows."""
    return sum(part["manifest"]["rows"] for part in body["parts"])


def test_a_linearizable_read_sees_what_was_acknowledged_though_its_replica_lags(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    second.coordination.lag()
    index = first.insert(rows(0))[1]["index"]
    status, stale = read(second, level="eventual")
    assert (status, stale["index"], rows_of(stale)) == (200, 0, 0)  # that is what the level is for
    status, stale = read(second, level="sequential")
    assert (status, stale["index"], rows_of(stale)) == (200, 0, 0)
    assert second.coordination.lags
    status, body = read(second, level="linearizable", wait_s=10)
    assert (status, body["level"], body["index"], rows_of(body)) == (200, "linearizable", index + 1, 10)


def test_a_replica_without_coordination_reads_no_longer_linearizable_and_says_so_in_time(
    cluster: InProcessCluster,
) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    cluster.wait_equal(list(range(10)))
    second.coordination.suspend()
    begun = time.monotonic()
    status, body = read(second, level="linearizable", wait_s=5)
    assert (status, body["error"]) == (503, "CoordinationUnavailable")
    assert time.monotonic() - begun < 4
    status, body = read(second, level="sequential", wait_s=5)
    assert (status, rows_of(body)) == (200, 10)
    second.coordination.resume()
    wait_for(lambda: read(second, level="linearizable", wait_s=5)[0] == 200, "readable again")


def test_a_replica_that_is_behind_waits_and_then_says_so(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    second.coordination.suspend()
    index = first.insert(rows(0))[1]["index"]
    for level in ("sequential", "eventual"):
        status, body = read(second, level=level, min_index=index + 1, wait_s=SOON_S)
        assert (status, body["error"]) == (503, "ReplicaBehind")
        assert f"up to {index}, and the read needs it up to {index + 1}" in body["message"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, second, level="sequential", min_index=index + 1, wait_s=20)
        second.coordination.resume()
        status, body = waiting.result()
    assert (status, body["index"], rows_of(body)) == (200, index + 1, 10)


def test_a_strict_read_shows_exactly_what_is_below_its_position(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for number in range(3):
        first.insert(rows(10 * number))
    _, body = read(first, level="linearizable")
    assert (body["index"], rows_of(body)) == (3, 30)
    assert first.post("optimize", {"final": True})["finished"] is True
    mutation = first.post("mutations", {"sql": "DELETE FROM t WHERE k < 5"})
    assert mutation["finished"] is True
    for node in (first, second):
        _, body = read(node, level="linearizable", wait_s=20)
        assert body["index"] == mutation["index"] + 1
        assert rows_of(body) == 25
        assert read(node, level="sequential")[1]["parts"] == body["parts"]


def test_a_mutation_reaches_an_insert_that_its_replica_has_not_seen(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    cluster.wait_equal(list(range(10)))
    second.coordination.lag()
    first.insert(rows(10))
    answer = second.post("mutations", {"sql": "DELETE FROM t WHERE k = 15"}, wait_s=20)
    assert (answer["index"], answer["finished"]) == (2, True)
    cluster.wait_equal([key for key in range(20) if key != 15])
    assert sorted(cluster.wait_alike()) == ["all_0_0_0", "all_1_1_0_2"]


def test_who_asks_for_an_insert_with_a_quorum_sees_it_though_it_is_settled_later(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for number in range(5):
        status, body = first.request("POST", "/v1/tables/t/insert?quorum=2", as_stream(rows(10 * number)))
        assert status == 200, body
        for node in (second, first):
            for level in ("sequential", "linearizable"):
                status, shown = read(node, level=level, min_index=body["index"] + 1, wait_s=20)
                assert (status, rows_of(shown)) == (200, 10 * (number + 1))
                assert shown["index"] > body["settled"] > body["index"]
                assert read(node, level=level, min_index=body["settled"] + 1, wait_s=20)[1]["parts"] == shown["parts"]


def test_levels_that_make_no_sense_are_refused(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    for query in ({"level": "exact"}, {"level": "linearizable", "as_of": 0}, {"level": "sequential", "min_index": "x"}):
        status, body = read(first, **query)
        assert (status, body["error"]) == (400, "BadInput")


# --- one question for many readers -------------------------------------------------------------------------------------------


@dataclass
class Asker:
    """A replica whose coordination answers when it is let."""

    coordination: Any
    replica: Replica
    gate: Event
    asked: Event
    questions: int = 0

    @property
    def performer(self) -> Any:
        return self

    def look_up(self, procedure: Any) -> Any:
        self.questions += 1
        self.asked.set()
        assert self.gate.wait(60)
        return run(
            procedure, lambda effect: 1 if isinstance(effect, fx.CurrentSession) else self.coordination.perform(effect)
        )


@pytest.fixture
def asker() -> Asker:
    coordination = MemoryCoordination()
    assert isinstance(coordination.perform(fx.Commit(fx.Create("/t"), fx.Create("/t/log"))), fx.Applied)
    return Asker(coordination, Replica(TablePlace("/t"), "r1"), Event(), Event())


def append(asker: Asker) -> None:
    """Put an entry into the log."""
    asker.coordination.perform(fx.Commit(fx.Create("/t/log/log-", sequential=True)))


def test_many_readers_share_a_question_that_begins_after_they_came(asker: Asker) -> None:
    async def ask() -> list[fx.LogIndex]:
        end = EndOfLog(asker.performer, Progress(asker.replica))
        first = asyncio.create_task(end.ask(10))
        await asyncio.to_thread(asker.asked.wait, 10)
        others = [asyncio.create_task(end.ask(10)) for _ in range(50)]
        await asyncio.sleep(0)  # no time passes: the others begin
        append(asker)  # acknowledged while the first question is on its way
        asker.gate.set()
        return await asyncio.gather(first, *others)

    answers = asyncio.run(ask())
    assert answers[1:] == [1] * 50
    assert asker.questions == 2


def test_a_reader_who_has_no_time_left_hears_that(asker: Asker) -> None:
    async def ask() -> None:
        end = EndOfLog(asker.performer, Progress(asker.replica))
        with pytest.raises(CoordinationUnavailable, match="could not ask coordination for the end of the log"):
            await end.ask(0.05)
        asker.gate.set()
        assert await end.ask(10) == 0

    asyncio.run(ask())


def test_a_session_that_keeps_changing_is_an_error(asker: Asker) -> None:
    sessions = iter(range(100))
    asker.gate.set()
    perform: Callable[[Any], Any] = lambda effect: (  # noqa: E731
        next(sessions) if isinstance(effect, fx.CurrentSession) else asker.coordination.perform(effect)
    )
    assert run(end_of_log(asker.replica.table), perform) is None
    asker.look_up = lambda procedure: run(procedure, perform)  # type: ignore[method-assign]
    with pytest.raises(CoordinationUnavailable, match="3 times the answer was lost, or the session has changed"):
        asyncio.run(EndOfLog(asker.performer, Progress(asker.replica)).ask(10))
