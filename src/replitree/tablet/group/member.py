"""One member of a blob group as a value: the rules that every implementation obeys.

`answer` returns the answer of a member with given `Holdings` to a request, and its holdings afterwards.  A member executes one
request after the other, each atomically: no blob is written between the check of the fence and the write.  A member on a disk
answers after it has written and synced.

* A member refuses a blob whose generation is fenced.  A blob that it already has is stored if the
  bytes are the same, else it is a `Conflict`.
* A request that carries a fence raises it first.  If the member has a higher fence, or an equal one of another issuer, it
  answers `Overtaken`.
* A blob that a candidate restores passes that candidate's own fence, and no other.
* A member refuses a collection whose generation is fenced, and ignores one that is older than the last.
* A blob below a barrier never comes back: the member answers `Swept` and writes nothing.
* A blob with damaged bytes is listed as damaged until it is restored.

(Barriers and flags are those of YDB's distributed storage.  Here each copy fences itself before it answers a read; that makes
its reads proofs.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from replitree.tablet.group.effects import Collection, Fence, Overtaken
from replitree.tablet.group.ids import NOTHING, BlobId, Channel, Generation, GenStep, TabletId

# --- requests and replies -----------------------------------------------------------------------------------------------


class Write(msgspec.Struct, frozen=True):
    """Write blobs, all or none; on an object store some may be there although the reply is not `Done`.

    With `restorer` they are older than its fence.  Reply: `Done`, `Overtaken`, `Conflict`, `Swept`.  A struct, for one is made
    for every commit, and it is made more quickly.
    """

    blobs: tuple[tuple[BlobId, bytes], ...]
    restorer: Fence | None = None


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise the fence.  Reply: `Done`, `Overtaken`."""

    tablet: TabletId
    fence: Fence


@dataclass(frozen=True, slots=True)
class AskFence:
    """Reply: `FenceIs`."""

    tablet: TabletId


@dataclass(frozen=True, slots=True)
class AskBarrier:
    """Reply: `BarrierIs`."""

    tablet: TabletId
    channel: Channel


@dataclass(frozen=True, slots=True)
class Look:
    """Read blobs by id.  Reply: `Contents`, `Overtaken`."""

    blobs: tuple[BlobId, ...]
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """Read the blobs from `first` to `last`; only the newest if `newest` says so.  Reply: `Contents`, `Overtaken`."""

    first: BlobId
    last: BlobId
    fence: Fence | None = None
    newest: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """Take a collection.  Reply: `Done`, `Overtaken`."""

    collection: Collection


Request: TypeAlias = Write | Raise | AskFence | AskBarrier | Look | Scan | Sweep


@dataclass(frozen=True, slots=True)
class Done:
    """It is so, durably."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """There is a blob of this name with other bytes."""

    blob: BlobId


@dataclass(frozen=True, slots=True)
class Swept:
    """The blob is below a barrier and not written."""

    blob: BlobId


@dataclass(frozen=True, slots=True)
class FenceIs:
    """The fence, or None."""

    fence: Fence | None


@dataclass(frozen=True, slots=True)
class BarrierIs:
    """Up to where a channel was collected."""

    place: GenStep


@dataclass(frozen=True, slots=True)
class Contents:
    """The blobs that a member has of those that were asked for, ascending.

    Attributes
    ----------
    blobs
        The whole ones.
    damaged
        Those that are there and can't be read.
    doubts
        Intervals of ids, both ends included, in which blobs may have been that can't be told any more.
    """

    blobs: tuple[tuple[BlobId, bytes], ...] = ()
    damaged: tuple[BlobId, ...] = ()
    doubts: tuple[tuple[BlobId, BlobId], ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The member can't serve the request: its disk is full, failing, not the one it was, or not ready."""

    reason: str


Reply: TypeAlias = Done | Overtaken | Conflict | Swept | FenceIs | BarrierIs | Contents | Failed


# --- what a member holds --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Barrier:
    """The collection of one channel: the last command, its barriers, and the blobs that are kept below them."""

    order: tuple[Generation, int] = (Generation(0), 0)
    soft: GenStep = NOTHING
    hard: GenStep = NOTHING
    keep: frozenset[BlobId] = frozenset()

    def has_swept(self, blob: BlobId) -> bool:
        """Whether a blob of this channel is gone for good."""
        place = blob.place
        return place <= self.hard or (place <= self.soft and blob not in self.keep)

    def has_swept_all(self, first: BlobId, last: BlobId) -> bool:
        """Whether every blob of this channel between two, both included, is gone for good."""
        is_passed = last.place <= self.soft and not any(first <= blob <= last for blob in self.keep)
        return is_passed or last.place <= self.hard


