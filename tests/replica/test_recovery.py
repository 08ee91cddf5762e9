"""Replicas that were away: within the limit they pull, beyond it they are given up for the log's sake, and recover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import HALF_BUILT, LOST, NOT_LOST, TableOutcome, drop_replica
from replitree.protocol.rescue.recover import NotSurvivor, Survivor, survive
from replitree.replica.perform.availability import State
from replitree.replica.perform.exchange import Exchange
from replitree.replica.perform.runner import Performer
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for
from tests.replica.longlife import (
    KEEP_MIN,
    TABLE,
    clean,
    entries,
    insert,
    is_lost,
    log_end,
    long_life,
    recoveries,
    wait_active,
)


@pytest.fixture
def cluster(long_lived: InProcessCluster) -> InProcessCluster:
    return long_lived


@contextmanager
def without_session(cluster: InProcessCluster, node: Node) -> Iterator[None]:
    """End a replica's session, and let it begin no other one."""
    reconnect = node.coordination.reconnect

    def refuse() -> None:
        raise CoordinationUnavailable("nobody answers")

    node.coordination.reconnect = refuse
    try:
        cluster.shared.expire(node.coordination.session_id)
        wait_for(lambda: node.table().availability.state is State.READ_ONLY, f"{node.name} has no session")
        yield
    finally:
        node.coordination.reconnect = reconnect


# --- within the limit, and beyond it ----------------------------------------------------------------------------------------


def test_a_replica_that_was_away_within_the_limit_only_pulls(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 8)
    cluster.wait_equal(list(range(80)))
    away_from = log_end(first)
    second.stop()
    insert(first, 100, 3)
    clean(first)
    assert is_lost(first, "r2") == NOT_LOST
    assert entries(first)[0] <= away_from  # what r2 has not pulled is there
    assert entries(first)[0] > 0
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(80), *range(100, 130)])
    assert recoveries(second) == 0


def test_a_replica_that_was_away_beyond_the_limit_is_given_up_and_recovers(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 2)
    cluster.wait_equal(list(range(20)))
    second.stop()
    insert(first, 100, 20)
    clean(first)
    assert is_lost(first, "r2") == LOST
    assert len(entries(first)) == KEEP_MIN  # however long it stays away
    second.restart()
    wait_active(second)
    assert is_lost(first, "r2") == NOT_LOST
    insert(second, 500, 1)
    cluster.wait_equal([*range(20), *range(100, 300), *range(500, 510)])
    cluster.wait_alike()
    assert recoveries(second) == 1
    clean(first)
    assert is_lost(first, "r2") == NOT_LOST


def test_a_replica_that_only_lost_its_session_recovers_without_a_restart(tmp_path: Path) -> None:
    cluster = long_life(tmp_path)
    first, second = cluster.nodes
    insert(first, 0, 1)
    cluster.wait_equal(list(range(10)))
    with without_session(cluster, second):
        insert(first, 100, 20)
        clean(first)
        assert is_lost(first, "r2") == LOST
        assert second.keys() == list(range(10))
    cluster.wait_equal([*range(10), *range(100, 300)])
    wait_active(second)
    assert recoveries(second) == 1
    cluster.close()


def test_a_new_replica_joins_a_table_whose_log_was_cleaned(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 12)
    cluster.wait_equal(list(range(120)))
    clean(first)
    assert entries(first)[0] > 0
    third = cluster.add("r3")
    wait_active(third)
    insert(third, 500, 1)
    cluster.wait_equal([*range(120), *range(500, 510)])
    assert recoveries(third) == 1
    assert second.table().availability.state is State.ACTIVE


# --- what the source does not have ------------------------------------------------------------------------------------------


def test_what_was_dropped_meanwhile_does_not_come_back_and_is_kept_aside(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 3)
    cluster.wait_equal(list(range(30)))
    second.stop()
    first.post("drop", {"partition": "10"})
    insert(first, 100, 15)
    clean(first)
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(10), *range(20, 30), *range(100, 250)])
    cluster.wait_alike()
    kept = second.get("detached")["detached"]
    assert [(part["name"].split("_")[0], part["rows"]) for part in kept] == [("10", 10)]


