"""Threads of a replica that its driver does not run as stages yet: menders, keepers, candidates, and those of requests.

Life thread, puller, executors and quorum waiter are the replica's own (`replitree.protocol.program`).  What is here
corresponds to `replica.table.mending`, `replica.table.maintenance`, `replica.table.leader`, `replica.insert.inserts` and
`replica.parts.commands`, which string the same procedures together.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.insert import Inserter, Request, insert
from replitree.protocol.program import life, quorum_waiter
from replitree.protocol.program.stages import Accepted, Stage, Then
from replitree.protocol.state.fetch import refetch

# --- effects on the memory of the process -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appear:
    """A process starts where there was none."""


@dataclass(frozen=True, slots=True)
class AwaitLack:
    """Wait, while active, for parts that must be fetched again.  Outcome: (name, content hash) of each."""


@dataclass(frozen=True, slots=True)
class Mended:
    """These parts are whole again; others may have broken meanwhile."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """Wait until the process is active, then take a group of requests.  Outcome: `Accepted`."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The group's staging folders are not held any more."""

    staging: fx.StagingId


# --- the life thread ------------------------------------------------------------------------------------------------------


def appear(replica: Replica, me: bytes) -> Stage:
    """Start, some time."""
    yield Appear()
    return Then(life.become_active, (replica, me))


# --- the mender -------------------------------------------------------------------------------------------------------------


def mend_next(replica: Replica) -> Stage:
    """Fetch again what is registered and not whole on disk."""
    wanted: tuple[tuple[str, str], ...] = yield AwaitLack()
    still = yield from refetch(replica, wanted)
    yield Mended(tuple(name for name, _ in wanted if name not in still))
    return Then(mend_next, (replica,))


# --- an insert --------------------------------------------------------------------------------------------------------------


def accept_insert(
    replica: Replica, tokens: tuple[tuple[int, str], ...], drops: tuple[str, ...] = (), quorum: int = 0
) -> Stage:
    """Take a group of requests, given as (request, token), once the process is active."""
    requests = tuple(Request(fx.RequestId(request), fx.BlockId(token)) for request, token in tokens)
    accepted: Accepted = yield Accept(requests)
    place = layout.at_pointer(replica, accepted.log_from)
    inserter = Inserter(place, accepted.me, accepted.log_from, drops=drops, quorum=quorum)
    return Then(insert_group, (inserter, accepted.epoch, accepted.staging, requests))


def insert_group(inserter: Inserter, epoch: fx.Epoch, staging: fx.StagingId, requests: tuple[Request, ...]) -> Stage:
    """Insert a group and let go of its staging folders."""
    awaited = yield from insert(inserter, epoch, staging, requests)
    yield Release(staging)
    return Then(quorum_waiter.await_quorum, (inserter.replica, awaited)) if awaited else None
