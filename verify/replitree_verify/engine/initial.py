"""The first state of a model: made by the production procedures, without faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, cast

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership.table import DROPPED_HOST, LOST, NOT_LOST, create_table, drop_replica, join_table
from replitree.protocol.program.stages import AwaitDecided
from replitree.protocol.shares.moving import PutPart
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import PutShares, SharedPart
from replitree.protocol.shares.table_store import sharing_nodes
from replitree_verify.effects.table import UNTAKEN
from replitree_verify.engine.moves import LEFT, OBJECTS, TREE, Move, Thread, World
from replitree_verify.engine.space import Space
from replitree_verify.process import fsck
from replitree_verify.process.restore_duties import SPOILT, wiped
from replitree_verify.process.seat_threads import WORKING, begins_again
from replitree_verify.process.shares import sharer_of
from replitree_verify.process.uploads import TellName
from replitree_verify.world.disk import Disk
from replitree_verify.world.faults import budget_of
from replitree_verify.world.kernel import END
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import TABLE, first_session
from replitree_verify.world.objects import PutObjects
from replitree_verify.world.past import with_machines
from replitree_verify.world.shared_disk import SharedDisk
from replitree_verify.world.windows import with_clock


def table_tree(replicas: tuple[str, ...], *, shared: bool = False) -> Tree:
    """Return coordination with the table created and every replica joined.

    `shared`: its parts lie in an object store, so every replica is told from others of its name.
    """
    tree = Tree()
    more = sharing_nodes(TABLE) if shared else ()
    procedures: list[fx.Procedure[Any]] = [create_table(TABLE, b"", b"", more)]
    procedures += [join_table(Replica(TABLE, name), f"{name}i" if shared else "") for name in replicas]
    for procedure in procedures:
        tree = run_on(procedure, tree)
    return tree


def run_on(procedure: fx.Procedure[Any], tree: Tree) -> Tree:
    """Run a procedure that only uses coordination, and return the tree afterwards."""
    outcome: Any = None
    try:
        while True:
            effect = procedure.send(outcome)
            if isinstance(effect, fx.Commit):
                tree, outcome = tree.commit(effect.operations, session=1)
            else:
                assert isinstance(effect, fx.Get | fx.GetMany | fx.Exists | fx.Children | fx.Sync)
                outcome = answer(tree, effect)
    except StopIteration:
        return tree


def first_world(space: Space) -> World:
    """Return the first state: the table is there, every replica has joined, the model's `started` seats are active."""
    model = space.model
    world = [0] * space.size
    tree = table_tree(model.joined, shared=model.stored)
    if model.window is not None:
        tree = with_clock(tree, *model.window)
    world[TREE] = space.trees.number(with_machines(tree, model.contested))
    for position in space.disk_at:
        world[position] = space.disks.number(SharedDisk() if model.stored else Disk())
    for seat, (name, _) in enumerate(model.seats):
        state = State.STARTING if name in (*model.started, *model.operators) else State.OFF
        world[space.memory_at[seat]] = space.memories.number(Memory(0, first_session(seat), state=state))
    for thread in space.threads:
        world[thread.position] = space.beginning(thread, 0)
    begun: World = tuple(world)
    started = tuple(f"{name} life" for name in model.started)
    for name in (*started, *model.prelude):
        verb, _, rest = name.partition(" ")
        begun = HAPPENINGS[verb](space, begun, rest) if verb in HAPPENINGS else _let_go_on(space, begun, name)
    world = list(begun)
    # Only now: the prelude has happened without faults, whatever the model's budget is.
    world[LEFT] = budget_of(model.faults)
    for thread in space.threads:
        works = thread.kind in WORKING
        if thread.name in model.resting or (works and model.seats[thread.seat][0] in model.resting):
            world[thread.position] = END
    return tuple(world)


def _stop(space: Space, world: World, seat: str) -> World:
    """Let a process die and its session end; the next one starts at any moment of the exploration."""
    number = [name for name, _ in space.model.seats].index(seat)
    after = list(world)
    old = space.memories[after[space.memory_at[number]]]
    after[TREE] = space.trees.number(space.trees[after[TREE]].expire(old.session))
    memory = Memory(old.incarnation + 1, old.session + 1, state=State.OFF)
    after[space.memory_at[number]] = space.memories.number(memory)
    for thread in space.threads:
        if thread.seat != number:
            continue
        if thread.kind in ("life", *WORKING):
            after[thread.position] = space.beginning(thread, memory.incarnation, is_there=False)
        elif not (
            begins_again(thread.kind, thread.arguments) or type(space.kernel.effect(after[thread.position])) in UNTAKEN
        ):
            after[thread.position] = END
    return tuple(after)


