"""The published model of replication ("Replication"): inserts at any replica, merges by a leader, one log.

It compares names of parts, not their rows, and so it passes although rows are counted twice: an executed insert brings back a
part that a merge has taken, and two merges may take the same one.  The invariants below that only mutants ask for say so.

Fields: the log's length (3 bits), the sources of each entry as a mask of earlier ones, empty for an insert (entry k has k bits:
15 for six entries), four bits that only the mended model needs, then 10 bits of each replica: its parts (6), entries that it
has executed (3), whether it leads.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import get, put
from replitree_published.packed.model import Eventually, Invariant, PackedModel, PackedMutant, Words, label, numbers


class ReplicationLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below."""

    replicas: int = 3
    records: int = 4
    mutant: int = 0


NO_MUTANT, MERGE_KEEPS_SOURCES = range(2)

ACTIONS = (
    "Insert", "ExecuteInsert", "ExecuteMerge", "BecomeLeader", "ExpiredLeader", "LeaderCreateMerge", "LegitimateTermination",
)  # fmt: skip
INSERT, EXECUTE_INSERT, EXECUTE_MERGE, LEAD, EXPIRE, MERGE, TERMINATE = range(7)

LOG, LOG_BITS, LOW, BLOCK, PARTS = 3, 15, 22, 10, 6
POINTER, LEADS = 6, 9


