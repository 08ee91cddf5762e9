"""Repair: what an operator decides about replicas that are lost or gone for good, and a look at every part's files.

`recover_from` and `drop_replica` are one procedure each, run from the caller's own coordination session, so they work when no
replica does.  Any process may repeat both after any failure.  Neither deletes a row that a live replica has.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import msgspec

from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.errors import BadInput, ReplitreeError, Unavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Exists, Procedure, Sync
from replitree.protocol.core.layout import Replica, check_replica_name
from replitree.protocol.membership.table import TableOutcome
from replitree.protocol.membership.table import drop_replica as drop_replica_procedure
from replitree.protocol.rescue.recover import NotSurvivor, Survivor, survive
from replitree.protocol.sharded.places import sharded_name

CHECK_S = 3600.0
"""How long a replica may take to check the parts of one table, in seconds: it reads all of them."""

ATTEMPTS_MAX = 3
"""How often a drop that was not settled is looked at again."""


class BrokenPart(msgspec.Struct, frozen=True):
    """A part whose files do not match what they should be, and how."""

    part: str
    problem: str = ""


class PartCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica found when it read all parts of a table.

    Attributes
    ----------
    table, replica
        Which.
    parts
        How many it has looked at.
    broken
        Those that were broken; they are set aside and fetched again.
    aside
        Places below the table's folder of detached parts, frozen snapshots and the kept definition that are damaged.
    problem
        Why it could not be asked; empty: it answered.
    """

    table: str
    replica: str
    parts: int = 0
    broken: tuple[BrokenPart, ...] = ()
    problem: str = ""
    aside: tuple[BrokenPart, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether everything was looked at and is whole."""
        return not (self.broken or self.aside or self.problem)


def recover_from(
    catalog: Catalog, table: str, name: str, *, half_built: bool = False, behind: bool = False
) -> Survivor:
    """Declare a replica's state the table's, when all replicas are lost: the others recover from it.

    Parameters
    ----------
    table, name
        Which replica of which table.
    half_built
        Take it even if it is a mixture of its own state and of one that it was taking over.
    behind
        Take it even if another one that is whole has pulled more of the log.

    Raises
    ------
    TableNotFound
        There is no such table.
    BadInput
        It has no such replica, or a replica is good, or this one is half-built.
    """
    catalog.definition(table)
    _check_replica(catalog, table, name)
    # This node is created with the table, so it can't appear after this read.
    if catalog.run(_fresh(Exists(layout.restoring(catalog.place(table))))):
        raise BadInput(f"table {table} is being restored: finish that, with `replitree restore {sharded_name(table)}`")
    outcome = catalog.run(survive(catalog.place(table), name, half_built=half_built, behind=behind))
    if isinstance(outcome, NotSurvivor):
        raise BadInput(f"nothing was changed: {outcome.reason}")
    return outcome


def drop_replica(catalog: Catalog, table: str, name: str) -> None:
    """Take a replica that will not come back out of a table; nothing is kept for it any more.

    Raises
    ------
    TableNotFound
        There is no such table.
    BadInput
        There is no such replica, or it is active, or no other replica is good.
    Unavailable
        It was not finished; do it again.
    """
    definition = catalog.definition(table)
    _check_replica(catalog, table, name)
    replica = Replica(catalog.place(table), name)
    outcome = TableOutcome.UNSETTLED
    for _ in range(ATTEMPTS_MAX):
        outcome = catalog.run(drop_replica_procedure(replica, shared=definition.is_shared))
        if outcome not in (TableOutcome.UNSETTLED, TableOutcome.NOT_EMPTY):
            break
    match outcome:
        case TableOutcome.DONE | TableOutcome.MISSING:
            # The replica was there a moment ago: missing now, it was dropped by another process.
            return
        case TableOutcome.ACTIVE:
            raise BadInput(
                f"replica {name} of table {table} has a session: stop its server first, or wait until its session has ended"
            )
        case TableOutcome.LAST_GOOD:
            raise BadInput(
                f"replica {name} is the last good one of table {table}: the rows would go with it. Let another one recover "
                f"first; `replitree table drop {table}` drops the table"
            )
    raise Unavailable(f"replica {name} of table {table} is not wholly dropped; drop it again to finish")


def replica_names(catalog: Catalog, table: str) -> tuple[str, ...]:
    """Return the names of a table's replicas, those that are half-dropped too."""
    return tuple(sorted(catalog.run(_fresh(Children(layout.replicas(catalog.place(table))))) or ()))


def check_parts(
    catalog: Catalog, http: HttpClient, table: str, replica: str | None = None, *, timeout_s: float = CHECK_S
) -> tuple[PartCheck, ...]:
    """Let replicas read every part of a table and compare it with its checksums; broken parts are fetched again.

    Parameters
    ----------
    replica
        Only this one; by default all, side by side.
    timeout_s
        How long each may take, in seconds.

    Raises
    ------
    TableNotFound
        There is no such table.
    BadInput
        It has no such replica.
    """
    catalog.definition(table)
    if replica is not None:
        _check_replica(catalog, table, replica)
    asked = tuple(each for each in catalog.replicas(table) if replica in (None, each.name))
    path = f"/v1/tables/{quote(table)}/check"

    def check(one: ReplicaInfo) -> PartCheck:
        if not one.address:
            return PartCheck(table=table, replica=one.name, problem="it has never been active")
        try:
            answer = http.request(one.address, "POST", path, b"{}", timeout_s=timeout_s).decode(_CheckAnswer)
        except ReplitreeError as error:
            # A replica that can't be checked does not keep the reports of the others from the operator.
            return PartCheck(table=table, replica=one.name, problem=str(error))
        return PartCheck(table=table, replica=one.name, parts=answer.parts, broken=answer.broken, aside=answer.aside)

    with ThreadPoolExecutor(max(1, len(asked)), thread_name_prefix="replitree-check") as pool:
        return tuple(pool.map(check, asked))


class _CheckAnswer(msgspec.Struct, frozen=True):
    """What a replica says when it has looked at all parts."""

    parts: int
    broken: tuple[BrokenPart, ...] = ()
    aside: tuple[BrokenPart, ...] = ()


def _check_replica(catalog: Catalog, table: str, name: str) -> None:
    """Do nothing when a table has this replica.

    Raises
    ------
    BadInput
        It has not; says which it has.
    """
    check_replica_name(name)
    names = replica_names(catalog, table)
    if name not in names:
        raise BadInput(f"table {table} has no replica {name!r}; it has {', '.join(names) or 'none'}")


def _fresh(look: Exists | Children) -> Procedure[Any]:
    """Perform a read of coordination that sees all commits so far."""
    yield Sync(look.path)
    return (yield look)
