"""What may happen next in a model of merges in an object store.

As in `replitree_verify.shared_tables`, and sessions end: that of a killed process some time later, and, of one of the
model's expiries, that of a process that goes on.  Whose session has ended is in a new one at its next request: nothing
worse can happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program import executor, upkeep
from replitree.protocol.program.stages import (
    AwaitUpkeep,
    AwaitWork,
    GiveBack,
    UpkeepTurn,
    WorkTurn,
)
from replitree.protocol.shares.share_effects import NameShares
from replitree.protocol.state.registration import Postponed, View
from replitree_verify.merging.world import DONE, ITEM, LIVES, LOG, MARK, RESULT, SOURCE, Late, Model, World
from replitree_verify.shared_tables.scene import Outcomes, Scene, Step, short
from replitree_verify.shared_tables.world import (
    CLEANER,
    CONTENT,
    ME,
    SESSION,
    TABLE,
    Seat,
    replica_of,
    sharer_of,
)
from replitree_verify.world.faults import Fault
from replitree_verify.world.kernel import END

UPKEEP = " gives up"
"""Ends the name of a seat that runs the upkeep of a replica."""

WAITING = AwaitWork | AwaitUpkeep


class MergeScene(Scene):
    """The steps of one model."""

    awaits_active = (*Scene.awaits_active, AwaitWork)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.model: Model = model
        self._has_upkeep = any(name.endswith(UPKEEP) for name in model.tasks)

    @override
    def first(self) -> World:
        world = super().first()
        if self._has_upkeep:  # which sees to the garbage
            world = world.with_seat(self.names.index(CLEANER), Seat())
        return cast("World", world)

    @override
    def _initial(self) -> World:
        """Return the world in which all replicas have the source registered, and the merge in the queue; or one has a part."""
        begun = super()._initial()
        more = (layout.results, layout.all_merged, layout.open_logs, layout.open_log)
        tree = _with(begun.tree, *(fx.Create(place(TABLE)) for place in more))
        tree = _with(tree, *(fx.Create(layout.log_create(TABLE), each, sequential=True) for each in LOG))
        for number, name in enumerate(self.model.replicas):
            tree = _with(tree, *_queued(replica_of(name)), session=number * LIVES + 1)
        lives, waits, expiries = (0,) * len(self.names), (None,) * len(self.names), self.model.expiries
        return World(tree, begun.objects, begun.seats, (), begun.budget, lives=lives, expiries=expiries, waits=waits)

    @override
    def steps(self, world: Any) -> Iterator[Step]:
        """Yield whatever may happen next, with its name."""
        mine = tuple(each for each in world.late if isinstance(each, Late))
        others = replace(world, late=tuple(each for each in world.late if not isinstance(each, Late)))
        for text, after in super().steps(others):
            yield text, replace(after, late=tuple(sorted((*after.late, *mine), key=repr)))
        for late in mine:
            rest = list(world.late)
            rest.remove(late)
            tree, _ = world.tree.commit(late.commit.operations, late.session)
            yield f"late: {short(late.commit)}", replace(world, late=tuple(rest), tree=tree)
        for session in sorted(world.dying):
            yield f"time: session {session} of a killed process ends", world.without(session)
        for number, name in enumerate(self.names):
            if world.expiries and self._is_struck(number) and _has_mark(world, number):
                seat = replace(world.seats[number], in_trouble=True)
                ended = world.without(world.session(number)).with_new_session(number).with_seat(number, seat)
                yield f"time: the session of {name} ends", replace(ended, expiries=world.expiries - 1)

    @override
    def is_at_rest(self, world: Any) -> bool:
        """Whether nothing is left to do: all have executed the merge, nothing is on its way, and there is no garbage."""
        if world.late or world.dying or world.tree.children(layout.all_garbage(TABLE)):
            return False
        return all(effect is None or isinstance(effect, AwaitUpkeep) for effect in self._effects(world))

    def is_stuck(self, world: World) -> bool:
        """Whether a replica waits for what none will do."""
        effects = self._effects(world)
        if not all(effect is None or isinstance(effect, WAITING) for effect in effects):
            return False
        changes = any(self._after_upkeep(after).key != world.key for _, after in self.steps(world))
        return not changes and not self.is_at_rest(world)

    def _after_upkeep(self, world: Any) -> Any:
        """Return the world in which upkeep that has begun is over, without faults."""
        for number, seat in enumerate(world.seats):
            place = seat.place
            if not place or self._kernel.conversation(place).stage is not upkeep.work_garbage_off:
                continue
            while not isinstance(effect := self._kernel.effect(world.seats[number].place), AwaitUpkeep):
                _, world, outcome = next(self._perform(world, number, effect))
                world = self._go_on(world, number, outcome)
        return world

    def _effects(self, world: World) -> tuple[Any, ...]:
        return tuple(self._kernel.effect(seat.place) for seat in world.seats)

    # --- seats ----------------------------------------------------------------------------------------------------------------

    @override
    def _is_left_alone(self, world: Any, number: int) -> bool:
        return not world.dying and not world.expiries and super()._is_left_alone(world, number)

    @override
    def _late_operations(self, request: Any) -> tuple[fx.Operation, ...]:
        return super()._late_operations(request.commit if isinstance(request, Late) else request)

    @override
    def _settled(self, world: Any, number: int) -> Any:
        seat = world.seats[number]
        if isinstance(self._kernel.effect(seat.place), NameShares) and seat.disk.staged_shares:
            return self._go_on(world, number, ())  # what a client has put has a share
        world = super()._settled(world, number)
        seat = world.seats[number]
        match self._kernel.effect(seat.place):
            case GiveBack(_, done, postponed):
                return self._go_on(self._given_back(world, number, done, postponed), number, None)
        return world

    def _given_back(
        self, world: World, number: int, done: tuple[fx.LogIndex, ...], postponed: tuple[Postponed, ...]
    ) -> World:
        """Return the world in which a replica has tried the merge: it tries again at once, or waits for a node."""
        turns = self._kernel.conversation(world.seats[number].place).turns
        (_, turn), *others = turns
        assert isinstance(turn, WorkTurn)
        if any(each.is_told for each in postponed):
            watched = [
                (read.watch, many.watched) for read, many in others if isinstance(read, fx.GetMany) and read.watch
            ]
            return world.with_waits(number, watched[-1])
        return world.with_waits(number, None if done or turn.view.makes else (DONE, False))

    @override
    def _seat_steps(self, world: Any, number: int) -> Iterator[Step]:
        effect = self._kernel.effect(world.seats[number].place)
        if not isinstance(effect, WAITING):
            if effect is not None or not self._has_upkeep:
                yield from super()._seat_steps(world, number)
            return
        outcome = self._waited(world, number, effect)
        if outcome is not None:
            yield f"{short(effect)} is over", self._go_on(world.with_waits(number, None), number, outcome)
        if isinstance(effect, AwaitWork) and not self._has_work(world, number):
            yield "nothing is left to execute", self._settled(_ended(world, number), number)
        for text, after in self._crashes(world, number, effect):
            yield f"crash at {effect}{text}", after

    def _waited(self, world: World, number: int, effect: Any) -> Any:
        """Return the outcome of waiting when it is over; None before."""
        match effect:
            case AwaitWork():
                is_due = self._has_work(world, number) and not world.is_waiting(number)
                return self._work_turn(world, number) if is_due else None
        return self._upkeep_turn(world, self.names[number].removesuffix(UPKEEP))

    def _has_work(self, world: World, number: int) -> bool:
        return world.tree.exists(layout.queue_entry(replica_of(self.names[number]), ITEM.index))

    def _work_turn(self, world: World, number: int) -> WorkTurn:
        """Return what an executor works with: the state of its replica as coordination has it."""
        name, epoch = self.names[number], world.seats[number].epoch
        assert epoch is not None
        held = world.tree.children(layout.parts(replica_of(name))) or ()
        view = View(PartSet.of((RESULT,)), PartSet.of(map(parse_part, held)), sharer=sharer_of(name))
        return WorkTurn(epoch, view, (ITEM,))

    def _upkeep_turn(self, world: World, name: str) -> UpkeepTurn | None:
        """Return what the upkeep of a replica works with when it has a work mark under which it makes nothing, or garbage.

        One replica sees to the garbage of all.
        """
        mark, host = world.tree.get(MARK), world.tree.get(layout.host(replica_of(name)))
        is_left = mark is not None and mark.value == sharer_of(name).signature and not self._is_working(world, name)
        is_cleaner = name == self.names[0] and bool(world.tree.children(layout.all_garbage(TABLE)))
        if host is None or not (is_left or is_cleaner) or self._is_beginning(world, name):
            return None
        return UpkeepTurn(sharer_of(name), fx.Epoch(host.version), None)

    def _is_beginning(self, world: World, name: str) -> bool:
        """Whether a replica is not active: a process has just begun, or is in trouble."""
        seat = world.seats[self.names.index(name)]
        return not (seat.is_active or seat.place == END)

    def _is_working(self, world: World, name: str) -> bool:
        """Whether a replica is executing the merge, and does not wait."""
        place = world.seats[self.names.index(name)].place
        effect = self._kernel.effect(place)
        is_of_executor = bool(place) and self._kernel.conversation(place).stage is executor.make_next
        return is_of_executor and not isinstance(effect, AwaitWork)

    @override
    def _crashes(self, world: Any, number: int, effect: Any) -> Iterator[Step]:
        """Yield what a crash may leave; the session of the process lives on for a while."""
        if self.names[number] not in (self.model.struck or self.model.replicas):
            return
        if not isinstance(effect, fx.Commit):
            for text, after in super()._crashes(world, number, effect):
                yield text, self._died(cast("World", after), number)
            return
        hurt = world.spend(Fault.CRASH)
        if hurt is None:
            return
        seat, sent = hurt.seats[number], Late(world.session(number), effect)
        done = replace(hurt, tree=hurt.tree.commit(effect.operations, sent.session)[0])
        for text, after in (("", hurt), (", done", done), (", on its way", hurt.sent(sent))):
            begun = self._begun(after, number, Seat(seat.task, count=seat.count, disk=seat.disk))
            yield text, self._died(cast("World", begun), number)

    def _died(self, world: World, number: int) -> World:
        """Return the world in which a seat's process was killed: its session lives on if there is anything of it."""
        session, name = world.session(number), self.names[number]
        is_left = world.tree.ephemerals(session) or any(isinstance(each, Late) for each in world.late)
        left = replace(world, dying=world.dying | {session}) if is_left else world
        if (keeper := f"{name}{UPKEEP}") in self.names:
            place = self._kernel.begin(upkeep.let_go_next, replica_of(name))
            at = self.names.index(keeper)
            left = cast("World", left.with_seat(at, replace(left.seats[at], place=place)))
        return left.with_waits(number, None).with_new_session(number)

    # --- effects --------------------------------------------------------------------------------------------------------------

    @override
    def _perform(self, world: Any, number: int, effect: Any) -> Outcomes:
        name = self.names[number]
        match effect:
            case fx.Commit():
                yield from _commit(world, number, effect, is_struck=self._is_struck(number))
            case fx.Merge():
                disk = replace(world.seats[number].disk, staged=(None,))
                yield "made", world.with_disk(number, disk), fx.Made(CONTENT)
            case fx.FetchMany((fx.FetchPart(part, _, sources),)):
                for text, after, outcome in self._fetch(world, number, part, sources[0]):
                    yield text, after, (outcome,)
            case fx.ResultsInWork():
                owner = name.removesuffix(UPKEEP)
                yield "told", world, ((RESULT.name,) if self._is_working(world, owner) else ())
            case fx.Discard(part):
                yield from super()._perform(world, number, fx.RemovePart(part))
            case _:
                yield from super()._perform(world, number, effect)


