"""A table's life in coordination: created in one commit, joined by replicas, dropped in resumable steps.

A drop first marks the table (`dropped`); from then on replicas leave and none joins.  Each replica deletes its own nodes, and
the process that drops the table deletes the rest when no replica is left.  Any process may repeat any step: a drop that was cut
off is finished by dropping again.
"""

from __future__ import annotations

from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.epochs import Noted, note_paths
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import LogStart, encode_log, read_start
from replitree.protocol.shares.letting_go import release_attempts
from replitree.protocol.shares.share import LetGo, release
from replitree.protocol.state.counted import count_no_more

DELETE_BATCH = 100
"""Nodes deleted in one commit."""

ATTEMPTS_MAX = 4
"""How often a refused step is looked at again before the caller is asked to."""

NOT_LOST = b"0"
"""Value of `is_lost` of a good replica; with every other value it is lost."""

LOST = b"1"
"""Value of `is_lost` of a replica whose own state is whole, but for the entries that it has missed."""

HALF_BUILT = b"1 half-built"
"""Value of `is_lost` of a replica that has begun to take over another one's state: its own is a mixture."""

DROPPED_HOST = b"dropped"
"""Value of `host` from the moment that a replica is being taken out of its table."""


class TableOutcome(Enum):
    """What became of a step in a table's life."""

    DONE = "done"
    EXISTS = "exists"
    MISSING = "missing"
    DROPPED = "dropped"
    NOT_EMPTY = "not empty"
    WORN = "worn"
    UNSETTLED = "unsettled"
    ACTIVE = "active"
    LAST_GOOD = "last good"


def find_table(path: str) -> fx.Procedure[TablePlace]:
    """Look which table is at `path`; without an incarnation when there is none."""
    node = yield fx.Get(path)
    return layout.table_at(path, node)


def create_table(
    table: TablePlace, metadata: bytes, columns: bytes, more: tuple[fx.Create, ...] = ()
) -> fx.Procedure[TableOutcome]:
    """Create a table's nodes, and `more`.

    The table's incarnation must be one that no table has ever had: it tells this table's replicas from those of an earlier one.
    """
    path = table.path
    outcome = yield fx.Commit(*table_nodes(table, metadata, columns, encode_log(table)), *more)
    match outcome:
        case fx.Applied():
            return TableOutcome.DONE
        case fx.Refused(reason=fx.Reason.NODE_EXISTS):
            pass
        case fx.Refused():
            return TableOutcome.MISSING
    # After an unknown outcome the metadata, which have the table's id, show whether this commit created the table.
    yield fx.Sync(path)
    found = yield fx.Get(layout.metadata(table))
    if found is None:
        return TableOutcome.UNSETTLED if not isinstance(outcome, fx.Refused) else TableOutcome.DROPPED
    return TableOutcome.DONE if found.value == metadata else TableOutcome.EXISTS


def table_nodes(table: TablePlace, metadata: bytes, columns: bytes, log: bytes) -> tuple[fx.Create, ...]:
    """Return what creates a table's nodes, without replicas; `log` is the value that says where the log begins."""
    return (
        fx.Create(table.path, table.incarnation.encode()),
        fx.Create(layout.metadata(table), metadata),
        fx.Create(layout.columns(table), columns),
        fx.Create(layout.log(table), log),
        fx.Create(layout.open_logs(table)),
        fx.Create(layout.open_log(table)),
        fx.Create(layout.blocks(table)),
        fx.Create(f"{table.path}/quorum"),
        fx.Create(layout.quorum_statuses(table)),
        fx.Create(layout.leader_election(table)),
        fx.Create(layout.results(table)),
        fx.Create(layout.drops(table)),
        fx.Create(layout.replicas(table)),
    )


