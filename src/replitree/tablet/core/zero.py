"""The entry that opens a generation fixes, once and for all, which entries of the generations before it count.

`zero_of` writes down which entries a recovery accepted; `verdict` reads it.  A step beyond the mask never counts, even if a
later reader finds it complete: the recovery found it incomplete, and every later leader must decide the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from replitree.tablet.core.entries import MASK_BITS, LogEntry, ZeroEntry
from replitree.tablet.group.ids import NOTHING, GenStep, Step


class Verdict(Enum):
    """The verdict of the zero entries on a step, before any member is asked for it."""

    PRESENT = "it counts, and must be found"
    IGNORED = "it does not count"
    TAIL = "it counts if it is there, with all that it needs"


def zero_of(accepted: Sequence[tuple[GenStep, LogEntry]]) -> ZeroEntry:
    """Return the entry that fixes a list of accepted entries.

    Parameters
    ----------
    accepted
        The entries from the last snapshot on, in their order.
    """
    if not accepted:
        return ZeroEntry(NOTHING, NOTHING)
    generation = accepted[-1][0].generation
    own = [(place.step, entry) for place, entry in accepted if place.generation == generation]
    first, entry = own[0]
    # Steps before a snapshot are replaced by it: they count as a prefix without a hole.
    prefix = first if first == 1 or entry.is_snapshot else Step(0)
    for step, _ in own:
        if step == prefix + 1:
            prefix = step
    tail = [step for step, _ in own if step > prefix]
    size = own[-1][0] - prefix
    words = [0] * -(-size // MASK_BITS)
    for step in tail:
        bit = step - prefix - 1
        words[bit // MASK_BITS] |= 1 << (bit % MASK_BITS)
    snapshots = [place for place, entry in accepted if entry.is_snapshot]
    return ZeroEntry(snapshots[-1] if snapshots else NOTHING, GenStep(generation, prefix), size, tuple(words))


def verdict(zero: ZeroEntry, step: Step) -> Verdict:
    """Return what a zero entry says of a step of its predecessor."""
    if step <= zero.predecessor.step:
        return Verdict.PRESENT
    bit = step - zero.predecessor.step - 1
    # Beyond the mask: a later reader may find the step complete, and must decide as the recovery did.
    if bit >= zero.tail_steps:
        return Verdict.IGNORED
    counts = zero.tail_mask[bit // MASK_BITS] >> (bit % MASK_BITS) & 1
    return Verdict.PRESENT if counts else Verdict.IGNORED


def last_step(zero: ZeroEntry) -> Step:
    """Return the last step of the predecessor that counts."""
    return Step(zero.predecessor.step + zero.tail_steps)
