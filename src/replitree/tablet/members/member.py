"""The interface of a member of a blob group, and a member in memory.

A member answers requests by the rules of `replitree.tablet.group.member`, and takes part by those of
`replitree.tablet.group.admission`.
"""

from __future__ import annotations

from typing import Protocol

from replitree.tablet.group.admission import (
    MEND_IT,
    Admission,
    Admit,
    Answer,
    AskRules,
    AskStreams,
    MemberState,
    Question,
    Remember,
    Reopened,
    Rules,
    Standing,
    Streams,
    forgotten,
    refusal,
    serve,
)
from replitree.tablet.group.member import Done, Failed, Holdings, Reply, Request, answer

__all__ = [
    "MEND_IT",
    "Admission",
    "BlobMember",
    "MemoryMember",
    "Reopened",
    "Rules",
    "Standing",
    "Streams",
    "forgotten",
    "refusal",
]


class BlobMember(Protocol):
    """One member of a blob group."""

    def answer(self, request: Request) -> Reply:
        """Carry out a request durably and answer it; `Failed` when that is not possible."""

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Carry out a request if this is the member that was admitted; else `Failed` (see `refusal`)."""

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening, if it is the one that stood so, or has learnt more since."""

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember each member's last session."""

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has, or had, blobs in which channels."""

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""


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
        """Carry out a request."""
        if self.trouble is not None:
            return Failed(self.trouble)
        held, reply = answer(self.held, request)
        if self.is_full and len(held.names) + len(held.fences) > len(self.held.names) + len(self.held.fences):
            return Failed("it is full")
        self.held = held
        return reply

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Carry out a request if this is the member that was admitted."""
        return refusal(admission, self.incarnation, self.session) or self.answer(request)

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""
        return Failed(self.trouble) if self.trouble else self._standing

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening."""
        reply = self._served(Admit(session, stood))
        assert isinstance(reply, Done | Failed)
        return reply

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember each member's last session."""
        reply = self._served(Remember(seen))
        assert isinstance(reply, Done | Failed)
        return reply

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has blobs in which channels."""
        reply = self._served(AskStreams())
        assert isinstance(reply, Streams | Failed)
        return reply

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""
        reply = self._served(AskRules())
        assert isinstance(reply, Rules | Failed)
        return reply

    @property
    def _standing(self) -> Standing:
        return Standing(self.incarnation, self.session, self.seen)

    def _served(self, question: Question) -> Answer:
        if self.trouble is not None:
            return Failed(self.trouble)
        place, reply = serve(MemberState(self._standing, self.held), question)
        self.session, self.seen = place.standing.session, place.standing.seen
        return reply
