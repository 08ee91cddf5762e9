"""What may happen next in a model of replicas that join again.

Every step is one read or commit of one process, the end of a session that its process does not notice, or a commit that
arrives late.  What a process asks of its own memory or disk it is told at once.  A process that was paused is one whose next
step comes late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import encode_entry, quorum_of
from replitree.protocol.core.run import run
from replitree.protocol.membership import table
from replitree.protocol.program import life
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    HasPart,
    NameShares,
    SharedPart,
    SharesOf,
    SharesSettled,
)
from replitree.protocol.state.counted import QuorumValue, encode_quorum
from replitree_verify.rejoining.processes import ENOUGH, STAGES, remembered
from replitree_verify.rejoining.world import (
    CONTENT,
    HELPER,
    INSERT,
    ONE,
    OTHER,
    PART,
    PULLED,
    SHARE,
    STORE_ID,
    TABLE,
    Model,
    Seat,
    World,
    is_remade,
    me_of,
    replica_of,
)
from replitree_verify.shared_tables.scene import short
from replitree_verify.world.faults import Fault, budget_of
from replitree_verify.world.kernel import END, Kernel, ProcedureFailed

Step = tuple[str, World]
SESSIONS_MAX = 8
"""Sessions of one seat."""

_SILENT = object()
"""Stands for the outcome of an effect that has to be a step."""


class Scene:
    """The steps of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = tuple(model.tasks)
        self._kernel = Kernel(STAGES)

    def first(self) -> World:
        """Return the world in which nothing has happened."""
        world = World(_table(self.model), tuple(Seat() for _ in self.names), budget=budget_of(self.model.faults))
        for _ in range(self.model.had):
            world = self._activated(world, 0)
        if self.model.had:
            world = self._ended(world, 0)
            world = replace(world, tree=_run(world.tree, table.drop_replica(ONE, shared=True)))
            world = world.with_seat(0, Seat(session=1))
        if self.model.is_joined:
            world = self._activated(world, 0)
        if self.model.is_lost:
            world = replace(world, tree=Tree())
        if self.model.is_marked:
            mark = f"{layout.share(TABLE, SHARE)}/{ONE.name}~{self.names[0]}~{PART}"
            world = replace(world, tree=_with(world.tree, {mark: b""}))
            world = world.with_seat(0, replace(world.seats[0], leaving=((PART, SHARE),)))
        for number, seat in enumerate(world.seats):
            world = self._begun(world, number, seat)
        return world

    def steps(self, world: World) -> Iterator[Step]:
        """Yield whatever may happen next, with its name."""
        for number, name in enumerate(self.names):
            effect = self._kernel.effect(world.seats[number].place)
            if effect is not None:
                for text, after, outcome in self._perform(world, number, effect):
                    yield f"{name}: {short(effect)} → {text}", self._go_on(after, number, outcome)
            ended = world.spend(Fault.EXPIRY)
            if ended is not None and world.tree.owner(layout.is_active(replica_of(name))) == self._session(
                world, number
            ):
                yield f"{name}: its session ends", self._ended(ended, number)
        for sent in world.late:
            rest = tuple(each for each in world.late if each is not sent)
            number, effect = sent
            yield (
                f"late, of {self.names[number]}: {short(effect)}",
                self._arrived(replace(world, late=rest), number, effect),
            )

    def is_at_rest(self, world: World) -> bool:
        """Whether nothing is left to do: all tasks are done, nothing is on its way."""
        return not world.late and all(self._kernel.effect(seat.place) is None for seat in world.seats)

    # --- seats ----------------------------------------------------------------------------------------------------------------

    def _begun(self, world: World, number: int, seat: Seat) -> World:
        """Begin a seat's task; one whose tasks are all done stays where it ended."""
        todo = self.model.tasks[self.names[number]]
        while seat.task < len(todo):
            stage, arguments = todo[seat.task]
            after = self._settled(world, number, replace(seat, place=self._kernel.begin(stage, *arguments)))
            if after.seats[number].place != END:
                return after
            seat = replace(after.seats[number], task=seat.task + 1)
        return world.with_seat(number, replace(seat, place=END))

    def _go_on(self, world: World, number: int, outcome: Any) -> World:
        seat = world.seats[number]
        after = self._settled(world, number, replace(seat, place=self._kernel.step(seat.place, outcome)))
        seat = after.seats[number]
        return after if seat.place != END else self._begun(after, number, replace(seat, task=seat.task + 1))

    def _settled(self, world: World, number: int, seat: Seat) -> World:
        """Answer what is answered at once."""
        while seat.place != END:
            told, seat = self._told_at_once(seat, self.names[number], world.life, self._kernel.effect(seat.place))
            if told is _SILENT:
                break
            place = END if told is ENOUGH else self._kernel.step(seat.place, told)
            seat = replace(seat, place=place)
        return world.with_seat(number, seat)

    def _activated(self, world: World, number: int) -> World:
        """Return the world in which a process has become the replica once more, before anything else happens."""
        name = self.names[number]
        place = self._kernel.begin(life.become_active, replica_of(name), me_of(name))
        world = self._settled(world, number, replace(world.seats[number], place=place))
        while (effect := self._kernel.effect(world.seats[number].place)) is not None:
            _, after, outcome = next(iter(self._perform(world, number, effect)))
            seat = after.seats[number]
            world = self._settled(after, number, replace(seat, place=self._kernel.step(seat.place, outcome)))
        return world

    def _session(self, world: World, number: int) -> int:
        return number * SESSIONS_MAX + world.seats[number].session + 1

    def _ended(self, world: World, number: int) -> World:
        """End a session: its nodes go, and what it has on its way does not arrive any more."""
        tree, seat = world.tree.expire(self._session(world, number)), world.seats[number]
        late = tuple(each for each in world.late if each[0] != number)
        return replace(world, tree=tree, late=late).with_seat(number, replace(seat, session=seat.session + 1))

    # --- effects --------------------------------------------------------------------------------------------------------------

    def _perform(self, world: World, number: int, effect: Any) -> Iterator[tuple[str, World, Any]]:
        match effect:
            case fx.Sync():
                yield "", world, None
            case fx.Get() | fx.GetMany() | fx.Children() | fx.ChildrenMany() | fx.Exists():
                yield "read", world, answer(world.tree, effect)
            case fx.Commit(operations):
                _, outcome = world.tree.commit(operations, self._session(world, number))
                text = "applied" if isinstance(outcome, fx.Applied) else f"refused, {outcome.reason.value}"
                yield text, self._done(world, number, effect), outcome
                lost = world.spend(Fault.UNKNOWN)
                if lost is not None:
                    if isinstance(outcome, fx.Applied):
                        yield "applied, answer lost", self._done(lost, number, effect), fx.Unknown()
                    yield "on its way, answer lost", replace(lost, late=(*lost.late, (number, effect))), fx.Unknown()
            case _:
                raise ProcedureFailed(f"no part of the model performs {effect}")

    def _done(self, world: World, number: int, effect: fx.Commit) -> World:
        return self._arrived(world, number, effect)

    def _arrived(self, world: World, number: int, effect: fx.Commit) -> World:
        """Do what a commit asks for, if it can be done now, and note what changes that it must not."""
        tree, outcome = world.tree.commit(effect.operations, self._session(world, number))
        if not isinstance(outcome, fx.Applied):
            return world
        seat, replica = world.seats[number], replica_of(self.names[number])
        has_joined = tree.exists(layout.replica_path(replica)) and not world.tree.exists(layout.replica_path(replica))
        if has_joined:  # its queue has the insert from the beginning: a late commit is refused for its epoch alone
            tree = _with(tree, {layout.queue_entry(replica, PULLED): encode_entry(INSERT)})
        is_guarded = any(isinstance(each, fx.Check) and each.path == layout.host(replica) for each in effect.operations)
        is_over = is_guarded and seat.epoch is not None and seat.life != world.life
        is_help = self.names[number] == HELPER and is_remade(world.tree)
        changed = (*world.changed, short(effect)) if is_over or is_help else world.changed
        return replace(world, tree=tree, life=world.life + has_joined, changed=changed)

    def _told_at_once(self, seat: Seat, name: str, life_now: int, effect: Any) -> tuple[Any, Seat]:
        """Return the outcome of an effect that only this process notices, and its memory after that."""
        match effect:
            case fx.CurrentEpoch():
                return seat.epoch, seat
            case fx.AdoptEpoch(epoch):
                return None, replace(seat, epoch=epoch, life=life_now)
            case fx.Stage():
                return fx.Staged((fx.StagedPart("all", 1, 1, CONTENT),)), seat
            case SharesOf(parts):
                return tuple(SharedPart(part, share, is_new=False) for part, share in seat.disk if part in parts), seat
            case HasPart(part):
                return any(here == part for here, _ in seat.disk), seat
            case fx.FetchMany(fetches):
                here = {*seat.disk, *((each.part, SHARE) for each in fetches)}
                return tuple(fx.Fetched(each.part) for each in fetches), replace(seat, disk=tuple(sorted(here)))
        if type(effect) in _ALWAYS:
            return _ALWAYS[type(effect)], seat
        return remembered(seat, name, effect, is_open=bool(self.model.counted)) or (_SILENT, seat)


