"""What coordination says of a table, for those who check it: the log and everything that follows from it.

*Lineage* is the fold with rows: of every part that the table has had at any index, what it came from and which rows it has to
hold.  It is derived from the log, and from `results` for the mutations of which it is known that they were killed:
where the kill came first, that node has the content of the source.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from msgspec import UNSET

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    DropEntry,
    Entry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    decode_entry,
    dropped_partitions,
    staged_names,
)
from replitree.protocol.core.fold import NOTHING, apply, open_after
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import log_start, next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.feed.definition import OpenInserts, advance, step_of
from replitree.protocol.membership.table import DROPPED_HOST, NOT_LOST
from replitree.protocol.state.pull import Queued
from replitree_verify.world.disk import merged_content, mutated_content, rows_in
from replitree_verify.world.model import TABLE
from replitree_verify.world.past import Declared, declared, past_result
from replitree_verify.world.windows import PAST


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
        The ids of the mutations that are killed, or may be.
    """

    def __init__(self, tree: Tree, table: TablePlace = TABLE, killed: Collection[str] = ()) -> None:
        self.tree = tree
        self.table = table
        self.killed = killed

    @cached_property
    def raw(self) -> tuple[tuple[int, Entry], ...]:
        """The log, in order: index and entry."""
        # With the entries that were removed: invariants speak of the whole log (`past`).
        past = self.tree.children(PAST) if self.tree.exists(PAST) else ()
        gone = [f"{PAST}/{name}" for name in past or () if name.startswith("log-")]
        paths = [*((int(path.rpartition("-")[2]), path) for path in gone), *self.present]
        return tuple((index, self._entry(path)) for index, path in sorted(paths))

    @cached_property
    def present(self) -> tuple[tuple[int, str], ...]:
        """The entries that were not removed, below all parents of the log: index and path."""
        found: list[tuple[int, str]] = []
        for parent in log_parents(self.tree, self.table):
            folder = layout.log_parent(self.table, parent)
            paths = (f"{folder}/{name}" for name in self.tree.children(folder) or ())
            found += ((layout.index_of(self.table, path), path) for path in paths)
        return tuple(found)

    @property
    def first(self) -> int:
        """The lowest index that was not removed, or the one that comes next."""
        return self.present[0][0] if self.present else self.end

    @cached_property
    def end(self) -> int:
        """The index that comes next: after the last entry, or where a log without entries begins."""
        node = self.tree.get(layout.log(self.table))
        begins = 0 if node is None else log_start(self.table, node).first
        if not self.raw:
            return begins
        index, entry = self.raw[-1]
        return max(begins, next_index(LogIndex(index), entry))

    @cached_property
    def _indexes(self) -> tuple[int, ...]:
        return tuple(index for index, _ in self.raw)

    def since(self, index: int) -> tuple[tuple[int, Entry], ...]:
        """Return the entries from an index on."""
        return self.raw[bisect_left(self._indexes, index) :]

    @cached_property
    def _folded(self) -> tuple[tuple[Queued, ...], tuple[PartSet, ...]]:
        return _folded(self.raw, self.end, declared(self.tree))

    @property
    def entries(self) -> tuple[Queued, ...]:
        """The log, in order, with what each entry changes."""
        return self._folded[0]

    @property
    def inserts(self) -> tuple[tuple[int, GetEntry], ...]:
        """The inserts of the log: index and entry."""
        return tuple((index, entry) for index, entry in self.raw if isinstance(entry, GetEntry))

    @property
    def streams(self) -> tuple[str, ...]:
        """The ids of the streams that have a node."""
        names = self.tree.children(layout.streams(self.table)) if self.tree.exists(layout.streams(self.table)) else ()
        return tuple(map(layout.stream_id_of, names or ()))

    @cached_property
    def lost(self) -> dict[str, int]:
        """The parts that were declared lost, each with the index of the first entry that says so."""
        found: dict[str, int] = {}
        for index, entry in self.raw:
            if isinstance(entry, LostEntry):
                found.setdefault(entry.part, index)
        return found

    def lost_requests(self, partition: str) -> frozenset[int]:
        """Return the requests whose rows were in parts of a partition that were declared lost."""
        return frozenset[int]().union(*self.losses(partition))

    def losses(self, partition: str) -> tuple[frozenset[int], ...]:
        """Return the requests whose rows were in each part of a partition that was declared lost."""
        return self._losses(partition, self.lineage)

    def _losses(self, partition: str, lineage: Mapping[Part, Origin]) -> tuple[frozenset[int], ...]:
        parts = (part for part in map(parse_part, self.lost) if part.partition == partition and part in lineage)
        return tuple(frozenset(map(request_of, lineage[part].rows)) for part in parts)

    @property
    def parts(self) -> PartSet:
        """The parts of the whole log."""
        return self._folded[1][-1]

    def parts_at(self, index: int) -> PartSet:
        """Return the parts of the log below an index."""
        # Fold k is that of the first k entries, and so many have an index below this one.
        return self._folded[1][bisect_left(self._indexes, index)]

    def fed_from(self, index: int) -> Mapping[LogIndex, frozenset[str]]:
        """Return the entries at or above an index, each with the names of the parts that its feed needs."""
        return {at: parts for at, parts in _fed(self.entries) if at >= index and parts}

    def open_at(self, index: int) -> tuple[LogIndex, ...]:
        """Return the inserts that are open below an index."""
        opened: tuple[LogIndex, ...] = ()
        for at, entry in self.raw:
            opened = open_after(opened, LogIndex(at), entry) if at < index else opened
        return opened

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
                case RewriteEntry() as rewrite:
                    contents = {part: content for _, part, content in staged_names(rewrite, item.index)}
                    for part in item.change.added:
                        found[part] = Origin(rows_in(contents[part]), (), item)
                # A merge whose sources are gone, or open, changes nothing: its result never exists.
                case MergeEntry() if item.change != NOTHING:
                    (result,), sources = item.change.added, item.change.removed
                    merged = merged_content("", (_content(found[source].rows) for source in sources))
                    found[result] = Origin(rows_in(merged), sources, item)
                case MutateEntry() as mutation:
                    for source, result in zip(item.change.removed, item.change.added, strict=True):
                        rows = found[source].rows
                        claimed = self.result(result) if mutation.id in self.killed else None
                        # A kill that came first has published the source's content as the result: then no row changes.
                        # Rows of the source may be lost by then, or after.
                        gone = frozenset[int]().union(*self._losses(source.partition, found))
                        known = () if claimed is None else rows_in(claimed)
                        # A row that was lost later tells too: the kill has published it as it was.
                        if claimed is None or not {*known} <= {*rows} or _without(gone, known) != _without(gone, rows):
                            rows = rows_in(mutated_content("", _content(rows), mutation.command))
                        found[result] = Origin(rows, (source,), item)
        return found

    def result(self, part: Part) -> str | None:
        """Return the content that the first publisher of a result claimed for it, whether or not that was forgotten since."""
        node = self.tree.get(past_result(part.name)) or self.tree.get(layout.result(self.table, part.name))
        return None if node is None else node.value.decode()

    @property
    def results(self) -> dict[str, str]:
        """What the results came to, those that were forgotten too: part and content."""
        parent = layout.results(self.table)
        nodes = {name: self.tree.get(f"{parent}/{name}") for name in self.tree.children(parent) or ()}
        return {name: node.value.decode() for name, node in nodes.items() if node is not None} | self.forgotten_results

    @property
    def forgotten_results(self) -> dict[str, str]:
        """The results that were forgotten: part and content."""
        prefix = past_result("")
        paths = (f"{PAST}/{name}" for name in self.tree.children(PAST) or ())
        nodes = {path.removeprefix(prefix): self.tree.get(path) for path in paths if path.startswith(prefix)}
        return {part: node.value.decode() for part, node in nodes.items() if node is not None}

    def dropped_between(self, partition: str, first: int, last: int) -> bool:
        """Whether a whole partition was dropped or replaced by an entry after `first` and before `last`."""
        for index, entry in self.since(first + 1):
            if index >= last:
                break
            scopes = dropped_partitions(entry) if isinstance(entry, GetEntry) else ()
            # A drop of a range of blocks leaves the rest of the partition.
            if isinstance(entry, DropEntry) and entry.block_min is None:
                scopes = (entry.partition,)
            if EVERY_PARTITION in scopes or partition in scopes:
                return True
        return False

    # --- one replica ----------------------------------------------------------------------------------------------------

    def replica(self, name: str) -> Replica:
        """Return a replica's place."""
        return Replica(self.table, name)

    def mark(self, replica: Replica) -> bytes | None:
        """Return the value of a replica's `is_lost`; None when it has not joined the table, or leaves it."""
        # A drop writes `DROPPED_HOST` first and removes the nodes after it: from then on the replica is no member.
        host, lost = self.tree.get(layout.host(replica)), self.tree.get(layout.is_lost(replica))
        return None if host is None or lost is None or host.value == DROPPED_HOST else lost.value

    def is_good(self, replica: Replica) -> bool:
        """Whether a replica belongs to the table and is not lost."""
        return self.mark(replica) == NOT_LOST

    def pointer(self, replica: Replica) -> int:
        """Return the index of the next entry that a replica pulls."""
        node = self.tree.get(layout.log_pointer(replica))
        assert node is not None
        return layout.pointer_index(node.value)

    def opened(self, replica: Replica) -> tuple[LogIndex, ...]:
        """Return the inserts that are open where a replica stands, as it has written it."""
        node = self.tree.get(layout.log_pointer(replica))
        assert node is not None
        return layout.pointer_open(node.value)

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
        return _decoded(node.value, path)


