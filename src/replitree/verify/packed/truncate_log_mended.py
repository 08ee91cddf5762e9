"""The model of log cleaning with what the published one leaves out: looking and removing are two steps, and so is cloning.

Who cleans looks first; the commit that marks and removes checks that no replica has come back since.  A replica that was lost
comes back active and lost, takes over a pointer, copies, and is good at the end only; the log is kept for it meanwhile, and for
who is away as long as that one is at most `keep` entries behind.

Fields: the log's length, how much of it is gone, how much the cleaner wants to be gone (4 bits each, 0 for nothing), whether
somebody has come back since it looked; then 8 bits of each replica: entries that it has executed (4), active, lost, has taken
over a pointer, serves.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree.verify.packed.bits import get, put, sorted_blocks
from replitree.verify.packed.model import Invariant, PackedModel, PackedMutant, Words, label


class MendedCleaningLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below."""

    replicas: int = 3
    records: int = 4
    keep: int = 1
    mutant: int = 0


NO_MUTANT, REMOVED_UNCHECKED, LAST_GOOD_MARKED, CLONE_FROM_LOST, RECOVERING_NOT_KEPT_FOR, NOT_MARKED = range(6)

ACTIONS = (
    "Insert",
    "Leave",
    "Return",
    "Execute",
    "Look",
    "Remove",
    "GiveUp",
    "CloneBegin",
    "CloneEnd",
    "LegitimateTermination",
)
INSERT, LEAVE, RETURN, EXECUTE, LOOK, REMOVE, GIVE_UP, CLONE_BEGIN, CLONE_END, TERMINATE = range(10)

WANTED, CHANGED, LOW, BLOCK = 8, 1 << 12, 13, 8
ACTIVE, LOST, CLONING, SERVES = 1 << 4, 1 << 5, 1 << 6, 1 << 7


def block_of(state: int, replica: int) -> int:
    """Return the bits of one replica."""
    return get(state, LOW + replica * BLOCK, BLOCK)


