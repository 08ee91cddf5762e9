"""Quorum inserts as queues execute them: any number open at once, counted in any order; reads stand at a position of the line.

`replitree_published.bridge` holds our procedures to this.  An insert is open until so many replicas count that have it, or
somebody gives it up; one without a quorum is settled by itself.  Whoever has it may count, once.  A replica gets it at
any time, also when it has failed, and then drops it.  A client hears that it is in the table when it is settled, and
that it failed when it has.

The ends of inserts are in one line.  A read at a position shows what was settled below, and a replica can do it that has all of
that.  Who asks for a read wants what was acknowledged by then.

Sessions are not here: whoever is away does nothing, and nobody goes by who is there.

Fields: of each insert how many replicas it needs (3 bits, 0: there is none), whether it was settled or has failed, its place
in the line of the ends (2), whether its client has heard that it is in the table or that it failed (9 bits of each of three);
what reads have shown (3), what the client of the last read had asked for (3), what that showed (3), whether it is done; then 6
bits of each replica: the inserts that it has (3), those for which it counts (3).
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import blocks_with, get, put, without_in_blocks
from replitree_published.packed.model import Invariant, PackedModel, PackedMutant, Words, label, numbers


class QuorumQueueLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below.

    Attributes
    ----------
    quorum
        How many replicas an insert may need at most.
    """

    replicas: int = 3
    records: int = 2
    quorum: int = 3
    mutant: int = 0


(
    NO_MUTANT, COUNTED_UNHELD, SETTLED_EARLY, ANSWERED_EARLY, SHOWN_OPEN, SHOWN_STALE, FAILED_LATE,
) = range(7)  # fmt: skip

ACTIONS = (
    "Insert", "Execute", "Count", "Settle", "Fail", "Drop", "Acknowledge", "Refuse", "Ask", "Read",
    "LegitimateTermination",
)  # fmt: skip
INSERT, EXECUTE, COUNT, SETTLE, FAIL, DROP, ACKNOWLEDGE, REFUSE, ASK, READ, TERMINATE = range(11)

RECORDS_MAX, RECORD, NEEDED_MAX = 3, 9, 7
NEED, SETTLED, FAILED, RANK, ACKED, REFUSED = 0, 3, 4, 5, 7, 8
SHOWN, ASKED, LAST, DONE, LOW, BLOCK = 27, 30, 33, 1 << 36, 37, 6
HAS, COUNTS = 0, 3


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def need(state: int, record: int) -> int:
    """Return how many replicas an insert needs; 0: there is none."""
    return get(state, record * RECORD + NEED, 3)


def is_(state: int, record: int, bit: int) -> int:
    """Return one of the bits of an insert."""
    return state >> (record * RECORD + bit) & 1


def marked(state: int, record: int, bit: int) -> int:
    """Return the state with one of the bits of an insert set."""
    return state | 1 << (record * RECORD + bit)


def mask_of(state: int, bit: int) -> int:
    """Return the inserts that have a bit set."""
    found = 0
    for record in range(RECORDS_MAX):
        found |= is_(state, record, bit) << record
    return found


def length_of(state: int) -> int:
    """Return how many inserts there are."""
    length = 0
    for record in range(RECORDS_MAX):
        length += int(need(state, record) != 0)
    return length


def ends(state: int) -> int:
    """Return how many inserts have ended."""
    count = 0
    for record in range(RECORDS_MAX):
        count += is_(state, record, SETTLED) | is_(state, record, FAILED)
    return count


def ended(state: int, record: int, bit: int) -> int:
    """Return the state in which an insert has ended: it is the last one in the line."""
    return marked(put(state, record * RECORD + RANK, 2, ends(state)), record, bit)


def settled_below(state: int, position: int) -> int:
    """Return the inserts that a read shows which stands above so many ends."""
    found = 0
    for record in range(RECORDS_MAX):
        below = get(state, record * RECORD + RANK, 2) < position
        found |= int(below and is_(state, record, SETTLED) != 0) << record
    return found


def members(state: int, limits: QuorumQueueLimits, record: int, kind: int) -> int:
    """Return how many replicas have an insert (`HAS`), or count for it (`COUNTS`)."""
    return blocks_with(state, LOW, BLOCK, limits.replicas, 1 << (kind + record))