def _written(space: Space, world: World, *operations: fx.Operation) -> World:
    tree, _ = space.trees[world[TREE]].commit(operations, session=1)
    return (*world[:TREE], space.trees.number(tree), *world[TREE + 1 :])


def _halve(space: Space, world: World, name: str) -> World:
    """Let the drop of a replica begin, and be cut off."""
    replica = space.model.replica(name)
    return _written(
        space,
        world,
        fx.Set(layout.host(replica), DROPPED_HOST, fx.ANY_VERSION),
        fx.Set(layout.is_lost(replica), LOST, fx.ANY_VERSION),
        fx.Create(layout.replica_dropped(replica)),
    )


def _wipe(space: Space, world: World, going_on: str) -> World:
    """Let coordination lose everything; no process runs but those of a seat, which does not know of it."""
    for number, (seat, _) in enumerate(space.model.seats):
        if seat not in (going_on, *space.model.operators) and space.memories[world[space.memory_at[number]]].is_there:
            world = _stop(space, world, seat)
    disks = {n: space.disks[world[at]] for n, at in zip(space.model.disks, space.disk_at, strict=True)}
    after, objects = list(world), space.objects[world[OBJECTS]]
    after[TREE] = space.trees.number(wiped(space.trees[world[TREE]], disks, space.model.contested))
    if objects is not None:  # no node of coordination says what they are of, until a replica owns them again
        strays = objects.stray.union(share for share, _ in objects.there)
        after[OBJECTS] = space.objects.number(replace(objects, stray=strays))
    return tuple(after)


def _drop(space: Space, world: World, name: str) -> World:
    """Let an operator drop a replica whose process has died."""
    model = space.model
    tree = run_on(drop_replica(model.replica(name), shared=model.stored), space.trees[world[TREE]])
    return (*world[:TREE], space.trees.number(tree), *world[TREE + 1 :])


def _with_disk(space: Space, world: World, what: str, verb: str) -> World:
    """Change the copy of a part on a replica's disk, or all of the disk; `what` names the replica and the part."""
    name, _, part = what.partition(" ")
    position = space.disk_at[space.model.replicas.index(name)]
    disk = space.disks[world[position]]
    match verb:
        case "empty":  # the disk was lost, with all that was noted there; the next process has another one
            disk = SharedDisk()
        case "spoil":
            content = disk.content(part)
            assert content is not None
            disk = disk.with_part(part, f"{content}{SPOILT}")
        case "rewrite":  # the replica has made the part by itself, with other files of the same rows
            disk = cast("SharedDisk", disk).with_files(part, name)
        case "unmark":  # a detached part is still among the parts: its process died before it could take it out
            (content,) = disk.aside
            disk = disk.with_part(part, content)
        case "keep":  # a copy that is not registered: the replica had the part before it joined again
            contents = (space.disks[world[each]].content(part) for each in space.disk_at)
            content = next(each for each in contents if each is not None)
            disk = disk.with_part(part, content).keeping_aside((part,)).without_parts(part)
        case "lend":  # what the replica has staged has the objects of a part on its disk, too
            shared = cast("SharedDisk", disk)
            for staging, share in product((folder.staging for folder in shared.folders), shared.shares_of(part)):
                shared = shared.noting(staging, parse_part(part).partition, share)
            disk = shared
        case "leave":  # a part that has left the disk is let go of first: readers have kept others for longer
            shared = cast("SharedDisk", disk)
            (first,) = (each for each in shared.leaving if each.part == part)
            disk = replace(shared, leaving=(first, *(each for each in shared.leaving if each != first)))
    return (*world[:position], space.disks.number(disk), *world[position + 1 :])


def _borrow(space: Space, world: World, what: str) -> World:
    """Let a part on a replica's disk have objects of a second share, of which it is the only owner; `what` names both."""
    name, part = what.split()
    replica, share = space.model.replica(name), ShareId("s-borrowed")
    position = space.disk_at[space.model.replicas.index(name)]
    disk, objects = space.disks[world[position]], space.objects[world[OBJECTS]]
    assert isinstance(disk, SharedDisk)
    assert objects is not None
    mark = sharer_of(replica).mark(SharedPart(part, share, is_new=False))
    after = list(_written(space, world, fx.Create(layout.share(TABLE, share)), fx.Create(mark)))
    after[position] = space.disks.number(replace(disk, shares=tuple(sorted((*disk.shares, (part, share))))))
    after[OBJECTS] = space.objects.number(objects.after(PutObjects(share)))
    return tuple(after)


