"""Activation: one process owns a replica, and the process that it replaced can change nothing any more.

A process takes `is_active` (ephemeral) and bumps `host` in one commit.  The new version of `host` is its *epoch*.  Every
commit of a replica carries ``Check(host, epoch)``, so from that commit on all requests of earlier epochs are refused: those
of a replaced process, and this process's own requests without an answer (invariant I9).

* `activate` is for a process that starts.  It takes the replica when no process holds `is_active`, or when the holder is
  provably dead; it does not take it from a holder that lives or may live.
* `renew_epoch` is for a process that has the replica and needs a new epoch: after an unknown outcome, or in a new session.
  It succeeds only while `host` still names this process.

An unknown outcome of the commit needs no special care: the commit is conditional on the version of `host`, so of two attempts
at most one takes place, and the loop reads again.

Absent on purpose: waiting for the old session to expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import DROPPED_HOST

ATTEMPTS_MAX = 4
"""How often a refused or unknown activation is looked at again before the caller is asked to."""


@dataclass(frozen=True, slots=True)
class Activated:
    """The replica is owned by this process under `epoch`."""

    epoch: fx.Epoch


@dataclass(frozen=True, slots=True)
class Busy:
    """Another process holds the replica: `holder` is what it wrote into `is_active`."""

    holder: bytes
    owner: fx.Owner


@dataclass(frozen=True, slots=True)
class NotJoined:
    """The table has no such replica: it was never added, or was dropped, or is being dropped."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another process has taken over this replica.  This one must stop."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Every attempt was refused or unknown.  Nothing is owned; try again."""


@dataclass(frozen=True, slots=True)
class NoEpoch:
    """The process can't act for the replica now: `reason` is for a client."""

    reason: str


REPLACED = "another process took over this replica; ask that one"
"""What a client hears of a process that was `Replaced`."""

Activation: TypeAlias = Activated | Busy | NotJoined | Unsettled
Renewal: TypeAlias = Activated | Replaced | NotJoined | Unsettled


def activate(replica: Replica, me: bytes) -> fx.Procedure[Activation]:
    """Take a replica that no live process holds.

    Parameters
    ----------
    replica
        Which one.
    me
        Value for `host` and `is_active`: address and incarnation, different for every process that ever starts.
    """
    for _ in range(ATTEMPTS_MAX):
        host, active = yield from _read(replica)
        if host is None or host.value == DROPPED_HOST:
            return NotJoined()
        if active is not None and active.value != me:
            owner = yield fx.ProbeOwner(active.value)
            if owner is not fx.Owner.DEAD:
                return Busy(active.value, owner)
        epoch = yield from _take(replica, me, host, active)
        if epoch is not None:
            return Activated(epoch)
    return Unsettled()


def renew_epoch(replica: Replica, me: bytes, epoch: fx.Epoch | None) -> fx.Procedure[Renewal]:
    """Have an epoch above `epoch`, so that every commit under `epoch` is decided: it took place already, or never will.

    Parameters
    ----------
    replica, me
        As in `activate`.
    epoch
        The epoch whose commits are to be fenced; a higher one that another procedure of this process took will do.
        None: take a new one in any case, because a new session needs an `is_active` of its own.
    """
    for _ in range(ATTEMPTS_MAX):
        known = None if epoch is None else (yield fx.CurrentEpoch())
        if known is not None and known > epoch:
            return Activated(known)
        host, active = yield from _read(replica)
        if host is None or host.value == DROPPED_HOST:
            return NotJoined()
        if host.value != me:
            return Replaced()
        renewed = yield from _take(replica, me, host, active)
        if renewed is not None:
            return Activated(renewed)
    return Unsettled()


def _read(replica: Replica) -> fx.Procedure[tuple[fx.Node | None, fx.Node | None]]:
    """Read `host` and `is_active`, not older than now."""
    # A commit that was made from a stale view would be refused again and again.
    yield fx.Sync(layout.host(replica))
    many = yield fx.GetMany((layout.host(replica), layout.is_active(replica)))
    host, active = many.nodes
    return host, active


def _take(replica: Replica, me: bytes, host: fx.Node, active: fx.Node | None) -> fx.Procedure[fx.Epoch | None]:
    """Commit the take-over from the state that was read.  None: refused or unknown, look again."""
    operations: list[fx.Operation] = [fx.Set(layout.host(replica), me, host.version)]
    if active is not None:
        operations.append(fx.Delete(layout.is_active(replica), active.version))
    operations.append(fx.Create(layout.is_active(replica), me, ephemeral=True))
    outcome = yield fx.Commit(*operations)
    if not isinstance(outcome, fx.Applied):
        return None
    epoch = fx.Epoch(host.version + 1)
    yield fx.AdoptEpoch(epoch)
    return epoch


def newer_epoch(replica: Replica, me: bytes, epoch: fx.Epoch) -> fx.Procedure[Activated | NoEpoch]:
    """Find the epoch to use after a commit under `epoch` was refused for certain.

    Parameters
    ----------
    replica, me
        As in `activate`.
    epoch
        The one that was refused.
    """
    known = yield fx.CurrentEpoch()
    if known is not None and known > epoch:
        return Activated(known)
    renewed = yield from renew_epoch(replica, me, epoch)
    if isinstance(renewed, Activated):
        return renewed
    if isinstance(renewed, Replaced):
        return NoEpoch(REPLACED)
    return NoEpoch("the replica has no session; try again or ask another replica")
