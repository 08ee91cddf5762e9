"""What is, and what may happen next: coordination, the object store, processes, requests that are still on their way.

Every step is one effect of one process, a late request that arrives, or a fault.  A share has `PIECES` objects, of which a
crash or a lost answer may leave any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol import layout
from replitree.protocol.effects import Applied, Children, Commit, Create, Get, Refused, Sync, Unknown
from replitree.protocol.share import (
    DeleteObjects,
    LookAtObjects,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    PutObjects,
    ShareId,
)
from replitree.verify.kernel import END, Kernel, ProcedureFailed, Stage
from replitree.verify.sharing.tasks import TABLE, clean, replica_of

PIECES = 2
SESSION = 1
CLEANER = "cleaner"
"""The seat that works the garbage off whenever there is some."""


class Fault(Enum):
    """Kinds of faults.

    `CRASH`: a process loses its memory, also in the middle of a request to the store.  `UNKNOWN`: the answer to a commit is
    lost.  `STALE`: a process reads old values until it syncs or commits.  `STORE`: an answer of the object store is lost.
    """

    CRASH = "crash"
    UNKNOWN = "unknown"
    STALE = "stale"
    STORE = "store"


Task = tuple[Stage, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Model:
    """A world to search.

    Attributes
    ----------
    name, description
        For people.
    tasks
        What each seat's processes do, one after another, by the seat's name.  `write` is given the number of the attempt, too.
    faults
        How many of each kind.
    replicas
        Those that exist at the beginning.
    """

    name: str
    description: str
    tasks: dict[str, tuple[Task, ...]]
    faults: dict[Fault, int]
    replicas: tuple[str, ...] = ("r1", "r2")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where the processes of one replica run: which task, the number of the attempt, the place in it, and what is read from."""

    task: int = 0
    attempt: int = 0
    place: int = END
    view: Tree | None = None


@dataclass(frozen=True, slots=True)
class World:
    """One moment.

    Attributes
    ----------
    tree, objects
        Coordination, and what is in the store.
    seats
        In the order of the model's.
    late
        Requests that are on their way: commits, puts and deletes.
    budget
        Faults that are left, in the order of `Fault`.
    owned
        Shares that ever had a node.
    """

    tree: Tree
    objects: frozenset[tuple[ShareId, int]]
    seats: tuple[Seat, ...]
    late: tuple[Any, ...] = ()
    budget: tuple[int, ...] = (0, 0, 0, 0)
    owned: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        seats = tuple((s.task, s.attempt, s.place, hash(s.view) if s.view is not None else None) for s in self.seats)
        return hash(self.tree), self.objects, seats, self.late, self.budget, self.owned


Step = tuple[str, World]


