"""What a step reads and writes, finely: single nodes of coordination, single parts on a disk, single fields of a memory.

`footprints` says what the moves of a step depend on, so that they are worked out once; here it is said which steps do not
depend on each other (`ample`).  Sets of resources are integers, a bit for each resource, numbered as they are met.

A node that is there is changed by `Set` and `Delete` of its path; one that is not there is affected by a `Create` in its
folder, of whatever name, because sequential names are not known before.  The names in a folder change with both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.mender_effects import (
    AskAgain,
    AwaitLacking,
    AwaitLoss,
    Losing,
    PutBack,
    SeekFiles,
    SeekShares,
    TakeOut,
    Telling,
    WholeAgain,
)
from replitree.protocol.program.stages import (
    Accept,
    AcceptCommand,
    AskReload,
    AwaitCleaning,
    AwaitDecided,
    AwaitIdle,
    AwaitMutation,
    AwaitOpen,
    AwaitParts,
    AwaitPull,
    AwaitReplica,
    AwaitTrouble,
    AwaitWork,
    BeginLoad,
    GiveBack,
    Lack,
    LookAtParts,
    Missed,
    Quieten,
    Release,
    ReportTrouble,
    Serve,
    Stop,
    TakeIn,
    TakeOver,
)
from replitree_verify.process.lost_parts import STAGED, Break, Heal
from replitree_verify.process.read_requests import AwaitAnswers, AwaitPointer, AwaitReadable, ShowRows
from replitree_verify.process.threads import Appear
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import Model

EVERYTHING: Final = -1
"""Every resource that there is: the footprint of an effect that nothing is known of."""

STRICT: Final = "linearizable"
"""The level of reads that show what any client was told before."""

_SERVING = ("state", "epoch")
_QUEUE = ("taken", "given")
_LOADED = ("place", *_QUEUE, "waiting", "left", "torn", "held", "lacking", "loading")

MEMORY: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Accept: ((*_SERVING, "place"), ("staging",)),
    AcceptCommand: ((*_SERVING, "place"), ()),
    fx.AdoptEpoch: (("epoch",), ("epoch",)),
    fx.Answer: ((), ()),
    AskReload: ((), ("reload",)),
    AwaitAnswers: ((), ()),
    Appear: ((), ("state",)),
    AskAgain: ((), ()),
    AwaitLacking: ((*_SERVING, *_QUEUE, "held", "lacking", "shares"), ("lacking", "shares")),
    AwaitIdle: (("running",), ()),
    AwaitLoss: ((*_SERVING, "place", *_QUEUE, "waiting", "held", "lacking"), ()),
    AwaitReplica: ((), ()),
    AwaitCleaning: (_SERVING, ()),
    Lack: (("lacking",), ("lacking",)),
    Losing: (_QUEUE, ()),
    PutBack: ((), ()),
    SeekFiles: (("shares",), ()),
    SeekShares: ((), ()),
    TakeOut: ((), ()),
    Telling: ((*_SERVING, "lacking", "shares"), ()),
    WholeAgain: (("lacking",), ("lacking",)),
    Missed: (("state",), ("state", "trouble", "missed")),
    fx.ProbeOwner: ((), ()),
    Stop: ((), ("state",)),
    AwaitDecided: ((*_SERVING, "place"), ()),
    AwaitMutation: ((*_SERVING, *_QUEUE), ()),
    AwaitOpen: ((*_SERVING, "place"), ()),
    AwaitParts: ((*_SERVING, "place", "leads"), ()),
    AwaitPointer: (("state", "place"), ()),
    AwaitPull: ((*_SERVING, "reload", "place"), ("reload",)),
    AwaitReadable: (("state", "place", "torn", *_QUEUE, "held"), ()),
    AwaitTrouble: (("state", "trouble"), ()),
    AwaitWork: ((*_SERVING, "place", *_QUEUE, "waiting", "running", "held", "lacking"), ("running",)),
    BeginLoad: ((), ("loading",)),
    Break: ((), ()),
    fx.Children: ((), ()),
    fx.Commit: (("epoch", "session"), ()),
    fx.CurrentEpoch: (("epoch",), ()),
    fx.CurrentSession: (("session",), ()),
    fx.Exists: ((), ()),
    fx.FetchMany: ((), ()),
    fx.FindPart: ((), ()),
    LookAtParts: (("place", "torn", "held"), ()),
    fx.Get: ((), ()),
    fx.GetMany: ((), ()),
    Heal: ((), ()),
    GiveBack: (("given", "waiting", "running", "left"), ("given", "waiting", "running", "left")),
    fx.Link: (("staging",), ("staging",)),
    fx.ListParts: ((), ()),
    fx.ListStaging: (("staging",), ()),
    fx.MakeEmpty: (("staging",), ("staging",)),
    fx.Merge: (("staging", "place"), ("staging",)),
    fx.Mutate: (("staging", "place"), ("staging",)),
    fx.NextNumber: ((), ()),
    fx.Publish: (("staging",), ("staging",)),
    Quieten: ((), ("trouble", "missed")),
    Release: (("staging",), ("staging",)),
    fx.RemovePart: ((), ()),
    fx.RemoveStaging: (("staging",), ("staging",)),
    ReportTrouble: (("state",), ("state", "trouble")),
    fx.Reveal: (("held", "lacking"), ("held", "lacking", "loading")),
    Serve: (("state", "trouble"), ("state", "waiting")),
    ShowRows: (("held",), ()),
    fx.Stage: ((), ()),
    fx.Sync: ((), ()),
    TakeIn: (("place", "taken"), ("place", "taken", "torn")),
    TakeOver: (("running", *_LOADED), _LOADED),
}
"""The fields of its process's memory that an effect reads, and those that it writes.  Of others nothing is known."""

