"""The model of log cleaning with what the published one leaves out: looking and removing are two steps, and so is cloning.

Who cleans looks first; the commit that removes checks that no replica has come back, was marked or has recovered since.
At any time a replica that is away may be given up or dropped, as long as another one is good.  A replica that was lost comes
back active and lost, takes over a pointer, copies, and is good at the end only; the log is kept for it while it is there.

This is what `replitree_published.bridge` holds our procedures to.  So it leaves open what they decide: whom they give up
and when, how much of what nobody needs they remove, and who appends (also one that is away or lost and does not know
it: its request was on its way).  A pointer that says nothing (of who is lost and has not taken over another one) is 0.

Fields, each number in `width` bits: whether somebody has come back, was marked or has recovered since the cleaner looked; the
log's length, how much of it is gone, how much the cleaner wants to be gone (0 for nothing).  Then of each replica: active,
lost, has taken over a pointer, serves; entries that it has executed.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_published.packed.bits import get, put
from replitree_published.packed.model import Invariant, PackedModel, PackedMutant, Words, label


class MendedCleaningLimits(NamedTuple):
    """How large the world is; `mutant` is one of the numbers below."""

    replicas: int = 3
    records: int = 4
    mutant: int = 0


(
    NO_MUTANT, REMOVED_UNCHECKED, LAST_GOOD_MARKED, CLONE_FROM_LOST, RECOVERING_NOT_KEPT_FOR, NOT_MARKED, MARKED_THOUGH_BACK,
    CLONE_FORGOTTEN,
) = range(8)  # fmt: skip

ACTIONS = (
    "Insert", "Leave", "Return", "Execute", "Mark", "Join", "Look", "Remove", "GiveUp", "CloneBegin", "CloneEnd",
    "LegitimateTermination",
)  # fmt: skip
INSERT, LEAVE, RETURN, EXECUTE, MARK, JOIN, LOOK, REMOVE, GIVE_UP, CLONE_BEGIN, CLONE_END, TERMINATE = range(12)

NARROW, WIDE = 4, 16
"""Bits of a number: what the search has room for, and what the bridge needs, which has no use for compiled words."""

CHANGED = 1
ACTIVE, LOST, CLONING, SERVES, FLAGS = 1, 2, 4, 8, 4
LOW, BLOCK = 1 + 3 * NARROW, FLAGS + NARROW


def width(limits: MendedCleaningLimits) -> int:
    """Return the bits of a number."""
    return NARROW if limits.records < 1 << NARROW else WIDE


def number(state: int, limits: MendedCleaningLimits, which: int) -> int:
    """Return a number of the table: 0 the log's length, 1 how much of it is gone, 2 how much is wanted to be."""
    return get(state, 1 + which * width(limits), width(limits))


def with_number(state: int, limits: MendedCleaningLimits, which: int, value: int) -> int:
    """Return the state with another number of the table."""
    return put(state, 1 + which * width(limits), width(limits), value)


def block_of(state: int, limits: MendedCleaningLimits, replica: int) -> int:
    """Return the bits of one replica."""
    size = width(limits)
    return get(state, 1 + 3 * size + replica * (FLAGS + size), FLAGS + size)


def with_block(state: int, limits: MendedCleaningLimits, replica: int, block: int) -> int:
    """Return the state with other bits for one replica."""
    size = width(limits)
    return put(state, 1 + 3 * size + replica * (FLAGS + size), FLAGS + size, block)


def good(state: int, limits: MendedCleaningLimits) -> int:
    """Return how many replicas are not lost."""
    count = 0
    for replica in range(limits.replicas):
        count += int(not block_of(state, limits, replica) & LOST)
    return count


