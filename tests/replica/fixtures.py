"""The fixtures of tests that share one in-process cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.connection import Connection
from tests.replica.inprocess import InProcessCluster, Node
from tests.waiting import wait_for


def hosted_everywhere(cluster: InProcessCluster, *names: str) -> list[tuple[Node, str]]:
    """Wait until all replicas host some tables, as an insert with a quorum needs it; return each replica with each table."""
    hosted = [(node, name) for node in cluster.nodes for name in names]
    wait_for(lambda: all(cluster.is_active(*each) for each in hosted), "all replicas host the tables")
    return hosted


def cluster_with_clock(folder: Path, **settings: Any) -> InProcessCluster:
    """Return a cluster whose coordination has the time of its replicas: a change feed is kept by both clocks."""
    made = InProcessCluster(folder, **settings)
    made.shared.now_ms = int(1_000 * time.time())
    return made


def cluster_and_connection(**settings: Any) -> tuple[Any, Any]:
    """Return two fixtures: a cluster for all tests of a module, and a connection to it for each of them.

    The tables are dropped after each test; `settings` are those of the replicas.
    Use: ``cluster, connection = cluster_and_connection()``.
    """

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
        made = InProcessCluster(tmp_path_factory.mktemp("cluster"), **settings)
        yield made
        made.close()

    @pytest.fixture
    def connection(cluster: InProcessCluster) -> Iterator[Connection]:
        made = cluster.connect()
        yield made
        for name in made.tables():
            # A table that a view needs can't be dropped.
            for view in made.table(name).views():
                made.table(name).drop_view(view.name)
        for name in made.tables():
            made.drop_table(name)
        made.close()

    return cluster, connection


__all__ = ["cluster_and_connection"]
