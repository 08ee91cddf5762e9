"""What a member of a blob group can do, and which members take part when a group is opened.

A member answers requests by the rules of `replitree.tablet.member`.  Beside that it can be told how often the group was opened
with it, its *session*, and how often the others were.  So it shows when a member has forgotten something: an old copy of a
directory was put in its place, or an empty one.  Then the others remember a later session than it does itself, and it does not
take part, for its "no" would prove nothing.  A member that was only away is not suspected: nobody was told that it was there.

Whoever has opened a group asks its members *as* what they were admitted, an `Admission`.  One that has forgotten the session,
or is another directory, does not answer.  One that knows a later session answers `Reopened`: somebody else has opened the
group, and may have found that a member has forgotten something.  Only the others remember that, so they are asked before
anybody goes on (`blob_opening`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from replitree.errors import StoreError
from replitree.tablet.effects import Fence
from replitree.tablet.ids import Channel, TabletId
from replitree.tablet.member import Barrier, Done, Failed, Holdings, Reply, Request, answer
from replitree.tablet.quorum import Quorum

MEND_IT = "make it anew from the others with `replitree tablet replace`"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a member knows of openings.

    Attributes
    ----------
    incarnation
        Which directory it is: made with it, and never used twice.
    session
        The last opening that it took part in; 0: none.
    seen
        For each member, by number, the last opening that it took part in as far as this one was told.
    """

    incarnation: str
    session: int
    seen: tuple[int, ...]


class Admission(NamedTuple):
    """As what a member takes part: which directory it is, and the last session that it must know of."""

    incarnation: str
    session: int


@dataclass(frozen=True, slots=True)
class Reopened(Failed):
    """The group was opened again: look whether every member is the one it was, then ask as of this session."""

    session: int


@dataclass(frozen=True, slots=True)
class Opening:
    """How a group was opened: for each member None if it takes part, else why not; and as which session."""

    obstacles: tuple[str | None, ...]
    session: int


