"""What may happen next in a world of shared storage.

Every step is one effect of one process, a late request that arrives, a fault, or time that passes.  What a process asks of its
own memory or disk it is told at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.program import life
from replitree.protocol.program.life_in_store import stages_in_store
from replitree.protocol.program.stages import AwaitReplica, Forget, Opened, Stop
from replitree.protocol.shares.share import (
    DeleteObjects,
    LookAtObjects,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    ShareId,
)
from replitree_verify.sharing.checking import grown_older, harm_of, new_names, perform
from replitree_verify.sharing.disks import tidy
from replitree_verify.sharing.memory import remembered
from replitree_verify.sharing.operators import check
from replitree_verify.sharing.process import clean, settle
from replitree_verify.sharing.world import (
    CLEANER,
    INCARNATION,
    PIECES,
    STORE_ID,
    TABLE,
    UNANSWERED,
    Model,
    Seat,
    Step,
    World,
    replica_of,
    spend,
)
from replitree_verify.world.faults import Fault, budget_of
from replitree_verify.world.kernel import END, Kernel, ProcedureFailed, Stage
from replitree_verify.world.objects import PutObjects

NO_SESSION = 0
"""The session of a request that arrives late: that of its process may have ended."""

ENDED = 99
"""The task of a process that has ended for good: no seat has so many."""


class Scene:
    """The steps of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._names = (*model.tasks, CLEANER)
        self._cleaner = len(model.tasks)
        self._kernel = Kernel(stages_in_store(STORE_ID, INCARNATION))

    def first(self) -> World:
        """Return the world in which nothing has happened."""
        paths = dict.fromkeys((layout.shares(TABLE), layout.all_garbage(TABLE), layout.all_writing(TABLE)), b"")
        paths |= {layout.sharing(TABLE): STORE_ID.encode()}
        for name in self.model.replicas:
            replica = replica_of(name)
            paths |= {layout.replica_path(replica): b"i1", layout.host(replica): b"here", layout.parts(replica): b""}
        model = self.model
        world = World(
            Tree.of(paths | dict(model.nodes) | dict(model.damage)),
            model.objects,
            tuple(Seat(model.rivals.get(name, name if name in model.replicas else "")) for name in self._names),
            owned=frozenset(
                share for share, _ in model.objects if layout.share(TABLE, share) in {*model.nodes, *model.damage}
            ),
            disks=model.disks,
            damage=frozenset(model.damage),
            heard=frozenset(
                ShareId(share) for *_, share in model.disks if layout.writing(TABLE, ShareId(share)) in model.nodes
            ),
        )
        for number, name in enumerate(self._names):
            if name in model.replicas:
                world = self._activated(world, number, Seat(name))
        if model.rivals:
            world = self._without_sessions(world)
        for number in range(len(self._names)):
            world = self._begun(world, number, world.seats[number])
        return replace(world, budget=budget_of(model.faults))

    def steps(self, world: World) -> Iterator[Step]:
        """Yield whatever may happen next, with its name."""
        for number, name in enumerate(self._names):
            for text, after in self._seat_steps(world, number):
                yield f"{name}: {text}", after
        for request in world.late:
            rest = list(world.late)
            rest.remove(request)
            yield f"late: {_short(request)}", self._arrive(replace(world, late=tuple(rest)), request)
        if (older := grown_older(world, self._effects(world))) is not None:
            yield "time: the grace passes", older

    def is_at_rest(self, world: World) -> bool:
        """Whether nothing is left to do: all tasks are done, nothing is on its way, and the cleaner changes nothing."""
        if world.late or any(effect is not None for effect in self._effects(world)):
            return False
        return self._after(world, clean).key == world.key

    def settled(self, world: World) -> World:
        """Return what a world at rest comes to when every replica has started again and fsck has repaired what is old."""
        world = self._without_sessions(world)
        for name in self.model.replicas:
            world = self._activated(world, self._cleaner, Seat(name))
            world = self._after(world, tidy, name)
        for _ in range(2):
            world = self._after(replace(world, young=frozenset()), check)
        return world

    def _after(self, world: World, task: Stage, *arguments: Any) -> World:
        """Let a task run to its end in the seat of the cleaner, without faults."""
        place = self._kernel.begin(task, *arguments)
        after = self._run(world, self._cleaner, replace(world.seats[self._cleaner], place=place))
        return self._with_seat(after, self._cleaner, Seat())

    def _activated(self, world: World, number: int, seat: Seat) -> World:
        """Let a process activate its replica, without faults, and before anything else happens."""
        return self._run(world, number, replace(seat, place=self._activation(number, seat)))

    def _run(self, world: World, number: int, seat: Seat) -> World:
        """Let what a seat has begun come to its end, without faults, and before anything else happens."""
        world = self._settled(world, number, seat)
        while (effect := self._kernel.effect(world.seats[number].place)) is not None:
            _, world, outcome = next(self._perform(world, number, effect))
            seat = world.seats[number]
            world = self._settled(world, number, replace(seat, place=self._kernel.step(seat.place, outcome)))
        return world

    def _without_sessions(self, world: World) -> World:
        """Return the world in which the sessions of all processes have ended."""
        for number in range(len(self._names)):
            world = replace(world, tree=world.tree.expire(_session(number)))
        return world

    def _effects(self, world: World) -> tuple[Any, ...]:
        return tuple(self._kernel.effect(seat.place) for seat in world.seats)

    # --- seats ----------------------------------------------------------------------------------------------------------------

    def _seat_steps(self, world: World, number: int) -> Iterator[Step]:
        seat = world.seats[number]
        effect = self._kernel.effect(seat.place)
        if effect is None:
            if self._names[number] == CLEANER and world.tree.children(layout.all_garbage(TABLE)):
                yield "begins", self._begun(world, number, Seat())
            return
        for text, after, outcome in self._perform(world, number, effect):
            yield f"{_short(effect)} → {text}", self._go_on(after, number, outcome)
        for text, after in self._crashes(world, number, effect):
            yield f"crash at {_short(effect)}{text}", after

    def _begun(self, world: World, number: int, seat: Seat) -> World:
        """Begin what comes next: the activation of a replica, or a task; a seat that has done all stays where it ended."""
        name = self._names[number]
        tasks = ((clean, ()),) if name == CLEANER else self.model.tasks[name]
        while seat.task < len(tasks):
            if seat.replica and (seat.epoch is None or seat.has_trouble):
                seat = replace(seat, place=self._activation(number, seat), is_activating=True)
            else:
                stage, arguments = tasks[seat.task]
                seat = replace(seat, place=self._kernel.begin(stage, *arguments))
            world = self._settled(world, number, seat)
            if world.seats[number].place != END:
                return world
            seat = _over(world.seats[number])
        return self._with_seat(world, number, seat)

    def _go_on(self, world: World, number: int, outcome: Any) -> World:
        seat = world.seats[number]
        after = self._settled(world, number, replace(seat, place=self._kernel.step(seat.place, outcome)))
        if after.seats[number].place != END:
            return after
        if self._names[number] == CLEANER:
            return self._with_seat(after, number, Seat())
        return self._begun(after, number, _over(after.seats[number]))

    def _activation(self, number: int, seat: Seat) -> int:
        """Return the place where the life thread begins."""
        return self._kernel.begin(life.become_active, replica_of(seat.replica), self._me(number, seat))

    def _me(self, number: int, seat: Seat) -> bytes:
        """Return what a process writes into `host`."""
        return f"{self._names[number]}.{seat.attempt}".encode()

    def _settled(self, world: World, number: int, seat: Seat) -> World:
        """Answer what a process asks of its own memory or disk."""
        while seat.place != END:
            match effect := self._kernel.effect(seat.place):
                case Opened():
                    place = self._kernel.begin(settle, replica_of(seat.replica), self._me(number, seat))
                    seat = replace(seat, place=place)
                    continue
                case AwaitReplica() | Forget() | Stop():  # another process has the replica, or it was dropped
                    seat = replace(seat, task=ENDED, place=END)
                    continue
                case fx.ProbeOwner(holder):
                    is_alive = any(holder == self._me(at, each) for at, each in enumerate(world.seats))
                    outcome: Any = fx.Owner.UNCLEAR if is_alive else fx.Owner.DEAD
                case _ if (told := remembered(world, seat, effect)) is not None:
                    outcome, seat = told
                case _:
                    break
            seat = replace(seat, place=self._kernel.step(seat.place, outcome))
        return self._with_seat(world, number, seat)

    def _with_seat(self, world: World, number: int, seat: Seat) -> World:
        seats = list(world.seats)
        seats[number] = seat
        return replace(world, seats=tuple(seats))

    def _crashes(self, world: World, number: int, effect: Any) -> Iterator[Step]:
        """Yield what a crash may leave: its request was not sent, is done, is half done, or is on its way."""
        hurt = spend(world, Fault.CRASH)
        if hurt is None:
            return
        seat = hurt.seats[number]
        lost = {(replica, share) for replica, share in hurt.handed if replica == seat.replica}
        disks = hurt.disks - {(replica, "", share) for replica, share in lost}
        hurt = replace(hurt, tree=hurt.tree.expire(_session(number)), disks=disks, handed=hurt.handed - lost)
        hurt = self._begun(hurt, number, Seat(seat.replica, seat.task, seat.attempt + 1))
        yield "", hurt
        match effect:
            case fx.Commit():
                yield ", done", self._arrive(hurt, effect)
                yield ", on its way", _sent(hurt, effect)
            case PutObjects() | DeleteObjects():
                yield ", half done", _half(hurt, effect)
                yield ", on its way", _sent(hurt, effect)

    # --- effects --------------------------------------------------------------------------------------------------------------

    def _perform(self, world: World, number: int, effect: Any) -> Iterator[tuple[str, World, Any]]:
        match effect:
            case fx.Sync():
                yield "", world, None
            case fx.Get() | fx.GetMany() | fx.Children() | fx.ChildrenMany():
                yield "read", world, answer(world.tree, effect)
            case fx.Commit():
                yield from self._commit(world, number, effect)
            case LookAtObjects(shares):
                whole = all((share, piece) in world.objects for share in shares for piece in range(PIECES))
                yield "looked", world, ObjectsThere() if whole else ObjectsInDoubt("not there")
                if (unanswered := spend(world, Fault.STORE)) is not None:
                    yield "no answer", unanswered, ObjectsInDoubt(UNANSWERED)
            case PutObjects():
                yield "stored", self._arrive(world, effect), ObjectsThere()
                yield from self._in_doubt(world, effect)
            case DeleteObjects():
                yield "deleted", self._arrive(world, effect), ObjectsGone()
                yield from self._in_doubt(world, effect)
            case _:
                yield from perform(world, effect)

    def _commit(self, world: World, number: int, effect: fx.Commit) -> Iterator[tuple[str, World, Any]]:
        _, outcome = world.tree.commit(effect.operations, _session(number))
        text = "applied" if isinstance(outcome, fx.Applied) else f"refused, {outcome.reason.value}"
        harm = world.broken or harm_of(world, self._names[number], effect, outcome)
        yield text, replace(self._arrive(world, effect, _session(number)), broken=harm), outcome
        lost = spend(world, Fault.UNKNOWN)
        if lost is not None:
            if isinstance(outcome, fx.Applied):
                yield "applied, answer lost", self._arrive(lost, effect, _session(number)), fx.Unknown()
            yield "on its way, answer lost", _sent(lost, effect), fx.Unknown()

    def _in_doubt(self, world: World, effect: PutObjects | DeleteObjects) -> Iterator[tuple[str, World, Any]]:
        lost = spend(world, Fault.STORE)
        if lost is not None:
            yield "done, answer lost", self._arrive(lost, effect), ObjectsInDoubt()
            yield "half done", _half(lost, effect), ObjectsInDoubt()
            yield "on its way, answer lost", _sent(lost, effect), ObjectsInDoubt()

    def _arrive(self, world: World, effect: Any, session: int = NO_SESSION) -> World:
        """Do what a request asks for, if it can be done now."""
        match effect:
            case fx.Commit(operations):
                tree, outcome = world.tree.commit(operations, session)
                if isinstance(outcome, fx.Refused):
                    return world
                begun = (new_names(operations, place(TABLE)) for place in (layout.all_writing, layout.all_garbage))
                return replace(
                    world,
                    tree=tree,
                    owned=world.owned | set(new_names(operations, layout.shares(TABLE))),
                    young=self._young(world, *(each for some in begun for each in some)),
                    damage=frozenset(path for path in world.damage if tree.get(path) is not None),
                )
            case PutObjects(share):
                whole = world.objects | {(share, piece) for piece in range(PIECES)}
                return replace(world, objects=whole, young=self._young(world, share))
            case DeleteObjects(share):
                return replace(world, objects=frozenset(each for each in world.objects if each[0] != share))
        raise ProcedureFailed(f"{effect} can't arrive late")

    def _young(self, world: World, *shares: str) -> frozenset[str]:
        return world.young | set(shares)


