"""Replication as queues execute it: entries in any order, merges by anybody, and merges that come too late change nothing.

`verify.bridge` holds our procedures to this.  A merge is of any parts that the log has at its end, and nobody has its result at
once.  A replica executes any entry that it has not executed yet: nothing is done if a part of its own covers it, else it gets
the part from whoever has it or has a later form of it (old parts stay for a while), or that later form; the result of a merge
it can make.  Who inserts has the part from then on.

Fields: the log's length (3 bits); of each entry the mask of what it merges, empty for an insert (15); which entries came too
late (6); then 12 bits of each replica: its parts (6), the entries that it has executed (6).
"""

from __future__ import annotations

from typing import NamedTuple

from replitree.verify.packed.bits import get, put
from replitree.verify.packed.model import Invariant, PackedModel, PackedMutant, Words, label, numbers
from replitree.verify.packed.replication import PARTS, appended, contents, shows_twice, sources_of


class QueueLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below."""

    replicas: int = 2
    records: int = 4
    mutant: int = 0


NO_MUTANT, INSERT_COMES_BACK, MERGE_OF_TAKEN, ROLLED_BACK, SOURCES_STAY, NOT_DONE = range(6)

ACTIONS = ("Insert", "Merge", "TooLate", "Execute", "LegitimateTermination")
INSERT, MERGE, TOO_LATE, EXECUTE, TERMINATE = range(5)

LATE, LOW, BLOCK, DONE = 18, 24, 12, 6


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def current(state: int) -> int:
    """Return the parts that the log gives: what came, less what was merged."""
    parts = 0
    for entry in range(state & 7):
        if not state >> (LATE + entry) & 1:
            parts = (parts & ~sources_of(state, entry)) | 1 << entry
    return parts


def lineages(state: int) -> int:
    """Return of every part what it covers, itself and whatever it was made of, as masks of six bits."""
    found = 0
    for entry in range(state & 7):
        found |= (1 << entry | together(found, sources_of(state, entry))) << (entry * PARTS)
    return found


def together(found: int, parts: int) -> int:
    """Return the masks of some parts in one."""
    mask = 0
    for part in range(PARTS):
        if parts >> part & 1:
            mask |= get(found, part * PARTS, PARTS)
    return mask


def with_part(block: int, part: int, covers: int, limits: QueueLimits) -> int:
    """Return a replica's bits with one more part, and without those that it covers."""
    if limits.mutant != SOURCES_STAY:
        block &= ~get(covers, part * PARTS, PARTS)
    return block | 1 << part


