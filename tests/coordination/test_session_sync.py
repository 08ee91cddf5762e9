"""A session shows no older state than the session before it: its first request is a sync, also when its connection is lost."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.coordination.port import Connected, Suspended
from replitree.protocol.core import effects as fx
from tests.coordination.conftest import ZooKeeperProvider
from tests.coordination.proxy import Fault
from tests.coordination.waiting import Recorder, eventually

pytestmark = pytest.mark.system


def test_a_session_begins_with_a_sync_so_that_it_shows_no_older_state_than_the_one_before(
    real: ZooKeeperProvider,
) -> None:
    """A new client may be connected to a member that lags; ZooKeeper answers the requests of a session in their order."""
    zk = real.connect()
    zk.perform(fx.Get(real.root))
    zk.reconnect()
    zk.perform(fx.Commit(fx.Create(f"{real.root}/a")))
    assert real.proxy(zk).kinds == ["sync", "get", "sync", "commit"]


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE_REQUEST, Fault.CUT_BEFORE_ANSWER])
def test_a_session_whose_sync_was_not_answered_syncs_on_its_next_connection(
    real: ZooKeeperProvider, fault: Fault
) -> None:
    zk, heard = real.connect(), Recorder()
    proxy = real.proxy(zk)
    zk.perform(fx.Get(real.root))
    zk.add_listener(heard)
    proxy.victim, proxy.fault = "sync", fault
    zk.reconnect()
    heard.wait_for(Connected(), Suspended(), Connected())
    zk.perform(fx.Get(real.root))
    asked = proxy.kinds[2:]
    assert asked[0] == "sync"
    assert asked[-1] == "get"
    assert "get" not in asked[:-1]
    assert proxy.fault is Fault.NONE


def test_a_read_that_was_queued_without_a_connection_is_sent_after_the_sync(real: ZooKeeperProvider) -> None:
    zk = real.connect()
    proxy = real.proxy(zk)
    zk.perform(fx.Get(real.root))
    proxy.victim, proxy.fault = "sync", Fault.CUT_UNTIL_MENDED
    zk.reconnect()
    eventually(lambda: not zk.is_connected(), "the connection is lost")
    client: Any = zk._session._client  # noqa: SLF001 - a thread may hold it while the connection is lost

    def queue_a_read() -> bool:  # as a thread does that had the client before; kazoo fails those that come too early
        client.get_async(real.root)
        return bool(client._queue)  # noqa: SLF001

    eventually(queue_a_read, "a read is queued")
    proxy.mend()
    zk.perform(fx.Exists(real.root))
    asked = proxy.kinds[2:]
    assert (asked[0], asked[-1]) == ("sync", "exists")
    assert set(asked[1:-1]) == {"get"}
