"""The fold: the parts that a table has are a pure function of its log.

``fold(log)`` is the one definition of a table's content.  A replica is a cache of it that is some entries behind.  The
incremental form is `apply`: one entry and what it changes; the plain form applies all entries from the start.

An entry that does not apply changes nothing, for every replica alike, so appending one needs no lock, and two leaders at
once are harmless: of two merges of one part the first counts, a merge after a drop finds nothing.

`restore` is the other way to the same set: from what a replica has registered and what is left in its queue (I1).  It holds
because of two properties that the tests and the checker prove:

* Applying an entry again changes nothing, and a part that is covered already is not added.  So it does not matter which entries
  were executed early, or that a later form of a part was fetched in its place.
* Only drops remove for good.  A drop is executed after everything before it in the queue that touches what it removes.

**Open inserts.**  An insert with a quorum is *open* from its own entry on until its `settle` or `fail` entry.  The whole state
of the table is the parts and the indexes of the open inserts (`open_after`); a replica writes these beside its pointer, in the
same commit.  What the other entries do with open parts:

* A merge of one is no merge: so a part is open exactly when it is of one block, and that block's insert is open.
* Drops, overwrites and mutations treat them as any other part.  An insert that was dropped while it was open stays open; when
  it settles, it was in the table before the drop.
* `fail` is to the insert's block what a drop of that block is: it finds the part as it was inserted, or mutated, or dropped.

**Scope of a mutation.**  A mutation may name the partitions in which its proposer has seen rows to change, at the position
`since` of the log.  It then replaces the earlier parts of these partitions, and every earlier part, wherever it is, that an
entry from `since` on has inserted or mutated (`is_changed_since`).  The scope is whole partitions, because a merge never leaves
its partition: whether a part is in scope does not depend on which merges were executed.

**Rewrites.**  A rewrite was made of parts that a client has read.  It applies as a whole, or it changes nothing: every source
must be there under that very name.  A cover will not do, because its rows are others.  What it relies on besides is checked by
numbers that merges keep (`is_changed_since`), so merges never refuse a rewrite of other parts.  Whether it applies is decided
once, at the pull.  Once it is in a queue (`decided`), a source that is not there has a later form, or was dropped since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import UNSET

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    AlterEntry,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    ViewEntry,
    dropped_partitions,
    inserted_parts,
    quorum_of,
)
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, inserted_part, merged_part, mutated_part, parse_part


@dataclass(frozen=True, slots=True)
class Change:
    """What one entry changes: parts that leave, and parts that come.

    Of a mutation the two have equal length, and each part that comes takes the place of the one that leaves.
    """

    removed: tuple[Part, ...] = ()
    added: tuple[Part, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes: the entry does not apply."""
        return not self.removed and not self.added


NOTHING = Change()


def open_after(opened: tuple[LogIndex, ...], index: LogIndex, entry: Entry) -> tuple[LogIndex, ...]:
    """Return the indexes of the inserts that are open after the entry at `index`, ascending; `opened` are those before it."""
    if quorum_of(entry):
        return (*opened, index)
    if isinstance(entry, SettleEntry | FailEntry):
        return tuple(each for each in opened if each != entry.index)
    return opened


def is_open(part: Part, opened: tuple[LogIndex, ...]) -> bool:
    """Whether a part belongs to an insert that is open."""
    return part.block_min == part.block_max and part.block_min in opened


def settled(parts: PartSet, opened: tuple[LogIndex, ...]) -> PartSet:
    """Return the parts that do not belong to open inserts, which may yet fail."""
    if not opened:
        return parts
    return parts.replace(tuple(part for part in parts if is_open(part, opened)), ())


def change_of(
    parts: PartSet, index: LogIndex, entry: Entry, *, decided: bool = False, opened: tuple[LogIndex, ...] = ()
) -> Change:
    """Return what the entry at `index` changes in a table that has `parts`.

    Parameters
    ----------
    decided
        Whether the entry is known to apply: it is in a queue.  A drop of a range then removes what lies in it and lets be what
        reaches over it, which can only be the result of a later merge.  A rewrite then replaces those of its sources that are
        still there.
    opened
        The inserts that are open before the entry.
    """
    match entry:
        case GetEntry():
            removed = tuple(
                part for partition in dropped_partitions(entry) for part in _earlier(parts, partition, index)
            )
            added = tuple(part for part in inserted_parts(entry, index) if parts.covering(part) is None)
            return Change(removed, added)
        case MergeEntry(sources=sources):
            merged = tuple(parse_part(name) for name in sources)
            if any(is_open(source, opened) for source in merged):
                return NOTHING
            between = parts.between(merged[0].partition, merged[0].block_min, merged[-1].block_max)
            return Change(merged, (merged_part(merged),)) if between == merged else NOTHING
        case MutateEntry():
            mutated = tuple(part for part in _earlier(parts, entry.partition, index) if part.mutation < index)
            if entry.partitions is not UNSET and entry.since is not UNSET:
                listed, since = frozenset(entry.partitions), entry.since
                mutated = tuple(part for part in mutated if part.partition in listed or is_changed_since(part, since))
            return Change(mutated, tuple(mutated_part(part, index) for part in mutated))
        case RewriteEntry():
            return _change_of_rewrite(parts, index, entry, decided, opened)
        case DropEntry():
            return _change_of_drop(parts, index, entry, decided)
        case AlterEntry() | StorageEntry() | ViewEntry() | RollEntry() | SettleEntry():
            return NOTHING
        case FailEntry():
            found = (part for name in entry.partitions for part in parts.between(name, entry.index, entry.index))
            return Change(tuple(part for part in found if part.is_within(entry.index, entry.index)))
        case LostEntry(part=name):
            cover = parts.covering(parse_part(name))
            return NOTHING if cover is None else Change((cover,), (cover,))