def test_an_insert_that_only_the_lost_replica_has_stays_and_reaches_the_others(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.nodes

    def none(fetches: Any) -> Any:
        return tuple(fx.NotFetched(fetch.part, "the cable is cut") for fetch in fetches)

    with monkeypatch.context() as cut:
        cut.setattr(first.table().exchange, "fetch", none)
        insert(second, 500, 1)
        wait_for(lambda: first.table().progress.queue_length() == 1, "r1 has pulled it")
        second.stop()
        insert(first, 100, 12)
        clean(first)
        assert is_lost(first, "r2") == LOST
        second.restart()
        wait_active(second)
        wait_for(lambda: second.keys() == [*range(100, 220), *range(500, 510)], "r2 has its own rows and the others")
        wait_for(lambda: first.keys() == list(range(100, 220)), "r1 has its own rows")
    cluster.wait_equal([*range(100, 220), *range(500, 510)])
    assert second.table().store.detached() == ()


def test_parts_that_are_here_already_are_not_fetched_again(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.nodes
    for node in cluster.nodes:
        node.post("merges/pause")
    insert(first, 0, 10)
    cluster.wait_equal(list(range(100)))
    second.stop()
    insert(first, 200, 15)
    clean(first)
    fetched: list[str] = []
    fetch_from = Exchange._fetch_from  # noqa: SLF001 - what really goes over the network

    def counted(self: Exchange, source: str, fetches: Any) -> Any:
        fetched.extend(fetch.part for fetch in fetches)
        return fetch_from(self, source, fetches)

    monkeypatch.setattr(Exchange, "_fetch_from", counted)
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(100), *range(200, 350)])
    assert {part.split("_")[0] for part in fetched} == {str(200 + 10 * number) for number in range(15)}


# --- while it lasts ---------------------------------------------------------------------------------------------------------


def test_a_recovering_replica_says_so_and_shows_no_half_of_anything(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.nodes
    insert(first, 0, 2)
    cluster.wait_equal(list(range(20)))
    second.stop()
    insert(first, 100, 20)
    clean(first)

    def none(_: Exchange, fetches: Any) -> Any:
        return tuple(fx.NotFetched(fetch.part, "the cable is cut") for fetch in fetches)

    with monkeypatch.context() as cut:
        cut.setattr(Exchange, "fetch", none)
        second.restart()
        wait_for(lambda: "no replica could send" in str(second.table().status()["reason"]), "the reason is named")
        assert second.table().availability.state is State.RECOVERING
        assert "r1" in str(second.table().status()["reason"])
        assert second.request("GET", "/health")[1]["state"] == "recovering"
        status, answer = second.request("GET", "/v1/tables/t/snapshot")
        assert (status, answer["error"]) == (503, "ReplicaUnavailable")
        assert "recovering" in answer["message"]
        assert second.insert(rows(900))[1]["error"] == "ReadOnly"
        insert(first, 600, 20)
        clean(first)
        pointer = second.coordination.perform(fx.Get(layout.log_pointer(Replica(TABLE, "r2"))))
        assert entries(first)[0] <= int(pointer.value)  # the log is kept for who recovers
        assert is_lost(first, "r2") == HALF_BUILT
    wait_active(second)
    cluster.wait_equal([*range(20), *range(100, 300), *range(600, 800)])
    clean(first)
    assert len(entries(first)) == KEEP_MIN


STEPS = 38
"""As many effects as the recovery of the test below has, or a few more."""

COMMITS = (10, 19, 24)
"""After its first commit, after the fetching, and between what it takes back and what it hides."""


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step in COMMITS else pytest.mark.slow) for step in range(1, STEPS + 1)]
)
def test_a_crash_at_any_step_of_a_recovery_is_made_good_by_the_next_one(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = long_life(tmp_path)
    first, second = cluster.nodes
    insert(first, 0, 3)
    cluster.wait_equal(list(range(30)))
    second.stop()
    first.post("drop", {"partition": "20"})
    insert(first, 100, 12)
    clean(first)
    state = {"recovering": False, "done": 0, "cut": False}
    perform = Performer.perform

    def crashing(self: Performer, effect: Any) -> Any:
        """Do nothing any more from one step of the recovery on, as if the process had gone."""
        if self is second.table().performer:
            state["recovering"] |= second.table().availability.state is State.RECOVERING
            state["done"] += state["recovering"]
            if state["done"] > step:
                state["cut"] = True
                raise CoordinationUnavailable("the process is gone")
        return perform(self, effect)

    with monkeypatch.context() as crash:
        crash.setattr(Performer, "perform", crashing)
        second.restart()
        wait_for(lambda: state["cut"] or second.table().availability.state is State.ACTIVE, "cut, or done before")
        second.stop()
    if step < 28:
        assert state["cut"]
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(20), *range(100, 220)])
    cluster.wait_alike()
    assert is_lost(first, "r2") == NOT_LOST
    assert second.table().store.stagings() == ()
    cluster.close()


