"""The state of replication in queues (`replication_queues`), and what follows from its log: which parts there are.

An entry brings a part, made of others or of nothing (an insert); or it drops parts; or it says that one is lost: nobody has its
rows, and it is empty from then on.  A part is known by the entry that brings it.  What our procedures do in one entry may be
several here: an insert into two partitions, a mutation of two parts.

Fields: the log's length (7 bits); whether something was declared lost that somebody had, and whether a lost replica has let go
of rows that nobody else had (1 each); of each entry a mask of earlier ones, what it is made of, drops or loses (entry k has k
bits), and its kind (2).  Then of each replica the parts that it has, those of them that are broken, the entries that it has
executed, one bit for each entry; and whether it is lost.  With four entries and three replicas that is 62 bits; the bridge,
which has no use for compiled words, takes as many entries as it needs.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import get, put


class QueueLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers in `replication_queues`."""

    replicas: int = 2
    records: int = 3
    mutant: int = 0


PART, DROP, LOSE = range(3)
"""Kinds of entries."""

NARROW = 4
"""Entries for which there is room in a compiled word."""

REGRET, LEFT, LOG = 1 << 7, 1 << 8, 9
LOW, BLOCK = LOG + NARROW * (NARROW - 1) // 2 + 2 * NARROW, 3 * NARROW + 1


def room(limits: QueueLimits) -> int:
    """Return how many entries there is room for."""
    return max(NARROW, limits.records)


def length_of(state: int) -> int:
    """Return how many entries the log has."""
    return state & 127


def sources_of(state: int, entry: int) -> int:
    """Return the mask of what an entry is made of, drops or loses; 0 of an insert."""
    return get(state, LOG + entry * (entry - 1) // 2, entry)


def kind_of(state: int, limits: QueueLimits, entry: int) -> int:
    """Return the kind of an entry."""
    size = room(limits)
    return get(state, LOG + size * (size - 1) // 2 + 2 * entry, 2)


def appended(state: int, limits: QueueLimits, kind: int, sources: int) -> int:
    """Return the state with one more entry in the log."""
    size, length = room(limits), length_of(state)
    bits = (sources << (LOG + length * (length - 1) // 2)) | (kind << (LOG + size * (size - 1) // 2 + 2 * length))
    return (state + 1) | bits


# --- one replica --------------------------------------------------------------------------------------------------------------


def block_of(state: int, limits: QueueLimits, replica: int) -> int:
    """Return the bits of one replica."""
    size = room(limits)
    low, width = LOG + size * (size - 1) // 2 + 2 * size, 3 * size + 1
    return get(state, low + replica * width, width)


def with_block(state: int, limits: QueueLimits, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    size = room(limits)
    low, width = LOG + size * (size - 1) // 2 + 2 * size, 3 * size + 1
    return put(state, low + replica * width, width, block)


def block_with(limits: QueueLimits, has: int, broken: int, done: int, lost: int) -> int:
    """Return the bits of a replica with these masks: what it has, what of that is broken, what it has executed."""
    size = room(limits)
    return has | broken << size | done << (2 * size) | lost << (3 * size)


def has_in(block: int, limits: QueueLimits) -> int:
    """Return the parts that a replica has, broken ones too."""
    return get(block, 0, room(limits))


def broken_in(block: int, limits: QueueLimits) -> int:
    """Return the parts of a replica that are broken."""
    return get(block, room(limits), room(limits))


def whole_in(block: int, limits: QueueLimits) -> int:
    """Return the parts of a replica that are not broken."""
    return has_in(block, limits) & ~broken_in(block, limits)


def done_in(block: int, limits: QueueLimits) -> int:
    """Return the entries that a replica has executed; none of one that is lost."""
    return get(block, 2 * room(limits), room(limits))


def is_lost(block: int, limits: QueueLimits) -> bool:
    """Tell whether a replica is lost, or does not belong to the table."""
    return block >> (3 * room(limits)) != 0


# --- what follows from the log ------------------------------------------------------------------------------------------------


def parts_in(state: int, limits: QueueLimits) -> int:
    """Return all parts that there ever were."""
    parts = 0
    for entry in range(length_of(state)):
        parts |= int(kind_of(state, limits, entry) == PART) << entry
    return parts


def current(state: int, limits: QueueLimits) -> int:
    """Return the parts that the log gives: what came, less what was merged, mutated or dropped."""
    parts = 0
    for entry in range(length_of(state)):
        kind = kind_of(state, limits, entry)
        if kind != LOSE:
            parts = (parts & ~sources_of(state, entry)) | int(kind == PART) << entry
    return parts


def lineages(state: int, limits: QueueLimits) -> int:
    """Return of every part what it covers, itself and whatever it was made of, as masks of as many bits as there is room."""
    found, size = 0, room(limits)
    for entry in range(length_of(state)):
        if kind_of(state, limits, entry) == PART:
            found |= (1 << entry | together(found, limits, sources_of(state, entry))) << (entry * size)
    return found


def covered_by(found: int, limits: QueueLimits, part: int) -> int:
    """Return what a part covers, of all `lineages`."""
    return get(found, part * room(limits), room(limits))


def together(found: int, limits: QueueLimits, parts: int) -> int:
    """Return what some parts cover, in one mask."""
    mask, part = 0, 0
    while parts:
        if parts & 1:
            mask |= covered_by(found, limits, part)
        parts >>= 1
        part += 1
    return mask


def dropped(state: int, limits: QueueLimits, found: int, entries: int) -> int:
    """Return what the drops among some entries remove, in every form."""
    gone = 0
    for entry in range(length_of(state)):
        if entries >> entry & 1 and kind_of(state, limits, entry) == DROP:
            gone |= together(found, limits, sources_of(state, entry))
    return gone


def lost(state: int, limits: QueueLimits) -> int:
    """Return the parts that were declared lost."""
    parts = 0
    for entry in range(length_of(state)):
        if kind_of(state, limits, entry) == LOSE:
            parts |= sources_of(state, entry)
    return parts


def losses_in(state: int, limits: QueueLimits) -> int:
    """Return the entries that declare something lost."""
    entries = 0
    for entry in range(length_of(state)):
        entries |= int(kind_of(state, limits, entry) == LOSE) << entry
    return entries


def inserts_in(state: int, limits: QueueLimits) -> int:
    """Return the parts that were made of nothing."""
    parts = 0
    for entry in range(length_of(state)):
        parts |= int(kind_of(state, limits, entry) == PART and sources_of(state, entry) == 0) << entry
    return parts


def restored(state: int, limits: QueueLimits, found: int, block: int) -> int:
    """Return the table as a replica would make it of what it has and of what it has still to execute."""
    parts, done = has_in(block, limits), done_in(block, limits)
    for entry in range(length_of(state)):
        kind, sources = kind_of(state, limits, entry), sources_of(state, entry)
        if done >> entry & 1 or kind == LOSE:
            continue
        if kind == DROP:
            parts &= ~together(found, limits, sources)
        elif not together(found, limits, parts) >> entry & 1 and sources & ~parts == 0:
            parts = (parts & ~sources) | 1 << entry
    return parts
