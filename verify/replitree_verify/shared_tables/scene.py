"""What may happen next in a model of tables on an object store.

Every step is one effect of one process, a late request that arrives, or a fault.  What a process asks of its own memory, or
only looks up on its disk, it is told at once: no other process can notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.log import encode_log
from replitree.protocol.membership.table import DROPPED_HOST, NOT_LOST
from replitree.protocol.program import life
from replitree.protocol.program.stages import (
    AwaitSource,
    AwaitTrouble,
    Forget,
    Stop,
)
from replitree.protocol.shares.share import (
    DeleteObjects,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    ShareId,
    work_off,
)
from replitree.protocol.shares.share_effects import (
    NameShares,
    PutShares,
    SharedPart,
    SharesHere,
    SharesOf,
    SharesSettled,
)
from replitree_verify.shared_tables.disks import SILENT, on_disk, seen_on
from replitree_verify.shared_tables.memory import AwaitActive, KernelInStore, remembered
from replitree_verify.shared_tables.world import (
    CLEANER,
    CONTENT,
    INCARNATION,
    ME,
    PIECES,
    SESSION,
    TABLE,
    WRITTEN,
    Disk,
    Model,
    Seat,
    Shares,
    World,
    replica_of,
)
from replitree_verify.world.faults import Fault, budget_of
from replitree_verify.world.kernel import END, Kernel, ProcedureFailed
from replitree_verify.world.objects import PutObjects

NAMED_MAX = 8
"""Nodes that a trace names of those that one request reads."""

Step = tuple[str, World]
Outcomes = Iterator[tuple[str, World, Any]]


class Scene:
    """The steps of one model."""

    awaits_active: tuple[type, ...] = (AwaitActive,)
    """Effects that wait until the process is active."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = (*model.tasks, CLEANER)
        self._kernel: Kernel = KernelInStore()

    def first(self) -> World:
        """Return the world in which every seat has begun its first task."""
        world = self._initial()
        for number, seat in enumerate(world.seats):
            world = self._begun(world, number, seat)
        return world

    def _initial(self) -> World:
        """Return the world in which nothing has happened."""
        folders = (layout.shares(TABLE), layout.all_garbage(TABLE), layout.all_writing(TABLE))
        paths = dict.fromkeys(folders, b"")
        paths |= {layout.sharing(TABLE): self.model.store, layout.log(TABLE): encode_log(TABLE)}
        for name in self.model.replicas:
            replica = replica_of(name)
            paths |= {layout.replica_path(replica): INCARNATION.encode(), layout.host(replica): ME}
            paths |= {layout.is_lost(replica): NOT_LOST, layout.log_pointer(replica): b"0"}
            paths |= {layout.queue(replica): b"", layout.parts(replica): b""}
        budget = budget_of(self.model.faults)
        world = World(Tree.of(paths), frozenset(), (Seat(),) * len(self.names), budget=budget)
        if self.model.written:
            world = _written(world, self.names[0], self.model.written, (ShareId("r1-w"),), paths)
        return world

    def steps(self, world: World) -> Iterator[Step]:
        """Yield whatever may happen next, with its name."""
        for number, name in enumerate(self.names):
            for text, after in self._seat_steps(world, number):
                yield f"{name}: {text}", after
        for request in world.late:
            rest = list(world.late)
            rest.remove(request)
            yield f"late: {short(request)}", _arrive(replace(world, late=tuple(rest)), request)

    def is_at_rest(self, world: World) -> bool:
        """Whether nothing is left to do: all tasks are done, nothing is on its way, and there is no garbage."""
        is_busy = any(self._is_busy(world, number) for number in range(len(self.names)))
        return not world.late and not is_busy and not world.tree.children(layout.all_garbage(TABLE))

    def _is_busy(self, world: World, number: int) -> bool:
        effect = self._kernel.effect(world.seats[number].place)
        return effect is not None and not (isinstance(effect, AwaitSource) and not self._has_source(world, number))

    def _has_source(self, world: World, number: int) -> bool:
        """Whether another replica than that of a seat is good."""
        others = (layout.is_lost(replica_of(name)) for name in self.model.replicas if name != self.names[number])
        return any(node is not None and node.value == NOT_LOST for node in map(world.tree.get, others))

    # --- seats ----------------------------------------------------------------------------------------------------------------

    def _seat_steps(self, world: World, number: int) -> Iterator[Step]:
        effect = self._kernel.effect(world.seats[number].place)
        if effect is None:
            if self.names[number] == CLEANER and world.tree.children(layout.all_garbage(TABLE)):
                yield "begins", self._begun(world, number, Seat())
            return
        for text, after, outcome in self._perform(world, number, effect):
            yield f"{short(effect)} → {text}", self._go_on(after, number, outcome)
        for text, after in self._crashes(world, number, effect):
            yield f"crash at {short(effect)}{text}", after
        yield from self._expiries(world, number, effect)

    def _begun(self, world: World, number: int, seat: Seat) -> World:
        """Begin a seat's task; one whose tasks are all done stays where it ended."""
        name = self.names[number]
        tasks = ((work_off, (TABLE,)),) if name == CLEANER else self.model.tasks[name]
        while seat.task < len(tasks):
            stage, arguments = tasks[seat.task]
            place = self._kernel.begin(stage, *arguments)
            if place != END:
                return self._settled(world.with_seat(number, replace(seat, place=place)), number)
            seat = replace(seat, task=seat.task + 1)
        return world.with_seat(number, replace(seat, place=END))

    def _go_on(self, world: World, number: int, outcome: Any) -> World:
        seat = world.seats[number]
        seat = replace(seat, place=self._kernel.step(seat.place, outcome))
        return self._settled(world.with_seat(number, seat), number)

    def _settled(self, world: World, number: int) -> World:
        """Answer what is answered at once, and go on to the next task when one is done."""
        seat = world.seats[number]
        while seat.place != END:
            effect = self._kernel.effect(seat.place)
            if self._is_over(effect):
                seat = replace(seat, place=END, waiting=END)
                break
            if isinstance(effect, self.awaits_active) and seat.in_trouble:
                place = self._kernel.begin(life.become_active, replica_of(self.names[number]), ME)
                seat = replace(seat, place=place, waiting=seat.place)
                continue
            if isinstance(effect, AwaitTrouble) and not seat.in_trouble:
                seat = replace(seat, place=seat.waiting, waiting=END)
                continue
            told, seat = _told_at_once(seat, self.names[number], effect)
            if told is SILENT and self._reads_its_own(world, number, effect):
                told = answer(world.tree, effect)
            if told is SILENT:
                return world.with_seat(number, seat)
            seat = replace(seat, place=self._kernel.step(seat.place, told))
        if self.names[number] == CLEANER:
            return world.with_seat(number, Seat())
        return self._begun(world, number, replace(seat, task=seat.task + 1, view=None))

    def _reads_its_own(self, world: World, number: int, effect: Any) -> bool:
        """Whether a process reads nodes that no other seat, late request or fault changes: it may do so at once."""
        match effect:
            case fx.Get(path) | fx.Children(path) | fx.Exists(path):
                paths: tuple[str, ...] = (path,)
            case fx.GetMany(paths) | fx.ChildrenMany(paths):
                pass
            case _:
                return False
        if all(self._is_constant(path) for path in paths):
            return True
        return self._is_left_alone(world, number) and all(self._is_its_own(number, path) for path in paths)

    def _is_constant(self, path: str) -> bool:
        """Whether a node never changes, and no view begins at it: that of the store, or one of the log."""
        is_fixed = bool(self.model.store) and Fault.STALE not in self.model.faults
        return is_fixed and (path == layout.sharing(TABLE) or f"{path}/".startswith(f"{layout.log(TABLE)}/"))

    def _is_its_own(self, number: int, path: str) -> bool:
        """Whether a node is one of the replica of a seat."""
        return f"{path}/".startswith(f"{layout.replica_path(replica_of(self.names[number]))}/")

    def _is_left_alone(self, world: World, number: int) -> bool:
        """Whether only a seat itself changes the nodes of its replica, and sees all of their changes.

        Then it matters to no other seat when it reads them.
        """
        if world.seats[number].view is not None:
            return False
        late = (each for request in world.late for each in self._late_operations(request))
        written = (each.path for each in late if not isinstance(each, fx.Check))
        is_safe = all(world.spend(each) is None for each in (Fault.STALE, Fault.EXPIRY))
        return is_safe and not any(self._is_its_own(number, path) for path in written)

    def _late_operations(self, request: Any) -> tuple[fx.Operation, ...]:
        """Return what a request that is on its way does to coordination."""
        return request.operations if isinstance(request, fx.Commit) else ()

    def _is_struck(self, number: int) -> bool:
        """Whether the process of a seat may be killed, its answers may be lost, and its session may end."""
        return self.names[number] in (self.model.struck or self.names)

    def _is_over(self, effect: Any) -> bool:
        """Whether a process does no more: its table is gone, or its replica was dropped."""
        return isinstance(effect, Stop | Forget)

    def _crashes(self, world: World, number: int, effect: Any) -> Iterator[Step]:
        """Yield what a crash may leave: its request was not sent, is done, is half done, or is on its way."""
        hurt = world.spend(Fault.CRASH)
        if hurt is None or not self._is_struck(number):
            return
        seat = hurt.seats[number]
        request = PutObjects(_named(seat)) if isinstance(effect, PutShares) else effect
        for text, after in _cut_off(hurt, request):
            yield text, self._begun(after, number, Seat(seat.task, count=seat.count, disk=seat.disk))

    def _expiries(self, world: World, number: int, effect: Any) -> Iterator[Step]:
        """Yield what the end of a session leaves: the process activates again, and then goes on where it was.

        The answer to a commit is lost then: it was not sent, is done by then, or is on its way.
        """
        ended = world.spend(Fault.EXPIRY)
        if ended is None or world.seats[number].epoch is None or not self._is_struck(number):
            return
        if not isinstance(effect, fx.Commit):
            yield f"session ends at {short(effect)}", self._activated(ended, number)
            return
        for text, after in _cut_off(ended, effect):
            yield (
                f"session ends at {short(effect)}{text}",
                self._go_on(self._activated(after, number), number, fx.Unknown()),
            )

    def _activated(self, world: World, number: int) -> World:
        """Return the world in which a process has activated again, beside what it is doing: nothing else happens meanwhile.

        A process that is not active activates again when the activation that has begun is over.
        """
        name = self.names[number]
        tree, _ = world.tree.commit((fx.Delete(layout.is_active(replica_of(name)), fx.ANY_VERSION),), SESSION)
        world = _with_view(replace(world, tree=tree), number, None)
        if not world.seats[number].is_active:
            return world.with_seat(number, replace(world.seats[number], in_trouble=True))
        place = self._kernel.begin(life.become_active, replica_of(name), ME)
        while not isinstance(effect := self._kernel.effect(place), AwaitTrouble):
            outcome, seat = _told_at_once(world.seats[number], name, effect)
            world = world.with_seat(number, seat)
            if outcome is SILENT:
                _, world, outcome = next(iter(self._perform(world, number, effect)))
            place = self._kernel.step(place, outcome)
        return world

    # --- effects --------------------------------------------------------------------------------------------------------------

    def _perform(self, world: World, number: int, effect: Any) -> Outcomes:
        match effect:
            case fx.Get() | fx.GetMany() | fx.Children() | fx.ChildrenMany() | fx.Exists():
                yield from _read(world, number, effect)
            case fx.Commit():
                yield from _commit(world, number, effect, is_struck=self._is_struck(number))
            case PutShares():
                yield from _put(world, number, is_dropped=_is_dropped(world, self.names[number]))
            case DeleteObjects():
                yield "deleted", _arrive(world, effect), ObjectsGone()
                yield from _in_doubt(world, effect)
            case fx.FetchPart(part, _, sources):
                yield from self._fetch(world, number, part, sources[0] if sources else "")
            case fx.FetchMany((fetch,)):
                for text, after, outcome in self._perform(world, number, fetch):
                    yield text, after, (outcome,)
            case AwaitSource():
                if self._has_source(world, number):
                    yield "there is one", world, None
            case _:
                yield on_disk(world, number, effect)

    def _fetch(self, world: World, number: int, part: str, source: str) -> Outcomes:
        """Take the metadata of a part over, if its manifests can be read in the store: they are put last."""
        disk = world.seats[number].disk
        if disk.has(part):
            yield "here already", world, fx.Fetched(part)
            return
        theirs = world.seats[self.names.index(source)].disk if source else Disk()
        shares = theirs.shares_of(part)
        if not theirs.has(part) or any((share, PIECES - 1) not in world.objects for share in shares):
            yield "not there", world, fx.NotFetched(part, "not there")
            return
        yield "fetched", world.with_disk(number, disk.with_part(part, shares)), fx.Fetched(part)


