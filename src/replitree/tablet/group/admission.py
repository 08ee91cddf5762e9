"""Which members of a blob group take part: what a member knows of openings, and the rules that every implementation obeys.

Besides its blobs a member remembers how often the group was opened with it, its *session*, and how often with each of the
others, as far as it was informed.  This shows when a member has lost blobs because an old copy of a directory, or an empty one,
was put in its place: the others remember a later session of it than it does.  Such a member does not take part, because its "I
do not have that blob" would prove nothing.  A member that was only away is not suspected: no other member recorded a session
with it.

A process that has opened a group sends with each request the `Admission` under which it admitted the member:

======================================  ==================================================================================
the member is                           and answers
======================================  ==================================================================================
another directory                       `Failed`
at an earlier session                   `Failed`: it has lost blobs
at this session                         the request
at a later session                      `Reopened`: another process has opened the group, and may have found that a member has
                                        lost blobs.  Only the other members remember that
======================================  ==================================================================================

`serve` is a member as a value.  `openings` has the questions of an opening, and their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from replitree.tablet.group.effects import Fence
from replitree.tablet.group.ids import Channel, TabletId
from replitree.tablet.group.member import Barrier, Done, Failed, Holdings, Reply, Request, answer

MEND_IT = "make it anew from the others with `replitree tablet replace`"


class Admission(NamedTuple):
    """A member's admission to a session: its incarnation, and the last session that it must know."""

    incarnation: str
    session: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A member's knowledge of openings.

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


# --- questions and answers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskStanding:
    """Reply: `Standing`, `Failed`."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Remember that you take part in an opening.  Reply: `Done`, `Failed`."""

    session: int
    stood: Admission | None = None


@dataclass(frozen=True, slots=True)
class Remember:
    """Remember each member's last session.  Reply: `Done`, `Failed`."""

    seen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskStreams:
    """Reply: `Streams`, `Failed`."""


@dataclass(frozen=True, slots=True)
class AskRules:
    """Reply: `Rules`, `Failed`."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Tablets and channels, ascending."""

    streams: tuple[tuple[TabletId, Channel], ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which a member refuses blobs: its fences, by tablet, and its barriers, by tablet and channel; ascending."""

    fences: tuple[tuple[TabletId, Fence], ...] = ()
    barriers: tuple[tuple[TabletId, Channel, Barrier], ...] = ()


@dataclass(frozen=True, slots=True)
class Reopened(Failed):
    """The group was opened again: look whether every member is the one it was, then ask as of this session."""

    session: int


Question: TypeAlias = Request | AskStanding | Admit | Remember | AskStreams | AskRules
Answer: TypeAlias = Reply | Standing | Streams | Rules


# --- what a member says ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member as a value: what it knows of openings, and what it holds."""

    standing: Standing
    held: Holdings


def serve(place: MemberState, question: Question, admission: Admission | None = None) -> tuple[MemberState, Answer]:
    """Return a member's state after a question, and its answer; `admission`: the one that the question names, if any."""
    standing, held = place.standing, place.held
    # Before anything is changed: a member that was exchanged must not take a write for the one that it replaced.
    if admission is not None and (refused := refusal(admission, *_who(standing))) is not None:
        return place, refused
    match question:
        case AskStanding():
            return place, standing
        case Admit(session, stood):
            known, reply = admitted(standing, session, stood)
            return replace(place, standing=known), reply
        case Remember(seen):
            return replace(place, standing=told(standing, seen)), Done()
        case AskStreams():
            return place, Streams(tuple(sorted({(blob.tablet, blob.channel) for blob in held.names})))
        case AskRules():
            return place, Rules(held.fences, held.barriers)
        case _:
            after, said = answer(held, question)
            return replace(place, held=after), said


def _who(standing: Standing) -> tuple[str, int]:
    return standing.incarnation, standing.session


def forgotten(admission: Admission, incarnation: str, session: int) -> Failed | None:
    """Return why a member in this state is not the one that was admitted, or has forgotten it; None if it is."""
    if incarnation != admission.incarnation:
        return Failed("another directory is in its place than the one that was admitted: bring that one back")
    if session < admission.session:
        return Failed(f"it has forgotten session {admission.session}: an old copy was put in its place; {MEND_IT}")
    return None


def refusal(admission: Admission, incarnation: str, session: int) -> Failed | None:
    """Return why a member in this state refuses a process that knows this admission; None if it answers."""
    if session > admission.session and incarnation == admission.incarnation:
        return Reopened(f"the group was opened again, as session {session}", session)
    return forgotten(admission, incarnation, session)


def admitted(standing: Standing, session: int, stood: Admission | None) -> tuple[Standing, Done | Failed]:
    """Return a member's standing after an opening has admitted it, and its reply.

    Its state must be the one that it reported, or it knows of this opening already: the opening process does not know what
    happened since.
    """
    # The same session again is a repetition of this opening, and allowed.
    if stood is not None and standing.session != session:
        refused = refusal(stood, *_who(standing))
        if refused is not None:
            return standing, refused
    lost = None if stood is None else forgotten(stood, *_who(standing))
    return (standing, lost) if lost is not None else (replace(standing, session=max(standing.session, session)), Done())


def told(standing: Standing, seen: Sequence[int]) -> Standing:
    """Return a member's standing after it was given each member's last session; a later session that it knew stays."""
    both = zip_longest(standing.seen, seen, fillvalue=0)
    return replace(standing, seen=tuple(max(each) for each in both))


# --- what it means --------------------------------------------------------------------------------------------------------


def admission_of(standing: Standing | Failed) -> Admission | None:
    """Return as what a member stands; None if it does not say."""
    return None if isinstance(standing, Failed) else Admission(standing.incarnation, standing.session)


def latest_of(standings: Sequence[Standing | Failed]) -> int:
    """Return the latest session that any member took part in; 0: none."""
    return max((each.session for each in standings if isinstance(each, Standing)), default=0)


def last_sessions(standings: Sequence[Standing | Failed], incarnations: Sequence[str]) -> tuple[int, ...]:
    """Return the last opening that each member took part in, as far as any of them knows; other directories don't count."""
    both = zip(standings, incarnations, strict=True)
    # What another directory has seen says nothing of this group's openings.
    known = [each for each, incarnation in both if isinstance(each, Standing) and each.incarnation == incarnation]
    return tuple(
        max((each.seen[number] for each in known if number < len(each.seen)), default=0)
        for number in range(len(standings))
    )


def obstacles_of(standings: Sequence[Standing | Failed], incarnations: Sequence[str]) -> tuple[str | None, ...]:
    """Return for each member None if what it knows of openings lets it take part, else why not."""
    last = last_sessions(standings, incarnations)
    return tuple(_obstacle(*each) for each in zip(standings, incarnations, last, strict=True))


def _obstacle(standing: Standing | Failed, incarnation: str, session: int) -> str | None:
    if isinstance(standing, Failed):
        return standing.reason
    if standing.incarnation != incarnation:
        return f"it is not the directory that the group was made with: bring that one back, or {MEND_IT}"
    if standing.session < session:
        return f"it has forgotten session {session}: an old copy was put in its place; {MEND_IT}"
    return None
