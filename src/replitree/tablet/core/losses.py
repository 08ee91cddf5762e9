"""An operator's way out when confirmed entries can't be read any more: to accept that they are lost.

The entries before the first unreadable one stay: a state that the tablet once had.  All later entries are given up, readable
ones included, because they depend on the lost ones.  If a snapshot's blobs are gone, or the zero entry of a generation, every
entry that rests on it is given up: the entries that a snapshot replaced may be collected already on some members, which would
refuse to take them again.  (The log can be read without the zero entry of the first generation.)

1. `assess` reads the whole log as it is, and says which entries would stay.  It changes nothing but the fence, if it gets one.
2. With a fence `accept` reads the log again: if anything differs from what the operator agreed to, it does nothing.  Otherwise
   it restores the entries that stay.
3. It stores a record of the loss, the operator, the time and the reason, in a channel that is never collected (`AUDIT`).
4. Its caller waits twice the longest lease that any readable entry carries (`Assessment.lease_ns`), from the moment at which
   the fence held: the entries that stay may carry no lease, and then no later leader would wait for it.
5. The zero entry of a new generation fixes which entries stay, as after every election.  An entry that was given up never
   counts again, even if a disk that has it comes back.

A run that is interrupted between 3 and 5 leaves the record of a loss that did not take place: its generation was never opened.

The caller makes sure that every member answers the reads, except those that the operator gives up (`Quorum.read_min`): a silent
member may have the missing entries.  A member that is given up is not fenced.  A leader that still reaches it may acknowledge
entries that it had sent before; those are given up with the rest, and the record names the member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from replitree.decoding import msgpack_decoder
from replitree.errors import UnsupportedFormat
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.election import NotElected, Prepared, Won, choose_generation, open_generation
from replitree.tablet.core.entries import decode
from replitree.tablet.core.envelope import BadEntry, seal, unseal
from replitree.tablet.core.lease import duration_of
from replitree.tablet.core.mending import Mended, blobs_of, mend
from replitree.tablet.core.recovery import (
    Accepted,
    Latest,
    LogAsRead,
    MissingEntries,
    RecoveredLog,
    build,
    chain_of,
    log_of,
    own_references,
)
from replitree.tablet.group.effects import (
    Blobs,
    CollectedUpTo,
    Fence,
    FenceRaised,
    NotKnown,
    Overtaken,
    Procedure,
    Put,
    RaiseFence,
    Range,
    ReadBarrier,
    ReadBlobs,
    Stored,
)
from replitree.tablet.group.ids import (
    LOG,
    NOTHING,
    BlobId,
    Channel,
    Cookie,
    Generation,
    GenStep,
    GroupId,
    Step,
    first_of,
)
from replitree.tablet.group.quorum import end_of

AUDIT = Channel(2)
"""Where records of accepted losses lie, in the group of the log."""

FORMAT = 1


class LossRecord(msgspec.Struct, frozen=True, array_like=True):
    """A loss that an operator has accepted.

    Attributes
    ----------
    format
        Of the record.
    who, when, why
        As the operator said; the time is UTC, in words.
    kept
        The last entry that stays; 0:0: none does.
    unreadable
        What could not be read, in words.
    given_up
        Entries after the last one that stays, whether they can be read or not.
    away
        Members that were not asked.
    """

    format: int
    who: str
    when: str
    why: str
    kept: GenStep
    unreadable: tuple[str, ...]
    given_up: tuple[GenStep, ...]
    away: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Assessment:
    """The part of a log that would stay, and the part that would not.

    Attributes
    ----------
    accepted
        What would count.
    unreadable
        What can't be read, in words; nothing: there is no loss to accept.
    given_up
        Entries that would not count any more, or never did for sure.
    lease_ns
        The longest lease that an entry speaks of which can be read, in nanoseconds; None: the last leader of whom anything is
        known has none that can.
    """

    accepted: Accepted
    unreadable: tuple[str, ...]
    given_up: tuple[GenStep, ...]
    lease_ns: int | None = 0

    @property
    def kept(self) -> GenStep:
        """The last entry that would stay."""
        return self.accepted[-1][0] if self.accepted else NOTHING


def assess(channels: Channels, fence: Fence | None = None) -> Procedure[Assessment | Overtaken | NotKnown]:
    """Find out what would stay if what can't be read were lost.

    Parameters
    ----------
    channels
        Whose log, and where it lies.
    fence
        What the candidate has fenced; None: the log is only read.
    """
    found, doubtful = list[tuple[BlobId, bytes]](), list[BlobId]()
    begin = first_of(channels.tablet, LOG, NOTHING)
    for group in dict.fromkeys(each.group for each in channels.intervals()):
        answer = yield Range(group, begin, end_of(begin), fence)
        if not isinstance(answer, Blobs):
            refused: Overtaken | NotKnown = answer
            return refused
        found += answer.found
        doubtful += answer.doubtful
    log, flawed = _readable(found, doubtful)
    damaged = sorted({*doubtful, *flawed})
    if log is None:
        return Assessment((), _named(damaged), tuple(blob.place for blob in damaged), None if damaged else 0)
    looked = yield from _look_for_references(channels, fence, log)
    if not isinstance(looked, Blobs):
        return looked
    counted = yield from _not_collected(channels, log, *_counted(channels, log, looked))
    if isinstance(counted, NotKnown):
        return counted
    accepted, more = counted
    kept = accepted[-1][0] if accepted else NOTHING
    places = {*log.entries, *(blob.place for blob in damaged if blob.step)}
    tail = [blob for blob in damaged if blob.place > log.latest.confirmed]  # what is confirmed is missed by itself
    given_up = tuple(sorted(place for place in places if place > kept))
    # All entries of a leader speak of its lease, and none makes it longer; a later leader has waited for those before.
    lease: int | None = max((duration_of(entry) for entry in log.entries.values()), default=0)
    newest = max((place.generation for place in log.entries), default=Generation(0))
    others = (
        *(blob.generation for blob in damaged if blob.step),
        *(zero.predecessor[0] for zero in log.zeros.values()),
    )
    # A later leader wrote entries of which none can be read: its lease may be longer than any that can.
    if max(others, default=0) > newest:
        lease = None
    return Assessment(accepted, (*_named(tail), *more), given_up, lease)


def _named(damaged: Sequence[BlobId]) -> tuple[str, ...]:
    return tuple(f"log entry {blob} is damaged" for blob in damaged)


def _readable(
    found: Sequence[tuple[BlobId, bytes]], doubtful: Sequence[BlobId]
) -> tuple[LogAsRead | None, tuple[BlobId, ...]]:
    """Return the log that can be read, up to its last entry, and the entries that are no entries."""
    good, flawed = list[tuple[BlobId, bytes]](), list[BlobId]()
    for blob, data in found:
        try:
            decode(blob, data)
        except BadEntry:
            flawed.append(blob)
        else:
            good.append((blob, data))
    # Nothing can be read, so nothing stays; every damaged entry is given up.
    if not good:
        return None, tuple(flawed)
    log = log_of(Latest(good[-1][0], decode(*good[-1])), good, (*doubtful, *flawed))
    assert isinstance(log, LogAsRead)
    return log, tuple(flawed)


def _look_for_references(
    channels: Channels, fence: Fence | None, log: LogAsRead
) -> Procedure[Blobs | Overtaken | NotKnown]:
    """Read what the entries refer to."""
    wanted, found, doubtful = dict[GroupId, list[BlobId]](), list[tuple[BlobId, bytes]](), list[BlobId]()
    for entry in log.entries.values():
        for blob in own_references(channels.tablet, entry):
            wanted.setdefault(channels.group(blob.channel, blob.generation), []).append(blob)
    for group, names in wanted.items():
        answer = yield ReadBlobs(group, tuple(sorted(names)), fence)
        if not isinstance(answer, Blobs):
            refused: Overtaken | NotKnown = answer
            return refused
        found += answer.found
        doubtful += answer.doubtful
    return Blobs(tuple(found), tuple(doubtful))


def _counted(channels: Channels, log: LogAsRead, looked: Blobs) -> tuple[Accepted, tuple[str, ...]]:
    """Return what would count, and what stands in the way of more: something confirmed, or a doubt about the tail."""
    chain = chain_of(log)
    if isinstance(chain, NotKnown):
        return (), (chain.reason,)
    present = frozenset(blob for blob, _ in looked.found)
    built = build(log, chain, present)
    if isinstance(built, MissingEntries):
        # What was confirmed, and acknowledged perhaps: this is what the operator has to agree to.
        lost = tuple(f"{_named_at(log, place)} was confirmed and is not there" for place in built.places)
        # Or else the snapshot that the latest entry names: nothing that came after it is known to follow from it.
        place = log.latest.entry.snapshot
        named = log.entries.get(place)
        accepted = built.readable or (((place, named),) if named is not None and named.is_snapshot else ())
    else:
        lost, accepted = (), built.accepted
    for number, (place, entry) in enumerate(accepted):
        gone = [blob for blob in own_references(channels.tablet, entry) if blob not in present]
        if gone:
            return accepted[:number], (*lost, f"blob {gone[0]} of {_named_at(log, place)} can't be read")
    tail = [blob for place, entry in log.entries.items() if place > log.latest.confirmed for blob in entry.references]
    return accepted, (*lost, *(f"blob {blob} can't be read" for blob in tail if blob in looked.doubtful))


def _not_collected(
    channels: Channels, log: LogAsRead, accepted: Accepted, more: tuple[str, ...]
) -> Procedure[tuple[Accepted, tuple[str, ...]] | NotKnown]:
    """Return what would stay, and why no more: nothing, if a member was told to delete the begin of it."""
    # Without a later snapshot than what would stay begins with, no leader can have had that collected.
    if not accepted or not any(entry.is_snapshot and place > accepted[0][0] for place, entry in log.entries.items()):
        return accepted, more
    barrier = yield ReadBarrier(channels.group(LOG, accepted[0][0].generation), channels.tablet, LOG)
    if not isinstance(barrier, CollectedUpTo):
        doubt: NotKnown = barrier
        return doubt
    # The begin of what stays, a snapshot or the zero entry of its generation, is above every barrier: members take it again.
    begin, entry = accepted[0]
    if barrier.place < (begin if entry.is_snapshot else GenStep(begin.generation, Step(0))):
        return accepted, more
    # Members that were told to delete what a snapshot has replaced do not take it again, so nothing can stay.
    place = min(
        (place for place, entry in log.entries.items() if entry.is_snapshot and place > barrier.place), default=None
    )
    named = f"a snapshot after {barrier.place}" if place is None else f"the snapshot {place}"
    why = f"{named}, and with it everything before, can't be read, and the log is collected up to {barrier.place}"
    return (), (*more, why)


def _named_at(log: LogAsRead, place: GenStep) -> str:
    """Name an entry; a snapshot by this word, for all before it is lost with it."""
    entry = log.entries.get(place)
    is_snapshot = place == log.latest.entry.snapshot if entry is None else entry.is_snapshot
    return f"the snapshot {place}, and with it everything before," if is_snapshot else f"entry {place}"


# --- to accept it -----------------------------------------------------------------------------------------------------------


def accept(channels: Channels, issuer: str, agreed: Assessment, record: LossRecord) -> Procedure[Won | NotElected]:
    """Give up what was agreed on, and nothing else: open a generation that begins with what stays.  It waits for no lease."""
    prepared = yield from prepare_loss(channels, issuer, agreed, record)
    if isinstance(prepared, NotElected):
        return prepared
    return (yield from open_generation(channels, prepared.generation, prepared.recovered))


def prepare_loss(
    channels: Channels, issuer: str, agreed: Assessment, record: LossRecord
) -> Procedure[Prepared | NotElected]:
    """Do all that has to be done before the zero entry gives up what was agreed on.

    Parameters
    ----------
    channels
        Whose log, and where it lies.
    issuer
        Names this attempt; never used twice.
    agreed
        What the operator was shown.  If less would stay now, nothing is given up.
    record
        What to write down.
    """
    generation = yield from choose_generation(channels)
    if isinstance(generation, NotKnown | Overtaken):
        return NotElected(None, generation)
    fence = Fence(Generation(generation - 1), issuer)
    # In this order: nothing is compared before no leader can write, nothing is written before all is as agreed.
    for step in (
        _raise_fences(channels, fence),
        _compare(channels, fence, agreed),
        _restore_kept(channels, fence, agreed),
        _write_down(channels, generation, record),
    ):
        refused = yield from step
        if refused is not None:
            return NotElected(generation, refused)
    return Prepared(generation, RecoveredLog(agreed.accepted))


def _raise_fences(channels: Channels, fence: Fence) -> Procedure[Overtaken | NotKnown | None]:
    for group in channels.groups():
        fenced = yield RaiseFence(group, channels.tablet, fence)
        if not isinstance(fenced, FenceRaised):
            refused: Overtaken | NotKnown = fenced
            return refused
    return None


def _compare(channels: Channels, fence: Fence, agreed: Assessment) -> Procedure[Overtaken | NotKnown | None]:
    """Read the log again, now that no leader can write."""
    found = yield from assess(channels, fence)
    if not isinstance(found, Assessment):
        return found
    return None if found == agreed else NotKnown("what can be read has changed meanwhile: look again")


def _restore_kept(channels: Channels, fence: Fence, agreed: Assessment) -> Procedure[Overtaken | NotKnown | None]:
    """Store what stays as if it were new: of what was confirmed there may be one copy left."""
    generation = Generation(fence.generation + 1)
    kept = blobs_of(channels.tablet, generation, agreed.accepted)
    found = yield from mend(channels, fence, [blob for blob in kept if blob.generation < generation])
    return None if isinstance(found, Mended) else found


def _write_down(
    channels: Channels, generation: Generation, record: LossRecord
) -> Procedure[Overtaken | NotKnown | None]:
    blob = record_id(channels, generation)
    stored = yield Put(channels.group(LOG, generation), blob, encode_record(blob, record))
    if isinstance(stored, Stored):
        return None
    refused: Overtaken | NotKnown = stored
    return refused


def record_id(channels: Channels, generation: Generation) -> BlobId:
    """Return the id of the record of a loss that the leader of a generation accepted."""
    return BlobId(channels.tablet, AUDIT, generation, Step(0), Cookie(0))


def read_records(channels: Channels) -> Procedure[tuple[tuple[Generation, LossRecord], ...] | Overtaken | NotKnown]:
    """Return every loss that was accepted, and in which generation, oldest first."""
    found = list[tuple[Generation, LossRecord]]()
    first = first_of(channels.tablet, AUDIT, NOTHING)
    for group in dict.fromkeys(each.group for each in channels.intervals()):
        answer = yield Range(group, first, end_of(first))
        if not isinstance(answer, Blobs):
            refused: Overtaken | NotKnown = answer
            return refused
        found += [(blob.generation, decode_record(blob, data)) for blob, data in answer.found]
    return tuple(sorted(found, key=lambda each: each[0]))


def encode_record(blob: BlobId, record: LossRecord) -> bytes:
    """Return the bytes that are stored for a record under its id."""
    return seal(blob, msgspec.msgpack.encode(record))


def decode_record(blob: BlobId, data: bytes) -> LossRecord:
    """Return the record that was stored under an id.

    Raises
    ------
    BadEntry
        It is damaged.
    UnsupportedFormat
        A newer version wrote it.
    """
    try:
        record = msgpack_decoder(LossRecord).decode(unseal(blob, data))
    except msgspec.MsgspecError as error:
        raise BadEntry(f"record {blob} of an accepted loss can't be read: {error}") from error
    if record.format > FORMAT:
        raise UnsupportedFormat(f"record {blob} has format {record.format}, this version knows {FORMAT}: upgrade it")
    return record


def in_words(record: LossRecord) -> Mapping[str, str]:
    """Return a record for people and programs."""
    return {
        "who": record.who,
        "when": record.when,
        "why": record.why,
        "kept": str(record.kept),
        "unreadable": "; ".join(record.unreadable),
        "given_up": ", ".join(str(place) for place in record.given_up),
        "away": ", ".join(f"member {number}" for number in record.away),
    }
