"""Answers on their way from the threads that make them to the loop that waits for them.

A group's answers arrive together: the loop is woken once for all that wait in the box, not once for each.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Protocol

from typing_extensions import override

from replitree.protocol.core.effects import ClientAnswer
from replitree.replica.insert.group_commit import PendingInsert

log = logging.getLogger(__name__)


class Recipient(Protocol):
    """Receives the answer to a request."""

    def arrived(self, pending: PendingInsert) -> None:
        """Take a request that has its answer; called on the loop."""


class Waiter(Recipient):
    """One place to wait for one answer; made on the loop."""

    def __init__(self, mailbox: Mailbox, loop: asyncio.AbstractEventLoop) -> None:
        self._mailbox = mailbox
        self._loop = loop
        self.answer: asyncio.Future[ClientAnswer] = loop.create_future()

    def deliver(self, pending: PendingInsert) -> None:
        """Take a request's answer, from any thread."""
        self._mailbox.put(self._loop, self, pending)

    @override
    def arrived(self, pending: PendingInsert) -> None:
        if pending.answer is not None and not self.answer.done():
            self.answer.set_result(pending.answer)


class Mailbox:
    """Brings answers to one loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._box: list[tuple[Recipient, PendingInsert]] = []

    def expect(self) -> Waiter:
        """Return a place to wait; to be called on the loop."""
        return Waiter(self, asyncio.get_running_loop())

    def put(self, loop: asyncio.AbstractEventLoop, recipient: Recipient, pending: PendingInsert) -> None:
        """Queue an answer, and wake the loop when it was asleep."""
        with self._lock:
            self._box.append((recipient, pending))
            first = len(self._box) == 1
        if first and not loop.is_closed():
            loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        with self._lock:
            box, self._box = self._box, []
        for recipient, pending in box:
            try:
                recipient.arrived(pending)
            except Exception:
                log.exception("an answer could not be given; the others are given all the same")
