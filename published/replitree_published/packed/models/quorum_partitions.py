"""Quorum inserts into two partitions, with drops and merges: what reads go by, and the bugs of the field that were in it.

`last` says of each partition which record was the last one to reach its quorum.  A replica may answer a strict read when it
has the last record of every partition.  Whoever ends a quorum reads `last`, and writes it with its own record added; a drop
takes its partition out of it.  Each write proves by its version that nobody has written since the reading, else `last` is read
again.

Only whoever has executed the whole log may insert, and only one quorum is open at a time.  A merge is of all records of the
first partition; it is assigned when their quorums are over.

Fields: the log's length (3 bits), whether the last insert's quorum is open, whether a merge has taken what failed, which
records have failed (4), the last record of each partition plus one (3 each), whether somebody is ending a quorum, whether
`last` was written since it was read, what was read (3 each), of each entry what it is (2): an insert into the first or the
second partition, a drop of the first, a merge.  Then 9 bits of each replica: its records (4), entries that it has executed
(3), active, member.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import blocks_with, get, put, without_in_blocks
from replitree_published.packed.model import Invariant, PackedModel, PackedMutant, Words, label, numbers


class PartitionLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below."""

    replicas: int = 3
    records: int = 3
    quorum: int = 2
    mutant: int = 0


NO_MUTANT, MERGE_OF_OPEN, LAST_KEPT, STALE_COPY, LAST_OF_TABLE, BEHIND_INSERTS = range(6)

ACTIONS = (
    "Insert", "Drop", "Merge", "Execute", "UpdateQuorum", "FailedQuorum", "EndRead", "EndWrite", "BecomeInactive",
    "BecomeActive", "LegitimateTermination",
)  # fmt: skip
INSERT, DROP, MERGE, EXECUTE, UPDATE, FAIL, END_READ, END_WRITE, LEAVE, RETURN, TERMINATE = range(11)

OPEN, SPOILT, FAILED, LAST, ENDING, WRITTEN, COPY, KINDS, LOW, BLOCK = 8, 16, 5, 9, 1 << 15, 1 << 16, 17, 23, 31, 9
RECORDS, POINTER, ACTIVE, MEMBER = 15, 4, 1 << 7, 1 << 8
DROPPED_FIRST, MERGED = 2, 3


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def kind(state: int, entry: int) -> int:
    """Return what an entry is: the partition of an insert, a drop, or a merge."""
    return get(state, KINDS + 2 * entry, 2)


def live(state: int, before: int) -> int:
    """Return the records below an index that no drop below it has removed."""
    found = 0
    for entry in range(before):
        what = kind(state, entry)
        if what == DROPPED_FIRST:
            found &= ~of_first(state)
        elif what != MERGED:
            found |= 1 << entry
    return found


def of_first(state: int) -> int:
    """Return the records of the first partition."""
    found = 0
    for entry in range(state & 7):
        found |= int(kind(state, entry) == 0) << entry
    return found


def last_insert(state: int) -> int:
    """Return the index of the last insert, -1 if there is none."""
    found = -1
    for entry in range(state & 7):
        if kind(state, entry) < DROPPED_FIRST:
            found = entry
    return found


def members(state: int, limits: PartitionLimits, mask: int) -> int:
    """Return how many replicas have all these bits set."""
    return blocks_with(state, LOW, BLOCK, limits.replicas, mask)


def closed(state: int, limits: PartitionLimits) -> int:
    """Return the state without an open quorum, and nobody ends one."""
    state = put(state & ~(OPEN | ENDING | WRITTEN), COPY, 6, 0)
    return without_in_blocks(state, LOW, BLOCK, limits.replicas, MEMBER)


def appended(state: int, what: int) -> int:
    """Return the state with one more entry."""
    return put(state, KINDS + 2 * (state & 7), 2, what) + 1


