"""What a step reads and writes, finely: single nodes of coordination, single parts on a disk, single fields of a memory.

`footprints` says what the moves of a step depend on, so that they are worked out once; here it is said which steps do not
depend on each other (`ample`).  Sets of resources are integers, a bit for each resource, numbered as they are met.

A node that is there is changed by `Set` and `Delete` of its path; one that is not there is affected by a `Create` in its
folder, of whatever name, because sequential names are not known before.  The names in a folder change with both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.program.mender_effects import AwaitLacking, AwaitLoss
from replitree.protocol.program.stages import AwaitPull, AwaitWork
from replitree_verify.effects.numbers import Numbers, union
from replitree_verify.effects.table import TOUCHES
from replitree_verify.process.read_requests import AwaitReadable
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import Model

EVERYTHING: Final = -1
"""Every resource that there is: the footprint of an effect that nothing is known of."""

HIDDEN = frozenset(effect for effect, touches in TOUCHES.items() if touches.sight == "on disk")
"""Effects that change a disk, in ways that only some invariants look at, or none (`ample`)."""

LOCAL = frozenset(effect for effect, touches in TOUCHES.items() if touches.sight == "unseen")
"""Effects that change nothing but fields of the process's memory that no invariant looks at."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an effect reads and writes.

    Attributes
    ----------
    memory
        The fields of memory that it reads.
    writes
        Everything that it writes.
    reads
        What it reads of disks and of the answers that clients have.
    nodes, folders
        The paths that it reads in coordination: values, and names of children.
    """

    memory: int
    writes: int
    reads: int = 0
    nodes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


ALL = Footprint(EVERYTHING, EVERYTHING, EVERYTHING)


class Resources(Numbers):
    """Numbers resources, and says which of them effects touch.

    Parameters
    ----------
    model
        Whose steps.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._replicas = tuple(map(model.replica, model.replicas))
        self._known: dict[tuple[Any, int], Footprint] = {}

    def footprint(self, effect: Any, seat: int) -> Footprint:
        """Return what an effect of a seat's process reads and writes."""
        key = (effect, seat)
        found = self._known.get(key)
        if found is None:
            touches, disk = TOUCHES.get(type(effect)), self.disk_of[seat]
            if touches is None:
                found = ALL  # an effect of which nothing is known costs states, never a wrong verdict
            else:
                reads, writes = self.fields(seat, touches.reads), self.fields(seat, touches.writes)
                looks, leaves = touches.looks(self, effect, disk), touches.leaves(self, effect, disk)
                found = Footprint(reads, writes | leaves, looks, *touches.paths(effect, self._replicas[disk]))
            self._known[key] = found
        return found

    def nodes_read(self, footprint: Footprint, tree: Tree | None) -> int:
        """Return what an effect reads of a tree; of any tree without one."""
        read = 0
        for path in footprint.nodes:
            if tree is None or tree.exists(path):
                read |= self.bit("node", path)
            if tree is None or not tree.exists(path):
                parent, _, name = path.rpartition("/")
                read |= self.bit("created", parent, name) | self.bit("numbered", parent)
        for path in footprint.folders:
            read |= self.bit("created", path) | self.bit("deleted", path) | self.bit("node", path)
            if tree is None or not tree.exists(path):
                parent, _, name = path.rpartition("/")
                read |= self.bit("created", parent, name) | self.bit("numbered", parent)
        return read

    def tried_again(self, seat: int, memory: Memory) -> int:
        """Return what disks say about whether trying again what was postponed has a chance (`chances`), and of which batch."""
        if not memory.waiting or memory.place is None:
            return 0
        entries = [item for item in memory.queue if item.index in memory.waiting]
        # A merge or a mutation looks for its sources, whose names its entry alone does not tell: every part counts.
        if self.model.is_losing or not all(isinstance(item.entry, GetEntry) for item in entries):
            return self.footprint(AwaitWork(makes=False), seat).reads
        wanted = [part for item in entries for part in item.change.added]
        names = {form.name for part in wanted for form in (part, memory.place.parts.covering(part) or part)}
        return self.bit("folders", self.disk_of[seat]) | union(map(self.part_everywhere, sorted(names)))

    def waits_for(self, effect: Any, seat: int, memory: Memory, table: layout.TablePlace) -> int:
        """Return what has to change before an effect that cannot end now can end: all of it or some of it."""
        footprint = self.footprint(effect, seat)
        match effect:
            case AwaitPull() if memory.place is not None:
                entry = layout.log_entry(table, memory.place.pointer.index)
                # Only the entry at the pointer wakes a puller, or a beginning of the log behind it: not every write to the log.
                return footprint.memory | self.nodes_read(Footprint(0, 0, 0, (entry, layout.log(table))), None)
            case AwaitWork() if memory.waiting:
                return EVERYTHING
            case AwaitLacking() | AwaitLoss(is_again=True):
                return EVERYTHING
            case AwaitReadable(position, whole=False) if is_pulled(memory, position):
                return self.fields(seat, ("given",))
        return footprint.memory | footprint.reads | self.nodes_read(footprint, None)


def is_pulled(memory: Memory, position: int) -> bool:
    """Whether all that a read at a position still waits for is that entries are executed."""
    serves = memory.state in (State.ACTIVE, State.READ_ONLY) and memory.place is not None and not memory.torn
    return serves and memory.place is not None and memory.place.pointer.index >= position
