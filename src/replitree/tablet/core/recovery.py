"""Which entries of the log count: what a candidate finds out when its fence holds.

1. Find the latest entry.  It names the confirmed snapshot, and the confirmed step of its own generation.
2. Read the entries between the snapshot and that step: they must exist.  Read the later ones, the *tail*, and restore them.
3. Walk from the latest generation back to the snapshot's along the zero entries.  Each says which entries of its predecessor
   count.  An entry outside this walk was given up by a later leader, and never counts.
4. Go through the entries in order.  An entry of the tail counts when its references exist and every entry that it depends on
   counts.  A snapshot replaces all entries before it, so a missing entry before it does no harm.

The zero entry of the new generation (`zero.zero_of`) fixes the result.  It is stored before any client is answered from it.

A recovery ends with `RecoveredLog`, or with the reason why it failed: an entry that must exist does not, a member's answer is
not known, or a later candidate has a higher fence.  A failed recovery has changed the fence and restored some copies, no more;
it may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from replitree.tablet.core.channels import Channels, overlapping
from replitree.tablet.core.entries import Entry, LogEntry, ZeroEntry, decode
from replitree.tablet.core.envelope import BadEntry
from replitree.tablet.core.zero import Verdict, last_step, verdict
from replitree.tablet.group.effects import Blobs, Discover, Fence, NotKnown, Overtaken, Procedure, Range, ReadBlobs
from replitree.tablet.group.ids import (
    COOKIE_MAX,
    ENTRY,
    LOG,
    NOTHING,
    STEP_MAX,
    BlobId,
    Cookie,
    Generation,
    GenStep,
    GroupId,
    Step,
    TabletId,
    log_entry,
)

FIRST = Generation(1)

Accepted: TypeAlias = tuple[tuple[GenStep, LogEntry], ...]
"""Entries that count, in order, from the last snapshot on."""


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """The log is known.

    Attributes
    ----------
    accepted
        What counts.
    declined
        Steps of the tail that were found and do not count.
    """

    accepted: Accepted
    declined: tuple[GenStep, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingEntries:
    """Entries that were confirmed can't be found, and no later snapshot takes their place: an operator must look.

    `readable`: what counts before the first of them.
    """

    places: tuple[GenStep, ...]
    readable: Accepted = field(default=(), compare=False)


RecoveryFailed: TypeAlias = MissingEntries | Overtaken | NotKnown


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest entry, and what it says: the snapshot, and up to where its generation is confirmed."""

    blob: BlobId
    entry: Entry

    @property
    def confirmed(self) -> GenStep:
        """The last place that must be there."""
        step = Step(0) if isinstance(self.entry, ZeroEntry) else self.entry.confirmed
        return GenStep(self.blob.generation, step)


@dataclass(frozen=True, slots=True)
class LogAsRead:
    """A log as it was read: the zero entries by generation, and the others by place."""

    latest: Latest
    zeros: Mapping[Generation, ZeroEntry]
    entries: Mapping[GenStep, LogEntry]


def recover(channels: Channels, fence: Fence | None) -> Procedure[RecoveredLog | RecoveryFailed]:
    """Find out which entries count.

    Parameters
    ----------
    channels
        Whose log, and where it lies.
    fence
        What the candidate has fenced: the generation before its own.  None: the log is only read, and nothing is restored;
        while a leader writes, the result may be in doubt.
    """
    latest = yield from find_latest(channels, fence)
    if latest is None:
        return RecoveredLog(())
    if not isinstance(latest, Latest):
        return latest
    # A later leader wrote after this candidate chose its generation.
    if fence is not None and latest.blob.generation > fence.generation:
        return Overtaken(latest.blob.generation)
    log = yield from _read_log(channels, fence, latest)
    if not isinstance(log, LogAsRead):
        return log
    chain = chain_of(log)
    if isinstance(chain, NotKnown):
        return chain
    present = yield from _present_references(channels, fence, log)
    if not isinstance(present, frozenset):
        return present
    return build(log, chain, present)


def find_latest(channels: Channels, fence: Fence | None) -> Procedure[Latest | Overtaken | NotKnown | None]:
    """Find the latest entry of the log, going from the newest group to the oldest.

    A doubt in a group ends the search: what an older one has is not the latest.
    """
    for interval in reversed(channels.intervals()):
        first = _log_id(channels.tablet, GenStep(interval.first, Step(0)), ENTRY)
        found = yield Discover(interval.group, first, fence)
        if not isinstance(found, Blobs):
            answer: Overtaken | NotKnown = found
            return answer
        for blob, data in found.found:
            # A group that comes again may hold blobs of an earlier time, which lie in another interval.
            if interval.first <= blob.generation:
                entry = _decoded(blob, data)
                return entry if isinstance(entry, NotKnown) else Latest(blob, entry)
    return None


