"""What may happen next in a world of shared storage.

Every step is one effect of one process, a late request that arrives, a fault, or time that passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.rescue.fsck_look import ListObjects
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
from replitree_verify.sharing.operators import check
from replitree_verify.sharing.process import clean
from replitree_verify.sharing.world import (
    CLEANER,
    PIECES,
    SESSION,
    TABLE,
    UNANSWERED,
    Fault,
    Model,
    Seat,
    Step,
    World,
    replica_of,
    spend,
)
from replitree_verify.world.kernel import END, Kernel, ProcedureFailed, Stage
from replitree_verify.world.objects import PutObjects

COUNTED = ("write", "upload")
"""Tasks that are told the number of the attempt."""


class Scene:
    """The steps of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._names = (*model.tasks, CLEANER)
        self._kernel = Kernel()

    def first(self) -> World:
        """Return the world in which nothing has happened."""
        paths = dict.fromkeys((layout.shares(TABLE), layout.all_garbage(TABLE), layout.all_writing(TABLE)), b"")
        for name in self.model.replicas:
            replica = replica_of(name)
            paths |= {layout.replica_path(replica): b"i1", layout.host(replica): b"here", layout.parts(replica): b""}
        model = self.model
        world = World(
            Tree.of(paths | dict(model.nodes) | dict(model.damage)),
            model.objects,
            (Seat(),) * len(self._names),
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
            world = self._with_seat(world, number, self._begun(name, Seat()))
        return replace(world, budget=tuple(self.model.faults.get(kind, 0) for kind in Fault))

    def steps(self, world: World) -> Iterator[Step]:
        """Yield whatever may happen next, with its name."""
        for number, name in enumerate(self._names):
            for text, after in self._seat_steps(world, number):
                yield f"{name}: {text}", after
        for request in world.late:
            rest = list(world.late)
            rest.remove(request)
            yield f"late: {_short(request)}", self._arrive(replace(world, late=tuple(rest)), request)
        if self.model.has_disks and (older := grown_older(world, self._effects(world))) is not None:
            yield "time: the grace passes", older

    def is_at_rest(self, world: World) -> bool:
        """Whether nothing is left to do: all tasks are done, nothing is on its way, and the cleaner changes nothing."""
        if world.late or any(effect is not None for effect in self._effects(world)):
            return False
        return self._after(world, clean).key == world.key

    def settled(self, world: World) -> World:
        """Return what a world at rest comes to when every replica has started again and fsck has repaired what is old."""
        if not self.model.has_disks:
            return world
        for name in self.model.replicas:
            world = self._after(world, tidy, name)
        for _ in range(2):
            world = self._after(replace(world, young=frozenset()), check)
        return world

    def _after(self, world: World, task: Stage, *arguments: Any) -> World:
        """Let a task run to its end, without faults."""
        number = self._names.index(CLEANER)
        after = self._with_seat(world, number, Seat(place=self._kernel.begin(task, *arguments)))
        while (effect := self._kernel.effect(after.seats[number].place)) is not None:
            _, after, outcome = next(self._perform(after, number, effect))
            after = self._go_on(after, number, outcome)
        return after

    def _effects(self, world: World) -> tuple[Any, ...]:
        return tuple(self._kernel.effect(seat.place) for seat in world.seats)

    # --- seats ----------------------------------------------------------------------------------------------------------------

    def _seat_steps(self, world: World, number: int) -> Iterator[Step]:
        seat = world.seats[number]
        effect = self._kernel.effect(seat.place)
        if effect is None:
            if self._names[number] == CLEANER and world.tree.children(layout.all_garbage(TABLE)):
                yield "begins", self._with_seat(world, number, self._begun(CLEANER, Seat()))
            return
        for text, after, outcome in self._perform(world, number, effect):
            yield f"{_short(effect)} → {text}", self._go_on(after, number, outcome)
        for text, after in self._crashes(world, number, effect):
            yield f"crash at {_short(effect)}{text}", after

    def _begun(self, name: str, seat: Seat) -> Seat:
        """Begin a seat's task; one whose tasks are all done stays where it ended."""
        tasks = ((clean, ()),) if name == CLEANER else self.model.tasks[name]
        while seat.task < len(tasks):
            stage, arguments = tasks[seat.task]
            if stage.__name__ in COUNTED:
                arguments = (*arguments[:2], seat.attempt, *arguments[2:])
            place = self._kernel.begin(stage, *arguments)
            if place != END:
                return replace(seat, place=place)
            seat = Seat(seat.task + 1)
        return replace(seat, place=END)

    def _go_on(self, world: World, number: int, outcome: Any) -> World:
        seat = world.seats[number]
        place = self._kernel.step(seat.place, outcome)
        if place != END:
            return self._with_seat(world, number, replace(seat, place=place))
        if self._names[number] == CLEANER:
            return self._with_seat(world, number, Seat())
        return self._with_seat(world, number, self._begun(self._names[number], Seat(seat.task + 1)))

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
        begun = self._begun(self._names[number], Seat(seat.task, seat.attempt + 1))
        lost = {(replica, share) for replica, share in hurt.handed if replica == self._names[number]}
        disks = hurt.disks - {(replica, "", share) for replica, share in lost}
        hurt = replace(hurt, tree=hurt.tree.expire(SESSION), disks=disks, handed=hurt.handed - lost)
        hurt = self._with_seat(hurt, number, begun)
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
                yield "", self._with_view(world, number, None), None
                if world.seats[number].view is not None and (deposed := spend(world, Fault.DEPOSED)) is not None:
                    yield "by a deposed leader", deposed, None
            case fx.Get() | fx.GetMany() | fx.Children() | fx.ChildrenMany():
                yield from self._read(world, number, effect)
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
                yield from perform(world, world.seats[number].view or world.tree, effect)
                lagging = spend(world, Fault.STALE) if isinstance(effect, ListObjects) else None
                if lagging is not None and world.seats[number].view is None:
                    for text, after, outcome in perform(lagging, world.tree, effect):
                        yield f"{text}, lags from here", self._with_view(after, number, world.tree), outcome

    def _read(
        self, world: World, number: int, effect: fx.Get | fx.GetMany | fx.Children | fx.ChildrenMany
    ) -> Iterator[tuple[str, World, Any]]:
        seat = world.seats[number]
        yield "read", world, answer(seat.view or world.tree, effect)
        lagging = spend(world, Fault.STALE) if seat.view is None else None
        if lagging is not None:
            yield "lags from here", self._with_view(lagging, number, world.tree), answer(world.tree, effect)

    def _commit(self, world: World, number: int, effect: fx.Commit) -> Iterator[tuple[str, World, Any]]:
        _, outcome = world.tree.commit(effect.operations, SESSION)
        fresh = self._with_view(world, number, None)
        text = "applied" if isinstance(outcome, fx.Applied) else f"refused, {outcome.reason.value}"
        harm = world.broken or harm_of(world, self._names[number], effect, outcome)
        yield text, replace(self._arrive(fresh, effect), broken=harm), outcome
        lost = spend(fresh, Fault.UNKNOWN)
        if lost is not None:
            if isinstance(outcome, fx.Applied):
                yield "applied, answer lost", self._arrive(lost, effect), fx.Unknown()
            yield "on its way, answer lost", _sent(lost, effect), fx.Unknown()

    def _in_doubt(self, world: World, effect: PutObjects | DeleteObjects) -> Iterator[tuple[str, World, Any]]:
        lost = spend(world, Fault.STORE)
        if lost is not None:
            yield "done, answer lost", self._arrive(lost, effect), ObjectsInDoubt()
            yield "half done", _half(lost, effect), ObjectsInDoubt()
            yield "on its way, answer lost", _sent(lost, effect), ObjectsInDoubt()

    def _with_view(self, world: World, number: int, view: Tree | None) -> World:
        return self._with_seat(world, number, replace(world.seats[number], view=view))

    def _arrive(self, world: World, effect: Any) -> World:
        """Do what a request asks for, if it can be done now."""
        match effect:
            case fx.Commit(operations):
                tree, outcome = world.tree.commit(operations, SESSION)
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
        return world.young | set(shares) if self.model.has_disks else world.young


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
