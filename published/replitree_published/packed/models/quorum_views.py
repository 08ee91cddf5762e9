"""The published model of quorum inserts with reads as they are: through a session, whose view of ZooKeeper may lag.

Only reads differ from `quorum`.  A replica's view is the number of commits (ends of quorums) that it has seen; a read needs
every part that the view has, and brings the view up to date first where `sync` says so.  Of each read the state has which
replica made it, what it saw, and how many events of inserts came before it.

Fields: the log's length (2 bits), which records have failed (3), whether the last one's quorum is open, reads so far (2), two
reads of 5 bits (events before it 3, what it saw 2); then 11 bits of each replica: its parts (3), entries that it has executed
(2), active, member of the open quorum, its view (2), which of the reads it has made (2).
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import blocks_with, get, highest, ones, put, without_in_blocks
from replitree_published.packed.model import DROPPED, Invariant, PackedModel, PackedMutant, Words, label, numbers


class ViewLimits(NamedTuple):
    """How large the world is; `sync`: 1, a read brings its view up to date first; `mutant` is one of the numbers below."""

    replicas: int = 3
    records: int = 2
    quorum: int = 2
    reads: int = 2
    sync: int = 1
    mutant: int = 0


NO_MUTANT, VIEW_GOES_BACK, QUORUM_ENDS_EARLY = range(3)

ACTIONS = (
    "QuorumInsert", "ExecuteLog", "UpdateQuorum", "EndQuorum", "FailedQuorum", "BecomeInactive", "BecomeActive", "Observe",
    "Read", "Reconnect",
)  # fmt: skip
INSERT, EXECUTE, UPDATE, END, FAIL, LEAVE, RETURN, OBSERVE, READ, RECONNECT = range(10)

FAILED, OPEN, READS, FIRST_READ, READ_BITS, LOW, BLOCK = 2, 1 << 5, 6, 8, 5, 18, 11
PARTS, POINTER, ACTIVE, MEMBER, VIEW, MADE = 7, 3, 1 << 5, 1 << 6, 7, 9


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def members(state: int, limits: ViewLimits, mask: int) -> int:
    """Return how many replicas have all these bits set."""
    return blocks_with(state, LOW, BLOCK, limits.replicas, mask)


def committed(state: int) -> int:
    """Return which records have reached their quorum."""
    known = (1 << (state & 3)) - 1
    return (known >> 1 if state & OPEN else known) & ~get(state, FAILED, 3)


def first_ones(mask: int, count: int) -> int:
    """Return the lowest bits that are set, so many of them."""
    while ones(mask) > count:
        mask &= ~(1 << highest(mask))
    return mask


def successors(state: int, limits: ViewLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if block & ACTIVE:
            at = by_client(state, limits, replica, block, out, by, at)
            at = at_entry(state, limits, replica, block, out, by, at)
        out[at] = with_block(state, replica, block ^ ACTIVE)
        by[at] = label(LEAVE if block & ACTIVE else RETURN, replica, 0)
        at += 1
        at = in_session(state, limits, replica, block, out, by, at)
    return at


def by_client(state: int, limits: ViewLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what clients ask an active replica for: an insert, a read."""
    length = state & 3
    if not state & OPEN and length < limits.records:
        out[at], by[at] = (
            with_block((state + 1) | OPEN, replica, block | MEMBER | 1 << length),
            label(INSERT, replica, 0),
        )
        at += 1
    view = ones(committed(state)) if limits.sync else get(block, VIEW, 2)
    needed = first_ones(committed(state), view)
    if needed and needed & ~block == 0:
        out[at], by[at] = after_read(state, limits, replica, put(block, VIEW, 2, view)), label(READ, replica, 0)
        at += 1
    return at


def after_read(state: int, limits: ViewLimits, replica: int, block: int) -> int:
    """Return the state with one more read, of the last record that the view has; `DROPPED` when there are enough."""
    count, events = get(state, READS, 2), 2 * (state & 3) - int(state & OPEN != 0)
    if count == limits.reads:
        return DROPPED
    shown = highest(first_ones(committed(state), get(block, VIEW, 2)))
    state = with_block(state, replica, block | 1 << (MADE + count))
    return put(state, READS, 2, count + 1) | (events | shown << 3) << (FIRST_READ + count * READ_BITS)