def _log_id(tablet: TabletId, place: GenStep, cookie: Cookie) -> BlobId:
    return BlobId(tablet, LOG, place.generation, place.step, cookie)


def _decoded(blob: BlobId, data: bytes) -> Entry | NotKnown:
    try:
        return decode(blob, data)
    except BadEntry as error:
        return NotKnown(str(error))


def _read_log(channels: Channels, fence: Fence | None, latest: Latest) -> Procedure[LogAsRead | Overtaken | NotKnown]:
    """Read what must be there as it is, and the tail with restoring."""
    snapshot, confirmed = latest.entry.snapshot, latest.confirmed
    pieces = [(snapshot, confirmed, False)]
    if latest.blob.step > confirmed.step:
        # Only the tail is restored: what is confirmed has its copies.
        pieces.append((GenStep(confirmed.generation, Step(confirmed.step + 1)), latest.blob.place, True))
    blobs: list[tuple[BlobId, bytes]] = []
    doubtful: list[BlobId] = []
    for first, last, restore in pieces:
        for each in overlapping(channels.intervals(), first, last):
            begin = max(first, GenStep(each.first, Step(0)))
            end = min(last, GenStep(each.last, Step(STEP_MAX)))
            ids = _log_id(channels.tablet, begin, ENTRY), _log_id(channels.tablet, end, Cookie(COOKIE_MAX))
            found = yield Range(each.group, *ids, fence, restore)
            if not isinstance(found, Blobs):
                answer: Overtaken | NotKnown = found
                return answer
            blobs += found.found
            doubtful += found.doubtful
    return log_of(latest, blobs, doubtful)


def log_of(
    latest: Latest, blobs: Sequence[tuple[BlobId, bytes]], doubtful: Sequence[BlobId] = ()
) -> LogAsRead | NotKnown:
    """Return a log of the entries that were found, up to the latest; sync entries say no more than that one.

    The zero entry of the first generation counts as found if it is damaged: nothing is before it, and it says nothing else.
    """
    zeros, entries = dict[Generation, ZeroEntry](), dict[GenStep, LogEntry]()
    if first_zero(latest.blob.tablet) in doubtful:
        zeros[FIRST] = ZeroEntry(NOTHING, NOTHING)
    for blob, data in blobs:
        # A sync entry says no more than the latest entry, which was found already.
        if blob.cookie != ENTRY:
            continue
        entry = _decoded(blob, data)
        match entry:
            case NotKnown():
                return entry
            case ZeroEntry():
                zeros[blob.generation] = entry
            case LogEntry():
                entries[blob.place] = entry
    return LogAsRead(latest, zeros, entries)


def first_zero(tablet: TabletId) -> BlobId:
    """Return the id of the one zero entry that can be done without."""
    return log_entry(tablet, FIRST, Step(0))


def chain_of(log: LogAsRead) -> tuple[Generation, ...] | NotKnown:
    """Return the generations that count, oldest first: from the latest back along the zero entries, to the snapshot's."""
    snapshot = log.latest.entry.snapshot
    generation = log.latest.blob.generation
    chain = [generation]
    while generation in log.zeros and generation != snapshot.generation:
        previous = log.zeros[generation].predecessor.generation
        # The first generation follows none.
        if previous == 0:
            break
        if previous < snapshot.generation or previous >= generation:
            return NotKnown(f"generation {generation} follows {previous}, which is before the snapshot at {snapshot}")
        chain.append(previous)
        generation = previous
    return tuple(reversed(chain))


def _present_references(
    channels: Channels, fence: Fence | None, log: LogAsRead
) -> Procedure[frozenset[BlobId] | Overtaken | NotKnown]:
    """Look for the references of the tail, and restore them: an entry counts only with all of its own."""
    wanted, confirmed = dict[GroupId, list[BlobId]](), log.latest.confirmed
    for place, entry in log.entries.items():
        # Of the latest generation only: what earlier ones left in doubt their successors have decided.
        if entry.references and place > confirmed and place.generation == confirmed.generation:
            for blob in own_references(channels.tablet, entry):
                wanted.setdefault(channels.group(blob.channel, blob.generation), []).append(blob)
    present: list[BlobId] = []
    for group, blobs in wanted.items():
        found = yield ReadBlobs(group, tuple(sorted(blobs)), fence, restore=fence is not None)
        if not isinstance(found, Blobs):
            answer: Overtaken | NotKnown = found
            return answer
        present += [blob for blob, _ in found.found]
    return frozenset(present)