def _table(model: Model) -> Tree:
    """Return the tree of a table on an object store, with a part of the other replica."""
    tree = _run(_run(Tree(), table.create_table(TABLE, b"", b"")), table.join_table(OTHER, "i1"))
    more = dict.fromkeys((layout.shares(TABLE), layout.all_garbage(TABLE), layout.all_writing(TABLE)), b"")
    mark = f"{layout.share(TABLE, SHARE)}/{OTHER.name}~i1~{PART}"
    if model.has_log:
        tree, _ = tree.commit((fx.Create(layout.log_create(TABLE), sequential=True),), 1)
    tree = _with(
        tree,
        {
            layout.sharing(TABLE): STORE_ID.encode(),
            **more,
            layout.share(TABLE, SHARE): b"",
            mark: b"",
            layout.part(OTHER, PART): CONTENT.encode(),
        },
    )
    status = layout.quorum_status(TABLE, INSERT.insert)
    for number, _ in enumerate(model.counted):
        value = encode_quorum(QuorumValue(quorum_of(INSERT), model.counted[: number + 1]))
        operation = fx.Set(status, value, fx.Version(number - 1)) if number else fx.Create(status, value)
        tree, _ = tree.commit((operation,), 1)
    return tree


def _with(tree: Tree, values: dict[str, bytes]) -> Tree:
    after, outcome = tree.commit(tuple(fx.Create(path, value) for path, value in values.items()), 1)
    assert isinstance(outcome, fx.Applied), outcome
    return after


def _run(tree: Tree, procedure: fx.Procedure[Any]) -> Tree:
    """Run a procedure to its end before anything else happens."""

    def perform(effect: Any) -> Any:
        nonlocal tree
        if isinstance(effect, fx.Commit):
            tree, outcome = tree.commit(effect.operations, 1)
            return outcome
        return None if isinstance(effect, fx.Sync) else answer(tree, effect)

    run(procedure, perform)
    return tree


_ALWAYS: dict[type, Any] = {
    fx.ProbeOwner: fx.Owner.UNCLEAR,
    fx.Publish: fx.Published(),
    **dict.fromkeys((fx.ListStaging, NameShares), ()),
    **dict.fromkeys((fx.Reveal, SharesSettled, ForgetParts, fx.RemoveStaging, fx.Answer)),
}
__all__ = ["Scene", "Step"]
