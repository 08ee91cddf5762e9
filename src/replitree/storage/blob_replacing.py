"""Making a member of a blob group anew from the others: the old one is lost, has forgotten something, or is not used any more.

In this order, and each step may be repeated, as all of it may:

1. The new member is made, with an incarnation of its own.  No group's file names it yet, so nobody asks it anything.
2. The others are told of another session, in which the member took part.  From now on the old one, should it still be there,
   does not know that session: nobody who opens the group, or has it open, counts on it any more (`blob_opening`).
3. What the others refuse to take is copied, so that the new member has every fence and every barrier; and every blob that one
   of them has.
4. The new member learns of the session, and the group's file names it.  Whoever has the group open lets it in, and mends it.

What was stored with the old member before step 2 has copies on the others, or on enough of those that must answer here; what is
stored later has its copies on them.  A blob of which there are only damaged copies may have had its last whole one on the old
member: then nothing is done, for the new member would say that it was never there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from replitree.errors import BadInput, StoreError
from replitree.storage.blob_folders import GroupFile, members_of, put_group, read_group
from replitree.storage.blob_group import BATCH_BYTES
from replitree.storage.blob_member import (
    BlobMember,
    Rules,
    Standing,
    Streams,
    admission_of,
    last_sessions,
    obstacles_of,
)
from replitree.storage.blob_places import MemberPlace, Wanted, close_member, make_place, open_place
from replitree.tablet.effects import Collection, Fence
from replitree.tablet.ids import NOTHING, BlobId, Channel, TabletId, first_of
from replitree.tablet.member import Barrier, Contents, Done, Failed, Raise, Request, Scan, Sweep, Write
from replitree.tablet.quorum import end_of

T = TypeVar("T")
Blobs = dict[BlobId, bytes]

PATIENCE_S = 60.0
"""How long a service is waited for, in seconds."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was done.

    Attributes
    ----------
    place
        Where the new member is.
    blobs, bytes
        What it got from the others.
    """

    place: MemberPlace
    blobs: int
    bytes: int


def replace_member(folder: Path, number: int, wanted: Wanted | None = None) -> Replaced:
    """Make a member anew from the others.

    Parameters
    ----------
    folder
        Of the group's file.
    number
        Which member.
    wanted
        Where it is to be; by default where the old one was, of which nothing may be there any more.

    Raises
    ------
    BadInput
        There is no such member, or its place is taken.
    StoreError
        Too few of the others answer, or something is on none of them in one piece: nothing was lost, and it may be repeated.
    """
    with _alone(folder):
        file = read_group(folder)
        if not 0 <= number < len(file.members):
            raise BadInput(f"group {file.group} has members 0 to {len(file.members) - 1}")
        place = make_place(_wanted(folder, file, number, wanted), folder, file.group, number, file.incarnations)
        members = members_of(folder, file, patience_s=PATIENCE_S)
        fresh = open_place(folder, place, probes=True, patience_s=PATIENCE_S)
        try:
            return _replaced(folder, file, number, place, members, fresh)
        finally:
            for each in (*members, fresh):
                close_member(each)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let nobody else replace members of the same group."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"there is no group in {folder}: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BadInput(f"a member of the group in {folder} is being replaced by somebody else: wait for that") from None
    finally:
        os.close(descriptor)


def _wanted(folder: Path, file: GroupFile, number: int, wanted: Wanted | None) -> Wanted:
    if wanted is not None:
        return wanted
    old = file.members[number]
    return folder / old.folder if old.folder else msgspec.structs.replace(old, incarnation="")


def _replaced(
    folder: Path, file: GroupFile, number: int, place: MemberPlace, members: Sequence[BlobMember], fresh: BlobMember
) -> Replaced:
    session, seen, sources = _told(file, number, members)
    rules = _merged([_known(source.rules(), Rules) for source in sources], place.incarnation)
    copied = _copied(sources, rules, fresh)
    for reply in (fresh.admit(session), fresh.remember(seen)):
        _known(reply, Done)
    put_group(folder, file.with_member(number, place))
    return Replaced(place, len(copied), sum(copied.values()))


# --- the others ---------------------------------------------------------------------------------------------------------


def _told(
    file: GroupFile, number: int, members: Sequence[BlobMember]
) -> tuple[int, tuple[int, ...], Sequence[BlobMember]]:
    """Tell the others of another session; return it, who takes part in which, and the members that have what there is."""
    standings = [member.standing() for member in members]
    obstacles, last = obstacles_of(standings, file.incarnations), last_sessions(standings)
    session = max(*last, *(each.session for each in standings if isinstance(each, Standing))) + 1
    others = [each for each, why in enumerate(obstacles) if why is None and each != number]
    needed = max(file.quorum.cover, len(members) - file.quorum.fence + 1)
    _check_enough(others, needed, [why for each, why in enumerate(obstacles) if why is not None and each != number])
    replies = {each: members[each].admit(session, admission_of(standings[each])) for each in others}
    others = [each for each in others if isinstance(replies[each], Done)]
    _check_enough(others, needed, [str(reply) for reply in replies.values() if isinstance(reply, Failed)])
    seen = tuple(session if each in (*others, number) else last[each] for each in range(len(members)))
    told = {each: members[each].remember(seen) for each in others}
    others = [each for each in others if isinstance(told[each], Done)]
    _check_enough(others, needed, [str(reply) for reply in told.values() if isinstance(reply, Failed)])
    old = [number] if obstacles[number] is None else []
    return session, seen, [members[each] for each in (*others, *old)]


def _check_enough(others: Sequence[int], needed: int, reasons: Sequence[str]) -> None:
    if len(others) < needed:
        why = "; ".join(reasons) or "there are no more"
        raise StoreError(
            f"{needed} other members must answer and {len(others)} do: bring back those that are away, then try again ({why})"
        )


def _known(reply: object, kind: type[T]) -> T:
    if isinstance(reply, kind):
        return reply
    raise StoreError(f"a member did not do what it was asked, so nothing was replaced; try again: {reply}")


# --- what is copied -------------------------------------------------------------------------------------------------------


def _merged(rules: Sequence[Rules], incarnation: str) -> Rules:
    """Return all that anybody refuses.

    Of two who fenced one generation nobody is favoured: either may have won with the old member.
    """
    fences, barriers = dict[TabletId, Fence](), dict[tuple[TabletId, Channel], Barrier]()
    for each in rules:
        for tablet, fence in each.fences:
            known = fences.get(tablet)
            if known is None or fence.generation > known.generation:
                fences[tablet] = fence
            elif fence.generation == known.generation and fence != known:
                fences[tablet] = Fence(fence.generation, f"nobody: {incarnation}")
        for tablet, channel, barrier in each.barriers:
            known_barrier = barriers.get((tablet, channel))
            if known_barrier is None or barrier.order > known_barrier.order:
                barriers[tablet, channel] = barrier
    return Rules(tuple(sorted(fences.items())), tuple((*where, barriers[where]) for where in sorted(barriers)))


def _copied(sources: Sequence[BlobMember], rules: Rules, fresh: BlobMember) -> dict[BlobId, int]:
    """Give the new member what the others refuse and what they have; return the sizes of its blobs, in bytes."""
    fences, barriers = dict(rules.fences), {(tablet, channel): each for tablet, channel, each in rules.barriers}
    for (tablet, channel), barrier in barriers.items():
        for command in _commands(tablet, channel, barrier):
            fresh.answer(Sweep(command))  # what it has already it refuses, and all is compared in the end
    sizes = dict[BlobId, int]()
    streams = {stream for source in sources for stream in _known(source.streams(), Streams).streams}
    for tablet, channel in sorted(streams):
        found = _all_blobs(sources, tablet, channel, barriers.get((tablet, channel), Barrier()))
        for batch in _batches(found):
            _do(fresh, Write(batch, fences.get(tablet)))
        sizes |= {blob: len(data) for blob, data in found.items()}
    for tablet, fence in fences.items():
        _do(fresh, Raise(tablet, fence))
    if _known(fresh.rules(), Rules) != rules:
        raise StoreError("the new member was begun in another way before: remove it, or name another place for it")
    return sizes


def _do(fresh: BlobMember, request: Request) -> None:
    reply = fresh.answer(request)
    if not isinstance(reply, Done):
        raise StoreError(
            f"the new member does not take what the others have, so nothing was replaced; try again: {reply}"
        )


def _commands(tablet: TabletId, channel: Channel, barrier: Barrier) -> Iterator[Collection]:
    """Yield what a member has to be told so that its barrier becomes this one."""
    generation, number = barrier.order
    if barrier.hard > NOTHING:
        yield Collection(tablet, channel, (generation, number - 1), barrier.hard, is_hard=True)
    yield Collection(tablet, channel, barrier.order, barrier.soft, tuple(sorted(barrier.keep)))


def _all_blobs(sources: Sequence[BlobMember], tablet: TabletId, channel: Channel, barrier: Barrier) -> Blobs:
    """Return what anybody has of a channel.

    Raises
    ------
    StoreError
        Something is not there in one piece, or in two that differ.
    """
    first, found, damaged = first_of(tablet, channel, NOTHING), Blobs(), set[BlobId]()
    for source in sources:
        contents = _known(source.answer(Scan(first, end_of(first))), Contents)
        for blob, data in contents.blobs:
            if found.setdefault(blob, data) != data:
                raise StoreError(f"two copies of blob {blob} differ: look with `replitree tablet verify`")
        damaged |= set(contents.damaged)
        if any(not barrier.has_swept_all(*doubt) for doubt in contents.doubts):
            damaged.add(contents.doubts[0][0])
    lost = sorted(blob for blob in damaged - found.keys() if not barrier.has_swept(blob))
    if lost:
        raise StoreError(
            f"blob {lost[0]}, or what was there, can't be read on any other member, and the one that is replaced may have had"
            " it: bring that one back; or let the leader make a snapshot, which lets damage go (docs/tablet.md)"
        )
    return {blob: data for blob, data in found.items() if not barrier.has_swept(blob)}


def _batches(blobs: Blobs) -> Iterator[tuple[tuple[BlobId, bytes], ...]]:
    batch, size = list[tuple[BlobId, bytes]](), 0
    for blob, data in sorted(blobs.items()):
        if batch and size + len(data) > BATCH_BYTES:
            yield tuple(batch)
            batch, size = [], 0
        batch.append((blob, data))
        size += len(data)
    if batch:
        yield tuple(batch)