def sources_of(state: int, entry: int) -> int:
    """Return the mask of what an entry merges; 0 of an insert."""
    return get(state, LOG + entry * (entry - 1) // 2, entry)


def appended(state: int, sources: int) -> int:
    """Return the state with one more entry in the log."""
    length = state & 7
    return (state + 1) | (sources << (LOG + length * (length - 1) // 2))


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def leader(state: int, replicas: int) -> int:
    """Return who leads of so many replicas, -1 if nobody does."""
    for replica in range(replicas):
        if block_of(state, replica) >> LEADS:
            return replica
    return -1


def successors(state: int, limits: ReplicationLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    length, leads = state & 7, leader(state, limits.replicas)
    if length < limits.records:
        for replica in range(limits.replicas):
            out[at] = with_block(appended(state, 0), replica, block_of(state, replica) | 1 << length)
            by[at] = label(INSERT, replica, 0)
            at += 1
    if leads >= 0:
        at = by_leader(state, limits, leads, out, by, at)
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if (block >> POINTER) & 7 < length:
            at = executed(state, limits, replica, block, out, by, at)
        if leads < 0:
            out[at] = with_block(state, replica, block | 1 << LEADS)
            by[at] = label(LEAD, replica, 0)
            at += 1
    if length == limits.records:
        out[at] = state
        by[at] = label(TERMINATE, 0, 0)
        at += 1
    return at


def executed(state: int, limits: ReplicationLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what executing the entry at the pointer makes of a replica."""
    entry = (block >> POINTER) & 7
    sources = sources_of(state, entry)
    taken = 0 if limits.mutant == MERGE_KEEPS_SOURCES else sources
    out[at] = with_block(state, replica, ((block | 1 << entry) & ~taken) + (1 << POINTER))
    by[at] = label(EXECUTE_MERGE if sources else EXECUTE_INSERT, replica, 0)
    return at + 1


def by_leader(state: int, limits: ReplicationLimits, leads: int, out: Words, by: Words, at: int) -> int:
    """Write the end of a leadership, and every merge of two parts that the leader has, each as two witnesses."""
    length, block = state & 7, block_of(state, leads)
    out[at] = with_block(state, leads, block & ~(1 << LEADS))
    by[at] = label(EXPIRE, leads, 0)
    at += 1
    if length == limits.records:
        return at
    for first in range(length):
        for second in range(length):
            if first != second and block >> first & block >> second & 1:
                sources = 1 << first | 1 << second
                out[at] = with_block(appended(state, sources), leads, (block | 1 << length) & ~sources)
                by[at] = label(MERGE, first, second)
                at += 1
    return at


def contents(state: int) -> int:
    """Return the rows of every part, as a mask of inserts: six bits for each part; the lowest bit above says whether twice."""
    found, twice = 0, 0
    for entry in range(state & 7):
        rows, sources = 0, sources_of(state, entry)
        if sources == 0:
            rows = 1 << entry
        for source in range(entry):
            if sources >> source & 1:
                of_source = get(found, source * PARTS, PARTS)
                twice |= int(rows & of_source != 0)
                rows |= of_source
        found |= rows << (entry * PARTS)
    return found | twice << (PARTS * PARTS)


def shows_twice(parts: int, found: int) -> int:
    """Tell (1 or 0) whether some row is in two of these parts."""
    rows = 0
    for part in range(PARTS):
        if parts >> part & 1:
            of_part = get(found, part * PARTS, PARTS)
            if rows & of_part:
                return 1
            rows |= of_part
    return 0


def broken(state: int, limits: ReplicationLimits) -> int:
    """Return the invariants that don't hold."""
    length, found = state & 7, contents(state)
    behind, differ, twice = 0, 0, 0
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        behind |= (block >> POINTER) & 7 ^ length
        differ |= (block ^ block_of(state, 0)) & 63
        twice |= shows_twice(block & 63, found)
    bad = twice << 1 | (found >> (PARTS * PARTS)) << 2
    if behind == 0:
        bad |= int(differ != 0) | twice << 3
    return bad


def seen(state: int, limits: ReplicationLimits) -> int:
    """Return the probes that hold: everybody is at the end of a log that is not empty, something was merged."""
    length, behind = state & 7, 0
    for replica in range(limits.replicas):
        behind |= (block_of(state, replica) >> POINTER) & 7 ^ length
    return int(behind == 0 and length > 0) | int(get(state, LOG, LOG_BITS) != 0) << 1


def initial(limits: ReplicationLimits) -> int:
    """Return the first state: an empty log, no parts, no leader."""
    return 0


def all_alike(state: int, limits: ReplicationLimits) -> bool:
    """Tell whether all replicas have the same parts."""
    return all((block_of(state, replica) ^ block_of(state, 0)) & 63 == 0 for replica in range(limits.replicas))


def describe(state: int, limits: ReplicationLimits) -> str:
    """Say a state in words."""
    entries = [
        numbers(sources_of(state, entry)) if sources_of(state, entry) else "insert" for entry in range(state & 7)
    ]
    said = [f"log {', '.join(entries) or 'empty'}"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        leads = " leads" if block >> LEADS else ""
        said.append(f"r{replica + 1} at {(block >> POINTER) & 7} has {numbers(block & 63)}{leads}")
    return "; ".join(said)


CONVERGED, NO_DUP, DISJOINT, AT_REST = "Converged", "NoDup", "MergeDisjoint", "CaughtUpNoDup"
FAIR = ("BecomeLeader", "ExpiredLeader", "LeaderCreateMerge")

MODEL = PackedModel(
    name="published/replication",
    description="the published model of replication: inserts at any replica, merges by a leader that may be replaced",
    limits=ReplicationLimits(),
    most={"replicas": 4, "records": 6},
    actions=ACTIONS,
    invariants=(
        Invariant(CONVERGED, "replicas at the end of the log have the same parts", needs="at rest"),
        Invariant(NO_DUP, "no replica has a row in two parts (the published model does not hold it)"),
        Invariant(DISJOINT, "no merge takes a row twice (nor this)", needs="merged"),
        Invariant(AT_REST, "replicas at the end of the log have no row twice (nor this)", needs="at rest"),
    ),
    asked=(CONVERGED, "EquivalentReplicas"),
    probes=("at rest", "merged"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("merge-keeps-sources", CONVERGED, 14, {"mutant": MERGE_KEEPS_SOURCES}),
        PackedMutant("rows-are-counted", NO_DUP, 6, {}, (NO_DUP,)),
        PackedMutant("merged-rows-are-counted", DISJOINT, 7, {}, (DISJOINT,)),
        PackedMutant(
            "equivalent-for-ever", "EquivalentForEver", 2, {"replicas": 2, "records": 3}, ("EquivalentForEver",)
        ),
        PackedMutant("rows-are-counted-at-rest", AT_REST, 18, {}, (AT_REST,)),
    ),
    eventually=(
        Eventually("EquivalentReplicas", all_alike, FAIR),
        Eventually("EquivalentForEver", all_alike, FAIR, forever=True),
    ),
)