def at_entry(state: int, limits: ViewLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what an active replica does with the entry at its pointer, and the end of the open quorum."""
    entry, length = get(block, POINTER, 2), state & 3
    current = state & OPEN and entry + 1 == length and not block & MEMBER
    fetched = (block | 1 << entry) + (1 << POINTER)
    if current and members(state, limits, MEMBER | ACTIVE):
        out[at], by[at] = with_block(state, replica, fetched | MEMBER), label(UPDATE, replica, 0)
        at += 1
    elif current:
        out[at] = without_members(state | 1 << (FAILED + entry), limits)
        by[at] = label(FAIL, replica, 0)
        at += 1
    elif entry < length and not state >> (FAILED + entry) & 1:
        out[at], by[at] = with_block(state, replica, fetched), label(EXECUTE, replica, 0)
        at += 1
    needed = limits.quorum - int(limits.mutant == QUORUM_ENDS_EARLY)
    if state & OPEN and block & MEMBER and members(state, limits, MEMBER) >= needed:
        out[at], by[at] = without_members(state, limits), label(END, replica, 0)
        at += 1
    return at


def without_members(state: int, limits: ViewLimits) -> int:
    """Return the state without an open quorum."""
    return without_in_blocks(state & ~OPEN, LOW, BLOCK, limits.replicas, MEMBER)


def in_session(state: int, limits: ViewLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what becomes of a view: it has one commit more, or (a mutant) one less: the session went to another server."""
    view = get(block, VIEW, 2)
    if view < ones(committed(state)):
        out[at], by[at] = with_block(state, replica, put(block, VIEW, 2, view + 1)), label(OBSERVE, replica, 0)
        at += 1
    if view and limits.mutant == VIEW_GOES_BACK:
        out[at], by[at] = with_block(state, replica, put(block, VIEW, 2, view - 1)), label(RECONNECT, replica, 0)
        at += 1
    return at


def broken(state: int, limits: ViewLimits) -> int:
    """Return the invariants that don't hold."""
    good, found, before = committed(state), 0, -1
    for record in range(state & 3):
        found |= int(good >> record & 1 and members(state, limits, 1 << record) < limits.quorum) << 3
    for number in range(get(state, READS, 2)):
        read = get(state, FIRST_READ + number * READ_BITS, READ_BITS)
        record = read >> 3
        found |= int(highest(good & ((1 << ((read & 7) >> 1)) - 1)) != record)
        found |= int(record < before) << 1
        if number and record < before and members(state, limits, 3 << (MADE + number - 1)):
            found |= 4
        before = record
    return found


def seen(state: int, limits: ViewLimits) -> int:
    """Return the probes that hold; see the model's names."""
    lags = 0
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        lags |= int(get(block, VIEW, 2) < ones(committed(state)) and block >> MADE != 0)
    reads = get(state, READS, 2)
    return int(reads != 0) | int(reads > 1) << 1 | lags << 2 | int(committed(state) != 0) << 3


def initial(limits: ViewLimits) -> int:
    """Return the first state: an empty log, everybody active."""
    return sum(ACTIVE << (LOW + replica * BLOCK) for replica in range(limits.replicas))


def describe(state: int, limits: ViewLimits) -> str:
    """Say a state in words."""
    said = [f"log of {state & 3}{', the last open' if state & OPEN else ''}, failed {numbers(get(state, FAILED, 3))}"]
    shown = [get(state, FIRST_READ + number * READ_BITS + 3, 2) for number in range(get(state, READS, 2))]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        marks = (" in the quorum" if block & MEMBER else "") + ("" if block & ACTIVE else " away")
        reads = "".join(f" read {record}" for number, record in enumerate(shown) if block >> (MADE + number) & 1)
        parts, view = numbers(block & PARTS), get(block, VIEW, 2)
        said.append(f"r{replica + 1} at {get(block, POINTER, 2)} has {parts} sees {view}{marks}{reads}")
    return "; ".join(said)


STALE, GLOBAL, PER_REPLICA, SELECT = "NoStale", "MonotonicRead", "MonotonicReplica", "QuorumSelect"
WEAK = {"sync": 0}

MODEL = PackedModel(
    name="published/quorum-views",
    description="the published model of quorum inserts, its reads through views that lag unless they sync",
    limits=ViewLimits(),
    most={"replicas": 3, "records": 3, "quorum": 3, "reads": 2, "sync": 1},
    actions=ACTIONS,
    invariants=(
        Invariant(STALE, "a read returns the last record that was committed before it", needs="read"),
        Invariant(GLOBAL, "who reads later reads the same or a later record", needs="two reads"),
        Invariant(
            PER_REPLICA, "who reads later at the same replica reads the same or a later record", needs="two reads"
        ),
        Invariant(SELECT, "a record that is neither open nor failed is on a quorum of replicas", needs="committed"),
    ),
    asked=(STALE, GLOBAL, PER_REPLICA, SELECT),
    probes=("read", "two reads", "a reader lags", "committed"),
    never=("Reconnect",),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("stale-reads", STALE, 9, WEAK, (STALE,)),
        PackedMutant("reads-elsewhere", GLOBAL, 12, WEAK, (GLOBAL,)),
        PackedMutant("view-goes-back", PER_REPLICA, 12, {**WEAK, "mutant": VIEW_GOES_BACK}, (PER_REPLICA,)),
        PackedMutant("quorum-ends-early", SELECT, 3, {"mutant": QUORUM_ENDS_EARLY}, (SELECT,)),
    ),
)
