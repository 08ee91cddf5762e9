"""The options of a read: its level, what must be included, how long the parts are kept, and the query that asks a replica.

One client never goes backwards: what it has seen and written is asked for at every level, whichever replica answers
(`replitree.client.insert.terms.Written`).  The levels are those of `replitree.protocol.state.read`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from replitree.client.insert.terms import Written
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import AnswerLost
from replitree.client.transport.lease import LEASE_S_MAX
from replitree.errors import BadInput, ReplicaBehind, ReplicaUnavailable, ReplitreeError, Unavailable
from replitree.protocol.state.read import READ_LEVELS, ReadLevel

if TYPE_CHECKING:
    from replitree.client.read.snapshot import SnapshotBody

ANSWER_S = 10.0
"""Of the time that one replica may be silent, how much is left for its answer to arrive; for the rest it may wait for
the log."""

WAIT_S_MIN = 0.1
"""The shortest time that a replica is given to wait, in seconds."""

WHERE_CHARACTERS_MAX = 2_000
"""A longer condition does not go into the URL: the reader alone leaves parts out."""

T = TypeVar("T")


def check_condition(where: object) -> None:
    """Check that a condition is text; whether it can be used, its reader tells.

    Raises
    ------
    BadInput
        It is something else.
    """
    if not isinstance(where, str):
        raise BadInput(f"a condition is text, as in 'k = 7', and 'true' means all rows; {where!r} is none")


class TimeIsUp(ReplitreeError):
    """Ends the round of the replicas: what the last one said is `error`."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A cut at which a shard is read.

    Attributes
    ----------
    at
        The cut, as text.
    has_clock
        Whether the cut is that of a write to the table's clock: then a replica learns of it from there.
    is_given
        Whether the caller wants this cut and no newer one.
    """

    at: str
    has_clock: bool = False
    is_given: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which snapshot a read wants, and which of its parts.

    Parameters
    ----------
    level
        What it is promised; None is eventual.
    min_index
        The entry at this log index (`InsertResult.counts_at`) and all before it must be included; None: what the client has
        written, -1: nothing.  At a strict level what it has written and seen always is.
    as_of
        Exactly what the log has below this index.
    timeout_s
        When to give up, in seconds.
    where
        A condition that the reader applies to the rows.
    final
        The table's policy is applied before the condition.
    lease_s
        How long the replica keeps the parts after each renewal, in seconds; None: no lease.
    cut
        Of a shard: exactly what its sharded table has at a cut; `level`, `min_index` and `as_of` are None then.

    Raises
    ------
    BadInput
        These contradict each other, a level is unknown, or a number is out of range.
    """

    level: ReadLevel | None = None
    min_index: int | None = None
    as_of: int | None = None
    timeout_s: float = 30.0
    where: str | None = None
    final: bool = False
    lease_s: float | None = None
    cut: CutPoint | None = None

    def __post_init__(self) -> None:
        """Check it."""
        if self.level is not None and self.level not in READ_LEVELS:
            raise BadInput(f"level {self.level!r} is unknown: use {', '.join(READ_LEVELS)}")
        if self.as_of is not None and (self.min_index is not None or self.level is not None):
            other = "min_index" if self.min_index is not None else "level"
            raise BadInput(f"as_of says exactly what is included: give it or {other}, not both")
        if self.as_of is not None and self.as_of < 0:
            raise BadInput(f"as_of is an index of the log, 0 or above, not {self.as_of}")
        if self.lease_s is not None and not 0 < self.lease_s <= LEASE_S_MAX:
            raise BadInput(f"a lease lasts up to {LEASE_S_MAX:.0f} s after each renewal, not {self.lease_s:g} s")
        if not 0 <= self.timeout_s < float("inf"):
            raise BadInput(f"a time limit is a number of seconds, not {self.timeout_s:g}")

    @property
    def is_strict(self) -> bool:
        """Whether the read stands at one position of the log."""
        return self.level in ("sequential", "linearizable")

    @property
    def may_be_newer(self) -> bool:
        """Whether a reader that finds this snapshot expired takes a newer one, instead of asking every replica for this one."""
        return self.cut is not None and not self.cut.is_given

    @property
    def needed(self) -> str | None:
        """The condition by which a replica may leave out parts."""
        # In a final read, rows of other parts decide which row stays, so no part may be left out.
        return None if self.final else self.where

    def path(self, table: str) -> str:
        """Return the path of the request for a snapshot of a table."""
        return f"/v1/tables/{quote(table)}/{'snapshot' if self.cut is None else 'cut/snapshot'}"

    def query(self, written: Written, columns: int = 0) -> str:
        """Return the options as the query of a URL, but for the time that the replica may wait.

        Parameters
        ----------
        written
            What the client has written and seen.
        columns
            The schema version that the condition is read with.
        """
        if self.cut is not None:
            query = f"at={quote(self.cut.at)}" + ("&clock=1" if self.cut.has_clock else "")
        elif self.as_of is not None:
            query = f"as_of={self.as_of}"
        elif self.is_strict:
            # A strict read always includes what was written through this connection.
            asked = -1 if self.min_index is None else self.min_index
            included = max(0, *(index + 1 for index in (asked, written.index, written.settled, written.mutated)))
            query = f"level={self.level}&min_index={included}&seen={written.seen}"
        elif self.min_index is not None:
            query = f"min_index={max(0, self.min_index + 1)}&mutated={max(-1, self.min_index)}"
        else:
            query = f"min_index={written.index + 1}&mutated={written.mutated}"
        query = query.removesuffix("&mutated=-1")
        if self.lease_s is not None:
            query += f"&lease_s={self.lease_s:g}"
        where = quote(self.needed or "", safe="")
        # A longer condition is left out of the url; the client then leaves parts out itself.
        return f"{query}&where={where}&columns={columns}" if 0 < len(where) <= WHERE_CHARACTERS_MAX else query

    def in_time(self, call: Callable[[ReplicaInfo, float, float], T]) -> Callable[[ReplicaInfo, float], T]:
        """Return a call that ends the round of the replicas when the time is over and one has said that it is behind.

        Parameters
        ----------
        call
            Asks a replica, which may be silent for so many seconds and wait for so many of them.
        """
        deadline = time.monotonic() + self.timeout_s

        def asked(replica: ReplicaInfo, seconds: float) -> T:
            left = max(WAIT_S_MIN, deadline - time.monotonic())
            # A replica waits for half of the time at most: another one may be further on.  It also answers that it is behind
            # before this client gives it up.
            try:
                return call(replica, seconds, min(left, max(WAIT_S_MIN, min(seconds - ANSWER_S, self.timeout_s / 2))))
            except (Unavailable, AnswerLost) as error:
                # Until then the router asks the next replica.
                if time.monotonic() < deadline:
                    raise
                if isinstance(error, ReplicaBehind):
                    raise TimeIsUp(ReplicaBehind(f"{error} ({self.timeout_s:g} s were given)")) from error
                last = error if isinstance(error, Unavailable) else ReplicaUnavailable(f"{error}; try again later")
                raise TimeIsUp(last) from error

        return asked

    def check(self, body: SnapshotBody) -> None:
        """Do nothing if a replica has understood the level.

        Raises
        ------
        ReplicaUnavailable
            It is older than this client.
        """
        if self.is_strict and body.level != self.level:
            raise ReplicaUnavailable(
                f"replica {body.replica} does not know {self.level} reads: upgrade it, or ask another replica"
            )
