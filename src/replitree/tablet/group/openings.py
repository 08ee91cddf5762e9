"""How a blob group is opened, and what happens when one of its members may have lost blobs.

An opening asks all members three questions, each of all at once: their state; then, of those that no other contradicts, to
record that they take part; then to record which others do.  It succeeds when as many members as a fence needs answered all
three.  A member that is silent for long does not take part.  A member is admitted only in the state that it reported: if
another process has opened the group since, and too few members are left, the opening begins again.

A member checks with each request the admission under which it was admitted (`admission`).  So a directory that was exchanged
while the group is open is detected: by itself, if it does not know the session of the opening; by the others, if it does,
because then another process has opened the group since, and one of them answers `Reopened`.  In that case the process asks all
members for their state before it goes on:

* If no member that took part has lost blobs, it sends the request again under the later session.
* If one has lost blobs, or does not answer, blobs that were stored on it since may be gone, and some of them may have been
  counted as stored.  The group refuses every request from now on; the process opens it again, without that member.

Procedures here yield `AskEach`, or, for one member of a group that is open, `AskAdmitted` and `LookAgain`.
`replitree_verify/openings` explores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replitree.errors import StoreError
from replitree.tablet.group.admission import (
    Admission,
    Admit,
    Answer,
    AskStanding,
    Question,
    Remember,
    Reopened,
    Standing,
    admission_of,
    forgotten,
    last_sessions,
    latest_of,
    obstacles_of,
)
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.member import Failed, Reply
from replitree.tablet.group.quorum import Quorum

LOOKS = 2
"""How often members are asked how they stand before one is said to have forgotten something."""

ATTEMPTS = 3
"""How often an opening is begun when another process opens the group meanwhile."""

OPENINGS_MAX = 4
"""How often the group may be opened by others while a request is answered."""


@dataclass(frozen=True, slots=True)
class AskEach:
    """Ask each member its question (None: nothing), all at once.  Outcome: the answers; None: not asked.

    A member that does not answer is `Failed`; it may execute the request later.

    Attributes
    ----------
    questions
        For each member.
    wanted
        With so many good answers the rest are not worth a long wait; None: all are wanted.
    """

    questions: tuple[Question | None, ...]
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class AskAdmitted:
    """Send a member the request, as what it is admitted now.  Outcome: its reply; `Failed` if it does not take part."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Run `look_again`, one at a time.  Outcome: whether one may go on."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A group that is open.

    Attributes
    ----------
    session
        The latest that is known.
    obstacles
        For each member None if it takes part, else why not.
    admissions
        For each member that takes part as what; None for those that did not say how they stand.
    forgot
        Why the group refuses every request: a member that took part may have lost blobs; None while no such member is
        known.
    """

    session: int
    obstacles: tuple[str | None, ...]
    admissions: tuple[Admission | None, ...]
    forgot: str | None = None

    def terms(self, number: int) -> Admission | str:
        """Return as what a member is asked, or why it is not."""
        if self.forgot is not None:
            return f"{self.forgot}: open the group again"
        return self.obstacles[number] or self.admissions[number] or "it does not say how it stands"


def open_group(quorum: Quorum, incarnations: Sequence[str]) -> Procedure[Opening]:
    """Open a group.

    Parameters
    ----------
    quorum
        The group's numbers.
    incarnations
        Which directories its members must be, as the group's configuration says.

    Raises
    ------
    StoreError
        Too few members can take part.
    """
    reasons = tuple[str | None, ...]()
    for _ in range(ATTEMPTS):
        session, reasons, is_overtaken = yield from _opened(incarnations, quorum.fence)
        if reasons.count(None) >= quorum.fence:
            return Opening(session, reasons, tuple(Admission(each, session) for each in incarnations))
        if not is_overtaken:
            break
    why = "; ".join(f"member {number}: {reason}" for number, reason in enumerate(reasons) if reason)
    raise StoreError(f"blob group {quorum.group}: {quorum.fence} of {quorum.members} members are needed: {why}")


def _opened(incarnations: Sequence[str], wanted: int) -> Procedure[tuple[int, tuple[str | None, ...], bool]]:
    """Return the session; for each member why it does not take part; and whether one did not, although it could have."""
    standings = yield from _stand(len(incarnations), wanted)
    fit, last = obstacles_of(standings, incarnations), last_sessions(standings, incarnations)
    # Odd, and above all that any member knows: no other opening gives the same number to other members.
    session = following(latest_of(standings))
    reasons = yield from _ask_fit(fit, tuple(Admit(session, admission_of(each)) for each in standings), wanted)
    # A member that could take part did not: another opening was faster.
    is_overtaken = reasons != fit
    seen = tuple(session if reason is None else known for reason, known in zip(reasons, last, strict=True))
    reasons = yield from _ask_fit(reasons, (Remember(seen),) * len(reasons), wanted)
    return session, reasons, is_overtaken


def following(session: int) -> int:
    """Return the session of an opening, when a session is the latest: an odd one; `replacing` has the even ones."""
    return session + 1 + session % 2


def _stand(members: int, wanted: int) -> Procedure[tuple[Standing | Failed, ...]]:
    answers: tuple[Answer, ...] = yield AskEach((AskStanding(),) * members, wanted)
    return tuple(each if isinstance(each, Standing | Failed) else Failed(f"it answered {each}") for each in answers)


def _ask_fit(
    reasons: tuple[str | None, ...], questions: Sequence[Admit | Remember], wanted: int
) -> Procedure[tuple[str | None, ...]]:
    """Ask those that nothing speaks against; return for each what does now."""
    asked = tuple(each if reason is None else None for each, reason in zip(questions, reasons, strict=True))
    answers: tuple[Answer | None, ...] = yield AskEach(asked, wanted)
    return tuple(
        each.reason if isinstance(each, Failed) else reason for each, reason in zip(answers, reasons, strict=True)
    )


# --- a group that is open -------------------------------------------------------------------------------------------------


def ask_admitted() -> Procedure[Reply]:
    """Ask a member of an open group; again as often as another process has opened the group and no member has lost blobs."""
    reply: Reply = yield AskAdmitted()
    return (yield from ask_again(reply))


def ask_again(reply: Reply) -> Procedure[Reply]:
    """Go on with what a member of an open group has said: the end of `ask_admitted`, and most often nothing."""
    for _ in range(OPENINGS_MAX):
        # Every other answer is final; and a group that may have lost blobs answers nothing more.
        if not isinstance(reply, Reopened) or not (yield LookAgain()):
            break
        reply = yield AskAdmitted()
    return reply


def look_again(opening: Opening, incarnations: Sequence[str]) -> Procedure[Opening]:
    """Ask every member for its state, because another process has opened the group; return the present opening."""
    if opening.forgot is not None:
        return opening
    return (yield from _looked(opening, incarnations))[0]


def readmit(quorum: Quorum, opening: Opening, incarnations: Sequence[str]) -> Procedure[Opening]:
    """Let members take part that were away and are back, or were made anew; return the opening as it is from now on."""
    before = opening.obstacles.count(None)
    # All take part, or none may: nothing to do.
    if before == len(incarnations) or opening.forgot is not None:
        return opening
    looked, standings = yield from _looked(opening, incarnations)
    if looked.forgot is not None:
        return looked
    # An opening disturbs every process that has the group open: it must bring a member in.
    if obstacles_of(standings, incarnations).count(None) <= before:
        return opening
    try:
        again = yield from open_group(quorum, incarnations)
    except StoreError:
        return opening  # those that take part go on
    gone = [
        number for number, why in enumerate(again.obstacles) if why is not None and looked.obstacles[number] is None
    ]
    # Another process opened the group in between, and a member that took part does not any more.
    if gone and again.session > following(looked.session):
        return replace(looked, forgot=_suspected(gone[0], again.obstacles[gone[0]]))
    return again


def _looked(opening: Opening, incarnations: Sequence[str]) -> Procedure[tuple[Opening, tuple[Standing | Failed, ...]]]:
    """Return the opening as its members stand now, and their standings; only an opening admits further members.

    A process that is just opening the group may have informed one member and not yet another, so every member is asked
    twice.  The procedure goes on with as many answers as members take part: it does not wait for a member that is away.
    """
    doubt, standings = None, tuple[Standing | Failed, ...]()
    for _ in range(LOOKS):
        standings = yield from _stand(len(incarnations), opening.obstacles.count(None))
        doubt = _doubt(opening, standings, incarnations)
        if doubt is None:
            session = max(opening.session, latest_of(standings))
            obstacles = zip(opening.obstacles, obstacles_of(standings, incarnations), strict=True)
            admissions = tuple(admission_of(each) for each in standings)
            return Opening(session, tuple(before or now for before, now in obstacles), admissions), standings
    return replace(opening, forgot=doubt), standings


def _doubt(opening: Opening, standings: Sequence[Standing | Failed], incarnations: Sequence[str]) -> str | None:
    """Return which member may have forgotten something that takes part.

    It has if it knows less than when it was admitted; else it is not suspected while no process has opened the group since.
    """
    latest = latest_of(standings)
    for number, reason in enumerate(obstacles_of(standings, incarnations)):
        terms = opening.terms(number)
        if not isinstance(terms, Admission):
            continue
        standing, lost = standings[number], None
        if isinstance(standing, Standing) and standing.incarnation == terms.incarnation:
            # Of another incarnation it is another directory, and not one that has forgotten.
            lost = forgotten(terms, standing.incarnation, standing.session)
        # Without an opening since then no other process counts on the member: its trouble is its own.
        if lost is not None or (reason is not None and terms.session < latest):
            return _suspected(number, reason or (None if lost is None else lost.reason))
    return None


def _suspected(number: int, reason: str | None) -> str:
    return f"member {number} took part and may have forgotten something ({reason})"
