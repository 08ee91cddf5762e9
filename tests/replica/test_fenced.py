"""A replica whose epoch was taken by another process notices it at whatever it commits next, activates again, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.shares.letting_go import let_go_of_all
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.uploading import begin_attempts
from replitree.protocol.state.work_mark import take
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.availability import State
from replitree.replica.perform.runner import Performer
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for
from tests.replica.test_one_mistake import activations
from tests.replica.test_sharing import TABLE, SharedCluster
from tests.shared.stores import FOLDER, on

SHARE = ShareId("9" * 32)


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def fence(cluster: InProcessCluster, node: Node) -> None:
    """Take a replica's epoch from it, as `fsck` does."""
    path = layout.host(Replica(TABLE, node.name))
    host = cluster.admin.perform(fx.Get(path))
    assert isinstance(cluster.admin.perform(fx.Commit(fx.Set(path, host.value, host.version))), fx.Applied)


def insert(node: Node, _sharing: Sharing, _epoch: fx.Epoch) -> None:
    """Insert: first it is noted what is to be put into the store."""
    node.insert(rows(0), token="x")  # refused, unless another duty has noticed by then that the epoch is over


def begin_upload(node: Node, sharing: Sharing, epoch: fx.Epoch) -> None:
    """Begin an upload: it is noted what another process will put into the store."""
    assert not node.table().performer.run_plain(begin_attempts(sharing.sharer, epoch, (SHARE,)))


def take_work_mark(node: Node, sharing: Sharing, epoch: fx.Epoch) -> None:
    """Take the mark of a result that one replica makes for all."""
    node.table().performer.run_plain(take(sharing.sharer, epoch, "all_0_1_1"))


def release_share(node: Node, sharing: Sharing, epoch: fx.Epoch) -> None:
    """Release a share, as the duties do with what has left the disk."""
    node.table().performer.run_plain(let_go_of_all(sharing.sharer, epoch, "all_9_9_0", (SHARE,)))


@on(FOLDER)
@pytest.mark.parametrize("commits", [insert, begin_upload, take_work_mark, release_share])
def test_a_fenced_replica_activates_again_whatever_it_commits_first(
    shared: SharedCluster, commits: Callable[[Node, Sharing, fx.Epoch], None]
) -> None:
    first, _ = shared.nodes
    before, sharing, epoch = activations(first), first.table().sharing, first.table().availability.active_epoch()
    assert sharing is not None
    assert epoch is not None
    fence(shared, first)
    commits(first, sharing, epoch)
    wait_for(lambda: activations(first) > before, "activated again")
    wait_for(lambda: first.table().availability.state is State.ACTIVE, "active")
    assert first.insert(rows(0), token="x")[0] == 200
    shared.wait_equal(list(range(10)))
    assert activations(first) == before + 1


def test_a_refusal_is_reported_after_the_procedure_has_adopted_a_newer_epoch() -> None:
    """So an insert that renews its own epoch costs no activation: `TableReplica` compares the two epochs."""
    check = fx.Check("/t/replicas/r1/host", fx.Epoch(1))
    seen: list[fx.Epoch | None] = []

    class Refusing:
        def perform(self, _effect: object) -> fx.Refused:
            return fx.Refused(check, fx.Reason.BAD_VERSION)

    def note(_check: fx.Check) -> None:
        seen.append(performer.epoch.current)

    performer = Performer(lambda: cast("Any", Refusing()), lambda _: None, lambda *_: None, refused=note)

    def renewing() -> fx.Procedure[None]:
        yield fx.Commit(check)
        yield fx.AdoptEpoch(fx.Epoch(2))

    performer.run(renewing())
    assert seen == [fx.Epoch(2)]


def test_a_refusal_under_an_older_epoch_than_the_replica_has_costs_no_activation(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path)
    try:
        cluster.create_table()
        first, _ = cluster.nodes
        before, performer = activations(first), first.table().performer
        epoch = performer.epoch.current
        assert epoch is not None

        def late() -> fx.Procedure[object]:
            return (yield fx.Commit(fx.Check(layout.host(Replica(TABLE, first.name)), fx.Epoch(epoch - 1))))

        assert isinstance(performer.run_plain(late()), fx.Refused)
        assert first.insert(rows(0))[0] == 200
        cluster.wait_equal(list(range(10)))
        assert activations(first) == before
    finally:
        cluster.close()
