"""Replication as queues execute it: entries in any order, merges and drops by anybody, replicas and parts that are lost.

`replitree_published.bridge` holds our procedures to this.  So it leaves open what they decide: what is merged, mutated (a
merge of one part) or dropped, as long as the log has it at its end; who is lost and when.  Nobody has the result of a
merge at once.

A replica *brings* a part, and what that covers goes: it makes it of what it has, or gets it from whoever has it or a later
form of it (old parts stay for a while); who inserts has the part from then on.  It may *let go* of what the log drops.  It
*executes* an entry, in any order, when nothing is left to do for it: the part is here in some form, or dropped later in the
log; what a drop removes is not here, and no insert of it is waiting.  So what it has and what it has still to execute give the
table at any time.

Who is *lost* may have sent a part to somebody just before it let go of it.  Who *recovers* has what it has brought, and counts
as executed what that allows.

A part may be *broken* on a replica, and whole again.  It is declared lost when nobody else has anything of it that is not
broken; from then on nothing that was made of it is whole by itself: it is made anew, of the empty part, or got from others.
"""

from __future__ import annotations

from replitree_published.packed.bits import highest, ones
from replitree_published.packed.model import Invariant, PackedModel, PackedMutant, Words, label, numbers
from replitree_published.packed.models.replication_log import (
    BLOCK,
    DROP,
    LEFT,
    LOSE,
    LOW,
    NARROW,
    PART,
    REGRET,
    QueueLimits,
    appended,
    block_of,
    block_with,
    broken_in,
    covered_by,
    current,
    done_in,
    dropped,
    has_in,
    inserts_in,
    is_lost,
    kind_of,
    length_of,
    lineages,
    lost,
    parts_in,
    restored,
    sources_of,
    together,
    whole_in,
    with_block,
)

(
    NO_MUTANT, INSERT_COMES_BACK, MERGE_OF_TAKEN, ROLLED_BACK, SOURCES_STAY, NOT_DONE, DROPPED_COMES_BACK, DROP_AT_ONCE,
    LOST_THOUGH_THERE, RECOVERED_TOO_EARLY,
) = range(10)  # fmt: skip

ACTIONS = (
    "Insert", "Merge", "Mutate", "Drop", "Lose", "Bring", "LetGo", "Break", "Mend", "Execute", "Mark", "Recover",
    "LegitimateTermination",
)  # fmt: skip
INSERT, MERGE, MUTATE, DROP_PARTS, LOSE_PART, BRING, LET_GO, BREAK, MEND, EXECUTE, MARK, RECOVER, TERMINATE = range(13)


def successors(state: int, limits: QueueLimits, out: Words, by: Words, at: int) -> int:
    """Write every successor; see `model`."""
    length, found = length_of(state), lineages(state, limits)
    if length < limits.records:
        at = inserted(state, limits, out, by, at)
        at = changed(state, limits, out, by, at)
        at = declared(state, limits, found, out, by, at)
    for replica in range(limits.replicas):
        at = held(state, limits, replica, found, out, by, at)
        at = damaged(state, limits, replica, found, out, by, at)
        at = executed(state, limits, replica, found, out, by, at)
    if length == limits.records:
        out[at], by[at] = state, label(TERMINATE, 0, 0)
        at += 1
    return at


# --- what is appended ---------------------------------------------------------------------------------------------------------


def inserted(state: int, limits: QueueLimits, out: Words, by: Words, at: int) -> int:
    """Write an insert of each replica."""
    part = 0 if limits.mutant == ROLLED_BACK else 1 << length_of(state)
    for replica in range(limits.replicas):
        after = appended(state, limits, PART, 0)
        out[at] = with_block(after, limits, replica, block_of(state, limits, replica) | part)
        by[at] = label(INSERT, replica, 0)
        at += 1
    return at


def changed(state: int, limits: QueueLimits, out: Words, by: Words, at: int) -> int:
    """Write a merge and a drop of any current parts, and a mutation of each."""
    there = current(state, limits)
    drops = there
    if limits.mutant == MERGE_OF_TAKEN:
        there = parts_in(state, limits)
    sources = there
    while sources:
        out[at] = appended(state, limits, PART, sources)
        by[at] = label(MUTATE if sources & (sources - 1) == 0 else MERGE, 0, 0)
        at += 1
        sources = (sources - 1) & there
    while drops:
        out[at], by[at] = appended(state, limits, DROP, drops), label(DROP_PARTS, 0, 0)
        at += 1
        drops = (drops - 1) & current(state, limits)
    return at