def _has_mark(world: World, number: int) -> bool:
    """Whether more than the activity of its replica ends with the session of a seat: a mark under which it works."""
    return any(not path.endswith("/is_active") for path in world.tree.ephemerals(world.session(number)))


def _with(tree: Tree, *operations: fx.Operation, session: int = SESSION) -> Tree:
    after, done = tree.commit(operations, session)
    assert isinstance(done, fx.Applied), done
    return after


def _queued(replica: Replica) -> tuple[fx.Operation, ...]:
    """Return what makes a replica active, which has the source registered and the merge in its queue."""
    return (
        fx.Create(layout.part(replica, SOURCE.name), CONTENT.encode()),
        fx.Create(layout.queue_entry(replica, ITEM.index), LOG[ITEM.index]),
        fx.Set(layout.log_pointer(replica), b"%d" % len(LOG), fx.ANY_VERSION),
        fx.Create(layout.is_active(replica), ME, ephemeral=True),
    )


def _ended(world: World, number: int) -> World:
    """Return the world in which a seat's task is over."""
    return cast("World", world.with_seat(number, replace(world.seats[number], place=END)))


def _commit(world: World, number: int, effect: fx.Commit, *, is_struck: bool) -> Outcomes:
    session = world.session(number)
    tree, outcome = world.tree.commit(effect.operations, session)
    done = replace(world, tree=tree)
    yield "applied" if isinstance(outcome, fx.Applied) else f"refused, {outcome.reason.value}", done, outcome
    lost = world.spend(Fault.UNKNOWN) if is_struck else None
    if lost is not None:
        if isinstance(outcome, fx.Applied):
            yield "applied, answer lost", replace(lost, tree=tree), fx.Unknown()
        yield "on its way, answer lost", lost.sent(Late(session, effect)), fx.Unknown()


__all__ = ["MergeScene"]