def successors(state: int, limits: QueueLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    length, covers = state & 7, lineages(state)
    if length < limits.records:
        at = lengthened(state, limits, out, by, at)
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        for entry in range(length):
            if not block >> (DONE + entry) & 1:
                at = executed(state, limits, replica, entry, covers, out, by, at)
    if length == limits.records:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


def lengthened(state: int, limits: QueueLimits, out: Words, by: Words, at: int) -> int:
    """Write what can be appended: an insert of each replica, a merge of any current parts, one that comes too late."""
    length, there = state & 7, current(state)
    for replica in range(limits.replicas):
        part = 0 if limits.mutant == ROLLED_BACK else 1 << length
        out[at] = with_block(appended(state, 0), replica, block_of(state, replica) | part)
        by[at] = label(INSERT, replica, 0)
        at += 1
    if limits.mutant == MERGE_OF_TAKEN:
        there = ((1 << length) - 1) & ~get(state, LATE, 6)
    for sources in range(1, 1 << length):
        if sources & ~there == 0:
            out[at], by[at] = appended(state, sources), label(MERGE, 0, 0)
            at += 1
    if length:
        out[at], by[at] = appended(state, 0) | 1 << (LATE + length), label(TOO_LATE, 0, 0)
        at += 1
    return at


def executed(
    state: int, limits: QueueLimits, replica: int, entry: int, covers: int, out: Words, by: Words, at: int
) -> int:
    """Write the execution of an entry, once for every part by which the replica can get what it needs."""
    block = block_of(state, replica)
    covered = block & 63 if limits.mutant == INSERT_COMES_BACK else together(covers, block & 63)
    done = 1 << (DONE + entry)
    if covered >> entry & 1 or state >> (LATE + entry) & 1 or limits.mutant == NOT_DONE:
        out[at], by[at] = with_block(state, replica, block | done), label(EXECUTE, replica, entry)
        return at + 1
    choices = to_be_had(state, limits, entry, covers)
    for part in range(PARTS):
        if choices >> part & 1:
            new = with_part(block, part, covers, limits)
            out[at], by[at] = with_block(state, replica, new | done), label(EXECUTE, replica, entry)
            at += 1
    return at


def to_be_had(state: int, limits: QueueLimits, entry: int, covers: int) -> int:
    """Return what a replica can get for an entry: itself, if anybody has or had it or it can be made, and later forms."""
    choices = 0
    for replica in range(limits.replicas):
        for part in range(PARTS):
            if block_of(state, replica) >> part & 1 and get(covers, part * PARTS, PARTS) >> entry & 1:
                choices |= 1 << part
    return choices | 1 << entry if choices or sources_of(state, entry) else 0


def broken(state: int, limits: QueueLimits) -> int:
    """Return the invariants that don't hold."""
    length, found, bad, kept = state & 7, contents(state), 0, 0
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        bad |= shows_twice(block & 63, found) << 1
        bad |= int(block >> DONE == (1 << length) - 1 and block & 63 != current(state))
        kept |= together(found, block & 63)
    inserted = 0
    for entry in range(length):
        if not sources_of(state, entry) and not state >> (LATE + entry) & 1:
            inserted |= 1 << entry
    return bad | int(inserted & ~kept != 0) << 2


def seen(state: int, limits: QueueLimits) -> int:
    """Return the probes that hold; see the model's names."""
    rest, merged, early = 1, 0, 0
    for entry in range(state & 7):
        merged |= int(sources_of(state, entry) != 0)
    for replica in range(limits.replicas):
        done = block_of(state, replica) >> DONE
        rest &= int(done == (1 << (state & 7)) - 1)
        early |= int(done & (done + 1) != 0)
    return rest & int(state & 7 != 0) | merged << 1 | early << 2


def initial(limits: QueueLimits) -> int:
    """Return the first state: an empty log, no parts."""
    return 0


def describe(state: int, limits: QueueLimits) -> str:
    """Say a state in words."""
    entries = [
        "too late" if state >> (LATE + entry) & 1 else numbers(sources_of(state, entry)) for entry in range(state & 7)
    ]
    said = [f"log {', '.join('insert' if entry == '{}' else entry for entry in entries) or 'empty'}"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        said.append(f"r{replica + 1} has {numbers(block & 63)}, executed {numbers(block >> DONE)}")
    return "; ".join(said)


AT_REST, NO_DUP, DURABLE = "TableAtRest", "NoDup", "Durable"

MODEL = PackedModel(
    name="mended/replication-queues",
    description="replication as queues execute it: in any order, merges by anybody, some of them too late",
    limits=QueueLimits(),
    most={"replicas": 3, "records": 6},
    actions=ACTIONS,
    invariants=(
        Invariant(AT_REST, "who has executed everything has exactly the parts of the log", needs="at rest"),
        Invariant(NO_DUP, "no replica has a row in two parts", needs="merged"),
        Invariant(DURABLE, "the rows of every insert are on some replica"),
    ),
    asked=(AT_REST, NO_DUP, DURABLE),
    probes=("at rest", "merged", "out of order"),
    required=("out of order",),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("insert-comes-back", NO_DUP, 5, {"mutant": INSERT_COMES_BACK}, (NO_DUP,)),
        PackedMutant("merge-of-taken", NO_DUP, 6, {"mutant": MERGE_OF_TAKEN}, (NO_DUP,)),
        PackedMutant("forgotten", AT_REST, 3, {"mutant": NOT_DONE}),
        PackedMutant("rolled-back", DURABLE, 2, {"mutant": ROLLED_BACK}),
        PackedMutant("sources-stay", NO_DUP, 4, {"mutant": SOURCES_STAY}),
    ),
    fan_out=192,
)