def _written(world: World, name: str, part: str, shares: Shares, paths: dict[str, bytes]) -> World:
    """Return the world in which the first replica has written a part and registered it, alone."""
    owned = {layout.share(TABLE, share): b"" for share in shares}
    marks = {f"{place}/{name}~{INCARNATION}~{part}": b"" for place in owned}
    replica = replica_of(name)
    own = {layout.part(replica, part): CONTENT.encode(), layout.log_pointer(replica): WRITTEN}
    tree = Tree.of({**paths, **owned, **marks, **own})
    objects = frozenset((share, piece) for share in shares for piece in range(PIECES))
    seat = Seat(shown=frozenset({part}), disk=Disk(parts=((part, shares),)))
    return replace(world, tree=tree, objects=objects).with_seat(0, seat)


def _told_at_once(seat: Seat, name: str, effect: Any) -> tuple[Any, Seat]:
    """Return the outcome of an effect that only this process notices, and its memory after that."""
    disk = seat.disk
    match effect:
        case fx.Sync():
            return None, replace(seat, view=None)
        case NameShares():
            share = ShareId(f"{name}-{seat.count}")
            return (share,), replace(seat, named=share, new=seat.new | {share}, count=seat.count + 1)
        case SharesOf(parts):
            pairs = ((part, share) for part in parts for share in disk.shares_of(part))
            return tuple(SharedPart(part, share, share in seat.new) for part, share in pairs), seat
        case SharesSettled(shares):
            return None, replace(seat, new=seat.new - set(shares), named=None if seat.named in shares else seat.named)
        case SharesHere():
            return tuple(sorted(seat.new.union(disk.shares))), seat
        case fx.Reveal(parts, gone):
            return None, replace(seat, shown=(seat.shown | set(parts)) - set(gone))
    return remembered(seat, name, effect) or (seen_on(disk, effect), seat)


