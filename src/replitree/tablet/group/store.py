"""A member of a blob group on an object store: the rules of `member`, kept by requests that are atomic each, but not together.

::

    state                     fences and barriers; one object, replaced only if unchanged since it was read, never deleted
    one object for each blob  created once

* *Store, then read the fence.*  A blob counts when its object exists and `state`, read after that, does not forbid it.  A
  candidate that raises a fence replaces `state` first and reads objects after.  So either the candidate sees the object or the
  writer sees the fence.  An object that is created later was never reported as stored; a reader may find it or not.
* *Read, then read the barrier.*  A barrier is in `state` before any blob below it is deleted.  So a blob that a reader missed
  because it was deleted is below the barrier that the reader reads last.  A blob below a barrier counts as gone, although its
  object may come back: a delayed request can create it again after its deletion.
* *An earlier state suffices.*  Fences and barriers never sink, and `state` is replaced only if unchanged.  So a change may
  begin with `state` as it was read before, and a candidate that has set a fence need not read that it is set.
* *A listing after the fence.*  All reads of a candidate that has raised a fence rest on one listing that was made after it.  If
  the place is the only one of its group, the reader need not read the barrier after that: only a later leader moves it, when an
  entry of that leader exists already; the listing goes to the end of the channel, so it shows the later generation.
* *Read again when there was no answer.*  An object with our bytes is ours.  A fence is ours if it has our issuer, a collection
  if it has our order; so repeating either changes nothing.

`serve` is the procedure; it yields the requests below and is sent their replies, or None where no answer came: then the
request may still take place.  `answer` is a store as a value.

(A relative of SlateDB's fencing: here a writer reads the epoch after the write, where SlateDB claims a slot for it.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from replitree.tablet.group import member
from replitree.tablet.group.effects import Fence, GroupEffect, Overtaken, Procedure
from replitree.tablet.group.ids import NOTHING, BlobId, first_of, last_of
from replitree.tablet.group.member import (
    AskBarrier,
    AskFence,
    Conflict,
    Contents,
    Done,
    Failed,
    FenceIs,
    Holdings,
    Look,
    Raise,
    Reply,
    Request,
    Scan,
    Sweep,
    Swept,
    Write,
    all_raised,
    barrier_of,
    may_write,
    outranks,
    raised,
    with_blobs,
    without_blobs,
)
from replitree.tablet.group.quorum import Ask, Quorum, carry_out, end_of

TRIES = 2
"""How often the store is asked before its silence is reported."""

CHANGES_MAX = 16
"""How often others may be faster to replace `state`, or to move the barrier under a reader."""

T = TypeVar("T")

# --- requests and replies -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateBlobs:
    """Create objects, each unless it is there.  Reply: `Created`."""

    blobs: tuple[tuple[BlobId, bytes], ...]


@dataclass(frozen=True, slots=True)
class MendBlobs:
    """Give objects that can't be read their bytes again.  Reply: `Persisted`."""

    blobs: tuple[tuple[BlobId, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReadState:
    """Reply: `StateIs`; unless `is_fresh`, as it was read or written before will do, however long ago."""

    is_fresh: bool = True


@dataclass(frozen=True, slots=True)
class ReplaceState:
    """Replace `state` if it is still the one with this tag.  Reply: `Persisted`, `Changed`."""

    state: Holdings
    tag: object


@dataclass(frozen=True, slots=True)
class List:
    """List the blobs from `first` to `last`.  Reply: `Listed`.

    With `since`, a listing suffices that was made after this fence was set, for the candidate that set it.
    """

    first: BlobId
    last: BlobId
    since: Fence | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Read objects.  Reply: `Found`."""

    blobs: tuple[BlobId, ...]


@dataclass(frozen=True, slots=True)
class DeleteBlobs:
    """Delete objects; those that are gone already do not matter.  Reply: `Persisted`."""

    blobs: tuple[BlobId, ...]


StoreRequest: TypeAlias = CreateBlobs | MendBlobs | ReadState | ReplaceState | List | Read | DeleteBlobs


@dataclass(frozen=True, slots=True)
class Created:
    """Every object is there; `before` has those that were there already, with their bytes, None where they can't be read."""

    before: tuple[tuple[BlobId, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Persisted:
    """It is so, durably."""


@dataclass(frozen=True, slots=True)
class StateIs:
    """Fences and barriers, without blobs; the tag that stands for just this state."""

    held: Holdings
    tag: object


@dataclass(frozen=True, slots=True)
class Changed:
    """`state` is not the one that was read."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The blobs that have objects, ascending."""

    names: tuple[BlobId, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The blobs that were read, ascending; None for bytes that can't be read; blobs that do not exist are left out."""

    blobs: tuple[tuple[BlobId, bytes | None], ...]


StoreReply: TypeAlias = Created | Persisted | StateIs | Changed | Listed | Found | Failed


# --- the procedure --------------------------------------------------------------------------------------------------------


def serve(
    request: Request,
    known: Holdings = Holdings(),  # noqa: B008 - a value
    *,
    is_alone: bool = False,
) -> Procedure[Reply]:
    """Do what a member is asked.

    Parameters
    ----------
    request
        What is asked.
    known
        Fences and barriers that were read before, however long ago: they never sink, so what they forbid need not be tried.
    is_alone
        Whether it is the only member of its group.
    """
    match request:
        case Write():
            return (yield from _write(request, known))
        case Raise(tablet, fence):
            _, reply = yield from _change(lambda held: raised(held, tablet, fence))
            return reply
        case AskFence(tablet):
            state = yield from _asked(ReadState(), StateIs)
            return state if isinstance(state, Failed) else FenceIs(state.held.fence(tablet))
        case AskBarrier(tablet, channel):
            state = yield from _asked(ReadState(), StateIs)
            return state if isinstance(state, Failed) else barrier_of(state.held, tablet, channel)
        case Look() | Scan():
            return (yield from _read(request, is_alone=is_alone))
        case Sweep():
            return (yield from _sweep(request))


def _asked(request: StoreRequest, kind: type[T]) -> Procedure[T | Failed]:
    """Ask until an answer comes."""
    for _ in range(TRIES):
        reply = yield request
        # None is silence: the request may have taken place, and is one that may be repeated.
        if isinstance(reply, kind | Failed):
            return reply
        assert reply is None, f"{reply} is no answer to {request}"
    return Failed("the object store does not answer; what it was asked for may still happen")


def _change(rule: Callable[[Holdings], tuple[Holdings, Reply]]) -> Procedure[tuple[Holdings, Reply]]:
    """Replace `state` by what a rule makes of it; return it, and what the rule says.

    What was read before is good enough to begin with.  When there was no answer, or another process was faster, the rule reads
    again: it finds nothing left to do if the change was made.
    """
    for number in range(CHANGES_MAX):
        # The first look may be an old one: the replacement is refused if it was.
        state = yield from _asked(ReadState(is_fresh=number > 0), StateIs)
        if isinstance(state, Failed):
            return Holdings(), state
        held, reply = rule(state.held)
        # Nothing left to change: an earlier try whose answer was lost has done it.
        if held == state.held:
            return held, reply
        changed = yield ReplaceState(held, state.tag)
        if isinstance(changed, Persisted):
            return held, reply
        if isinstance(changed, Failed):
            return Holdings(), changed
        assert changed is None or isinstance(changed, Changed)
    return Holdings(), Failed(f"others were faster to change the state {CHANGES_MAX} times; try again")


def _write(request: Write, known: Holdings) -> Procedure[Reply]:
    wanted = dict[BlobId, bytes]()
    for blob, data in request.blobs:
        if wanted.setdefault(blob, data) != data:
            return Conflict(blob)
    # What was known suffices to refuse, as fences never sink; it never suffices to allow.
    refused = _refusal(known, request)
    if refused is not None:
        return refused
    created = yield from _asked(CreateBlobs(tuple(wanted.items())), Created)
    if isinstance(created, Failed):
        return created
    other = next((blob for blob, data in created.before if data is not None and data != wanted[blob]), None)
    if other is not None:
        return Conflict(other)
    unreadable = tuple((blob, wanted[blob]) for blob, data in created.before if data is None)
    if unreadable:
        mended = yield from _asked(MendBlobs(unreadable), Persisted)
        if isinstance(mended, Failed):
            return mended
    # After the objects: a candidate replaces `state` first and reads objects after, so one of the two sees the other.
    state = yield from _asked(ReadState(), StateIs)
    if isinstance(state, Failed):
        return state
    return _refusal(state.held, request) or Done()


def _refusal(held: Holdings, request: Write) -> Overtaken | Swept | None:
    """Return what forbids one of the blobs, or None."""
    for blob, _ in request.blobs:
        fence = held.fence(blob.tablet)
        if not may_write(fence, blob, request.restorer):
            assert fence is not None
            return Overtaken(fence.generation)
        if is_swept(held, blob):
            return Swept(blob)
    return None


def is_swept(held: Holdings, blob: BlobId) -> bool:
    """Whether a blob is below a barrier, whether its object is there or not."""
    return held.barrier(blob.tablet, blob.channel).has_swept(blob)


def _read(request: Look | Scan, *, is_alone: bool) -> Procedure[Reply]:
    tablets = sorted({request.first.tablet} if isinstance(request, Scan) else {blob.tablet for blob in request.blobs})
    held = Holdings()
    if request.fence is not None:
        held, reply = yield from _change(lambda state: all_raised(state, tablets, request.fence))
        if not isinstance(reply, Done):
            return reply
    for _ in range(CHANGES_MAX):
        listed = yield from _listed(request)
        if isinstance(listed, Failed):
            return listed
        names = _wanted(request, held, listed.names)
        found: Found | Failed = Found(())
        if names:
            found = yield from _asked(Read(names), Found)
        if isinstance(found, Failed):
            return found
        # One request less at each take-over: see "A listing after the fence" in the module.
        if is_alone and _shows_all(request, listed, names, found):
            return _contents(request, held, names, dict(found.blobs))
        state = yield from _asked(ReadState(), StateIs)
        if isinstance(state, Failed):
            return state
        held = state.held
        known = [held.fence(tablet) for tablet in tablets] if request.fence is not None else []
        higher = [
            each.generation
            for each in known
            if each is not None and request.fence is not None and outranks(each, request.fence)
        ]
        overtaken = Overtaken(max(higher)) if higher else None
        if overtaken is not None:
            return overtaken
        if not (isinstance(request, Scan) and request.newest) or not any(is_swept(held, blob) for blob in names):
            return _contents(request, held, names, dict(found.blobs))
    return Failed(f"the barrier was moved {CHANGES_MAX} times while it was read; try again")


def _shows_all(request: Look | Scan, listed: Listed, names: tuple[BlobId, ...], found: Found) -> bool:
    """Whether no blob that was asked for or listed, or would have been, was deleted after the fence of the reader.

    Only a later leader could have asked for it, and not before an entry of its own was stored, which was listed then.
    """
    fence = request.fence
    if fence is None or len(found.blobs) < len(names) or any(data is None for _, data in found.blobs):
        return False
    return isinstance(request, Look) or all(blob.generation <= fence.generation for blob in listed.names)


def _listed(request: Look | Scan) -> Procedure[Listed | Failed]:
    """List what there may be to read; a reader with a fence lists to the end of the channel."""
    if isinstance(request, Look):
        return Listed(tuple(sorted(request.blobs)))
    last = request.last if request.fence is None else end_of(request.first)
    return (yield from _asked(List(request.first, last, request.fence), Listed))


def _wanted(request: Look | Scan, held: Holdings, listed: tuple[BlobId, ...]) -> tuple[BlobId, ...]:
    """Return the blobs to be read."""
    if isinstance(request, Look):
        return listed
    names = tuple(blob for blob in listed if blob <= request.last and not is_swept(held, blob))
    return names[-1:] if request.newest else names


def _contents(
    request: Look | Scan, held: Holdings, names: Iterable[BlobId], found: dict[BlobId, bytes | None]
) -> Contents:
    """Return what is above the barrier; what was listed, and then was not there, is not known."""
    blobs, damaged = list[tuple[BlobId, bytes]](), list[BlobId]()
    for blob in names:
        data = found.get(blob)
        if is_swept(held, blob) or (blob not in found and isinstance(request, Look)):
            continue
        if data is None:
            damaged.append(blob)
        else:
            blobs.append((blob, data))
    return Contents(tuple(blobs), tuple(damaged))


def _sweep(request: Sweep) -> Procedure[Reply]:
    """Move the barrier, then delete; what can't be deleted now is deleted by the next collection, and is gone already."""
    held, reply = yield from _change(lambda state: member.answer(state, request))
    if not isinstance(reply, Done):
        return reply
    tablet, channel = request.collection.tablet, request.collection.channel
    barrier = held.barrier(tablet, channel)
    listed = yield from _asked(
        List(first_of(tablet, channel, NOTHING), last_of(tablet, channel, max(barrier.soft, barrier.hard))), Listed
    )
    # What can't be listed or deleted now is below the barrier all the same.
    gone = tuple(blob for blob in listed.names if barrier.has_swept(blob)) if isinstance(listed, Listed) else ()
    if gone:
        yield from _asked(DeleteBlobs(gone), Persisted)
    return reply


def carry_out_on_store(quorum: Quorum, effect: GroupEffect) -> Procedure[Any]:
    """Carry out an effect on a group of one member, a store: yields `Ask` with one request to it."""
    assert quorum.members == 1
    asking, outcome = carry_out(quorum, effect), None
    while True:
        try:
            ask = asking.send(outcome)
        except StopIteration as stop:
            return stop.value
        reply = yield from _over_asks(quorum, serve(ask.requests[0], is_alone=True))
        outcome = (reply,)


def _over_asks(quorum: Quorum, serving: Procedure[Reply]) -> Procedure[Reply]:
    outcome: Any = None
    while True:
        try:
            request = serving.send(outcome)
        except StopIteration as stop:
            reply: Reply = stop.value
            return reply
        (outcome,) = yield Ask(quorum.group, (request,), 1)


# --- a store as a value -----------------------------------------------------------------------------------------------------


def answer(held: Holdings, request: StoreRequest) -> tuple[Holdings, StoreReply]:
    """Return what a store holds after a request, and what it answers.

    `names` and `data` of what it holds are the objects, whatever the barriers say; the rest is `state`.
    """
    match request:
        case CreateBlobs(blobs):
            data = dict(zip(held.names, held.data, strict=True))
            new = {blob: each for blob, each in blobs if blob not in data}
            before = tuple((blob, data[blob]) for blob, _ in blobs if blob in data)
            return with_blobs(held, dict[BlobId, bytes | None](new)) if new else held, Created(before)
        case MendBlobs(blobs):
            lost = {
                blob: each for blob, each in blobs if (at := held.index(blob)) is not None and held.data[at] is None
            }
            return with_blobs(held, dict[BlobId, bytes | None](lost)) if lost else held, Persisted()
        case ReadState():
            return held, StateIs(state_of(held), state_of(held))
        case ReplaceState(state, tag):
            if state_of(held) != tag:
                return held, Changed()
            return replace(held, fences=state.fences, barriers=state.barriers), Persisted()
        case List(first=first, last=last):
            return held, Listed(tuple(blob for blob in held.names if first <= blob <= last))
        case Read(wanted):
            found = [(blob, held.data[at]) for blob in wanted if (at := held.index(blob)) is not None]
            return held, Found(tuple(found))
        case DeleteBlobs(gone):
            return without_blobs(held, gone), Persisted()


def state_of(held: Holdings) -> Holdings:
    """Return what a store holds without its blobs."""
    return replace(held, names=(), data=())
