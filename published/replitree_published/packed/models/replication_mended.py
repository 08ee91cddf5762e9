"""The model of replication with its published defects mended: what is compared are rows, not names of parts.

Mended: executing an entry skips what a local part covers; a merge takes only parts that the log has at its end, and removes
what it covers.  New: a part is fetched, itself or a later form, from whoever has it; the answer to an insert may be lost, and
the client tries again, anywhere, with the same id.

Fields: the log's length (3 bits); of each entry the mask of what it merges, empty for an insert, one bit for an insert that
was done again (15); the insert whose answer was lost (3), whether one was (1); then 10 bits of each replica: its parts (6),
entries that it has executed (3), whether it leads.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import get, ones, put
from replitree_published.packed.model import Invariant, PackedModel, PackedMutant, Words, label, numbers
from replitree_published.packed.models.replication import (
    BLOCK,
    LEADS,
    LOW,
    PARTS,
    POINTER,
    appended,
    block_of,
    contents,
    initial,
    leader,
    shows_twice,
    sources_of,
    with_block,
)


class MendedReplicationLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below."""

    replicas: int = 3
    records: int = 4
    mutant: int = 0


NO_MUTANT, INSERT_COMES_BACK, MERGE_OF_TAKEN, AGAIN_WITHOUT_ID, ROLLED_BACK, SOURCES_STAY, COVERED_BY_NUMBER = range(7)

ACTIONS = (
    "Insert", "InsertUnanswered", "TryAgain", "Execute", "BecomeLeader", "ExpiredLeader", "LeaderCreateMerge",
    "LegitimateTermination",
)  # fmt: skip
INSERT, UNANSWERED, AGAIN, EXECUTE, LEAD, EXPIRE, MERGE, TERMINATE = range(8)

LOST, WAS_LOST = 18, 1 << 21


def current(state: int) -> int:
    """Return the parts that the log gives: what came, less what was merged."""
    parts = 0
    for entry in range(state & 7):
        sources = sources_of(state, entry)
        parts |= 1 << entry
        if sources & (sources - 1):
            parts &= ~sources
    return parts


