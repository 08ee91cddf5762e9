"""Blob groups as they run: each member has a thread, or several, and what waits for a thread is written together.

A group performs `Ask` (`replitree.tablet.quorum`): it sends every member its request, and waits for the answers; so it runs any
procedure of a tablet.  Blobs that wait for the same member go to it as one request, so that the disk is waited for once.

Whoever asks is answered as soon as enough members are done, or when all have answered, or when `patience_s` is over.  What
a member did not answer for may still take place.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

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

_Waiting = tuple[Request, "Future[Reply]"]


class AskedMember(Protocol):
    """A member to which requests are sent without waiting for their replies."""

    def ask(self, request: Request) -> Future[Reply]:
        """Send a request."""

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
        self._lock = threading.Lock()
        self._backlog_bytes = 0
        self._thread = threading.Thread(target=self._run, name="blob-member", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> Future[Reply]:
        """Send a request; requests are answered in their order.  A member that is far behind gets no more blobs."""
        future: Future[Reply] = Future()
        size = _bytes([(request, future)])
        with self._lock:
            is_behind = size and self._backlog_bytes >= BACKLOG_BYTES
            self._backlog_bytes += 0 if is_behind else size
        if is_behind:
            future.set_result(Failed(f"it is {BACKLOG_BYTES >> 20} MiB behind"))
        else:
            self._queue.put((request, future))
        return future

    def set_obstacle(self, obstacle: str | None) -> None:
        """Let the member take part from now on, or not any more."""
        self._obstacle = obstacle

    def close(self) -> None:
        """Let what was asked be answered, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        carried: _Waiting | None = None
        while True:
            first = carried or self._queue.get()
            carried = None
            if first is None:
                return
            batch, ending = [first], False
            while isinstance(first[0], Write) and _bytes(batch) < BATCH_BYTES and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    ending = True
                    break
                if not _can_join(first[0], following[0]):
                    carried = following
                    break
                batch.append(following)
            self._answer(batch)
            with self._lock:
                self._backlog_bytes -= _bytes(batch)
            if ending:
                return

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        """Ask for all at once; when that is refused, one by one."""
        if len(batch) > 1:
            joined = Write(tuple(each for request, _ in batch if isinstance(request, Write) for each in request.blobs))
            reply = self._reply(joined)
            if isinstance(reply, Done):
                for _, future in batch:
                    future.set_result(reply)
                return
        for request, future in batch:
            future.set_result(self._reply(request))

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

    def ask(self, request: Request) -> Future[Reply]:
        """Send a request; requests are answered in any order."""
        return self._pool.submit(self._reply, request)

    def close(self) -> None:
        """Let what was asked be answered, then end the threads."""
        self._pool.shutdown()

    def _reply(self, request: Request) -> Reply:
        return Failed(self._obstacle) if self._obstacle is not None else self._member.answer(request)


def _can_join(first: Request, other: Request) -> bool:
    return isinstance(first, Write) and isinstance(other, Write) and first.restorer is None and other.restorer is None


def _bytes(batch: Sequence[_Waiting]) -> int:
    return sum(len(data) for request, _ in batch if isinstance(request, Write) for _, data in request.blobs)


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
        futures = [
            None if request is None else member.ask(request)
            for member, request in zip(members, ask.requests, strict=True)
        ]
        waiting = {future for future in futures if future is not None}
        is_read = any(isinstance(request, Scan | Look) for request in ask.requests)
        heard = done = silences = 0
        while waiting and done < ask.wanted:
            answered, waiting = wait(waiting, self._patience_s, FIRST_COMPLETED)
            heard += len(answered)
            done += sum(isinstance(future.result(), Done) for future in answered)
            silences += not answered
            if silences and (not is_read or silences == READ_PATIENCE or heard >= self._quorums[ask.group].cover):
                break
        return tuple(future.result() if future is not None and future.done() else None for future in futures)

    def close(self) -> None:
        """End the members' threads."""
        for members in self._members.values():
            for member in members:
                member.close()
