"""What a share costs in requests to coordination, one by one: `docs/shared-storage.md` has the same figures."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.letting_go import let_go_of, let_go_of_all
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ObjectsThere, ShareId, work_off
from replitree.protocol.shares.share_effects import (
    HasPart,
    NameShares,
    PutShares,
    SharedPart,
    Sharer,
    SharesOf,
    SharesSettled,
)
from replitree.protocol.shares.sharing import with_shares, with_shares_once_open
from replitree.protocol.state.work_mark import HeldBy, Taken, take
from replitree.storage.parts.manifest import SHARES_MAX
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
PART, RESULT, SHARE = "all_0_0_0", "all_0_0_1", ShareId("s")
EPOCH = fx.Epoch(0)


def sharer(name: str) -> Sharer:
    return Sharer(Replica(TABLE, name), "i1")


class World(TreeWorld):
    """Coordination, which counts; nobody's disk has the part when it is let go of."""

    def __init__(self) -> None:
        parents = (layout.shares(TABLE), layout.all_writing(TABLE), layout.all_garbage(TABLE), layout.all_merged(TABLE))
        paths = [*parents, layout.results(TABLE)]
        for name in ("r1", "r2", "r3"):
            paths += [layout.host(Replica(TABLE, name)), layout.parts(Replica(TABLE, name))]
        super().__init__(Tree.of(dict.fromkeys(paths, b"")))
        self.requests: list[str] = []
        self.on_disk: tuple[SharedPart, ...] = ()

    @override
    def run(self, procedure: Generator[Any, Any, Any], outcome: Any = None) -> Any:
        """Run a procedure to its end, or what is left of one."""
        try:
            while True:
                outcome = self.perform(procedure.send(outcome))
        except StopIteration as stop:
            return stop.value

    def counted(self, procedure: Generator[Any, Any, Any]) -> list[str]:
        """Run a procedure; return its requests."""
        self.requests = []
        self.run(procedure)
        return self.requests

    @override
    def perform(self, effect: Any) -> Any:
        match effect:
            case fx.CurrentEpoch():
                return EPOCH
            case fx.Stage():
                return fx.Staged((fx.StagedPart("all", 1, 1, "c"),))
            case NameShares():
                return (SHARE,)
            case PutShares():
                return ObjectsThere()
            case DeleteObjects():
                return ObjectsGone()
            case SharesOf(parts):
                return tuple(each for each in self.on_disk if each.part in parts)
            case HasPart() | SharesSettled():
                return None
        self.requests.append(type(effect).__name__)
        return super().perform(effect)

    def write_and_take_over(self) -> None:
        """Let r1 have a part written, and r2 taken over."""
        self.run(with_shares(sharer("r1"), staging()))
        for name, is_new in (("r1", True), ("r2", False)):
            self.on_disk = (SharedPart(PART, SHARE, is_new=is_new),)
            assert isinstance(self.run(with_shares(sharer(name), registering(name))), fx.Applied)
        for name in ("r1", "r2"):  # the part is replaced by another one
            self.commit(delete(layout.part(Replica(TABLE, name), PART)))
        self.on_disk = ()


def delete(path: str) -> fx.Delete:
    return fx.Delete(path, fx.ANY_VERSION)


def staging() -> fx.Procedure[Any]:
    return (yield fx.Stage(fx.StagingId("i"), ()))


def registering(name: str) -> fx.Procedure[Any]:
    replica = Replica(TABLE, name)
    return (yield fx.Commit(fx.Check(layout.host(replica), fx.Version(0)), fx.Create(layout.part(replica, PART))))


def letting_go(name: str) -> fx.Procedure[bool]:
    return let_go_of(sharer(name), EPOCH, PART, SHARE)


def test_a_part_is_put_with_one_request_and_owned_with_none_more() -> None:
    world = World()
    assert world.counted(with_shares(sharer("r1"), staging())) == ["Commit"]
    world.on_disk = (SharedPart(PART, SHARE, is_new=True),)
    assert world.counted(with_shares(sharer("r1"), registering("r1"))) == ["Commit"]
    world.on_disk = (SharedPart(PART, SHARE, is_new=False),)
    assert world.counted(with_shares(sharer("r2"), registering("r2"))) == ["Commit"]


