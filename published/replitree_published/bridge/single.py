"""Follow each insert of a long run by itself, on the packed model of quorum inserts.

An insert is looked at after each commit as long as it is open, when it ends, when a client hears of it, and by every strict
read that asks for it or shows it.  Of a read at a position above an entry that may have taken rows of it away (a drop, an
overwrite, a loss) nothing is asked: I8 knows what is left.  Who counts for an insert after such an entry is believed.
A replica that is taken out of the table while an insert is open goes without a step; from then on it has and counts for
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from replitree.coordination.trace import Told
from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    SettleEntry,
    Verdict,
    decode_entry,
    dropped_partitions,
    quorum_of,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import next_index
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership.table import DROPPED_HOST
from replitree.protocol.state.counted import decode_quorum
from replitree_published.bridge.explored import wrong_step
from replitree_published.bridge.mapping import Follower
from replitree_published.bridge.quorum import QUORUM, Quorum, Quorums, held, read, requests_of
from replitree_published.packed.models.quorum_queues import NEEDED_MAX
from replitree_verify.process.read_requests import Shown, ShowRows
from replitree_verify.world.history import Log


@dataclass(frozen=True, slots=True)
class One:
    """An insert: its entry, the entry that ended it and where that is, and what was seen of it last.

    `taken_at` is the first later entry that may have taken rows of it away.
    """

    entry: GetEntry
    seen: Quorums
    end: Verdict | None = None
    ended_at: int = -1
    taken_at: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may still fail."""
        return bool(quorum_of(self.entry)) and self.end is None

    def is_whole_at(self, position: int) -> bool:
        """Whether nothing below a position has taken rows of it away."""
        return self.taken_at is None or position <= self.taken_at


