"""An insert: takes a group of requests, and inserts it."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Epoch, RequestId, StagingId
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.insert import insert
from replitree.protocol.insert.insert import Inserter, Request
from replitree.protocol.insert.views import FROM_CLIENTS, InsertOrigin
from replitree.protocol.program import quorum_waiter
from replitree.protocol.program.stages import Accept, Accepted, Release, ReportTrouble, Stage, Then


def accept_insert(
    replica: Replica,
    tokens: tuple[tuple[RequestId, BlockId], ...],
    drops: tuple[str, ...] = (),
    quorum: int = 0,
    schema_version: int = 1,
    batch: StreamBatch | None = None,
    takes_over: bool = False,
    origin: InsertOrigin = FROM_CLIENTS,
) -> Stage:
    """Take a group of requests, given as (request, token), once the process is active.

    The only request of a `batch` has a token as its name, and is known to the table by the batch.  `origin`: as of
    `Inserter`.
    """
    requests = tuple(Request(request, token) for request, token in tokens)
    accepted: Accepted = yield Accept(requests)
    place = layout.at_pointer(replica, accepted.log_from)
    terms = schema_version, drops, quorum, batch, takes_over
    inserter = Inserter(place, accepted.me, accepted.log_from, *terms, accepted.views, origin)
    return Then(insert_group, (inserter, accepted.epoch, accepted.staging, requests))


def insert_group(inserter: Inserter, epoch: Epoch, staging: StagingId, requests: tuple[Request, ...]) -> Stage:
    """Insert a group and release its staging folders; what is answered when its quorum has ended is waited for then."""
    end = yield from insert.insert(inserter, epoch, staging, requests)
    # The folder is released first: from here on it counts as idle, and the next activation sweeps it.
    yield Release(staging, end.views)
    if end.must_activate:
        yield ReportTrouble()
    return Then(quorum_waiter.await_quorum, (inserter.replica, end.awaited)) if end.awaited else None


__all__ = ["accept_insert", "insert_group"]