def _damage(space: Space, world: World, what: str) -> World:
    """Make something for fsck to find."""
    operations, share = fsck.damage(what, "all_0_0_0", space.trees[world[TREE]], TABLE)
    after = list(_written(space, world, *operations) if operations else world)
    objects = space.objects[world[OBJECTS]]
    assert objects is not None
    if share is not None:
        after[OBJECTS] = space.objects.number(objects.after(PutObjects(share)))
    return tuple(after)


def _tear(space: Space, world: World, what: str) -> World:
    """Let the manifest of a part's share be unreadable; `what` names a replica that has the share, and the part."""
    name, part = what.split()
    disk, objects = space.disks[world[space.disk_at[space.model.replicas.index(name)]]], space.objects[world[OBJECTS]]
    assert isinstance(disk, SharedDisk)
    assert objects is not None
    torn = space.objects.number(replace(objects, torn=frozenset(disk.shares_of(part))))
    return (*world[:OBJECTS], torn, *world[OBJECTS + 1 :])


def _until(space: Space, world: World, name: str, effect: type | tuple[type, ...]) -> World:
    """Let a thread go on until an effect of some type is next."""
    thread = next(each for each in space.threads if each.name == name)
    while not isinstance(space.kernel.effect(world[thread.position]), effect):
        move = _calm(space, thread, world)
        assert move is not None, f"{name} does not get so far"
        world = space.after(world, move)
    return world


def _publish(space: Space, world: World, name: str) -> World:
    """Let a thread go on until it has published a result that is not registered yet."""
    thread = next(each for each in space.threads if each.name == name)
    move = _calm(space, thread, world := _until(space, world, name, fx.Publish))
    assert move is not None
    return space.after(world, move)


HAPPENINGS: dict[str, Callable[[Space, World, str], World]] = {
    "stop": _stop,
    "lose": lambda space, world, replica: _written(
        space, world, fx.Set(layout.is_lost(space.model.replica(replica)), LOST, fx.ANY_VERSION)
    ),
    "forgive": lambda space, world, replica: _written(
        space, world, fx.Set(layout.is_lost(space.model.replica(replica)), NOT_LOST, fx.ANY_VERSION)
    ),
    "halve": _halve,
    "drop": _drop,
    "wipe": _wipe,
    **{
        verb: partial(_with_disk, verb=verb)
        for verb in ("spoil", "keep", "unmark", "rewrite", "empty", "lend", "leave")
    },
    "borrow": _borrow,
    "damage": _damage,
    "tear": _tear,
    "open": partial(_until, effect=AwaitDecided),
    "put": partial(_until, effect=(PutShares, PutPart)),
    "close": lambda space, world, _: _written(space, world, fx.Set(layout.sharing(TABLE), b"", fx.ANY_VERSION)),
    "publish": _publish,
    "begin": partial(_until, effect=fx.Merge),
    "hold": partial(_until, effect=fx.Commit),
    # Before an insert publishes what it has committed: a joint insert leaves that to the executor.
    "commit": partial(_until, effect=fx.Publish),
    "tell": partial(_until, effect=TellName),
}
"""What a prelude can say besides the names of threads."""


def _let_go_on(space: Space, world: World, name: str) -> World:
    """Let the threads of this name (or the pulling and executing of the seat of this name) go on as long as they can."""
    titles = (name,) if " " in name else tuple(f"{name} {title}" for title in ("pull", "work", "make", "free"))
    threads = [thread for thread in space.threads if thread.name in titles]
    assert threads, f"there is no thread {name}"
    while True:  # a thread may wait for another one of them, so all are asked again until none moves
        before = world
        for thread in threads:
            while world[thread.position] != END and (move := _calm(space, thread, world)) is not None:
                assert move.breach is None, move.breach
                world = space.after(world, move)
        if world == before:
            return world


def _calm(space: Space, thread: Thread, world: World) -> Move | None:
    """Return the first step of a thread that takes no fault and leads somewhere."""
    moves = (move for move in space.moves(thread, world) if not move.cost)
    return next((move for move in moves if space.after(world, move) != world), None)