def successors(state: int, limits: QuorumQueueLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    length = length_of(state)
    if length < limits.records:
        at = inserted(state, limits, length, out, by, at)
    for record in range(length):
        at = at_record(state, limits, record, out, by, at)
        at = told(state, limits, record, out, by, at)
    at = read(state, limits, out, by, at)
    if length == limits.records and ends(state) == length:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


def inserted(state: int, limits: QuorumQueueLimits, record: int, out: Words, by: Words, at: int) -> int:
    """Write an insert by each replica; one that needs its writer only is settled by itself."""
    for replica in range(limits.replicas):
        for needed in range(1, limits.quorum + 1):
            new = put(state, record * RECORD + NEED, 3, needed)
            if needed == 1:
                new = ended(new, record, SETTLED)
            bits = 1 << (HAS + record) | 1 << (COUNTS + record)
            out[at], by[at] = with_block(new, replica, block_of(new, replica) | bits), label(INSERT, replica, needed)
            at += 1
    return at


def at_record(state: int, limits: QuorumQueueLimits, record: int, out: Words, by: Words, at: int) -> int:
    """Write what replicas do with an insert: get it, drop it, count, settle it, give it up."""
    is_over = is_(state, record, SETTLED) | is_(state, record, FAILED)
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        holds, counts = block >> (HAS + record) & 1, block >> (COUNTS + record) & 1
        if not holds:
            out[at], by[at] = with_block(state, replica, block | 1 << (HAS + record)), label(EXECUTE, replica, record)
            at += 1
        elif is_(state, record, FAILED):
            out[at], by[at] = with_block(state, replica, block & ~(1 << (HAS + record))), label(DROP, replica, record)
            at += 1
        if not is_over and not counts and (holds or limits.mutant == COUNTED_UNHELD):
            new = with_block(state, replica, block | 1 << (COUNTS + record))
            enough = members(new, limits, record, COUNTS) >= need(state, record) or limits.mutant == SETTLED_EARLY
            out[at] = ended(new, record, SETTLED) if enough else new
            by[at] = label(SETTLE if enough else COUNT, replica, record)
            at += 1
    if not is_over or (limits.mutant == FAILED_LATE and not is_(state, record, FAILED)):
        gone = without_in_blocks(state, LOW, BLOCK, limits.replicas, 1 << (COUNTS + record))
        out[at], by[at] = ended(gone, record, FAILED), label(FAIL, record, 0)
        at += 1
    return at


def told(state: int, limits: QuorumQueueLimits, record: int, out: Words, by: Words, at: int) -> int:
    """Write what the client of an insert hears."""
    early = limits.mutant == ANSWERED_EARLY
    if not is_(state, record, ACKED) and (is_(state, record, SETTLED) or early):
        out[at], by[at] = marked(state, record, ACKED), label(ACKNOWLEDGE, record, 0)
        at += 1
    if not is_(state, record, REFUSED) and is_(state, record, FAILED):
        out[at], by[at] = marked(state, record, REFUSED), label(REFUSE, record, 0)
        at += 1
    return at


def read(state: int, limits: QuorumQueueLimits, out: Words, by: Words, at: int) -> int:
    """Write who asks for a read, and the reads that replicas can do: once for each position."""
    asked, shown = get(state, ASKED, 3), get(state, SHOWN, 3)
    fresh = put(put(state & ~DONE, ASKED, 3, mask_of(state, ACKED)), LAST, 3, 0)
    if fresh != state:
        out[at], by[at] = fresh, label(ASK, 0, 0)
        at += 1
    if state & DONE:
        return at
    for replica in range(limits.replicas):
        holds = block_of(state, replica) >> HAS & 7
        for position in range(ends(state) + 1):
            rows = settled_below(state, position)
            if limits.mutant == SHOWN_OPEN:
                rows |= holds & ~mask_of(state, FAILED)
            if rows & ~holds == 0 and (asked & ~rows == 0 or limits.mutant == SHOWN_STALE):
                new = put(put(state | DONE, LAST, 3, rows), SHOWN, 3, shown | rows)
                out[at], by[at] = new, label(READ, replica, position)
                at += 1
    return at


def broken(state: int, limits: QuorumQueueLimits) -> int:
    """Return the invariants that don't hold."""
    found = 0
    for record in range(RECORDS_MAX):
        is_settled, has_failed = is_(state, record, SETTLED), is_(state, record, FAILED)
        if is_settled and members(state, limits, record, HAS) < need(state, record):
            found |= 1
        found |= int(is_(state, record, ACKED) > is_settled or is_(state, record, REFUSED) > has_failed) << 1
        found |= (is_settled & has_failed) << 2
    found |= int(get(state, SHOWN, 3) & mask_of(state, FAILED) != 0) << 3
    return found | int(state & DONE != 0 and get(state, ASKED, 3) & ~get(state, LAST, 3) != 0) << 4


def seen(state: int, limits: QuorumQueueLimits) -> int:
    """Return the probes that hold; see the model's names."""
    length, settled, failed = length_of(state), mask_of(state, SETTLED), mask_of(state, FAILED)
    overtaken = int(is_(state, 1, SETTLED) and not settled & 1 and not failed & 1)
    found = int(settled != 0) | int(failed != 0) << 1 | overtaken << 2 | int(state & DONE != 0) << 3
    return found | int(length > 1 and not settled and not failed) << 4


def initial(limits: QuorumQueueLimits) -> int:
    """Return the first state: no inserts."""
    return 0


def describe(state: int, limits: QuorumQueueLimits) -> str:
    """Say a state in words; inserts are counted from 0."""
    said = [_describe_record(state, record) for record in range(RECORDS_MAX) if need(state, record)] or ["no inserts"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        said.append(f"r{replica + 1} has {numbers(block >> HAS & 7)}, counts for {numbers(block >> COUNTS & 7)}")
    if state & DONE:
        asked, last = numbers(get(state, ASKED, 3)), numbers(get(state, LAST, 3))
        said.append(f"a read that asks for {asked} shows {last}")
    return "; ".join(said)


def _describe_record(state: int, record: int) -> str:
    words = f"insert {record} of {need(state, record)}"
    rank = get(state, record * RECORD + RANK, 2)
    for bit, word in (
        (SETTLED, f"settled as {rank}"),
        (FAILED, f"failed as {rank}"),
        (ACKED, "acked"),
        (REFUSED, "refused"),
    ):
        words += f" {word}" if is_(state, record, bit) else ""
    return words


SELECT, TOLD, ONCE, NOT_SHOWN, NO_STALE = "QuorumSelect", "ToldAsItIs", "EndsOnce", "FailedNotShown", "NoStale"

MODEL = PackedModel(
    name="mended/quorum-queues",
    description="quorum inserts as queues execute them, any number open at once; reads at a position of the line",
    limits=QuorumQueueLimits(),
    most={"replicas": 3, "records": 3, "quorum": 3},
    actions=ACTIONS,
    invariants=(
        Invariant(SELECT, "an insert that is settled is on as many replicas as it needs", needs="settled"),
        Invariant(TOLD, "clients hear of what is settled that it is there, and of nothing else that it failed"),
        Invariant(ONCE, "an insert is settled, or fails, and not both", needs="failed"),
        Invariant(NOT_SHOWN, "what a read has shown does not fail", needs="read"),
        Invariant(NO_STALE, "a read shows what was acknowledged before it was asked for", needs="read"),
    ),
    asked=(SELECT, TOLD, ONCE, NOT_SHOWN, NO_STALE),
    probes=("settled", "failed", "settled before an earlier one", "read", "two open"),
    required=("settled before an earlier one", "two open"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("counted-unheld", SELECT, 3, {"mutant": COUNTED_UNHELD}),
        PackedMutant("settled-before-the-number", SELECT, 4, {"mutant": SETTLED_EARLY}),
        PackedMutant("vacuous-wait", TOLD, 3, {"mutant": ANSWERED_EARLY}),
        PackedMutant("open-shown", NOT_SHOWN, 4, {"mutant": SHOWN_OPEN}),
        PackedMutant("read-without-sync", NO_STALE, 5, {"mutant": SHOWN_STALE}),
        PackedMutant("failed-though-settled", ONCE, 3, {"mutant": FAILED_LATE}),
    ),
)
