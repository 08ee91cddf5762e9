"""Blob groups as they run: each member has a thread, or several, and what waits for a thread is written together.

A group performs `Ask` (`replitree.tablet.quorum`): it sends every member its request, and waits for the answers; so it runs any
procedure of a tablet.  Blobs that wait for the same member go to it as one request, so that the disk is waited for once.

Whoever asks is answered as soon as enough members are done, or when all have answered, or when `patience_s` is over.  What
a member did not answer for may still take place.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from replitree.storage.blob_frames import joined, with_checksums
from replitree.storage.blob_gathering import Gathering, Usual, can_spare
from replitree.storage.blob_health import Health
from replitree.tablet.effects import Procedure
from replitree.tablet.ids import GroupId
from replitree.tablet.member import Done, Failed, Look, Reply, Request, Scan, Write
from replitree.tablet.quorum import Ask, Quorum, Replies, over_members

T = TypeVar("T")

BATCH_BYTES = 8 << 20
"""Bytes that are written to a member at once."""

BACKLOG_BYTES = 64 << 20
"""Bytes that wait for a member; what comes then is not sent to it, until it has caught up."""

PATIENCE_S = 5.0
"""How long a silent member is waited for, in seconds, where nobody says otherwise."""

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


class Answering(Protocol):
    """Whoever answers requests: a member, however it takes part."""

    def answer(self, request: Request) -> Reply:
        """Do what is asked, durably, and say so; `Failed` when that is not possible."""


class AskedMember(Protocol):
    """A member to which requests are sent without waiting for their replies."""

    @property
    def health(self) -> Health:
        """How it does."""

    def ask(self, request: Request, heard: Heard) -> None:
        """Send a request; `heard` is called once, in the thread of whoever answers."""

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

    def __init__(self, member: Answering, obstacle: str | None = None) -> None:
        self.health = Health()
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
            self.health.missed_one()
            heard(Failed(f"it is {BACKLOG_BYTES >> 20} MiB behind"))
        else:
            self._queue.put(waiting)

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
            reply = self._reply(joined([each for each in requests if isinstance(each, Write)]))
            if isinstance(reply, Done):
                for each in batch:
                    each.heard(reply)
                return
        for each in batch:
            each.heard(self._reply(each.request))

    def _reply(self, request: Request) -> Reply:
        self.health.sent()
        reply = _reply_of(self._member, self._obstacle, request)
        self.health.heard(request, reply)
        return reply


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

    def __init__(self, member: Answering, obstacle: str | None = None, at_once: int = POOL_REQUESTS) -> None:
        self.health = Health()
        self._member = member
        self._obstacle = obstacle
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="blob-member")

    def ask(self, request: Request, heard: Heard) -> None:
        """Send a request; requests are answered in any order."""
        self._pool.submit(self._answer, request, heard)

    def close(self) -> None:
        """Let what was asked be answered, then end the threads."""
        self._pool.shutdown()

    def _answer(self, request: Request, heard: Heard) -> None:
        reply = _reply_of(self._member, self._obstacle, request)
        self.health.heard(request, reply)
        heard(reply)


def _reply_of(member: Answering, obstacle: str | None, request: Request) -> Reply:
    """Ask; whatever goes wrong is a doubt about this request, and the next one is asked all the same."""
    if obstacle is not None:
        return Failed(obstacle)
    try:
        return member.answer(request)
    except Exception as error:  # noqa: BLE001 - whoever waits must hear
        return Failed(f"asking it failed, which is a bug: {error!r}")


def _can_join(first: Request, other: Request) -> bool:
    return isinstance(first, Write) and isinstance(other, Write) and first.restorer is None and other.restorer is None


def _bytes(request: Request) -> int:
    return sum(len(data) for _, data in request.blobs) if isinstance(request, Write) else 0


class BlobGroups:
    """Some groups, and procedures that run on them.

    Parameters
    ----------
    groups
        For each group its numbers, and its members in their order.
    patience_s
        How long a silent member is waited for, in seconds.
    """

    def __init__(
        self, groups: Mapping[GroupId, tuple[Quorum, Sequence[AskedMember]]], patience_s: float = PATIENCE_S
    ) -> None:
        self._members = {group: members for group, (_, members) in groups.items()}
        self._quorums = {group: quorum for group, (quorum, _) in groups.items()}
        self._usual = {group: Usual(len(members)) for group, members in self._members.items()}
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._questions = Counter[GroupId]()

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
        with self._lock:
            is_alone = not self._questions[ask.group]
            self._questions[ask.group] += 1
        try:
            return self._asked(ask, is_alone=is_alone)
        finally:
            with self._lock:
                self._questions[ask.group] -= 1

    def _asked(self, ask: Ask, *, is_alone: bool) -> Replies:
        requests = with_checksums(ask.requests)
        usual, numbers = self._usual[ask.group], [number for number, each in enumerate(requests) if each is not None]
        if not numbers:
            return (None,) * len(requests)
        gathering = Gathering(len(numbers), ask.wanted, usual, len(requests))
        first = len(numbers)
        if is_alone and ask.wanted < first and can_spare([requests[number] for number in numbers]):
            numbers, first = usual.in_order(numbers), ask.wanted
        asking = [self._asking(ask.group, number, requests[number], gathering) for number in numbers]
        gathering.keep(asking[first:])
        for send in asking[:first]:
            send()
        if first < len(numbers):
            is_over = gathering.wait(usual.patience_s(numbers[:first]))
            gathering.ask_spares()
            if is_over:
                return tuple(gathering.replies)
        self._wait(ask, gathering)
        return tuple(gathering.replies)

    def _asking(self, group: GroupId, number: int, request: Request | None, gathering: Gathering) -> Callable[[], None]:
        """Return what sends a request to a member."""
        member = self._members[group][number]

        def send() -> None:
            assert request is not None
            member.ask(request, partial(gathering.take, number, time.perf_counter_ns()))

        return send

    def _wait(self, ask: Ask, gathering: Gathering) -> None:
        silences = heard = 0
        while not gathering.wait(self._patience_s):
            is_read = any(isinstance(request, Scan | Look) for request in ask.requests)
            silences += gathering.heard == heard
            heard = gathering.heard
            if silences and (not is_read or silences == READ_PATIENCE or heard >= self._quorums[ask.group].read):
                break

    def missed(self) -> Mapping[tuple[GroupId, int], int]:
        """Return for each member that did what it was asked last how many writes it may have missed so far."""
        return {
            (group, number): member.health.missed
            for group, members in self._members.items()
            for number, member in enumerate(members)
            if member.health.trouble is None
        }

    def close(self) -> None:
        """End the members' threads."""
        for members in self._members.values():
            for member in members:
                member.close()
