"""The published model of log cleaning ("TruncateLog"): who has not read what is removed is lost, and clones.

ZooKeeper is a shared memory and an action is one transaction.  A replica's parts are always those below its pointer, so they
are not stored.  Fields: the log's length and how much of it is gone (5 bits each), then 7 bits of each replica: entries
that it has executed (5), active, lost.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import get, put
from replitree_published.packed.model import Eventually, Invariant, PackedModel, PackedMutant, Words, label


class CleaningLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below."""

    replicas: int = 3
    records: int = 4
    mutant: int = 0


NO_MUTANT, LOST_COMES_BACK, CLEANED_TO_THE_MAXIMUM, CLEANED_WITHOUT_MARK, NEVER_CLEANED = range(5)

ACTIONS = (
    "Insert", "ReplicaBecomeInactive", "ReplicaBecomeActive", "ExecuteLog", "ClearOldLog", "CloneReplica",
    "LegitimateTermination",
)  # fmt: skip
INSERT, LEAVE, RETURN, EXECUTE, CLEAR, CLONE, TERMINATE = range(7)

LOW, BLOCK, POINTER = 10, 7, 5
ACTIVE, LOST = 1 << 5, 1 << 6


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def successors(state: int, limits: CleaningLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    length, deleted = state & 31, (state >> 5) & 31
    for replica in range(limits.replicas):
        at = of_replica(state, limits, replica, length, out, by, at)
    if length > 0 and limits.mutant != NEVER_CLEANED:
        out[at] = cleared(state, limits, deleted)
        by[at] = label(CLEAR, 0, 0)
        at += 1
    if length == limits.records:
        out[at] = state
        by[at] = label(TERMINATE, 0, 0)
        at += 1
    return at


def of_replica(state: int, limits: CleaningLimits, replica: int, length: int, out: Words, by: Words, at: int) -> int:
    """Write what one replica does, or is done through it."""
    block = block_of(state, replica)
    active, lost = block & ACTIVE, block & LOST
    if active and not lost:
        out[at] = with_block(state, replica, block ^ ACTIVE)
        by[at] = label(LEAVE, replica, 0)
        at += 1
        if length < limits.records:
            out[at] = state + 1
            by[at] = label(INSERT, replica, 0)
            at += 1
        if (block & 31) < length:
            out[at] = with_block(state, replica, block + 1)
            by[at] = label(EXECUTE, replica, 0)
            at += 1
    if not active and (not lost or limits.mutant == LOST_COMES_BACK):
        out[at] = with_block(state, replica, block | ACTIVE)
        by[at] = label(RETURN, replica, 0)
        at += 1
    if not active and lost:
        for source in range(limits.replicas):
            there = block_of(state, source)
            if there & ACTIVE and not there & LOST:
                out[at] = with_block(state, replica, there)
                by[at] = label(CLONE, replica, source)
                at += 1
    return at


def cleared(state: int, limits: CleaningLimits, deleted: int) -> int:
    """Return the state after a cleaning: what all active replicas have executed is gone, whoever needs it is lost."""
    prefix = max(deleted, executed_by_active(state, limits))
    state = put(state, 5, POINTER, prefix)
    if limits.mutant == CLEANED_WITHOUT_MARK:
        return state
    for replica in range(limits.replicas):
        block = block_of(state, replica) & ~LOST
        if (block & 31) < prefix:
            block |= LOST
        state = with_block(state, replica, block)
    return state


def executed_by_active(state: int, limits: CleaningLimits) -> int:
    """Return how many entries every active replica has executed; 0 when none is active."""
    found = -1
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if block & ACTIVE:
            pointer = block & 31
            further = pointer > found if limits.mutant == CLEANED_TO_THE_MAXIMUM else pointer < found
            if found < 0 or further:
                found = pointer
    return max(found, 0)


def broken(state: int, limits: CleaningLimits) -> int:
    """Return the invariants that don't hold."""
    deleted, found = (state >> 5) & 31, 0
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if block & ACTIVE and deleted > (block & 31):
            found |= 1
        if block & LOST:
            found |= 2
    return found


def seen(state: int, limits: CleaningLimits) -> int:
    """Return the probes that hold: something is cleaned, a replica is lost."""
    found = 1 if (state >> 5) & 31 else 0
    for replica in range(limits.replicas):
        if block_of(state, replica) & LOST:
            found |= 2
    return found


def initial(limits: CleaningLimits) -> int:
    """Return the first state: an empty log, everybody active."""
    return sum(ACTIVE << (LOW + replica * BLOCK) for replica in range(limits.replicas))


def is_cleaned(state: int, limits: CleaningLimits) -> bool:
    """Tell whether something was removed from the log."""
    return bool(seen(state, limits) & 1)


def describe(state: int, limits: CleaningLimits) -> str:
    """Say a state in words."""
    said = [f"log of {state & 31}, {(state >> 5) & 31} gone"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        marks = ("" if block & ACTIVE else " away") + (" lost" if block & LOST else "")
        said.append(f"r{replica + 1} at {block & 31}{marks}")
    return "; ".join(said)


MODEL = PackedModel(
    name="published/truncate-log",
    description="the published model of log cleaning: insert, execute, clean, leave, return, clone",
    limits=CleaningLimits(),
    most={"replicas": 7, "records": 31},
    actions=ACTIONS,
    invariants=(
        Invariant("ValidLogPointer", "what an active replica executes next is not gone", needs="cleaned"),
        Invariant("NobodyLost", "no replica is ever lost (a question: the model says that some are)"),
    ),
    asked=("ValidLogPointer", "IsLogCleared"),
    probes=("cleaned", "lost"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("lost-comes-back", "ValidLogPointer", 7, {"mutant": LOST_COMES_BACK}),
        PackedMutant("cleaned-to-the-maximum", "ValidLogPointer", 4, {"mutant": CLEANED_TO_THE_MAXIMUM}),
        PackedMutant("cleaned-without-mark", "ValidLogPointer", 7, {"mutant": CLEANED_WITHOUT_MARK}),
        PackedMutant("never-cleaned", "IsLogCleared", 11, {"mutant": NEVER_CLEANED}, ("IsLogCleared",)),
        PackedMutant("nobody-is-lost", "NobodyLost", 6, {}, ("NobodyLost",)),
    ),
    eventually=(
        Eventually("IsLogCleared", is_cleaned, ("Insert", "ReplicaBecomeActive", "ExecuteLog", "ClearOldLog")),
    ),
)