def declared(state: int, limits: QueueLimits, found: int, out: Words, by: Words, at: int) -> int:
    """Write the loss of each part that counts, in some form, declared by each replica that may.

    What it has staged of the part itself it knows to be gone.
    """
    counts = together(found, limits, current(state, limits))
    for part in range(length_of(state)):
        for replica in range(limits.replicas):
            if not counts >> part & 1:
                continue
            block, there = block_of(state, limits, replica), elsewhere(state, limits, replica, part, found)
            if there and limits.mutant != LOST_THOUGH_THERE:
                continue
            staged = 1 << part & staged_in(state, limits, block)
            after = appended(state | (REGRET if there else 0), limits, LOSE, 1 << part)
            out[at], by[at] = with_block(after, limits, replica, block & ~staged), label(LOSE_PART, replica, part)
            at += 1
    return at


def staged_in(state: int, limits: QueueLimits, block: int) -> int:
    """Return the inserts that a replica has and has not executed: only their writer has them so."""
    return whole_in(block, limits) & inserts_in(state, limits) & ~done_in(block, limits)


def elsewhere(state: int, limits: QueueLimits, declares: int, part: int, found: int) -> bool:
    """Tell whether anybody has anything whole that covers a part or is covered by it; of itself the replica that asks knows."""
    below = covered_by(found, limits, part)
    for replica in range(limits.replicas):
        whole = whole_in(block_of(state, limits, replica), limits)
        if replica == declares:
            whole &= ~(1 << part & staged_in(state, limits, block_of(state, limits, replica)))
        if whole & below or together(found, limits, whole) >> part & 1:
            return True
    return False


# --- what replicas have -------------------------------------------------------------------------------------------------------


def held(state: int, limits: QueueLimits, replica: int, found: int, out: Words, by: Words, at: int) -> int:
    """Write what a replica can bring and what it can let go of; and that it is lost, or good again."""
    block, parts = block_of(state, limits, replica), parts_in(state, limits)
    has, away = has_in(block, limits), is_lost(block, limits)
    free = has if away else has & dropped(state, limits, found, (1 << length_of(state)) - 1)
    for part in range(length_of(state)):
        if parts >> part & 1 and can_bring(state, limits, replica, part, found):
            gone = 1 << part if limits.mutant == SOURCES_STAY else covered_by(found, limits, part)
            out[at] = with_block(state, limits, replica, without(block, limits, gone) | 1 << part)
            by[at] = label(BRING, replica, 0)
            at += 1
        if free >> part & 1:
            left = 0 if has_others(state, limits, replica, part, found) else LEFT
            out[at] = with_block(state | left, limits, replica, without(block, limits, 1 << part))
            by[at] = label(LET_GO, replica, 0)
            at += 1
    done = done_in(block, limits)
    if away and limits.mutant == RECOVERED_TOO_EARLY:
        done = (1 << length_of(state)) - 1
    after = block_with(limits, has, broken_in(block, limits), done if away else 0, int(not away))
    out[at], by[at] = with_block(state, limits, replica, after), label(RECOVER if away else MARK, replica, 0)
    return at + 1


def has_others(state: int, limits: QueueLimits, replica: int, part: int, found: int) -> bool:
    """Tell whether a part counts no more, or another replica has it in some form."""
    there = ~together(found, limits, current(state, limits))
    for other in range(limits.replicas):
        if other != replica:
            there |= together(found, limits, has_in(block_of(state, limits, other), limits))
    return there >> part & 1 != 0


def without(block: int, limits: QueueLimits, parts: int) -> int:
    """Return the bits of a replica without some parts."""
    return block & ~block_with(limits, parts, parts, 0, 0)


def can_bring(state: int, limits: QueueLimits, replica: int, part: int, found: int) -> bool:
    """Tell whether a replica can have a part that it has in no form, and has not dropped."""
    block = block_of(state, limits, replica)
    has = has_in(block, limits)
    covered = has if limits.mutant == INSERT_COMES_BACK else together(found, limits, has)
    if covered >> part & 1:
        return False
    if dropped(state, limits, found, done_in(block, limits)) >> part & 1 and limits.mutant != DROPPED_COMES_BACK:
        return False
    if (dropped(state, limits, found, (1 << length_of(state)) - 1) | lost(state, limits)) >> part & 1:
        return True
    sources, is_tainted = sources_of(state, part), lost(state, limits) & covered_by(found, limits, part) != 0
    if sources and sources & ~(whole_in(block, limits) if is_tainted else has) == 0:
        return True
    return can_be_sent(state, limits, part, found, is_tainted)


