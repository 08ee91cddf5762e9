"""A blob group of N members, each of which keeps whole copies.

*Write quorum* W: a blob is stored when W members have it.  *Cover* ``N - W + 1``: any so many members have, together, every
stored blob.  A read needs the answers of a cover, or of more where the caller asks for more.  A fence needs a cover and a
majority, so that of two candidates with one generation only one wins.

The verdict of a read on a blob, given how many members have it, deny it, or are unknown (silent, damaged):

======  ===========  ==========================================================================================
have    unknown      verdict
======  ===========  ==========================================================================================
≥ 1     any          present; with `restore` it is written until W members have it, or the read ends in doubt
0       < W          absent: it was never stored, and never will be, because those that deny it have raised the fence
0       ≥ W          in doubt
======  ===========  ==========================================================================================

Two whole copies that differ end the read in doubt.  A procedure here yields only `Ask`; `over_members` turns a procedure that
asks groups into one that asks members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, TypeAlias, TypeVar

import msgspec

from replitree.tablet.group.effects import (
    Blobs,
    BlobsRestored,
    Collect,
    Collected,
    CollectedUpTo,
    Discover,
    Fence,
    FencedUpTo,
    FenceRaised,
    GroupEffect,
    NotKnown,
    Overtaken,
    Procedure,
    Put,
    RaiseFence,
    Range,
    ReadBarrier,
    ReadBlobs,
    ReadFence,
    Restore,
    Stored,
)
from replitree.tablet.group.ids import (
    COOKIE_MAX,
    GENERATION_MAX,
    STEP_MAX,
    BlobId,
    Cookie,
    Generation,
    GroupId,
    Step,
)
from replitree.tablet.group.member import (
    AskBarrier,
    AskFence,
    BarrierIs,
    Contents,
    Done,
    Failed,
    FenceIs,
    Look,
    Raise,
    Reply,
    Request,
    Scan,
    Sweep,
    Write,
)

HIDDEN = NotKnown("too many members have damaged data, and can't tell any more which blobs it was")

T = TypeVar("T")
Replies: TypeAlias = tuple[Reply | None, ...]
Lacking: TypeAlias = tuple[int, ...]
"""The members that may lack something of what was restored."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The numbers of a group.

    Attributes
    ----------
    group
        Its name.
    members
        How many there are.
    write
        How many must have a blob.
    read_min
        How many members must answer a read, although fewer are a cover: before entries are given up, every member that may
        have them must answer.
    """

    group: GroupId
    members: int
    write: int
    read_min: int = 0

    def __post_init__(self) -> None:
        assert 0 < self.write <= self.members
        assert 2 * self.write > self.members, "two blobs of one name could both be stored"

    @property
    def cover(self) -> int:
        """How many have, together, every stored blob."""
        return self.members - self.write + 1

    @property
    def read(self) -> int:
        """How many must answer a read."""
        return max(self.cover, self.read_min)

    @property
    def fence(self) -> int:
        """How many must have a fence."""
        return max(self.cover, self.members // 2 + 1)


class Ask(msgspec.Struct, frozen=True):
    """Send each member its request (None: nothing).  Outcome: a reply, or None for silence, for each.

    Silence proves nothing: the request may take place later.  The interpreter may stop waiting when `wanted` members have
    answered well: `Done`, their fence or barrier, or everything that they were to read, nothing of it damaged.  Else it waits
    for all, as long as it has patience.  A struct, as `Write` is.
    """

    group: GroupId
    requests: tuple[Request | None, ...]
    wanted: int


def over_members(procedure: Procedure[T], groups: Mapping[GroupId, Quorum]) -> Procedure[T]:
    """Run a procedure that asks groups: its effects are carried out by asking members; whatever else it yields passes."""
    outcome: Any = None
    while True:
        try:
            effect = procedure.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if isinstance(effect, GroupEffect):
            outcome = yield from carry_out(groups[effect.group], effect)
        else:
            # What is no effect on groups is for another interpreter.
            outcome = yield effect


def carry_out(quorum: Quorum, effect: GroupEffect) -> Procedure[Any]:
    """Carry out one effect on a group by asking its members; return its outcome."""
    match effect:
        case Put(blob=blob, data=data):
            return (yield from put(quorum, blob, data))
        case RaiseFence(tablet=tablet, fence=fence):
            replies = yield from _ask_all(quorum, Raise(tablet, fence), quorum.fence)
            return _decided(replies, quorum.fence, FenceRaised())
        case ReadFence(tablet=tablet):
            return (yield from _read_fence(quorum, AskFence(tablet)))
        case ReadBarrier(tablet=tablet, channel=channel):
            return (yield from _read_barrier(quorum, AskBarrier(tablet, channel)))
        case ReadBlobs(blobs=blobs, fence=fence, restore=restore):
            if not blobs:
                return Blobs(())
            replies = yield from _ask_all(quorum, Look(tuple(sorted(blobs)), fence), quorum.read)
            return (yield from _settle(quorum, replies, blobs, fence if restore else None))
        case Restore(blobs=blobs, fence=fence):
            return (yield from _restored(quorum, blobs, fence))
        case Range(first=first, last=last, fence=fence, restore=restore):
            replies = yield from _ask_all(quorum, Scan(first, last, fence), quorum.read)
            # So many that can't tell may have held a blob of which no other member knows the name.
            if _unknown(replies, partial(_doubts, first=first, last=last)) >= quorum.write:
                return _unfit(quorum, replies) or HIDDEN
            return (yield from _settle(quorum, replies, (), fence if restore else None))
        case Discover(first=first, fence=fence):
            return (yield from _discover(quorum, first, fence))
        case Collect(collection=collection):
            # All members: one that missed a barrier would show blobs that the others have deleted.
            replies = yield from _ask_all(quorum, Sweep(collection), quorum.members)
            return _decided(replies, quorum.members, Collected())


def _ask_all(quorum: Quorum, request: Request, wanted: int) -> Procedure[Replies]:
    replies: Replies = yield Ask(quorum.group, (request,) * quorum.members, wanted)
    return replies


def _decided(replies: Replies, needed: int, success: T) -> T | Overtaken | NotKnown:
    """Return `success` if enough members are done; else the higher fence that refused, or the reasons."""
    done = len([reply for reply in replies if isinstance(reply, Done)])
    # Enough that are done decide: an `Overtaken` beside them changes nothing.
    return success if done >= needed else _overtaken(replies) or NotKnown(_complaint(replies, done, needed))


def _overtaken(replies: Replies) -> Overtaken | None:
    found = [reply.generation for reply in replies if isinstance(reply, Overtaken)]
    return Overtaken(max(found)) if found else None


def _complaint(replies: Replies, good: int, needed: int) -> str:
    reasons = [
        "silent" if reply is None else reply.reason if isinstance(reply, Failed) else type(reply).__name__.lower()
        for reply in replies
        if not isinstance(reply, Done | Contents | FenceIs | BarrierIs)
    ]
    return f"{good} of {len(replies)} members answered well, {needed} are needed: {', '.join(reasons)}"


def put(quorum: Quorum, blob: BlobId, data: bytes) -> Procedure[Stored | Overtaken | NotKnown]:
    """Store a blob; a member that did not answer may get it later."""
    replies = yield from _ask_all(quorum, Write(((blob, data),)), quorum.write)
    return _decided(replies, quorum.write, Stored())


def _read_fence(quorum: Quorum, request: AskFence) -> Procedure[FencedUpTo | NotKnown]:
    needed = quorum.members - quorum.fence + 1
    replies = yield from _ask_all(quorum, request, needed)
    known = [reply.fence for reply in replies if isinstance(reply, FenceIs)]
    if len(known) < needed:
        return NotKnown(_complaint(replies, len(known), needed))
    generations = [fence.generation for fence in known if fence is not None]
    return FencedUpTo(max(generations, default=Generation(0)), is_set=bool(generations))


def _read_barrier(quorum: Quorum, request: AskBarrier) -> Procedure[CollectedUpTo | NotKnown]:
    replies = yield from _ask_all(quorum, request, quorum.read)
    known = [reply.place for reply in replies if isinstance(reply, BarrierIs)]
    if len(known) < quorum.read:
        return NotKnown(_complaint(replies, len(known), quorum.read))
    return CollectedUpTo(max(known))


# --- reads ----------------------------------------------------------------------------------------------------------------


def _restored(
    quorum: Quorum, blobs: tuple[BlobId, ...], fence: Fence
) -> Procedure[BlobsRestored | Overtaken | NotKnown]:
    # No other member has what that one lacks.
    if quorum.members == 1:
        return BlobsRestored()
    if not blobs:
        return BlobsRestored()
    replies = yield from _ask_all(quorum, Look(tuple(sorted(blobs)), fence), quorum.members)
    found = yield from _settle(quorum, replies, blobs, fence)
    return BlobsRestored(found.lacking) if isinstance(found, Blobs) else found


def _discover(quorum: Quorum, first: BlobId, fence: Fence | None) -> Procedure[Blobs | Overtaken | NotKnown]:
    """Walk down from the newest blob that any member names, to the first that is present."""
    last = end_of(first)
    while True:
        replies = yield from _ask_all(quorum, Scan(first, last, fence, newest=True), quorum.read)
        named = [blob for reply in replies if isinstance(reply, Contents) for blob in _named(reply)]
        newest = max(named, default=first)
        about_it = tuple(_about(reply, newest) for reply in replies)
        if _unknown(replies, partial(_doubts, first=newest, last=last)) >= quorum.write:
            return _unfit(quorum, replies) or HIDDEN
        found = yield from _settle(quorum, about_it, (newest,) if named else (), fence)
        if not isinstance(found, Blobs) or found.found or not named:
            return found
        last = predecessor(newest)  # only damaged copies, too few of them to have been stored


def _about(reply: Reply | None, blob: BlobId) -> Reply | None:
    """Return what a reply says of one blob: a member that names an older one as its newest does not have it."""
    if not isinstance(reply, Contents):
        return reply
    own = tuple(each for each in reply.blobs if each[0] == blob)
    return Contents(own, tuple(each for each in reply.damaged if each == blob), reply.doubts)


def end_of(first: BlobId) -> BlobId:
    """Return the last id of a channel."""
    return first._replace(generation=Generation(GENERATION_MAX), step=Step(STEP_MAX), cookie=Cookie(COOKIE_MAX))


def predecessor(blob: BlobId) -> BlobId:
    """Return the id just before this one, in its channel."""
    if blob.cookie:
        return blob._replace(cookie=Cookie(blob.cookie - 1))
    if blob.step:
        return blob._replace(step=Step(blob.step - 1), cookie=Cookie(COOKIE_MAX))
    return end_of(blob)._replace(generation=Generation(blob.generation - 1))


def _named(contents: Contents) -> tuple[BlobId, ...]:
    return (*(blob for blob, _ in contents.blobs), *contents.damaged)


def _settle(
    quorum: Quorum, replies: Replies, asked: tuple[BlobId, ...], restorer: Fence | None
) -> Procedure[Blobs | Overtaken | NotKnown]:
    """Judge every blob that was asked for or that a member names; restore what is there."""
    unfit = _unfit(quorum, replies)
    if unfit is not None:
        return unfit
    # What all that answered have, up to where they begin to differ: nearly all of a long log, at little cost.
    lists = [reply.blobs for reply in replies if isinstance(reply, Contents)]
    same = shortest = min(lists, key=len)
    if any(each[: len(shortest)] != shortest for each in lists):
        rows = takewhile(lambda row: row.count(row[0]) == len(row), zip(*lists, strict=False))
        same = tuple(row[0] for row in rows)
    found, doubtful = dict(same), list[BlobId]()
    named = (each for reply in replies if isinstance(reply, Contents) for each in _named(reply))
    # Nearly all blobs are agreed on: only the others are judged one by one.
    rest = sorted({blob for blob in (*asked, *named) if blob not in found})
    views = tuple(
        MemberView(dict(reply.blobs), frozenset(reply.damaged), reply) if rest and isinstance(reply, Contents) else None
        for reply in replies
    )
    for blob in rest:
        verdict = _verdict(quorum, views, blob)
        if isinstance(verdict, NotKnown):
            if restorer is not None:
                return verdict
            doubtful.append(blob)
        elif verdict is not None:
            found[blob] = verdict
    lacking: Lacking = ()
    if restorer is not None:
        restored = yield from _restore(quorum, replies, found, restorer)
        if isinstance(restored, Overtaken | NotKnown):
            return restored
        lacking = restored
    return Blobs(tuple(sorted(found.items()) if rest else found.items()), tuple(doubtful), lacking)


def _unfit(quorum: Quorum, replies: Replies) -> Overtaken | NotKnown | None:
    """Return why a read proves nothing, if so."""
    answered = sum(isinstance(reply, Contents) for reply in replies)
    too_few = NotKnown(_complaint(replies, answered, quorum.read)) if answered < quorum.read else None
    return _overtaken(replies) or too_few


def _unknown(replies: Replies, is_unsure: Callable[[Contents], bool]) -> int:
    return sum(not isinstance(reply, Contents) or is_unsure(reply) for reply in replies)


def _doubts(reply: Contents, first: BlobId, last: BlobId) -> bool:
    return any(begin <= last and end >= first for begin, end in reply.doubts)


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member's answer, to be looked up by blob."""

    blobs: Mapping[BlobId, bytes]
    damaged: frozenset[BlobId]
    contents: Contents

    def is_unsure(self, blob: BlobId) -> bool:
        """Whether it can't tell if it has ever had a blob."""
        return blob in self.damaged or _doubts(self.contents, blob, blob)


