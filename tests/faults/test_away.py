"""A slice of `tests.faults.away`: coordination goes away in five ways, with a short session timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.away import TABLE, WAYS, Away, rounds_of, slow
from tests.faults.cluster import FaultCluster
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SESSION_S = 3.0
STOP_S = 15.0
"""A drain alone takes 20 s when nothing ends it."""


@pytest.fixture
def away(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Away]:
    """Two replicas with a table, on as many servers as the parameter says."""
    with FaultCluster(tmp_path, 2, request.param, {"session_timeout_s": SESSION_S}) as cluster:
        table = cluster.connection.create_table(TABLE, "id bigint not null", order_by="id", wait_replicas=2)
        table.insert({"id": list(range(100))}, quorum=2)
        away = Away(cluster)
        wait_for(away.all_say(200), "every replica is active")
        yield away


@pytest.mark.parametrize("away", [1], indirect=True)
def test_health_is_the_truth_without_coordination_and_a_server_stops_promptly(away: Away) -> None:
    rounds = [away.round(way) for way in ("closed", "closes", "silent")]
    assert slow(rounds, SESSION_S) == []
    assert away.health("r1")[1]["tables"] == {TABLE: "active"}
    away.begin("closes")
    began = time.monotonic()
    away.cluster.process("r2").stop()
    assert time.monotonic() - began < STOP_S
    # A table is read-only as soon as its connection breaks; the server says why only once a session's time has passed.
    wait_for(lambda: "reason" in away.health("r1")[1], "the other one says why")
    status, answer = away.health("r1")
    assert (status, answer["state"]) == (503, "read_only")
    assert "nothing was heard of coordination for 3 s" in answer["reason"]
    away.end("closes")


@pytest.mark.parametrize("away", [3], indirect=True)
def test_replicas_are_back_by_themselves_after_a_lost_quorum_and_after_all_data_were_lost(away: Away) -> None:
    assert slow([away.round(way) for way in ("no-quorum", "wiped")], SESSION_S) == []


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_be_away_several_times(tmp_path: Path, way: str) -> None:
    assert slow(rounds_of(tmp_path, way, 3, SESSION_S), SESSION_S) == []
