"""A part that is on a replica's disk and not registered: nobody is told its share, since nobody could own it yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.protocol.core.effects import Commit, Create
from replitree.replica.http import http_exchange
from replitree.replica.perform.exchange import FRAME
from tests.replica.inprocess import Node, rows, wait_for
from tests.replica.test_sharing import SharedCluster

AS_SHARE = "send_s3_metadata=1&s3_metadata_version=1"


class Holding(MemoryCoordination):
    """Holds back the commits that register parts of `r1`, until `go`."""

    def __init__(self, shared: SharedTree) -> None:
        super().__init__(shared)
        self.go, self.held = threading.Event(), list[str]()

    @override
    def perform(self, effect: Any) -> Any:
        if isinstance(effect, Commit) and not self.go.is_set():
            created = [each.path for each in effect.operations if isinstance(each, Create)]
            if parts := [path.rpartition("/")[2] for path in created if "/r1/parts/" in path]:
                self.held += parts
                assert self.go.wait(60.0)
        return super().perform(effect)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedCluster]:
    """One replica whose commits can be held back, and a part that it has not registered yet."""
    cluster = SharedCluster(tmp_path, f"file://{tmp_path}/objects", 1)
    (node,) = cluster.nodes
    node._connect = lambda: Holding(cluster.shared)  # noqa: SLF001 - there is no other way to give a node a session
    node.restart()
    wait_for(lambda: cluster.is_active(node), "it is active again")
    yield cluster
    node.coordination.go.set()
    cluster.close()


@pytest.fixture
def begun(shared: SharedCluster) -> Iterator[tuple[Node, str]]:
    (node,) = shared.nodes
    with ThreadPoolExecutor(1) as pool:
        inserted = pool.submit(node.insert, rows(0))
        wait_for(lambda: node.coordination.held, "the part is to be registered")
        yield node, node.coordination.held[0]
        node.coordination.go.set()
        assert inserted.result(60)[0] == 200


def test_no_share_is_told_before_it_is_registered(begun: tuple[Node, str]) -> None:
    node, part = begun
    assert node.table().store.has_part(part)
    path = f"/v1/tables/t/bundle?part={part}"
    status, answer = node.request("GET", f"{path}&{AS_SHARE}")
    (head,) = FRAME.unpack(answer[: FRAME.size])
    assert (status, b'"shared": true' in answer) == (200, False)
    assert len(answer) == FRAME.size + head, "no manifest and no data: as of a part that is not here"
    node.coordination.go.set()
    wait_for(lambda: part in node.contents(), "it is registered")
    status, answer = node.request("GET", f"{path}&{AS_SHARE}")
    assert (status, b'"shared": true' in answer) == (200, True)


def test_who_asks_at_the_moment_of_registration_is_told(
    begun: tuple[Node, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, part = begun
    monkeypatch.setattr(http_exchange, "REGISTERED_S_MAX", 30.0)
    waits = threading.Event()
    changed = node.table().progress.changed
    wait = changed.wait_for

    def tell(*how: Any) -> bool:
        waits.set()
        return bool(wait(*how))

    monkeypatch.setattr(changed, "wait_for", tell)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(node.request, "GET", f"/v1/tables/t/bundle?part={part}&{AS_SHARE}")
        assert waits.wait(60)
        assert not asked.done()
        node.coordination.go.set()
        status, answer = asked.result(60)
    assert (status, b'"shared": true' in answer) == (200, True)
