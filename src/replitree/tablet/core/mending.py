"""Which blobs a leader restores when it begins, or when a member is back: all that count, on every member that answers.

A recovery restores only the tail.  A member that was away lacks more than that, and any blob may be damaged.  Without the
restoring, the next member that fails could be the last one with a copy.  The leader restores a few blobs at a time, so that
commits and reads get their turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.recovery import Accepted, first_zero, own_references
from replitree.tablet.group.effects import BlobsRestored, Fence, NotKnown, Overtaken, Procedure, Restore
from replitree.tablet.group.ids import BlobId, Generation, GroupId, Step, TabletId, log_entry

BLOBS_AT_ONCE = 256


def blobs_of(tablet: TabletId, generation: Generation, accepted: Accepted) -> tuple[BlobId, ...]:
    """Return what a log needs that a leader of this generation has recovered: entries, their references, zero entries."""
    if not accepted:
        return ()
    needed = {place.generation for place, _ in accepted} | {generation}
    if accepted[0][1].is_snapshot:
        # The snapshot stands for all entries before it, so its generation's zero entry decides nothing any more.
        needed -= {accepted[0][0].generation}
    zeros = (log_entry(tablet, each, Step(0)) for each in sorted(needed))
    entries = (log_entry(tablet, *place) for place, _ in accepted)
    return (*zeros, *entries, *(blob for _, entry in accepted for blob in own_references(tablet, entry)))


@dataclass(frozen=True, slots=True)
class Mended:
    """Everything is stored for good; the members in `lacking`, each with its group, did not say that they have all of it."""

    lacking: tuple[tuple[GroupId, int], ...] = ()


def mend(channels: Channels, fence: Fence, blobs: Sequence[BlobId]) -> Procedure[Overtaken | NotKnown | Mended]:
    """Restore blobs wherever they are missing.

    Parameters
    ----------
    channels
        Where the tablet lies.
    fence
        Of the leader, as it raised it.
    blobs
        Those that count; some may have been collected.
    """
    wanted, lacking = dict[GroupId, list[BlobId]](), dict[tuple[GroupId, int], None]()
    for blob in blobs:
        wanted.setdefault(channels.group(blob.channel, blob.generation), []).append(blob)
    for group, names in wanted.items():
        for begin in range(0, len(names), BLOBS_AT_ONCE):
            # A few at a time: between two requests commits and reads get their turn.
            batch = tuple(sorted(names[begin : begin + BLOBS_AT_ONCE]))
            outcome = yield Restore(group, batch, fence)
            if isinstance(outcome, NotKnown) and outcome.about == first_zero(channels.tablet):  # not needed
                # The first zero entry sorts first, and a log can be read without it.
                outcome = yield Restore(group, batch[1:], fence)
            if not isinstance(outcome, BlobsRestored):
                doubt: Overtaken | NotKnown = outcome
                return doubt
            lacking |= dict.fromkeys((group, number) for number in outcome.lacking)
    return Mended(tuple(lacking))
