"""A replica claims what it can prove now: while coordination is silent it is read-only, and it goes on under the same epoch."""

from __future__ import annotations

import time

import pytest

from replitree.replica.perform.availability import State
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for

SESSION_S = 0.4

LONG_S = 30.0
"""Seconds of a session once coordination is heard again: a busy machine must not make a replica read-only a second time."""


@pytest.fixture
def silent(cluster: InProcessCluster) -> Node:
    """A replica that has heard nothing of coordination for longer than its session lives."""
    first = cluster.nodes[0]
    first.coordination.session_timeout_s = SESSION_S
    first.coordination.suspend()
    wait_for(lambda: first.table().availability.state is State.READ_ONLY, "read-only")
    return first


def test_a_silent_coordination_makes_a_replica_read_only_at_once(silent: Node, cluster: InProcessCluster) -> None:
    status, health = silent.request("GET", "/health")
    assert (status, health["state"], health["tables"]) == (503, "read_only", {"t": "read_only"})
    assert "nothing was heard of coordination for 0.4 s" in health["reason"]
    began = time.monotonic()
    status, answer = silent.insert(rows(0))
    assert (status, answer["error"]) == (503, "ReadOnly")
    assert "nothing was heard of coordination" in answer["message"]
    assert time.monotonic() - began < 5.0, "it is refused without a question to coordination"
    assert cluster.nodes[1].request("GET", "/health")[0] == 200


def test_a_replica_goes_on_under_its_epoch_when_coordination_is_heard_again(
    silent: Node, cluster: InProcessCluster
) -> None:
    epoch = silent.table().performer.epoch.current
    silent.coordination.resume()
    silent.coordination.session_timeout_s = LONG_S
    wait_for(lambda: silent.request("GET", "/health")[0] == 200, "healthy again")
    assert silent.table().availability.active_epoch() == epoch
    assert silent.insert(rows(0))[0] == 200
    cluster.wait_equal(list(range(10)))


def test_a_server_without_tables_says_that_coordination_is_silent(tmp_path_factory: pytest.TempPathFactory) -> None:
    cluster = InProcessCluster(tmp_path_factory.mktemp("empty"), 1)
    (node,) = cluster.nodes
    assert node.request("GET", "/health")[0] == 200
    node.coordination.session_timeout_s = SESSION_S
    node.coordination.suspend()
    wait_for(lambda: node.request("GET", "/health")[0] == 503, "not healthy")
    node.coordination.resume()
    wait_for(lambda: node.request("GET", "/health")[0] == 200, "healthy again")
    cluster.close()


def test_a_session_that_ended_meanwhile_costs_one_epoch(silent: Node, cluster: InProcessCluster) -> None:
    epoch = silent.table().performer.epoch.current
    assert epoch is not None
    cluster.shared.expire(silent.coordination.session_id)
    silent.coordination.session_timeout_s = LONG_S
    wait_for(lambda: silent.table().availability.active_epoch() == epoch + 1, "active under the next epoch")
    wait_for(lambda: silent.request("GET", "/health")[0] == 200, "healthy again")
    assert silent.table().availability.active_epoch() == epoch + 1