def join_table(replica: Replica, incarnation: str = "") -> fx.Procedure[TableOutcome]:
    """Add a replica to a table.

    `incarnation` tells it from others that had or will have its name; a table on local disks need not tell them apart.

    As long as the log is whole it starts at the first entry and gets the table by pulling.  Later it is a lost replica that
    has nothing yet: its first activation recovers it from another one.

    The commit changes `replicas`: a replica that cleans the log meanwhile learns of the new one.  The epochs of
    the new replica begin past those of an earlier replica with the name (`protocol.core.epochs`).

    Returns
    -------
    `EXISTS`: there is such a replica.  `WORN`: its name has had too many epochs, it needs another one.
    """
    table, path = replica.table, layout.replica_path(replica)
    named = (fx.Set(path, incarnation.encode(), fx.ANY_VERSION),) if incarnation else ()
    for _ in range(ATTEMPTS_MAX):
        dropped, *notes = (yield fx.GetMany((layout.dropped(table), *note_paths(replica)))).nodes
        if dropped is not None:
            return TableOutcome.DROPPED
        noted = Noted(replica, *notes)
        if noted.is_worn:
            return TableOutcome.WORN
        start = yield from read_start(table)
        if start is None:
            return TableOutcome.MISSING
        outcome = yield fx.Commit(*_join(replica, start, noted), *named)
        match outcome:
            case fx.Applied():
                return TableOutcome.DONE
            case fx.Refused(operation=fx.Create(path=refused), reason=fx.Reason.NODE_EXISTS) if refused == path:
                return TableOutcome.EXISTS
            case fx.Refused(reason=fx.Reason.BAD_VERSION | fx.Reason.NODE_EXISTS):
                continue
            case fx.Refused():
                return TableOutcome.MISSING
        return TableOutcome.UNSETTLED
    return TableOutcome.UNSETTLED


def _join(replica: Replica, start: LogStart, noted: Noted) -> tuple[fx.Operation, ...]:
    """Return the operations that add a replica; they hold only while log and notes are what they were seen to be."""
    table, path = replica.table, layout.replica_path(replica)
    return (
        fx.Create(path),
        fx.Create(layout.host(replica)),
        *noted.passing(),
        fx.Create(layout.is_lost(replica), NOT_LOST if start.is_whole else LOST),
        fx.Create(layout.log_pointer(replica), str(start.first).encode()),
        fx.Create(layout.queue(replica)),
        fx.Create(layout.parts(replica)),
        fx.Check(layout.log(table), start.version),
        fx.Set(layout.replicas(table), f"last added: {replica.name}".encode(), fx.ANY_VERSION),
    )


def mark_dropped(table: TablePlace) -> fx.Procedure[TableOutcome]:
    """Begin the drop of a table."""
    # The check names this incarnation's replicas, so a commit that comes late does not drop another table of the name.
    outcome = yield fx.Commit(fx.Check(layout.replicas(table), fx.ANY_VERSION), fx.Create(layout.dropped(table)))
    match outcome:
        case fx.Applied():
            return TableOutcome.DONE
        case fx.Refused(reason=fx.Reason.NODE_EXISTS):
            return TableOutcome.EXISTS
        case fx.Refused():
            return TableOutcome.MISSING
    return TableOutcome.UNSETTLED


def leave_table(replica: Replica, *, shared: bool = False) -> fx.Procedure[TableOutcome]:
    """Take a replica out of its table, whether or not its process runs: the table is dropped, or a drop was cut off.

    First it is marked, in one commit: nothing is kept for it any more, and no process can activate it.  Then it is counted no
    more for inserts that are open, and its nodes are deleted, the queue and the parts in batches, the rest in one commit.
    Any process may repeat any step, at any time: it proves that the mark is still there, so it can't touch a replica of
    the same name that has joined since.

    `shared`: the table's parts lie in an object store; the replica's shares are let go of, too.
    """
    host, active, lost, *notes = (yield fx.GetMany(_places(replica))).nodes
    if host is None or lost is None:
        return TableOutcome.DONE
    last = host.version
    if host.value != DROPPED_HOST:
        gone = () if active is None else (fx.Delete(layout.is_active(replica), fx.ANY_VERSION),)
        marked = yield fx.Commit(*_mark_dropped(replica, host, lost), *gone)
        if not isinstance(marked, fx.Applied):
            return TableOutcome.UNSETTLED
        last = fx.Version(host.version + 1)
    return (yield from _delete_replica(Noted(replica, *notes), last, shared=shared))


