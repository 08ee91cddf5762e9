"""Blob groups as they run: each member has a thread, or several, and what waits for a thread is written together.

A group performs `Ask` (`replitree.tablet.quorum`): it sends every member its request, and waits for the answers; so it runs any
procedure of a tablet.  Blobs that wait for the same member go to it as one request, so that the disk is waited for once.

Whoever asks is answered as soon as enough members are done, or when all have answered, or when `patience_s` is over.  What
a member did not answer for may still take place.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from replitree.storage.blob_member import BlobMember
from replitree.tablet.effects import Procedure
from replitree.tablet.ids import GroupId
from replitree.tablet.member import Done, Failed, Look, Reply, Request, Scan, Write
from replitree.tablet.quorum import Ask, Quorum, Replies, over_members

T = TypeVar("T")

BATCH_BYTES = 8 << 20
"""Bytes that are written to a member at once."""

BACKLOG_BYTES = 64 << 20
"""Bytes that wait for a member; what comes then is not sent to it, until it has caught up."""

READ_PATIENCE = 6
"""So many times longer a read is waited for, until enough members have answered: a log may be long."""

POOL_REQUESTS = 32
"""Requests that are on their way to a member that does several at once."""

Heard: TypeAlias = Callable[[Reply], None]
"""Takes a reply, in the thread of whoever answers."""


class _Waiting(NamedTuple):
    """A request to a member, who hears the reply, and the bytes of its blobs."""

    request: Request
    heard: Heard
    bytes: int


class AskedMember(Protocol):
    """A member to which requests are sent without waiting for their replies."""

    def ask(self, request: Request, heard: Heard) -> None:
        """Send a request; `heard` is called once, in the thread of whoever answers."""

    def set_obstacle(self, obstacle: str | None) -> None:
        """Let the member take part from now on, or not any more."""

    def close(self) -> None:
        """Let what was asked be answered, then end."""


class MemberThread:
    """A member and the thread that asks it.

    Parameters
    ----------
    member
        Who answers.
    obstacle
        Why it must not take part, or None.
    """

    def __init__(self, member: BlobMember, obstacle: str | None = None) -> None:
        self._member = member
        self._obstacle = obstacle
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._ahead: deque[_Waiting | None] = deque()
        self._lock = threading.Lock()
        self._backlog_bytes = 0
        self._thread = threading.Thread(target=self._run, name="blob-member", daemon=True)
        self._thread.start()

    def ask(self, request: Request, heard: Heard) -> None:
        """Send a request; requests are answered in their order.  A member that is far behind gets no more blobs."""
        waiting = _Waiting(request, heard, _bytes(request))
        with self._lock:
            is_behind = waiting.bytes and self._backlog_bytes >= BACKLOG_BYTES
            self._backlog_bytes += 0 if is_behind else waiting.bytes
        if is_behind:
            heard(Failed(f"it is {BACKLOG_BYTES >> 20} MiB behind"))
        else:
            self._queue.put(waiting)

    def set_obstacle(self, obstacle: str | None) -> None:
        """Let the member take part from now on, or not any more."""
        self._obstacle = obstacle

    def close(self) -> None:
        """Let what was asked be answered, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._next()) is not None:
            batch, size = [first], first.bytes
            while size < BATCH_BYTES and (following := self._following(first)) is not None:
                batch.append(following)
                size += following.bytes
            self._answer(batch)
            with self._lock:
                self._backlog_bytes -= size

    def _next(self) -> _Waiting | None:
        return self._ahead.popleft() if self._ahead else self._queue.get()

    def _following(self, first: _Waiting) -> _Waiting | None:
        """Take what waits next if it can be answered together with the first."""
        if not self._ahead and not self._queue.empty():
            self._ahead.append(self._queue.get())
        following = self._ahead[0] if self._ahead else None
        if following is None or not _can_join(first.request, following.request):
            return None
        return self._ahead.popleft()

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        """Ask for all at once; when that is refused, one by one."""
        if len(batch) > 1:
            requests = [each.request for each in batch]
            joined = Write(tuple(each for request in requests if isinstance(request, Write) for each in request.blobs))
            reply = self._reply(joined)
            if isinstance(reply, Done):
                for each in batch:
                    each.heard(reply)
                return
        for each in batch:
            each.heard(self._reply(each.request))

    def _reply(self, request: Request) -> Reply:
        return Failed(self._obstacle) if self._obstacle is not None else self._member.answer(request)


