"""The published model of quorum inserts and reads ("ClickHouseQuorum"): one open quorum at a time, reads.

A record's id is its place in the log.  Starts, ends and failures come in the order of the log, so the published history is
given by the log but for its reads: of each read the state has what it saw, and how many events of inserts came before it.

Fields: the log's length (3 bits), which records have failed (4), whether the last one's quorum is open, reads so far (2),
three reads of 6 bits (events before it 4, what it saw 2), which records were acknowledged (4); then 9 bits of each replica: its
parts (4), entries that it has executed (3), active, member of the open quorum.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import blocks_with, get, highest, ones, put, without_in_blocks
from replitree_published.packed.model import (
    DROPPED,
    Eventually,
    Invariant,
    PackedModel,
    PackedMutant,
    Words,
    label,
    numbers,
)


class QuorumLimits(NamedTuple):
    """How large the world is, and what a read does; `mutant` is one of the numbers below.

    Attributes
    ----------
    quorum
        Replicas that must have an insert.
    history, reads
        There is no read any more when this many *different* ones were made; reads that are kept at most.
    weak
        1: a read looks at its own parts only; 0: it must have everything that is committed.
    frontier
        1: nothing happens after the last read that is kept, so that states just outside a bound of one read less are counted;
        0: everything but one more read does.
    """

    replicas: int = 3
    records: int = 2
    quorum: int = 2
    history: int = 1
    reads: int = 1
    weak: int = 0
    frontier: int = 0
    mutant: int = 0


NO_MUTANT, QUORUM_ENDS_EARLY, READS_OPEN, READS_FAILED, FAILED_ALTHOUGH_ENDED = range(5)

ACTIONS = (
    "QuorumInsert", "ExecuteLog", "UpdateQuorum", "EndQuorum", "FailedQuorum", "BecomeInactive", "BecomeActive", "QuorumRead",
    "LegitimateTermination",
)  # fmt: skip
INSERT, EXECUTE, UPDATE, END, FAIL, LEAVE, RETURN, READ, TERMINATE = range(9)

FAILED, OPEN, READS, FIRST_READ, READ_BITS, ACKED, LOW, BLOCK = 3, 1 << 7, 8, 10, 6, 28, 32, 9
PARTS, POINTER, ACTIVE, MEMBER = 15, 4, 1 << 7, 1 << 8


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def settled(state: int) -> int:
    """Return which records are neither open nor failed."""
    length = state & 7
    known = (1 << length) - 1
    if state & OPEN:
        known >>= 1
    return known & ~get(state, FAILED, 4)


def without_members(state: int, limits: QuorumLimits) -> int:
    """Return the state without an open quorum."""
    return without_in_blocks(state & ~OPEN, LOW, BLOCK, limits.replicas, MEMBER)


def members(state: int, limits: QuorumLimits, mask: int) -> int:
    """Return how many replicas have all these bits set."""
    return blocks_with(state, LOW, BLOCK, limits.replicas, mask)


def different_reads(state: int) -> int:
    """Return how many different records were read."""
    count, seen_ids = get(state, READS, 2), 0
    for number in range(count):
        seen_ids |= 1 << get(state, FIRST_READ + number * READ_BITS + 4, 2)
    return ones(seen_ids)


def successors(state: int, limits: QuorumLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    if limits.frontier and get(state, READS, 2) == limits.reads:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        return at + 1
    at = read_anywhere(state, limits, out, by, inserted(state, limits, out, by, at))
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if block & ACTIVE:
            at = of_replica(state, limits, replica, block, out, by, at)
        else:
            out[at] = with_block(state, replica, block | ACTIVE)
            by[at] = label(RETURN, replica, 0)
            at += 1
    if not state & OPEN and state & 7 == limits.records and different_reads(state) >= limits.history:
        out[at] = state
        by[at] = label(TERMINATE, 0, 0)
        at += 1
    return at


def inserted(state: int, limits: QuorumLimits, out: Words, by: Words, at: int) -> int:
    """Write an insert at every active replica, unless a quorum is open."""
    length = state & 7
    if state & OPEN or length == limits.records:
        return at
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if block & ACTIVE:
            out[at] = with_block((state + 1) | OPEN, replica, block | MEMBER | 1 << length)
            by[at] = label(INSERT, replica, 0)
            at += 1
    return at


def read_anywhere(state: int, limits: QuorumLimits, out: Words, by: Words, at: int) -> int:
    """Write a read of every active replica that may answer."""
    if different_reads(state) >= limits.history:
        return at
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        shown = readable(state, limits, block)
        if block & ACTIVE and shown and (limits.weak or ones(shown) == ones(settled(state))):
            out[at] = after_read(state, limits, highest(shown))
            by[at] = label(READ, replica, 0)
            at += 1
    return at


def of_replica(state: int, limits: QuorumLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what an active replica does: execute, join the open quorum, end it, leave, declare it failed."""
    entry, length = (block >> POINTER) & 7, state & 7
    current = state & OPEN and entry + 1 == length and not block & MEMBER
    source = members(state, limits, MEMBER | ACTIVE) > 0
    judged = current and not source
    if limits.mutant == FAILED_ALTHOUGH_ENDED and entry + 1 == length and not state & OPEN:
        judged = settled(state) >> entry & 1 and not members(state, limits, ACTIVE | 1 << entry)
    fetched = (block | 1 << entry) + (1 << POINTER)
    if entry < length and not current and not state >> (FAILED + entry) & 1:
        out[at], by[at] = with_block(state, replica, fetched), label(EXECUTE, replica, 0)
        at += 1
    if current and source:
        out[at], by[at] = with_block(state, replica, fetched | MEMBER), label(UPDATE, replica, 0)
        at += 1
    if (
        state & OPEN
        and block & MEMBER
        and members(state, limits, MEMBER) >= limits.quorum - int(limits.mutant == QUORUM_ENDS_EARLY)
    ):
        acknowledged = 1 << (ACKED + length - 1)
        out[at], by[at] = without_members(state | acknowledged, limits), label(END, replica, 0)
        at += 1
    out[at], by[at] = with_block(state, replica, block & ~ACTIVE), label(LEAVE, replica, 0)
    at += 1
    if judged:
        out[at] = without_members(state | 1 << (FAILED + entry), limits)
        by[at] = label(FAIL, replica, 0)
        at += 1
    return at