class Scene:
    """The steps of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._names = (*model.tasks, CLEANER)
        self._kernel = Kernel()

    def first(self) -> World:
        """Return the world in which nothing has happened."""
        paths = {layout.shares(TABLE): b"", layout.all_garbage(TABLE): b""}
        for name in self.model.replicas:
            paths |= {layout.host(replica_of(name)): b"here", layout.parts(replica_of(name)): b""}
        seats = tuple(self._begun(name, Seat()) for name in self._names)
        return World(Tree.of(paths), frozenset(), seats, budget=tuple(self.model.faults.get(kind, 0) for kind in Fault))

    def steps(self, world: World) -> Iterator[Step]:
        """Yield whatever may happen next, with its name."""
        for number, name in enumerate(self._names):
            for text, after in self._seat_steps(world, number):
                yield f"{name}: {text}", after
        for request in world.late:
            rest = list(world.late)
            rest.remove(request)
            yield f"late: {_short(request)}", self._arrive(replace(world, late=tuple(rest)), request)

    def is_at_rest(self, world: World) -> bool:
        """Whether nothing is left to do: all tasks are done, nothing is on its way, and the cleaner changes nothing."""
        if world.late or any(self._kernel.effect(seat.place) is not None for seat in world.seats):
            return False
        number = self._names.index(CLEANER)
        after = self._with_seat(world, number, self._begun(CLEANER, Seat()))
        while (effect := self._kernel.effect(after.seats[number].place)) is not None:
            _, after, outcome = next(self._perform(after, number, effect))
            after = self._go_on(after, number, outcome)
        return after.key == world.key

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
            if stage.__name__ == "write":
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
        hurt = _spend(world, Fault.CRASH)
        if hurt is None:
            return
        seat = hurt.seats[number]
        begun = self._begun(self._names[number], Seat(seat.task, seat.attempt + 1))
        hurt = self._with_seat(hurt, number, begun)
        yield "", hurt
        match effect:
            case Commit():
                yield ", done", self._arrive(hurt, effect)
                yield ", on its way", _sent(hurt, effect)
            case PutObjects() | DeleteObjects():
                yield ", half done", _half(hurt, effect)
                yield ", on its way", _sent(hurt, effect)

    # --- effects --------------------------------------------------------------------------------------------------------------

    def _perform(self, world: World, number: int, effect: Any) -> Iterator[tuple[str, World, Any]]:
        match effect:
            case Sync():
                yield "", self._with_view(world, number, None), None
            case Get() | Children():
                yield from self._read(world, number, effect)
            case Commit():
                yield from self._commit(world, number, effect)
            case LookAtObjects(shares):
                whole = all((share, piece) in world.objects for share in shares for piece in range(PIECES))
                yield "looked", world, ObjectsThere() if whole else ObjectsInDoubt("not there")
            case PutObjects():
                yield "stored", self._arrive(world, effect), ObjectsThere()
                yield from self._in_doubt(world, effect)
            case DeleteObjects():
                yield "deleted", self._arrive(world, effect), ObjectsGone()
                yield from self._in_doubt(world, effect)
            case _:
                raise ProcedureFailed(f"nobody performs {effect}")

    def _read(self, world: World, number: int, effect: Get | Children) -> Iterator[tuple[str, World, Any]]:
        read: Callable[[Tree], Any] = (
            (lambda tree: tree.get(effect.path))
            if isinstance(effect, Get)
            else (lambda tree: tree.children(effect.path))
        )
        seat = world.seats[number]
        yield "read", world, read(seat.view or world.tree)
        lagging = _spend(world, Fault.STALE) if seat.view is None else None
        if lagging is not None:
            yield "lags from here", self._with_view(lagging, number, world.tree), read(world.tree)

    def _commit(self, world: World, number: int, effect: Commit) -> Iterator[tuple[str, World, Any]]:
        _, outcome = world.tree.commit(effect.operations, SESSION)
        fresh = self._with_view(world, number, None)
        text = "applied" if isinstance(outcome, Applied) else f"refused, {outcome.reason.value}"
        yield text, self._arrive(fresh, effect), outcome
        lost = _spend(fresh, Fault.UNKNOWN)
        if lost is not None:
            if isinstance(outcome, Applied):
                yield "applied, answer lost", self._arrive(lost, effect), Unknown()
            yield "on its way, answer lost", _sent(lost, effect), Unknown()

    def _in_doubt(self, world: World, effect: PutObjects | DeleteObjects) -> Iterator[tuple[str, World, Any]]:
        lost = _spend(world, Fault.STORE)
        if lost is not None:
            yield "done, answer lost", self._arrive(lost, effect), ObjectsInDoubt()
            yield "half done", _half(lost, effect), ObjectsInDoubt()
            yield "on its way, answer lost", _sent(lost, effect), ObjectsInDoubt()

    def _with_view(self, world: World, number: int, view: Tree | None) -> World:
        return self._with_seat(world, number, replace(world.seats[number], view=view))

    def _arrive(self, world: World, effect: Any) -> World:
        """Do what a request asks for, if it can be done now."""
        match effect:
            case Commit(operations):
                tree, outcome = world.tree.commit(operations, SESSION)
                if isinstance(outcome, Refused):
                    return world
                prefix = f"{layout.shares(TABLE)}/"
                new = {
                    each.path.removeprefix(prefix)
                    for each in operations
                    if isinstance(each, Create) and each.path.startswith(prefix) and "/" not in each.path[len(prefix) :]
                }
                return replace(world, tree=tree, owned=world.owned | new)
            case PutObjects(share):
                return replace(world, objects=world.objects | {(share, piece) for piece in range(PIECES)})
            case DeleteObjects(share):
                return replace(world, objects=frozenset(each for each in world.objects if each[0] != share))
        raise ProcedureFailed(f"{effect} can't arrive late")


def _sent(world: World, effect: Any) -> World:
    """Let a request be on its way."""
    return replace(world, late=tuple(sorted((*world.late, effect), key=repr)))


def _half(world: World, effect: PutObjects | DeleteObjects) -> World:
    """Do a part of a request."""
    one = (effect.share, 0)
    return replace(world, objects=world.objects | {one} if isinstance(effect, PutObjects) else world.objects - {one})


def _spend(world: World, fault: Fault) -> World | None:
    """Take one fault from the budget; None when there is none left."""
    index = list(Fault).index(fault)
    if not world.budget[index]:
        return None
    budget = list(world.budget)
    budget[index] -= 1
    return replace(world, budget=tuple(budget))


def _short(effect: Any) -> str:
    """Write an effect so that people can read a trace."""
    match effect:
        case Commit(operations):
            return "commit " + ", ".join(f"{type(each).__name__.lower()} {_place(each.path)}" for each in operations)
        case Get(path) | Children(path) | Sync(path):
            return f"{type(effect).__name__.lower()} {_place(path)}"
        case PutObjects(share) | DeleteObjects(share):
            return f"{'put' if isinstance(effect, PutObjects) else 'delete'} objects of {share}"
        case LookAtObjects(shares):
            return f"look at {' '.join(shares)}"
    return str(effect)


def _place(path: str) -> str:
    return path.removeprefix(f"{TABLE.path}/").removeprefix("zero_copy_s3/").removeprefix("replicas/")


__all__ = ["CLEANER", "PIECES", "Fault", "Model", "Scene", "Step", "World"]
