"""The log as the packed model of replication has it, and what each replica has of it.

An entry is as many *pieces* as the packed model needs entries for it: one for each part that it brings (an insert into two
partitions, a mutation of two parts), before them one for all that it drops, one for a part that it declares lost; none when it
changes nothing.  The failure of an insert drops it.  A replica has a part when it is registered and no other registered one
covers it; who inserts has it from its entry on, because its files are staged.  A piece is executed when its entry was pulled
and is not in the queue.

Whether an entry applies is what the fold says; which part covers which follows from the pieces alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import Entry, GetEntry, LostEntry, MutateEntry, RewriteEntry
from replitree.protocol.core.fold import apply, open_after
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.membership.table import DROPPED_HOST, NOT_LOST
from replitree.protocol.state.registration import content_of, is_broken
from replitree_published.bridge.mapping import NoState
from replitree_published.packed.models.replication_log import DROP, LOSE, PART


class Piece(msgspec.Struct, frozen=True):
    """One entry of the packed model.

    Attributes
    ----------
    index
        The entry of the log that it belongs to.
    kind, sources
        Its kind, and the mask of the pieces that it is made of, drops or loses.
    """

    index: int
    kind: int
    sources: int


class Holding(msgspec.Struct, frozen=True):
    """What a replica has, what of that is broken, what it has executed, as masks of pieces; and whether it is lost.

    One that is not there, or is being dropped, is lost and has nothing.
    """

    has: int = 0
    broken: int = 0
    done: int = 0
    is_lost: bool = False


ABSENT = Holding(is_lost=True)


@dataclass(slots=True)
class Pieces:
    """All pieces of a log, which grows.

    Attributes
    ----------
    all
        In the order of the log.
    """

    all: list[Piece] = field(default_factory=list)
    _parts: PartSet = field(default_factory=PartSet)
    _opened: tuple[LogIndex, ...] = ()
    _indexes: list[int] = field(default_factory=list)
    _number: dict[str, int] = field(default_factory=dict)
    _covers: list[int] = field(default_factory=list)
    _writers: dict[int, str] = field(default_factory=dict)
    _losses: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    _lost: list[tuple[int, int]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, log: Iterable[tuple[int, Entry]]) -> Pieces:
        """Return the pieces of a log, given from its beginning on."""
        pieces = cls()
        for index, entry in log:
            pieces.add(index, entry)
        return pieces

    def cut(self, count: int, parts: PartSet, opened: tuple[LogIndex, ...]) -> None:
        """Take back what was added since there were `count` pieces, and these `parts` and open inserts (`folded`)."""
        self._parts, self._opened = parts, opened
        for number in range(count, len(self.all)):
            piece = self.all[number]
            self._writers.pop(number, None)
            name = self._names[number]
            if piece.kind == LOSE:
                self._losses[name].pop()
                self._lost = [each for each in self._lost if each[0] != number]
            elif piece.kind == PART:
                del self._number[name]
        for each in (self.all, self._indexes, self._covers, self._names):
            del each[count:]

    @property
    def folded(self) -> tuple[PartSet, tuple[LogIndex, ...]]:
        """The parts of the table, and the inserts that are open."""
        return self._parts, self._opened

    def add(self, index: int, entry: Entry) -> range:
        """Append an entry; return the numbers of its pieces."""
        first, at = len(self.all), LogIndex(index)
        self._parts, change = apply(self._parts, at, entry, opened=self._opened)
        self._opened = open_after(self._opened, at, entry)
        removed = [self._number[part.name] for part in change.removed]
        if isinstance(entry, LostEntry):
            if not change.is_empty:
                self._losses.setdefault(entry.part, []).append((first, entry.content_hash))
                self._lost.append((first, self._number[entry.part]))
                self._append(index, LOSE, (self._number[entry.part],), entry.part)
        elif isinstance(entry, MutateEntry):
            for source, result in zip(removed, change.added, strict=True):
                self._bring(index, result.name, (source,))
        elif isinstance(entry, RewriteEntry):
            # The first parts that come take the place of the sources; the others are inserted.
            for number, part in enumerate(change.added):
                self._writers[len(self.all)] = entry.replica
                self._bring(index, part.name, removed[number : number + 1])
        elif isinstance(entry, GetEntry) or not change.added:
            if removed:
                self._append(index, DROP, removed)
            for part in change.added:
                self._writers[len(self.all)] = getattr(entry, "replica", "")
                self._bring(index, part.name, ())
        else:
            (result,) = change.added
            self._bring(index, result.name, removed)
        return range(first, len(self.all))

    def _append(self, index: int, kind: int, sources: Iterable[int], name: str = "", covers: int = 0) -> None:
        self.all.append(Piece(index, kind, sum(1 << number for number in sources)))
        self._indexes.append(index)
        self._covers.append(covers)
        self._names.append(name)

    def _bring(self, index: int, name: str, sources: Iterable[int]) -> None:
        number, covers = len(self.all), 0
        for source in sources:
            covers |= self._covers[source]
        self._number[name] = number
        self._append(index, PART, sources, name, covers | 1 << number)

    # --- one replica ----------------------------------------------------------------------------------------------------------

    def holding(self, tree: Tree, replica: Replica) -> Holding:
        """Return what a replica has.

        Raises
        ------
        NoState
            It has a part that follows from no entry, or the rows of one whose loss it has executed.
        """
        host, mark = tree.get(layout.host(replica)), tree.get(layout.is_lost(replica))
        pointer = tree.get(layout.log_pointer(replica))
        if host is None or host.value == DROPPED_HOST or mark is None or pointer is None:
            return ABSENT
        is_lost = mark.value != NOT_LOST
        waits = self._waiting(tree, replica, layout.pointer_index(pointer.value))
        done = 0 if is_lost else ((1 << len(self.all)) - 1) & ~waits
        has, broken = self._registered(tree, replica, done)
        for number in bits(waits):
            if self._writers.get(number) == replica.name and not self._is_given_up(number):
                has |= 1 << number
        hidden = 0
        for number in bits(has):
            hidden |= self._covers[number] & ~(1 << number)
        return Holding(has & ~hidden, broken & ~hidden, done, is_lost)

    def _waiting(self, tree: Tree, replica: Replica, pointer: int) -> int:
        """Return the pieces that a replica has not pulled, or has in its queue."""
        waits = ((1 << len(self.all)) - 1) & ~((1 << bisect_left(self._indexes, pointer)) - 1)
        for name in tree.children(layout.queue(replica)) or ():
            index = layout.queue_index(name)
            for number in range(bisect_left(self._indexes, index), bisect_left(self._indexes, index + 1)):
                waits |= 1 << number
        return waits

    def _registered(self, tree: Tree, replica: Replica, done: int) -> tuple[int, int]:
        has = broken = 0
        for name in tree.children(layout.parts(replica)) or ():
            node, number = tree.get(layout.part(replica, name)), self._number.get(name)
            assert node is not None
            if number is None:
                raise NoState(f"{replica.name} has {name}, which no entry of the log brings")
            has |= 1 << number
            if is_broken(node.value):
                broken |= 1 << number
                continue
            for loss, empty in self._losses.get(name, [])[-1:]:
                if done >> loss & 1 and content_of(node.value) != empty:
                    raise NoState(f"{replica.name} has {name} with rows, and has executed its loss")
        return has, broken

    def _is_given_up(self, number: int) -> bool:
        """Whether a part was declared lost: nobody has it staged."""
        return any(part == number for _, part in self._lost)


def bits(mask: int) -> Iterable[int]:
    """Return the numbers in a mask, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
