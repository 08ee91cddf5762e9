"""Two last owners let go at once, many times: exactly one makes the garbage, once, and nothing is left; each asks three times
at most.

The objects may be deleted by both: that may be repeated, and the commit that forgets the garbage is one.  Several tables have
such rounds at the same time, which takes less than one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import Coordination, make_root
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.letting_go import let_go_of
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ShareId, work_off
from replitree.protocol.shares.share_effects import HasPart, SharedPart, Sharer, SharesOf
from replitree.protocol.shares.table_store import sharing_nodes
from replitree.storage.objects import open_store
from replitree.storage.shares.shares import ShareObjects
from tests.replica.inprocess import ROOT
from tests.shared.stores import BUCKET, FOLDER, on

ROUNDS, TABLES = 1000, 5
PART = "all_0_0_0"
NAMES = ("r1", "r2")
REQUESTS_MAX = 3
"""What letting go costs the slower one of two: a list, a commit that is refused, a commit."""


class Owner:
    """A replica that has a part, and lets go of it."""

    def __init__(self, table: TablePlace, name: str, coordination: Coordination, objects: ShareObjects) -> None:
        self.sharer = Sharer(Replica(table, name), "i1")
        self.coordination: Any = coordination
        self._objects = objects
        self.deleted: list[ShareId] = []
        self.applied: list[fx.Commit] = []

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
        if isinstance(effect, fx.Commit) and isinstance(outcome, fx.Applied):
            self.applied.append(effect)
        return outcome

    def run(self, procedure: Any) -> Any:
        return run(procedure, self.perform)

    def let_go(self, share: ShareId, both: Barrier) -> bool:
        """Let go; whether nothing is left to do."""
        both.wait(30.0)
        procedure: fx.Procedure[bool] = let_go_of(self.sharer, fx.Epoch(0), PART, share)
        before = self._requests()
        is_done = bool(self.run(procedure))
        assert 1 < self._requests() - before <= REQUESTS_MAX
        return is_done

    def _requests(self) -> int:
        return sum(self.coordination.requests.values())


class Shared:
    """A table whose shares have two owners each."""

    def __init__(self, name: str, open_session: Callable[[], Coordination], store_url: str) -> None:
        self.table = TablePlace(f"{ROOT}/tables/{name}")
        self.objects = ShareObjects(lambda: open_store(store_url), name)
        self.owners = [Owner(self.table, each, open_session(), self.objects) for each in NAMES]
        self.admin: Any = self.owners[0].coordination
        nodes = [fx.Create(self.table.path), *sharing_nodes(self.table), fx.Create(layout.replicas(self.table))]
        for owner in self.owners:
            replica = owner.sharer.replica
            nodes += [
                fx.Create(layout.replica_path(replica)),
                fx.Create(layout.host(replica)),
                fx.Create(layout.parts(replica)),
            ]
        self.admin.perform(fx.Commit(*nodes))

    def run(self, rounds: int) -> int:
        """Have so many shares that both owners let go of; return how many."""
        with ThreadPoolExecutor(len(self.owners)) as pool:
            for number in range(rounds):
                self._round(ShareId(f"{number:032x}"), pool)
        return rounds

    def _round(self, share: ShareId, pool: ThreadPoolExecutor) -> None:
        admin, owners, table = self.admin, self.owners, self.table
        marks = [owner.sharer.mark(SharedPart(PART, share, is_new=False)) for owner in owners]
        admin.perform(fx.Commit(fx.Create(layout.share(table, share)), *map(fx.Create, marks)))
        self.objects.store.create(self.objects.key(share, "data-0.parquet"), b"rows")
        both = Barrier(len(owners))
        assert all(pool.map(lambda owner: owner.let_go(share, both), owners))
        assert admin.perform(fx.Get(layout.share(table, share))) is None
        assert admin.perform(fx.Children(layout.all_garbage(table))) == (share,)
        done = [made for some in pool.map(lambda owner: owner.run(work_off(table)), owners) for made in some]
        assert share in done
        assert (self._count(fx.Create, share), self._count(fx.Delete, share)) == (1, 1)
        assert {each for owner in owners for each in owner.deleted} == {share}
        for owner in owners:
            owner.applied.clear()
            owner.deleted.clear()
        assert admin.perform(fx.Children(layout.all_garbage(table))) == ()

    def _count(self, kind: type[fx.Create | fx.Delete], share: ShareId) -> int:
        """Count the commits that made a share garbage, or forgot it, and took place."""
        path = layout.garbage(self.table, share)
        applied = (each for owner in self.owners for commit in owner.applied for each in commit.operations)
        return sum(isinstance(each, kind) and each.path == path for each in applied)

    def close(self) -> None:
        for owner in self.owners:
            owner.coordination.close()


@pytest.mark.slow
@on(FOLDER, at_night=(BUCKET,))
def test_two_last_owners_let_go_at_once(connect: Callable[[], Coordination] | None, store_url: str) -> None:
    tree = SharedTree()
    open_session = connect or (lambda: MemoryCoordination(tree))
    admin: Any = open_session()
    make_root(admin, f"{ROOT}/tables")
    tables = [Shared(f"t{number}", open_session, store_url) for number in range(TABLES)]
    with ThreadPoolExecutor(len(tables)) as pool:
        assert sum(pool.map(lambda table: table.run(ROUNDS // TABLES), tables)) == ROUNDS
    assert list(open_store(store_url).list()) == []
    for table in tables:
        table.close()
    admin.close()