HIDDEN = (fx.Stage, fx.Publish)
"""Effects that change a disk, in ways that only some invariants look at, or none (`ample`)."""

LOCAL = (
    Accept, fx.AdoptEpoch, AskAgain, AskReload, AwaitAnswers, AwaitDecided, AwaitIdle, AwaitLoss, AwaitMutation, AwaitOpen,
    AwaitParts, AwaitPointer, AwaitPull, AwaitReadable, AwaitWork, BeginLoad, fx.Children, fx.CurrentEpoch,
    fx.CurrentSession, fx.Exists, fx.FindPart, fx.Get, fx.GetMany, GiveBack, fx.ListParts, fx.ListStaging,
    Losing, fx.NextNumber, Release, SeekFiles, SeekShares, ShowRows, fx.Sync, TakeIn, Telling,
)  # fmt: skip
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


class Resources:
    """Numbers resources, and says which of them effects touch.

    Parameters
    ----------
    model
        Whose steps.
    """

    def __init__(self, model: Model) -> None:
        self._bits: dict[Hashable, int] = {}
        self._model = model
        self._replicas = tuple(map(model.replica, model.replicas))
        self._replica_of = tuple(model.replicas.index(replica) for _, replica in model.seats)
        self._known: dict[tuple[Any, int], Footprint] = {}

    def bit(self, *resource: Hashable) -> int:
        """Return the set of one resource."""
        return self._bits.setdefault(resource, 1 << len(self._bits))

    def fields(self, seat: int, names: Iterable[str]) -> int:
        """Return the set of some fields of a memory."""
        return _union(self.bit("memory", seat, name) for name in names)

    def footprint(self, effect: Any, seat: int) -> Footprint:
        """Return what an effect of a seat's process reads and writes."""
        key = (effect, seat)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._work_out(effect, seat)
        return found

    def _work_out(self, effect: Any, seat: int) -> Footprint:
        if type(effect) not in MEMORY:
            return ALL  # an effect that was forgotten above costs states, never a wrong verdict
        read, written = MEMORY[type(effect)]
        disk = self._replica_of[seat]
        writes = self.fields(seat, written) | self._disk_written(effect, disk) | self._coordination_written(effect)
        if isinstance(effect, fx.Answer | ShowRows):
            writes |= self.bit("answer", effect.request if isinstance(effect, fx.Answer) else effect.number)
        nodes, folders = _paths_read(effect, self._replicas[disk])
        return Footprint(self.fields(seat, read), writes, self._others_read(effect, disk), nodes, folders)

    def _disk_written(self, effect: Any, disk: int) -> int:
        match effect:
            case fx.Stage() | fx.RemoveStaging() | fx.Merge() | fx.Mutate() | fx.Link() | fx.MakeEmpty():
                return self.bit("folders", disk)
            case fx.Publish(_, names):
                return self.bit("folders", disk) | self._parts(disk, (name for _, name in names))
            case fx.FetchMany(fetches):
                return self._parts(disk, (fetch.part for fetch in fetches))
            case fx.Reveal(_, gone):
                return self._parts(disk, gone)
            case Break(name) if name == STAGED:
                return self.bit("folders", disk)
            case PutBack(parts) | TakeOut(parts):
                return self._parts(disk, (name for name, _ in parts))
            case fx.RemovePart(name) | Break(name) | Heal(name):
                return self._parts(disk, (name,))
        return 0

    def _parts(self, disk: int, names: Iterable[str]) -> int:
        named = _union(self.bit("part", disk, name) for name in names)
        return named | self.bit("parts", disk) if named else 0

    def _parts_everywhere(self, name: str) -> int:
        """Return a part on every disk."""
        return _union(self.bit("part", each, name) for each in dict.fromkeys(self._replica_of))

    def _others_read(self, effect: Any, disk: int) -> int:
        """Return what an effect reads besides memory and coordination."""
        match effect:
            case fx.FindPart(name) | fx.Mutate(_, name) | fx.Link(_, name):
                return self.bit("part", disk, name)
            case fx.Merge(_, sources):
                return _union(self.bit("part", disk, name) for name in sources)
            case fx.FetchMany(fetches):
                return _union(self._parts_everywhere(fetch.part) for fetch in fetches)
            case fx.Publish(_, names):
                return self.bit("folders", disk) | _union(self.bit("part", disk, name) for _, name in names)
            case PutBack(parts) | TakeOut(parts):
                return self._parts(disk, (name for name, _ in parts))
            case WholeAgain(parts):
                return self._parts(disk, parts)
            case fx.ListParts() | LookAtParts():
                return self.bit("parts", disk)
            case fx.ListStaging():
                return self.bit("folders", disk)
        return self._awaited(effect, disk)

    def _awaited(self, effect: Any, disk: int) -> int:
        """Return the same of effects that wait, and of what happens by itself."""
        match effect:
            case AwaitAnswers(level, known):
                return _union(self.bit("answer", each) for each in (self._model.requests if level == STRICT else known))
            case AwaitWork() | AwaitLacking():  # whether a postponed entry has a chance (`chances`)
                closely = isinstance(effect, AwaitLacking) or self._model.is_losing
                everywhere = _union(self.bit("parts", each) for each in dict.fromkeys(self._replica_of))
                return everywhere | (self.bit("coordination") if closely else 0)
            case Break(name):
                return self.bit("folders", disk) if name == STAGED else self.bit("part", disk, name)
            case AwaitLoss(name, is_again):
                return self.bit("part", disk, name) | (self.bit("coordination") if is_again else 0)
            case fx.ProbeOwner():
                return _union(self.bit("memory", seat, "state") for seat in range(len(self._replica_of)))
            case ShowRows():  # and the log below what was pulled, which stays as it is
                return _union(self.bit("part", disk, part.name) for part in effect.parts)
        return 0

    def _coordination_written(self, effect: Any) -> int:
        if not isinstance(effect, fx.Commit):
            return 0
        written = self.bit("coordination")
        for operation in effect.operations:
            parent, _, name = operation.path.rpartition("/")
            match operation:
                case fx.Create():
                    # Two sequential creates in a folder depend on each other, because the first gets the lower number.
                    at = self.bit("numbered", parent) if operation.sequential else self.bit("created", parent, name)
                    written |= at | self.bit("created", parent)
                case fx.Set(path):
                    written |= self.bit("node", path)
                case fx.Delete(path):
                    written |= self.bit("node", path) | self.bit("deleted", parent)
        return written

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
        if self._model.is_losing or not all(isinstance(item.entry, GetEntry) for item in entries):
            return self.footprint(AwaitWork(makes=False), seat).reads
        wanted = [part for item in entries for part in item.change.added]
        names = {form.name for part in wanted for form in (part, memory.place.parts.covering(part) or part)}
        return self.bit("folders", self._replica_of[seat]) | _union(map(self._parts_everywhere, sorted(names)))

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
            case AwaitReadable(position) if is_pulled(memory, position):
                return self.fields(seat, ("given",))
        return footprint.memory | footprint.reads | self.nodes_read(footprint, None)


def is_pulled(memory: Memory, position: int) -> bool:
    """Whether all that a read at a position still waits for is that entries are executed."""
    serves = memory.state in (State.ACTIVE, State.READ_ONLY) and memory.place is not None and not memory.torn
    return serves and memory.place is not None and memory.place.pointer.index >= position


def _paths_read(effect: Any, replica: Replica) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes and the folders that an effect reads."""
    match effect:
        case Heal(part):
            return (layout.part(replica, part),), ()
        case fx.Get(path) | fx.Exists(path):
            return (path,), ()
        case fx.GetMany(paths, watch):
            return (paths if watch is None else (*paths, watch)), ()
        case fx.Children(path) | fx.NextNumber(path):
            return (), (path,)
        case AwaitReplica(path):
            return (path,), ()
        case fx.Commit(operations):
            # A sequential name is not known before: any child of its folder stands for it, and `#` is in no name.
            needed = (
                f"{each.path}#" if isinstance(each, fx.Create) and each.sequential else each.path for each in operations
            )
            return tuple(dict.fromkeys(needed)), ()
    return (), ()


def _union(bits: Iterable[int]) -> int:
    """Return the union of sets."""
    union = 0
    for each in bits:
        union |= each
    return union