@dataclass(frozen=True, slots=True)
class Streams:
    """Tablets and channels, ascending."""

    streams: tuple[tuple[TabletId, Channel], ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a member refuses to take: its fences, by tablet, and its barriers, by tablet and channel; ascending."""

    fences: tuple[tuple[TabletId, Fence], ...] = ()
    barriers: tuple[tuple[TabletId, Channel, Barrier], ...] = ()


class BlobMember(Protocol):
    """One member of a blob group."""

    def answer(self, request: Request) -> Reply:
        """Do what is asked, durably, and say so; `Failed` when that is not possible."""

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Do what is asked if it is the member that was admitted; else `Failed` (see `refusal`)."""

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening, if it is the one that stood so, or has learnt more since."""

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember who takes part."""

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has, or had, blobs in which channels."""

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""


def forgotten(admission: Admission, incarnation: str, session: int) -> Failed | None:
    """Return why a member with these is not the one that was admitted, or one that has forgotten it; None if it is."""
    if incarnation != admission.incarnation:
        return Failed("another directory is in its place than the one that was admitted: bring that one back")
    if session < admission.session:
        return Failed(f"it has forgotten session {admission.session}: an old copy was put in its place; {MEND_IT}")
    return None


def refusal(admission: Admission, incarnation: str, session: int) -> Failed | None:
    """Return why a member with these does not answer who was told that it was admitted so; None if it does."""
    if session > admission.session and incarnation == admission.incarnation:
        return Reopened(f"the group was opened again, as session {session}", session)
    return forgotten(admission, incarnation, session)


def open_members(quorum: Quorum, members: Sequence[BlobMember], incarnations: Sequence[str]) -> tuple[str | None, ...]:
    """Open a group; return for each member None if it takes part, else why not (see `opened`)."""
    return opened(quorum, members, incarnations).obstacles


def opened(quorum: Quorum, members: Sequence[BlobMember], incarnations: Sequence[str]) -> Opening:
    """Open a group.

    Parameters
    ----------
    quorum
        The group's numbers.
    members
        All members, in the order of their numbers.
    incarnations
        Which directories they must be, as the group's configuration says.

    Raises
    ------
    StoreError
        Too few members can take part.
    """
    standings = [member.standing() for member in members]
    reasons, last = list(obstacles_of(standings, incarnations)), last_sessions(standings)
    session = max((each.session for each in standings if isinstance(each, Standing)), default=0) + 1
    for number, member in enumerate(members):
        if reasons[number] is None:
            reasons[number] = _reason(member.admit(session, admission_of(standings[number])))
    seen = tuple(session if reason is None else last[number] for number, reason in enumerate(reasons))
    for number, member in enumerate(members):
        if reasons[number] is None:
            reasons[number] = _reason(member.remember(seen))
    if reasons.count(None) < quorum.fence:
        why = "; ".join(f"member {number}: {reason}" for number, reason in enumerate(reasons) if reason)
        raise StoreError(f"blob group {quorum.group}: {quorum.fence} of {quorum.members} members are needed: {why}")
    return Opening(tuple(reasons), session)


def admission_of(standing: Standing | Failed) -> Admission | None:
    """Return as what a member stands; None if it does not say."""
    return None if isinstance(standing, Failed) else Admission(standing.incarnation, standing.session)


def obstacles_of(standings: Sequence[Standing | Failed], incarnations: Sequence[str]) -> tuple[str | None, ...]:
    """Return for each member None if what it knows of openings lets it take part, else why not."""
    last = last_sessions(standings)
    return tuple(_obstacle(*each) for each in zip(standings, incarnations, last, strict=True))


def last_sessions(standings: Sequence[Standing | Failed]) -> tuple[int, ...]:
    """Return the last opening that each member took part in, as far as any of them knows."""
    known = [each for each in standings if isinstance(each, Standing)]
    return tuple(
        max((each.seen[number] for each in known if number < len(each.seen)), default=0)
        for number in range(len(standings))
    )


def _obstacle(standing: Standing | Failed, incarnation: str, session: int) -> str | None:
    if isinstance(standing, Failed):
        return standing.reason
    if standing.incarnation != incarnation:
        return f"it is not the directory that the group was made with: bring that one back, or {MEND_IT}"
    if standing.session < session:
        return f"it has forgotten session {session}: an old copy was put in its place; {MEND_IT}"
    return None


def _reason(reply: Done | Failed) -> str | None:
    return reply.reason if isinstance(reply, Failed) else None


class MemoryMember:
    """A member in memory: the rules, and nothing else.

    Parameters
    ----------
    incarnation
        Which one it is.

    Attributes
    ----------
    held, session, seen
        All that it knows; a test may go back to an earlier state.
    trouble
        Why it does not answer at all; None while it does.
    is_full
        Whether it takes no blobs.
    """

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.held = Holdings()
        self.session = 0
        self.seen: tuple[int, ...] = ()
        self.trouble: str | None = None
        self.is_full = False

    def answer(self, request: Request) -> Reply:
        """Do what is asked."""
        if self.trouble is not None:
            return Failed(self.trouble)
        held, reply = answer(self.held, request)
        if self.is_full and len(held.names) + len(held.fences) > len(self.held.names) + len(self.held.fences):
            return Failed("it is full")
        self.held = held
        return reply

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Do what is asked if it is the member that was admitted."""
        return refusal(admission, self.incarnation, self.session) or self.answer(request)

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""
        return Failed(self.trouble) if self.trouble else Standing(self.incarnation, self.session, self.seen)

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening."""
        if stood is not None and (lost := forgotten(stood, self.incarnation, self.session)) is not None:
            return lost
        self.session = max(self.session, session)
        return Done()

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember who takes part."""
        self.seen = seen
        return Done()

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has blobs in which channels."""
        found = {(blob.tablet, blob.channel) for blob in self.held.names}
        return Failed(self.trouble) if self.trouble else Streams(tuple(sorted(found)))

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""
        return Failed(self.trouble) if self.trouble else Rules(self.held.fences, self.held.barriers)