def test_each_owner_lets_go_with_two_requests_and_the_garbage_takes_two() -> None:
    world = World()
    world.write_and_take_over()
    assert world.counted(letting_go("r2")) == ["ChildrenMany", "Commit"]
    assert world.counted(letting_go("r1")) == ["ChildrenMany", "Commit"]
    assert world.counted(work_off(TABLE)) == ["Children", "Commit"]
    assert world.counted(work_off(TABLE)) == ["Children"]


def counted_of_slower(world: World, slower: fx.Procedure[bool], *others: fx.Procedure[bool]) -> list[str]:
    """Let the others let go between the look and the commit of the slower one; return all requests of that."""
    world.requests = []
    effect: Any = next(slower)
    while not isinstance(effect, fx.Commit):
        effect = slower.send(world.perform(effect))
    requests, world.requests = world.requests, []
    for each in others:
        world.run(each)
    world.requests = requests
    world.run(slower, world.perform(effect))
    return world.requests


def test_of_two_last_owners_at_once_the_slower_one_needs_one_commit_more() -> None:
    world = World()
    world.write_and_take_over()
    assert counted_of_slower(world, letting_go("r1"), letting_go("r2")) == ["ChildrenMany", "Commit", "Commit"]
    assert world.tree.children(layout.all_garbage(TABLE)) == (SHARE,)


def test_of_three_last_owners_at_once_the_slowest_one_needs_two_commits_more() -> None:
    world = World()
    world.write_and_take_over()
    world.tree, _ = world.tree.commit((fx.Create(sharer("r3").mark(SharedPart(PART, SHARE, is_new=False))),), 1)
    others = (letting_go("r2"), letting_go("r3"))
    assert counted_of_slower(world, letting_go("r1"), *others) == ["ChildrenMany", "Commit", "Commit", "Commit"]
    assert world.tree.children(layout.all_garbage(TABLE)) == (SHARE,)


def test_who_takes_a_part_over_while_its_last_owner_lets_go_stays() -> None:
    world = World()
    world.write_and_take_over()
    assert world.run(letting_go("r2")) is True
    requests = counted_of_slower(world, letting_go("r1"), take_over_again("r2", world))
    assert requests == ["ChildrenMany", "Commit", "Sync", "ChildrenMany", "Commit"]
    assert world.tree.children(layout.share(TABLE, SHARE)) == (f"r2~i1~{PART}",)
    assert world.tree.children(layout.all_garbage(TABLE)) == ()


def take_over_again(name: str, world: World) -> fx.Procedure[bool]:
    """Register the part at another replica, while the one that lets go has none of it."""
    world.on_disk = (SharedPart(PART, SHARE, is_new=False),)
    outcome = yield from with_shares(sharer(name), registering(name))
    world.on_disk = ()
    return isinstance(outcome, fx.Applied)


SHARES = tuple(ShareId(f"s{number}") for number in range(SHARES_MAX))


@pytest.fixture
def borrowing() -> World:
    """A part with as many shares as there can be, which both replicas own and that has left both disks."""
    world = World()
    for share in SHARES:
        marks = (sharer(name).mark(SharedPart(PART, share, is_new=False)) for name in ("r1", "r2"))
        made = (fx.Create(layout.share(TABLE, share)), *map(fx.Create, marks))
        world.tree, outcome = world.tree.commit(made, 1)
        assert isinstance(outcome, fx.Applied)
    return world


def letting_go_of_all(name: str) -> fx.Procedure[bool]:
    return let_go_of_all(sharer(name), EPOCH, PART, SHARES)