def _read(world: World, number: int, effect: Any) -> Outcomes:
    seat = world.seats[number]
    yield "read", world, answer(seat.view or world.tree, effect)
    lagging = world.spend(Fault.STALE) if seat.view is None else None
    if lagging is not None:
        yield "lags from here", _with_view(lagging, number, world.tree), answer(world.tree, effect)


def _commit(world: World, number: int, effect: fx.Commit, *, is_struck: bool) -> Outcomes:
    _, outcome = world.tree.commit(effect.operations, SESSION)
    fresh = _with_view(world, number, None)
    text = "applied" if isinstance(outcome, fx.Applied) else f"refused, {outcome.reason.value}"
    yield text, _arrive(fresh, effect), outcome
    lost = fresh.spend(Fault.UNKNOWN) if is_struck else None
    if lost is not None:
        if isinstance(outcome, fx.Applied):
            yield "applied, answer lost", _arrive(lost, effect), fx.Unknown()
        yield "on its way, answer lost", lost.sent(effect), fx.Unknown()


def _is_dropped(world: World, name: str) -> bool:
    host = world.tree.get(layout.host(replica_of(name)))
    return host is None or host.value == DROPPED_HOST


def _put(world: World, number: int, *, is_dropped: bool) -> Outcomes:
    """Put objects; what the process of a dropped replica puts may have no owner."""
    seat = world.seats[number]
    share = _named(seat)
    stored = _arrive(world, PutObjects(share))
    stored = replace(stored, stray=stored.stray | {share}) if is_dropped else stored
    disk = replace(seat.disk, staged=(share, *seat.disk.staged[1:]))
    yield "stored", stored.with_seat(number, replace(seat, disk=disk, named=None)), ObjectsThere()
    for text, after, outcome in _in_doubt(world, PutObjects(share)):
        yield text, after.with_seat(number, replace(seat, named=None, new=seat.new - {share})), outcome


