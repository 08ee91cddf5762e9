"""How a running replica strings the procedures together: its threads, each as a sequence of stages.

The checked procedures are the production ones; what is here is the thin glue between them, kept line for line like
`replica.table_replica` (life), `replica.workers` (puller, executor) and `replica.inserts` (a group's insert).  A stage is a
procedure that ends in `Then`, the next stage with its arguments, so that a state forgets the outcomes that it does not need.

Besides the protocol's effects a stage may use the effects of this module, which touch only the memory that the threads of one
process share.  Waiting for something is an effect too (`AwaitTrouble`, `AwaitPull`, `AwaitWork`, `AwaitReplica`, `Accept`):
it ends when there is something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.protocol import layout
from replitree.protocol.activate import Activated, Busy, NotJoined, Replaced, Unsettled, activate, renew_epoch
from replitree.protocol.effects import BlockId, CurrentEpoch, Epoch, LogIndex, RequestId, Reveal, StagingId
from replitree.protocol.execute import Executed, QueueMoved, execute, refetch
from replitree.protocol.insert import Inserter, Request, insert
from replitree.protocol.layout import Replica
from replitree.protocol.pull import (
    Fenced,
    Gap,
    Pointer,
    PointerMoved,
    Pulled,
    Queued,
    load_queue,
    pull_log,
    read_pointer,
)
from replitree.protocol.start import CaughtUp, catch_up, compare_parts, list_idle_staging, sweep_staging


@dataclass(frozen=True, slots=True)
class Then:
    """The end of a stage: what the thread does next."""

    stage: Callable[..., Generator[Any, Any, Any]]
    arguments: tuple[Any, ...]


Stage: TypeAlias = Generator[Any, Any, Then | None]
"""A stage: effects of the protocol and of this module, then the next stage."""

# --- effects on the memory of the process -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appear:
    """A process starts where there was none."""


@dataclass(frozen=True, slots=True)
class AwaitTrouble:
    """Wait until the process must activate again."""


@dataclass(frozen=True, slots=True)
class AwaitReplica:
    """Wait until nobody holds the replica."""

    is_active: str


@dataclass(frozen=True, slots=True)
class AwaitPull:
    """Wait, while active, for the next log entry or for a request to reload.  Outcome: `PullTurn`."""


@dataclass(frozen=True, slots=True)
class PullTurn:
    """What the puller works with; without a pointer it must load pointer and queue first."""

    epoch: Epoch
    pointer: Pointer | None


@dataclass(frozen=True, slots=True)
class AwaitWork:
    """Wait, while active, for queue entries that can be executed.  Outcome: `WorkTurn`."""


@dataclass(frozen=True, slots=True)
class WorkTurn:
    """What the executor works with."""

    epoch: Epoch
    batch: tuple[Queued, ...]


@dataclass(frozen=True, slots=True)
class AwaitLack:
    """Wait, while active, for parts that must be fetched again.  Outcome: (name, content hash) of each."""


@dataclass(frozen=True, slots=True)
class Lack:
    """These parts, too, must be fetched again."""

    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mended:
    """These parts are whole again; others may have broken meanwhile."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quieten:
    """Forget the trouble: it is being dealt with."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Be active, unless there was trouble meanwhile."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The process ends: another one has the replica."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The process waits for an operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReportTrouble:
    """Be read-only until the process has activated again."""


@dataclass(frozen=True, slots=True)
class AskReload:
    """Let the puller load pointer and queue before its next pull."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take pointer and queue as coordination has them.  Outcome: the parts of entries that were executed unnoticed."""

    pointer: Pointer
    queue: tuple[Queued, ...]


@dataclass(frozen=True, slots=True)
class TakeIn:
    """Take what a pull brought."""

    pointer: Pointer
    entries: tuple[Queued, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Executed entries leave the queue, postponed ones wait."""

    done: tuple[LogIndex, ...]
    postponed: tuple[LogIndex, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """Wait until the process is active, then take a group of requests.  Outcome: `Accepted`."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a group's insert works with."""

    me: bytes
    epoch: Epoch
    log_from: LogIndex
    staging: StagingId


@dataclass(frozen=True, slots=True)
class Release:
    """The group's staging folders are not held any more."""

    staging: StagingId


# --- the life thread ------------------------------------------------------------------------------------------------------


def appear(replica: Replica, me: bytes) -> Stage:
    """Start, some time."""
    yield Appear()
    return Then(become_active, (replica, me))


def become_active(replica: Replica, me: bytes) -> Stage:
    """List idle staging, then have an epoch of one's own: steps 1 and 2 of `protocol.start`."""
    yield Quieten()
    idle = yield from list_idle_staging()
    known: Epoch | None = yield CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, None))
    match outcome:
        case Activated(epoch):
            return Then(catch_up_with_log, (replica, me, epoch, idle))
        case Busy():
            return Then(wait_for_replica, (replica, me))
        case Unsettled():
            return Then(become_active, (replica, me))
        case Replaced() | NotJoined():
            yield Stop()
            return None


