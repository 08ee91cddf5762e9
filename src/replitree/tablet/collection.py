"""What may be deleted, and when.

*Log.*  When a snapshot is confirmed, entries go up to the step that was confirmed when the snapshot was formed, not up to
the snapshot: whoever finds the newest stored entry may still be sent to the snapshot before, and must be able to show that the
newer one counts.

*Data.*  Entries say which blobs they created and which nobody needs any more.  A command takes what entries up to a bound have
said: the blobs that are still needed are kept, by the command that moves the barrier over them.  The bound is never above

* the last step that is confirmed: an entry that does not count must not delete anything
* the last snapshot that a *stored* entry names: a recovery may go back to the one before
* what somebody holds: a reader, a merge

The first barrier of a generation is its own begin.  It takes what earlier generations have left behind, but for what the
entries that count say is needed.

Commands are numbered within their generation; members ignore older ones, and refuse those of deposed leaders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replitree.tablet.channels import Channels
from replitree.tablet.commit import Ledger
from replitree.tablet.effects import Collect, Collected, Collection, InDoubt, Overtaken, Procedure
from replitree.tablet.entries import LogEntry
from replitree.tablet.ids import LOG, NOTHING, BlobId, Channel, Generation, GenStep, Step, TabletId
from replitree.tablet.recovery import Accepted


@dataclass(frozen=True, slots=True)
class Delta:
    """What one entry said of blobs."""

    place: GenStep
    created: tuple[BlobId, ...]
    left: tuple[BlobId, ...]


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a leader knows of the blobs of its data channels.

    Attributes
    ----------
    tablet, generation
        Whose.
    deltas
        What confirmed entries said and no command has taken yet, by place.
    kept
        What members were told to keep.
    commands
        How many commands there were in this generation.
    barrier
        The last one.
    """

    tablet: TabletId
    generation: Generation
    deltas: tuple[Delta, ...] = ()
    kept: frozenset[BlobId] = frozenset()
    commands: int = 0
    barrier: GenStep = NOTHING


def inherited(tablet: TabletId, generation: Generation, accepted: Accepted) -> Garbage:
    """Return what a new leader knows: what the entries that count have said."""
    garbage = Garbage(tablet, generation)
    for place, entry in accepted:
        garbage = noted(garbage, place, entry)
    return garbage


def noted(garbage: Garbage, place: GenStep, entry: LogEntry) -> Garbage:
    """Take what a confirmed entry says; entries come in their order."""
    below = [blob for blob in entry.gc_discovered if blob.place <= garbage.barrier and blob not in garbage.kept]
    assert not below, f"{below[0]} is below the barrier {garbage.barrier} already"
    if not entry.gc_discovered and not entry.gc_left:
        return garbage
    assert not garbage.deltas or garbage.deltas[-1].place < place
    return replace(garbage, deltas=(*garbage.deltas, Delta(place, entry.gc_discovered, entry.gc_left)))


def bound_of(ledger: Ledger, durable_snapshot: GenStep, held: Sequence[GenStep] = ()) -> GenStep:
    """Return up to where deltas may be taken.

    Parameters
    ----------
    ledger
        What is confirmed.
    durable_snapshot
        The last snapshot that a stored entry names.
    held
        Places that somebody needs to stay as they are.
    """
    return min(GenStep(ledger.generation, ledger.confirmed), durable_snapshot, *held)


def take(garbage: Garbage, bound: GenStep, channels: Sequence[Channel]) -> tuple[Garbage, tuple[Collection, ...]]:
    """Return the commands, one for each channel, that take the deltas up to a bound; nothing if there is nothing new."""
    barrier = max(bound, GenStep(garbage.generation, Step(0)))
    if barrier <= garbage.barrier:
        return garbage, ()
    taken = [delta for delta in garbage.deltas if delta.place <= barrier]
    created = dict.fromkeys(blob for delta in taken for blob in delta.created)
    left = dict.fromkeys(blob for delta in taken for blob in delta.left)
    keep = tuple(blob for blob in created if blob not in left and blob not in garbage.kept)
    dont_keep = tuple(left)  # also what this leader never told to keep: one before may have
    number = garbage.commands + 1
    commands = tuple(
        Collection(
            garbage.tablet,
            channel,
            (garbage.generation, number),
            barrier,
            tuple(blob for blob in keep if blob.channel == channel),
            tuple(blob for blob in dont_keep if blob.channel == channel),
        )
        for channel in channels
    )
    kept = (garbage.kept | frozenset(keep)) - frozenset(dont_keep)
    deltas = garbage.deltas[len(taken) :]
    return replace(garbage, deltas=deltas, kept=kept, commands=number, barrier=barrier), commands


def log_collection(ledger: Ledger, number: int) -> Collection | None:
    """Return the command that the last confirmed snapshot allows, the n-th of its generation; None if there was no snapshot."""
    if ledger.barrier is None:
        return None
    return Collection(ledger.tablet, LOG, (ledger.generation, number), ledger.barrier)


def collect(channels: Channels, collection: Collection) -> Procedure[Collected | Overtaken | InDoubt]:
    """Send a command: the first of a generation to every group that the channel ever lay in, later ones to the last."""
    intervals = channels.intervals(collection.channel)
    groups = tuple(dict.fromkeys(each.group for each in intervals))
    result: Collected | Overtaken | InDoubt = Collected()
    for group in groups if collection.order[1] == 1 else (intervals[-1].group,):
        outcome = yield Collect(group, collection)
        if isinstance(outcome, Overtaken):
            return outcome
        if isinstance(outcome, InDoubt):
            result = outcome
    return result
