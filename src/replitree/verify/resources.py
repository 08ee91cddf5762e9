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
from replitree.protocol import layout
from replitree.protocol.effects import (
    AdoptEpoch,
    Answer,
    Children,
    Commit,
    Create,
    CurrentEpoch,
    CurrentSession,
    Delete,
    Exists,
    FetchMany,
    FindPart,
    Get,
    GetMany,
    Link,
    ListParts,
    ListStaging,
    MakeEmpty,
    Merge,
    Mutate,
    NextNumber,
    Operation,
    ProbeOwner,
    Publish,
    RemovePart,
    RemoveStaging,
    Reveal,
    Set,
    Stage,
    Sync,
)
from replitree.verify.life import (
    Accept,
    AcceptCommand,
    Appear,
    AskReload,
    AwaitLack,
    AwaitMutation,
    AwaitParts,
    AwaitPull,
    AwaitReplica,
    AwaitTrouble,
    AwaitWork,
    BeginLoad,
    GiveBack,
    Lack,
    Mended,
    Quieten,
    Release,
    ReportTrouble,
    Serve,
    Stop,
    TakeIn,
    TakeOver,
)
from replitree.verify.longlife import AwaitIdle, AwaitTurn, Missed
from replitree.verify.memory import Memory
from replitree.verify.quorums import AwaitDecided, AwaitOpen
from replitree.verify.reading import AwaitAnswers, AwaitPointer, AwaitReadable, ShowRows

EVERYTHING: Final = -1
"""Every resource that there is: the footprint of an effect that nothing is known of."""

_SERVING = ("state", "epoch")
_QUEUE = ("taken", "given")
_LOADED = ("place", *_QUEUE, "waiting", "left", "torn", "held", "lacking", "loading")

MEMORY: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Accept: ((*_SERVING, "place"), ("staging",)),
    AcceptCommand: ((*_SERVING, "place"), ()),
    AdoptEpoch: (("epoch",), ("epoch",)),
    Answer: ((), ()),
    AskReload: ((), ("reload",)),
    AwaitAnswers: ((), ()),
    Appear: ((), ("state",)),
    AwaitIdle: (("running",), ()),
    AwaitLack: (("state", "lacking"), ()),
    AwaitReplica: ((), ()),
    AwaitTurn: (_SERVING, ()),
    Lack: (("lacking",), ("lacking",)),
    Mended: (("lacking",), ("lacking",)),
    Missed: (("state",), ("state", "trouble", "missed")),
    ProbeOwner: ((), ()),
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
    Children: ((), ()),
    Commit: (("epoch", "session"), ()),
    CurrentEpoch: (("epoch",), ()),
    CurrentSession: (("session",), ()),
    Exists: ((), ()),
    FetchMany: ((), ()),
    FindPart: ((), ()),
    Get: ((), ()),
    GetMany: ((), ()),
    GiveBack: (("given", "waiting", "running", "left"), ("given", "waiting", "running", "left")),
    Link: (("staging",), ("staging",)),
    ListParts: ((), ()),
    ListStaging: (("staging",), ()),
    MakeEmpty: (("staging",), ("staging",)),
    Merge: (("staging", "place"), ("staging",)),
    Mutate: (("staging", "place"), ("staging",)),
    NextNumber: ((), ()),
    Publish: (("staging",), ("staging",)),
    Quieten: ((), ("trouble", "missed")),
    Release: (("staging",), ("staging",)),
    RemovePart: ((), ()),
    RemoveStaging: (("staging",), ("staging",)),
    ReportTrouble: (("state",), ("state", "trouble")),
    Reveal: (("held", "lacking"), ("held", "lacking", "loading")),
    Serve: (("state", "trouble"), ("state", "waiting")),
    ShowRows: (("held",), ()),
    Stage: ((), ()),
    Sync: ((), ()),
    TakeIn: (("place", "taken"), ("place", "taken", "torn")),
    TakeOver: (("running", *_LOADED), _LOADED),
}
"""The fields of its process's memory that an effect reads, and those that it writes.  Of others nothing is known."""

