"""What a thread can still do from where it stands: everything that it may read and write later, whatever others do.

It is read off the ways from place to place that were met so far (`Space.ways`), without those that the state rules out for
good:

* a commit that expects an older version of a node than there is, or a node that will not come again, is never applied any
  more;
* an entry that is executed, and has left the queue, is not worked on again, and what was pulled is not pulled again;
* what is decided about an insert stays decided.

All of that only grows as long as no replica is marked, added or dropped and the log is not cleaned (`Model.is_still`); in
other models, and for a process that is yet to begin, every way counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitDecided, AwaitPull, AwaitWork
from replitree_verify.engine.resources import ALL, Footprint, Resources
from replitree_verify.engine.space import Space
from replitree_verify.process.read_requests import AwaitReadable
from replitree_verify.world.faults import Fault
from replitree_verify.world.history import Log
from replitree_verify.world.kernel import END, Interner
from replitree_verify.world.model import TABLE
from replitree_verify.world.past import recovers

ANYTHING = -1
"""Instead of the number of a tree and of a memory: whatever they are."""


class Future(NamedTuple):
    """Sets of resources."""

    writes: int
    reads: int


class Stand(NamedTuple):
    """Where a process stands: the next entry to pull, the inserts that are open there, the entries in its queue."""

    pointer: fx.LogIndex
    opened: tuple[fx.LogIndex, ...]
    queue: tuple[fx.LogIndex, ...]


class Futures:
    """Futures of the threads of a space.

    Parameters
    ----------
    space, resources
        What is explored, and the resources of its steps.
    """

    def __init__(self, space: Space, resources: Resources) -> None:
        self._space = space
        self._resources = resources
        self._known: dict[tuple[int, int, int, int, bool, bool, int | None], Future] = {}
        self._own: dict[tuple[int, int], Future] = {}
        self._over: dict[tuple[fx.Commit, int], bool] = {}
        self._stands: dict[int, int] = {ANYTHING: ANYTHING}
        self._numbers: Interner[Stand] = Interner()
        self._closes = Fault.CLOSED in space.model.faults
        self._is_monotone = space.model.is_still and not space.model.has_rivals

    def of(
        self,
        seat: int,
        place: int,
        tree: int = ANYTHING,
        memory: int = ANYTHING,
        *,
        pulls: bool = True,
        doubts: bool = True,
        runs: int | None = None,
    ) -> Future:
        """Return what a thread of a seat can do from a place on.

        Parameters
        ----------
        seat, place
            The thread.
        tree, memory
            Their numbers in the state.
        pulls, doubts
            Whether its process may still pull meanwhile; whether answers may be lost.
        runs
            The index of an entry that its process executes meanwhile: no read that wants it executed goes on.
        """
        if not self._is_monotone:
            tree, memory, pulls = ANYTHING, ANYTHING, True  # what is ruled out now may be possible again
        # By the stand and not by the memory: few memories differ in it, so most futures are found and not worked out.
        key = (seat, place, tree, self.stand(memory), pulls, doubts, runs)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._work_out(*key)
        return found

    def stand(self, memory: int) -> int:
        """Return the number of what a memory says about where its process stands: all that is looked at of it here."""
        found = self._stands.get(memory)
        if found is None:
            value = self._space.memories[memory]
            stand = None
            if value.place is not None:
                stand = Stand(value.place.pointer.index, value.place.open, tuple(item.index for item in value.queue))
            found = self._stands[memory] = ANYTHING if stand is None else self._numbers.number(stand)
        return found

    def have_changed(self) -> bool:
        """Look at the ways that are known by now; return whether anything that was told before would be told otherwise."""
        grown, self._space.grown = self._space.grown, set()
        for place in grown:  # the steps that are joined at a place are a part of its own future
            for seat in range(len(self._space.model.seats)):
                self._own.pop((seat, place), None)
        # Only futures from which a place with a new way can be reached may differ; working out all would cost minutes.
        back: dict[int, list[int]] = {}
        for place, ways in self._space.ways.items():
            for _, after in ways:
                back.setdefault(after, []).append(place)
        before, left = {*grown}, [*grown]
        while left:
            new = [place for place in back.get(left.pop(), ()) if place not in before]
            before.update(new)
            left += new
        if any(self._work_out(*key) != told for key, told in self._known.items() if key[1] in before):
            self._known.clear()
            return True
        return False

    def own(self, seat: int, place: int) -> Future:
        """Return what the step at a place, with those joined to it, reads and writes."""
        key = (seat, place)
        found = self._own.get(key)
        if found is None:
            writes = reads = 0
            for effect in (self._space.kernel.effect(place), *self._space.joined.get(place, ())):
                footprint = self.footprint(effect, seat)
                writes |= footprint.writes
                reads |= footprint.memory | footprint.reads | self._resources.nodes_read(footprint, None)
            found = self._own[key] = Future(writes, reads)
        return found

    def footprint(self, effect: Any, seat: int) -> Footprint:
        """Return what one effect reads and writes."""
        footprint = self._resources.footprint(effect, seat)
        is_read = (footprint.nodes or footprint.folders) and not isinstance(effect, fx.Commit)
        return ALL if self._closes and is_read else footprint

    def _work_out(
        self, seat: int, place: int, tree: int, stand: int, pulls: bool, doubts: bool, runs: int | None
    ) -> Future:
        space = self._space
        writes, reads, met, left = 0, 0, {place}, [place]
        present = None if tree == ANYTHING else space.trees[tree]
        known = None if stand == ANYTHING else self._numbers[stand]
        name = space.model.replica(space.model.seats[seat][1])
        while left:
            here = left.pop()
            effect, own = space.kernel.effect(here), self.own(seat, here)
            # Such a read waits for the thread that runs the entry: it can't be met before that one moves.
            if runs is not None and isinstance(effect, AwaitReadable) and effect.executed and effect.position > runs:
                continue
            over = present is not None and isinstance(effect, fx.Commit) and self.is_over(effect, tree)
            writes |= 0 if over else own.writes
            reads |= own.reads  # a commit that is refused has still read what refused it
            for outcome, after in space.ways.get(here, ()):
                if after == END or after in met or (over and isinstance(outcome, fx.Applied)):
                    continue
                if isinstance(outcome, fx.Unknown) and not doubts:
                    continue
                if present is None or _may_come(effect, outcome, name, present, known, pulls=pulls):
                    met.add(after)
                    left.append(after)
        return Future(writes, reads)

    def is_over(self, commit: fx.Commit, tree: int) -> bool:
        """Whether a commit can't be applied any more, in whatever follows."""
        key = (commit, tree)
        found = self._over.get(key)
        if found is None:
            present = self._space.trees[tree]
            found = self._over[key] = any(_has_passed(operation, present) for operation in commit.operations)
        return found