def can_be_sent(state: int, limits: QueueLimits, part: int, found: int, is_tainted: bool) -> bool:
    """Tell whether somebody has a part or a later form of it, or may have sent it before it was lost.

    Of what was made of a lost part only what is whole counts: it was made anew.
    """
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        holds = whole_in(block, limits) if is_tainted else has_in(block, limits)
        if is_lost(block, limits) or together(found, limits, holds) >> part & 1:
            return True
    return False


def damaged(state: int, limits: QueueLimits, replica: int, found: int, out: Words, by: Words, at: int) -> int:
    """Write that a part breaks, or is whole again: its files were found, or what is made of a lost one was made anew."""
    block = block_of(state, limits, replica)
    has, bad = has_in(block, limits), broken_in(block, limits)
    for part in range(length_of(state)):
        if not has >> part & 1:
            continue
        flip = block_with(limits, 0, 1 << part, 0, 0)
        if not bad >> part & 1:
            out[at], by[at] = with_block(state, limits, replica, block | flip), label(BREAK, replica, 0)
            at += 1
        elif can_mend(state, limits, part, found):
            out[at], by[at] = with_block(state, limits, replica, block & ~flip), label(MEND, replica, 0)
            at += 1
    return at


def can_mend(state: int, limits: QueueLimits, part: int, found: int) -> bool:
    """Tell whether a broken part can be whole again; nobody who is lost has to send it."""
    gone = lost(state, limits)
    if gone & covered_by(found, limits, part) == 0 or gone >> part & 1:
        return True
    for replica in range(limits.replicas):
        whole = whole_in(block_of(state, limits, replica), limits)
        if together(found, limits, whole) >> part & 1:
            return True
    return False


def executed(state: int, limits: QueueLimits, replica: int, found: int, out: Words, by: Words, at: int) -> int:
    """Write which entries leave a replica's queue."""
    block = block_of(state, limits, replica)
    if is_lost(block, limits):
        return at
    for entry in range(length_of(state)):
        done = block_with(limits, 0, 0, 1 << entry, 0)
        if not block & done and is_finished(state, limits, block, entry, found):
            out[at], by[at] = with_block(state, limits, replica, block | done), label(EXECUTE, replica, entry)
            at += 1
    return at


def is_finished(state: int, limits: QueueLimits, block: int, entry: int, found: int) -> bool:
    """Tell whether nothing is left to do for an entry."""
    if limits.mutant == NOT_DONE:
        return True
    kind, gone = kind_of(state, limits, entry), dropped(state, limits, found, (1 << length_of(state)) - 1)
    if kind == PART:
        return (together(found, limits, has_in(block, limits)) | gone) >> entry & 1 != 0
    sources = sources_of(state, entry)
    if kind == LOSE:
        return sources & ~(together(found, limits, whole_in(block, limits)) | gone) == 0
    removed = together(found, limits, sources)
    if removed & has_in(block, limits):
        return False
    waits = removed & inserts_in(state, limits) & ~done_in(block, limits)
    return waits == 0 or limits.mutant == DROP_AT_ONCE


# --- what is asked of states --------------------------------------------------------------------------------------------------


def broken(state: int, limits: QueueLimits) -> int:
    """Return the invariants that don't hold."""
    found, bad, away = lineages(state, limits), 0, state & LEFT != 0
    there, kept = current(state, limits), together(found, limits, lost(state, limits))
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        has = has_in(block, limits)
        away |= is_lost(block, limits)
        bad |= int(not is_lost(block, limits) and restored(state, limits, found, block) != there)
        bad |= has_twice(has, limits, found) << 1
        kept |= together(found, limits, has)
    needed = together(found, limits, there) & inserts_in(state, limits)
    bad |= int(not away and needed & ~kept != 0) << 2
    return bad | int(state & REGRET != 0) << 3


def has_twice(has: int, limits: QueueLimits, found: int) -> int:
    """Tell (1 or 0) whether some row is in two of these parts."""
    rows, part = 0, 0
    while has:
        if has & 1:
            covers = covered_by(found, limits, part)
            if rows & covers:
                return 1
            rows |= covers
        has >>= 1
        part += 1
    return 0


