"""Clients: each inserts its rows one after the other, and repeats an insert with the same token until it was acknowledged.

A client that is a stream numbers its inserts as batches, and repeats an insert by its batch.

A replica gathers requests while a group is on its way, as the group committer of the running replica does; requests with one
token never share a group, nor do requests with different quorums; a batch is a group of its own.  A group that waits
for its quorum is on its way no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replitree.protocol.core.effects import Duplicate, Inserted, MaybeInserted, NotInserted, StreamId
from replitree.protocol.core.streams import StreamBatch
from replitree_verify.process.read_requests import Told
from replitree_verify.simulation.cluster import Cluster
from replitree_verify.simulation.observer import Observer
from replitree_verify.simulation.options import MS
from replitree_verify.simulation.process import Process

BACKOFF = 200 * MS
BACKOFFS = 5_000
"""A client tries at most about so often in a run: in one of many hours it becomes patient when no replica takes its rows."""

FAILURES = 200
"""The same for tries that failed for want of a quorum: each leaves two entries in the log, and every check folds the log."""

LANES = 2
"""Groups of one replica that may be on their way at once (rows and uploads)."""


class Committer:
    """Gathers the requests of one replica's clients into groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiting: list[tuple[int, str, int, StreamBatch | None]] = []
        self._process: Process | None = None

    def serve(self, process: Process) -> None:
        """Work for a new process; what waited for the old one is lost."""
        self._waiting.clear()
        self._process = process
        process.on_group_over = self._go_on

    def submit(self, request: int, token: str, quorum: int, batch: StreamBatch | None = None) -> bool:
        """Take a request; False when the replica takes no inserts now."""
        process = self._process
        if process is None or not process.is_active:
            return False
        self._waiting.append((request, token, quorum, batch))
        self._go_on()
        return True

    def _go_on(self) -> None:
        process, options = self._process, self._cluster.options
        if process is None or not process.alive or not self._waiting or process.groups >= LANES:
            return
        group: list[tuple[int, str]] = []
        _, _, wanted, first = self._waiting[0]
        for waiting in list(self._waiting):
            request, token, quorum, batch = waiting
            may_join = not group or (batch is None and first is None)
            if (
                may_join
                and len(group) < options.group_max
                and token not in [each for _, each in group]
                and quorum == wanted
            ):
                group.append((request, token))
                self._waiting.remove(waiting)
        process.insert(tuple(group), wanted, *(() if first is None else (1, first)))


@dataclass(slots=True)
class _Attempt:
    """An insert on its way: which request carries it now, and how often it was tried."""

    token: str
    quorum: int = 0
    batch: StreamBatch | None = None
    request: int = 0
    tries: int = 0


class Client:
    """One client.

    Parameters
    ----------
    name, count, is_stream
        Its name, how many inserts it makes, and whether they are the batches of a stream.
    cluster, observer, committers
        The world, who checks it, and where requests go.
    new_request
        Numbers requests.
    """

    def __init__(
        self,
        name: str,
        count: int,
        cluster: Cluster,
        observer: Observer,
        committers: dict[str, Committer],
        new_request: Callable[[], int],
        *,
        is_stream: bool = False,
    ) -> None:
        self._name, self._left = name, count
        self._stream, self._count = StreamId(name) if is_stream else None, count
        self._cluster, self._observer, self._committers = cluster, observer, committers
        self._new_request = new_request
        self._attempt: _Attempt | None = None
        self.known: list[int] = []
        """The requests and reads that it has heard an answer to."""

    @property
    def is_done(self) -> bool:
        """Whether every insert was acknowledged."""
        return self._left == 0 and self._attempt is None

    def next(self) -> None:
        """Begin the next insert after a while."""
        self._attempt = None
        if self._left:
            pause = self._cluster.spread(self._cluster.options.duration // 8) if self._cluster.faulty else BACKOFF
            self._cluster.after(pause, self._begin)

    def _begin(self) -> None:
        self._left -= 1
        options = self._cluster.options
        quorum = options.quorum if self._cluster.chance(options.quorums) else 0
        number, batch = self._left, None
        if self._stream is not None:
            number = self._count - 1 - self._left
            batch = StreamBatch(self._stream, "q", number)
        self._attempt = _Attempt(f"{self._name}.{number}", quorum, batch)
        self._try()

    def _try(self) -> None:
        attempt, cluster = self._attempt, self._cluster
        assert attempt is not None
        attempt.tries += 1
        attempt.request = self._send(attempt)
        if cluster.chance(cluster.options.doubles):
            self._observer.seen("token sent twice")
            self._send(attempt)
        if attempt.request < 0:
            self._again(attempt)
        else:
            request = attempt.request
            cluster.after(2 * cluster.options.session_timeout, lambda: self._give_up(attempt, request))

    def _send(self, attempt: _Attempt) -> int:
        """Send a request to some replica; its number, or -1 when it was not taken."""
        committer = self._committers[self._cluster.random.choice(list(self._committers))]
        request = self._new_request()
        self._observer.asked(request, attempt.token, attempt.quorum, attempt.batch)
        if committer.submit(request, attempt.token, attempt.quorum, attempt.batch):
            return request
        self._observer.not_taken(request)
        return -1

    def _again(self, attempt: _Attempt, most: int = BACKOFFS) -> None:
        """Try again after a while, at most about so often in a run."""
        attempt.request = -1
        longest = max(BACKOFF, self._cluster.options.duration // most)
        pause = min(longest, BACKOFF << min(attempt.tries, 16))
        self._cluster.after(self._cluster.spread(pause), lambda: self._retry(attempt))

    def _retry(self, attempt: _Attempt) -> None:
        if attempt is self._attempt and attempt.request < 0:
            self._observer.seen("insert repeated by token")
            self._try()

    def _give_up(self, attempt: _Attempt, request: int) -> None:
        if attempt is self._attempt and attempt.request == request:
            self._again(attempt)

    def hear(self, request: int, answer: Told) -> None:
        """Hear an answer."""
        attempt = self._attempt
        if attempt is None or attempt.request != request:
            return
        self.known.append(request)
        if isinstance(answer, Inserted | Duplicate):
            if attempt.tries > 1:
                self._observer.seen("acknowledged after a retry")
            if attempt.batch is not None:
                self._observer.seen("batch inserted" if isinstance(answer, Inserted) else "batch repeated")
            self.next()
        else:
            if isinstance(answer, MaybeInserted):
                self._observer.seen("client heard unknown")
            self._again(attempt, FAILURES if isinstance(answer, NotInserted) else BACKOFFS)