def drop_replica(replica: Replica, *, shared: bool = False) -> fx.Procedure[TableOutcome]:
    """Take a dead replica out of its table for good; what was cut off half-way is finished by dropping again.

    `shared` as of `leave_table`.

    Returns
    -------
    `ACTIVE`: its process has a session, stop it first.  `LAST_GOOD`: no other replica is good, so the table would be lost
    with it.  `MISSING`: there is no such replica.
    """
    table = replica.table
    yield fx.Sync(layout.replicas(table))
    host, active, lost, *notes = (yield fx.GetMany(_places(replica))).nodes
    if host is None or lost is None:
        return TableOutcome.MISSING
    last = host.version
    if host.value != DROPPED_HOST:
        if active is not None:
            return TableOutcome.ACTIVE
        good = yield from good_replica(table, besides=replica.name)
        if good is None:
            return TableOutcome.LAST_GOOD
        marked = yield fx.Commit(*_mark_dropped(replica, host, lost), *good)
        if not isinstance(marked, fx.Applied):
            return TableOutcome.UNSETTLED
        last = fx.Version(host.version + 1)
    return (yield from _delete_replica(Noted(replica, *notes), last, shared=shared))


def finish_leaving(replica: Replica, *, shared: bool = False) -> fx.Procedure[TableOutcome]:
    """Delete what a drop of this replica that was cut off has left; nothing when it is not being dropped.

    `shared` as of `leave_table`.
    """
    host, *notes = (yield fx.GetMany((layout.host(replica), *note_paths(replica)))).nodes
    if host is None or host.value != DROPPED_HOST:
        return TableOutcome.DONE
    return (yield from _delete_replica(Noted(replica, *notes), host.version, shared=shared))


def _places(replica: Replica) -> tuple[str, ...]:
    """Return what is read of a replica before it is dropped: `host`, `is_active`, `is_lost`, and the notes of its name."""
    return layout.host(replica), layout.is_active(replica), layout.is_lost(replica), *note_paths(replica)


def _mark_dropped(replica: Replica, host: fx.Node, lost: fx.Node) -> tuple[fx.Operation, ...]:
    return (
        fx.Set(layout.host(replica), DROPPED_HOST, host.version),
        fx.Set(layout.is_lost(replica), LOST, lost.version),
        fx.Create(layout.replica_dropped(replica)),
    )


def good_replica(table: TablePlace, besides: str) -> fx.Procedure[tuple[fx.Check, fx.Check] | None]:
    """Find another replica that is not lost; return the operations that prove that it still is not."""
    added = yield fx.Get(layout.replicas(table))
    if added is None:
        return None
    names = (yield fx.Children(layout.replicas(table))) or ()
    paths = tuple(layout.is_lost(Replica(table, name)) for name in names if name != besides)
    many: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    for path, node in zip(paths, many.nodes, strict=True):
        if node is not None and node.value == NOT_LOST:
            # The second check proves that no replica was added: the versions of one that joins again begin anew.
            return fx.Check(path, node.version), fx.Check(layout.replicas(table), added.version)
    return None


def _delete_replica(noted: Noted, last: fx.Version, *, shared: bool) -> fx.Procedure[TableOutcome]:
    """Delete what a replica that is marked has; `last` is the version of its `host`, which no process has as its epoch."""
    replica = noted.replica
    marked = fx.Check(layout.replica_dropped(replica), fx.ANY_VERSION)
    if not (yield from count_no_more(replica, marked)):
        return TableOutcome.UNSETTLED
    if shared and not (yield from _release_shares(replica, marked)):
        return TableOutcome.UNSETTLED
    for parent in (layout.queue(replica), layout.parts(replica)):
        if not (yield from _delete_children(parent, marked)):
            return TableOutcome.UNSETTLED
    return (yield from _delete_rest(noted, last, marked))


