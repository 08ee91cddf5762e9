"""A Python process of Spark uses one connection for the jobs that it plans and commits, one after the other."""

from __future__ import annotations

import pytest
from typing_extensions import override

from replitree.client.connection import Connection
from replitree.client.transport.access import TOKEN_VARIABLE, Access
from replitree.spark.session import kept_connection as kept
from replitree.spark.session.kept_connection import KEPT_MAX, kept_connection


class Opened(Connection):
    """A connection that says whether it was closed."""

    closed = False

    @override
    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    monkeypatch.setattr(kept, "_kept", {})
    monkeypatch.setattr("replitree.client.connection.Connection", Opened)


def job(server: int = 1) -> Opened:
    with kept_connection({"url": f"zk://host{server}:2181/lake"}) as connection:
        assert isinstance(connection, Opened)
        assert not connection.closed
        return connection


def test_the_next_job_has_the_connection_of_the_last_one() -> None:
    first = job()
    assert job() is first
    assert job(2) is not first
    assert job() is first
    assert not first.closed


def test_a_job_that_fails_ends_its_connection() -> None:
    first = job()
    with pytest.raises(OSError, match="lost"), kept_connection({"url": "zk://host1:2181/lake"}):
        raise OSError("lost")
    assert first.closed
    assert job() is not first


def test_jobs_that_run_at_once_have_connections_of_their_own() -> None:
    with kept_connection({"url": "zk://host1:2181/lake"}) as outer:
        inner = job()
        assert inner is not outer
    assert inner.closed
    assert job() is outer


def test_another_token_makes_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    first = job()
    monkeypatch.setenv(TOKEN_VARIABLE, "another")
    assert job().access == Access("zk://host1:2181/lake", "another")
    assert job() is not first


def test_the_connections_that_were_used_longest_ago_are_closed() -> None:
    found = [job(server) for server in range(1, KEPT_MAX + 3)]
    assert [each.closed for each in found] == [True, True, *[False] * KEPT_MAX]
