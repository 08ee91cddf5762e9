"""The catalog: which tables there are, their definitions, and the replicas that serve them, all read from coordination.

Guarantees:

* What is read is at least as new as the beginning of the call where that matters (`Sync` first): a table that any
  client created a moment ago is found.
* The session is opened when it is first needed, and a new one when the old one ended: a laptop may sleep.
* Any process may repeat `create` and `drop` after any failure; both say what they found.

Absent on purpose: anything about rows, and any write but those two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from replitree.client.transport.standing import LogState, read_log_state
from replitree.coordination.port import Coordination, SessionLost, make_root
from replitree.errors import BadInput, CoordinationUnavailable, TableExists, TableNotFound, Unavailable
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import decode_block
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import (
    TableOutcome,
    create_table,
    find_table,
    leave_table,
    mark_dropped,
    remove_table,
)
from replitree.protocol.sharded.moves.course import MovesFound, find_moves
from replitree.protocol.sharded.places import all_sharded, hosted_path, is_shard_name, shard_name
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.wire.identity import decode_identity, machine_id, new_incarnation

if TYPE_CHECKING:
    from replitree.client.transport.left_objects import LeftObjects

T = TypeVar("T")

LOOK_S = 0.05
"""Pause between two looks while something is awaited, in seconds."""


@cache
def this_machine() -> str:
    """Return the identity of this kernel and process namespace: who shares it shares files and process ids."""
    return machine_id()


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica of a table, as coordination knows it.

    Attributes
    ----------
    name
        The replica's name.
    address
        ``host:port`` of its server; empty when it has never been active.
    machine
        Identity of the kernel and process namespace it runs under.
    active
        Whether it has a session.  A replica that was killed a moment ago still has.
    pid
        Process id on its machine; 0 when it has never been active.
    """

    name: str
    address: str = ""
    machine: str = ""
    active: bool = False
    pid: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, so that its files may be opened directly."""
        return self.machine == this_machine()


class Session:
    """A coordination session that is opened late and renewed when it ends.  Any thread may use it.

    Parameters
    ----------
    open_session
        Opens one.
    """

    def __init__(self, open_session: Callable[[], Coordination]) -> None:
        self._open = open_session
        self._lock = threading.Lock()
        self._coordination: Coordination | None = None
        self._lost = threading.Event()

    def coordination(self) -> Coordination:
        """Return the session, opened or renewed if need be.

        Raises
        ------
        CoordinationUnavailable
            No server answers.
        """
        with self._lock:
            if self._coordination is None:
                self._coordination = self._open()
                self._coordination.add_listener(
                    lambda event: self._lost.set() if isinstance(event, SessionLost) else None
                )
            elif self._lost.is_set():
                self._coordination.reconnect()
                self._lost.clear()
            return self._coordination

    def run(self, procedure: fx.Procedure[T]) -> T:
        """Run a procedure that asks for nothing but coordination, and return its value."""
        return run(procedure, self.perform)

    def perform(self, effect: fx.Effect) -> Any:
        """Perform one effect; a read is repeated once when the session turns out to have ended."""
        coordination = self.coordination()
        try:
            return coordination.perform(cast("Any", effect))
        except CoordinationUnavailable:
            if not self._lost.is_set():
                raise
            return self.coordination().perform(cast("Any", effect))

    def close(self) -> None:
        """End the session, if there is one."""
        with self._lock:
            if self._coordination is not None:
                self._coordination.close()
                self._coordination = None


class Catalog:
    """The tables below one root.

    Parameters
    ----------
    session
        Where to read.
    root
        Path in coordination below which everything of this cluster lies.
    """

    def __init__(self, session: Session, root: str) -> None:
        self._session = session
        self._root = root

    def run(self, procedure: fx.Procedure[T]) -> T:
        """Run a procedure that asks for nothing but coordination, and return its value."""
        return self._session.run(procedure)

    def perform(self, effect: fx.Effect) -> Any:
        """Perform one effect on coordination."""
        return self._session.perform(effect)

    def coordination(self) -> Coordination:
        """Return the session, opened or renewed if need be."""
        return self._session.coordination()

    def now_ms(self, parent: str | None = None) -> int:
        """Ask for coordination's own time: that of a node which is made just now.

        Parameters
        ----------
        parent
            The node below which it is made; by default the root of the cluster.

        Raises
        ------
        Unavailable
            The node could not be made, or was not there any more.
        """
        # The node is ephemeral: if this process dies before the delete below, the node goes with its session.
        made = self._session.perform(
            fx.Commit(fx.Create(f"{parent or self._root}/now-", ephemeral=True, sequential=True))
        )
        if not isinstance(made, fx.Applied):
            raise Unavailable("coordination did not say what time it is; try again")
        node = self._session.perform(fx.Get(made.created[0]))
        self._session.perform(fx.Commit(fx.Delete(made.created[0], fx.ANY_VERSION)))
        if node is None:
            raise Unavailable("the session with coordination ended meanwhile; try again")
        return int(node.changed_ms)

    def place(self, name: str) -> TablePlace:
        """Look where the nodes of a table, and those of its replicas, are; the name is checked."""
        return self._session.run(find_table(hosted_path(self._root, name)))

    def _own_nodes(self, name: str) -> TablePlace:
        """Return where a table's own nodes are, whether it exists or not; those of its replicas are not found by it."""
        return TablePlace(hosted_path(self._root, name))

    @property
    def root(self) -> str:
        """Path in coordination below which everything of this cluster lies."""
        return self._root

    def all_names(self) -> tuple[str, ...]:
        """Return the names of all tables with a log: also of those that are being dropped, and of shards."""
        parent = layout.tables(self._root)
        self._session.perform(fx.Sync(parent))
        names: tuple[str, ...] = self._session.perform(fx.Children(parent)) or ()
        # A sharded table has a node here, too, which only keeps its name.
        sharded = set(self._sharded_names()) if names else set()
        return tuple(name for name in names if name not in sharded)

    def hosted_names(self) -> tuple[str, ...]:
        """Return the names of all tables with a log, shards too, those that are being dropped left out."""
        names = self.all_names()
        if not names:
            return ()
        marks = self._session.perform(fx.GetMany(tuple(layout.dropped(self._own_nodes(name)) for name in names)))
        return tuple(name for name, mark in zip(names, marks.nodes, strict=True) if mark is None)

    def names(self) -> tuple[str, ...]:
        """Return the names of all tables, those that are being dropped left out; a sharded table is one."""
        names = tuple(name for name in self.hosted_names() if not is_shard_name(name))
        return tuple(sorted((*names, *(name for name, is_there in self._sharded() if is_there))))

    def unfinished(self) -> tuple[str, ...]:
        """Return the names of the sharded tables whose creation or drop was cut off, or is under way."""
        return tuple(name for name, is_there in self._sharded() if not is_there)

    def restoring(self) -> dict[str, tuple[str, ...]]:
        """Return each sharded table that is being restored, with the names of its shards that are not restored yet."""
        from replitree.protocol.rescue.restore_sharded import Restoring, find_restoring, restored_shards

        found: dict[str, tuple[str, ...]] = {}
        for name in self.unfinished():
            restoring = self.run(find_restoring(self._root, name))
            if isinstance(restoring, Restoring):
                done = self.run(restored_shards(restoring))
                found[name] = tuple(shard_name(name, shard) for shard in restoring.map.shards if shard not in done)
        return found

    def moving(self) -> tuple[tuple[str, MovesFound], ...]:
        """Return each sharded table in which buckets move, by name, and what there is of its moves."""
        each = (
            (name, self.run(find_moves(layout.sharded(self._root, name)))) for name in sorted(self._sharded_names())
        )
        return tuple((name, found) for name, found in each if found is not None and found.map.moves)

    def _sharded(self) -> tuple[tuple[str, bool], ...]:
        """Return (name, whether it is there as a whole) of each sharded table."""
        names = self._sharded_names()
        if not names:
            return ()
        maps = fx.GetMany(tuple(layout.shard_map(layout.sharded(self._root, name)) for name in names))
        return tuple(
            (name, node is not None) for name, node in zip(names, self._session.perform(maps).nodes, strict=True)
        )

    def _sharded_names(self) -> tuple[str, ...]:
        """Return the names of all sharded tables, also of those that are half made or half dropped."""
        return self._session.perform(fx.Children(all_sharded(self._root))) or ()

    def definition(self, name: str) -> TableDefinition:
        """Return a table's definition.

        Raises
        ------
        TableNotFound
            There is no such table, or it is being dropped.
        """
        place = self._own_nodes(name)
        self._session.perform(fx.Sync(place.path))
        many = self._session.perform(fx.GetMany((layout.metadata(place), layout.columns(place), layout.dropped(place))))
        metadata, columns, dropped = many.nodes
        if metadata is None and not is_shard_name(name) and name in self._sharded_names():
            raise TableNotFound(
                f"table {name!r} is sharded, and this can't be done with all of its shards at once: docs/sharded-tables.md says"
                f" what can. A command that works on replicas takes a shard, as in {name}~0: see `replitree table show {name}`"
            )
        if metadata is None or columns is None or dropped is not None:
            state = "is being dropped" if dropped is not None else "does not exist"
            raise TableNotFound(
                f"table {name!r} {state}; create it, or see `replitree table list` for those that exist"
            )
        return decode_definition(metadata.value, columns.value)

    def of_table(self, name: str, found: tuple[T, ...]) -> tuple[T, ...]:
        """Return what was found below a table; nothing was: only if there is such a table.

        Raises
        ------
        TableNotFound
            There is no such table, or it is being dropped.
        """
        if not found:
            self.definition(name)
        return found

    def replicas(self, name: str) -> tuple[ReplicaInfo, ...]:
        """Return the replicas that have joined a table, by name."""
        place = self.place(name)
        names: tuple[str, ...] = self._session.perform(fx.Children(layout.replicas(place))) or ()
        found = [Replica(place, replica) for replica in names]
        if not found:
            return ()
        paths = (*map(layout.host, found), *map(layout.is_active, found))
        nodes = self._session.perform(fx.GetMany(paths)).nodes
        infos: list[ReplicaInfo] = []
        for replica, host, active in zip(found, nodes[: len(found)], nodes[len(found) :], strict=True):
            if host is not None:
                is_active, at = active is not None, decode_identity(host.value)
                # A replica that has never been active has no address.
                none = ReplicaInfo(replica.name, active=is_active)
                infos.append(
                    none if at is None else ReplicaInfo(replica.name, at.address, at.machine, is_active, at.pid)
                )
        return tuple(infos)

    def log_state(self, name: str) -> LogState:
        """Return where a table's log begins and ends, and where each replica stands, as coordination has it.

        Raises
        ------
        TableNotFound
            There is no such table.
        """
        found = self._session.run(read_log_state(self.place(name)))
        if found is None:
            raise TableNotFound(f"table {name!r} does not exist; see `replitree table list` for those that do")
        return found

    def log_tail(self, name: str) -> int:
        """Return the index that the table's next log entry will have."""
        return self.log_state(name).tail

    def find_block(self, name: str, block: fx.BlockId) -> tuple[bool, int | None]:
        """Look up the deduplication id of an insert: whether the insert took place, and its index if it is still known.

        "No" is certain only when no process can still be inserting it.
        """
        # The whole procedure of an insert comes with it, and this question is only asked in doubt.
        from replitree.protocol.insert.insert import find_insert

        place = self._own_nodes(name)
        path = layout.block(place, block)
        self._session.perform(fx.Sync(path))
        node = self._session.perform(fx.Get(path))
        if node is None:
            return False, None
        found = self._session.run(find_insert(place, decode_block(node.value, path)))
        return True, None if found is None else found.index

    def servers(self) -> tuple[tuple[str, str], ...]:
        """Return the name and the address of every server process that has a session, also of one without a table."""
        nodes: tuple[str, ...] = self._session.perform(fx.Children(layout.servers(self._root))) or ()
        found = [
            (node, self._session.perform(fx.Get(f"{layout.servers(self._root)}/{node}"))) for node in sorted(nodes)
        ]
        said = ((layout.server_name(node), decode_identity(value.value)) for node, value in found if value is not None)
        return tuple((name, identity.address) for name, identity in said if identity is not None)

    def stores(self) -> dict[str, str]:
        """Return the URLs of the object stores that have a name, by name."""
        names: tuple[str, ...] = self._session.perform(fx.Children(layout.stores(self._root))) or ()
        nodes = ((name, self._session.perform(fx.Get(layout.store(self._root, name)))) for name in names)
        return {name: node.value.decode() for name, node in nodes if node is not None}

    # --- creating and dropping ----------------------------------------------------------------------------------------

    def create(self, definition: TableDefinition) -> None:
        """Create a table.

        Raises
        ------
        TableExists
            There is one of this name, or its drop has not been finished.
        CoordinationUnavailable
            Whether it was created is not known; create it again.
        """
        from replitree.protocol.shares.table_store import sharing_nodes

        place = TablePlace(layout.table_path(self._root, definition.name), incarnation=new_incarnation())
        coordination = self._session.coordination()
        make_root(coordination, layout.tables(self._root))
        more = sharing_nodes(place) if definition.is_shared else ()
        outcome = self._session.run(
            create_table(place, definition.encode_metadata(), definition.encode_columns(), more)
        )
        if outcome is TableOutcome.DONE:
            return
        if outcome is TableOutcome.UNSETTLED:
            raise CoordinationUnavailable(
                f"the answer to the creation of {definition.name!r} was lost; create it again"
            )
        if self._is_dropped(place):
            raise TableExists(
                f"table {definition.name!r} is being dropped: drop it again to finish, or choose another name"
            )
        raise TableExists(f"table {definition.name!r} exists already: choose another name, or drop that one first")

    def drop(self, name: str, timeout_s: float) -> None:
        """Drop a table and everything in it: mark it, let its replicas leave, remove its nodes.

        Raises
        ------
        TableNotFound
            There is no such table.
        BadInput
            It has materialised views, or is the target of one.
        Unavailable
            Replicas have not left in time; drop it again.
        """
        deadline = time.monotonic() + timeout_s
        place = self.place(name)
        from replitree.protocol.propose.views import why_kept

        # A view that is created in this moment finds its table gone, and is dropped then.
        kept = "" if self._is_dropped(place) else self._session.run(why_kept(place))
        if kept:
            raise BadInput(kept)
        marked = self._session.run(mark_dropped(place))
        if marked is TableOutcome.MISSING:
            raise TableNotFound(f"table {name!r} does not exist; see `replitree table list` for those that do")
        if marked is TableOutcome.UNSETTLED:
            raise CoordinationUnavailable(f"whether the drop of {name!r} has begun is not known; drop it again")
        self.finish_drop(place, deadline, f"replitree table drop {name}")

    def finish_drop(self, place: TablePlace, deadline: float, again: str) -> None:
        """Let the replicas of a table whose drop has begun leave, and remove its nodes; nothing happens if they are gone.

        Parameters
        ----------
        place
            The table.
        deadline
            When to give up (monotonic seconds).
        again
            The command that goes on with it.

        Raises
        ------
        Unavailable
            Replicas have not left in time.
        """
        name = place.name
        if not self._is_dropped(place):
            return
        while True:
            present = self.replicas(name)
            for replica in present:
                # A replica without a session can't leave by itself; when it starts again it finds the table gone.
                if not replica.active:
                    self._session.run(leave_table(Replica(place, replica.name), shared=self.is_shared(place)))
            if not present:
                from replitree.client.transport.left_objects import note_left

                note_left(self._session.coordination(), self._root, place)
            self._session.run(remove_table(place))
            # A table of this name without the mark is another one, created since.
            if not self._is_dropped(place):
                return
            if time.monotonic() > deadline:
                names = ", ".join(replica.name for replica in present) or "none"
                raise Unavailable(
                    f"table {name!r} is being dropped, but replicas have not left it ({names}); `{again}` goes on with it"
                )
            time.sleep(LOOK_S)

    def left_objects(self, *, with_repair: bool, grace_s: float) -> tuple[LeftObjects, ...]:
        """Look what dropped tables have left in object stores, and delete it; see `replitree.client.transport.left_objects`."""
        from replitree.client.transport.left_objects import delete_left

        return delete_left(self, self._root, with_repair=with_repair, grace_s=grace_s)

    def is_shared(self, place: TablePlace) -> bool:
        """Whether the parts of a table, also of one that is being dropped, lie in an object store."""
        return bool(self._session.perform(fx.Exists(layout.sharing(place))))

    def _is_dropped(self, place: TablePlace) -> bool:
        return bool(self._session.perform(fx.Exists(layout.dropped(place))))