def test_a_source_that_becomes_lost_meanwhile_is_left_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = long_life(tmp_path, 3)
    first, _, third = cluster.nodes
    insert(first, 0, 2)
    cluster.wait_equal(list(range(20)))
    third.stop()
    insert(first, 100, 12)
    clean(first)
    assert is_lost(first, "r3") == LOST
    seen: list[str] = []
    fetch = Exchange.fetch

    def marked(self: Exchange, fetches: Any) -> Any:
        if not seen and self is third.table().exchange:  # only the recovering replica's
            seen.append(str(third.table().status()["reason"]))
            cluster.admin.perform(fx.Commit(fx.Set(layout.is_lost(Replica(TABLE, "r1")), LOST, fx.ANY_VERSION)))
        return fetch(self, fetches)

    monkeypatch.setattr(Exchange, "fetch", marked)
    third.restart()
    wait_active(third)
    assert "from r1" in seen[0]
    assert (is_lost(third, "r1"), is_lost(third, "r3")) == (LOST, NOT_LOST)
    assert third.keys() == [*range(20), *range(100, 220)]
    cluster.close()


def test_a_session_that_ends_during_a_recovery_costs_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = long_life(tmp_path)
    first, second = cluster.nodes
    insert(first, 0, 2)
    cluster.wait_equal(list(range(20)))
    second.stop()
    insert(first, 100, 12)
    clean(first)
    expired: list[int] = []
    fetch = Exchange.fetch

    def expiring(self: Exchange, fetches: Any) -> Any:
        if not expired:
            expired.append(second.coordination.session_id)
            cluster.shared.expire(expired[0])
        return fetch(self, fetches)

    monkeypatch.setattr(Exchange, "fetch", expiring)
    second.restart()
    cluster.wait_equal([*range(20), *range(100, 220)])
    wait_active(second)
    assert second.coordination.session_id != expired[0]
    assert is_lost(first, "r2") == NOT_LOST
    cluster.close()


def test_parts_come_from_whoever_has_them_when_the_source_is_down(tmp_path: Path) -> None:
    cluster = long_life(tmp_path, 3)
    first, second, third = cluster.nodes
    insert(first, 0, 2)
    cluster.wait_equal(list(range(20)))
    third.stop()
    insert(first, 100, 12)
    clean(first)
    wait_for(lambda: second.keys() == [*range(20), *range(100, 220)], "r2 has all")
    first.stop()
    first.stop_listening()
    cluster.nodes.remove(first)
    third.restart()
    wait_active(third)
    assert third.keys() == [*range(20), *range(100, 220)]
    cluster.close()


def test_large_parts_come_in_ranges_from_several_replicas_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replitree.replica.http.http_exchange.BUNDLE_INLINE_BYTES", 1000)
    monkeypatch.setattr("replitree.replica.perform.exchange.RANGE_BYTES", 1024)
    cluster = long_life(tmp_path, 3)
    first, _, third = cluster.nodes
    for node in cluster.nodes:
        node.post("merges/pause")
    third.stop()
    for number in range(12):
        assert first.insert(rows(1000 * number, 10))[0] == 200
    wait_for(lambda: len(cluster.nodes[1].keys()) == 120, "r2 has all")
    clean(first)
    asked: set[str] = set()
    fetch_from = Exchange._fetch_from  # noqa: SLF001 - who is really asked

    def noted(self: Exchange, source: str, fetches: Any) -> Any:
        asked.add(source)
        return fetch_from(self, source, fetches)

    monkeypatch.setattr(Exchange, "_fetch_from", noted)
    third.restart()
    wait_active(third)
    assert asked == {"r1", "r2"}
    assert third.contents() == first.contents()
    assert third.table().store.fetches() == ()
    cluster.close()


def test_a_full_disk_stops_a_recovery_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = long_life(tmp_path)
    first, second = cluster.nodes
    second.stop()
    insert(first, 100, 12)
    clean(first)
    with monkeypatch.context() as full:
        full.setattr(Exchange, "fetch", lambda _, fetches: tuple(fx.StoreFailed("no space") for _ in fetches))
        full.setattr("replitree.storage.disk.store.PartStore.free_bytes", lambda _: 0)
        second.restart()
        wait_for(lambda: "disk full" in str(second.table().status()["reason"]), "the reason is named")
        assert second.table().availability.state is State.READ_ONLY
    wait_active(second)
    cluster.wait_equal(list(range(100, 220)))
    cluster.close()