def successors(state: int, limits: PartitionLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    at = by_client(state, limits, out, by, at)
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        out[at] = with_block(state, replica, block ^ ACTIVE)
        by[at] = label(LEAVE if block & ACTIVE else RETURN, replica, 0)
        at += 1
        if block & ACTIVE:
            at = inserted(state, limits, replica, block, out, by, at)
            at = at_entry(state, limits, replica, block, out, by, at)
    if state & OPEN and members(state, limits, MEMBER) >= limits.quorum:
        out[at], by[at] = ended(state, limits), label(END_WRITE if state & ENDING else END_READ, 0, 0)
        at += 1
    if state & 7 == limits.records and not state & OPEN:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


def by_client(state: int, limits: PartitionLimits, out: Words, by: Words, at: int) -> int:
    """Write a drop of the first partition, and a merge of all that it has."""
    length = state & 7
    if length == limits.records or not live(state, length) & of_first(state):
        return at
    dropped = state if limits.mutant == LAST_KEPT else put(state, LAST, 3, 0)
    out[at], by[at] = appended(dropped | (WRITTEN if state & ENDING else 0), DROPPED_FIRST), label(DROP, 0, 0)
    at += 1
    open_first = state & OPEN and kind(state, last_insert(state)) == 0
    if not open_first or limits.mutant == MERGE_OF_OPEN:
        out[at], by[at] = appended(state, MERGED), label(MERGE, 0, 0)
        at += 1
    return at


def inserted(state: int, limits: PartitionLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write an insert into each partition by a replica that has executed the whole log."""
    length = state & 7
    up_to_date = get(block, POINTER, 3) == length or limits.mutant == BEHIND_INSERTS
    if state & OPEN or length == limits.records or not up_to_date:
        return at
    for partition in range(2):
        new = with_block(appended(state, partition) | OPEN, replica, block | MEMBER | 1 << length)
        out[at], by[at] = new, label(INSERT, replica, partition)
        at += 1
    return at


def at_entry(state: int, limits: PartitionLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what an active replica does with the entry at its pointer; a merge waits for what it takes."""
    entry = get(block, POINTER, 3)
    if entry == state & 7:
        return at
    passed, what = block + (1 << POINTER), kind(state, entry)
    current = state & OPEN and entry == last_insert(state) and not block & MEMBER
    if current and not members(state, limits, MEMBER | ACTIVE):
        out[at], by[at] = failed(state, limits, entry), label(FAIL, replica, 0)
        return at + 1
    if what == DROPPED_FIRST:
        passed &= ~(of_first(state) & ((1 << entry) - 1))
    elif what == MERGED:
        if state & SPOILT:
            return at
    elif state >> (FAILED + entry) & 1:
        passed &= ~(1 << entry)
    else:
        passed |= 1 << entry | (MEMBER if current else 0)
    out[at], by[at] = with_block(state, replica, passed), label(UPDATE if current else EXECUTE, replica, 0)
    return at + 1


def failed(state: int, limits: PartitionLimits, record: int) -> int:
    """Return the state after a record was declared failed; a merge that has taken it can't be made any more."""
    for entry in range(record, state & 7):
        if kind(state, entry) == MERGED and kind(state, record) == 0:
            state |= SPOILT
    return closed(state | 1 << (FAILED + record), limits)


def ended(state: int, limits: PartitionLimits) -> int:
    """Return the state after a step of whoever ends the open quorum: it reads `last`, or writes what it read and its record."""
    if not state & ENDING:
        return put(state | ENDING, COPY, 6, get(state, LAST, 6))
    if state & WRITTEN and limits.mutant != STALE_COPY:
        return put(state & ~WRITTEN, COPY, 6, get(state, LAST, 6))
    record = last_insert(state)
    new = put(state, LAST, 6, get(state, COPY, 6))
    if live(state, state & 7) >> record & 1:
        new = put(new, LAST + 3 * kind(state, record), 3, record + 1)
    return closed(new, limits)


def broken(state: int, limits: PartitionLimits) -> int:
    """Return the invariants that don't hold."""
    there, bad = live(state, state & 7) & ~get(state, FAILED, 4), int(state & SPOILT != 0)
    needed, newest = 0, max(get(state, LAST, 3), get(state, LAST + 3, 3)) - 1
    for partition in range(2):
        last = get(state, LAST + 3 * partition, 3)
        if last:
            needed |= 1 << (last - 1)
    bad |= int(needed & ~there != 0) << 1
    expected = there & ~(1 << last_insert(state)) if state & OPEN else there
    for replica in range(limits.replicas):
        shown = block_of(state, replica) & RECORDS
        if limits.mutant == LAST_OF_TABLE and newest >= 0:
            needed = 1 << newest
            shown &= of_first(state) if kind(state, newest) == 0 else ~of_first(state)
        if needed and needed & ~shown == 0 and expected & ~shown:
            bad |= 4
    return bad


def seen(state: int, limits: PartitionLimits) -> int:
    """Return the probes that hold; see the model's names."""
    found, has_drop = int(get(state, LAST, 3) != 0 and get(state, LAST + 3, 3) != 0), 0
    for entry in range(state & 7):
        has_drop |= int(kind(state, entry) == DROPPED_FIRST)
        found |= int(kind(state, entry) == MERGED) << 1
    found |= has_drop << 2 | int(state & WRITTEN != 0) << 3
    return found | int(get(state, FAILED, 4) != 0) << 4


def initial(limits: PartitionLimits) -> int:
    """Return the first state: an empty log, everybody active."""
    return sum(ACTIVE << (LOW + replica * BLOCK) for replica in range(limits.replicas))


def describe(state: int, limits: PartitionLimits) -> str:
    """Say a state in words."""
    words = ("insert a", "insert b", "drop a", "merge a")
    entries = ", ".join(words[kind(state, entry)] for entry in range(state & 7))
    last = [get(state, LAST + 3 * partition, 3) - 1 for partition in range(2)]
    shown = " ".join(f"{name}={record}" for name, record in zip("ab", last, strict=True) if record >= 0)
    open_ = ", open" if state & OPEN else ""
    said = [f"log {entries or 'empty'}{open_}, failed {numbers(get(state, FAILED, 4))}, last {shown or 'nothing'}"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        marks = (" in the quorum" if block & MEMBER else "") + ("" if block & ACTIVE else " away")
        said.append(f"r{replica + 1} at {get(block, POINTER, 3)} has {numbers(block & RECORDS)}{marks}")
    return "; ".join(said)


NOT_SPOILT, GO_ON, NO_HOLE = "MergeOfCommitted", "ReadsGoOn", "NoHole"
MERGE_SEEN, DROP_SEEN, RACE_SEEN, BOTH_SEEN = "merged", "dropped", "dropped while a quorum ends", "both partitions"

MODEL = PackedModel(
    name="mended/quorum-partitions",
    description="quorum inserts into two partitions, drops and merges: what strict reads go by",
    limits=PartitionLimits(),
    most={"replicas": 3, "records": 4, "quorum": 3},
    actions=ACTIONS,
    invariants=(
        Invariant(NOT_SPOILT, "no merge has taken a record that failed", needs=MERGE_SEEN),
        Invariant(GO_ON, "the last records that reads ask for are in the table", needs=DROP_SEEN),
        Invariant(NO_HOLE, "who has the last records has everything that was committed", needs=BOTH_SEEN),
    ),
    asked=(NOT_SPOILT, GO_ON, NO_HOLE),
    probes=(BOTH_SEEN, MERGE_SEEN, DROP_SEEN, RACE_SEEN, "failed"),
    required=(RACE_SEEN, "failed"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("merge-of-open", NOT_SPOILT, 5, {"mutant": MERGE_OF_OPEN}),
        PackedMutant("last-kept-by-drop", GO_ON, 6, {"mutant": LAST_KEPT}),
        PackedMutant("stale-copy-written", GO_ON, 11, {"mutant": STALE_COPY}),
        PackedMutant("last-of-table", NO_HOLE, 10, {"mutant": LAST_OF_TABLE}),
        PackedMutant("behind-inserts", NO_HOLE, 9, {"mutant": BEHIND_INSERTS}),
    ),
)