def successors(state: int, limits: MendedReplicationLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    length, leads, found = state & 7, leader(state, limits.replicas), contents(state)
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        at = by_client(state, limits, replica, block, out, by, at)
        if get(block, POINTER, 3) < length:
            at = executed(state, limits, replica, found, out, by, at)
        if leads < 0:
            out[at], by[at] = with_block(state, replica, block | 1 << LEADS), label(LEAD, replica, 0)
            at += 1
    if leads >= 0:
        at = by_leader(state, limits, leads, out, by, at)
    if length == limits.records:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


def by_client(
    state: int, limits: MendedReplicationLimits, replica: int, block: int, out: Words, by: Words, at: int
) -> int:
    """Write an insert, one whose answer is lost, and the second try of that one."""
    length, lost = state & 7, get(state, LOST, 3)
    with_part = block | 1 << length
    if length < limits.records:
        out[at], by[at] = with_block(appended(state, 0), replica, with_part), label(INSERT, replica, 0)
        at += 1
        if not state & WAS_LOST:
            kept = block if limits.mutant == ROLLED_BACK else with_part
            doubted = put(appended(state, 0) | WAS_LOST, LOST, 3, length + 1)
            out[at], by[at] = with_block(doubted, replica, kept), label(UNANSWERED, replica, 0)
            at += 1
    if lost and limits.mutant != AGAIN_WITHOUT_ID:
        out[at], by[at] = put(state, LOST, 3, 0), label(AGAIN, replica, 0)
        at += 1
    elif lost and length < limits.records:
        again = with_block(appended(state, 1 << (lost - 1)), replica, with_part)
        out[at], by[at] = put(again, LOST, 3, 0), label(AGAIN, replica, 0)
        at += 1
    return at


def by_leader(state: int, limits: MendedReplicationLimits, leads: int, out: Words, by: Words, at: int) -> int:
    """Write the end of a leadership, and every merge of two parts that the leader has and that are current."""
    length, block = state & 7, block_of(state, leads)
    out[at], by[at] = with_block(state, leads, block & ~(1 << LEADS)), label(EXPIRE, leads, 0)
    at += 1
    if length == limits.records:
        return at
    parts = block & 63
    if limits.mutant != MERGE_OF_TAKEN:
        parts &= current(state)
    for first in range(length):
        for second in range(first):
            if parts >> first & parts >> second & 1:
                sources = 1 << first | 1 << second
                out[at] = with_block(appended(state, sources), leads, (block | 1 << length) & ~sources)
                by[at] = label(MERGE, second, first)
                at += 1
    return at


def executed(
    state: int, limits: MendedReplicationLimits, replica: int, found: int, out: Words, by: Words, at: int
) -> int:
    """Write the execution of the entry at the pointer: skipped when it is covered, else fetched, itself or a later form."""
    block = block_of(state, replica)
    entry = get(block, POINTER, 3)
    rows, part = get(found, entry * PARTS, PARTS), -1
    if not is_covered(block, limits, entry, rows, found):
        part = to_be_had(state, limits, entry, rows, found)
        if part < 0:
            return at
        block = with_part(block, limits, part, found)
    out[at], by[at] = with_block(state, replica, block + (1 << POINTER)), label(EXECUTE, replica, 0)
    return at + 1


def is_covered(block: int, limits: MendedReplicationLimits, entry: int, rows: int, found: int) -> bool:
    """Tell whether a replica has a part with these rows."""
    if limits.mutant == COVERED_BY_NUMBER:
        return (block & 63) >> entry != 0
    if limits.mutant == INSERT_COMES_BACK:
        return block >> entry & 1 != 0
    for part in range(PARTS):  # noqa: SIM110 - what is compiled has no generators
        if block >> part & 1 and rows & ~get(found, part * PARTS, PARTS) == 0:
            return True
    return False


def to_be_had(state: int, limits: MendedReplicationLimits, entry: int, rows: int, found: int) -> int:
    """Return the part that a replica gets for an entry: itself if it can be, else one that covers it; -1 if nobody has any."""
    anywhere = 0
    for replica in range(limits.replicas):
        anywhere |= block_of(state, replica) & 63
    if anywhere >> entry & 1 or sources_of(state, entry) & (sources_of(state, entry) - 1):
        return entry
    for part in range(PARTS):
        if anywhere >> part & 1 and rows & ~get(found, part * PARTS, PARTS) == 0:
            return part
    return -1


def with_part(block: int, limits: MendedReplicationLimits, part: int, found: int) -> int:
    """Return a replica's bits with one more part, and without those that it covers."""
    rows = get(found, part * PARTS, PARTS)
    for other in range(PARTS):
        if block >> other & 1 and get(found, other * PARTS, PARTS) & ~rows == 0 and limits.mutant != SOURCES_STAY:
            block &= ~(1 << other)
    return block | 1 << part


def broken(state: int, limits: MendedReplicationLimits) -> int:
    """Return the invariants that don't hold."""
    length, found = state & 7, contents(state)
    behind, differ, twice, kept = 0, 0, 0, 0
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        behind |= get(block, POINTER, 3) ^ length
        differ |= (block ^ block_of(state, 0)) & 63
        twice |= shows_twice(block & 63, found)
        for part in range(PARTS):
            if block >> part & 1:
                kept |= get(found, part * PARTS, PARTS)
    inserted = 0
    for entry in range(length):
        inserted |= get(found, entry * PARTS, PARTS)
    bad = twice << 1 | (found >> (PARTS * PARTS)) << 2 | int(inserted & ~kept != 0) << 4
    if behind == 0:
        bad |= int(differ != 0) | twice << 3
    return bad


def seen(state: int, limits: MendedReplicationLimits) -> int:
    """Return the probes that hold; see the model's names."""
    length, behind, early, merges = state & 7, 0, 0, 0
    for entry in range(length):
        merges |= int(ones(sources_of(state, entry)) > 1) << entry
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        pointer = get(block, POINTER, 3)
        behind |= pointer ^ length
        early |= block & merges & ~((1 << pointer) - 1) & 63
    found = int(behind == 0 and length > 0) | int(merges != 0) << 1 | int(early != 0) << 2
    return found | int(get(state, LOST, 3) != 0) << 3 | int(state & WAS_LOST != 0 and get(state, LOST, 3) == 0) << 4


def describe(state: int, limits: MendedReplicationLimits) -> str:
    """Say a state in words."""
    entries = [
        numbers(sources_of(state, entry)) if sources_of(state, entry) else "insert" for entry in range(state & 7)
    ]
    lost = f", {get(state, LOST, 3) - 1} in doubt" if get(state, LOST, 3) else ""
    said = [f"log {', '.join(entries) or 'empty'}{lost}"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        leads = " leads" if block >> LEADS else ""
        said.append(f"r{replica + 1} at {get(block, POINTER, 3)} has {numbers(block & 63)}{leads}")
    return "; ".join(said)


CONVERGED, NO_DUP, DISJOINT, AT_REST, DURABLE = "Converged", "NoDup", "MergeDisjoint", "CaughtUpNoDup", "Durable"

MODEL = PackedModel(
    name="mended/replication",
    description="replication with merges, the published defects mended: rows count; an insert's answer may be lost",
    limits=MendedReplicationLimits(),
    most={"replicas": 4, "records": 6},
    actions=ACTIONS,
    invariants=(
        Invariant(CONVERGED, "replicas at the end of the log have the same parts", needs="at rest"),
        Invariant(NO_DUP, "no replica has a row in two parts", needs="merged"),
        Invariant(DISJOINT, "no merge takes a row twice", needs="merged"),
        Invariant(AT_REST, "replicas at the end of the log have no row twice", needs="at rest"),
        Invariant(DURABLE, "the rows of every insert are on some replica", needs="at rest"),
    ),
    asked=(CONVERGED, NO_DUP, DISJOINT, AT_REST, DURABLE),
    probes=("at rest", "merged", "merged ahead of the pointer", "in doubt", "out of doubt"),
    required=("merged ahead of the pointer", "out of doubt"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("insert-comes-back", NO_DUP, 7, {"mutant": INSERT_COMES_BACK}),
        PackedMutant("merge-of-taken", CONVERGED, 20, {"mutant": MERGE_OF_TAKEN}),
        PackedMutant("merges-that-overlap", NO_DUP, 11, {"mutant": MERGE_OF_TAKEN, "records": 5}, (NO_DUP,)),
        PackedMutant(
            "merge-of-overlapping", DISJOINT, 12, {"mutant": MERGE_OF_TAKEN, "replicas": 2, "records": 6}, (DISJOINT,)
        ),
        PackedMutant("again-without-id", NO_DUP, 3, {"mutant": AGAIN_WITHOUT_ID}),
        PackedMutant("again-without-id-at-rest", AT_REST, 9, {"mutant": AGAIN_WITHOUT_ID}, (AT_REST,)),
        PackedMutant("rolled-back-in-doubt", DURABLE, 2, {"mutant": ROLLED_BACK}),
        PackedMutant("sources-stay", NO_DUP, 7, {"mutant": SOURCES_STAY}),
        PackedMutant("covered-by-number", CONVERGED, 9, {"mutant": COVERED_BY_NUMBER}, (CONVERGED,)),
    ),
)
