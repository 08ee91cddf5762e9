"""The model of quorum inserts and reads with its published defects mended, and with views that lag.

Mended: a failed record is skipped, and its part dropped; a read needs the committed parts, not as many; reads are counted as
they happen; observers stand for the history.  New: a replica reads ZooKeeper through a session, whose view may be older than
what is committed; who has taken an insert must look how its quorum ended before it answers, also after its session was lost.

Inserts are settled (ended or failed) in the order of the log, so a view is the number of settled inserts that it has.

Fields: the log's length (2 bits), which records have failed (3), whether the last one's quorum is open, reads so far (2), what
reads have shown to be wrong (5); then 15 bits of each replica: its parts (3), entries that it has executed (2), active, member
of the open quorum, its view (2), the insert that it has yet to answer (2), the last one that it has acknowledged (2), the last
one that was read there (2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from replitree_published.packed.bits import blocks_with, get, highest, ones, put, without_in_blocks
from replitree_published.packed.model import Invariant, PackedModel, PackedMutant, Words, label, numbers


class MendedQuorumLimits(NamedTuple):
    """How large the world is, and what is left out; `mutant` is one of the numbers below.

    Attributes
    ----------
    quorum, reads
        Replicas that must have an insert; reads at most.
    sync
        1: a read brings its view up to date first.
    sessions
        1: a replica reads through the session that it writes through, and so sees its own commits; 2: through another one.
    """

    replicas: int = 3
    records: int = 2
    quorum: int = 2
    reads: int = 2
    sync: int = 1
    sessions: int = 1
    mutant: int = 0


(
    NO_MUTANT, FAILED_NOT_SKIPPED, FAILED_KEPT, ACKED_UNSEEN, MAJORITY_OF_LIVING, VIEW_GOES_BACK, PARTS_COUNTED, LOG_LOSES_END,
) = range(8)  # fmt: skip

ACTIONS = (
    "QuorumInsert", "ExecuteLog", "SkipFailed", "UpdateQuorum", "EndQuorum", "FailedQuorum", "Answer", "BecomeInactive",
    "BecomeActive", "Observe", "Read", "LoseEnd", "LegitimateTermination",
)  # fmt: skip
INSERT, EXECUTE, SKIP, UPDATE, END, FAIL, ANSWER, LEAVE, RETURN, OBSERVE, READ, LOSE, TERMINATE = range(13)

FAILED, OPEN, READS, FLAGS, LOW, BLOCK = 2, 1 << 5, 6, 8, 13, 15
PARTS, POINTER, ACTIVE, MEMBER, VIEW, PENDING, ACKED, LAST = 7, 3, 1 << 5, 1 << 6, 7, 9, 11, 13
STALE, ELSEWHERE, SESSION, OWN, HOLE = range(5)


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def settled(state: int) -> int:
    """Return how many inserts have ended or failed."""
    return (state & 3) - int(state & OPEN != 0)


def committed(state: int, view: int) -> int:
    """Return the records that have reached their quorum, as a view of so many settled inserts has it."""
    return ((1 << view) - 1) & ~get(state, FAILED, 3)


def commit(state: int, limits: MendedQuorumLimits, replica: int, block: int) -> int:
    """Return the state after a commit of a replica: it has these bits, and sees what it has done."""
    if limits.sessions == 1:
        block = put(block, VIEW, 2, settled(state))
    return with_block(state, replica, block)


def without_members(state: int, limits: MendedQuorumLimits) -> int:
    """Return the state without an open quorum."""
    return without_in_blocks(state & ~OPEN, LOW, BLOCK, limits.replicas, MEMBER)


def members(state: int, limits: MendedQuorumLimits, mask: int) -> int:
    """Return how many replicas have all these bits set."""
    return blocks_with(state, LOW, BLOCK, limits.replicas, mask)


def successors(state: int, limits: MendedQuorumLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if block & ACTIVE:
            at = by_client(state, limits, replica, block, out, by, at)
            at = at_entry(state, limits, replica, block, out, by, at)
            at = in_session(state, limits, replica, block, out, by, at)
        else:
            at = returned(state, limits, replica, block, out, by, at)
    if not state & OPEN and state & 3 and limits.mutant == LOG_LOSES_END:
        out[at], by[at] = state - 1, label(LOSE, 0, 0)
        at += 1
    if not state & OPEN and state & 3 == limits.records and get(state, READS, 2) == limits.reads:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


def by_client(state: int, limits: MendedQuorumLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what clients ask an active replica for: an insert, a read."""
    length = state & 3
    if not state & OPEN and length < limits.records and not get(block, PENDING, 2):
        new = put(block | MEMBER | 1 << length, PENDING, 2, length + 1)
        out[at], by[at] = commit((state + 1) | OPEN, limits, replica, new), label(INSERT, replica, 0)
        at += 1
    view = settled(state) if limits.sync else get(block, VIEW, 2)
    needed = committed(state, view)
    complete = needed & ~block == 0
    if limits.mutant == PARTS_COUNTED:
        complete = ones(block & PARTS) >= ones(needed)
    if get(state, READS, 2) < limits.reads and needed & block and complete:
        out[at] = after_read(state, limits, replica, put(block, VIEW, 2, view))
        by[at] = label(READ, replica, 0)
        at += 1
    return at


