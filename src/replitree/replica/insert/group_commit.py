"""Group commit: concurrent small inserts of one table become one part, one log entry and one transaction.

Adaptive: a lone request that meets an idle committer goes at once; while a group is on its way, requests gather and form
the next one.  Clients that were just answered tend to come back, in a burst: a group waits for as many requests as there were
around the last one, until none has come for a while (they went to another replica, or have nothing more to send), and never
longer than `LINGER_S`.  The while is a fifth of what the last commit took: where a commit takes long, so do clients, and
waiting costs little.  Each request keeps its own block id and gets its own answer.

Two requests with one block id never share a group: the second waits for the first one's answer and is then a duplicate.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replitree.protocol.core.effects import BlockId, ClientAnswer, RequestId
from replitree.protocol.insert.views import FROM_CLIENTS, InsertOrigin
from replitree.replica.perform.commit_size import PARTS_MAX
from replitree.wire.sent_batch import SentBatch

GROUP_REQUESTS_MAX = 256
WAITING_REQUESTS_MAX = 4096
WAITING_GROUPS_MAX = 4
"""Rows that wait may take as many bytes as so many groups; a lone request is queued whatever it takes."""

LINGER_S = 0.012
"""Longest wait for clients that are expected back."""

QUIET_S = 0.003
QUIET_SHARE = 0.2
"""When no request has come for so long, or for this share of the last commit's time, the missing ones won't come soon."""


@dataclass(slots=True, eq=False)
class PendingInsert:
    """A request that waits for its group, and then its answer.

    Attributes
    ----------
    payload
        What is to be staged: an Arrow table, or an upload; the committer does not look inside.
    rows, bytes
        Its size.
    count_parts
        Returns how many parts its rows become.  Called only when the rows of a group are more than a group may have parts.
    alone
        It must not share a group (it is staged already, or replaces parts).
    schema_version, drops
        Version of the columns that the payload has, and what it replaces; all of a group have the same version.
    quorum, patience_s
        How many replicas must have the rows, 0 for no quorum, and how long that is waited for; a group has one.
    deliver
        Called with the request when it has its answer, from any thread.
    answer
        The first answer that came; None until then.
    batch
        The batch of a stream that it is; such a request is alone.
    differs
        It is a duplicate by its token, and its rows are certainly others than those of the earlier insert.
    origin
        Where its rows come from: it tells whether materialised views get them; another one than clients is alone.
    kind
        Only requests of an equal kind share a group.
    traced
        The span of its request (`tracing.current`), whose group is a step of it.
    waits
        It is answered when it is known what became of a quorum, after its group was committed.
    """

    id: RequestId
    block: BlockId
    payload: Any
    rows: int
    bytes: int
    alone: bool
    deliver: Callable[[PendingInsert], None]
    schema_version: int = 1
    drops: tuple[str, ...] = ()
    quorum: int = 0
    patience_s: float = 0.0
    answer: ClientAnswer | None = None
    waits: bool = False
    count_parts: Callable[[], int] = lambda: 1
    differs: bool = False
    batch: SentBatch | None = None
    origin: InsertOrigin = FROM_CLIENTS
    kind: object = None
    traced: object = None

    def give(self, answer: ClientAnswer) -> None:
        """Answer the request; only the first answer counts."""
        if self.answer is None:
            self.answer = answer
            self.deliver(self)


class GroupCommitter:
    """Gathers requests into groups and hands each group to `commit`, one group at a time.

    Parameters
    ----------
    commit
        Inserts a group and sets every answer; it may raise, then the rest is answered by `on_error`.
    on_error
        Answers the requests that `commit` left without an answer.
    rows_max, bytes_max
        Limits of one group.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[Sequence[PendingInsert]], None],
        on_error: Callable[[Sequence[PendingInsert], BaseException | None], None],
        rows_max: int,
        bytes_max: int,
    ) -> None:
        self._commit = commit
        self._on_error = on_error
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._waiting: deque[PendingInsert] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._expected = 1
        self._took_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"commit-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait for a group."""
        return len(self._waiting)

    def submit(self, pending: PendingInsert) -> bool:
        """Queue a request; False when too many are waiting or the committer is closing."""
        with self._changed:
            if self._closing or len(self._waiting) >= WAITING_REQUESTS_MAX:
                return False
            if self._waiting and self._waiting_bytes + pending.bytes > WAITING_GROUPS_MAX * self._bytes_max:
                return False
            self._waiting.append(pending)
            self._waiting_bytes += pending.bytes
            # Otherwise the lingering thread sleeps on, because it waits for more requests.
            if len(self._waiting) == 1 or len(self._waiting) >= self._expected:
                self._changed.notify()
            return True

    def close(self, timeout_s: float) -> bool:
        """Refuse further requests and finish those that wait; False when that took longer than `timeout_s`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while group := self._next_group():
            problem: BaseException | None = None
            began = time.monotonic()
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - the thread lives on; the requests that are left get the error
                problem = error
            left = [pending for pending in group if pending.answer is None and not pending.waits]
            if left:
                self._on_error(left, problem)
            self._took_s = time.monotonic() - began
            with self._changed:
                self._expected = min(GROUP_REQUESTS_MAX, len(group) + len(self._waiting))

    def _next_group(self) -> list[PendingInsert]:
        """Wait for requests and take as many as may go together; empty when the committer is closed and drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return []
            # The clients of the last group come back soon: a short wait makes the group, and so the commits, larger.
            deadline = time.monotonic() + LINGER_S
            quiet_s = max(QUIET_S, QUIET_SHARE * self._took_s)
            seen = 0
            while seen < len(self._waiting) < self._expected and not self._closing:
                seen = len(self._waiting)
                self._changed.wait(max(0.0, min(quiet_s, deadline - time.monotonic())))
            first = self._take_first()
            group, blocks, rows, size = [first], {first.block}, first.rows, first.bytes
            parts: int | None = None
            while self._waiting and not first.alone and len(group) < GROUP_REQUESTS_MAX:
                candidate = self._waiting[0]
                rows += candidate.rows
                size += candidate.bytes
                if candidate.alone or candidate.schema_version != first.schema_version:
                    break
                terms = (candidate.quorum, candidate.patience_s, candidate.kind)
                if terms != (first.quorum, first.patience_s, first.kind):
                    break
                if candidate.block in blocks or rows > self._rows_max or size > self._bytes_max:
                    break
                # A row is in one part, so few rows need no count of their parts.
                if rows > PARTS_MAX:
                    parts = sum(each.count_parts() for each in group) if parts is None else parts
                    parts += candidate.count_parts()
                    if parts > PARTS_MAX:
                        break
                blocks.add(candidate.block)
                group.append(self._take_first())
            return group

    def _take_first(self) -> PendingInsert:
        first = self._waiting.popleft()
        self._waiting_bytes -= first.bytes
        return first
