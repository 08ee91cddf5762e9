"""What may happen next in a model of parts that move.

Every step is one effect of one thread, a late request that arrives, or a fault.  What a process asks of its own memory it is
told at once.  What it does to its disk is a step: the other threads of the replica notice.

The threads run the stages that ship: the mover, the upkeep of shares and the life thread on every replica, the executor and the
puller where an entry drops the part, the mender where the part is found broken.  None of them registers a part, so
`sharing.with_shares` would add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import DropEntry, encode_entry
from replitree.protocol.core.fold import apply
from replitree.protocol.core.log import encode_log
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.program import life, life_in_store, mender, puller, upkeep
from replitree.protocol.program.executor import execute_next
from replitree.protocol.program.mender_effects import BrokenNotes
from replitree.protocol.program.stages import AwaitMove, AwaitWork, MoveEnded, MoveTurn, WorkTurn
from replitree.protocol.shares.moving import FindShare, Moved, PutPart, ShareInDoubt
from replitree.protocol.shares.share import (
    DeleteObjects,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    ShareId,
    work_off,
)
from replitree.protocol.state.pull import PULL_ENTRIES_MAX, Queued
from replitree.protocol.state.registration import View
from replitree_verify.moving.disk import act, can_act, told_at_once
from replitree_verify.moving.threads import find_broken
from replitree_verify.moving.world import (
    LENDS,
    PART,
    PIECES,
    Disk,
    Drop,
    Machine,
    Model,
    Process,
    Task,
    Thread,
    World,
    shares_in,
)
from replitree_verify.shared_tables.scene import short
from replitree_verify.shared_tables.world import CONTENT, INCARNATION, STORE_ID, TABLE, replica_of, sharer_of
from replitree_verify.world.faults import Fault, budget_of
from replitree_verify.world.kernel import Kernel, ProcedureFailed
from replitree_verify.world.objects import PutObjects

Step = tuple[str, World]
Outcomes = Iterator[tuple[str, World, Any]]

ENOUGH = object()
"""Stands for the turn of a mover, or an executor, that has nothing more to do."""

NOTES, LIFE, CLEANER = "notes", "life", "cleaner"
"""Threads that every replica has, and the one that works the garbage off, whosesoever it is."""

PULL, MEND = "pull", "mend"
"""Threads of a replica that executes an entry, and of one whose part is found broken."""

_FOREVER = (NOTES, LIFE, CLEANER, PULL, MEND)
_DROPPED_AT = fx.LogIndex(1)
_DROP = DropEntry("r1", fx.EntryId("drop"), parse_part(PART).partition, block_min=0, block_max=0)
"""The entry that drops the part, and its place in the log: it is pulled, and the log has nothing after it."""


class Scene:
    """The steps of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        stages = [(name, task.stage) for (name, _), tasks in model.threads.items() for task in tasks]
        self._executing = frozenset(name for name, stage in stages if stage is execute_next)
        more = [(replica, thread) for replica in model.replicas for thread in (NOTES, LIFE)]
        more += [(replica, PULL) for replica in sorted(self._executing)]
        more += [(replica, MEND) for replica, stage in stages if stage is find_broken]
        self._threads = (*model.threads, *more, (model.replicas[0], CLEANER))
        self._kernel = Kernel(life_in_store.stages_in_store(STORE_ID, INCARNATION))

    def first(self) -> World:
        """Return the world in which nothing has happened."""
        paths = dict.fromkeys((layout.shares(TABLE), layout.all_garbage(TABLE), layout.all_writing(TABLE)), b"")
        paths |= {layout.sharing(TABLE): STORE_ID.encode(), layout.log(TABLE): encode_log(TABLE)}
        own = ShareId(f"s0{LENDS}b0" if self.model.is_borrowing else "s0") if self.model.shared else None
        shares = () if own is None else shares_in(own)
        for name in self.model.replicas:
            replica = replica_of(name)
            paths |= {
                layout.replica_path(replica): INCARNATION.encode(),
                layout.host(replica): name.encode(),
                layout.is_lost(replica): NOT_LOST,
                layout.log_pointer(replica): layout.pointer_value(_DROPPED_AT + 1),
                layout.queue(replica): b"",
                layout.part(replica, PART): CONTENT.encode(),
            }
            if name in self._executing:
                paths[layout.queue_entry(replica, _DROPPED_AT)] = encode_entry(_DROP)
            for share in shares if name in self.model.shared else ():
                paths |= {layout.share(TABLE, share): b"", f"{layout.share(TABLE, share)}/{_mark(name)}": b""}
        tree = Tree.of(paths)
        for at, name in enumerate(self.model.replicas):
            active = fx.Create(layout.is_active(replica_of(name)), name.encode(), ephemeral=True)
            tree, _ = tree.commit((active,), 1 + at)
        disks = {True: Disk(((PART, own),)), False: Disk(((PART, None),), frozenset({PART}))}
        written = {name: name if name in self.model.differing else "" for name in self.model.replicas}
        process = Process(epoch=fx.Epoch(0), is_active=True, drop=Drop.OVER)
        world = World(
            tree,
            frozenset((share, piece) for share in shares for piece in range(PIECES)),
            tuple(
                Machine(
                    replace(disks[name in self.model.shared], written=written[name]),
                    replace(process, drop=Drop.QUEUED) if name in self._executing else process,
                )
                for name in self.model.replicas
            ),
            (Thread(),) * len(self._threads),
            budget=budget_of(self.model.faults),
        )
        for number in range(len(self._threads)):
            world = self._begun(world, number, 0)
        return world

    def steps(self, world: World) -> Iterator[Step]:
        """Yield whatever may happen next, with its name."""
        for number, (replica, thread) in enumerate(self._threads):
            effect = self._kernel.effect(world.threads[number].place)
            if effect is None or (thread == CLEANER and not world.tree.children(layout.all_garbage(TABLE))):
                continue
            for text, after, outcome in self._perform(world, number, effect):
                yield f"{replica} {thread}: {short(effect)} → {text}", self._go_on(after, number, outcome)
        for number, name in enumerate(self.model.replicas):
            if name in self.model.breaking:
                yield from self._broken_off(world, number, name)
        for request in world.late:
            rest = list(world.late)
            rest.remove(request)
            yield f"late: {short(request[1])}", self._arrive(replace(world, late=tuple(rest)), *request)

    def is_at_rest(self, world: World) -> bool:
        """Whether nothing is left to do: tasks are done, nothing is on its way, and what goes on for ever changes nothing."""
        if world.late or world.tree.children(layout.all_garbage(TABLE)):
            return False
        for number, (_, thread) in enumerate(self._threads):
            effect = self._kernel.effect(world.threads[number].place)
            is_done = effect is None if thread not in _FOREVER else self._is_at_its_begin(world, number)
            if not is_done or (thread in (LIFE, PULL, MEND) and self._can_act(world, number, effect)):
                return False
            if thread == NOTES and self._round(world, number).key != world.key:
                return False
        return True

    # --- threads --------------------------------------------------------------------------------------------------------------

    def _machine(self, number: int) -> int:
        return self.model.replicas.index(self._threads[number][0])

    def _session(self, world: World, number: int) -> int:
        at = self._machine(number)
        return 1 + at + len(self.model.replicas) * world.machines[at].process.session

    def _tasks(self, number: int) -> tuple[Task, ...]:
        name, thread = self._threads[number]
        replica = replica_of(name)
        known = {
            NOTES: Task(upkeep.let_go_next, (replica,)),
            LIFE: Task(life.wait_for_trouble, (replica, name.encode())),
            PULL: Task(puller.pull_next, (replica, PULL_ENTRIES_MAX)),
            MEND: Task(mender.mend, (replica, BrokenNotes(fx.Epoch(0)))),  # no epoch ends in a model with a broken part
            CLEANER: Task(work_off, (TABLE,)),
        }
        return (known[thread],) if thread in known else self.model.threads[name, thread]

    def _can_act(self, world: World, number: int, effect: Any) -> bool:
        return can_act(world, self._machine(number), self._threads[number][0], effect)

    def _is_at_its_begin(self, world: World, number: int) -> bool:
        (task,) = self._tasks(number)
        return world.threads[number].place == self._kernel.begin(task.stage, *task.arguments)

    def _round(self, world: World, number: int) -> World:
        """Return what a thread that goes on for ever makes of a world, alone and without faults, in one round."""
        while True:
            effect = self._kernel.effect(world.threads[number].place)
            found = next(self._perform(world, number, effect), None)
            if found is None:
                return world
            world = self._go_on(found[1], number, found[2])
            if self._is_at_its_begin(world, number):
                return world

    def _begun(self, world: World, number: int, task: int) -> World:
        tasks = self._tasks(number)
        if task == len(tasks):
            if self._threads[number][1] not in _FOREVER:
                return world.with_thread(number, Thread(task))
            task = 0
        place = self._kernel.begin(tasks[task].stage, *tasks[task].arguments)
        return self._settled(world.with_thread(number, Thread(task, place)), number)

    def _go_on(self, world: World, number: int, outcome: Any) -> World:
        thread = world.threads[number]
        if outcome is ENOUGH:
            return self._begun(world, number, thread.task + 1)
        after = replace(thread, place=self._kernel.step(thread.place, outcome))
        return self._settled(world.with_thread(number, after), number)

    def _settled(self, world: World, number: int) -> World:
        """Answer what is answered at once, and go on to the next task when one is done.

        So are reads of what no step changes, and a sync: until the thread reads again, it makes no difference when it was.
        """
        while (effect := self._kernel.effect(world.threads[number].place)) is not None:
            at, (name, kind) = self._machine(number), self._threads[number]
            if isinstance(effect, AwaitMove) and self._may_move(world, number) and not world.threads[number].is_refused:
                return self._go_on(world, number, self._turn(world, number))
            if isinstance(effect, AwaitWork) and (turn := self._work(world, number)) is not None:
                return self._go_on(*turn)
            if isinstance(effect, MoveEnded):
                return self._go_on(self._moved(world, number, effect), number, None)
            if isinstance(effect, fx.Sync):
                outcome, world = None, _with_view(world, number, None)
            elif self._is_fixed(world, effect):
                outcome = answer(world.tree, effect)
            elif (told := told_at_once(world.machines[at], name, kind, effect)) is not None:
                outcome, world = told[0], world.with_machine(at, told[1])
            else:
                return world
            thread = world.threads[number]
            world = world.with_thread(number, replace(thread, place=self._kernel.step(thread.place, outcome)))
        return self._begun(world, number, world.threads[number].task + 1)

    def _is_fixed(self, world: World, effect: Any) -> bool:
        """Whether an effect reads what no step changes; a thread that may lag begins to do so at any read."""
        if self.model.faults.get(Fault.STALE):
            return False
        match effect:
            case fx.Children(path):
                return path != layout.sharing(TABLE) and self._is_unchanged(world.tree, path)
            case fx.Get(path) | fx.Exists(path):
                return self._is_unchanged(world.tree, path)
            case fx.GetMany(paths):
                return all(self._is_unchanged(world.tree, path) for path in paths)
        return False

    def _is_unchanged(self, tree: Tree, path: str) -> bool:
        """Whether no step changes a node, nor adds children to it, but for `sharing`.

        What a replica has in its queue, and registered, stays as it is once the entry is executed that drops the part.
        """
        if path in (layout.sharing(TABLE), layout.replicas(TABLE)) or path.startswith(layout.log(TABLE)):
            return True
        for replica in map(replica_of, self.model.replicas):
            if path in (layout.replica_path(replica), layout.is_lost(replica), layout.log_pointer(replica)):
                return True
            if path in (layout.queue(replica), layout.parts(replica), layout.part(replica, PART)):
                return not tree.exists(layout.queue_entry(replica, _DROPPED_AT))
        return False

    # --- the executor ---------------------------------------------------------------------------------------------------------

    def _work(self, world: World, number: int) -> tuple[World, int, Any] | None:
        """Return the world in which an executor has its turn, its thread, and the turn; None while it waits."""
        at = self._machine(number)
        machine = world.machines[at]
        process = machine.process
        if process.drop is Drop.OVER:
            return world, number, ENOUGH
        if process.drop is not Drop.QUEUED or not process.is_active or process.epoch is None:
            return None
        held = PartSet.of((parse_part(PART),))
        parts, change = apply(held, _DROPPED_AT, _DROP)
        turn = WorkTurn(process.epoch, View(parts, held), (Queued(_DROPPED_AT, _DROP, change),))
        return world.with_machine(at, replace(machine, process=replace(process, drop=Drop.RUNNING))), number, turn

    # --- the mover ------------------------------------------------------------------------------------------------------------

    def _may_move(self, world: World, number: int) -> bool:
        """Whether a mover looks where the part is: its replica is active, and after a failure no replica claims the part."""
        is_claimed = world.threads[number].is_refused and world.tree.exists(layout.moving(TABLE, PART))
        return world.machines[self._machine(number)].process.is_active and not is_claimed

    def _turn(self, world: World, number: int) -> MoveTurn | object:
        """Return what a mover is to move now; `ENOUGH`: the part is where it belongs, or gone, or was tried often enough."""
        thread, disk = world.threads[number], world.machines[self._machine(number)].disk
        task, share = self._tasks(number)[thread.task], disk.share_of(PART)
        if not disk.has(PART) or task.to_store is (share is not None) or thread.moves == task.tries:
            return ENOUGH
        return MoveTurn(sharer_of(self._threads[number][0]), PART, share)

    def _moved(self, world: World, number: int, ended: MoveEnded) -> World:
        thread = world.threads[number]
        is_refused = ended.turn.share is None and not isinstance(ended.outcome, Moved)
        return world.with_thread(number, replace(thread, moves=thread.moves + 1, is_refused=is_refused))

    # --- what breaks a process or a session off -------------------------------------------------------------------------------

    def _broken_off(self, world: World, at: int, name: str) -> Iterator[Step]:
        numbers = [number for number, (replica, thread) in enumerate(self._threads) if replica == name]
        numbers = [number for number in numbers if self._threads[number][1] != CLEANER]
        session = self._session(world, numbers[0])
        if (expired := world.spend(Fault.EXPIRY)) is not None and world.machines[at].process.is_active:
            process = world.machines[at].process.in_trouble()
            yield f"{name}: session ends", self._ended(expired, at, session, process)
        if (hurt := world.spend(Fault.CRASH)) is None:
            return
        pending = [request for number in numbers if _is_sent(request := self._request(world, number))]
        for text, after in (("", hurt), *self._cut_offs(hurt, session, pending)):
            crashed = self._ended(after, at, session, Process())
            for number in numbers:
                crashed = self._begun(crashed, number, world.threads[number].task)
            yield f"{name}: crash{text}", crashed

    def _cut_offs(self, world: World, session: int, pending: list[Any]) -> Iterator[Step]:
        """Yield what may become of the request that was under way; what is done by then is a step before."""
        for request in pending:
            for way in _WAYS:
                yield f", {short(request)} {way}", self._cut_off(world, session, request, way)

    def _ended(self, world: World, at: int, session: int, process: Process) -> World:
        """Return the world after the end of a replica's session."""
        before = world.machines[at]
        machine = replace(before, process=replace(process, session=before.process.session + 1))
        return replace(world.with_machine(at, machine), tree=world.tree.expire(session))

    def _request(self, world: World, number: int) -> Any:
        thread = world.threads[number]
        effect = self._kernel.effect(thread.place)
        if thread.task == len(self._tasks(number)):
            return None
        return PutObjects(effect.share) if isinstance(effect, PutPart) else effect

    def _cut_off(self, world: World, session: int, request: Any, way: str) -> World:
        match way:
            case "half done":
                return _half(world, request)
            case "late":
                stray = {request.share} if isinstance(request, PutObjects) else set()
                return replace(world, stray=world.stray | stray).sent(session, request)
        return world

    # --- effects --------------------------------------------------------------------------------------------------------------

    def _perform(self, world: World, number: int, effect: Any) -> Outcomes:
        match effect:
            case fx.Get() | fx.GetMany() | fx.Children() | fx.ChildrenMany():
                yield from self._read(world, number, effect)
            case fx.Commit():
                yield from self._commit(world, number, effect)
            case PutPart(_, share):
                put = PutObjects(share)
                yield "stored", self._arrive(world, 0, put), ObjectsThere()
                yield from self._in_doubt(world, number, put)
            case DeleteObjects():
                yield "deleted", self._arrive(world, 0, effect), ObjectsGone()
                yield from self._in_doubt(world, number, effect)
            case AwaitMove():
                if self._may_move(world, number):
                    yield "looked", world, self._turn(world, number)
            case AwaitWork():
                if (turn := self._work(world, number)) is not None:
                    yield "looked", turn[0], turn[2]
            case FindShare():
                text, after, found = act(world, self._machine(number), *self._threads[number], effect)
                yield text, after, found
                if found is not None and (silent := world.spend(Fault.STORE)) is not None:
                    yield "no answer", silent, ShareInDoubt("no answer")
            case _:
                if self._can_act(world, number, effect):
                    yield act(world, self._machine(number), *self._threads[number], effect)

    def _commit(self, world: World, number: int, effect: fx.Commit) -> Outcomes:
        session = self._session(world, number)
        _, outcome = world.tree.commit(effect.operations, session)
        fresh = _with_view(world, number, None)
        text = "applied" if isinstance(outcome, fx.Applied) else f"refused, {outcome.reason.value}"
        yield text, self._arrive(fresh, session, effect), outcome
        lost = self._hurt(fresh, number, Fault.UNKNOWN)
        if lost is not None:
            if isinstance(outcome, fx.Applied):
                yield "applied, answer lost", self._arrive(lost, session, effect), fx.Unknown()
            yield "on its way, answer lost", lost.sent(session, effect), fx.Unknown()

    def _hurt(self, world: World, number: int, fault: Fault) -> World | None:
        """Take a fault from the budget for a thread whose replica may have one."""
        return world.spend(fault) if self._threads[number][0] in self.model.breaking else None

    def _read(self, world: World, number: int, effect: Any) -> Outcomes:
        thread = world.threads[number]
        yield "read", world, answer(thread.view or world.tree, effect)
        lagging = self._hurt(world, number, Fault.STALE) if thread.view is None else None
        if lagging is not None:
            yield "lags from here", _with_view(lagging, number, world.tree), answer(world.tree, effect)

    def _in_doubt(self, world: World, number: int, request: PutObjects | DeleteObjects) -> Outcomes:
        lost = world.spend(Fault.STORE)
        if lost is not None:
            yield "answer lost, done", self._arrive(lost, 0, request), ObjectsInDoubt()
            for way in _WAYS:
                after = self._cut_off(lost, self._session(world, number), request, way)
                yield f"answer lost, {way}", after, ObjectsInDoubt()

    def _arrive(self, world: World, session: int, request: Any) -> World:
        """Do what a request asks for, if it can be done now; what is ephemeral goes with a session that has ended."""
        match request:
            case fx.Commit(operations):
                tree, outcome = world.tree.commit(operations, session)
                if isinstance(outcome, fx.Refused):
                    return world
                alive = {self._session(world, number) for number in range(len(self._threads))}
                return replace(world, tree=tree if session in alive else tree.expire(session))
            case PutObjects(share):
                return replace(world, objects=world.objects | {(share, piece) for piece in range(PIECES)})
            case DeleteObjects(share):
                return replace(world, objects=frozenset(each for each in world.objects if each[0] != share))
        raise ProcedureFailed(f"{request} can't arrive late")


_WAYS = "half done", "late"
"""What may become of a request whose process does not wait for the answer, beside nothing and all."""


def _is_sent(request: Any) -> bool:
    return isinstance(request, fx.Commit | PutObjects | DeleteObjects)


def _half(world: World, request: Any) -> World:
    match request:
        case PutObjects(share):
            return replace(world, objects=world.objects | {(share, 0)})
        case DeleteObjects(share):
            return replace(world, objects=world.objects - {(share, 0)})
    return world


def _with_view(world: World, number: int, view: Tree | None) -> World:
    return world.with_thread(number, replace(world.threads[number], view=view))


def _mark(name: str) -> str:
    return f"{name}~{INCARNATION}~{PART}"


__all__ = ["Scene", "Step"]