def apply(
    parts: PartSet, index: LogIndex, entry: Entry, *, decided: bool = False, opened: tuple[LogIndex, ...] = ()
) -> tuple[PartSet, Change]:
    """Return the parts after the entry at `index`, and what it has changed; `decided` and `opened` as in `change_of`."""
    change = change_of(parts, index, entry, decided=decided, opened=opened)
    return (parts if change.is_empty else parts.replace(change.removed, change.added)), change


def fold(log: Iterable[tuple[LogIndex, Entry]]) -> PartSet:
    """Return the parts that a table has after a log, given in ascending order of index."""
    parts, opened = PartSet(), tuple[LogIndex, ...]()
    for index, entry in log:
        parts, _ = apply(parts, index, entry, opened=opened)
        opened = open_after(opened, index, entry)
    return parts


def restore(registered: Iterable[Part], queue: Iterable[tuple[LogIndex, Entry]]) -> tuple[PartSet, tuple[Change, ...]]:
    """Return the fold at a replica's pointer, and what each entry of its queue still has to change.

    Parameters
    ----------
    registered
        The parts that the replica has registered, in any order; read after `queue`.
    queue
        Its queue, in ascending order of index.
    """
    parts = PartSet.of(maximal(registered))
    changes: list[Change] = []
    for index, entry in queue:
        parts, change = apply(parts, index, entry, decided=True)
        changes.append(change)
    return parts, tuple(changes)


def maximal(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts that no other one covers, in order."""
    found: list[Part] = []
    for part in sorted(
        parts, key=lambda each: (each.partition, each.block_min, -each.block_max, -each.level, -each.mutation)
    ):
        if not found or not found[-1].covers(part):
            found.append(part)
    return tuple(found)


def _change_of_drop(parts: PartSet, index: LogIndex, entry: DropEntry, decided: bool) -> Change:
    if entry.block_min is None or entry.block_max is None:
        return Change(_earlier(parts, entry.partition, index))
    last = min(entry.block_max, index - 1)
    touched = tuple(
        part
        for part in _in_scope(parts, entry.partition)
        if part.block_min <= last and entry.block_min <= part.block_max
    )
    within = tuple(part for part in touched if part.is_within(entry.block_min, last))
    return Change(within) if decided or within == touched else NOTHING


def _change_of_rewrite(
    parts: PartSet, index: LogIndex, entry: RewriteEntry, decided: bool, opened: tuple[LogIndex, ...]
) -> Change:
    sources = tuple(parse_part(each.source) for each in entry.results)
    there = tuple(source for source in sources if source in parts and not is_open(source, opened))
    if not decided and (there != sources or not _relies_on_what_is(parts, entry, frozenset(sources))):
        return NOTHING
    inserted = tuple(inserted_part(each.partition, index) for each in entry.inserts)
    new = tuple(part for part in inserted if parts.covering(part) is None)
    return Change(there, (*(mutated_part(source, index) for source in there), *new))


def was_applied(parts: PartSet, index: LogIndex, entry: RewriteEntry) -> bool | None:
    """Return whether a rewrite has applied, as far as the parts of the table at a later index tell; None: they do not."""
    sources = tuple(parse_part(each.source) for each in entry.results)
    # A name that has left the table never comes back, and only this entry gives these names.
    if any(source in parts for source in sources):
        return False
    made = (
        *(mutated_part(source, index) for source in sources),
        *(inserted_part(e.partition, index) for e in entry.inserts),
    )
    return True if any(part in parts for part in made) else None


def _relies_on_what_is(parts: PartSet, entry: RewriteEntry, sources: frozenset[Part]) -> bool:
    """Return whether what a rewrite relies on is unchanged: no part has rows that its client has not seen."""
    if entry.unchanged is UNSET:
        return True
    since, unseen = entry.unchanged.since, entry.unchanged.opened
    # A merged part may reach over the block of an insert without its rows: then the rewrite is refused although it need not be.
    return not any(
        is_changed_since(part, since) or any(part.block_min <= block <= part.block_max for block in unseen)
        for partition in entry.unchanged.partitions
        for part in _in_scope(parts, partition)
        if part not in sources
    )


def is_changed_since(part: Part, since: int) -> bool:
    """Return whether a part may have rows that no part had at the position `since` of the log."""
    # A merge takes these numbers from its sources, so the answer for a merged part is the answer for any of its sources: a
    # replica that has executed a later merge early restores the same fold as one that has not (`restore`).
    return part.block_max >= since or part.mutation >= since


def _earlier(parts: PartSet, partition: str, index: LogIndex) -> tuple[Part, ...]:
    """Return the parts of a partition, or of all, whose blocks are all below `index`."""
    return tuple(part for part in _in_scope(parts, partition) if part.block_max < index)


def _in_scope(parts: PartSet, partition: str) -> Iterable[Part]:
    return parts if partition == EVERY_PARTITION else parts.in_partition(partition)