def readable(state: int, limits: QuorumLimits, block: int) -> int:
    """Return the parts of a replica that a read may show."""
    shown = block & PARTS
    if state & OPEN and limits.mutant != READS_OPEN:
        shown &= ~(1 << ((state & 7) - 1))
    if limits.mutant != READS_FAILED:
        shown &= ~get(state, FAILED, 4)
    return shown


def after_read(state: int, limits: QuorumLimits, record: int) -> int:
    """Return the state with one more read in its history, `DROPPED` when there are enough."""
    count, events = get(state, READS, 2), 2 * (state & 7) - int(state & OPEN != 0)
    if count == limits.reads:
        return DROPPED
    state = put(state, READS, 2, count + 1)
    return state | (events | record << 4) << (FIRST_READ + count * READ_BITS)


def broken(state: int, limits: QuorumLimits) -> int:
    """Return the invariants that don't hold."""
    good, found = settled(state), 0
    for record in range(state & 7):
        if good >> record & 1 and members(state, limits, 1 << record) < limits.quorum:
            found |= 1
    before = -1
    for number in range(get(state, READS, 2)):
        read = get(state, FIRST_READ + number * READ_BITS, READ_BITS)
        events, record = read & 15, read >> 4
        found |= int(good >> record & 1 and events < 2 * record + 2) << 1
        found |= int(record < before) << 2
        found |= int(highest(good & ((1 << events // 2) - 1)) != record) << 3
        found |= int(state >> (FAILED + record) & 1) << 4
        before = record
    found |= int(get(state, FAILED, 4) != 0) << 5
    held = 0
    for replica in range(limits.replicas):
        held |= block_of(state, replica) & PARTS
    return found | int(get(state, ACKED, 4) & ~(good & held) != 0) << 6


def seen(state: int, limits: QuorumLimits) -> int:
    """Return the probes that hold; see the model's names."""
    failed, good = get(state, FAILED, 4), settled(state)
    after_failure = good & -(failed & -failed) if failed else 0
    found = int(good != 0) | int(get(state, READS, 2) != 0) << 1 | int(different_reads(state) > 1) << 2
    return found | int(failed != 0) << 3 | int(after_failure != 0) << 4 | int(ones(after_failure) > 1) << 5


def initial(limits: QuorumLimits) -> int:
    """Return the first state: an empty log, everybody active."""
    return sum(ACTIVE << (LOW + replica * BLOCK) for replica in range(limits.replicas))


def every_start_has_an_end(state: int, limits: QuorumLimits) -> bool:
    """Tell what the published property says, in which a slip has put End where Failed was meant."""
    return settled(state) == (1 << (state & 7)) - 1


def describe(state: int, limits: QuorumLimits) -> str:
    """Say a state in words."""
    said = [f"log of {state & 7}{', the last open' if state & OPEN else ''}, failed {numbers(get(state, FAILED, 4))}"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        marks = (" in the quorum" if block & MEMBER else "") + ("" if block & ACTIVE else " away")
        said.append(f"r{replica + 1} at {(block >> POINTER) & 7} has {numbers(block & PARTS)}{marks}")
    reads = [get(state, FIRST_READ + number * READ_BITS + 4, 2) for number in range(get(state, READS, 2))]
    return "; ".join([*said, f"read {', '.join(map(str, reads)) or 'nothing'}"])


SELECT, DIRTY, MONOTONIC, STALE, READ_FAILED, FAILURE, DURABLE = (
    "QuorumSelect", "ReadAfterWrite", "MonotonicRead", "NoStale", "NoReadOfFailed", "NotFailedParts", "AckedDurable",
)  # fmt: skip

WEAK = {"weak": 1, "history": 2, "reads": 2}

MODEL = PackedModel(
    name="published/quorum",
    description="the published model of quorum inserts, and of reads that need everything committed",
    limits=QuorumLimits(),
    most={"replicas": 3, "records": 4, "quorum": 3, "history": 2, "reads": 3, "weak": 1, "frontier": 1},
    actions=ACTIONS,
    invariants=(
        Invariant(SELECT, "a record that is neither open nor failed is on a quorum of replicas", needs="committed"),
        Invariant(DIRTY, "what was read had been acknowledged before, if it ever is", needs="read"),
        Invariant(MONOTONIC, "who reads later reads the same or a later record", needs="two reads"),
        Invariant(STALE, "a read returns the last record that was acknowledged before it", needs="read"),
        Invariant(READ_FAILED, "no record was read that has failed", needs="read"),
        Invariant(FAILURE, "no quorum ever fails (a question: the model says that some do)"),
        Invariant(DURABLE, "what was acknowledged has not failed, and some replica has it", needs="committed"),
    ),
    asked=(SELECT, DIRTY, MONOTONIC, STALE, READ_FAILED, DURABLE, "EndOrFailedAfterStartWrite"),
    probes=("committed", "read", "two reads", "failed", "committed after a failure", "two committed after a failure"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    eventually=(Eventually("EndOrFailedAfterStartWrite", every_start_has_an_end, ()),),
    mutants=(
        PackedMutant("weak-read", STALE, 8, WEAK),
        PackedMutant("weak-read-seen-by-order", MONOTONIC, 9, {**WEAK, "reads": 3}, (MONOTONIC,)),
        PackedMutant("quorum-ends-early", SELECT, 3, {"mutant": QUORUM_ENDS_EARLY}),
        PackedMutant("reads-open-quorum", DIRTY, 5, {"mutant": READS_OPEN, "weak": 1}, (DIRTY,)),
        PackedMutant("reads-failed", READ_FAILED, 6, {"mutant": READS_FAILED, "weak": 1}, (READ_FAILED,)),
        PackedMutant("no-quorum-fails", FAILURE, 4, {}, (FAILURE,)),
        PackedMutant("failed-although-ended", DURABLE, 7, {"mutant": FAILED_ALTHOUGH_ENDED}, (DURABLE,)),
    ),
)
