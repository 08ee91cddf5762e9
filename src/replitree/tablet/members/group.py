"""Blob groups in a process: each member has a thread, or several, and requests that wait for a thread are written together.

A group performs `Ask` (`replitree.tablet.group.quorum`): it sends every member its request, and waits for the answers; so it
runs any procedure of a tablet.  Blobs that wait for the same member go to it as one request, so that they wait for one sync.

A question is answered as soon as enough members are done, or when all have answered, or when none has for `patience_s`.  A read
that has enough whole answers waits for the others for a short time only, so that a member that hangs delays no one for long; it
does not wait at all for a member that has hung for a while.  A member may execute later a request that it has not answered.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from replitree.procedures import run
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.ids import GroupId
from replitree.tablet.group.member import Done, Failed, Look, Reply, Request, Scan, Write
from replitree.tablet.group.quorum import Ask, Quorum, Replies, over_members
from replitree.tablet.members.frames import bytes_of, framed, joined
from replitree.tablet.members.gathering import Gathering, Usual, can_spare
from replitree.tablet.members.health import Health

T = TypeVar("T")

log = logging.getLogger(__name__)

BATCH_BYTES = 8 << 20
"""Bytes that are written to a member at once."""

BACKLOG_BYTES = 64 << 20
"""Bytes that wait for a member; what comes then is not sent to it, until it has caught up."""

PATIENCE_S = 5.0
"""How long a silent member is waited for, in seconds, unless the caller says otherwise."""

READ_PATIENCE = 6
"""Factor of the patience for a read, until enough members have answered: a log may be long."""

REST_SHARE = 10
"""When a read has enough answers, the rest are waited for this part of the patience, or as long again as those took."""

POOL_REQUESTS = 32
"""Requests that are on their way to a member that does several at once."""

Heard: TypeAlias = Callable[[Reply], None]
"""Takes a reply, in the member's thread."""


class _QueuedRequest(msgspec.Struct, frozen=True):
    """A request to a member, the function that takes the reply, and the bytes of the request's blobs."""

    request: Request
    heard: Heard
    bytes: int


class Answering(Protocol):
    """A member that answers requests, in whatever way it takes part."""

    def answer(self, request: Request) -> Reply:
        """Carry out a request durably and answer it; `Failed` when that is not possible."""


class AskedMember(Protocol):
    """A member to which requests are sent without waiting for their replies."""

    @property
    def health(self) -> Health:
        """Whether it answers, and what it has missed."""

    def ask(self, request: Request, heard: Heard) -> None:
        """Send a request; `heard` is called once, in the member's thread."""

    def close(self, patience_s: float = PATIENCE_S) -> bool:
        """Answer the requests that wait, then end; return whether the member has ended within `patience_s` of silence."""


