"""Rebuilding a member of a blob group from the others: the old one is lost, has lost blobs, or is not used any more.

The steps, in this order; each of them, and the whole, may be repeated:

1. Make the new member, with an incarnation of its own.  No group file names it yet, so no process sends it a request.
2. Record on the others another session, in which the member took part.  From now on the old member, if it still exists, does
   not know that session, and no process that opens the group, or has it open, counts on it (`openings`).  When all others know
   that session, record one more on them, so that a process that has looked at them meanwhile looks again.
3. Copy to the new member all that the others refuse, so that it has every fence and every barrier; and every blob that any of
   them has.
4. Record the session on the new member, and name it in the group's file.  A process that has the group open admits it, and
   restores the blobs that it lacks.

A blob that was stored with the old member before step 2 has copies on the others, or on enough of those that must answer here;
a later one has its copies on them.  If only damaged copies of a blob are left the old member may have had the last whole one.
Then the procedure does nothing, because the new member would deny that the blob ever existed.

The procedure yields `AskEach` for the members, with the new one after them; and `NameIt`.  `replitree_verify/openings`
explores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from replitree.errors import StoreError
from replitree.tablet.group.admission import (
    Admission,
    Admit,
    Answer,
    AskRules,
    AskStanding,
    AskStreams,
    Question,
    Remember,
    Rules,
    Standing,
    Streams,
    admission_of,
    last_sessions,
    latest_of,
    obstacles_of,
)
from replitree.tablet.group.effects import Collection, Fence, Procedure
from replitree.tablet.group.ids import NOTHING, BlobId, Channel, TabletId, first_of
from replitree.tablet.group.member import Barrier, Contents, Done, Failed, Raise, Scan, Sweep, Write
from replitree.tablet.group.openings import AskEach
from replitree.tablet.group.quorum import Quorum, end_of

STEP = 2
"""Sessions here are even, those of openings odd: a member that knows one kind is not mistaken for one that knows the other."""

AHEAD = 1 << 32
"""How far the session that the old member does not know is ahead of all others: no opening that knows less gives it one."""

T = TypeVar("T")
Blobs = dict[BlobId, bytes]


@dataclass(frozen=True, slots=True)
class NameIt:
    """Let the group's file name the new member.  Outcome: none."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of one member.

    Attributes
    ----------
    quorum
        The group's numbers.
    number
        Which member is made anew.
    incarnations
        Which directories the members must be, the old one included.
    incarnation
        Of the new one.
    batch_bytes
        How many bytes it is given at once, or one blob.
    """

    quorum: Quorum
    number: int
    incarnations: tuple[str, ...]
    incarnation: str
    batch_bytes: int


@dataclass(frozen=True, slots=True)
class Copied:
    """How many blobs the new member got from the others, and their bytes."""

    blobs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _CopySources:
    """The session that the others were told of, the last session of each member, and the members to copy from."""

    session: int
    seen: tuple[int, ...]
    sources: tuple[int, ...]


def make_anew(wanted: Replacement) -> Procedure[Copied]:
    """Make a member anew.

    Raises
    ------
    StoreError
        Too few of the others answer, or something is on none of them in one piece: nothing was lost, and it may be repeated.
    """
    told = yield from _tell_others(wanted)
    known = list[Rules]()
    for source in told.sources:
        # The rules before the blobs: a blob that is copied meanwhile
        # is judged by barriers that are older, and keeps more.
        known.append((yield from _ask(wanted, source, AskRules(), Rules)))
    rules = merged(known, wanted.incarnation)
    copied = yield from _copy(wanted, told.sources, rules)
    for question in (Admit(told.session), Remember(told.seen)):
        yield from _ask(wanted, _new(wanted), question, Done)
    # Last: until the group's file names it no process sends it a request.
    yield NameIt()
    return Copied(len(copied), sum(copied.values()))


def _new(wanted: Replacement) -> int:
    """Return the number of the new member: it comes after the others."""
    return len(wanted.incarnations)


def _ask(wanted: Replacement, number: int, question: Question, kind: type[T]) -> Procedure[T]:
    """Ask one member."""
    answers: tuple[Answer | None, ...] = yield AskEach(
        tuple(question if each == number else None for each in range(len(wanted.incarnations) + 1))
    )
    reply = answers[number]
    if isinstance(reply, kind):
        return reply
    if number == _new(wanted):
        raise StoreError(
            f"the new member does not take what the others have, so nothing was replaced; try again: {reply}"
        )
    raise StoreError(f"a member did not do what it was asked, so nothing was replaced; try again: {reply}")


# --- the others ---------------------------------------------------------------------------------------------------------


def _tell_others(wanted: Replacement) -> Procedure[_CopySources]:
    """Open a session with the others, give them each member's last session, and open one session more."""
    number, members = wanted.number, len(wanted.incarnations)
    asked: tuple[Answer, ...] = yield AskEach((*(AskStanding(),) * members, None), members - 1)  # the old one may hang
    standings = [each if isinstance(each, Standing | Failed) else Failed(str(each)) for each in asked[:members]]
    obstacles = obstacles_of(standings, wanted.incarnations)
    last = last_sessions(standings, wanted.incarnations)
    latest = latest_of(standings)
    # Even, and above all others: openings take odd ones.
    session = latest + STEP - latest % STEP
    others = tuple(each for each, why in enumerate(obstacles) if why is None and each != number)
    _check_enough(wanted, others, [why for each, why in enumerate(obstacles) if why is not None and each != number])
    others = yield from _ask_all(wanted, others, [Admit(session, admission_of(standing)) for standing in standings])
    seen = tuple(session if each in others else last[each] for each in range(members))
    # Far ahead of every opening: the old member can never be told this session by one that knows less.
    out = session + AHEAD
    seen = (*seen[:number], out, *seen[number + 1 :])
    others = yield from _ask_all(wanted, others, [Remember(seen)] * members)
    # A process that has the group open may have asked for the states when some of the others knew of the first session,
    # and no member that took part did: it goes on, with the old member, too.  One session more makes it ask again.
    again = [Admit(session + STEP, Admission(each, session)) for each in wanted.incarnations]
    others = yield from _ask_all(wanted, others, again)
    return _CopySources(out, seen, (*others, number) if obstacles[number] is None else others)


