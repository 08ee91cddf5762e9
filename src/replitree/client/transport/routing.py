"""Routing: which replica is asked, and whom to ask next when it does not answer.

Every request that a client sends to "the table" goes through `Router.ask`.  The decision, as a table:

===========================================  =================================================================
what came back                               what happens
===========================================  =================================================================
an answer                                    it is returned; this replica is asked first the next time
not sent, or refused for now (`Unavailable`) the next replica; after a round of all, a pause and another round
no answer, or "outcome unknown"              the same, and the request is *in doubt* from now on
`TooManyParts`, `TooFewReplicas` (no doubt)  raised: the other replicas would say the same
any other error (and not in doubt)           raised
time is up                                   `OutcomeUnknown` when in doubt, otherwise the last error
===========================================  =================================================================

Going on after a doubt is right because a request carries the same token, or the same rows, every time: a replica that
finds it in the table already answers "duplicate".  Requests that change nothing are never in doubt.

Absent on purpose: load balancing beyond a random first choice.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.http import AnswerLost
from replitree.errors import (
    BadInput,
    CoordinationUnavailable,
    OutcomeUnknown,
    QuorumNotReached,
    ReplicaUnavailable,
    ReplitreeError,
    TableNotFound,
    TooFewReplicas,
    TooManyParts,
    Unavailable,
)

T = TypeVar("T")

ATTEMPT_S_MAX = 15.0
"""How long one replica may be silent before another one is asked, in seconds."""

ATTEMPT_S_MIN = 0.05
"""The least time for an attempt that is not the first one, in seconds."""

FRESH_S = 10.0
"""For how long the list of replicas is believed when nothing goes wrong, in seconds."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.02, 1.0
"""Pause after a round in which no replica could serve; it doubles from round to round."""


@dataclass(frozen=True, slots=True)
class _CachedOrder:
    """The replicas in the order in which they are asked, and until when that is believed (monotonic seconds)."""

    order: tuple[ReplicaInfo, ...]
    until: float