def after_read(state: int, limits: MendedQuorumLimits, replica: int, block: int) -> int:
    """Return the state after a read, with what the read has shown to be wrong."""
    needed = committed(state, get(block, VIEW, 2))
    shown = highest(needed & block) + 1
    last = 0
    for other in range(limits.replicas):
        last = max(last, get(block_of(state, other), LAST, 2))
    flags = int(shown != highest(committed(state, settled(state))) + 1) << STALE
    flags |= int(shown < last) << ELSEWHERE
    flags |= int(shown < get(block, LAST, 2)) << SESSION
    flags |= int(shown < get(block, ACKED, 2)) << OWN
    flags |= int(needed & ~block & ((1 << shown) - 1) != 0) << HOLE
    state = (state | flags << FLAGS) + (1 << READS)
    return with_block(state, replica, put(block, LAST, 2, max(shown, get(block, LAST, 2))))


def at_entry(state: int, limits: MendedQuorumLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what an active replica does with the entry at its pointer: execute, skip, join its quorum, declare it failed."""
    entry, length = get(block, POINTER, 2), state & 3
    if entry >= length:
        return at
    passed = block + (1 << POINTER)
    if state >> (FAILED + entry) & 1:
        if limits.mutant == FAILED_NOT_SKIPPED:
            return at
        out[at], by[at] = commit(state, limits, replica, dropped(state, limits, passed)), label(SKIP, replica, 0)
    elif not state & OPEN or entry + 1 < length or block & MEMBER:
        out[at], by[at] = commit(state, limits, replica, passed | 1 << entry), label(EXECUTE, replica, 0)
    elif members(state, limits, MEMBER | ACTIVE):
        out[at], by[at] = commit(state, limits, replica, passed | 1 << entry | MEMBER), label(UPDATE, replica, 0)
    else:
        failed = without_members(state | 1 << (FAILED + entry), limits)
        out[at], by[at] = commit(failed, limits, replica, block), label(FAIL, replica, 0)
    return at + 1


def dropped(state: int, limits: MendedQuorumLimits, block: int) -> int:
    """Return a replica's bits without the parts of failed records."""
    return block if limits.mutant == FAILED_KEPT else block & ~get(state, FAILED, 3)


def in_session(state: int, limits: MendedQuorumLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what else an active replica does: end the open quorum, answer, see more, lose its session."""
    needed = limits.quorum
    if limits.mutant == MAJORITY_OF_LIVING:
        needed = members(state, limits, ACTIVE) // 2 + 1
    if state & OPEN and block & MEMBER and members(state, limits, MEMBER) >= needed:
        ended = without_members(state, limits)
        out[at] = commit(ended, limits, replica, block_of(ended, replica))
        by[at] = label(END, replica, 0)
        at += 1
    pending = get(block, PENDING, 2)
    if pending and not (state & OPEN and pending == state & 3):
        out[at], by[at] = (
            commit(state, limits, replica, answered(state, limits, block, pending)),
            label(ANSWER, replica, 0),
        )
        at += 1
    view = get(block, VIEW, 2)
    if view < settled(state):
        out[at], by[at] = with_block(state, replica, put(block, VIEW, 2, view + 1)), label(OBSERVE, replica, 0)
        at += 1
    out[at], by[at] = with_block(state, replica, block & ~ACTIVE), label(LEAVE, replica, 0)
    return at + 1


def answered(state: int, limits: MendedQuorumLimits, block: int, pending: int) -> int:
    """Return a replica's bits after it has told the client how the quorum ended: it looks whether the insert has failed."""
    block = put(block, PENDING, 2, 0)
    if state >> (FAILED + pending - 1) & 1 and limits.mutant != ACKED_UNSEEN:
        return block
    return put(block, ACKED, 2, pending)


def returned(state: int, limits: MendedQuorumLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write the return of a replica: in a new session it drops what has failed meanwhile; its view does not go back."""
    new = dropped(state, limits, block | ACTIVE)
    out[at], by[at] = with_block(state, replica, new), label(RETURN, replica, 0)
    at += 1
    if limits.mutant == VIEW_GOES_BACK and get(block, VIEW, 2):
        out[at] = with_block(state, replica, put(new, VIEW, 2, get(block, VIEW, 2) - 1))
        by[at] = label(RETURN, replica, 1)
        at += 1
    return at


def broken(state: int, limits: MendedQuorumLimits) -> int:
    """Return the invariants that don't hold."""
    good, failed, found = committed(state, settled(state)), get(state, FAILED, 3), get(state, FLAGS, 5) << 3
    for record in range(state & 3):
        if good >> record & 1 and members(state, limits, 1 << record) < limits.quorum:
            found |= 1
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        acked, past = get(block, ACKED, 2), (1 << get(block, POINTER, 2)) - 1
        if acked and not good >> (acked - 1) & 1:
            found |= 2
        if block & ACTIVE and block & PARTS & failed & past:
            found |= 4
    return found


def seen(state: int, limits: MendedQuorumLimits) -> int:
    """Return the probes that hold; see the model's names."""
    good, failed = committed(state, settled(state)), get(state, FAILED, 3)
    past, acked, lags, refused = int(failed != 0), 0, 0, 0
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        past &= int(get(block, POINTER, 2) == state & 3)
        acked |= int(get(block, ACKED, 2) != 0)
        lags |= int(get(block, VIEW, 2) < settled(state) and get(block, LAST, 2) != 0)
        pending = get(block, PENDING, 2)
        refused |= int(pending > 0 and failed >> max(pending - 1, 0) & 1)
    found = int(good != 0) | acked << 1 | int(get(state, READS, 2) != 0) << 2 | int(get(state, READS, 2) > 1) << 3
    return found | int(failed != 0) << 4 | past << 5 | lags << 6 | refused << 7


def initial(limits: MendedQuorumLimits) -> int:
    """Return the first state: an empty log, everybody active."""
    return sum(ACTIVE << (LOW + replica * BLOCK) for replica in range(limits.replicas))


def describe(state: int, limits: MendedQuorumLimits) -> str:
    """Say a state in words; records are counted from 1."""
    said = [
        f"log of {state & 3}{', the last open' if state & OPEN else ''}, failed {numbers(get(state, FAILED, 3) << 1)}"
    ]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        marks = (" in the quorum" if block & MEMBER else "") + ("" if block & ACTIVE else " away")
        told = f" acked {get(block, ACKED, 2)}" if get(block, ACKED, 2) else ""
        told += f" read {get(block, LAST, 2)}" if get(block, LAST, 2) else ""
        parts = numbers((block & PARTS) << 1)
        said.append(f"r{replica + 1} at {get(block, POINTER, 2)} has {parts} sees {get(block, VIEW, 2)}{marks}{told}")
    return "; ".join(said)


SELECT, ACK, DETACHED, NO_STALE, GLOBAL, PER_SESSION, READ_OWN, NO_HOLE = (
    "QuorumSelect", "Acknowledged", "Detached", "NoStale", "MonotonicRead", "MonotonicSession", "ReadYourWrites", "NoHole",
)  # fmt: skip
ALWAYS = (SELECT, ACK, DETACHED, PER_SESSION, READ_OWN, NO_HOLE)
PAST_FAILURE = "everybody past a failed record"

MODEL = PackedModel(
    name="mended/quorum",
    description="quorum inserts and reads, the published defects mended; a read brings its view up to date first",
    limits=MendedQuorumLimits(),
    most={"replicas": 3, "records": 3, "quorum": 3, "reads": 3, "sync": 1, "sessions": 2},
    actions=ACTIONS,
    invariants=(
        Invariant(SELECT, "a record that is neither open nor failed is on a quorum of replicas", needs="committed"),
        Invariant(ACK, "what was acknowledged is in the log and has not failed", needs="acknowledged"),
        Invariant(DETACHED, "who is past a failed record does not have its part", needs="failed"),
        Invariant(NO_STALE, "a read returns the last record that was committed before it", needs="read"),
        Invariant(GLOBAL, "who reads later, wherever, reads the same or a later record", needs="two reads"),
        Invariant(
            PER_SESSION, "who reads later at the same replica reads the same or a later record", needs="two reads"
        ),
        Invariant(READ_OWN, "a replica's reads have what it has acknowledged", needs="read"),
        Invariant(NO_HOLE, "a read that shows a record shows all that were committed before it", needs="two reads"),
    ),
    asked=(*ALWAYS, NO_STALE, GLOBAL),
    probes=(
        "committed",
        "acknowledged",
        "read",
        "two reads",
        "failed",
        PAST_FAILURE,
        "a reader lags",
        "a refused insert waits",
    ),
    required=(PAST_FAILURE, "a refused insert waits"),
    never=("LoseEnd",),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("read-without-sync", NO_STALE, 8, {"sync": 0}, (NO_STALE,)),
        PackedMutant("failed-not-skipped", "PROBES", 0, {"mutant": FAILED_NOT_SKIPPED}),
        PackedMutant("failed-kept", DETACHED, 6, {"mutant": FAILED_KEPT}),
        PackedMutant("acknowledged-unseen", ACK, 6, {"mutant": ACKED_UNSEEN}),
        PackedMutant("majority-of-the-living", SELECT, 5, {"mutant": MAJORITY_OF_LIVING}),
        PackedMutant("parts-counted", NO_HOLE, 10, {"mutant": PARTS_COUNTED, "records": 3, "reads": 1}, (NO_HOLE,)),
        PackedMutant("log-loses-its-end", ACK, 6, {"mutant": LOG_LOSES_END}),
    ),
)

LAGGING = replace(
    MODEL,
    name="mended/quorum-lagging",
    description="the same, and reads trust the view of their session: stale, but monotonic at each replica",
    limits=MendedQuorumLimits(sync=0),
    asked=ALWAYS,
    mutants=(
        PackedMutant("stale-reads", NO_STALE, 8, {}, (NO_STALE,)),
        PackedMutant("reads-elsewhere", GLOBAL, 9, {}, (GLOBAL,)),
        PackedMutant("two-sessions", READ_OWN, 11, {"sessions": 2}),
        PackedMutant("two-sessions-stale", NO_STALE, 9, {"sessions": 2}, (NO_STALE,)),
        PackedMutant("two-sessions-elsewhere", GLOBAL, 12, {"sessions": 2}, (GLOBAL,)),
        PackedMutant("view-goes-back", PER_SESSION, 11, {"mutant": VIEW_GOES_BACK}),
        PackedMutant(
            "view-goes-back-two-sessions", PER_SESSION, 13, {"mutant": VIEW_GOES_BACK, "sessions": 2}, (PER_SESSION,)
        ),
    ),
)