class MemberPool:
    """A member that does many requests at once, such as an object store, and the threads that ask it.

    Parameters
    ----------
    member
        Who answers, in several threads.
    obstacle
        Why it must not take part, or None.
    at_once
        How many requests are on their way; others wait.
    """

    def __init__(self, member: BlobMember, obstacle: str | None = None, at_once: int = POOL_REQUESTS) -> None:
        self._member = member
        self._obstacle = obstacle
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="blob-member")

    def ask(self, request: Request, heard: Heard) -> None:
        """Send a request; requests are answered in any order."""
        self._pool.submit(self._answer, request, heard)

    def set_obstacle(self, obstacle: str | None) -> None:
        """Let the member take part from now on, or not any more."""
        self._obstacle = obstacle

    def close(self) -> None:
        """Let what was asked be answered, then end the threads."""
        self._pool.shutdown()

    def _answer(self, request: Request, heard: Heard) -> None:
        reply: Reply = Failed("it could not be asked, which is a bug")
        try:
            reply = Failed(self._obstacle) if self._obstacle is not None else self._member.answer(request)
        finally:
            heard(reply)


def _can_join(first: Request, other: Request) -> bool:
    return isinstance(first, Write) and isinstance(other, Write) and first.restorer is None and other.restorer is None


def _bytes(request: Request) -> int:
    return sum(len(data) for _, data in request.blobs) if isinstance(request, Write) else 0


class _Gathering:
    """The replies to one question, as they come: done when so many are done as are wanted, or all have answered.

    Parameters
    ----------
    asked
        How many members were asked.
    members
        How many there are.
    wanted
        How many must be done before it is worth going on.
    """

    def __init__(self, asked: int, members: int, wanted: int) -> None:
        self.replies: list[Reply | None] = [None] * members
        self.heard = 0
        self._asked, self._wanted = asked, wanted
        self._lock = threading.Lock()
        self._latch = threading.Lock()
        self._latch.acquire()

    def take(self, number: int, reply: Reply) -> None:
        """Take the reply of a member."""
        with self._lock:
            was_over = self._is_over()
            self.replies[number] = reply
            self.heard += 1
            self._wanted -= isinstance(reply, Done)
            is_news = self._is_over() and not was_over
        if is_news:
            self._latch.release()

    def _is_over(self) -> bool:
        return self._wanted <= 0 or self.heard == self._asked

    def wait(self, patience_s: float) -> bool:
        """Wait until it is over; return whether it is."""
        return self._latch.acquire(timeout=patience_s)


class BlobGroups:
    """Some groups, and procedures that run on them.

    Parameters
    ----------
    groups
        For each group its numbers, and its members in their order.
    patience_s
        How long a silent member is waited for, in seconds.
    """

    def __init__(self, groups: Mapping[GroupId, tuple[Quorum, Sequence[AskedMember]]], patience_s: float = 5.0) -> None:
        self._members = {group: members for group, (_, members) in groups.items()}
        self._quorums = {group: quorum for group, (quorum, _) in groups.items()}
        self._patience_s = patience_s

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure to its end in this thread.  Any number of threads may do so at once."""
        asking = over_members(procedure, self._quorums)
        outcome: Any = None
        try:
            while True:
                effect = asking.send(outcome)
                assert isinstance(effect, Ask), f"a blob group can't perform {effect}"
                outcome = self._ask(effect)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            asking.close()

    def _ask(self, ask: Ask) -> Replies:
        members = self._members[ask.group]
        asked = sum(request is not None for request in ask.requests)
        gathering = _Gathering(asked, len(members), ask.wanted)
        for number, (member, request) in enumerate(zip(members, ask.requests, strict=True)):
            if request is not None:
                member.ask(request, partial(gathering.take, number))
        silences = heard = 0
        while asked and not gathering.wait(self._patience_s):
            is_read = any(isinstance(request, Scan | Look) for request in ask.requests)
            silences += gathering.heard == heard
            heard = gathering.heard
            if silences and (not is_read or silences == READ_PATIENCE or heard >= self._quorums[ask.group].read):
                break
        return tuple(gathering.replies)

    def close(self) -> None:
        """End the members' threads."""
        for members in self._members.values():
            for member in members:
                member.close()