NO_BARRIER = Barrier()


@dataclass(frozen=True, slots=True)
class Holdings:
    """Everything that a member holds: a value, so that it can be compared, and restored.

    Attributes
    ----------
    fences
        (tablet, fence), ascending.
    names, data
        The blobs' ids, ascending, and their bytes; None for damaged ones.
    barriers
        (tablet, channel, barrier), ascending.
    doubts
        Intervals of ids, both ends included, in which blobs may have been that can't be told any more.
    """

    fences: tuple[tuple[TabletId, Fence], ...] = ()
    names: tuple[BlobId, ...] = ()
    data: tuple[bytes | None, ...] = field(default=(), repr=False)
    barriers: tuple[tuple[TabletId, Channel, Barrier], ...] = ()
    doubts: tuple[tuple[BlobId, BlobId], ...] = ()

    def fence(self, tablet: TabletId) -> Fence | None:
        """Return a tablet's fence."""
        return dict(self.fences).get(tablet)

    def barrier(self, tablet: TabletId, channel: Channel) -> Barrier:
        """Return the barrier of a channel."""
        for each, of, barrier in self.barriers:
            if each == tablet and of == channel:
                return barrier
        return NO_BARRIER

    def index(self, blob: BlobId) -> int | None:
        """Return where a blob is, or None."""
        position = bisect_left(self.names, blob)
        return position if position < len(self.names) and self.names[position] == blob else None


def answer(held: Holdings, request: Request) -> tuple[Holdings, Reply]:
    """Return what a member holds after a request, and what it answers."""
    match request:
        case Write(blobs, restorer):
            return _write(held, blobs, restorer)
        case Raise(tablet, fence):
            return raised(held, tablet, fence)
        case AskFence(tablet):
            return held, FenceIs(held.fence(tablet))
        case AskBarrier(tablet, channel):
            return held, barrier_of(held, tablet, channel)
        case Look(blobs, fence):
            held, reply = all_raised(held, {blob.tablet for blob in blobs}, fence)
            if isinstance(reply, Overtaken):
                return held, reply
            found = [index for blob in sorted(blobs) if (index := held.index(blob)) is not None]
            return held, _contents(held, found, (min(blobs), max(blobs)))
        case Scan(first, last, fence, newest):
            held, reply = raised(held, first.tablet, fence)
            if isinstance(reply, Overtaken):
                return held, reply
            between = range(bisect_left(held.names, first), bisect_right(held.names, last))
            return held, _contents(held, between[-1:] if newest else between, (first, last))
        case Sweep(collection):
            return _sweep(held, collection)


def barrier_of(held: Holdings, tablet: TabletId, channel: Channel) -> BarrierIs:
    """Say up to where a channel was collected."""
    barrier = held.barrier(tablet, channel)
    return BarrierIs(max(barrier.soft, barrier.hard))


def outranks(fence: Fence | None, other: Fence) -> bool:
    """Whether the candidate that set `fence` outranks the one that set `other`."""
    return fence is not None and (
        fence.generation > other.generation or (fence.generation == other.generation and fence.issuer != other.issuer)
    )


def raised(held: Holdings, tablet: TabletId, fence: Fence | None) -> tuple[Holdings, Done | Overtaken]:
    """Raise a fence, if there is one to raise."""
    known = held.fence(tablet)
    # The same fence again: a candidate that lost the answer asks once more.
    if fence is None or known == fence:
        return held, Done()
    if outranks(known, fence):
        assert known is not None
        return held, Overtaken(known.generation)
    return replace(held, fences=tuple(sorted((dict(held.fences) | {tablet: fence}).items()))), Done()


def may_write(fence: Fence | None, blob: BlobId, restorer: Fence | None) -> bool:
    """Whether a fence lets a blob through."""
    # Restored blobs are older than the restorer's own fence; only another candidate's fence keeps them out.
    if restorer is not None:
        return not outranks(fence, restorer)
    return fence is None or blob.generation > fence.generation