class MemberThread:
    """A member and the thread that asks it.

    Parameters
    ----------
    member
        The member that answers.
    obstacle
        Why it must not take part, or None.
    """

    def __init__(self, member: Answering, obstacle: str | None = None) -> None:
        self.health = Health()
        self._member = member
        self._obstacle = obstacle
        self._queue: queue.SimpleQueue[_QueuedRequest | None] = queue.SimpleQueue()
        self._ahead: deque[_QueuedRequest | None] = deque()
        self._lock = threading.Lock()
        self._backlog_bytes = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="blob-member", daemon=True)
        self._thread.start()

    def ask(self, request: Request, heard: Heard) -> None:
        """Send a request; requests are answered in their order.  A member that is far behind gets no more blobs."""
        waiting = _QueuedRequest(request, heard, bytes_of(request))
        with self._lock:
            # Reads and fences always go through: a member that is behind must still be fenced.
            is_behind = waiting.bytes and self._backlog_bytes >= BACKLOG_BYTES
            self._backlog_bytes += 0 if is_behind else waiting.bytes
        if is_behind:
            self.health.missed_one()
            heard(Failed(f"it is {BACKLOG_BYTES >> 20} MiB behind"))
        else:
            self._queue.put(waiting)

    def close(self, patience_s: float = PATIENCE_S) -> bool:
        """Answer the requests that wait, then end the thread; return whether it has ended.

        A member that fails is asked nothing more, and one that has kept a request for `patience_s` seconds is not waited for:
        its thread ends when it answers.  No client has heard of a success that did not take place.
        """
        self._is_closing = True
        self._queue.put(None)
        while self._thread.is_alive() and (left_s := patience_s - self.health.silent_s) > 0:
            self._thread.join(left_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (first := self._ahead.popleft() if self._ahead else self._queue.get()) is not None:
            batch, size = [first], first.bytes
            while size < BATCH_BYTES and (self._ahead or not self._queue.empty()):
                if not self._ahead:
                    self._ahead.append(self._queue.get())
                following = self._ahead[0]
                # Writes that wait share one sync, but for those of a restorer: these are judged by the restorer's fence.
                if following is None or not all(
                    isinstance(each.request, Write) and each.request.restorer is None for each in (first, following)
                ):
                    break
                batch.append(following)
                size += following.bytes
                self._ahead.popleft()
            with self._lock:
                self._backlog_bytes -= size
            self._answer(batch)

    def _answer(self, batch: Sequence[_QueuedRequest]) -> None:
        """Ask for all at once; when that is refused, one by one."""
        if len(batch) > 1:
            requests = [each.request for each in batch]
            reply = self._reply(joined([each for each in requests if isinstance(each, Write)]))
            # Refused together, they are asked one by one: one of them is refused, not all.
            if isinstance(reply, Done):
                for each in batch:
                    each.heard(reply)
                return
        for each in batch:
            each.heard(self._reply(each.request))

    def _reply(self, request: Request) -> Reply:
        trouble = self.health.trouble if self._is_closing else None
        return _reply_of(self._member, self._obstacle or trouble, request, self.health)


class MemberPool:
    """A member that does many requests at once, such as an object store, and the threads that ask it.

    Each request must end by itself, as those to a store do: all are waited for in the end.

    Parameters
    ----------
    member
        The member that answers, in several threads.
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

    def close(self, patience_s: float = PATIENCE_S) -> bool:  # noqa: ARG002 - as of `AskedMember`
        """Let what was asked be answered, then end the threads."""
        self._pool.shutdown()
        return True

    def _answer(self, request: Request, heard: Heard) -> None:
        heard(_reply_of(self._member, self._obstacle, request, self.health))


def _reply_of(member: Answering, obstacle: str | None, request: Request, health: Health) -> Reply:
    """Ask; whatever goes wrong is a doubt about this request, and the next one is asked all the same."""
    sent = health.sent()
    reply: Reply
    try:
        reply = member.answer(request) if obstacle is None else Failed(obstacle)
    except Exception as error:  # noqa: BLE001 - the waiting thread must be answered
        # The thread must live on: without it every later request to the member would hang.
        reply = Failed(f"asking it failed, which is a bug: {error!r}")
    health.heard(sent, request, reply)
    return reply


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

        def perform(ask: Any) -> Replies:
            assert isinstance(ask, Ask), f"a blob group can't perform {ask}"
            with self._lock:
                is_alone = not self._questions[ask.group]
                self._questions[ask.group] += 1
            try:
                usual, members = self._usual[ask.group], self._members[ask.group]
                requests = {number: each for number, each in enumerate(framed(ask.requests)) if each is not None}
                if not requests:
                    return (None,) * len(members)
                gathering = Gathering(len(requests), ask.wanted, usual, len(members))

                def send(numbers: Iterable[int]) -> None:
                    for number in numbers:
                        members[number].ask(requests[number], partial(gathering.take, number, time.perf_counter_ns()))

                if is_alone and ask.wanted < len(requests) and can_spare(requests.values()):
                    numbers = usual.in_order(requests)
                    first, spares = numbers[: ask.wanted], numbers[ask.wanted :]
                    gathering.keep(partial(send, spares))
                    send(first)
                    # The spares get the write in any case, a moment later: they only do not delay it.
                    is_over = gathering.wait(usual.patience_s(first))
                    gathering.ask_spares()
                    if is_over:
                        return tuple(gathering.replies)
                else:
                    send(requests)
                self._wait(ask, gathering)
                return tuple(gathering.replies)
            finally:
                with self._lock:
                    self._questions[ask.group] -= 1

        return run(over_members(procedure, self._quorums), perform)

    def _wait(self, ask: Ask, gathering: Gathering) -> None:
        """Wait for enough answers, and a little for the rest; or until the silent members are not worth waiting for."""
        short_s = self._patience_s / REST_SHARE
        while not gathering.wait(short_s):
            has_cover = gathering.heard >= self._quorums[ask.group].read
            is_read = any(isinstance(request, Scan | Look) for request in ask.requests)
            silent_s = gathering.quiet_s
            if has_cover and not any(isinstance(request, Write) for request in ask.requests):
                silent_s = max(silent_s, self._hanging_s(ask, gathering))
            # A read of a long log takes a member longer than any other request.
            if silent_s >= self._patience_s * (READ_PATIENCE if is_read and not has_cover else 1):
                return
        took_s = gathering.age_s
        gathering.wait_for_rest(max(short_s, 2 * took_s) - max(took_s, self._hanging_s(ask, gathering)))

    def _hanging_s(self, ask: Ask, gathering: Gathering) -> float:
        """Return how long every member that has not answered has been silent, to any caller, in seconds."""
        members = zip(self._members[ask.group], ask.requests, gathering.replies, strict=True)
        silent = [member.health.silent_s for member, request, reply in members if request is not None and reply is None]
        return min(silent, default=0.0)

    def missed(self) -> Mapping[tuple[GroupId, int], int]:
        """Return for each member that answers, and did what it was asked last, how many writes it may have missed so far."""
        return {
            (group, number): member.health.missed
            for group, members in self._members.items()
            for number, member in enumerate(members)
            if member.health.trouble is None and member.health.silent_s <= self._patience_s
        }

    def close(self) -> None:
        """End the members' threads; a member that hangs is not waited for any longer than for anything else."""
        for group, members in self._members.items():
            for number, member in enumerate(members):
                if not member.close(self._patience_s):
                    log.warning(
                        "group %s: member %d has kept a request for %.1f s and is left; what it was asked may still be done",
                        group,
                        number,
                        member.health.silent_s,
                    )
