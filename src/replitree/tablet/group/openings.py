"""How a blob group is opened, and what is done when one of its members may have forgotten something.

An opening asks all members three times, at once each time: how they stand; those that nothing speaks against, to remember that
they take part; and to remember who else does.  It has enough when so many did all that as a fence needs: who is silent for long
then does not take part, as one that is away.  A member is admitted only as it stood:
if somebody else has opened the group meanwhile, and too few are left, it begins again.

A member answers as what it was admitted (`admission`), each request anew.  So a directory that was exchanged while the group is
open is found out by itself, if it does not know the session of the opening, and by the others, if it does: when somebody else
has opened the group since, one of them answers `Reopened`.  Then all are asked how they stand before anybody goes on:

* No member that took part has forgotten anything: the request is sent again, as of the later session.
* One has, or does not say: what it was given since may be gone, and some of that may have been counted already.  The group
  answers nobody any more; whoever uses it opens it anew, without that member.

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
"""How often an opening is begun when somebody else opens the group meanwhile."""

OPENINGS_MAX = 4
"""How often the group may be opened by others while a request is answered."""


@dataclass(frozen=True, slots=True)
class AskEach:
    """Ask each member its question (None: nothing), all at once.  Outcome: the answers; None: not asked.

    Who does not answer is `Failed`, and what it was asked may take place later.

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
        Why nobody is answered any more: a member that took part may have forgotten something; None while nothing is known of
        that.
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
    session = following(latest_of(standings))
    reasons = yield from _ask_fit(fit, tuple(Admit(session, admission_of(each)) for each in standings), wanted)
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
    """Ask a member of an open group; again as often as somebody has opened the group meanwhile and nobody forgot anything."""
    reply: Reply = yield AskAdmitted()
    return (yield from ask_again(reply))


def ask_again(reply: Reply) -> Procedure[Reply]:
    """Go on with what a member of an open group has said: the end of `ask_admitted`, and most often nothing."""
    for _ in range(OPENINGS_MAX):
        if not isinstance(reply, Reopened) or not (yield LookAgain()):
            break
        reply = yield AskAdmitted()
    return reply


def look_again(opening: Opening, incarnations: Sequence[str]) -> Procedure[Opening]:
    """Ask every member how it stands, for somebody has opened the group; return the opening as it is from now on."""
    if opening.forgot is not None:
        return opening
    return (yield from _looked(opening, incarnations))[0]


def readmit(quorum: Quorum, opening: Opening, incarnations: Sequence[str]) -> Procedure[Opening]:
    """Let members take part that were away and are back, or were made anew; return the opening as it is from now on."""
    before = opening.obstacles.count(None)
    if before == len(incarnations) or opening.forgot is not None:
        return opening
    looked, standings = yield from _looked(opening, incarnations)
    if looked.forgot is not None:
        return looked
    if obstacles_of(standings, incarnations).count(None) <= before:
        return opening
    try:
        again = yield from open_group(quorum, incarnations)
    except StoreError:
        return opening  # those that take part go on
    gone = [
        number for number, why in enumerate(again.obstacles) if why is not None and looked.obstacles[number] is None
    ]
    if gone and again.session > following(looked.session):
        return replace(looked, forgot=_suspected(gone[0], again.obstacles[gone[0]]))
    return again


def _looked(opening: Opening, incarnations: Sequence[str]) -> Procedure[tuple[Opening, tuple[Standing | Failed, ...]]]:
    """Return the opening as the members stand, and how they do; who does not take part is let in by an opening only.

    Whoever is just opening the group may tell one member what another one has not heard yet, so it is looked twice.  It goes on
    with as many answers as members take part: to wait for one that is away would be in vain.
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

    It has if it knows less than when it was admitted; else nobody is suspected while nobody has opened the group since.
    """
    latest = latest_of(standings)
    for number, reason in enumerate(obstacles_of(standings, incarnations)):
        terms = opening.terms(number)
        if not isinstance(terms, Admission):
            continue
        sunk = _sunk(terms, standings[number])
        if sunk is not None or (reason is not None and terms.session < latest):
            return _suspected(number, reason or sunk)
    return None


def _sunk(terms: Admission, standing: Standing | Failed) -> str | None:
    """Return how a member has forgotten that it was admitted so; None if it does not say that."""
    if not isinstance(standing, Standing) or standing.incarnation != terms.incarnation:
        return None
    lost = forgotten(terms, standing.incarnation, standing.session)
    return None if lost is None else lost.reason


def _suspected(number: int, reason: str | None) -> str:
    return f"member {number} took part and may have forgotten something ({reason})"