def _delete_rest(noted: Noted, last: fx.Version, marked: fx.Check) -> fx.Procedure[TableOutcome]:
    """Delete what has no children any more, and note which epochs the name has had."""
    replica = noted.replica
    nodes = (
        layout.is_lost(replica),
        layout.log_pointer(replica),
        layout.queue(replica),
        layout.parts(replica),
        layout.replica_dropped(replica),
        layout.replica_path(replica),
    )
    deleted = (fx.Delete(layout.host(replica), last), *(fx.Delete(node, fx.ANY_VERSION) for node in nodes))
    prepared: tuple[fx.Delete, ...] = ()
    for _ in range(ATTEMPTS_MAX):
        outcome = yield fx.Commit(marked, *noted.noting(last), *prepared, *deleted)
        match outcome:
            case fx.Refused(operation=fx.Create()):
                notes = yield fx.GetMany(note_paths(replica))
                noted = Noted(replica, *notes.nodes)  # the first note, of another replica, has come
            case fx.Refused(operation=fx.Delete(path=path), reason=fx.Reason.NOT_EMPTY) if path == nodes[-1]:
                # Only what was prepared for joint inserts is left, and nothing more is: that needs the epoch.
                if not (yield from _delete_children(layout.all_prepared(replica), marked)):
                    return TableOutcome.UNSETTLED
                prepared = (fx.Delete(layout.all_prepared(replica), fx.ANY_VERSION),)
            case _:
                return _left(outcome)
    return TableOutcome.UNSETTLED


def _release_shares(replica: Replica, marked: fx.Check) -> fx.Procedure[bool]:
    """Let go of all shares of a replica that is being dropped; False when it has to be done again."""
    host = yield fx.Get(layout.host(replica))
    if host is None or not (yield from release_attempts(replica, marked)):
        return False
    return isinstance((yield from release(replica, fx.Epoch(host.version))), LetGo)


def remove_table(table: TablePlace) -> fx.Procedure[TableOutcome]:
    """Delete the nodes of a dropped table that no replica is left of.

    Each commit needs the mark of the drop: it can't touch another table that has been created at this path since.
    """
    if (yield fx.Children(layout.replicas(table))):
        return TableOutcome.NOT_EMPTY
    path = table.path
    nodes: tuple[str, ...] = (yield fx.Children(path)) or ()
    logs = tuple(f"{path}/{node}" for node in nodes if node.startswith("log."))
    unfinished = tuple(node for node in (layout.restoring(table),) if node.rpartition("/")[2] in nodes)
    is_shared = layout.sharing(table).rpartition("/")[2] in nodes
    kept: tuple[str, ...] = ((yield fx.Children(layout.sharing(table))) or ()) if is_shared else ()
    sharing = tuple(f"{layout.sharing(table)}/{name}" for name in kept)
    came_later = (layout.epochs, layout.tags, layout.consumers, layout.streams, layout.views)
    noted = tuple(path(table) for path in came_later if path(table).rpartition("/")[2] in nodes)
    marked = fx.Check(layout.dropped(table), fx.ANY_VERSION)
    for parent in (
        *(*sharing, *noted),
        *(layout.log(table), *logs, layout.open_logs(table)),
        *(layout.blocks(table), layout.quorum_statuses(table), layout.results(table), layout.drops(table)),
    ):
        if not (yield from _delete_children(parent, marked)):
            return TableOutcome.UNSETTLED
    outcome = yield fx.Commit(
        *(
            fx.Delete(node, fx.ANY_VERSION)
            for node in (
                layout.replicas(table),
                layout.log(table),
                *logs,
                layout.open_logs(table),
                layout.blocks(table),
                f"{path}/quorum/status",
                f"{path}/quorum",
                layout.leader_election(table),
                layout.results(table),
                layout.drops(table),
                layout.columns(table),
                layout.metadata(table),
                layout.dropped(table),
                *unfinished,
                *noted,
                *sharing,
                *((layout.sharing(table),) if is_shared else ()),
                path,
            )
        )
    )
    return _left(outcome)


def _left(outcome: object) -> TableOutcome:
    match outcome:
        case fx.Applied() | fx.Refused(reason=fx.Reason.NO_NODE):
            return TableOutcome.DONE
        case fx.Refused(reason=fx.Reason.NOT_EMPTY):
            return TableOutcome.NOT_EMPTY
    return TableOutcome.UNSETTLED


def _delete_children(parent: str, proof: fx.Check) -> fx.Procedure[bool]:
    """Delete all children of a node, in batches, as long as `proof` holds; False when a batch was not applied."""
    names = (yield fx.Children(parent)) or ()
    for first in range(0, len(names), DELETE_BATCH):
        operations: tuple[fx.Operation, ...] = tuple(
            fx.Delete(f"{parent}/{name}", fx.ANY_VERSION) for name in names[first : first + DELETE_BATCH]
        )
        outcome = yield fx.Commit(proof, *operations)
        if not isinstance(outcome, fx.Applied):
            return False
    return True
