"""A fetch that is broken off again and again leaves nothing behind: no object, no node, no folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.memory import MemoryCoordination
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.replica.perform.exchange import Exchange, Peer
from replitree.storage.disk.store import PartStore
from replitree.storage.files.folder_walk import below
from replitree.storage.objects import open_store
from replitree.storage.shares.shares import ShareObjects
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, rows, wait_for
from tests.replica.test_sharing import TABLE, SharedCluster
from tests.shared.s3_proxy import CALM, Ill, Mix, S3Proxy
from tests.shared.stores import FOLDER, on

ROUNDS = 1000
THIRD = Replica(TABLE, "r3")
BROKEN = Mix(((Ill.CUT_ANSWER, 0.4), (Ill.LOSE_ANSWER, 0.4), (Ill.LOSE_REQUEST, 0.4)))
"""One of them befalls every request."""


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def nodes_below(cluster: InProcessCluster, path: str = "/") -> int:
    """Count the nodes of coordination."""
    names: tuple[str, ...] = cluster.admin.perform(fx.Children(path)) or ()
    return len(names) + sum(nodes_below(cluster, f"{path.rstrip('/')}/{name}") for name in names)


def objects_of(cluster: SharedCluster) -> set[str]:
    return {found.key for found in cluster.objects.list("")}


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in below(folder)}


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
    store.shared.objects = ShareObjects(lambda: open_store(store_url), shared.definition.table_id)
    exchange = Exchange(store, lambda _name, _fresh: Peer(f"127.0.0.1:{proxy.port}", TOKEN, "t"), 1, shares=True)
    fetch = fx.FetchPart(part, content, ("r1",))

    def fetched() -> bool:
        (outcome,) = exchange.fetch([fetch])
        return isinstance(outcome, fx.Fetched)

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


class BrokenOff(MemoryCoordination):
    """A session of r3: what registers a part of it is refused, or the session ends first, a thousand times."""

    def __init__(self, cluster: SharedCluster) -> None:
        super().__init__(cluster.shared)
        self._cluster = cluster
        self.left = ROUNDS
        self.seen: list[object] = []
        """What there was at the first of these commits, and at the last one."""

    @override
    def perform(self, effect: Any) -> Any:
        parts = f"{layout.parts(THIRD)}/"
        if (
            self.left
            and isinstance(effect, fx.Commit)
            and any(each.path.startswith(parts) for each in effect.operations)
        ):
            if self.left in (1, ROUNDS):
                self.seen.append(self._look())
            self.left -= 1
            asked_in = self.session_id
            self._break_off(ends=self.left % 2 == 0)
            # Another thread may have begun a new session meanwhile, in which the commit would be applied.
            return self.shared.commit(asked_in, effect)
        return super().perform(effect)

    def _look(self) -> object:
        """Count the nodes, but for candidates of the election, which come and go; name objects and files."""
        cluster = self._cluster
        nodes = nodes_below(cluster) - nodes_below(cluster, layout.leader_election(TABLE))
        return nodes, objects_of(cluster), files_below(cluster.nodes[2].table().store.root)

    def _break_off(self, *, ends: bool) -> None:
        """End the session, or give the replica another epoch, as fsck does."""
        if ends:
            self.shared.expire(self.session_id)
        else:
            host = self._cluster.admin.perform(fx.Get(layout.host(THIRD)))
            applied = self._cluster.admin.perform(fx.Commit(fx.Set(layout.host(THIRD), host.value, host.version)))
            assert isinstance(applied, fx.Applied)


@pytest.mark.slow
@on(FOLDER)
def test_a_take_over_that_is_broken_off_a_thousand_times_leaves_nothing(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    wait_for(lambda: second.contents() == first.contents() != {}, "the other one has it")
    shared.wait_settled()
    broken = BrokenOff(shared)
    third = Node("r3", shared.folder, lambda: broken, old_parts_lifetime_s=0.0)
    shared.nodes.append(third)
    third.start()
    wait_for(lambda: not broken.left, lambda: f"{broken.left} more times; {third.get('status')}", 600.0)
    shared.wait_equal(list(range(10)))
    at_first, at_last = broken.seen
    assert at_last == at_first
    (owners,) = shared.owners().values()
    assert {owner.split()[0] for owner in owners} == {"r1", "r2", "r3"}
    shared.wait_settled()