def own_references(tablet: TabletId, entry: LogEntry) -> tuple[BlobId, ...]:
    """Return the blobs of an entry that belong to its own tablet; those of others are not looked at."""
    return tuple(blob for blob in entry.references if blob.tablet == tablet)


# --- which entries count --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Build:
    """The list as it grows: since the last snapshot; what was found missing since; what is known of the tail."""

    floor: Step
    unbroken: Step
    accepted: list[tuple[GenStep, LogEntry]] = field(default_factory=list)
    readable: list[tuple[GenStep, LogEntry]] = field(default_factory=list)
    missing: list[GenStep] = field(default_factory=list)
    declined: list[GenStep] = field(default_factory=list)
    counted: set[Step] = field(default_factory=set)

    def lose(self, place: GenStep) -> None:
        """Take that an entry is missing; of a generation whose zero entry is, it is not known what it follows."""
        # What could be read up to the first entry that is missing: an operator may keep that.
        if not self.missing:
            self.readable = self.accepted
        if not place.step:
            self.readable = self.readable[: sum(each.generation < place.generation for each, _ in self.readable)]
        self.accepted = []
        self.missing.append(place)

    def take(self, place: GenStep, entry: LogEntry) -> None:
        if entry.is_snapshot:
            # A snapshot replaces everything before it, also what is missing.
            self.accepted, self.missing = [], []
        self.accepted.append((place, entry))


def build(log: LogAsRead, chain: tuple[Generation, ...], present: frozenset[BlobId]) -> RecoveredLog | MissingEntries:
    """Go through the entries in order and keep those that count.

    Parameters
    ----------
    log, chain
        What was read; the generations that count.
    present
        The references of the tail that are there.
    """
    confirmed, snapshot = log.latest.confirmed, log.latest.entry.snapshot
    tablet = log.latest.blob.tablet
    whole = frozenset(
        place
        for place, entry in log.entries.items()
        if not entry.references or present.issuperset(own_references(tablet, entry))
    )
    built = _Build(confirmed.step, confirmed.step)
    for generation, follower in zip(chain, (*chain[1:], None), strict=True):
        zero = None if follower is None else log.zeros.get(follower)
        has_snapshot = False
        first = max(snapshot.step, 1) if generation == snapshot.generation else 1
        last = log.latest.blob.step if zero is None else last_step(zero)
        for step in map(Step, range(first, last + 1)):
            place = GenStep(generation, step)
            undecided = Verdict.PRESENT if step <= confirmed.step else Verdict.TAIL
            # The zero entry of the generation after it has decided about each step; of the latest generation none has.
            wanted = undecided if zero is None else verdict(zero, step)
            has_snapshot |= _visit(built, place, log.entries.get(place), wanted, is_whole=place in whole)
        if not has_snapshot and generation not in log.zeros and snapshot not in built.missing:
            built.lose(GenStep(generation, Step(0)))
    if built.missing:
        return MissingEntries(tuple(built.missing), tuple(built.readable))
    return RecoveredLog(tuple(built.accepted), tuple(built.declined))


def _visit(built: _Build, place: GenStep, entry: LogEntry | None, wanted: Verdict, *, is_whole: bool) -> bool:
    """Judge one step; tell whether it is a snapshot that counts."""
    if wanted is Verdict.IGNORED or (wanted is Verdict.TAIL and entry is None):
        return False
    if entry is None:
        built.lose(place)
        return False
    if wanted is Verdict.TAIL and not (is_whole and _counts(built, place.step, entry)):
        built.declined.append(place)
        return False
    built.take(place, entry)
    return entry.is_snapshot


def _counts(built: _Build, step: Step, entry: LogEntry) -> bool:
    """Tell whether a whole entry of the tail counts; a snapshot that is not total needs every step before it."""
    follows = all(each <= built.floor or each in built.counted for each in entry.depends_on)
    if not entry.is_total and not (follows and (not entry.is_snapshot or step == built.unbroken + 1)):
        return False
    built.counted.add(step)
    if entry.is_total:
        built.floor = built.unbroken = step
    elif step == built.unbroken + 1:
        built.unbroken = step
    return True