def with_block(state: int, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    return put(state, LOW + replica * BLOCK, BLOCK, block)


def successors(state: int, limits: MendedCleaningLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if not block & ACTIVE:
            serves = 0 if block & LOST else SERVES
            out[at] = with_block(state | CHANGED, replica, block | ACTIVE | serves)
            by[at] = label(RETURN, replica, 0)
            at += 1
        else:
            out[at] = with_block(state, replica, block & ~(ACTIVE | SERVES | CLONING))
            by[at] = label(LEAVE, replica, 0)
            at += 1
            at = serving(state, limits, replica, block, out, by, at)
            at = cloning(state, limits, replica, block, out, by, at)
    at = by_cleaner(state, limits, out, by, at)
    if state & 15 == limits.records:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


def serving(state: int, limits: MendedCleaningLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what a replica does that serves: take an insert, execute an entry."""
    length = state & 15
    if block & SERVES and length < limits.records:
        out[at], by[at] = state + 1, label(INSERT, replica, 0)
        at += 1
    if block & SERVES and block & 15 < length:
        out[at], by[at] = with_block(state, replica, block + 1), label(EXECUTE, replica, 0)
        at += 1
    return at


def cloning(state: int, limits: MendedCleaningLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what a replica does that is lost: take over the pointer of a good one, and be good when all is copied."""
    if not block & LOST or block & SERVES:
        return at
    if block & CLONING:
        out[at] = with_block(state, replica, (block & ~(LOST | CLONING)) | SERVES)
        by[at] = label(CLONE_END, replica, 0)
        return at + 1
    for source in range(limits.replicas):
        there = block_of(state, source)
        good = there & SERVES or limits.mutant == CLONE_FROM_LOST
        if source != replica and there & ACTIVE and good:
            out[at] = with_block(state, replica, (block & ~15) | CLONING | there & 15)
            by[at] = label(CLONE_BEGIN, replica, source)
            at += 1
    return at


def by_cleaner(state: int, limits: MendedCleaningLimits, out: Words, by: Words, at: int) -> int:
    """Write the steps of whoever cleans: look, then remove or give up."""
    wanted, gone = get(state, WANTED, 4), state >> 4 & 15
    if wanted == 0:
        needed = not_needed(state, limits)
        if needed > gone:
            out[at], by[at] = put(state & ~CHANGED, WANTED, 4, needed), label(LOOK, 0, 0)
            at += 1
        return at
    if not state & CHANGED or limits.mutant == REMOVED_UNCHECKED:
        out[at], by[at] = removed(state, limits, wanted), label(REMOVE, 0, 0)
        at += 1
    if state & CHANGED:
        out[at], by[at] = put(state, WANTED, 4, 0), label(GIVE_UP, 0, 0)
        at += 1
    return at


def not_needed(state: int, limits: MendedCleaningLimits) -> int:
    """Return how many entries nobody needs who is active, or away for a short time; 0 when no good replica is active."""
    length, good = state & 15, 0
    least = length
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        pointer = block & 15
        kept_for = block & SERVES != 0
        if limits.mutant != RECOVERING_NOT_KEPT_FOR:
            kept_for = kept_for or block & CLONING != 0
        if not block & (ACTIVE | LOST) and length - pointer <= limits.keep:
            kept_for = True
        if kept_for:
            least = min(least, pointer)
        good |= int(block & SERVES != 0)
    return least if good or limits.mutant == LAST_GOOD_MARKED else 0


def removed(state: int, limits: MendedCleaningLimits, wanted: int) -> int:
    """Return the state after one commit that marks whoever needs what it removes."""
    state = put(put(state, WANTED, 4, 0), 4, 4, wanted)
    if limits.mutant == NOT_MARKED:
        return state
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        if block & 15 < wanted:
            state = with_block(state, replica, block | LOST)
    return state


def broken(state: int, limits: MendedCleaningLimits) -> int:
    """Return the invariants that don't hold."""
    gone, good, found = state >> 4 & 15, 0, 0
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        good |= int(not block & LOST)
        if block & (SERVES | CLONING) and block & 15 < gone:
            found |= 1
        if block & SERVES and block & LOST:
            found |= 4
    return found | int(good == 0) << 1


def seen(state: int, limits: MendedCleaningLimits) -> int:
    """Return the probes that hold; see the model's names."""
    found = int(state >> 4 & 15 != 0) | int(get(state, WANTED, 4) != 0 and state & CHANGED != 0) << 1
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        found |= int(block & LOST != 0) << 2 | int(block & CLONING != 0) << 3
        found |= int(block & CLONING != 0 and get(state, WANTED, 4) != 0) << 4
    return found


def canonical(state: int, limits: MendedCleaningLimits) -> int:
    """Return the state that stands for all permutations of the replicas."""
    return sorted_blocks(state, LOW, BLOCK, limits.replicas)


def initial(limits: MendedCleaningLimits) -> int:
    """Return the first state: an empty log, everybody serves."""
    return sum((ACTIVE | SERVES) << (LOW + replica * BLOCK) for replica in range(limits.replicas))


def describe(state: int, limits: MendedCleaningLimits) -> str:
    """Say a state in words."""
    said = [f"log of {state & 15}, {state >> 4 & 15} gone, {get(state, WANTED, 4)} to go"]
    for replica in range(limits.replicas):
        block = block_of(state, replica)
        marks = "".join(
            word for bit, word in ((LOST, " lost"), (CLONING, " clones"), (SERVES, " serves")) if block & bit
        )
        said.append(f"r{replica + 1} at {block & 15}{'' if block & ACTIVE else ' away'}{marks}")
    return "; ".join(said)


VALID, ONE_GOOD, SERVES_GOOD = "ValidLogPointer", "OneIsGood", "WhoServesIsGood"

MODEL = PackedModel(
    name="mended/truncate-log",
    description="log cleaning in two steps, with replicas that are lost, come back, and recover while the log goes on",
    limits=MendedCleaningLimits(),
    most={"replicas": 6, "records": 15, "keep": 15},
    actions=ACTIONS,
    invariants=(
        Invariant(VALID, "what a replica that serves or clones needs next is not gone", needs="cleaned"),
        Invariant(ONE_GOOD, "at least one replica is not lost", needs="lost"),
        Invariant(SERVES_GOOD, "who serves is not lost", needs="lost"),
    ),
    asked=(VALID, ONE_GOOD, SERVES_GOOD),
    probes=("cleaned", "came back since the look", "lost", "cloning", "cloning during a cleaning"),
    required=("came back since the look", "cloning during a cleaning"),
    successors=successors,
    broken=broken,
    seen=seen,
    canonical=canonical,
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("removed-unchecked", SERVES_GOOD, 9, {"mutant": REMOVED_UNCHECKED}, (SERVES_GOOD,)),
        PackedMutant("last-good-marked", ONE_GOOD, 8, {"mutant": LAST_GOOD_MARKED}),
        PackedMutant("clone-from-lost", VALID, 11, {"mutant": CLONE_FROM_LOST}),
        PackedMutant("recovering-not-kept-for", VALID, 13, {"mutant": RECOVERING_NOT_KEPT_FOR}, (VALID,)),
        PackedMutant("not-marked", VALID, 9, {"mutant": NOT_MARKED}),
    ),
)