@dataclass(slots=True)
class Inserts:
    """All inserts of a table.

    Attributes
    ----------
    table, names, follower
        Where it lies, its replicas, and who follows.
    """

    table: TablePlace
    names: tuple[str, ...]
    follower: Follower
    _end: LogIndex = LogIndex(0)  # noqa: RUF009 - a number
    _all: dict[int, One] = field(default_factory=dict)
    _due: set[int] = field(default_factory=set)
    _before: dict[int, One | None] = field(default_factory=dict)
    _due_before: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, table: TablePlace, names: tuple[str, ...]) -> Inserts:
        """Return none."""
        return cls(table, names, Follower(QUORUM, len(names)))

    def stay(self) -> None:
        """Go back to here when that is asked for (`go_back`)."""
        self._before, self._due_before = {}, set(self._due)

    def go_back(self) -> None:
        """Forget what has happened since `stay`."""
        for index, one in self._before.items():
            if one is None:
                del self._all[index]
            else:
                self._all[index] = one
        self._due = set(self._due_before)
        self._before = {}

    def _put(self, index: int, one: One) -> None:
        self._before.setdefault(index, self._all.get(index))
        self._all[index] = one

    def _begin(self, index: int, entry: GetEntry) -> None:
        """Take note of an insert."""
        if quorum_of(entry) > NEEDED_MAX:
            raise BadInput(
                f"the insert at {index} needs {quorum_of(entry)} replicas; {QUORUM.model.name} has {NEEDED_MAX}"
            )
        nothing = tuple(0 for _ in self.names)
        self._put(index, One(entry, Quorums((), nothing, nothing)))
        self._due.add(index)

    def _end_of(self, index: int, verdict: Verdict) -> None:
        """Take note of what became of an insert with a quorum, at `index`."""
        one = self._all.get(verdict.index)
        if one is not None:
            self._put(verdict.index, replace(one, end=verdict, ended_at=index))
            self._due.add(verdict.index)

    def read_log(self, tree: Tree) -> None:
        """Take note of what the log has more than at the last time."""
        while (node := tree.get(path := layout.log_entry(self.table, self._end))) is not None:
            entry = decode_entry(node.value, path)
            self.note(self._end, entry)
            self._end = next_index(self._end, entry)

    def note(self, index: int, entry: Entry) -> None:
        """Take note of an entry of the log.

        Raises
        ------
        BadInput
            It is an insert that needs more replicas than the packed model has.
        """
        self._take_away(index, entry)
        if isinstance(entry, GetEntry):
            self._begin(index, entry)
        elif isinstance(entry, SettleEntry | FailEntry):
            self._end_of(index, entry)

    def _take_away(self, index: int, entry: Entry) -> None:
        """Take note of an entry that may take rows of earlier inserts away."""
        partitions = {*_emptied(entry)}
        for number, one in list(self._all.items()) if partitions else ():
            touched = {EVERY_PARTITION, *(part.partition for part in one.entry.parts)} & partitions
            if touched and one.taken_at is None:
                self._put(number, replace(one, taken_at=index))

    def look(self, tree: Tree) -> str | None:
        """Look at the inserts that are open or have just ended; return what is wrong with one."""
        for index in sorted(self._due):
            one = self._without_dropped(tree, self._all[index])
            here = self._outline(tree, index, one)
            wrong = wrong_step(self.follower, one.seen, here)
            if wrong is not None:
                return wrong
            self._put(index, replace(one, seen=here))
            if not one.is_open:
                self._due.discard(index)
        return None

    def _without_dropped(self, tree: Tree, one: One) -> One:
        """Return an open insert without who is being dropped and was taken back: who joins under that name is another one."""
        counted, kept = self._members(tree, one), list[bool]()
        for name, was_counted in zip(self.names, one.seen.counts, strict=True):
            host = tree.get(layout.host(Replica(self.table, name)))
            is_dropped = host is not None and host.value == DROPPED_HOST
            kept.append(not (one.is_open and was_counted and name not in counted and is_dropped))
        if all(kept):
            return one
        has = tuple(mask * keeps for mask, keeps in zip(one.seen.has, kept, strict=True))
        counts = tuple(mask * keeps for mask, keeps in zip(one.seen.counts, kept, strict=True))
        return replace(one, seen=msgspec.structs.replace(one.seen, has=has, counts=counts))

    def hear(self, told: Told) -> str | None:
        """Look at what a client heard of its insert; return what is wrong with that."""
        one = self._all.get(told.index)
        if one is None:
            return f"TRACE: a client heard that its insert is at {told.index}, and no trace has an insert there"
        if told.settled is not None and told.settled != one.ended_at:
            return f"TRACE: a client heard that {told.index} was settled at {told.settled}; no trace has that there"
        return self._tell(told.index, one, is_acked=True)

    def refuse(self, index: int) -> str | None:
        """Look at an insert of which a client hears that it has failed; return what is wrong with that."""
        return self._tell(index, self._all[index], is_refused=True)

    def show(self, effect: ShowRows, shown: Shown) -> str | None:
        """Look at the inserts that a strict read asks for or shows; return what is wrong with one."""
        asked, rows = {*effect.begun.settled}, {*shown.requests}
        for index, one in list(self._all.items()):
            requests = requests_of(one.entry)
            if not one.is_whole_at(effect.position) or (index not in asked and rows.isdisjoint(requests)):
                continue
            (insert,) = one.seen.inserts
            before = msgspec.structs.replace(one.seen, inserts=(msgspec.structs.replace(insert, requests=requests),))
            after = msgspec.structs.replace(before, shown=before.shown | before.with_rows(shown.requests))
            wrong = wrong_step(self.follower, *read(before, after, effect, shown))
            if wrong is not None:
                return f"{wrong} (the insert at {index}, read at {effect.position})"
            self._put(index, replace(one, seen=after))
        return None

    def _tell(self, index: int, one: One, **heard: bool) -> str | None:
        (insert,) = one.seen.inserts
        here = msgspec.structs.replace(one.seen, inserts=(msgspec.structs.replace(insert, **heard),))
        wrong = wrong_step(self.follower, one.seen, here)
        self._put(index, replace(one, seen=here))
        return wrong

    def _outline(self, tree: Tree, index: int, one: One) -> Quorums:
        log, entry = Log(tree, self.table), one.entry
        is_settled = None if one.is_open else not (one.end is not None and not isinstance(one.end, SettleEntry))
        heard = [(insert.is_acked, insert.is_refused) for insert in one.seen.inserts] or [(False, False)]
        insert = Quorum(index, (), quorum_of(entry) or 1, is_settled, 0, *heard[0])
        has = tuple(held(log, Replica(self.table, name), [(index, entry)]) for name in self.names)
        counted = self._members(tree, one)
        counts = tuple(int(name in counted) for name in self.names)
        if one.is_open or one.taken_at is not None:  # what a drop takes away meanwhile, its holders had
            has = tuple(here | before for here, before in zip(has, one.seen.has, strict=True))
        if one.taken_at is not None:  # who executes it now counts, and has nothing left to get
            has = tuple(here | counting for here, counting in zip(has, counts, strict=True))
        return Quorums((insert,), has, counts, one.seen.shown)

    def _members(self, tree: Tree, one: One) -> tuple[str, ...]:
        """Return who counts for an insert."""
        if isinstance(one.end, SettleEntry):
            return one.end.holders
        node = tree.get(layout.quorum_status(self.table, one.entry.insert))
        if node is not None:
            return decode_quorum(node.value, one.entry.insert).replicas
        return () if quorum_of(one.entry) else (one.entry.replica,)


def _emptied(entry: Entry) -> tuple[str, ...]:
    """Return the partitions of which an entry may take rows away that were there before."""
    match entry:
        case DropEntry():
            return (entry.partition,)
        case LostEntry():
            return (parse_part(entry.part).partition,)
        case GetEntry():
            return dropped_partitions(entry)
        case _:
            return ()
