"""A blob group that is open: which members take part, and what is done when one of them may have forgotten something.

A member answers as what it was admitted (`blob_member.Admission`), each request anew.  So a directory that was exchanged while
the group is open is found out by itself, if it does not know the session of the opening, and by the others, if it does: when
somebody else has opened the group since, one of them answers `Reopened`.  Then all are asked how they stand before anybody
goes on:

* No member that took part has forgotten anything: the request is sent again.
* One has, or does not say: what it was given since may be gone, and some of that may have been counted already.  The group
  answers nobody any more; whoever uses it opens it anew, without that member.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from replitree.errors import StoreError
from replitree.storage.blob_group import Answering, AskedMember, BlobGroups
from replitree.storage.blob_member import (
    Admission,
    BlobMember,
    Reopened,
    Standing,
    admission_of,
    obstacles_of,
    opened,
)
from replitree.tablet.member import Failed, Reply, Request
from replitree.tablet.quorum import Quorum

LOOKS = 2
"""How often members are asked how they stand before one is said to have forgotten something."""

OPENINGS_MAX = 4
"""How often the group may be opened by others while a request is answered."""

Asks: TypeAlias = Callable[[Answering], AskedMember]
"""Makes what sends requests to a member."""


class AdmittedMember:
    """A member as it was admitted.

    Parameters
    ----------
    member
        Which.
    look_again
        Called when somebody has opened the group since; tells whether the request may be sent again.

    Attributes
    ----------
    member
        Which one is asked.
    terms
        As what it was admitted; or why it does not take part.
    """

    def __init__(self, member: BlobMember, look_again: Callable[[], bool]) -> None:
        self.terms: Admission | str = "it was not admitted yet"
        self.member = member
        self._look_again = look_again

    @property
    def is_concurrent(self) -> bool:
        """Whether requests need not wait for each other."""
        return getattr(self.member, "is_concurrent", False)

    def answer(self, request: Request) -> Reply:
        """Do what is asked, if the member is the one that was admitted."""
        reply = self._answer(request)
        for _ in range(OPENINGS_MAX):
            if not isinstance(reply, Reopened) or not self._look_again():
                break
            reply = self._answer(request)
        return reply

    def _answer(self, request: Request) -> Reply:
        terms = self.terms
        return Failed(terms) if isinstance(terms, str) else self.member.answer_as(terms, request)


class OpenMembers:
    """Members of a group that is open, and who asks them.

    Parameters
    ----------
    quorum
        The numbers of the group.
    members
        All members, in the order of their numbers.
    incarnations
        Which directories they must be, as the group's configuration says.
    asks
        Makes what sends requests to a member.
    patience_s
        How long a silent member is waited for, in seconds.

    Attributes
    ----------
    groups
        Runs procedures on it.
    obstacles
        For each member None if it takes part, else why not.
    forgot
        Why nobody is answered any more: a member that took part has forgotten something; None while nothing is known of that.

    Raises
    ------
    StoreError
        Too few members can take part.
    """

    def __init__(
        self, quorum: Quorum, members: Sequence[BlobMember], incarnations: Sequence[str], asks: Asks, patience_s: float
    ) -> None:
        self._quorum = quorum
        self._members = list(members)
        self._incarnations = list(incarnations)
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._session = 0
        self.forgot: str | None = None
        self._admitted = [AdmittedMember(member, self._look_again) for member in members]
        self._open()
        self._asked = [asks(each) for each in self._admitted]
        self.groups = BlobGroups({quorum.group: (quorum, self._asked)}, patience_s)

    @property
    def away(self) -> tuple[int, ...]:
        """The members that do not take part, did not do what they were asked last, or are silent."""
        return tuple(
            number
            for number, (obstacle, asked) in enumerate(zip(self.obstacles, self._asked, strict=True))
            if obstacle is not None or asked.health.trouble is not None or asked.health.silent_s > self._patience_s
        )

    def readmit(self) -> bool:
        """Let members take part that were away and are back; tell whether there were any."""
        with self._lock:
            before = self.obstacles.count(None)
            if before == len(self._members) or self.forgot is not None:
                return False
            standings = self._standings()
            if standings is None or obstacles_of(standings, self._incarnations).count(None) <= before:
                return False
            try:
                self._open()
            except StoreError:
                return False  # those that take part go on
            return self.obstacles.count(None) > before

    def exchange(self, number: int, member: BlobMember, incarnation: str) -> BlobMember:
        """Ask another member from now on, when it is admitted; return the one that was asked so far."""
        with self._lock:
            old, self._members[number], self._incarnations[number] = self._members[number], member, incarnation
            self._admitted[number].terms = "it was made anew, and is not admitted yet"
            self._admitted[number].member = member
            return old

    def _look_again(self) -> bool:
        """Ask every member how it stands, for somebody has opened the group; tell whether one may go on."""
        with self._lock:
            standings = None if self.forgot is not None else self._standings()
            if standings is None:
                return False
            self._session = max(self._session, _latest(standings))
            self._take(obstacles_of(standings, self._incarnations), [admission_of(each) for each in standings])
            return True

    def _standings(self) -> list[Standing | Failed] | None:
        """Ask every member how it stands; None if one that took part may not be what it was: then nobody is answered any more.

        Whoever is just opening the group may tell one member what another one has not heard yet, so it is looked twice.
        """
        doubt: str | None = None
        for _ in range(LOOKS):
            standings = [member.standing() for member in self._members]
            doubt = self._doubt(standings)
            if doubt is None:
                return standings
        self.forgot = doubt
        for each in self._admitted:
            each.terms = f"{doubt}: open the group again"
        return None

    def _doubt(self, standings: Sequence[Standing | Failed]) -> str | None:
        """Return which member that took part may have forgotten something; as long as nobody has opened the group, none."""
        if _latest(standings) <= self._session:
            return None
        for number, reason in enumerate(obstacles_of(standings, self._incarnations)):
            if reason is not None and self.obstacles[number] is None:
                return f"member {number} took part and may have forgotten something ({reason})"
        return None

    def _open(self) -> None:
        opening = opened(self._quorum, self._members, self._incarnations)
        self._session = opening.session
        self._take(opening.obstacles, [Admission(each, opening.session) for each in self._incarnations])

    def _take(self, obstacles: tuple[str | None, ...], admissions: Sequence[Admission | None]) -> None:
        self.obstacles = obstacles
        for each, obstacle, admission in zip(self._admitted, obstacles, admissions, strict=True):
            each.terms = obstacle or admission or "it does not say how it stands"


def _latest(standings: Sequence[Standing | Failed]) -> int:
    return max((each.session for each in standings if isinstance(each, Standing)), default=0)