def _in_doubt(world: World, effect: PutObjects | DeleteObjects) -> Outcomes:
    lost = world.spend(Fault.STORE)
    if lost is not None:
        for text, after in _cut_off(lost, effect):
            if text:
                yield f"answer lost{text}", after, ObjectsInDoubt()


def _cut_off(world: World, effect: Any) -> Iterator[Step]:
    """Yield what becomes of a request whose process stops to wait for the answer."""
    yield "", world
    match effect:
        case fx.Commit():
            yield ", done", _arrive(world, effect)
            yield ", on its way", world.sent(effect)
        case PutObjects(share):
            strayed = replace(world, stray=world.stray | {share})
            yield ", done", _arrive(world, effect)
            yield ", half done", replace(world, objects=world.objects | {(share, 0)})
            yield ", on its way", strayed.sent(effect)
        case DeleteObjects(share):
            yield ", half done", replace(world, objects=world.objects - {(share, 0)})
            yield ", on its way", world.sent(effect)


def _arrive(world: World, effect: Any) -> World:
    """Do what a request asks for, if it can be done now."""
    match effect:
        case fx.Commit(operations):
            tree, outcome = world.tree.commit(operations, SESSION)
            return world if isinstance(outcome, fx.Refused) else replace(world, tree=tree)
        case PutObjects(share):
            return replace(world, objects=world.objects | {(share, piece) for piece in range(PIECES)})
        case DeleteObjects(share):
            return replace(world, objects=frozenset(each for each in world.objects if each[0] != share))
    raise ProcedureFailed(f"{effect} can't arrive late")


def _with_view(world: World, number: int, view: Tree | None) -> World:
    return world.with_seat(number, replace(world.seats[number], view=view))


def _named(seat: Seat) -> ShareId:
    assert seat.named is not None
    return seat.named


def short(effect: Any) -> str:
    """Write an effect so that people can read a trace."""
    match effect:
        case fx.Commit(operations):
            return "commit " + ", ".join(f"{type(each).__name__.lower()} {_place(each.path)}" for each in operations)
        case fx.Get(path) | fx.Children(path) | fx.Exists(path) | fx.Sync(path):
            return f"{type(effect).__name__.lower()} {_place(path)}"
        case fx.GetMany(paths):
            return f"get {' '.join(map(_place, paths[:NAMED_MAX]))}{' …' if len(paths) > NAMED_MAX else ''}"
        case fx.ChildrenMany(paths):
            return f"children {' '.join(map(_place, paths))}"
    return str(effect)


def _place(path: str) -> str:
    return path.removeprefix(f"{TABLE.path}/").removeprefix("zero_copy_s3/").removeprefix("replicas/")


__all__ = ["Scene", "Step", "short"]