LOCAL = (
    AdoptEpoch, AskReload, AwaitAnswers, AwaitDecided, AwaitIdle, AwaitMutation, AwaitOpen, AwaitParts, AwaitPointer,
    AwaitPull, AwaitReadable, AwaitWork, BeginLoad, Children, CurrentEpoch, CurrentSession, Exists, FindPart, Get, GetMany,
    GiveBack, ListParts, ListStaging, NextNumber, Release, Sync, TakeIn,
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
    replica_of
        The number of each seat's replica.
    """

    def __init__(self, replica_of: tuple[int, ...]) -> None:
        self._bits: dict[Hashable, int] = {}
        self._replica_of = replica_of
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
            return ALL
        read, written = MEMORY[type(effect)]
        disk = self._replica_of[seat]
        writes = self.fields(seat, written) | self._disk_written(effect, disk) | self._coordination_written(effect)
        if isinstance(effect, Answer | ShowRows):
            writes |= self.bit("answers")
        nodes, folders = _paths_read(effect)
        return Footprint(self.fields(seat, read), writes, self._others_read(effect, disk), nodes, folders)

    def _disk_written(self, effect: Any, disk: int) -> int:
        match effect:
            case Stage() | RemoveStaging() | Merge() | Mutate() | Link() | MakeEmpty():
                return self.bit("folders", disk)
            case Publish(_, names):
                return self.bit("folders", disk) | self._parts(disk, (name for _, name in names))
            case FetchMany(fetches):
                return self._parts(disk, (fetch.part for fetch in fetches))
            case Reveal(_, gone):
                return self._parts(disk, gone)
            case RemovePart(name):
                return self._parts(disk, (name,))
        return 0

    def _parts(self, disk: int, names: Iterable[str]) -> int:
        named = _union(self.bit("part", disk, name) for name in names)
        return named | self.bit("parts", disk) if named else 0

    def _others_read(self, effect: Any, disk: int) -> int:
        """Return what an effect reads besides memory and coordination."""
        match effect:
            case FindPart(name) | Mutate(_, name) | Link(_, name):
                return self.bit("part", disk, name)
            case Merge(_, sources):
                return _union(self.bit("part", disk, name) for name in sources)
            case FetchMany(fetches):
                everywhere = dict.fromkeys(self._replica_of)
                return _union(self.bit("part", each, fetch.part) for each in everywhere for fetch in fetches)
            case Publish(_, names):
                return self.bit("folders", disk) | _union(self.bit("part", disk, name) for _, name in names)
            case ListParts():
                return self.bit("parts", disk)
            case ListStaging():
                return self.bit("folders", disk)
            case AwaitAnswers():
                return self.bit("answers")
            case ProbeOwner():
                return _union(self.bit("memory", seat, "state") for seat in range(len(self._replica_of)))
            case ShowRows():
                return self.bit("parts", disk) | self.bit("coordination")
        return 0

    def _coordination_written(self, effect: Any) -> int:
        if not isinstance(effect, Commit):
            return 0
        written = self.bit("coordination")
        for operation in effect.operations:
            parent, _, name = operation.path.rpartition("/")
            match operation:
                case Create():
                    at = self.bit("numbered", parent) if operation.sequential else self.bit("created", parent, name)
                    written |= at | self.bit("created", parent)
                case Set(path):
                    written |= self.bit("node", path)
                case Delete(path):
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

    def waits_for(self, effect: Any, seat: int, memory: Memory, table: layout.Table) -> int:
        """Return what has to change before an effect that cannot end now can end: all of it or some of it."""
        footprint = self.footprint(effect, seat)
        match effect:
            case AwaitPull() if memory.place is not None:
                entry = layout.log_entry(table, memory.place.pointer.index)
                return footprint.memory | self.nodes_read(Footprint(0, 0, 0, (entry,)), None)
            case AwaitWork() if memory.waiting:
                return EVERYTHING
        return footprint.memory | footprint.reads | self.nodes_read(footprint, None)


def _paths_read(effect: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes and the folders that an effect reads."""
    match effect:
        case Get(path) | Exists(path):
            return (path,), ()
        case GetMany(paths, watch):
            return (paths if watch is None else (*paths, watch)), ()
        case Children(path) | NextNumber(path):
            return (), (path,)
        case AwaitReplica(path):
            return (path,), ()
        case Commit(operations):
            return tuple(dict.fromkeys(_needed(operation) for operation in operations)), ()
    return (), ()


def _needed(operation: Operation) -> str:
    """Return the node that an operation needs to be as it is: what is created in order comes below its folder."""
    numbered = isinstance(operation, Create) and operation.sequential
    return f"{operation.path}#" if numbered else operation.path


def _union(bits: Iterable[int]) -> int:
    """Return the union of sets."""
    union = 0
    for each in bits:
        union |= each
    return union