def seen(state: int, limits: QueueLimits) -> int:
    """Return the probes that hold; see the model's names."""
    length = length_of(state)
    rest, early, away, merged, drops, losses = int(length > 0), 0, 0, 0, 0, 0
    for entry in range(length):
        kind = kind_of(state, limits, entry)
        merged |= int(kind == PART and ones(sources_of(state, entry)) > 1)
        drops |= int(kind == DROP)
        losses |= int(kind == LOSE)
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        done = done_in(block, limits)
        rest &= int(done == (1 << length) - 1)
        early |= int(done & (done + 1) != 0)
        away |= int(is_lost(block, limits) and has_in(block, limits) != 0)
    return rest | merged << 1 | early << 2 | (rest & drops) << 3 | (rest & losses) << 4 | away << 5


def initial(limits: QueueLimits) -> int:
    """Return the first state: an empty log, no parts."""
    return 0


def describe(state: int, limits: QueueLimits) -> str:
    """Say a state in words."""
    entries = [_entry(state, limits, entry) for entry in range(length_of(state))]
    said = [f"log {', '.join(entries) or 'empty'}"]
    for replica in range(limits.replicas):
        block = block_of(state, limits, replica)
        bad = broken_in(block, limits)
        words = [f"r{replica + 1} {'lost, ' if is_lost(block, limits) else ''}has {numbers(has_in(block, limits))}"]
        words += [f"of that {numbers(bad)} broken"] if bad else []
        said.append(f"{', '.join(words)}, executed {numbers(done_in(block, limits))}")
    return "; ".join(said)


def _entry(state: int, limits: QueueLimits, entry: int) -> str:
    kind, sources = kind_of(state, limits, entry), sources_of(state, entry)
    if kind == PART:
        return numbers(sources) if sources else "insert"
    return f"drop {numbers(sources)}" if kind == DROP else f"{highest(sources)} is lost"


RESTORED, NO_DUP, DURABLE, PROVEN = "TableRestored", "NoDup", "Durable", "LossProven"

MODEL = PackedModel(
    name="mended/replication-queues",
    description="replication as queues execute it: merges, mutations, drops, lost parts and lost replicas",
    limits=QueueLimits(),
    most={"replicas": 3, "records": NARROW},
    actions=ACTIONS,
    invariants=(
        Invariant(RESTORED, "what a replica has and has still to execute gives the table of the log", needs="at rest"),
        Invariant(NO_DUP, "no replica has a row in two parts", needs="merged"),
        Invariant(DURABLE, "the rows of every insert are on some replica, or were given up"),
        Invariant(PROVEN, "nothing is declared lost that somebody has", needs="lost for good"),
    ),
    asked=(RESTORED, NO_DUP, DURABLE, PROVEN),
    probes=("at rest", "merged", "out of order", "dropped", "lost for good", "lost with parts"),
    required=("out of order", "dropped", "lost for good", "lost with parts"),
    successors=successors,
    broken=broken,
    seen=seen,
    blocks=(LOW, BLOCK),
    initial=initial,
    describe=describe,
    mutants=(
        PackedMutant("insert-comes-back", NO_DUP, 5, {"mutant": INSERT_COMES_BACK}, (NO_DUP,)),
        PackedMutant("merge-of-taken", NO_DUP, 7, {"mutant": MERGE_OF_TAKEN}, (NO_DUP,)),
        PackedMutant("forgotten", RESTORED, 3, {"mutant": NOT_DONE}),
        PackedMutant("rolled-back", DURABLE, 2, {"mutant": ROLLED_BACK}),
        PackedMutant("sources-stay", NO_DUP, 4, {"mutant": SOURCES_STAY}, (NO_DUP,)),
        PackedMutant("dropped-comes-back", RESTORED, 6, {"mutant": DROPPED_COMES_BACK}),
        PackedMutant("drop-at-once", RESTORED, 4, {"mutant": DROP_AT_ONCE}),
        PackedMutant("lost-though-there", PROVEN, 3, {"mutant": LOST_THOUGH_THERE}),
        PackedMutant("recovered-too-early", RESTORED, 4, {"mutant": RECOVERED_TOO_EARLY}),
    ),
    fan_out=192,
)