def test_a_part_that_borrows_lets_go_of_all_of_its_shares_at_once(borrowing: World) -> None:
    for name in ("r2", "r1"):
        assert borrowing.counted(letting_go_of_all(name)) == ["ChildrenMany", "Commit"]
    assert borrowing.tree.children(layout.all_garbage(TABLE)) == SHARES
    assert borrowing.counted(work_off(TABLE)) == ["Children", "Commit"]
    assert borrowing.tree.children(layout.all_garbage(TABLE)) == ()


def test_of_a_part_that_borrows_two_last_owners_at_once_need_no_more(borrowing: World) -> None:
    requests = counted_of_slower(borrowing, letting_go_of_all("r1"), letting_go_of_all("r2"))
    assert requests == ["ChildrenMany", "Commit", "Commit"]
    assert borrowing.tree.children(layout.all_garbage(TABLE)) == SHARES


def test_shares_that_another_part_borrows_too_are_kept_with_no_request_more(borrowing: World) -> None:
    other = sharer("r1").mark(SharedPart("all_0_0_2", SHARES[3], is_new=False))
    borrowing.tree, _ = borrowing.tree.commit((fx.Create(other),), 1)
    requests = counted_of_slower(borrowing, letting_go_of_all("r1"), letting_go_of_all("r2"))
    assert requests == ["ChildrenMany", "Commit", "Commit"]
    assert borrowing.tree.children(layout.all_garbage(TABLE)) == tuple(each for each in SHARES if each != SHARES[3])
    assert borrowing.tree.children(layout.share(TABLE, SHARES[3])) == (other.rpartition("/")[2],)


def test_a_part_of_whose_shares_some_were_let_go_of_lets_go_of_the_rest_one_by_one(borrowing: World) -> None:
    borrowing.run(let_go_of(sharer("r2"), EPOCH, PART, SHARES[0]))
    assert borrowing.run(letting_go_of_all("r2")) is True
    for share in SHARES:
        assert borrowing.tree.children(layout.share(TABLE, share)) == (f"r1~i1~{PART}",)


def test_of_two_that_work_the_garbage_off_at_once_each_forgets_what_is_left(borrowing: World) -> None:
    for name in ("r2", "r1"):
        borrowing.run(let_go_of_all(sharer(name), EPOCH, PART, SHARES))
    slower = work_off(TABLE)
    effect: Any = next(slower)
    while not isinstance(effect, fx.Commit):
        effect = slower.send(borrowing.perform(effect))
    borrowing.tree, _ = borrowing.tree.commit((delete(layout.garbage(TABLE, SHARES[0])),), 1)
    borrowing.requests = []
    borrowing.run(slower, borrowing.perform(effect))
    assert borrowing.requests == ["Commit", "Sync", "Children", "Commit"]
    assert borrowing.tree.children(layout.all_garbage(TABLE)) == ()


def test_a_work_mark_is_taken_with_one_request_and_found_taken_with_two() -> None:
    world = World()
    assert isinstance(world.run(take(sharer("r1"), EPOCH, RESULT)), Taken)
    assert world.requests == ["Commit"]
    world.requests = []
    assert isinstance(world.run(take(sharer("r2"), EPOCH, RESULT)), HeldBy)
    assert world.requests == ["Commit", "GetMany"]


def test_a_part_that_comes_with_a_share_while_the_store_is_opened_is_registered_with_its_mark() -> None:
    opened: list[Sharer] = []
    fetch = fx.FetchMany((fx.FetchPart(PART, "hash", ("r2",)),))
    register = fx.Commit(fx.Create(layout.part(Replica(TABLE, "r1"), PART), b"hash"))

    def execute() -> Generator[Any, Any, object]:
        yield fetch
        return (yield register)

    running = with_shares_once_open(lambda: opened[0] if opened else None, execute())
    assert next(running) == fetch
    opened.append(sharer("r1"))
    assert running.send((fx.Fetched(PART),)) == SharesOf((PART,))
    commit = running.send((SharedPart(PART, SHARE, is_new=False),))
    assert isinstance(commit, fx.Commit)
    assert fx.Create(sharer("r1").mark(SharedPart(PART, SHARE, is_new=False))) in commit.operations