_decoded = lru_cache(maxsize=1 << 14)(decode_entry)
"""Entries never change, and every state has most of those of the state before."""


@lru_cache(maxsize=64)
def _folded(
    raw: tuple[tuple[int, Entry], ...], end: int, since: Declared | None
) -> tuple[tuple[Queued, ...], tuple[PartSet, ...]]:
    """Fold a log; most states have the log of the state before."""
    parts, items, folds = PartSet(), list[Queued](), [PartSet()]
    opened: tuple[LogIndex, ...] = ()
    for index, entry in raw:
        # A replica's state was declared the table's: what the log says of earlier entries counts no more.
        if since is not None and index == since.at:
            parts = folds[-1] = PartSet.of(map(parse_part, since.parts))
        parts, change = apply(parts, LogIndex(index), entry, opened=opened)
        opened = open_after(opened, LogIndex(index), entry)
        items.append(Queued(LogIndex(index), entry, change))
        folds.append(parts)
    # No entry came after the declaration, so no turn of the loop has taken it.
    if since is not None and since.at == end:
        folds[-1] = PartSet.of(map(parse_part, since.parts))
    return tuple(items), tuple(folds)


@lru_cache(maxsize=64)
def _fed(entries: tuple[Queued, ...]) -> tuple[tuple[LogIndex, frozenset[str]], ...]:
    """Return for each entry of a log the names of the parts that its feed needs."""
    opens, opened, found = OpenInserts(), tuple[LogIndex, ...](), list[tuple[LogIndex, frozenset[str]]]()
    for item in entries:
        opened = open_after(opened, item.index, item.entry)
        opens, feed = advance(opens, step_of(item.entry, item.change, opened))
        found.append((item.index, frozenset(part.name for unit in feed.units for part in unit.parts)))
    return tuple(found)


def log_parents(tree: Tree, table: TablePlace) -> tuple[int, ...]:
    """Return the numbers of the parents that a log has, ascending."""
    names = tree.children(table.path) or ()
    further = (int(name.removeprefix("log.")) - 1 for name in names if name.startswith("log."))
    return tuple(sorted((*((0,) if "log" in names else ()), *further)))


def tokens_of(entry: GetEntry) -> tuple[str, ...]:
    """Return the tokens of the requests in an insert; a batch of a stream has one that names both."""
    return entry.blocks if entry.stream is UNSET else (f"{entry.stream.stream}.{entry.stream.batch}",)


def request_of(row: str) -> int:
    """Return the request that inserted a row, mutated or not."""
    return int(row.partition("~")[0])


def _without(requests: Collection[int], rows: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(row for row in rows if request_of(row) not in requests)


def _content(rows: tuple[str, ...]) -> str:
    return f":{'+'.join(rows)}"
