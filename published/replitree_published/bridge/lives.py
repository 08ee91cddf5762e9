"""Follow each insert of a long run by itself, on the packed model of replication: what became of its part, and who has it.

A *life* is the part of one insert in one partition, and all pieces of the log (`pieces`) that it goes through: merges,
mutations, a drop, a loss.  What the packed model does with a part it does with each insert in it: so a run of the whole is a
run of each life, in which a merge has one source.  What nobody has any more, or has still to execute, is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import decode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import next_index
from replitree.protocol.core.part_set import PartSet
from replitree_published.bridge.explored import wrong_step
from replitree_published.bridge.mapping import Follower, NoState
from replitree_published.bridge.pieces import ABSENT, Holding, Pieces, bits
from replitree_published.bridge.replication import REPLICATION, Shared
from replitree_published.packed.models.replication_log import DROP, PART, QueueLimits

PIECES_MAX = 120
"""How much of a life may count at once: what somebody has, or has still to execute."""

ALONE = replace(REPLICATION, limits=lambda replicas: QueueLimits(replicas=replicas, records=PIECES_MAX))
"""The mapping, with room for a long life."""


@dataclass(frozen=True, slots=True)
class Life:
    """One insert in one partition: its pieces that count, ascending, and what was seen of it last."""

    pieces: tuple[int, ...]
    seen: Shared


Here: TypeAlias = tuple[Tree, LogIndex, tuple[Holding, ...], int, tuple[PartSet, tuple[LogIndex, ...]]]
"""Where all lives were: coordination, the log's end, what replicas had, how many pieces there were, and what they come to."""


