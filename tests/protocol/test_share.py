"""Owners of shares, over a tree in memory: what one call does to coordination and to the store."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.owning import own
from replitree.protocol.shares.share import (
    DeleteObjects,
    LetGo,
    NotOwned,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    ShareId,
    ShareOwner,
    let_go,
    release,
    work_off,
)
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    NameShares,
    PutShares,
    SharedPart,
    Sharer,
    SharesSettled,
)
from replitree.protocol.shares.sharing import with_shares
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
A, B = ShareId("a"), ShareId("b")


class Store(TreeWorld):
    """A tree, objects, and the number of requests to coordination."""

    def __init__(self, *replicas: str) -> None:
        paths = [layout.shares(TABLE), layout.all_garbage(TABLE), layout.all_writing(TABLE)]
        for name in replicas:
            paths += [layout.host(Replica(TABLE, name)), layout.parts(Replica(TABLE, name))]
        super().__init__(Tree.of(dict.fromkeys(paths, b"")))
        self.objects: set[str] = set()
        self.noted: list[SharesSettled | ForgetParts] = []
        self.requests = 0
        self.answers = True

    @override
    def perform(self, effect: Any) -> Any:
        self.requests += isinstance(effect, fx.Commit | fx.Children | fx.ChildrenMany | fx.Get | fx.GetMany | fx.Sync)
        match effect:
            case fx.Commit() | fx.Children() | fx.ChildrenMany() | fx.Get() | fx.GetMany():
                return super().perform(effect)
            case fx.Stage():
                return fx.Staged(())
            case NameShares():
                return (A,)
            case PutShares():
                self.objects.add(A)
                return ObjectsThere() if self.answers else ObjectsInDoubt("no answer")
            case DeleteObjects(share):
                self.objects.discard(share)
                return ObjectsGone() if self.answers else ObjectsInDoubt("no answer")
            case fx.CurrentEpoch():
                return fx.Epoch(0)
            case SharesSettled() | ForgetParts():
                self.noted.append(effect)
        return None

    def write(self, of: ShareOwner, share: ShareId, *borrowed: ShareId) -> fx.Committed:
        """Note an attempt, put its objects, and register the part that it is for."""
        self.objects.add(share)
        self.commit(fx.Create(layout.writing(TABLE, share), sharer_of(of).signature))
        return self.register(of, SharedPart(of.part, share, is_new=True), *told(of, *borrowed))

    def take_over(self, of: ShareOwner, *shares: ShareId) -> fx.Committed:
        """Register a part of which another replica has told the shares."""
        return self.register(of, *told(of, *shares))

    def register(self, of: ShareOwner, *parts: SharedPart) -> fx.Committed:
        """Register a part with the shares that it has."""
        path = fx.Create(layout.part(of.replica, of.part))
        outcome: fx.Committed = self.run(own(sharer_of(of), (of.proof, path), parts))
        return outcome

    def nodes(self, place: str) -> list[str]:
        return [path.removeprefix(f"{place}/") for path in self.tree.paths() if path.startswith(f"{place}/")]


def owner(name: str, part: str = "p", epoch: int = 0) -> ShareOwner:
    return ShareOwner(Replica(TABLE, name), fx.Epoch(epoch), "i1", part)


def sharer_of(owner: ShareOwner) -> Sharer:
    return Sharer(owner.replica, owner.incarnation)


def told(of: ShareOwner, *shares: ShareId) -> tuple[SharedPart, ...]:
    return tuple(SharedPart(of.part, share, is_new=False) for share in shares)


def leaving(of: ShareOwner) -> tuple[fx.Operation, ...]:
    return (fx.Delete(layout.part(of.replica, of.part), fx.ANY_VERSION),)


@pytest.fixture
def store() -> Store:
    store = Store("r1", "r2")
    assert isinstance(store.write(owner("r1"), A), fx.Applied)
    return store


def test_a_writer_owns_what_it_wrote(store: Store) -> None:
    assert store.nodes(layout.shares(TABLE)) == ["a", "a/r1~i1~p"]
    assert store.objects == {"a"}


def test_a_life_takes_at_most_four_requests(store: Store) -> None:
    store.requests = 0
    assert isinstance(store.take_over(owner("r2"), A), fx.Applied)
    assert store.run(let_go(owner("r2"), (A,), leaving(owner("r2")))) == LetGo(())
    assert store.requests == 3
    store.requests = 0
    assert store.run(let_go(owner("r1"), (A,), leaving(owner("r1")))) == LetGo((A,))
    assert store.requests == 2


def test_the_last_owner_leaves_garbage_which_anybody_works_off(store: Store) -> None:
    store.run(let_go(owner("r1"), (A,), leaving(owner("r1"))))
    assert (store.nodes(layout.shares(TABLE)), store.nodes(layout.all_garbage(TABLE))) == ([], ["a"])
    store.answers = False
    assert store.run(work_off(TABLE)) == ()
    assert store.nodes(layout.all_garbage(TABLE)) == ["a"]
    store.answers = True
    assert store.run(work_off(TABLE)) == (A,)
    assert (store.nodes(layout.all_garbage(TABLE)), store.objects) == ([], set())
    assert store.run(work_off(TABLE)) == ()


def test_who_comes_after_the_last_owner_is_refused(store: Store) -> None:
    store.run(let_go(owner("r1"), (A,), leaving(owner("r1"))))
    mark = fx.Create(owner("r2").mark(A))
    assert store.take_over(owner("r2"), A) == fx.Refused(mark, fx.Reason.NO_NODE)
    assert store.noted[-1] == ForgetParts(("p",))
    assert store.nodes(layout.parts(owner("r2").replica)) == []


def test_what_cant_be_stored_is_garbage_and_was_not_staged() -> None:
    store = Store("r1")
    store.answers = False
    failed = store.run(with_shares(Sharer(Replica(TABLE, "r1"), "i1"), staging()))
    assert failed == fx.StoreFailed("the object store did not take the part: no answer")
    assert store.nodes(layout.all_garbage(TABLE)) == ["a"]
    assert store.objects == {"a"}  # perhaps; nobody may say so


def staging() -> fx.Procedure[Any]:
    return (yield fx.Stage(fx.StagingId("i"), ()))


def test_a_refused_writer_keeps_its_attempt(store: Store) -> None:
    outcome = store.write(owner("r1"), B)
    assert outcome == fx.Refused(fx.Create("/t/replicas/r1/parts/p"), fx.Reason.NODE_EXISTS)
    assert store.nodes(layout.shares(TABLE)) == ["a", "a/r1~i1~p"]
    assert store.nodes(layout.all_writing(TABLE)) == ["b"]


def test_what_is_borrowed_has_a_mark_of_each_part(store: Store) -> None:
    mutated = owner("r1", "p_5")
    assert isinstance(store.write(mutated, B, A), fx.Applied)
    assert store.nodes(layout.shares(TABLE)) == ["a", "a/r1~i1~p", "a/r1~i1~p_5", "b", "b/r1~i1~p_5"]
    assert store.run(let_go(owner("r1"), (A,), leaving(owner("r1")))) == LetGo(())
    assert store.run(let_go(mutated, (B, A), leaving(mutated))) == LetGo((B, A))
    assert store.nodes(layout.all_garbage(TABLE)) == ["a", "b"]


def test_a_replaced_process_changes_nothing(store: Store) -> None:
    before = store.tree.paths()
    late = owner("r1", epoch=7)
    assert store.run(let_go(late, (A,), leaving(late))) == NotOwned("/t/replicas/r1/host: bad version")
    assert store.take_over(owner("r2", epoch=7), A) == fx.Refused(owner("r2", epoch=7).proof, fx.Reason.BAD_VERSION)
    assert store.tree.paths() == before


def test_who_has_let_go_has_nothing_to_let_go_of(store: Store) -> None:
    store.take_over(owner("r2"), A)
    store.run(let_go(owner("r1"), (A,), leaving(owner("r1"))))
    assert store.run(let_go(owner("r1"), (A,), ())) == NotOwned("/t/zero_copy_s3/shared/a/r1~i1~p: no node")
    assert store.objects == {"a"}


def test_a_dropped_replica_is_released_whatever_its_incarnation(store: Store) -> None:
    store.take_over(owner("r2"), A)
    earlier = ShareOwner(Replica(TABLE, "r1"), fx.Epoch(0), "i0", "q")
    assert isinstance(store.write(earlier, B, A), fx.Applied)
    assert store.run(release(Replica(TABLE, "r1"), fx.Epoch(0))) == LetGo((B,))
    assert store.nodes(layout.shares(TABLE)) == ["a", "a/r2~i1~p"]
    assert store.run(release(Replica(TABLE, "r1"), fx.Epoch(0))) == LetGo(())