def _verdict(quorum: Quorum, views: Sequence[MemberView | None], blob: BlobId) -> bytes | NotKnown | None:
    """Return a blob's bytes, None if it was never stored, or why that is not known; None in `views`: no answer."""
    seen = [data for view in views if view is not None and (data := view.blobs.get(blob)) is not None]
    if seen:
        return seen[0] if seen.count(seen[0]) == len(seen) else NotKnown(f"two copies of blob {blob} differ")
    unknown = sum(view is None or view.is_unsure(blob) for view in views)
    return NotKnown(f"blob {blob}: {unknown} members can't tell", blob) if unknown >= quorum.write else None


def _restore(
    quorum: Quorum, replies: Replies, found: Mapping[BlobId, bytes], restorer: Fence
) -> Procedure[Overtaken | NotKnown | Lacking]:
    """Write present blobs to the members that answered without them; return the obstacle, or the members that lack some."""
    missing = [_missing(reply, found) for reply in replies]
    written: Replies = (None,) * quorum.members
    if any(missing):
        # Only to members that answered: one that was silent may have been asked, and is mended later.
        requests = tuple(Write(each, restorer) if each else None for each in missing)
        written = yield Ask(quorum.group, requests, sum(1 for each in missing if each))
    lacking = [
        (frozenset(blob for blob, _ in each) if not isinstance(done, Done) else frozenset[BlobId]())
        for reply, each, done in zip(replies, missing, written, strict=True)
        if isinstance(reply, Contents)
    ]
    for blob in found if any(lacking) or len(lacking) < quorum.write else ():
        copies = sum(blob not in each for each in lacking)
        # A blob with fewer copies could be denied by a later reader.
        if copies < quorum.write:
            return _overtaken(written) or NotKnown(f"blob {blob} has {copies} copies, {quorum.write} are needed")
    return tuple(
        number
        for number, (reply, each, done) in enumerate(zip(replies, missing, written, strict=True))
        if not isinstance(reply, Contents) or (each and not isinstance(done, Done))
    )


def _missing(reply: Reply | None, found: Mapping[BlobId, bytes]) -> tuple[tuple[BlobId, bytes], ...]:
    if not isinstance(reply, Contents):
        return ()
    missing = found.keys() - dict(reply.blobs).keys()
    return tuple((blob, data) for blob, data in found.items() if blob in missing) if missing else ()
