"""Which blobs may be deleted, and when.

*Log.*  When a snapshot is confirmed, the leader deletes entries up to the step that was confirmed when the snapshot was formed,
not up to the snapshot.  A recovery that finds the newest stored entry may be sent to the previous snapshot, and must be able to
show that the newer one counts.

*Data.*  Entries say which blobs they created and which are needed no longer.  A command executes what the entries up to a bound
say: it keeps the blobs that are still needed, and moves the barrier over the others.  The bound is never above

* the last confirmed step: an entry that does not count must not delete anything
* the last snapshot that a *stored* entry names: a recovery may go back to the previous one
* what a reader or a merge holds

The first barrier of a generation is its own begin.  It deletes what earlier generations left behind, except the blobs that
counting entries have created.  Such a blob, once it is needed no longer, goes when the bound has passed the entry that says so.
Until then a recovery reads the entries before that one again, and the blobs that they refer to.

Not every member takes every command, and a member that was ordered to keep a blob may never get the order to delete it: the
leader that knew of the blob is gone, and so is the log.  Therefore each command repeats the earlier orders that have not
reached every member.  After it goes a hard command, up to the first blob that is needed: it deletes every blob below,
whatever a member was ordered to keep.  For this the counting entries must name all blobs that are needed; a snapshot repeats
the names of the older ones.

Commands are numbered within their generation; members ignore older ones, and refuse those of deposed leaders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.commit import Ledger
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.recovery import Accepted
from replitree.tablet.group.effects import Collect, Collected, Collection, NotKnown, Overtaken, Procedure
from replitree.tablet.group.ids import LOG, NOTHING, STEP_MAX, BlobId, Channel, Generation, GenStep, Step, TabletId


@dataclass(frozen=True, slots=True)
class Delta:
    """The blobs that one entry has created and left."""

    place: GenStep
    created: tuple[BlobId, ...]
    left: tuple[BlobId, ...]


@dataclass(frozen=True, slots=True)
class Garbage:
    """A leader's knowledge of the blobs of its data channels.

    Attributes
    ----------
    tablet, generation
        Whose.
    deltas
        What confirmed entries said and no command has taken yet, by place; below the barrier only what they left.
    kept
        What members were told to keep.
    commands
        How many commands there were in this generation.
    barrier
        The last one.
    is_told
        Whether every member has taken the last commands.
    keep, dont_keep
        What those have said that not every member has taken.
    """

    tablet: TabletId
    generation: Generation
    deltas: tuple[Delta, ...] = ()
    kept: frozenset[BlobId] = frozenset()
    commands: int = 0
    barrier: GenStep = NOTHING
    is_told: bool = True
    keep: tuple[BlobId, ...] = ()
    dont_keep: tuple[BlobId, ...] = ()


def inherited(tablet: TabletId, generation: Generation, accepted: Accepted) -> Garbage:
    """Return what a new leader knows: what the entries that count have said."""
    garbage = Garbage(tablet, generation)
    for place, entry in accepted:
        garbage = noted(garbage, place, entry)
    return garbage


def noted(garbage: Garbage, place: GenStep, entry: LogEntry) -> Garbage:
    """Take what a confirmed entry says; entries come in their order."""
    # A blob below the barrier that was not told to be kept may be deleted already.
    below = [blob for blob in entry.gc_discovered if blob.place <= garbage.barrier and blob not in garbage.kept]
    assert not below, f"{below[0]} is below the barrier {garbage.barrier} already"
    if not entry.gc_discovered and not entry.gc_left:
        return garbage
    assert not garbage.deltas or garbage.deltas[-1].place < place
    return replace(garbage, deltas=(*garbage.deltas, Delta(place, entry.gc_discovered, entry.gc_left)))


def bound_of(ledger: Ledger, held: Sequence[GenStep] = ()) -> GenStep:
    """Return up to where deltas may be taken.

    Parameters
    ----------
    ledger
        What is confirmed, and which snapshot a stored entry names.
    held
        Places that a reader or a merge needs to stay as they are.
    """
    # The durable snapshot, not the confirmed one: a recovery goes back to what a stored entry names.
    return min(GenStep(ledger.generation, ledger.confirmed), ledger.snapshot_durable, *held)


def said_again(garbage: Garbage, pending: Sequence[LogEntry]) -> tuple[tuple[BlobId, ...], tuple[BlobId, ...]]:
    """Return what a snapshot must say of blobs, for it takes the place of the entries before it.

    Parameters
    ----------
    garbage
        What the leader knows.
    pending
        The entries before the snapshot that are not confirmed.

    Returns
    -------
    tuple
        The blobs that are needed, and those that are not although some member has not had the order to delete them.
    """
    deltas = [(each.created, each.left) for each in garbage.deltas]
    deltas += [(entry.gc_discovered, entry.gc_left) for entry in pending]
    left = dict.fromkeys((*garbage.dont_keep, *(blob for _, gone in deltas for blob in gone)))
    created = dict.fromkeys((*sorted(garbage.kept), *(blob for new, _ in deltas for blob in new)))
    return tuple(blob for blob in created if blob not in left), tuple(left)


def take(garbage: Garbage, bound: GenStep, channels: Sequence[Channel]) -> tuple[Garbage, tuple[Collection, ...]]:
    """Return the commands that take the deltas up to a bound, two for each channel; nothing if there is nothing to say.

    What was created below the barrier is kept; what was left goes if the bound has passed the entry that says so.
    """
    # A barrier never sinks, and the first one of a generation is its own begin.
    barrier = max(bound, garbage.barrier, GenStep(garbage.generation, Step(0)))
    taken = [delta for delta in garbage.deltas if delta.place <= barrier]
    if barrier == garbage.barrier and garbage.is_told and not any(delta.place <= bound for delta in taken):
        return garbage, ()
    left = dict.fromkeys(blob for delta in taken if delta.place <= bound for blob in delta.left)
    created = dict.fromkeys(blob for delta in taken for blob in delta.created)
    # What an entry created is kept from now on; what it left waits until the bound has passed that entry.
    waiting = tuple(replace(delta, created=()) for delta in taken if delta.place > bound and delta.left)
    keep = dict.fromkeys((*garbage.keep, *(blob for blob in created if blob not in garbage.kept)))
    after = replace(
        garbage,
        deltas=(*waiting, *garbage.deltas[len(taken) :]),
        kept=(garbage.kept | frozenset(created)) - frozenset(left),
        commands=garbage.commands + 2,
        barrier=barrier,
        is_told=False,
        keep=tuple(blob for blob in keep if blob not in left),
        dont_keep=tuple(dict.fromkeys((*garbage.dont_keep, *left))),  # also what this leader never told to keep
    )
    floors = {channel: _floor(after, channel) for channel in channels}
    # Below the floor the hard command deletes everything, so no order has to be repeated there.
    dont_keep = tuple(blob for blob in after.dont_keep if blob.place > floors.get(blob.channel, NOTHING))
    after = replace(after, dont_keep=dont_keep)
    return after, tuple(command for channel in channels for command in _commands(after, channel, floors[channel]))


def _floor(garbage: Garbage, channel: Channel) -> GenStep:
    """Return up to where no blob of a channel is needed, within the barrier."""
    later = (blob for delta in garbage.deltas for blob in delta.created)
    needed = min((blob.place for blob in (*garbage.kept, *later) if blob.channel == channel), default=None)
    if needed is None or needed > garbage.barrier:
        return garbage.barrier
    # Just before the first blob that is needed: the hard command takes no exceptions.
    generation, step = needed
    return GenStep(generation, Step(step - 1)) if step else GenStep(Generation(generation - 1), Step(STEP_MAX))


def _commands(garbage: Garbage, channel: Channel, floor: GenStep) -> tuple[Collection, Collection]:
    """Return what is said of a channel: the barrier, with what is kept, and up to where nothing is."""
    tablet, generation, number = garbage.tablet, garbage.generation, garbage.commands
    keep = tuple(blob for blob in garbage.keep if blob.channel == channel)
    dont_keep = tuple(blob for blob in garbage.dont_keep if blob.channel == channel)
    return (
        Collection(tablet, channel, (generation, number - 1), garbage.barrier, keep, dont_keep),
        Collection(tablet, channel, (generation, number), floor, is_hard=True),
    )


def told(garbage: Garbage) -> Garbage:
    """Take that every member has taken the last commands."""
    return replace(garbage, is_told=True, keep=(), dont_keep=())


def log_collection(ledger: Ledger, number: int) -> Collection | None:
    """Return the command that the last confirmed snapshot allows, the n-th of its generation; None if there was no snapshot."""
    if ledger.barrier is None:
        return None
    return Collection(ledger.tablet, LOG, (ledger.generation, number), ledger.barrier)


def collect(
    channels: Channels, collection: Collection, *, everywhere: bool
) -> Procedure[Collected | Overtaken | NotKnown]:
    """Send a command.

    Parameters
    ----------
    channels
        Where the tablet lies.
    collection
        The command.
    everywhere
        Whether it goes to every group that the channel ever lay in, not only to the last: so do those of a generation until
        one was taken by all of them.
    """
    intervals = channels.intervals(collection.channel)
    groups = tuple(dict.fromkeys(each.group for each in intervals))
    result: Collected | Overtaken | NotKnown = Collected()
    for group in groups if everywhere else (intervals[-1].group,):
        outcome = yield Collect(group, collection)
        if isinstance(outcome, Overtaken):
            return outcome
        # The other groups are asked all the same: each member that takes a command frees room.
        if isinstance(outcome, NotKnown):
            result = outcome
    return result
