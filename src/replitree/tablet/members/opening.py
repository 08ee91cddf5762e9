"""An open blob group: its members as they were admitted, and the locks around the decisions of `tablet.group.openings`.

Several threads ask the members.  When a member answers that another process has opened the group since, one thread asks all
members for their state; the other threads go on with the requests that they have sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from replitree.procedures import run
from replitree.tablet.group.admission import Admission, Reopened
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.member import Failed, Reply, Request
from replitree.tablet.group.openings import AskAdmitted, Opening, ask_again, look_again, open_group, readmit
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members.asking import Asking, performed
from replitree.tablet.members.group import Answering, AskedMember, BlobGroups
from replitree.tablet.members.member import BlobMember

Asks: TypeAlias = Callable[[Answering], AskedMember]
"""Makes what sends requests to a member."""


class AdmittedMember:
    """A member as it was admitted.

    Parameters
    ----------
    member
        Which.
    look_again
        Called when another process has opened the group since; returns whether the request may be sent again.

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
        """Carry out a request, if the member is the one that was admitted."""
        reply = self._answer(request)
        if not isinstance(reply, Reopened):
            return reply
        return run(
            ask_again(reply),
            lambda effect: self._answer(request) if isinstance(effect, AskAdmitted) else self._look_again(),
        )

    def _answer(self, request: Request) -> Reply:
        terms = self.terms
        return Failed(terms) if isinstance(terms, str) else self.member.answer_as(terms, request)


class OpenMembers:
    """The members of an open group, and the threads that ask them.

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
        As of `Opening`.

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
        self._asking = Asking(patience_s)
        self._admitted = [AdmittedMember(member, self._look_again) for member in members]
        self._opening: Opening
        self._take(self._performed(open_group(quorum, self._incarnations)))
        self._asked = [asks(each) for each in self._admitted]
        self.groups = BlobGroups({quorum.group: (quorum, self._asked)}, patience_s)

    @property
    def obstacles(self) -> tuple[str | None, ...]:
        """For each member None if it takes part, else why not."""
        return self._opening.obstacles

    @property
    def forgot(self) -> str | None:
        """Why the group refuses every request; None: no member is known to have lost blobs."""
        return self._opening.forgot

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
            self._take(self._performed(readmit(self._quorum, self._opening, self._incarnations)))
            return self.forgot is None and self.obstacles.count(None) > before

    def exchange(self, number: int, member: BlobMember, incarnation: str) -> BlobMember:
        """Ask another member from now on, when it is admitted; return the one that was asked so far."""
        with self._lock:
            old, self._members[number], self._incarnations[number] = self._members[number], member, incarnation
            # Before the member is exchanged: no request reaches it as what the old one was admitted.
            self._admitted[number].terms = "it was made anew, and is not admitted yet"
            self._admitted[number].member = member
            return old

    def _look_again(self) -> bool:
        """Ask every member for its state, because another process has opened the group; return whether to go on."""
        with self._lock:
            self._take(self._performed(look_again(self._opening, self._incarnations)))
            return self.forgot is None

    def _performed(self, procedure: Procedure[Opening]) -> Opening:
        return performed(self._members, procedure, self._asking)

    def _take(self, opening: Opening) -> None:
        self._opening = opening
        for number, each in enumerate(self._admitted):
            each.terms = opening.terms(number)