class Router:
    """Finds a replica of one table for each request.  Any thread may use it.

    Parameters
    ----------
    catalog
        Knows the replicas.
    table
        The table's name.
    pinned
        Ask this replica only.
    """

    def __init__(self, catalog: Catalog, table: str, pinned: str | None = None) -> None:
        self._catalog = catalog
        self._table = table
        self._pinned = pinned
        self._lock = threading.Lock()
        self._known = _CachedOrder((), 0.0)

    def ask(
        self,
        call: Callable[[ReplicaInfo, float], T],
        *,
        timeout_s: float,
        token: str | None = None,
        attempt_s: float = ATTEMPT_S_MAX,
    ) -> T:
        """Call `call(replica, seconds)` with one replica after the other until one answers.

        Parameters
        ----------
        call
            Sends the request; must be safe to repeat.
        timeout_s
            When to give up, in seconds.
        token
            None: the request changes nothing, so its outcome is never in doubt.
        attempt_s
            How long one replica may be silent, in seconds.

        Raises
        ------
        OutcomeUnknown
            It may have happened.
        Unavailable
            It certainly did not happen.
        """
        deadline = time.monotonic() + timeout_s
        story = _RequestHistory(token)
        pause = PAUSE_S_MIN
        while True:
            try:
                replicas = self.replicas()
            except Unavailable as error:
                # Without coordination the replicas are not known; it may answer before the time is up.
                story.add(error)
                replicas = ()
            for replica in replicas:
                # The second time comes only after a kept connection had gone stale.
                for _ in range(2):
                    left = deadline - time.monotonic()
                    # An attempt that is cut off at once would turn a request that was certainly refused into one in doubt.
                    if left <= (ATTEMPT_S_MIN if story.is_begun else 0):
                        raise story.end(timeout_s)
                    try:
                        answer = call(replica, min(left, attempt_s))
                    except ReplitreeError as error:
                        if not story.add(error):
                            break
                    else:
                        order = self._known.order
                        if order and order[0] is not replica:
                            # It is asked first from now on.
                            with self._lock:
                                rest = (other for other in self._known.order if other.name != replica.name)
                                self._known = _CachedOrder((replica, *rest), self._known.until)
                        return answer
            if story.is_final() or time.monotonic() + pause > deadline:
                raise story.end(timeout_s)
            time.sleep(pause)
            pause = min(PAUSE_S_MAX, pause * 2)
            self.forget()

    def replicas(self) -> tuple[ReplicaInfo, ...]:
        """Return the replicas in the order in which they would be asked.

        Raises
        ------
        BadInput
            The table has no replica of the pinned name.
        ReplicaUnavailable
            The table has no replica, or the pinned one has never been active.
        """
        known = self._known
        if time.monotonic() < known.until:
            return known.order
        # One thread looks the replicas up; the others wait for its result and find it below.
        with self._lock:
            if time.monotonic() < self._known.until:
                return self._known.order
            try:
                found = self._catalog.replicas(self._table)
            except CoordinationUnavailable:
                if not known.order:
                    raise
                # The replicas may be reachable although coordination is not.
                found = known.order
            if self._pinned is not None:
                if found and all(replica.name != self._pinned for replica in found):
                    names = ", ".join(replica.name for replica in found)
                    raise BadInput(f"table {self._table} has no replica {self._pinned!r}; it has {names}")
                found = tuple(replica for replica in found if replica.name == self._pinned)
            usable = [replica for replica in found if replica.address]
            if not usable:
                who = f"replica {self._pinned}" if self._pinned else "any replica"
                raise ReplicaUnavailable(
                    f"table {self._table} is not served by {who} yet; start a server and wait a moment"
                )
            first = known.order[0].name if known.order else None
            # Many clients that start at once spread over the replicas by chance.
            chance = {replica.name: random.random() for replica in usable}  # noqa: S311 - not a secret
            order = sorted(usable, key=lambda r: (not r.active, r.name != first, not r.is_local, chance[r.name]))
            self._known = _CachedOrder(tuple(order), time.monotonic() + FRESH_S)
            return self._known.order

    def forget(self) -> None:
        """Look the replicas up again before the next request."""
        with self._lock:
            self._known = _CachedOrder(self._known.order, 0.0)


class _RequestHistory:
    """What happened to a request so far, and what that means for its outcome."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self._doubt = False
        self._last: ReplitreeError = ReplicaUnavailable("no replica could be asked in time; allow more time")
        self._missing = False
        self.is_begun = False

    def add(self, error: ReplitreeError) -> bool:
        """Take note of a failed attempt; raise it when going on makes no sense.  True: try this replica once more."""
        self.is_begun = True
        stale = False
        match error:
            case AnswerLost(stale=stale):
                # This holds for a stale connection, too: the replica may have died after it had read the request.
                self._doubt = self._doubt or self._token is not None
            case OutcomeUnknown(token=token):
                self._doubt = True
                self._token = self._token or token
            case TooManyParts() | TooFewReplicas() | QuorumNotReached() if not self._doubt:
                raise error
            case Unavailable() | TableNotFound():
                pass
            case _ if not self._doubt:
                raise error
        self._missing = isinstance(error, TableNotFound)
        self._last = error
        return stale

    def is_final(self) -> bool:
        """Whether another round can't help: the table is gone."""
        return self._missing and not self._doubt

    def end(self, timeout_s: float) -> ReplitreeError:
        """Return the error to raise when the time is over."""
        if self._doubt:
            hint = f"with the same token ({self._token})" if self._token else "unchanged"
            return OutcomeUnknown(
                f"the request may have been carried out: no replica could say so in {timeout_s:.0f} s ({self._last})."
                f" Repeat it {hint}: it will not be carried out twice.",
                self._token or "",
            )
        if isinstance(self._last, AnswerLost):
            return ReplicaUnavailable(f"{self._last}; is the replica stopped? Try again later")
        return self._last
