"""What coordination says of a table, for those who check it: the log and everything that follows from it.

*Lineage* is the fold with rows: of every part that the table has had at any index, what it came from and which rows it has to
hold.  It is derived from the log, and from `results` for the mutations of which it is known that somebody has killed them:
where the kill came first, that node has the content of the source.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from replitree.coordination.tree import Tree
from replitree.protocol import layout
from replitree.protocol.effects import LogIndex
from replitree.protocol.entries import (
    EVERY_PARTITION,
    DropEntry,
    Entry,
    GetEntry,
    MergeEntry,
    MutateEntry,
    decode_entry,
    dropped_partitions,
)
from replitree.protocol.fold import NOTHING, apply
from replitree.protocol.layout import Replica, Table
from replitree.protocol.part_set import PartSet
from replitree.protocol.parts import Part, parse_part
from replitree.protocol.pull import Queued
from replitree.protocol.table import DROPPED_HOST, NOT_LOST
from replitree.verify.disk import merged_content, mutated_content, rows_in
from replitree.verify.model import TABLE
from replitree.verify.past import PAST, declared


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a part comes from.

    Attributes
    ----------
    rows
        What it has to hold.
    sources
        The parts that it was made of; none for the part of an insert.
    item
        The entry that brought it.
    """

    rows: tuple[str, ...]
    sources: tuple[Part, ...]
    item: Queued


class Log:
    """What a tree says of a table: log, pointers, queues, registered parts.  Everything is read when it is asked for.

    Parameters
    ----------
    tree, table
        What is read.
    killed
        The ids of the mutations that somebody kills, or may kill.
    """

    def __init__(self, tree: Tree, table: Table = TABLE, killed: Collection[str] = ()) -> None:
        self.tree = tree
        self.table = table
        self._killed = killed

    @cached_property
    def raw(self) -> tuple[tuple[int, Entry], ...]:
        """The log, in order: index and entry."""
        past = self.tree.children(PAST) if self.tree.exists(PAST) else ()
        gone = [f"{PAST}/{name}" for name in past or () if name.startswith("log-")]
        paths = [*gone, *(f"{layout.log(self.table)}/{name}" for name in self.present)]
        return tuple((_index_of(path), self._entry(path)) for path in paths)

    @cached_property
    def present(self) -> tuple[str, ...]:
        """The names of the entries that were not removed."""
        return self.tree.children(layout.log(self.table)) or ()

    @property
    def first(self) -> int:
        """The lowest index that was not removed, or the one that comes next."""
        return _index_of(self.present[0]) if self.present else len(self.raw)

    @cached_property
    def _folded(self) -> tuple[tuple[Queued, ...], tuple[PartSet, ...]]:
        parts, items, folds = PartSet(), list[Queued](), [PartSet()]
        since = declared(self.tree)
        for index, entry in self.raw:
            if since is not None and index == since.at:
                parts = folds[-1] = PartSet.of(map(parse_part, since.parts))
            parts, change = apply(parts, LogIndex(index), entry)
            items.append(Queued(LogIndex(index), entry, change))
            folds.append(parts)
        if since is not None and since.at == len(self.raw):
            folds[-1] = PartSet.of(map(parse_part, since.parts))
        return tuple(items), tuple(folds)

    @property
    def entries(self) -> tuple[Queued, ...]:
        """The log, in order, with what each entry changes."""
        return self._folded[0]

    @property
    def inserts(self) -> tuple[tuple[int, GetEntry], ...]:
        """The inserts of the log: index and entry."""
        return tuple((index, entry) for index, entry in self.raw if isinstance(entry, GetEntry))

    @property
    def parts(self) -> PartSet:
        """The parts of the whole log."""
        return self._folded[1][-1]

    def parts_at(self, index: int) -> PartSet:
        """Return the parts of the log below an index."""
        return self._folded[1][index]

    @cached_property
    def lineage(self) -> dict[Part, Origin]:
        """Every part that the table has had, with its origin."""
        found: dict[Part, Origin] = {}
        for item in self.entries:
            match item.entry:
                case GetEntry(parts=staged):
                    hashes = {each.partition: each.content_hash for each in staged}
                    for part in item.change.added:
                        found[part] = Origin(rows_in(hashes[part.partition]), (), item)
                case MergeEntry() if item.change != NOTHING:
                    (result,), sources = item.change.added, item.change.removed
                    merged = merged_content("", (_content(found[source].rows) for source in sources))
                    found[result] = Origin(rows_in(merged), sources, item)
                case MutateEntry() as mutation:
                    for source, result in zip(item.change.removed, item.change.added, strict=True):
                        rows = self._mutated(found[source].rows, result, mutation)
                        found[result] = Origin(rows, (source,), item)
        return found

    def _mutated(self, rows: tuple[str, ...], result: Part, mutation: MutateEntry) -> tuple[str, ...]:
        """Return the rows of a mutated part: those of its source when the mutation was killed for it."""
        claimed = self.result(result) if mutation.id in self._killed else None
        if claimed is not None and rows_in(claimed) == rows:
            return rows
        return rows_in(mutated_content("", _content(rows), mutation.command))

    def result(self, part: Part) -> str | None:
        """Return the content that the first publisher of a result claimed for it."""
        node = self.tree.get(layout.result(self.table, part.name))
        return None if node is None else node.value.decode()

    def dropped_between(self, partition: str, first: int, last: int) -> bool:
        """Whether a whole partition was dropped or replaced by an entry after `first` and before `last`."""
        for index, entry in self.raw[first + 1 : last]:
            scopes = dropped_partitions(entry) if isinstance(entry, GetEntry) else ()
            if isinstance(entry, DropEntry) and entry.block_min is None:
                scopes = (entry.partition,)
            if EVERY_PARTITION in scopes or partition in scopes:
                assert first < index < last
                return True
        return False

    # --- one replica ----------------------------------------------------------------------------------------------------

    def mark(self, replica: Replica) -> bytes | None:
        """Return the value of a replica's `is_lost`; None when it has not joined the table, or leaves it."""
        host, lost = self.tree.get(layout.host(replica)), self.tree.get(layout.is_lost(replica))
        return None if host is None or lost is None or host.value == DROPPED_HOST else lost.value

    def is_good(self, replica: Replica) -> bool:
        """Whether a replica belongs to the table and is not lost."""
        return self.mark(replica) == NOT_LOST

    def pointer(self, replica: Replica) -> int:
        """Return the index of the next entry that a replica pulls."""
        node = self.tree.get(layout.log_pointer(replica))
        assert node is not None
        return int(node.value)

    def queue(self, replica: Replica) -> tuple[tuple[int, Entry], ...]:
        """Return the entries that a replica pulled and did not execute: index and entry."""
        names = self.tree.children(layout.queue(replica)) or ()
        paths = [f"{layout.queue(replica)}/{name}" for name in names]
        return tuple((layout.queue_index(path), self._entry(path)) for path in paths)

    def registered(self, replica: Replica) -> dict[str, str]:
        """Return the parts that a replica registered: name and content hash."""
        found = {}
        for name in self.tree.children(layout.parts(replica)) or ():
            node = self.tree.get(layout.part(replica, name))
            assert node is not None
            found[name] = node.value.decode()
        return found

    def _entry(self, path: str) -> Entry:
        node = self.tree.get(path)
        assert node is not None
        return decode_entry(node.value, path)


def _index_of(path: str) -> int:
    """Return the index of an entry, kept or gone: in the worlds that are checked the log has one parent."""
    return int(path.rpartition("-")[2])


def _content(rows: tuple[str, ...]) -> str:
    return f":{'+'.join(rows)}"