def _write(
    held: Holdings, blobs: tuple[tuple[BlobId, bytes], ...], restorer: Fence | None
) -> tuple[Holdings, Done | Overtaken | Conflict | Swept]:
    new = dict[BlobId, bytes | None]()
    for blob, data in blobs:
        fence = held.fence(blob.tablet)
        if not may_write(fence, blob, restorer):
            assert fence is not None
            return held, Overtaken(fence.generation)
        if held.barrier(blob.tablet, blob.channel).has_swept(blob):
            return held, Swept(blob)
        index = held.index(blob)
        # Also against the blobs before it in this request: one name must not get two contents.
        known = new.get(blob) if index is None else held.data[index]
        if known is not None and known != data:
            return held, Conflict(blob)
        if known is None:
            new[blob] = data
    return (with_blobs(held, new) if new else held), Done()


def with_blobs(held: Holdings, new: dict[BlobId, bytes | None]) -> Holdings:
    """Return what is held with these blobs set; None damages one."""
    blobs = sorted((dict(zip(held.names, held.data, strict=True)) | new).items(), key=lambda each: each[0])
    return replace(held, names=tuple(name for name, _ in blobs), data=tuple(data for _, data in blobs))


def without_blobs(held: Holdings, gone: Iterable[BlobId]) -> Holdings:
    """Return what is held without these blobs."""
    removed = frozenset(gone)
    left = [each for each in zip(held.names, held.data, strict=True) if each[0] not in removed]
    return replace(held, names=tuple(name for name, _ in left), data=tuple(data for _, data in left))


def all_raised(held: Holdings, tablets: Iterable[TabletId], fence: Fence | None) -> tuple[Holdings, Done | Overtaken]:
    """Raise the fence of several tablets; the first one with a higher fence ends it."""
    # In order: members that are asked the same must end with equal holdings.
    for tablet in sorted(tablets):
        held, reply = raised(held, tablet, fence)
        if isinstance(reply, Overtaken):
            return held, reply
    return held, Done()


def _contents(held: Holdings, indexes: Iterable[int], ids: tuple[BlobId, BlobId]) -> Contents:
    blobs, damaged = list[tuple[BlobId, bytes]](), list[BlobId]()
    for index in indexes:
        data = held.data[index]
        if data is None:
            damaged.append(held.names[index])
        else:
            blobs.append((held.names[index], data))
    return Contents(tuple(blobs), tuple(damaged), visible_doubts(held, held.doubts, *ids) if held.doubts else ())


def visible_doubts(
    held: Holdings, doubts: Iterable[tuple[BlobId, BlobId]], first: BlobId, last: BlobId
) -> tuple[tuple[BlobId, BlobId], ...]:
    """Return the doubts that concern a read of the blobs from `first` to `last`, but for what was collected anyway."""
    return tuple(
        each
        for each in doubts
        if each[0] <= last
        and each[1] >= first
        and not held.barrier(each[0].tablet, each[0].channel).has_swept_all(*each)
    )


# --- collection -----------------------------------------------------------------------------------------------------------


def _sweep(held: Holdings, collection: Collection) -> tuple[Holdings, Done | Overtaken]:
    tablet, channel = collection.tablet, collection.channel
    fence = held.fence(tablet)
    # A deposed leader must not delete what its successor counts on.
    if fence is not None and collection.order[0] <= fence.generation:
        return held, Overtaken(fence.generation)
    before = held.barrier(tablet, channel)
    after = advanced(before, collection)
    if after == before:
        return held, Done()
    others = [each for each in held.barriers if each[:2] != (tablet, channel)]
    held = replace(held, barriers=tuple(sorted((*others, (tablet, channel, after)), key=lambda each: each[:2])))
    gone = [blob for blob in held.names if blob[:2] == (tablet, channel) and after.has_swept(blob)]
    return (without_blobs(held, gone) if gone else held), Done()


def advanced(barrier: Barrier, collection: Collection) -> Barrier:
    """Return a barrier after a command; an older command changes nothing."""
    # A command that arrives late, or again, changes nothing.
    if collection.order <= barrier.order:
        return barrier
    keep = (barrier.keep | frozenset(collection.keep)) - frozenset(collection.dont_keep)
    if collection.is_hard:
        hard = max(barrier.hard, collection.barrier)
        # A hard barrier takes the kept blobs below it, too, so nothing of them is remembered.
        return Barrier(collection.order, max(barrier.soft, hard), hard, frozenset(b for b in keep if b.place > hard))
    return Barrier(collection.order, max(barrier.soft, collection.barrier), barrier.hard, keep)
