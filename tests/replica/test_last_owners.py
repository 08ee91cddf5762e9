"""Two last owners let go at once, many times: exactly one makes the garbage, once, and nothing is left.

The objects may be deleted by both: that may be repeated, and the commit that forgets the garbage is one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import Coordination, make_root
from replitree.protocol import layout
from replitree.protocol.effects import Applied, Children, Commit, Create, Delete, Epoch, Get, Procedure
from replitree.protocol.layout import Replica, Table
from replitree.protocol.letting_go import let_go_of
from replitree.protocol.run import run
from replitree.protocol.share import DeleteObjects, ObjectsGone, ShareId, work_off
from replitree.protocol.share_effects import HasPart, SharedPart, Sharer, SharesOf
from replitree.protocol.table_store import sharing_nodes
from replitree.storage.objects import open_store
from replitree.storage.objects.shares import ShareObjects
from tests.replica.inprocess import ROOT
from tests.shared.stores import BUCKET, FOLDER, on

ROUNDS = 1000
TABLE = Table(f"{ROOT}/tables/t")
PART = "all_0_0_0"
NAMES = ("r1", "r2")


class Owner:
    """A replica that has a part, and lets go of it."""

    def __init__(self, name: str, coordination: Coordination, objects: ShareObjects) -> None:
        self.sharer = Sharer(Replica(TABLE, name), "i1")
        self.coordination: Any = coordination
        self._objects = objects
        self.deleted: list[ShareId] = []
        self.applied: list[Commit] = []

    def perform(self, effect: object) -> object:
        match effect:
            case SharesOf():
                return ()
            case HasPart():
                return False
            case DeleteObjects(share):
                self._objects.delete(share)
                self.deleted.append(share)
                return ObjectsGone()
        outcome = self.coordination.perform(effect)
        if isinstance(effect, Commit) and isinstance(outcome, Applied):
            self.applied.append(effect)
        return outcome

    def run(self, procedure: Any) -> Any:
        return run(procedure, self.perform)

    def let_go(self, share: ShareId, both: Barrier) -> bool:
        """Let go; whether nothing is left to do."""
        both.wait(30.0)
        procedure: Procedure[bool] = let_go_of(self.sharer, Epoch(0), PART, share)
        return bool(self.run(procedure))


def count(owners: list[Owner], kind: type[Create | Delete], share: ShareId) -> int:
    """Count the commits that made a share garbage, or forgot it, and took place."""
    path = layout.garbage(TABLE, share)
    applied = (each for owner in owners for commit in owner.applied for each in commit.operations)
    return sum(isinstance(each, kind) and each.path == path for each in applied)


@pytest.mark.slow
@pytest.mark.timeout(900)
@on(FOLDER, at_night=(BUCKET,))
def test_two_last_owners_let_go_at_once(connect: Callable[[], Coordination] | None, store_url: str) -> None:
    tree = SharedTree()
    open_session = connect or (lambda: MemoryCoordination(tree))
    objects = ShareObjects(lambda: open_store(store_url), "t1")
    owners = [Owner(name, open_session(), objects) for name in NAMES]
    admin: Any = owners[0].coordination
    make_root(admin, f"{ROOT}/tables")
    nodes = [Create(TABLE.path), *sharing_nodes(TABLE), Create(layout.replicas(TABLE))]
    for owner in owners:
        replica = owner.sharer.replica
        nodes += [Create(layout.replica_path(replica)), Create(layout.host(replica)), Create(layout.parts(replica))]
    admin.perform(Commit(*nodes))
    with ThreadPoolExecutor(len(owners)) as pool:
        for number in range(ROUNDS):
            share = ShareId(f"{number:032x}")
            marks = [owner.sharer.mark(SharedPart(PART, share, is_new=False)) for owner in owners]
            admin.perform(Commit(Create(layout.share(TABLE, share)), *map(Create, marks)))
            objects.store.create(objects.key(share, "data-0.parquet"), b"rows")
            both = Barrier(len(owners))
            assert all(pool.map(lambda owner: owner.let_go(share, both), owners))  # noqa: B023 - called at once
            assert admin.perform(Get(layout.share(TABLE, share))) is None
            assert admin.perform(Children(layout.all_garbage(TABLE))) == (share,)
            done = [made for some in pool.map(lambda owner: owner.run(work_off(TABLE)), owners) for made in some]
            assert share in done
            assert (count(owners, Create, share), count(owners, Delete, share)) == (1, 1)
            assert {each for owner in owners for each in owner.deleted} == {share}
            for owner in owners:
                owner.applied.clear()
                owner.deleted.clear()
            assert admin.perform(Children(layout.all_garbage(TABLE))) == ()
    assert list(objects.store.list()) == []
    for owner in owners:
        owner.coordination.close()
