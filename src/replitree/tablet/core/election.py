"""From a candidate to a leader.

1. Choose a generation above every fence and every entry, unless the caller assigned one.
2. Fence the earlier generations in every group that any of them wrote to, reference blobs included.  From now on no blob of
   theirs is stored that is not being stored already.
3. Recover the log (`recovery`).
4. Store the zero entry.  Before that no client is answered by this generation.

Any step that does not succeed ends the candidate: `NotElected`, with its generation.  A later candidate takes a higher
generation.  Only the candidate with a fence at the highest generation can store entries; a deposed leader may believe that it
leads until it tries to.

Of two candidates with one generation at most one wins, because a fence has an issuer.  Where there are several groups each
candidate may win one; then both lose.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.entries import ZeroEntry, encode
from replitree.tablet.core.recovery import Latest, MissingEntries, RecoveredLog, find_latest, recover
from replitree.tablet.core.zero import zero_of
from replitree.tablet.group.effects import (
    Fence,
    FencedUpTo,
    FenceRaised,
    NotKnown,
    Overtaken,
    Procedure,
    Put,
    RaiseFence,
    ReadFence,
    Stored,
)
from replitree.tablet.group.ids import GENERATION_MAX, LOG, Generation, Step, log_entry


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that wants to lead a tablet.

    Attributes
    ----------
    channels
        The tablet, and where it lies.
    issuer
        Names this attempt; never used twice.
    assigned
        The generation that the caller assigned to this candidate alone; None: it chooses one.
    floor
        The generation that overtook an earlier attempt; it chooses a higher one.
    """

    channels: Channels
    issuer: str
    assigned: Generation | None = None
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Won:
    """It leads this generation: the log is known, and fixed by the zero entry, which is stored."""

    generation: Generation
    recovered: RecoveredLog
    zero: ZeroEntry


@dataclass(frozen=True, slots=True)
class NotElected:
    """It does not lead, and of this attempt nothing will ever be stored but a zero entry that no client was answered from.

    `generation` is the one that it stood for, or None if it came not so far.
    """

    generation: Generation | None
    reason: MissingEntries | Overtaken | NotKnown


@dataclass(frozen=True, slots=True)
class Prepared:
    """The log is known, and no other candidate can write to it; only the zero entry of this generation is missing."""

    generation: Generation
    recovered: RecoveredLog


def stand(candidate: Candidate) -> Procedure[Won | NotElected]:
    """Become leader, or not."""
    prepared = yield from prepare(candidate)
    if isinstance(prepared, NotElected):
        return prepared
    return (yield from open_generation(candidate.channels, prepared.generation, prepared.recovered))


def prepare(candidate: Candidate) -> Procedure[Prepared | NotElected]:
    """Choose a generation, fence those before it, and recover the log."""
    generation = candidate.assigned
    if generation is None:
        chosen = yield from choose_generation(candidate.channels)
        if isinstance(chosen, NotKnown | Overtaken):
            return NotElected(None, chosen)
        generation = Generation(max(chosen, candidate.floor + 1))
    # Before any fence is raised: a fence at the last generation would end the tablet.
    if generation > GENERATION_MAX:
        return NotElected(generation, NotKnown("all generations of this tablet are used up: make a new tablet"))
    fence = Fence(Generation(generation - 1), candidate.issuer)
    # Every group that any generation wrote to: a channel may have moved since.
    for group in candidate.channels.groups():
        fenced = yield RaiseFence(group, candidate.channels.tablet, fence)
        if not isinstance(fenced, FenceRaised):
            return NotElected(generation, fenced)
    # After all fences: what an earlier leader had sent is stored by now, or refused.
    recovered = yield from recover(candidate.channels, fence)
    if not isinstance(recovered, RecoveredLog):
        return NotElected(generation, recovered)
    return Prepared(generation, recovered)


def open_generation(channels: Channels, generation: Generation, recovered: RecoveredLog) -> Procedure[Won | NotElected]:
    """Store the zero entry, which fixes what counts."""
    zero = zero_of(recovered.accepted)
    blob = log_entry(channels.tablet, generation, Step(0))
    # An unknown outcome ends the candidate: the entry may be found later, and says the same as a recovery would find.
    stored = yield Put(channels.group(LOG, generation), blob, encode(blob, zero))
    if not isinstance(stored, Stored):
        return NotElected(generation, stored)
    return Won(generation, recovered, zero)


def choose_generation(channels: Channels) -> Procedure[Generation | Overtaken | NotKnown]:
    """Return a generation above every fence and entry that can be seen; another candidate may choose the same.

    Every leader fenced its predecessors before it wrote.  So the fences suffice, and the log is read only where there is
    none.
    """
    highest = Generation(0)
    for group in channels.groups():
        known = yield ReadFence(group, channels.tablet)
        assert isinstance(known, FencedUpTo | NotKnown)
        if isinstance(known, NotKnown):
            return known
        if known.is_set:
            # The fence is the generation before its leader's: the leader that raised it may have written already.
            highest = max(highest, Generation(known.generation + 1))
    if highest == 0:
        latest = yield from find_latest(channels, None)
        if isinstance(latest, NotKnown | Overtaken):
            return latest
        highest = latest.blob.generation if isinstance(latest, Latest) else highest
    return Generation(highest + 1)