def _has_passed(operation: fx.Operation, tree: Tree) -> bool:
    """Whether what an operation needs will not be there any more."""
    if isinstance(operation, fx.Create):
        return False  # the node that is in its way may be deleted
    node = tree.get(operation.path)
    if node is not None:
        return node.version > operation.version >= 0
    folder, _, name = operation.path.rpartition("/")
    if folder == layout.quorum_statuses(TABLE):  # it was there from the commit on that brought the insert
        return any(entry.insert == name for _, entry in Log(tree).inserts)
    if not folder.endswith("/queue"):
        return False
    # An entry below the pointer that is not in the queue was executed: it comes back only when its replica recovers.
    replica = Replica(TABLE, folder.removesuffix("/queue").rpartition("/")[2])
    return not recovers(tree, replica) and layout.queue_index(name) < _pointer(replica, tree, None)


def _may_come(effect: Any, outcome: Any, replica: Replica, tree: Tree, stand: Stand | None, *, pulls: bool) -> bool:
    """Whether an effect may yet end in a way; without a stand in a process that has still to find out."""
    match effect:
        case AwaitPull() if not recovers(tree, replica):
            return outcome.place is None or outcome.place.pointer.index >= _pointer(replica, tree, stand)
        case AwaitWork() if not recovers(tree, replica):
            pointer = _pointer(replica, tree, stand)
            queued = {layout.queue_index(name) for name in tree.children(layout.queue(replica)) or ()}
            # A process works on the queue in its memory, which may be older than that in coordination.
            queued.update(stand.queue if stand is not None else ())
            return all(item.index in queued or (pulls and item.index >= pointer) for item in outcome.batch)
        case AwaitDecided(index) if stand is not None:
            is_decided = index < stand.pointer and index not in stand.opened
            return outcome.is_decided is is_decided or (pulls and outcome.is_decided)
    return True


def _pointer(replica: Replica, tree: Tree, stand: Stand | None) -> int:
    if stand is not None:
        return stand.pointer
    node = tree.get(layout.log_pointer(replica))
    return 0 if node is None else layout.pointer_index(node.value)