def _session(number: int) -> int:
    """Return the session of the processes at a seat: when it ends, a next one has its number."""
    return number + 1


def _over(seat: Seat) -> Seat:
    """Return a seat whose activation or task has ended: the task is done again after trouble."""
    if seat.is_activating:
        return replace(seat, is_activating=False)
    return seat if seat.has_trouble else replace(seat, task=seat.task + 1)


def _sent(world: World, effect: Any) -> World:
    """Let a request be on its way."""
    return replace(world, late=tuple(sorted((*world.late, effect), key=repr)))


def _half(world: World, effect: PutObjects | DeleteObjects) -> World:
    """Do a part of a request."""
    one = (effect.share, 0)
    return replace(world, objects=world.objects | {one} if isinstance(effect, PutObjects) else world.objects - {one})


def _short(effect: Any) -> str:
    """Write an effect so that people can read a trace."""
    match effect:
        case fx.Commit(operations):
            return "commit " + ", ".join(f"{type(each).__name__.lower()} {_place(each.path)}" for each in operations)
        case fx.Get(path) | fx.Children(path) | fx.Sync(path):
            return f"{type(effect).__name__.lower()} {_place(path)}"
        case fx.GetMany(paths):
            return "get " + ", ".join(map(_place, paths))
        case fx.ChildrenMany(paths):
            return "children " + ", ".join(map(_place, paths))
        case PutObjects(share) | DeleteObjects(share):
            return f"{'put' if isinstance(effect, PutObjects) else 'delete'} objects of {share}"
        case LookAtObjects(shares):
            return f"look at {' '.join(shares)}"
    return str(effect)


def _place(path: str) -> str:
    return path.removeprefix(f"{TABLE.path}/").removeprefix("zero_copy_s3/").removeprefix("replicas/")


__all__ = ["Scene"]
