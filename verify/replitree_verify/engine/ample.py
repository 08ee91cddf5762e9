"""Partial-order reduction by ample sets: a step that nothing else can meet is taken at once, and alone.

From a state only the step of one thread is followed (it is *ample*) when

1. nothing that others can do before this thread moves depends on it (`resources`, `futures`): what they may still write is
   not what it reads, and what they may still read or write is not what it writes;
2. no invariant looks at what it changes: the thread's place, and fields of memory that say what was pulled and executed.
   An `Answer` may be joined to it, as in `reduction`; a commit that is refused changes nothing; what a step does to a disk may
   be hidden (`hidden`);
3. it has exactly one way to end with the faults that are left, and takes none.

Then every way through the state can be changed into one that begins with this step and leads to the same states, but for
those that no invariant tells from others.  Such a step is joined to the move before, so these states are not even counted;
they are checked.

*What others can still do* is read off the places that they can get to.  These are known from what was explored: a search
begins with none, and is done again until it has met no way that it did not reckon with.  That this is enough: suppose a
move depends on a step that was taken before it at once, and take the shortest way from the state of that step to such a
move.  The moves before it are a shorter way, so the search has one with the same moves in another order, in which each
thread goes through the same places.  So the place where the last move begins was met, and was reckoned with.

*A thread that waits* counts only if another thread may write what it waits for; a read that wants an entry executed waits for
the thread that runs it.  *A process that dies* loses all that these steps change, so its death before the step is as its death
after it (but for what lasts on a disk); of the deaths of others count the processes that come after.  *A session that ends*
writes state, trouble and session of its process, and deletes `is_active`.  *A view that begins to lag* before a read sees the
same as after it, because no thread writes what is read; a `Sync` that comes after that could as well have met no lag, which
leaves one fault more for later.  *A request in flight* may write its nodes at any moment.

*Nothing is put off for ever*: after `JOINED_MAX` steps a state is explored in full.

Models with a window for ids (the clock moves with every entry) or with elections (sessions own other nodes too) are not
reduced.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Commit, Sync
from replitree.protocol.program.stages import AwaitTrouble, AwaitWork, GiveBack
from replitree_verify.effects.table import UNTAKEN
from replitree_verify.engine.futures import Futures
from replitree_verify.engine.hidden import Hidden
from replitree_verify.engine.moves import FLIGHT, LEFT, PRESENT, TREE, Found, Move, Thread, World
from replitree_verify.engine.resources import HIDDEN, Resources
from replitree_verify.engine.space import Space
from replitree_verify.engine.surroundings import Around, Surroundings
from replitree_verify.process.seat_threads import begins_again
from replitree_verify.world.faults import GUARDS, Fault
from replitree_verify.world.kernel import END
from replitree_verify.world.memory import State
from replitree_verify.world.model import TABLE

JOINED_MAX = 300
"""Steps joined to a move at most."""

RECKONED_FIRST = 1000
"""States after which a search asks for the first time whether it has met ways that it had not reckoned with."""

_CRASH, _EXPIRY = Fault.CRASH.mask, Fault.EXPIRY.mask


class Touched(NamedTuple):
    """What a step reads and writes; whether it looks at coordination; whether it leaves something that lasts on a disk."""

    reads: int
    writes: int
    looks: bool
    lasts: bool


class Ample:
    """Chooses ample steps in the states of a space.

    Parameters
    ----------
    space
        Whose states.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._resources = Resources(space.model)
        self._futures = Futures(space, self._resources)
        self._surroundings = Surroundings(space, self._futures)
        self._hidden = Hidden(space.model, self._resources)
        self._touched: dict[tuple[int, int], Touched | None] = {}
        self._moves: list[Move] = []
        self._waits: dict[tuple[int, int, int], int] = {}
        model = space.model
        # A clock that moves with every entry makes all commits depend on each other; an election owns more nodes by sessions.
        self._is_reduced = model.window is None and not model.candidates
        self._is_calm = model.is_still and not model.has_rivals and Fault.CLOSED not in model.faults
        seats = [name for name, _ in model.seats]
        self._trouble = [self._resources.fields(seat, ("trouble",)) for seat in range(len(seats))]
        self._mortal = [model.can_strike(Fault.CRASH, seat) for seat in seats]
        self._may_expire = [model.can_strike(Fault.EXPIRY, seat) for seat in seats]
        self._late: dict[int, int] = {}
        self._deaths: dict[tuple[int, ...], int] = {}
        self._reckoned = RECKONED_FIRST
        self._at_the_end_of_a_session = 0
        for seat, (_, name) in enumerate(model.seats):
            path, fields = layout.is_active(model.replica(name)), ("state", "trouble", "session")
            self._at_the_end_of_a_session |= (
                self._resources.fields(seat, fields if self._may_expire[seat] else ())
                | self._resources.bit("node", path)
                | self._resources.bit("deleted", path.rpartition("/")[0])
            )
        lags = bool(model.reads) and model.faults.get(Fault.STALE, 0) > 0
        self._may_begin_late = [lags and expires for expires in self._may_expire]
        # Where the threads of later processes of a seat begin: as many of them as processes may die.
        self._next_places = [
            tuple(
                space.beginning(thread, number)
                for thread in space.threads[space.threads_of[seat]]
                if begins_again(thread.kind, thread.arguments)
                for number in range(1, model.faults.get(Fault.CRASH, 0) + 1)
            )
            for seat in range(len(model.seats))
        ]

    def is_outdated(self, states: int, *, is_over: bool) -> bool:
        """Whether a search has to begin again: it has met ways that may not allow a choice that was made.

        Parameters
        ----------
        states
            So many were found so far.  It is looked at whenever there are twice as many.
        is_over
            Whether these are all.
        """
        if states < self._reckoned and not is_over:
            return False
        has_changed = self.reckon()
        self._reckoned = RECKONED_FIRST if has_changed or is_over else 2 * states
        return has_changed

    def reckon(self) -> bool:
        """Take the ways into account that were met meanwhile; return whether they may not allow a choice that was made."""
        if not self._futures.have_changed():
            return False  # all futures are as they were when steps were chosen by them
        self._surroundings.forget()
        self._deaths.clear()
        return True

    # --- the choice -------------------------------------------------------------------------------------------------------

    def settle(self, world: World) -> tuple[World, list[Found]]:
        """Take the steps that are ample one after the other; return the state after them, and the steps."""
        taken: list[Found] = []
        around: list[Around] = []
        while self._is_reduced and len(taken) < JOINED_MAX:
            found = self._next(world, around)
            if found is None:
                break
            taken.append(found)
            world, seat = found[0], found[1].seat
            around[seat] = self._surroundings.of_seat(seat, world)  # nothing changes for the others
        return world, taken

    def _next(self, world: World, around: list[Around]) -> Found | None:
        """Return the step that is taken at once, if there is one: the first in the order of threads.

        `around` is what is around in this state; nothing where that was not worked out yet.
        """
        space = self._space
        moves_of = space.moves
        for thread in space.threads:
            if world[thread.position] == END:
                continue
            moves = moves_of(thread, world)
            # The cheap questions first: most threads fail one of them, and what is around is never worked out.
            if not moves or not moves[0].is_local or moves[0].cost:
                continue
            if len(moves) > 1:
                guarded = world[LEFT] | GUARDS
                # One way to end: all others take faults, of which none are left.
                if any(not move.cost or (guarded - move.cost) & GUARDS == GUARDS for move in moves[1:]):
                    continue
            touched = self._touched_by(thread, moves[0], world)
            if touched is None:
                continue
            if not around:
                around += self._surroundings.of(world)
            if self._is_ample(thread, world, touched, around):
                return space.after(world, moves[0]), moves[0], -1
        return None

    def _touched_by(self, thread: Thread, move: Move, world: World) -> Touched | None:
        """Return what a step reads and writes; None when it can't be ample."""
        key = (id(move), world[TREE])
        if key not in self._touched:
            self._moves.append(move)  # so that its number stays its own
            reads, writes, looks, lasts, seat = 0, 0, False, False, thread.seat
            tree, memory = self._space.trees[world[TREE]], self._space.memories[world[thread.memory]]
            for turn in move.turns:
                footprint = self._futures.footprint(turn.effect, seat)
                # Taking work also asks whether a postponed entry has a chance, which reads disks.
                tries = isinstance(turn.effect, AwaitWork)
                others = self._resources.tried_again(seat, memory) if tries else footprint.reads
                reads |= footprint.memory | self._resources.nodes_read(footprint, tree) | others
                writes |= 0 if isinstance(turn.effect, Commit) else footprint.writes  # it was refused
                looks = looks or isinstance(turn.effect, Sync) or bool(footprint.nodes or footprint.folders)
                if type(turn.effect) in HIDDEN:
                    reads |= self._hidden.looked_at(turn, seat, tree)
                    lasts = True
            self._touched[key] = None if reads < 0 or writes < 0 else Touched(reads, writes, looks, lasts)
        touched = self._touched[key]
        if touched is None or (touched.lasts and world[LEFT] & _CRASH and self._mortal[thread.seat]):
            return None
        if not touched.looks:
            return touched
        # What a lagging view reads may be the present at another moment: then the step has two ends.
        lags = world[self._space.view_at[thread.seat]] != PRESENT
        may_begin_late = self._may_begin_late[thread.seat] and world[LEFT] & _EXPIRY
        return None if lags or may_begin_late else touched

    def _is_ample(self, thread: Thread, world: World, step: Touched, around: list[Around]) -> bool:
        """Whether nothing that others can do before this thread moves depends on its step."""
        outside = self._from_outside(world, thread.seat) if world[LEFT] or world[FLIGHT] else 0
        if outside & (step.reads | step.writes):
            return False
        # Each next question asks more of what is around, and costs more: whether threads meet the step at all, whether they
        # do without what this process's puller or executor brings, and whether they wait for something that is not coming.
        meeting = _meeting(thread, step, around)
        if meeting and thread.kind == "puller" and self._is_left_alone(thread, world, around[thread.seat]):
            around = self._surroundings.in_its_process(thread.seat, world, around, pulls=False)
            meeting = _meeting(thread, step, around)
        if meeting and isinstance(effect := self._space.kernel.effect(world[thread.position]), GiveBack):
            # An entry that the thread gives back is in its process's queue until then: a read that wants it executed waits.
            queue = self._space.memories[world[thread.memory]].queue
            for runs in [item.index for item in queue if item.index in effect.batch][:1]:
                around = self._surroundings.in_its_process(thread.seat, world, around, runs=runs)
                meeting = _meeting(thread, step, around)
        if not meeting:
            return True
        if any(self._space.moves(other, world) for other in meeting):
            return False  # one of them can move now
        others = [(other, future.writes) for each in around for other, future in each.threads if other is not thread]
        return not self._wakes(world, meeting, others, outside)

    # --- what others can do -----------------------------------------------------------------------------------------------

    def _is_left_alone(self, puller: Thread, world: World, around: Around) -> bool:
        """Whether a process gets no other place in the log than its puller brings."""
        space, seat = self._space, puller.seat
        life = space.threads[space.threads_of[seat].start]
        memory = space.memories[world[puller.memory]]
        waits = isinstance(space.kernel.effect(world[life.position]), AwaitTrouble)
        works = waits and memory.state is State.ACTIVE and not memory.trouble
        if not self._is_calm or not works or (world[LEFT] & _EXPIRY and self._may_expire[seat]):
            return False
        return not any(
            future.writes & self._trouble[seat]
            for other, future in around.threads
            if other is not puller and other is not life  # the life thread waits for exactly this trouble
        )

    def _wakes(self, world: World, meeting: list[Thread], others: list[tuple[Thread, int]], around: int) -> bool:
        """Whether a thread may let one of the waiting ones go on."""
        # A fixed point: a thread that is woken may write what wakes another one.
        asleep = []
        for other, written in others:
            if self._space.moves(other, world):
                around |= written
            else:
                asleep.append((other, written))
        more = True
        while more:
            woken = [each for each in asleep if self._waited_for(each[0], world) & around]
            if any(other in meeting for other, _ in woken):
                return True
            asleep = [each for each in asleep if each not in woken]
            for _, written in woken:
                around |= written
            more = bool(woken)
        return False

    def _waited_for(self, thread: Thread, world: World) -> int:
        """Return what has to change before a thread that waits goes on."""
        space = self._space
        key = (thread.position, world[thread.position], world[thread.memory])
        if key not in self._waits:
            effect, memory = space.kernel.effect(key[1]), space.memories[key[2]]
            self._waits[key] = self._resources.waits_for(effect, thread.seat, memory, TABLE)
        return self._waits[key]

    def _from_outside(self, world: World, seat: int) -> int:
        """Return what late requests, deaths and ends of sessions may write before a thread of a seat moves."""
        flight, space = world[FLIGHT], self._space
        written = self._late.get(flight, 0)
        if flight and not written:
            for request in space.flights[flight]:  # each may be applied at any moment
                written |= self._resources.footprint(Commit(*space.requests[request].operations), seat).writes
            self._late[flight] = written
        if world[LEFT] & _EXPIRY:
            written |= self._at_the_end_of_a_session
        tree, crashes = world[TREE], world[LEFT] & _CRASH
        for other in (each for each, mortal in enumerate(self._mortal) if crashes and mortal and each != seat):
            # By the places of the dead process too: a request that it had not taken yet may come to the next one.
            key = (other, tree, *world[space.thread_at[other]])
            if key not in self._deaths:
                untaken = (place for place in key[2:] if type(space.kernel.effect(place)) in UNTAKEN)
                self._deaths[key] = 0
                for place in (*self._next_places[other], *untaken):
                    self._deaths[key] |= self._futures.of(other, place, tree).writes
            written |= self._deaths[key]
        return written


def _meeting(thread: Thread, step: Touched, around: list[Around]) -> list[Thread]:
    """Return the threads that may do something which depends on a step, sooner or later."""
    reads, writes = step.reads | step.writes, step.writes  # two steps that write the same depend on each other too
    return [
        other
        for each in around
        if reads & each.writes or writes & each.reads
        for other, future in each.threads
        if (reads & future.writes or writes & future.reads) and other is not thread
    ]
