"""Reservations: a replica keeps parts for a client that makes other parts of them, and lets nothing else be made of them.

A merge that a client makes (`planned`) and a rewrite (`rewrite`) both begin with a request that reserves their sources.

Guarantees: the lease that a client holds ends at the client no later than at the replica.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from replitree.client.change.changing import LOOK_S
from replitree.client.transport.lease import Lease, LeaseHandle, hold
from replitree.errors import Unavailable

if TYPE_CHECKING:
    from replitree.client.table import Table

LEASE_S = 60.0
"""How long parts are kept and reserved after the last renewal of their lease, in seconds."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer to a request that reserves parts says.

    Attributes
    ----------
    replica, machine
        The replica that keeps the parts, and the machine where it runs.
    schema_version
        Of the table at this replica.
    lease, lease_s
        The id of the lease that keeps the parts, and how long it lasts after each renewal, in seconds.  "": nothing is kept.
    """

    replica: str
    machine: str
    schema_version: int
    lease: str = ""
    lease_s: float = LEASE_S


class _Leader(msgspec.Struct, frozen=True):
    leader: str | None = None


_R = TypeVar("_R", bound=Reservation)


def reserve(
    table: Table, verb: str, kind: type[_R], body: dict[str, Any], *, timeout_s: float
) -> tuple[Table, _R, Lease | None]:
    """Have a replica choose parts and reserve them.

    Parameters
    ----------
    table
        The table.
    verb, body
        The request, but for the length of the lease, which is `LEASE_S`.
    kind
        Type of the answer.
    timeout_s
        How long the replica may take, in seconds.

    Returns
    -------
    tuple
        The table at the replica that keeps the parts, its answer, and the lease, which the caller releases; None when the
        replica keeps nothing.

    Raises
    ------
    Unavailable
        No replica answers.
    """
    # The leader is asked if it is there: only the leader proposes merges, and leaves out what it has reserved itself.
    answered, status = table.commander.ask("GET", "status", _Leader, timeout_s=LOOK_S)
    active = {replica.name for replica in table.commander.replicas() if replica.active}
    leader = status.leader if status.leader in active else None
    keeper, wish = table.replica(leader or answered), {**body, "lease_s": LEASE_S}
    # The lease runs from the moment the replica grants it, so the client counts from before the request.
    asked_at = time.monotonic()
    try:
        patience_s = timeout_s if leader in (None, answered) else min(timeout_s, LOOK_S)
        _, answer = keeper.commander.ask("POST", verb, kind, wish, timeout_s=patience_s)
    except Unavailable:
        # A leader that has died is active until its session ends; the other replica answered a moment ago.
        if leader in (None, answered):
            raise
        keeper, asked_at = table.replica(answered), time.monotonic()
        _, answer = keeper.commander.ask("POST", verb, kind, wish, timeout_s=timeout_s)
    if not answer.lease:
        return keeper, answer, None
    address = next(replica.address for replica in keeper.replicas() if replica.name == answer.replica)
    handle = LeaseHandle(address, table.name, answer.lease, answer.lease_s)
    return keeper, answer, hold(handle, table.http, asked_at)


__all__ = ["LEASE_S", "Reservation", "reserve"]
