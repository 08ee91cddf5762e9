"""A fetch that is broken off again and again leaves nothing behind: no object, no node, no folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.protocol.effects import Children, Fetched, FetchPart
from replitree.replica.exchange import Exchange, Peer
from replitree.storage.disk import PartStore
from replitree.storage.objects import open_store
from replitree.storage.objects.shares import ShareObjects
from tests.replica.inprocess import TOKEN, InProcessCluster, rows, wait_for
from tests.replica.test_sharing import SharedCluster
from tests.shared.s3_proxy import CALM, Ill, Mix, S3Proxy
from tests.shared.stores import FOLDER, on

ROUNDS = 1000
BROKEN = Mix(((Ill.CUT_ANSWER, 0.4), (Ill.LOSE_ANSWER, 0.4), (Ill.LOSE_REQUEST, 0.4)))
"""One of them befalls every request."""


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def nodes_below(cluster: InProcessCluster, path: str = "/") -> int:
    """Count the nodes of coordination."""
    names: tuple[str, ...] = cluster.admin.perform(Children(path)) or ()
    return len(names) + sum(nodes_below(cluster, f"{path.rstrip('/')}/{name}") for name in names)


def objects_of(cluster: SharedCluster) -> set[str]:
    return {found.key for found in cluster.objects.list("")}


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.slow
@on(FOLDER)
def test_a_fetch_that_is_broken_off_a_thousand_times_leaves_nothing(
    shared: SharedCluster, store_url: str, tmp_path: Path
) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    wait_for(lambda: second.contents() == first.contents() != {}, "the other one has it")
    shared.wait_settled()
    ((part, content),) = first.contents().items()
    proxy = S3Proxy(int(first.address.rpartition(":")[2]))
    store = PartStore(tmp_path / "third")
    store.objects = ShareObjects(lambda: open_store(store_url), shared.definition.table_id)
    exchange = Exchange(store, lambda _name, _fresh: Peer(f"127.0.0.1:{proxy.port}", TOKEN, "t"), 1, shares=True)
    fetch = FetchPart(part, content, ("r1",))

    def fetched() -> bool:
        (outcome,) = exchange.fetch([fetch])
        return isinstance(outcome, Fetched)

    proxy.mix = BROKEN
    assert not fetched()
    before = nodes_below(shared), objects_of(shared), files_below(store.root)
    for _ in range(ROUNDS):
        assert not fetched()
    assert (nodes_below(shared), objects_of(shared), files_below(store.root)) == before
    assert set(proxy.done) == {ill for ill, _ in BROKEN.shares}
    proxy.mix = CALM
    assert fetched()
    assert store.manifest(part).share_id in shared.shares()
    exchange.close()
    proxy.close()