@dataclass(slots=True)
class Lives:
    """All lives of a table.

    Attributes
    ----------
    table, names
        Where it lies, and all replicas that it ever has.
    follower
        Who follows.
    """

    table: TablePlace
    names: tuple[str, ...]
    follower: Follower
    _tree: Tree = field(default_factory=Tree)
    _end: LogIndex = LogIndex(0)  # noqa: RUF009 - a number
    _pieces: Pieces = field(default_factory=Pieces)
    _holdings: tuple[Holding, ...] = ()
    _lives: dict[int, Life] = field(default_factory=dict)
    _through: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _before: dict[int, Life | None] = field(default_factory=dict)
    _here: Here = field(init=False)

    @classmethod
    def of(cls, table: TablePlace, names: tuple[str, ...]) -> Lives:
        """Return those of a table of which nothing was seen yet."""
        return cls(table, names, Follower(ALONE, len(names)), _holdings=tuple(ABSENT for _ in names))

    def stay(self) -> None:
        """Go back to here when that is asked for (`go_back`)."""
        self._here = self._tree, self._end, self._holdings, len(self._pieces.all), self._pieces.folded
        self._before = {}

    def go_back(self) -> None:
        """Forget what has happened since `stay`."""
        self._tree, self._end, self._holdings, count, folded = self._here
        for number in range(count, len(self._pieces.all)):
            del self._through[number]
        self._pieces.cut(count, *folded)
        for number, life in self._before.items():
            if life is None:
                self._lives.pop(number, None)
            else:
                self._lives[number] = life
        self._before = {}

    def _put(self, number: int, life: Life | None) -> None:
        self._before.setdefault(number, self._lives.get(number))
        if life is None:
            del self._lives[number]
        else:
            self._lives[number] = life

    def look(self, tree: Tree) -> str | None:
        """Look at what has changed since the last time; return what is wrong with one life.

        Raises
        ------
        BadInput
            A life goes through more than there is room for.
        Undecided
            A search for a way has reached its limit.
        """
        known, before = len(self._pieces.all), self._holdings
        touched = self._read_log(tree)
        has_grown = len(self._pieces.all) > known
        try:
            self._holdings = tuple(
                self._pieces.holding(tree, Replica(self.table, name))
                if has_grown or self._has_changed(tree, name)
                else was
                for name, was in zip(self.names, before, strict=True)
            )
        except NoState as why:
            return f"BRIDGE: {why}"
        self._tree = tree
        for was, here in zip(before, self._holdings, strict=True):
            touched |= self._touched(was, here)
        for number in sorted(touched):
            wrong = self._step(number)
            if wrong is not None:
                return f"{wrong} (the insert at {self._pieces.all[number].index})"
        return None

    # --- the log --------------------------------------------------------------------------------------------------------------

    def _read_log(self, tree: Tree) -> set[int]:
        """Append what the log has more; return the lives that go through it."""
        touched: set[int] = set()
        while (node := tree.get(path := layout.log_entry(self.table, self._end))) is not None:
            entry = decode_entry(node.value, path)
            for number in self._pieces.add(self._end, entry):
                touched.update(self._lead_through(number))
            self._end = next_index(self._end, entry)
        return touched

    def _lead_through(self, number: int) -> tuple[int, ...]:
        """Let the lives go through a piece that it changes, or one begin with it; return which."""
        sources = self._pieces.all[number].sources
        through: tuple[int, ...] = (number,)
        if sources:
            found = {life for source in bits(sources) for life in self._through[source]}
            through = tuple(sorted(found & self._lives.keys()))
        else:
            nothing = tuple(Holding(is_lost=each.is_lost) for each in self._holdings)
            self._put(number, Life((), Shared((), (), nothing)))
        self._through[number] = through
        for life in through:
            one = self._lives[life]
            self._put(life, Life((*one.pieces, number), one.seen))
        return through

    # --- replicas and lives ---------------------------------------------------------------------------------------------------

    def _has_changed(self, tree: Tree, name: str) -> bool:
        """Whether anything was written that says what a replica has."""
        replica, old = Replica(self.table, name), self._tree
        nodes = layout.host(replica), layout.is_lost(replica), layout.log_pointer(replica)
        folders = layout.parts(replica), layout.queue(replica)
        is_same = all(tree.shares(old, path) for path in folders) and all(tree.get(p) is old.get(p) for p in nodes)
        return not is_same

    def _touched(self, was: Holding, here: Holding) -> set[int]:
        """Return the lives of which a replica has something else than before."""
        if was.is_lost != here.is_lost:
            return set(self._lives)
        changed = (was.has ^ here.has) | (was.broken ^ here.broken) | (was.done ^ here.done)
        return {life for number in bits(changed) for life in self._through[number] if life in self._lives}

    def _step(self, number: int) -> str | None:
        """Follow a life to where it is now; forget it, or its beginning, when nobody can come back to that."""
        one = self._lives[number]
        if len(one.pieces) > PIECES_MAX:
            raise BadInput(f"what became of the insert at {self._pieces.all[number].index} is too much to be followed")
        here = self._shared(one.pieces)
        wrong = wrong_step(self.follower, one.seen, here)
        if wrong is not None:
            return wrong
        left = self._that_count(one.pieces)
        self._put(number, Life(left, here if left == one.pieces else self._shared(left)) if left else None)
        return None

    def _shared(self, pieces: tuple[int, ...]) -> Shared:
        """Return what is there of a life."""
        all_pieces = [self._pieces.all[number] for number in pieces]
        replicas = tuple(
            Holding(_picked(each.has, pieces), _picked(each.broken, pieces), _picked(each.done, pieces), each.is_lost)
            for each in self._holdings
        )
        sources, last = list[int](), 0
        for at, piece in enumerate(all_pieces):
            # What a forgotten part came of is the last one that is left before it; a drop or a loss is no part.
            sources.append(_picked(piece.sources, pieces) or last)
            last = 1 << at if piece.kind == PART else last
        return Shared(tuple(piece.kind for piece in all_pieces), tuple(sources), replicas)

    def _that_count(self, pieces: tuple[int, ...]) -> tuple[int, ...]:
        """Return the pieces of a life that still count, the insert always; none when all is over and it was dropped."""
        first, *others = pieces
        kinds = {number: self._pieces.all[number].kind for number in pieces}
        if DROP in kinds.values() and all(map(self._is_over, pieces)):
            return ()
        return (first, *(number for number in others if kinds[number] != PART or not self._is_over(number)))

    def _is_over(self, number: int) -> bool:
        """Whether nobody has anything of a piece, and all who are good have executed it."""
        return all(not each.has >> number & 1 and (each.is_lost or each.done >> number & 1) for each in self._holdings)


def _picked(mask: int, pieces: tuple[int, ...]) -> int:
    """Return the bits of some pieces, next to each other."""
    return sum((mask >> number & 1) << at for at, number in enumerate(pieces))
