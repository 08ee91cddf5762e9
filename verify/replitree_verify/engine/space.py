"""The states of a model and the moves between them, at the speed of table look-ups.

A state is a tuple of small integers: the number of the coordination tree, the faults that are left, the requests in
flight, the answers that clients have, each replica's disk, each seat's memory and view, and each thread's place in its
procedure.  What the numbers stand for is kept in the kernel and in interners.  A step of a thread depends on few of them,
its *footprint*; the moves of a footprint are worked out once, on values (`steps`), and remembered as changes of a state, so
that most moves cost one look-up and one tuple.

Moves of a state, always in the same order: each thread's effect in every way it can end; then processes that die, sessions that
end, requests in flight that are applied.  Whenever the tree changes, each session that did not see it may stay behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree_verify.effects.row import ALONE, DISK
from replitree_verify.effects.table import ROW_OF, UNTAKEN
from replitree_verify.engine import footprints as kinds
from replitree_verify.engine.fingerprints import Fingerprints, Summands
from replitree_verify.engine.moves import (
    ANSWERS,
    FLIGHT,
    LEFT,
    OBJECTS,
    PRESENT,
    TREE,
    Expansion,
    Found,
    Met,
    Move,
    Thread,
    World,
    faults_of,
    is_local,
)
from replitree_verify.engine.steps import Ending, Steps, Turn
from replitree_verify.outcomes.branch import Request, Scene
from replitree_verify.outcomes.branches import can_apply_later, deliver
from replitree_verify.outcomes.local import Here
from replitree_verify.process.lost_parts import declared_part, kept_rows
from replitree_verify.process.read_requests import Told
from replitree_verify.process.seat_threads import TITLES, beginning, begins_again, work_of
from replitree_verify.process.shares import StoreKernel
from replitree_verify.world.disk import Disk
from replitree_verify.world.faults import GUARDS, Fault
from replitree_verify.world.kernel import END, Interner, Kernel
from replitree_verify.world.kernel import Stage as StageFunction
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import SESSIONS_PER_SEAT, TABLE, Model, me_of, seat_of
from replitree_verify.world.objects import Objects


class Space:
    """The states of one model.

    Parameters
    ----------
    model
        What is explored.
    replaced
        Stages to run instead of others, by name: a mutant.
    reduce
        Whether steps are joined (`reduction`).

    Attributes
    ----------
    ways, joined, grown
        The ways from place to place that were met, each with its outcome; what was joined to the step at a place; the places of
        which more is known since the search has looked.
    met
        The footprints that were met since the search has looked; None: it does not look.
    """

    def __init__(
        self, model: Model, replaced: Mapping[str, StageFunction] | None = None, *, reduce: bool = True
    ) -> None:
        self.model = model
        self.kernel = StoreKernel(replaced, asks=bool(model.machines)) if model.stored else Kernel(replaced)
        self.trees: Interner[Tree] = Interner()
        self.disks: Interner[Disk] = Interner()
        self.memories: Interner[Memory] = Interner()
        self.requests: Interner[Request] = Interner()
        self.flights: Interner[tuple[int, ...]] = Interner()
        self.objects: Interner[Objects | None] = Interner()
        self.replies: Interner[Told | None] = Interner()
        self.trees.number(Tree())  # takes the number `PRESENT`, so no tree in use has it
        self.flights.number(())
        self.replies.number(None)
        self.objects.number(Objects() if model.stored else None)
        self._steps = Steps(self.kernel, reduce)
        self._faults = [faults_of(model, name) for name, _ in model.seats]
        self._is_losing, self._is_still = model.is_losing, model.is_still
        self._is_apart = not (model.is_dropping or model.is_hopeless or model.is_losing)
        self._stale = Fault.STALE.cost if model.faults.get(Fault.STALE) else 0
        self._crashes = [
            Move(name, "crash", seat, Fault.CRASH.cost, probes=("crash",)) for seat, (name, _) in enumerate(model.seats)
        ]
        self._expiries = [Move(name, "expiry", seat, Fault.EXPIRY.cost) for seat, (name, _) in enumerate(model.seats)]
        self._leftover = Move("coordination", "expiry", -1, Fault.EXPIRY.cost)
        self._ended = Move("coordination", "expiry", -1)
        self._makes_once = model.stored and model.has_makers
        self._markers: dict[int, frozenset[int]] = {}
        self._footprints: list[int] = [0]
        self._alone_footprints: list[int] = [ALONE]
        self._alone: list[bool] = []
        self._late: dict[tuple[int, ...], Move | None] = {}
        self._flying: dict[tuple[int, int], int] = {}
        self._pruned: dict[tuple[int, int], int] = {}
        self._deaths: dict[tuple[int, ...], tuple[tuple[tuple[int, int], ...], int]] = {}
        self.ways: dict[int, dict[tuple[Any, int], None]] = {}
        self.joined: dict[int, dict[Any, None]] = {}
        self.grown: set[int] = set()
        self.met: list[Met] | None = None
        self._lay_out()
        self.fingerprints = Fingerprints(Summands(position) for position in range(self.size))

    def _lay_out(self) -> None:
        model = self.model
        requests, disks, seats = model.requests, len(model.disks), len(model.seats)
        self.answer_at = {request: ANSWERS + number for number, request in enumerate(requests)}
        first = ANSWERS + len(requests)
        self.disk_at = range(first, first + disks)
        self.memory_at = range(first + disks, first + disks + seats)
        self.view_at = range(first + disks + seats, first + disks + 2 * seats)
        self._places = [model.place(seat) for seat, _ in model.seats]
        self.replica_of = tuple(model.replicas.index(replica) for _, replica in model.seats)
        self.own_disk_at = tuple(self.disk_at[model.disks.index(model.disk_of(seat))] for seat, _ in model.seats)
        position = first + disks + 2 * seats
        self.threads: list[Thread] = []
        self.thread_at: list[slice] = []
        self.threads_of: list[slice] = []
        for seat, (name, _) in enumerate(model.seats):
            begin, first_thread = position, len(self.threads)
            for kind, number, arguments in work_of(model, name):
                own = (position, self.memory_at[seat], self.view_at[seat])
                disk, answers = self.own_disk_at[seat], tuple(self.answer_at.values())
                parts = kinds.takers(own, disk, self.disk_at, self.memory_at, answers, stored=model.stored)
                title = f"{name} {TITLES[kind]}{number}"
                self.threads.append(Thread(title, kind, seat, position, self.memory_at[seat], arguments, parts, {}, {}))
                position += 1
            self.thread_at.append(slice(begin, position))
            self.threads_of.append(slice(first_thread, len(self.threads)))
        self._rows = [(each.position, each.memory, each.parts, each.known, each.alone, each) for each in self.threads]
        self.size = position

    def beginning(self, thread: Thread, incarnation: int, *, is_there: bool = True) -> int:
        """Return the place where a thread begins in the n-th process of its seat; `is_there`: which starts at once."""
        stage, arguments = beginning(
            self.model, thread.seat, thread.kind, thread.arguments, incarnation, is_there=is_there
        )
        return self.kernel.begin(stage, *arguments)

    # --- all moves ----------------------------------------------------------------------------------------------------

    def successors(self, world: World) -> tuple[list[Found], bool]:
        """Return every state that one move leads to; and whether this one is quiet: no thread can go on without a fault."""
        step = Expansion(world, 0, (), set())
        return step.found, self.expand(step)

    def expand(self, step: Expansion) -> bool:
        """Find the states that one move leads to and that are not known; return whether this one is quiet."""
        world = step.world
        left, in_flight = world[LEFT], world[FLIGHT]
        quiet = True
        alone_of, footprints, alone_footprints = self._alone, self._footprints, self._alone_footprints
        for position, memory, parts, known, alone, thread in self._rows:
            place = world[position]
            if place == END:
                continue
            try:  # as in `moves`, without a call
                if in_flight or not alone_of[world[memory]]:
                    moves = known[parts[footprints[place]](world)]
                else:
                    moves = alone[parts[alone_footprints[place]](world)]
            except (IndexError, KeyError):
                moves = self._new_moves(thread, world, place, world[memory])
            if moves and self._follow(step, moves):
                quiet = False
        if left:  # crashes and ends of sessions take faults, so they leave a state quiet
            self._add_crashes(step)
            self._add_expiries(world, left | GUARDS, step.more)
        if self._makes_once:
            ending = self._left_marks(world[TREE])
            for session in ending.difference(self.memories[world[at]].session for at in self.memory_at):
                quiet = False
                self._tree_moved(world, self._expire(world, session), self._ended, step.more)
        if in_flight:
            self._add_late(world, step.more)
        if self.model.stored:
            self._add_late_to_store(world, step.more)
        if step.more:
            self._sift(step)
        return quiet

    def _follow(self, step: Expansion, moves: tuple[Move, ...]) -> bool:
        """Find the states that moves of a thread lead to and that are not known; return whether one takes no fault."""
        world, fingerprint, known, goes_on = step.world, step.fingerprint, step.known, False
        in_flight, guarded = world[FLIGHT], world[LEFT] | GUARDS
        for move in moves:
            # With requests in flight a change of the tree may prune some: then more than the move decides.
            change = move.delta if in_flight else move.calm
            if change:  # what it leads to is told apart before it is written down
                goes_on = True
                step.count += 1
                if move.probes:
                    step.probes.update(move.probes)
                if fingerprint ^ change not in known:
                    after = list(world)
                    for position, number in move.changes:
                        after[position] = number
                    step.found.append((tuple(after), move, -1))
                    step.fingerprints.append(fingerprint ^ change)
                continue
            if not move.cost:
                goes_on = True
            elif (guarded - move.cost) & GUARDS != GUARDS:
                continue  # a kind of fault is used up: the subtraction has borrowed the guard bit of its field
            self._apply(world, move, step.more)
            self._sift(step)
        return goes_on

    def _sift(self, step: Expansion) -> None:
        """Take what is not known out of what was found last."""
        for each in step.more:
            after, move, _ = each
            if move.probes:
                step.probes.update(move.probes)
            fingerprint = self.fingerprints.after(step.fingerprint, step.world, after)
            # A breach is of the move, not of the state it leads to: that state may be known from a move that breaks nothing.
            if fingerprint not in step.known or move.breach is not None:
                step.found.append(each)
                step.fingerprints.append(fingerprint)
        step.count += len(step.more)
        step.more.clear()

    def after(self, world: World, move: Move) -> World:
        """Return the state after a step that every session sees."""
        found: list[Found] = []
        self._apply(world, move, found)
        return found[0][0]

    def _apply(self, world: World, move: Move, found: list[Found]) -> None:
        """Add the state after a step, and those in which a session did not see it."""
        after = list(world)
        for position, number in move.changes:
            after[position] = number
        if move.is_plain:
            found.append((tuple(after), move, -1))
            return
        if move.cost:
            after[LEFT] -= move.cost
        for position, number in move.answers:
            if not after[position]:  # a client believes the first answer
                after[position] = number
        if move.sent >= 0:
            flight = (after[FLIGHT], move.sent)
            if flight not in self._flying:
                # Sorted: in which order requests were sent makes no states differ, each may be applied first.
                self._flying[flight] = self.flights.number(tuple(sorted({*self.flights[flight[0]], move.sent})))
            after[FLIGHT] = self._flying[flight]
        if move.dies:  # its memory is lost, the next process begins at its seat
            for position, number in self._death(after, move.seat)[0]:
                after[position] = number
            after[self.view_at[move.seat]] = PRESENT
        if move.moves_tree:
            self._tree_moved(world, after, move, found)
        else:
            found.append((tuple(after), move, -1))

    def _tree_moved(self, world: World, after: list[int], move: Move, found: list[Found]) -> None:
        """Add the state after a change of the tree, and those in which one session's view stays behind."""
        tree = after[TREE]
        if after[FLIGHT]:
            flight = (after[FLIGHT], tree)
            if flight not in self._pruned:
                # Requests that no later tree accepts are forgotten, so that states meet again.
                before, now = self.flights[flight[0]], self.trees[tree]
                kept = tuple(each for each in before if can_apply_later(self.requests[each], now))
                self._pruned[flight] = self.flights.number(kept)
            after[FLIGHT] = self._pruned[flight]
        # A view of the tree that is the present again does not lag: one state, with one name.
        for position in self.view_at:
            if after[position] == tree:
                after[position] = PRESENT
        found.append((tuple(after), move, -1))
        left = after[LEFT]
        if not self._stale or ((left | GUARDS) - self._stale) & GUARDS != GUARDS:
            return
        for seat, position in enumerate(self.view_at):
            unseen = (seat != move.seat or move.own_lag) and Fault.STALE in self._faults[seat]
            # A session that lags already stays where it is for nothing, and a dead process reads nothing.
            if unseen and after[position] == PRESENT and self.memories[after[self.memory_at[seat]]].is_there:
                behind = after.copy()
                behind[LEFT] = left - self._stale
                behind[position] = world[TREE]
                found.append((tuple(behind), move, seat))

    # --- processes and sessions that end --------------------------------------------------------------------------------

    def _add_crashes(self, step: Expansion) -> None:
        """Find the states after the death of each process; as with moves, only what is not known is written down."""
        world, left = step.world, step.world[LEFT] - Fault.CRASH.cost
        if ((world[LEFT] | GUARDS) - Fault.CRASH.cost) & GUARDS != GUARDS:
            return
        # From the parts that changed: most deaths lead to known states, and those are never written down.
        spent = step.fingerprint ^ self.fingerprints.delta(world, ((LEFT, left),))
        for seat, position in enumerate(self.memory_at):
            if Fault.CRASH not in self._faults[seat] or not self.memories[world[position]].is_there:
                continue
            changes, delta = self._death(world, seat)
            fingerprint = spent ^ delta ^ self.fingerprints.delta(world, ((self.view_at[seat], PRESENT),))
            step.count += 1
            step.probes.update(self._crashes[seat].probes)
            if fingerprint in step.known:
                continue
            after = list(world)
            after[LEFT] = left
            for at, number in changes:
                after[at] = number
            after[self.view_at[seat]] = PRESENT
            step.found.append((tuple(after), self._crashes[seat], -1))
            step.fingerprints.append(fingerprint)

    def _death(self, world: Sequence[int], seat: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """Return what the death of a process changes, but for its view, and what that does to the fingerprint."""
        position = self.memory_at[seat]
        # Without the view, which a death sets to the present: the same death in many views is worked out once.
        key = (world[position], *world[self.thread_at[seat]])
        death = self._deaths.get(key)
        if death is None:
            old = self.memories[world[position]]
            memory = Memory(old.incarnation + 1, old.session + 1)
            threads = self.threads[self.threads_of[seat]]
            changes: tuple[tuple[int, int], ...] = ((position, self.memories.number(memory)),)
            for thread in threads:
                place = world[thread.position]
                if begins_again(thread.kind, thread.arguments):
                    place = self.beginning(thread, memory.incarnation)
                elif type(self.kernel.effect(place)) not in UNTAKEN:
                    place = (
                        END  # a request that was not taken yet may still come; one that was taken dies with the process
                    )
                changes = (*changes, (thread.position, place))
            death = self._deaths[key] = changes, self.fingerprints.delta(world, changes)
        return death

    def _add_expiries(self, world: World, guarded: int, found: list[Found]) -> None:
        """Add the ends of sessions: of processes that are there, and of dead ones that still hold their replica."""
        if (guarded - Fault.EXPIRY.cost) & GUARDS != GUARDS:
            return
        living = []
        for seat, position in enumerate(self.memory_at):
            memory = self.memories[world[position]]
            living.append(memory.session)
            if Fault.EXPIRY in self._faults[seat] and memory.is_there:
                after = self._expire(world, memory.session, Fault.EXPIRY.cost)
                after[position] = self.memories.number(replace(memory, session=memory.session + 1).with_trouble())
                after[self.view_at[seat]] = PRESENT
                self._tree_moved(world, after, self._expiries[seat], found)
                # The new session may begin at a server that lags: at one where the session of another seat is.
                others = sorted({world[at] for at in self.view_at if at != self.view_at[seat]} - {PRESENT})
                for view in others if self.model.reads or self.model.begins_behind else ():
                    behind = (*after[: self.view_at[seat]], view, *after[self.view_at[seat] + 1 :])
                    found.append((behind, self._expiries[seat], seat))
        tree = self.trees[world[TREE]]
        for replica in dict.fromkeys(self._places):
            session = tree.owner(layout.is_active(replica))
            # A dead process's session ends at last: until then it keeps the next process out.
            if session and session not in living:
                self._tree_moved(world, self._expire(world, session, Fault.EXPIRY.cost), self._leftover, found)

    def _left_marks(self, tree: int) -> frozenset[int]:
        """Return the sessions that have work marks: that of a dead process ends some time, which takes no fault."""
        if tree not in self._markers:
            there, folder = self.trees[tree], layout.all_merged(TABLE)
            owners = (there.owner(f"{folder}/{name}") for name in there.children(folder) or ())
            self._markers[tree] = frozenset(owner for owner in owners if owner)
        return self._markers[tree]

    def _expire(self, world: World, session: int, cost: int = 0) -> list[int]:
        after = list(world)
        after[LEFT] -= cost
        after[TREE] = self.trees.number(self.trees[world[TREE]].expire(session))
        # ZooKeeper applies no request of a session after its end: those in flight are lost with it.
        left = tuple(each for each in self.flights[world[FLIGHT]] if self.requests[each].session != session)
        after[FLIGHT] = self.flights.number(left)
        return after

    # --- requests in flight ---------------------------------------------------------------------------------------------

    def _add_late(self, world: World, found: list[Found]) -> None:
        tree, flying = world[TREE], self.flights[world[FLIGHT]]
        for number in flying:
            lost = declared_part(self.requests[number])
            # A declaration that a part is lost is judged by the disks when it is applied; other requests by the tree.
            key = (number, tree) if lost is None else (number, tree, *(world[at] for at in self.disk_at))
            if key not in self._late:
                move = self._late_move(number, tree)
                if lost is not None and move is not None:
                    name = self.model.seats[move.seat][1]
                    breach = kept_rows(lost, self.model.replica(name), self.trees[tree], self._disks_of(world))
                    move = replace(move, breach=move.breach or breach)
                self._late[key] = move
            move = self._late[key]
            if move is not None:
                after = list(world)
                after[TREE] = move.changes[0][1]
                after[FLIGHT] = self.flights.number(tuple(each for each in flying if each != number))
                self._tree_moved(world, after, move, found)

    def _add_late_to_store(self, world: World, found: list[Found]) -> None:
        """Let a request to the object store arrive whose sender does not wait for it any more."""
        objects = self.objects[world[OBJECTS]]
        assert objects is not None
        for request in dict.fromkeys(objects.late):
            changes = ((OBJECTS, self.objects.number(objects.arrived(request))),)
            move = Move("store", "late", -1, changes=changes, turns=(Turn(request, None),))
            self._apply(world, move, found)

    def _late_move(self, number: int, tree: int) -> Move | None:
        """Return what applying a request does; None when it would be refused, which is as good as lost."""
        request = self.requests[number]
        after, outcome, breach = deliver(request, self.trees[tree])
        if after is self.trees[tree]:
            return None
        name, _ = seat_of(request.me)
        seat = next(number for number, (each, _) in enumerate(self.model.seats) if each == name)
        return Move(
            name, "late", seat, changes=((TREE, self.trees.number(after)),), moves_tree=True, own_lag=True,
            turns=(Turn(request, outcome),), breach=breach, probes=("late request applied",),
        )  # fmt: skip

    def _disks_of(self, world: World) -> dict[str, Disk]:
        return {name: self.disks[world[at]] for name, at in zip(self.model.disks, self.disk_at, strict=True)}

    # --- steps of threads -------------------------------------------------------------------------------------------------

    def moves(self, thread: Thread, world: World) -> tuple[Move, ...]:
        """Return the moves of one thread, whatever they cost; remembered by its footprint."""
        place, memory = world[thread.position], world[thread.memory]
        try:  # everything about this footprint is known
            if world[FLIGHT] or not self._alone[memory]:
                return thread.known[thread.parts[self._footprints[place]](world)]
            return thread.alone[thread.parts[self._alone_footprints[place]](world)]
        except (IndexError, KeyError):
            return self._new_moves(thread, world, place, memory)

    def _new_moves(self, thread: Thread, world: World, place: int, memory: int) -> tuple[Move, ...]:
        while place >= len(self._footprints):
            effect = self.kernel.effect(len(self._footprints))
            self._footprints.append(kinds.footprint_of(effect, loses=self._is_losing, stored=self.model.stored))
            self._alone_footprints.append(kinds.WHEN_ALONE.get(self._footprints[-1], ALONE))
        while memory >= len(self._alone):
            value = self.memories[len(self._alone)]
            seat = value.session // SESSIONS_PER_SEAT
            # A process that starts runs one thread, and a replica with one seat has no rival process (`reduction`).
            self._alone.append(value.state is State.STARTING and self.replica_of.count(self.replica_of[seat]) == 1)
        alone = self._alone[memory] and not world[FLIGHT]
        moves = tuple(self._work_out(thread, world, alone=alone))
        # A joined step has looked at the disk: from now on this footprint has it.  What is known did not look, and stays true.
        wider = None if alone or self.model.stored else kinds.WITH_DISK.get(self._footprints[place])
        if wider and any(ROW_OF[type(turn.effect)].footprint == DISK for each in moves for turn in each.turns[1:]):
            self._footprints[place] = wider
        key = thread.parts[(self._alone_footprints if alone else self._footprints)[place]](world)
        # A list that was worked out is never thrown away: a search that begins again finds it, and costs look-ups only.
        (thread.alone if alone else thread.known)[key] = moves
        if self.met is not None:
            self.met.append(Met(thread, world, moves))
        return moves

    def _work_out(self, thread: Thread, world: World, *, alone: bool) -> Iterator[Move]:
        model = self.model
        seat, replica = model.seats[thread.seat]
        memories = {name: self.memories[world[at]] for (name, _), at in zip(model.seats, self.memory_at, strict=True)}
        disks = self._disks_of(world)
        memory, view = memories[seat], world[self.view_at[thread.seat]]
        tree = self.trees[world[TREE]]
        gone = [name for name in model.gone if not tree.exists(layout.is_active(model.replica(name)))]
        reachable = {name: disk for name, disk in disks.items() if name not in gone} if gone else disks
        here = Here(
            self._places[thread.seat], me_of(seat, memory.incarnation), memory, disks[model.disk_of(seat)],
            tree, reachable, model.partitions, replica not in model.fetchers, bool(model.candidates), self._is_losing,
            self.objects[world[OBJECTS]], thread.kind if model.stored else "", replica not in model.own_makers,
            model.writes_to_disks, model.rewrites, model.keeps_old, model.feeds,
        )  # fmt: skip
        scene = Scene(
            here, None if view == PRESENT else self.trees[view], memories, self._faults[thread.seat], self._is_still,
            self._is_apart,
            {request: self.replies[world[at]] for request, at in self.answer_at.items()},
        )  # fmt: skip
        place = world[thread.position]
        for ending in self._steps.endings(thread.kind, place, scene, alone=alone):
            ways, joined = self.ways.setdefault(place, {}), self.joined.setdefault(place, {})
            known = len(ways) + len(joined)
            # A dictionary keeps the order in which ways were met, which a set would not: two runs do the same.
            ways[ending.turns[0].outcome, ending.place] = None
            joined.update(dict.fromkeys(turn.effect for turn in ending.turns[1:]))
            if len(ways) + len(joined) > known:
                self.grown.add(place)
            yield self._move(thread, scene, ending, world)

    def _move(self, thread: Thread, scene: Scene, ending: Ending, world: World) -> Move:
        """Write a step down as changes of a state."""
        branch, before, seat = ending.branch, scene.here, thread.seat
        after = branch.here
        changes = [(thread.position, ending.place)]
        if after.tree is not before.tree:
            changes.append((TREE, self.trees.number(after.tree)))
        if after.memory is not before.memory:
            changes.append((self.memory_at[seat], self.memories.number(after.memory)))
        if after.disk is not before.disk:
            changes.append((self.own_disk_at[seat], self.disks.number(after.disk)))
        if after.objects is not before.objects:
            changes.append((OBJECTS, self.objects.number(after.objects)))
        if ending.fresh and scene.view is not None:
            changes.append((self.view_at[seat], PRESENT))
        moves_tree = after.tree is not before.tree
        more = ending.cost or ending.answers or branch.sent is not None or branch.dies
        delta = 0 if more or branch.breach is not None else self.fingerprints.delta(world, changes)
        return Move(
            thread.name,
            "step",
            seat,
            ending.cost,
            tuple(changes),
            tuple((self.answer_at[request], self.replies.number(reply)) for request, reply in ending.answers),
            -1 if branch.sent is None else self.requests.number(branch.sent),
            branch.dies,
            moves_tree,
            branch.doubtful,
            ending.turns,
            branch.breach,
            ending.probes,
            is_local=is_local(ending, moves_tree=moves_tree),
            is_plain=not more and not moves_tree,
            has_seen=after.disk is not before.disk or after.objects is not before.objects,
            has_thought=after.memory is not before.memory,
            # A changed tree may prune requests in flight, and lets sessions lag where the model has stale reads.
            delta=0 if moves_tree else delta,
            calm=0 if moves_tree and self._stale else delta,
        )