def successors(state: int, limits: MendedCleaningLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    length = number(state, limits, 0)
    if length < limits.records:
        out[at], by[at] = with_number(state, limits, 0, length + 1), label(INSERT, 0, 0)
        at += 1
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        if block & ACTIVE:
            out[at] = with_block(state, limits, replica, block & ~(ACTIVE | SERVES))
            by[at] = label(LEAVE, replica, 0)
            at += 1
        else:
            at = away(state, limits, replica, block, out, by, at)
        if not block & LOST and block >> FLAGS < length:
            out[at] = with_block(state, limits, replica, block + (1 << FLAGS))
            by[at] = label(EXECUTE, replica, 0)
            at += 1
        at = cloning(state, limits, replica, block, out, by, at)
    at = by_cleaner(state, limits, out, by, at)
    if length == limits.records:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


def away(state: int, limits: MendedCleaningLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what becomes of a replica that is away: it returns, is given up or dropped, joins anew while the log is whole."""
    serves = 0 if block & LOST else SERVES
    out[at] = with_block(state | CHANGED, limits, replica, block | ACTIVE | serves)
    by[at] = label(RETURN, replica, 0)
    at += 1
    if block != LOST and (good(state, limits) > int(not block & LOST) or limits.mutant == LAST_GOOD_MARKED):
        out[at], by[at] = with_block(state | CHANGED, limits, replica, LOST), label(MARK, replica, 0)
        at += 1
    if block == LOST and number(state, limits, 1) == 0:
        out[at], by[at] = with_block(state | CHANGED, limits, replica, 0), label(JOIN, replica, 0)
        at += 1
    return at


def cloning(state: int, limits: MendedCleaningLimits, replica: int, block: int, out: Words, by: Words, at: int) -> int:
    """Write what a replica does that is lost: take over the pointer of a good one, and be good when all is copied."""
    if limits.mutant == MARKED_THOUGH_BACK and block & SERVES and not block & LOST and good(state, limits) > 1:
        out[at] = with_block(state | CHANGED, limits, replica, ACTIVE | SERVES | LOST)
        by[at] = label(MARK, replica, 0)
        return at + 1
    if not block & LOST or block & SERVES:
        return at
    if block & CLONING:
        serves = SERVES if block & ACTIVE else 0
        out[at] = with_block(state | CHANGED, limits, replica, (block & ~(LOST | CLONING)) | serves)
        by[at] = label(CLONE_END, replica, 0)
        at += 1
    for source in range(limits.replicas):
        there = block_of(state, limits, source)
        if source != replica and (not there & LOST or limits.mutant == CLONE_FROM_LOST):
            taken = block & ACTIVE | LOST | CLONING | there >> FLAGS << FLAGS
            out[at], by[at] = with_block(state | CHANGED, limits, replica, taken), label(CLONE_BEGIN, replica, source)
            at += 1
    return at


def by_cleaner(state: int, limits: MendedCleaningLimits, out: Words, by: Words, at: int) -> int:
    """Write the steps of whoever cleans: look, and want some of what nobody needs to be gone; then remove, or give up."""
    wanted = number(state, limits, 2)
    if wanted == 0:
        for end in range(number(state, limits, 1) + 1, not_needed(state, limits) + 1):
            out[at], by[at] = with_number(state & ~CHANGED, limits, 2, end), label(LOOK, 0, 0)
            at += 1
        return at
    if not state & CHANGED or limits.mutant == REMOVED_UNCHECKED:
        out[at], by[at] = removed(state, limits, wanted), label(REMOVE, 0, 0)
        at += 1
    if state & CHANGED:
        out[at], by[at] = with_number(state, limits, 2, 0), label(GIVE_UP, 0, 0)
        at += 1
    return at


def is_kept_for(block: int) -> bool:
    """Tell whether the log has to have what a replica has not executed: it is good, or active and copies."""
    return not block & LOST or block & (ACTIVE | CLONING) == ACTIVE | CLONING


def not_needed(state: int, limits: MendedCleaningLimits) -> int:
    """Return how many entries nobody needs; 0 when no replica is good."""
    least, some = number(state, limits, 0), 0
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        kept_for = is_kept_for(block)
        if limits.mutant == RECOVERING_NOT_KEPT_FOR:
            kept_for = not block & LOST
        if limits.mutant == NOT_MARKED:
            kept_for = kept_for and block & ACTIVE != 0
        some |= int(not block & LOST)
        if kept_for:
            least = min(least, block >> FLAGS)
    return least if some else 0


def removed(state: int, limits: MendedCleaningLimits, wanted: int) -> int:
    """Return the state after a removal: pointers that are gone say nothing any more of who is lost and away."""
    state = with_number(with_number(state, limits, 2, 0), limits, 1, wanted)
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        away_and_lost = block & (LOST | ACTIVE) == LOST and limits.mutant != CLONE_FORGOTTEN
        if away_and_lost and block >> FLAGS < wanted:
            state = with_block(state, limits, replica, LOST)
    return state


def broken(state: int, limits: MendedCleaningLimits) -> int:
    """Return the invariants that don't hold."""
    gone, found = number(state, limits, 1), int(good(state, limits) == 0) << 1
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        if is_kept_for(block) and block >> FLAGS < gone:
            found |= 1
        if block & SERVES and block & LOST:
            found |= 4
    return found


def seen(state: int, limits: MendedCleaningLimits) -> int:
    """Return the probes that hold; see the model's names."""
    wanted = number(state, limits, 2)
    found = int(number(state, limits, 1) != 0) | int(wanted != 0 and state & CHANGED != 0) << 1
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        found |= int(block & LOST != 0) << 2 | int(block & CLONING != 0) << 3
        found |= int(block & CLONING != 0 and wanted != 0) << 4
    return found


def initial(limits: MendedCleaningLimits) -> int:
    """Return the first state: an empty log, everybody serves."""
    state = 0
    for replica in range(limits.replicas):
        state = with_block(state, limits, replica, ACTIVE | SERVES)
    return state


def describe(state: int, limits: MendedCleaningLimits) -> str:
    """Say a state in words."""
    length, gone, wanted = (number(state, limits, which) for which in range(3))
    said = [f"log of {length}, {gone} gone, {wanted} to go"]
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        marks = "".join(
            word for bit, word in ((LOST, " lost"), (CLONING, " clones"), (SERVES, " serves")) if block & bit
        )
        said.append(f"r{replica + 1} at {block >> FLAGS}{'' if block & ACTIVE else ' away'}{marks}")
    return "; ".join(said)


VALID, ONE_GOOD, SERVES_GOOD = "ValidLogPointer", "OneIsGood", "WhoServesIsGood"

MODEL = PackedModel(
    name="mended/truncate-log",
    description="log cleaning in two steps, with replicas that are lost, come back, and recover while the log goes on",
    limits=MendedCleaningLimits(),
    most={"replicas": 6, "records": 15},
    actions=ACTIONS,
    invariants=(
        Invariant(VALID, "what a replica that is good, or active and copies, needs next is not gone", needs="cleaned"),
        Invariant(ONE_GOOD, "at least one replica is not lost", needs="lost"),
        Invariant(SERVES_GOOD, "who serves is not lost", needs="lost"),
    ),
    asked=(VALID, ONE_GOOD, SERVES_GOOD),
    probes=("cleaned", "came back since the look", "lost", "cloning", "cloning during a cleaning"),
    required=("came back since the look", "cloning during a cleaning"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("removed-unchecked", VALID, 9, {"mutant": REMOVED_UNCHECKED}),
        PackedMutant("last-good-marked", ONE_GOOD, 7, {"mutant": LAST_GOOD_MARKED}),
        PackedMutant("clone-from-lost", VALID, 11, {"mutant": CLONE_FROM_LOST}),
        PackedMutant("recovering-not-kept-for", VALID, 10, {"mutant": RECOVERING_NOT_KEPT_FOR}),
        PackedMutant("not-marked", VALID, 7, {"mutant": NOT_MARKED}),
        PackedMutant("marked-though-back", SERVES_GOOD, 2, {"mutant": MARKED_THOUGH_BACK}),
        PackedMutant("clone-forgotten", VALID, 10, {"mutant": CLONE_FORGOTTEN}),
    ),
)