# --- no good replica is left ------------------------------------------------------------------------------------------------


def lose_all(cluster: InProcessCluster) -> None:
    """Stop all replicas, and mark them lost, as a disaster or an operator may have."""
    for node in cluster.nodes:
        node.stop()
    for node in cluster.nodes:
        cluster.admin.perform(fx.Commit(fx.Set(layout.is_lost(Replica(TABLE, node.name)), LOST, fx.ANY_VERSION)))


def test_when_all_are_lost_they_wait_for_an_operator_who_chooses_one(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 3)
    cluster.wait_equal(list(range(30)))
    lose_all(cluster)
    for node in cluster.nodes:
        node.restart()
        wait_for(lambda node=node: node.table().availability.state is State.READ_ONLY, f"{node.name} waits")  # type: ignore[misc]
        assert "replitree recover t --from" in str(node.table().status()["reason"])
    assert isinstance(cluster.run(survive(TABLE, "r9")), NotSurvivor)
    wait_for(lambda: isinstance(cluster.run(survive(TABLE, "r1")), Survivor), "r1 is the good one")
    refused = cluster.run(survive(TABLE, "r2"))
    assert isinstance(refused, NotSurvivor)
    assert "r1" in refused.reason
    for node in (first, second):
        wait_active(node)
    insert(second, 100, 1)
    cluster.wait_equal([*range(30), *range(100, 110)])


# --- a replica that is taken out --------------------------------------------------------------------------------------------


def test_a_replica_that_was_dropped_comes_back_as_a_new_one(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 3)
    cluster.wait_equal(list(range(30)))
    assert cluster.run(drop_replica(Replica(TABLE, "r2"))) is TableOutcome.ACTIVE
    second.stop()
    assert cluster.run(drop_replica(Replica(TABLE, "r1"))) is TableOutcome.ACTIVE
    assert cluster.run(drop_replica(Replica(TABLE, "r2"))) is TableOutcome.DONE
    assert cluster.run(drop_replica(Replica(TABLE, "r2"))) is TableOutcome.MISSING
    insert(first, 100, 12)
    clean(first)
    assert len(entries(first)) == KEEP_MIN
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(30), *range(100, 220)])
    cluster.wait_alike()


def test_the_last_good_replica_is_not_dropped(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 1)
    cluster.wait_equal(list(range(10)))
    second.stop()
    insert(first, 100, 12)
    clean(first)
    first.stop()
    assert cluster.run(drop_replica(Replica(TABLE, "r1"))) is TableOutcome.LAST_GOOD
    assert cluster.run(drop_replica(Replica(TABLE, "r2"))) is TableOutcome.DONE


def test_a_drop_that_was_cut_off_blocks_no_cleaning_and_its_replica_may_come_back(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 3)
    cluster.wait_equal(list(range(30)))
    second.stop()
    procedure, outcome = drop_replica(Replica(TABLE, "r2")), None
    commits = 0
    while commits < 2:  # marked, and its queue or its parts are gone
        effect: Any = procedure.send(outcome)
        outcome = cluster.admin.perform(effect)
        commits += isinstance(effect, fx.Commit)
    procedure.close()
    insert(first, 100, 12)
    clean(first)
    assert len(entries(first)) == KEEP_MIN
    second.restart()
    wait_active(second)
    cluster.wait_equal([*range(30), *range(100, 220)])
    cluster.wait_alike()


def test_a_process_whose_replica_was_dropped_meanwhile_adds_it_anew(tmp_path: Path) -> None:
    cluster = long_life(tmp_path)
    first, second = cluster.nodes
    insert(first, 0, 3)
    cluster.wait_equal(list(range(30)))
    with without_session(cluster, second):
        assert cluster.run(drop_replica(Replica(TABLE, "r2"))) is TableOutcome.DONE
        insert(first, 100, 12)
        clean(first)
    cluster.wait_equal([*range(30), *range(100, 220)])
    wait_active(second)
    insert(second, 500, 1)
    cluster.wait_equal([*range(30), *range(100, 220), *range(500, 510)])
    cluster.close()