def wait_for_replica(replica: Replica, me: bytes) -> Stage:
    """Wait until the session of whoever holds the replica has ended."""
    yield AwaitReplica(layout.is_active(replica))
    return Then(become_active, (replica, me))


def catch_up_with_log(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Pull up to the log's tail: step 3."""
    match (yield from catch_up(replica, epoch)):
        case CaughtUp(pointer):
            return Then(tidy_up, (replica, me, pointer, idle))
        case Gap(index):
            yield Halt(f"entry {index} is gone")
            return None
    return Then(become_active, (replica, me))


def tidy_up(replica: Replica, me: bytes, pointer: Pointer, idle: tuple[StagingId, ...]) -> Stage:
    """Sweep staging and compare parts, steps 4 and 5; then serve."""
    yield from sweep_staging(replica, idle)
    compared = yield from compare_parts(replica)
    if compared.missing:
        yield Lack(compared.missing)
    queue = yield from load_queue(replica)
    gone: tuple[str, ...] = yield TakeOver(pointer, queue)
    yield Reveal(gone)
    yield Serve()
    return Then(wait_for_trouble, (replica, me))


def wait_for_trouble(replica: Replica, me: bytes) -> Stage:
    """Activate again when something went wrong."""
    yield AwaitTrouble()
    return Then(become_active, (replica, me))


# --- the puller -------------------------------------------------------------------------------------------------------------


def pull_next(replica: Replica, count: int) -> Stage:
    """Pull once."""
    turn: PullTurn = yield AwaitPull()
    if turn.pointer is None:
        return Then(reload_queue, (replica, count))
    pulled = yield from pull_log(replica, turn.epoch, turn.pointer, count)
    match pulled:
        case Pulled(pointer, entries):
            yield TakeIn(pointer, entries)
        case PointerMoved():
            return Then(reload_queue, (replica, count))
        case Fenced():
            yield ReportTrouble()
        case Gap(index):
            yield Halt(f"entry {index} is gone")
            return None
    return Then(pull_next, (replica, count))


def reload_queue(replica: Replica, count: int) -> Stage:
    """Take pointer and queue from coordination; what was executed unnoticed becomes visible."""
    pointer = yield from read_pointer(replica)
    queue = yield from load_queue(replica)
    gone: tuple[str, ...] = yield TakeOver(pointer, queue)
    yield Reveal(gone)
    return Then(pull_next, (replica, count))


# --- the executor -----------------------------------------------------------------------------------------------------------


def execute_next(replica: Replica) -> Stage:
    """Execute what is in the queue."""
    turn: WorkTurn = yield AwaitWork()
    outcome = yield from execute(replica, turn.epoch, turn.batch)
    done: tuple[LogIndex, ...] = ()
    postponed = tuple(item.index for item in turn.batch)
    match outcome:
        case Executed(done, waiting):
            postponed = tuple(item.index for item in waiting)
        case QueueMoved():
            yield AskReload()
        case Fenced():
            yield ReportTrouble()
            postponed = ()
    yield GiveBack(done, postponed)
    return Then(execute_next, (replica,))


# --- the mender -------------------------------------------------------------------------------------------------------------


def mend_next(replica: Replica) -> Stage:
    """Fetch again what is registered and not whole on disk."""
    wanted: tuple[tuple[str, str], ...] = yield AwaitLack()
    still = yield from refetch(replica, wanted)
    yield Mended(tuple(name for name, _ in wanted if name not in still))
    return Then(mend_next, (replica,))


# --- an insert --------------------------------------------------------------------------------------------------------------


def accept_insert(replica: Replica, tokens: tuple[tuple[int, str], ...]) -> Stage:
    """Take a group of requests, given as (request, token), once the process is active."""
    requests = tuple(Request(RequestId(request), BlockId(token)) for request, token in tokens)
    accepted: Accepted = yield Accept(requests)
    inserter = Inserter(replica, accepted.me, accepted.log_from)
    return Then(insert_group, (inserter, accepted.epoch, accepted.staging, requests))


def insert_group(inserter: Inserter, epoch: Epoch, staging: StagingId, requests: tuple[Request, ...]) -> Stage:
    """Insert a group and let go of its staging folders."""
    yield from insert(inserter, epoch, staging, requests)
    yield Release(staging)
    return None
