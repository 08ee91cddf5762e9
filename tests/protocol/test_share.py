"""Owners of shares, over a tree in memory: what one call does to coordination and to the store."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, Table
from replitree.protocol.shares.share import (
    DeleteObjects,
    LetGo,
    LookAtObjects,
    NotOwned,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    Owned,
    PutObjects,
    ShareId,
    ShareOwner,
    let_go,
    release,
    take_over,
    work_off,
    write_share,
)
from tests.protocol.tree_world import TreeWorld

TABLE = Table("/t")
A, B = ShareId("a"), ShareId("b")


class Store(TreeWorld):
    """A tree, objects, and the number of requests to coordination."""

    def __init__(self, *replicas: str) -> None:
        paths = [layout.shares(TABLE), layout.all_garbage(TABLE)]
        for name in replicas:
            paths += [layout.host(Replica(TABLE, name)), layout.parts(Replica(TABLE, name))]
        super().__init__(Tree.of(dict.fromkeys(paths, b"")))
        self.objects: set[str] = set()
        self.requests = 0
        self.answers = True

    @override
    def perform(self, effect: Any) -> Any:
        self.requests += isinstance(effect, fx.Commit | fx.Children | fx.ChildrenMany | fx.Get | fx.Sync)
        match effect:
            case fx.Commit() | fx.Children() | fx.ChildrenMany() | fx.Get():
                return super().perform(effect)
            case PutObjects(share):
                self.objects.add(share)
                return ObjectsThere() if self.answers else ObjectsInDoubt("no answer")
            case LookAtObjects(shares):
                return ObjectsThere() if self.objects.issuperset(shares) else ObjectsInDoubt("not there")
            case DeleteObjects(share):
                self.objects.discard(share)
                return ObjectsGone() if self.answers else ObjectsInDoubt("no answer")
        return None

    def nodes(self, place: str) -> list[str]:
        return [path.removeprefix(f"{place}/") for path in self.tree.paths() if path.startswith(f"{place}/")]


def owner(name: str, part: str = "p", epoch: int = 0) -> ShareOwner:
    return ShareOwner(Replica(TABLE, name), fx.Epoch(epoch), "i1", part)


def registering(of: ShareOwner) -> tuple[fx.Operation, ...]:
    return (fx.Create(layout.part(of.replica, of.part)),)


def leaving(of: ShareOwner) -> tuple[fx.Operation, ...]:
    return (fx.Delete(layout.part(of.replica, of.part), fx.ANY_VERSION),)


@pytest.fixture
def store() -> Store:
    store = Store("r1", "r2")
    assert store.run(write_share(owner("r1"), A, (), registering(owner("r1")))) == Owned()
    return store


def test_a_writer_owns_what_it_wrote(store: Store) -> None:
    assert store.nodes(layout.shares(TABLE)) == ["a", "a/r1~i1~p"]
    assert store.objects == {"a"}


def test_a_life_takes_at_most_four_requests(store: Store) -> None:
    store.requests = 0
    assert store.run(take_over(owner("r2"), (A,), registering(owner("r2")))) == Owned()
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
    assert store.run(take_over(owner("r2"), (A,), registering(owner("r2")))) == NotOwned(
        "/t/zero_copy_s3/shared/a: no node"
    )
    assert store.nodes(layout.parts(owner("r2").replica)) == []


def test_what_cant_be_read_is_not_taken_over(store: Store) -> None:
    store.objects.clear()
    outcome = store.run(take_over(owner("r2"), (A,), registering(owner("r2"))))
    assert outcome == NotOwned("the objects can't be read from here: not there")
    assert store.nodes(layout.share(TABLE, A)) == ["r1~i1~p"]


def test_what_cant_be_stored_is_not_registered() -> None:
    store = Store("r1")
    store.answers = False
    outcome = store.run(write_share(owner("r1"), A, (), registering(owner("r1"))))
    assert outcome == NotOwned("the objects could not be stored: no answer")
    assert store.nodes(layout.shares(TABLE)) == []
    assert store.objects == {"a"}  # perhaps; nobody may say so


def test_a_refused_writer_deletes_its_objects(store: Store) -> None:
    outcome = store.run(write_share(owner("r1"), B, (), registering(owner("r1"))))
    assert outcome == NotOwned("/t/replicas/r1/parts/p: node exists")
    assert (store.objects, store.nodes(layout.shares(TABLE))) == ({"a"}, ["a", "a/r1~i1~p"])


def test_what_is_borrowed_has_a_mark_of_each_part(store: Store) -> None:
    mutated = owner("r1", "p_5")
    assert store.run(write_share(mutated, B, (A,), registering(mutated))) == Owned()
    assert store.nodes(layout.shares(TABLE)) == ["a", "a/r1~i1~p", "a/r1~i1~p_5", "b", "b/r1~i1~p_5"]
    assert store.run(let_go(owner("r1"), (A,), leaving(owner("r1")))) == LetGo(())
    assert store.run(let_go(mutated, (B, A), leaving(mutated))) == LetGo((B, A))
    assert store.nodes(layout.all_garbage(TABLE)) == ["a", "b"]


def test_a_replaced_process_changes_nothing(store: Store) -> None:
    before = store.tree.paths()
    late = owner("r1", epoch=7)
    assert store.run(let_go(late, (A,), leaving(late))) == NotOwned("/t/replicas/r1/host: bad version")
    assert store.run(take_over(owner("r2", epoch=7), (A,), ())) == NotOwned("/t/replicas/r2/host: bad version")
    assert store.tree.paths() == before


def test_who_has_let_go_has_nothing_to_let_go_of(store: Store) -> None:
    store.run(take_over(owner("r2"), (A,), registering(owner("r2"))))
    store.run(let_go(owner("r1"), (A,), leaving(owner("r1"))))
    assert store.run(let_go(owner("r1"), (A,), ())) == NotOwned("/t/zero_copy_s3/shared/a/r1~i1~p: no node")
    assert store.objects == {"a"}


def test_a_dropped_replica_is_released_whatever_its_incarnation(store: Store) -> None:
    store.run(take_over(owner("r2"), (A,), registering(owner("r2"))))
    earlier = ShareOwner(Replica(TABLE, "r1"), fx.Epoch(0), "i0", "q")
    assert store.run(write_share(earlier, B, (A,), registering(earlier))) == Owned()
    assert store.run(release(Replica(TABLE, "r1"), fx.Epoch(0))) == LetGo((B,))
    assert store.nodes(layout.shares(TABLE)) == ["a", "a/r2~i1~p"]
    assert store.run(release(Replica(TABLE, "r1"), fx.Epoch(0))) == LetGo(())
