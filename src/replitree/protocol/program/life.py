"""The life thread: from a process that has nothing but a disk to a replica that serves, and again after trouble.

The order is that of `replitree.protocol.state.start`.  Whatever closes a stage, the thread begins anew with `become_active`;
nothing is lost by that.

A table on an object store runs `replitree.protocol.program.life_in_store` for some of these stages.
"""

from __future__ import annotations

from collections.abc import Container

from replitree.protocol.core import layout
from replitree.protocol.core.effects import CurrentEpoch, Epoch, StagingId
from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.quorum import rejoin
from replitree.protocol.membership.activate import (
    Activated,
    Busy,
    NotJoined,
    Replaced,
    Unsettled,
    activate,
    renew_epoch,
)
from replitree.protocol.membership.table import TableOutcome, finish_leaving, join_table
from replitree.protocol.program.stages import (
    AskReload,
    AwaitIdle,
    AwaitReplica,
    AwaitSource,
    AwaitTrouble,
    BeginLoad,
    Forget,
    Lack,
    Missed,
    Quieten,
    Serve,
    Stage,
    Stop,
    TakeOver,
    Then,
)
from replitree.protocol.rescue.recover import Good, Lost, NoSource, NotYet, Recovered, recover, stand_in_log
from replitree.protocol.state.pull import Fenced, Gap, Loaded, load
from replitree.protocol.state.start import (
    CaughtUp,
    catch_up,
    compare_parts,
    forget_covered,
    list_idle_staging,
    sweep_staging,
)


def become_active(replica: Replica, me: bytes) -> Stage:
    """List idle staging, then have an epoch of one's own: steps 1 and 2 of `protocol.state.start`."""
    yield Quieten()
    idle = yield from list_idle_staging()
    known: Epoch | None = yield CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, None))
    match outcome:
        case Activated(epoch):
            return Then(take_stand, (replica, me, epoch, idle))
        case Busy():
            return Then(wait_for_replica, (replica, me), outcome)
        case Unsettled():
            return Then(become_active, (replica, me), outcome)
        case NotJoined():
            return Then(join_again, (replica, me))
        case Replaced():
            yield Stop(outcome)
            return None


def join_again(replica: Replica, me: bytes) -> Stage:
    """Join the table, as a new replica; what is left of one that was dropped goes first, from memory and from coordination."""
    yield AwaitIdle()
    yield Forget()
    left = yield from finish_leaving(replica)
    if left is not TableOutcome.DONE:
        return Then(become_active, (replica, me), "the replica was dropped, and its nodes can't be removed now")
    return (yield from activate_joined(replica, me, (yield from join_table(replica))))


def activate_joined(replica: Replica, me: bytes, joined: TableOutcome) -> Stage:
    """Activate the replica that has just joined, if it has: the end of `join_again`."""
    if joined in (TableOutcome.MISSING, TableOutcome.DROPPED, TableOutcome.WORN):
        yield Stop(joined)
        return None
    return Then(become_active, (replica, me))


def take_stand(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Find out whether the log still has what this replica has not pulled."""
    standing = yield from stand_in_log(replica, epoch)
    match standing:
        case Good():
            return Then(catch_up_with_log, (replica, me, epoch, idle))
        case Lost():
            return Then(recover_state, (replica, me, epoch, idle))
        case NoSource():
            return Then(wait_for_source, (replica, me), standing)
    return Then(become_active, (replica, me), standing)


def recover_state(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Take over the state of a good replica, once nothing that began earlier runs any more."""
    yield AwaitIdle()
    outcome = yield from recover(replica, epoch)
    match outcome:
        case Recovered():
            return Then(catch_up_with_log, (replica, me, epoch, idle), outcome)
        case NotYet():
            return Then(recover_state, (replica, me, epoch, idle), outcome)
        case NoSource():
            return Then(wait_for_source, (replica, me), outcome)
    return Then(become_active, (replica, me), outcome)


def wait_for_source(replica: Replica, me: bytes) -> Stage:
    """Wait until there is a good replica."""
    yield AwaitSource()
    return Then(become_active, (replica, me))


def wait_for_replica(replica: Replica, me: bytes) -> Stage:
    """Wait until the session of the process that holds the replica has ended."""
    yield AwaitReplica(layout.is_active(replica))
    return Then(become_active, (replica, me))


def catch_up_with_log(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Pull up to the log's tail: step 3."""
    outcome = yield from catch_up(replica, epoch)
    match outcome:
        case CaughtUp():
            return Then(tidy_up, (replica, me, epoch, idle))
        case Gap(index):
            yield Missed(index)
    return Then(become_active, (replica, me), outcome)


def tidy_up(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Sweep staging, compare parts, forget what is covered: steps 4 to 6; then serve."""
    yield BeginLoad()
    loaded = yield from load(replica)
    if isinstance(loaded, Fenced):
        return Then(become_active, (replica, me), loaded)
    yield from sweep_staging(idle, loaded)
    return (yield from serve_loaded(replica, me, epoch, loaded))


def serve_loaded(replica: Replica, me: bytes, epoch: Epoch, loaded: Loaded) -> Stage:
    """Take over what was loaded, compare it with the disk, and serve: the end of `tidy_up`."""
    lacking: Container[str] | None = yield TakeOver(loaded)
    if lacking is None:
        yield AskReload()
    compared = yield from compare_parts(replica, loaded)
    if compared.missing:
        yield Lack(compared.missing)
    if not (yield from forget_covered(replica, epoch, loaded)):
        return Then(
            become_active, (replica, me), "the registration of covered parts could not be taken back; it starts again"
        )
    yield from rejoin(replica, loaded, tuple(name for name, _ in compared.missing))
    yield Serve()
    return Then(wait_for_trouble, (replica, me))


def wait_for_trouble(replica: Replica, me: bytes) -> Stage:
    """Activate again when something went wrong."""
    yield AwaitTrouble()
    return Then(become_active, (replica, me))


__all__ = [
    "activate_joined",
    "become_active",
    "catch_up_with_log",
    "join_again",
    "recover_state",
    "serve_loaded",
    "take_stand",
    "tidy_up",
    "wait_for_replica",
    "wait_for_source",
    "wait_for_trouble",
]
