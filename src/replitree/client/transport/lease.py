"""A lease: a replica keeps the files of one snapshot for as long as a client renews it.

Guarantees: a thread renews the lease several times (`RENEWALS`) before it would end, until it is released; so one lost
answer does no harm.  What is known here is never more than the replica promised: the lease counts as lost when its time,
counted from the moment before the last renewal was *asked* for, is over, and at once when the replica says so.  Then
`check` raises; nothing is raised before it is certain that the parts may go.

A lease that is not released (a process that was killed, a handle that was forgotten) ends by itself after its time.

Absent on purpose: getting a lost lease back.  A client that lost one takes a new snapshot.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

from typing_extensions import override

from replitree.client.transport.http import HttpClient
from replitree.errors import LeaseLost, ReplitreeError, SnapshotExpired, TableNotFound

LEASE_S_MAX = 3600.0
"""Longest time for which a replica gives a lease, in seconds."""

RENEWALS = 3
"""How often a lease is renewed before it would end."""

RENEW_S_MAX = 10.0
"""Longest silence of a replica that is asked to renew, in seconds."""

FRAMES_MAX = 64
"""Spark frames whose leases one process leaves to their time."""

RELEASE_S = 2.0
"""How long to wait until a lease is released, in seconds; after that it ends by itself."""


@dataclass(frozen=True, slots=True)
class LeaseHandle:
    """The replica that gave a lease, and the lease's name there: all that another process needs to renew it.

    Attributes
    ----------
    address
        ``host:port`` of the replica.
    table, id
        Its table's name, and its own.
    seconds
        How long it lasts after each renewal.
    """

    address: str
    table: str
    id: str
    seconds: float

    def renew(self, http: HttpClient) -> None:
        """Ask the replica once for more time.

        Raises
        ------
        LeaseLost
            It has ended.
        ReplitreeError
            The replica does not answer; the lease may or may not have been renewed.
        """
        path = f"{self._path}?lease_s={self.seconds:g}"
        timeout_s = min(RENEW_S_MAX, self.seconds / RENEWALS)
        try:
            http.request(self.address, "POST", path, b"", timeout_s=timeout_s).decode(dict[str, object])
        except LeaseLost:
            raise
        except (SnapshotExpired, TableNotFound) as error:
            raise LeaseLost(f"the lease on a snapshot of {self.table} ended ({error}); take a new snapshot") from error

    def release(self, http: HttpClient) -> None:
        """Let the replica forget it.  A failure leaves that to its time."""
        with suppress(ReplitreeError):
            http.request(self.address, "DELETE", self._path, timeout_s=RELEASE_S)

    @property
    def _path(self) -> str:
        return f"/v1/tables/{quote(self.table)}/leases/{quote(self.id)}"


class Lease:
    """Holds one lease until it is released.  Any thread may use it.

    Parameters
    ----------
    handle
        The lease.
    renew
        Asks for more time; raises as `LeaseHandle.renew`.
    release
        Lets go of it.
    asked_at
        Monotonic seconds before the lease was asked for; by default now.
    """

    def __init__(
        self,
        handle: LeaseHandle,
        renew: Callable[[], None],
        release: Callable[[], None],
        asked_at: float | None = None,
    ) -> None:
        self.handle = handle
        began = time.monotonic() if asked_at is None else asked_at
        self._renewal = _Renewal(handle.seconds, began, renew, release)
        self._renewal.start()

    @override
    def __repr__(self) -> str:
        return f"<Lease {self.handle.id} at {self.handle.address}>"

    @property
    def is_lost(self) -> bool:
        """Whether the parts may go at any time although the lease was not released."""
        return self._renewal.problem() is not None

    def check(self) -> None:
        """Do nothing while the parts are kept.

        Raises
        ------
        LeaseLost
            They may go at any time.
        """
        problem = self._renewal.problem()
        if problem is not None:
            raise LeaseLost(
                f"the lease on this snapshot of {self.handle.table} was lost ({problem}), its parts may go at any time:"
                " take a new snapshot"
            )

    def release(self) -> None:
        """Let go of the parts.  May be called again."""
        self._renewal.stop()
        if threading.current_thread() is not self._renewal:
            self._renewal.join(RELEASE_S)

    def hand_over(self) -> LeaseHandle:
        """Stop renewing the lease without releasing it, and return it for another process to renew."""
        self._renewal.stop(release=False)
        return self.handle

    def __del__(self) -> None:
        # The renewing thread releases the lease when it ends.
        self._renewal.stop()


def hold(handle: LeaseHandle, http: HttpClient, asked_at: float | None = None) -> Lease:
    """Hold a lease: renew it through `http` until it is released.

    Parameters
    ----------
    handle, http
        The lease, and how to talk to its replica.
    asked_at
        Monotonic seconds before it was asked for; by default now.
    """
    return Lease(handle, lambda: handle.renew(http), lambda: handle.release(http), asked_at)


def keep_for_frame(leases: Iterable[Lease | None], http: HttpClient) -> None:
    """Let the leases of a frame expire by themselves, because its last use is not known.

    Those of the newest `FRAMES_MAX` frames of a process stay; older ones are released.

    Parameters
    ----------
    leases
        Of the snapshot that the frame reads: one of each shard if the table is sharded.  None is
        left out.
    http
        How to talk to their replicas.
    """
    handles = tuple(lease.hand_over() for lease in leases if lease is not None)
    if not handles:
        return
    with _frames_lock:
        _frames.append((handles, http))
        # A replica grants a limited number of leases, and a program may make a frame every second.
        oldest = _frames.popleft() if len(_frames) > FRAMES_MAX else None
    # The requests to replicas are sent without the lock.
    if oldest is not None:
        handles, its_http = oldest
        for handle in handles:
            handle.release(its_http)


_frames: deque[tuple[tuple[LeaseHandle, ...], HttpClient]] = deque()
_frames_lock = threading.Lock()


class _Renewal(threading.Thread):
    """Renews a lease until `stop` is called, the lease is lost, or its time is over."""

    def __init__(self, seconds: float, began: float, renew: Callable[[], None], release: Callable[[], None]) -> None:
        super().__init__(name="replitree-lease", daemon=True)
        self._seconds = seconds
        self._until = began + seconds
        self._renew = renew
        self._release = release
        self._stopped = threading.Event()
        self._releases = True
        self._problem: str | None = None

    def stop(self, *, release: bool = True) -> None:
        if not self._stopped.is_set():
            self._releases = release
            self._stopped.set()

    def problem(self) -> str | None:
        """Return why the parts may go, or None while they are kept."""
        if self._problem is not None or self._stopped.is_set():
            return self._problem
        late = time.monotonic() > self._until
        return f"it was not renewed for {self._seconds:g} s" if late else None

    @override
    def run(self) -> None:
        while not self._stopped.wait(self._seconds / RENEWALS):
            asked_at = time.monotonic()
            try:
                self._renew()
            except LeaseLost as error:
                # The replica has forgotten the lease: its parts may be gone, and no renewal brings it back.
                self._problem = str(error)
                return
            except ReplitreeError as error:
                # The next renewal may get through before the lease ends.
                if time.monotonic() > self._until:
                    self._problem = f"it could not be renewed for {self._seconds:g} s: {error}"
                    return
            else:
                # From the request on, not from the answer: the replica counts from a moment in between.
                self._until = asked_at + self._seconds
        if self._releases:
            self._release()
