"""A table's life in coordination: created in one commit, joined by replicas, dropped in resumable steps.

A drop first marks the table (`dropped`); from then on replicas leave and nobody joins.  Each replica deletes its own nodes,
and whoever drops deletes the rest when no replica is left.  Every step may be repeated by anybody: a drop that was cut off
is finished by dropping again.
"""

from __future__ import annotations

from enum import Enum

from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Children,
    Commit,
    Create,
    Delete,
    Exists,
    Get,
    Operation,
    Procedure,
    Reason,
    Refused,
    Sync,
)
from replitree.protocol.layout import Replica, Table

DELETE_BATCH = 100
"""Nodes deleted in one commit."""


class Outcome(Enum):
    """What became of a step in a table's life."""

    DONE = "done"
    EXISTS = "exists"
    MISSING = "missing"
    DROPPED = "dropped"
    NOT_EMPTY = "not empty"
    UNSETTLED = "unsettled"


def create_table(table: Table, metadata: bytes, columns: bytes) -> Procedure[Outcome]:
    """Create a table's nodes.  After an unknown outcome the metadata, which name the table's id, tell whose it is."""
    path = table.path
    outcome = yield Commit(
        Create(path),
        Create(layout.metadata(table), metadata),
        Create(layout.columns(table), columns),
        Create(layout.log(table), b'{"base":0,"format":1}'),
        Create(layout.blocks(table)),
        Create(f"{path}/quorum"),
        Create(f"{path}/quorum/status"),
        Create(layout.leader_election(table)),
        Create(layout.results(table)),
        Create(layout.drops(table)),
        Create(layout.replicas(table)),
    )
    match outcome:
        case Applied():
            return Outcome.DONE
        case Refused(reason=Reason.NODE_EXISTS):
            pass
        case Refused():
            return Outcome.MISSING
    yield Sync(path)
    found = yield Get(layout.metadata(table))
    if found is None:
        return Outcome.UNSETTLED if not isinstance(outcome, Refused) else Outcome.DROPPED
    return Outcome.DONE if found.value == metadata else Outcome.EXISTS


def join_table(replica: Replica) -> Procedure[Outcome]:
    """Add a replica to a table.  It starts at the log's first entry and gets the table by pulling."""
    if (yield Exists(layout.dropped(replica.table))):
        return Outcome.DROPPED
    path = layout.replica_path(replica)
    outcome = yield Commit(
        Create(path),
        Create(layout.host(replica)),
        Create(layout.is_lost(replica), b"0"),
        Create(layout.log_pointer(replica), str(replica.table.base).encode()),
        Create(layout.queue(replica)),
        Create(layout.parts(replica)),
    )
    match outcome:
        case Applied():
            return Outcome.DONE
        case Refused(reason=Reason.NODE_EXISTS):
            return Outcome.EXISTS
        case Refused():
            return Outcome.MISSING
    return Outcome.UNSETTLED


def mark_dropped(table: Table) -> Procedure[Outcome]:
    """Begin the drop of a table."""
    outcome = yield Commit(Create(layout.dropped(table)))
    match outcome:
        case Applied():
            return Outcome.DONE
        case Refused(reason=Reason.NODE_EXISTS):
            return Outcome.EXISTS
        case Refused():
            return Outcome.MISSING
    return Outcome.UNSETTLED


def leave_table(replica: Replica) -> Procedure[Outcome]:
    """Delete the replica's own nodes, the queue and the parts in batches, the rest in one commit."""
    for parent in (layout.queue(replica), layout.parts(replica)):
        if not (yield from _delete_children(parent)):
            return Outcome.UNSETTLED
    path = layout.replica_path(replica)
    active = yield Exists(layout.is_active(replica))
    nodes = [layout.is_active(replica)] if active else []
    nodes += [layout.host(replica), layout.is_lost(replica), layout.log_pointer(replica)]
    nodes += [layout.queue(replica), layout.parts(replica), path]
    outcome = yield Commit(*(Delete(node, ANY_VERSION) for node in nodes))
    return _left(outcome)


def remove_table(table: Table) -> Procedure[Outcome]:
    """Delete the nodes of a dropped table that no replica is left of."""
    if (yield Children(layout.replicas(table))):
        return Outcome.NOT_EMPTY
    for parent in (layout.log(table), layout.blocks(table), layout.results(table), layout.drops(table)):
        if not (yield from _delete_children(parent)):
            return Outcome.UNSETTLED
    path = table.path
    outcome = yield Commit(
        *(
            Delete(node, ANY_VERSION)
            for node in (
                layout.replicas(table),
                layout.log(table),
                layout.blocks(table),
                f"{path}/quorum/status",
                f"{path}/quorum",
                layout.leader_election(table),
                layout.results(table),
                layout.drops(table),
                layout.columns(table),
                layout.metadata(table),
                layout.dropped(table),
                path,
            )
        )
    )
    return _left(outcome)


def _left(outcome: object) -> Outcome:
    match outcome:
        case Applied() | Refused(reason=Reason.NO_NODE):
            return Outcome.DONE
        case Refused():
            return Outcome.NOT_EMPTY
    return Outcome.UNSETTLED


def _delete_children(parent: str) -> Procedure[bool]:
    """Delete all children of a node, in batches; False when a batch was not applied."""
    names = (yield Children(parent)) or ()
    for first in range(0, len(names), DELETE_BATCH):
        operations: tuple[Operation, ...] = tuple(
            Delete(f"{parent}/{name}", ANY_VERSION) for name in names[first : first + DELETE_BATCH]
        )
        outcome = yield Commit(*operations)
        if not isinstance(outcome, Applied):
            return False
    return True