def _ask_all(wanted: Replacement, others: Sequence[int], questions: Sequence[Question]) -> Procedure[tuple[int, ...]]:
    """Ask the others; return those that are done, if they are enough."""
    answers: tuple[Answer | None, ...] = yield AskEach(
        (*(each if number in others else None for number, each in enumerate(questions)), None)
    )
    done = tuple(each for each in others if isinstance(answers[each], Done))
    _check_enough(wanted, done, [str(each) for each in answers if isinstance(each, Failed)])
    return done


def needed_others(quorum: Quorum) -> int:
    """Return how many others must answer: together they have every stored blob, and every fence that holds."""
    return max(quorum.cover, quorum.members - quorum.fence + 1)


def _check_enough(wanted: Replacement, others: Sequence[int], reasons: Sequence[str]) -> None:
    needed = needed_others(wanted.quorum)
    if len(others) < needed:
        why = "; ".join(reasons) or "there are no more"
        raise StoreError(
            f"{needed} other members must answer and {len(others)} do: bring back those that are away, then try again ({why})"
        )


# --- what is copied -------------------------------------------------------------------------------------------------------


def merged(rules: Sequence[Rules], incarnation: str) -> Rules:
    """Return all that any member refuses.

    Of two candidates that fenced one generation none is preferred: either may have won with the old member.
    """
    fences, barriers = dict[TabletId, Fence](), dict[tuple[TabletId, Channel], Barrier]()
    for each in rules:
        for tablet, fence in each.fences:
            known = fences.get(tablet)
            if known is None or fence.generation > known.generation:
                fences[tablet] = fence
            # A third issuer: both candidates are overtaken, whichever had won with the old member.
            elif fence.generation == known.generation and fence != known:
                fences[tablet] = Fence(fence.generation, f"nobody: {incarnation}")
        for tablet, channel, barrier in each.barriers:
            known_barrier = barriers.get((tablet, channel))
            if known_barrier is None or barrier.order > known_barrier.order:
                barriers[tablet, channel] = barrier
    return Rules(tuple(sorted(fences.items())), tuple((*where, barriers[where]) for where in sorted(barriers)))


def _copy(wanted: Replacement, sources: Sequence[int], rules: Rules) -> Procedure[dict[BlobId, int]]:
    """Give the new member what the others refuse and what they have; return the sizes of its blobs, in bytes."""
    new, fences = _new(wanted), dict(rules.fences)
    barriers = {(tablet, channel): each for tablet, channel, each in rules.barriers}
    for (tablet, channel), barrier in barriers.items():
        generation, number = barrier.order
        commands = [Collection(tablet, channel, barrier.order, barrier.soft, tuple(sorted(barrier.keep)))]
        if barrier.hard > NOTHING:
            commands.insert(0, Collection(tablet, channel, (generation, number - 1), barrier.hard, is_hard=True))
        # Refusals are no trouble: an earlier run may have given it these commands, and all rules are compared in the end.
        for command in commands:
            yield AskEach((*(None,) * new, Sweep(command)))
    sizes = dict[BlobId, int]()
    streams = set[tuple[TabletId, Channel]]()
    for source in sources:
        listed = yield from _ask(wanted, source, AskStreams(), Streams)
        streams.update(listed.streams)
    for tablet, channel in sorted(streams):
        found = yield from _all_blobs(wanted, sources, (tablet, channel), barriers.get((tablet, channel), Barrier()))
        for batch in _batches(found, wanted.batch_bytes):
            yield from _ask(wanted, new, Write(batch, fences.get(tablet)), Done)
        sizes |= {blob: len(data) for blob, data in found.items()}
    for tablet, fence in fences.items():
        # After the blobs: a member with a fence takes older blobs from its own restorer only.
        yield from _ask(wanted, new, Raise(tablet, fence), Done)
    # An earlier run may have left other rules in the new member.
    if (yield from _ask(wanted, new, AskRules(), Rules)) != rules:
        raise StoreError("the new member was begun in another way before: remove it, or name another place for it")
    return sizes


def _all_blobs(
    wanted: Replacement, sources: Sequence[int], stream: tuple[TabletId, Channel], barrier: Barrier
) -> Procedure[Blobs]:
    """Return the blobs of a channel that any member has.

    Raises
    ------
    StoreError
        Something is not there in one piece, or in two that differ.
    """
    first, found, damaged = first_of(*stream, NOTHING), Blobs(), set[BlobId]()
    for source in sources:
        contents = yield from _ask(wanted, source, Scan(first, end_of(first)), Contents)
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


def _batches(blobs: Blobs, batch_bytes: int) -> Iterator[tuple[tuple[BlobId, bytes], ...]]:
    batch, size = list[tuple[BlobId, bytes]](), 0
    for blob, data in sorted(blobs.items()):
        if batch and size + len(data) > batch_bytes:
            yield tuple(batch)
            batch, size = [], 0
        batch.append((blob, data))
        size += len(data)
    if batch:
        yield tuple(batch)
