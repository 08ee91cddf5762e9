"""The server of one replica: one coordination session, an HTTP server, and a table replica for every table that it hosts.

Life: check the configuration, lock the data folder, listen, connect, join the tables, then serve.  What can wait (Arrow, the
general HTTP server) is loaded when the tables are active, or when a request needs it: a replica that was away is equal again
sooner.  Tables that appear are joined, tables that are dropped are left.  When the session ends a new one begins and every
table activates again.  While nothing is heard of coordination for longer than a session lives, every table is read-only,
whatever the connection looks like.  SIGTERM drains: no new inserts, those that wait are finished, the session is closed;
without coordination nothing is waited for.

`replitree.replica.server_process` is the process around it.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.coordination.gathering import gathered_commits
from replitree.coordination.port import Connected, Coordination, Event, SessionLost, Suspended, Watched, make_root
from replitree.errors import (
    CoordinationUnavailable,
    ReplicaBusy,
    ReplicaUnavailable,
    ReplitreeError,
    TableNotFound,
    UnsupportedFormat,
)
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Exists, Get, GetMany
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.sharded.places import hosted_path
from replitree.replica.http.gate import DEGRADED
from replitree.replica.kit.config import Address, ServerConfig
from replitree.replica.kit.evidence import Evidence
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics, ServerFacts, ServerGauges
from replitree.replica.kit.named_stores import publish_stores
from replitree.replica.kit.placements import placed_here
from replitree.replica.kit.presence import announce
from replitree.replica.kit.usable_store import check_usable
from replitree.replica.kit.vitals import vitals
from replitree.replica.perform.availability import State
from replitree.replica.perform.context import ServerContext
from replitree.replica.perform.exchange import IN_CLEAR, Peer
from replitree.replica.shard_threads import ShardThreads
from replitree.replica.table.silence import LISTEN_S, Silence
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.schema.definition import TableDefinition, check_decoded, decode_definition, decode_unchecked
from replitree.tls import Contexts
from replitree.wire.identity import decode_identity, own_identity
from replitree.wire.version import installed_version

if TYPE_CHECKING:
    from replitree.coordination.trace import CommitTrace

DRAIN_S = 20.0
RETRY_S = 1.0
STOP_S = 1.0
"""For how long a server that stops waits for a connection to coordination, in seconds; then its drain can finish nothing."""

SETTLE_S_MAX = 5.0
"""For how long tables that start or recover have the process for themselves, in seconds; then the rest is loaded anyway."""

LATER = (
    "replitree.storage.parts.conform",
    "replitree.storage.parts.encode",
    "replitree.storage.rewrite.merge",
    "replitree.storage.rewrite.mutate",
    "replitree.storage.sql.mutation",
)
"""Modules that inserts, merges and mutations need, and the start of a replica does not; they need Arrow."""


class Server:
    """The server of one replica.

    Parameters
    ----------
    config, token
        Its configuration, and the cluster's shared secret.
    address
        Where the others reach it.
    coordination, root
        Its session, and the node below which the tables lie.
    trace
        Where answers to inserts are written down, if anywhere.
    config_file
        Where the configuration stands; None: the server begins no processes that carry moves of buckets on.
    tls
        How other replicas are spoken to.
    """

    def __init__(
        self,
        config: ServerConfig,
        token: str,
        address: Address,
        coordination: Coordination,
        root: str,
        trace: CommitTrace | None = None,
        config_file: Path | None = None,
        tls: Contexts = IN_CLEAR,
    ) -> None:
        self._config = config
        self._tls = tls
        self._trace = trace
        self._token = token
        self._root = root
        self._tables: dict[str, TableReplica] = {}
        self._folders: set[str] = set()
        self._lock = threading.Lock()
        self._wake, self._lost = threading.Event(), threading.Event()
        self._started = self._stopping = False
        self._peers: dict[Replica, Peer] = {}
        self.identity = own_identity(str(address))
        self.metrics = Metrics()
        self.metrics.registry.register(ServerGauges(self._facts, tuple(state.value for state in State)))
        self.log = Log(replica=config.name)
        self.failure: ReplitreeError | None = None
        self.on_failure: Callable[[], object] = lambda: None
        self._coordination = coordination
        # A trace has every commit by itself: its readers compare each with one step of the protocol.
        commit = gathered_commits(coordination).ask if trace is None else coordination.perform
        parts = config, self.identity, lambda: coordination, self._peer, self.metrics, self.log, self.table, commit
        self._context = ServerContext(*parts)
        self._has_gone_back = False
        self._silence = Silence(coordination, lambda: list(self._tables.values()), self.log)
        self._watcher = threading.Thread(target=self._run, name="tables", daemon=True)
        perform = coordination.perform
        self._shards = ShardThreads(config, root, perform, self._tables, self.metrics, self.log, config_file)

    # --- what the HTTP server asks ---

    def table(self, name: str) -> TableReplica:
        """Return a hosted table.

        Raises
        ------
        TableNotFound
            It does not exist, or this server does not host it (yet).
        ReplicaUnavailable
            The server has only begun to look which tables there are.
        """
        replica = self._tables.get(name)
        if replica is None and not self._started:
            raise ReplicaUnavailable(f"replica {self._config.name} is starting; try again, or another replica")
        if replica is None:
            raise TableNotFound(
                f"replica {self._config.name} has no table {name!r}; `replitree table list` shows the tables"
            )
        return replica

    def health(self) -> dict[str, object]:
        """Return ``ok`` when every table is active and coordination is heard, else the first other state; or ``degraded``.

        ``degraded``: all tables are active, and some lack parts.
        """
        states = {name: table.availability.state.value for name, table in sorted(self._tables.items())}
        lacking = {name: len(table.lacking) for name, table in sorted(self._tables.items()) if table.lacking}
        bad = [state for state in states.values() if state != State.ACTIVE.value]
        if self._silence.reason:
            bad = [*bad, State.READ_ONLY.value]
        if not self._started:
            bad = [State.STARTING.value]
        state = bad[0] if bad else DEGRADED if lacking else "ok"
        answer: dict[str, object] = {"state": state, "replica": self._config.name, "tables": states}
        answer["lacking_parts"] = lacking
        return {**answer, "reason": self._silence.reason} if self._silence.reason else answer

    def waiting(self) -> dict[str, str]:
        """Return why tables do not serve reads yet, by table; empty: all of them do, and the start of the server is over.

        A table that is read-only serves reads when it knows its place in the log.
        """
        if not self._started:
            return {"*": "the server looks which tables there are"}
        reads = (State.ACTIVE, State.READ_ONLY)
        return {
            name: f"{table.availability.state.value}: {table.availability.reason}"
            for name, table in sorted(self._tables.items())
            if table.availability.state not in reads or table.progress.place is None
        }

    def _facts(self) -> ServerFacts:
        """Return what the metrics show of the server as a whole."""
        disk: tuple[int, int, int] | None = None
        # The states of the tables report a failing disk.
        with suppress(OSError):
            found = shutil.disk_usage(self._config.data)
            disk = found.free, found.total, self._config.disk_reserve_bytes
        states = {name: table.availability.state.value for name, table in sorted(self._tables.items())}
        silent_s = self._coordination.silent_s()
        is_ready = not self.waiting()
        keep = self._config.max_replicated_logs_to_keep
        name, version = self._config.name, installed_version()
        return ServerFacts(name, version, time.time(), is_ready, silent_s, keep, disk, states)

    def status(self) -> dict[str, object]:
        """Return the status of the server and of every table it hosts."""
        return {
            "replica": self._config.name,
            "address": self.identity.address,
            "pid": os.getpid(),
            "test_cluster": self._config.test_cluster,
            "coordination_requests": dict(self._coordination.requests),
            "coordination_silent_s": round(self._coordination.silent_s(), 1),
            "tables": [table.status() for _, table in sorted(self._tables.items())],
            "moves": self._shards.moves.status(),
            **vitals(self._config, frozenset(self._folders)),
        }

    def check_store(self, url: str, table: str) -> dict[str, object]:
        """Try an object store on which a table is to be created; a table that this server would not host needs no trial.

        Raises
        ------
        BadInput, StoreError, NotAuthorized
            The store can't be used from here.
        """
        hosts = self._config.hosts(table)
        if hosts:
            check_usable(url)
        return {"replica": self._config.name, "hosts": hosts}

    # --- life ---

    def start(self) -> None:
        """Connect, join the tables that exist, and begin to watch for others.

        Raises
        ------
        CoordinationUnavailable
            ZooKeeper does not answer.
        """
        self._coordination.add_listener(self._on_event)
        make_root(self._coordination, layout.tables(self._root))
        publish_stores(self._coordination, self._root, self._config.stores)
        self._look_for_tables()
        self._started = True
        self._watcher.start()
        self._silence.start()
        self._shards.start()

    def load_the_rest(self) -> None:
        """Load what a start does not wait for, when the tables are active, and check what needs it."""
        tables = list(self._tables.values())
        deadline = time.monotonic() + SETTLE_S_MAX
        for table in tables:
            table.availability.wait_settled(max(0.0, deadline - time.monotonic()))
        try:
            for table in tables:
                check_decoded(table.definition)
        except UnsupportedFormat as error:
            self._fail(error)
        for name in LATER:
            import_module(name)

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Drain every table and close the session; without a connection to coordination there is nothing to wait for."""
        self._stopping = True
        self._shards.stop()
        self._silence.stop()
        self._wake.set()
        threads = [threading.Thread(target=table.stop, args=(drain_s,)) for table in self._tables.values()]
        for thread in threads:
            thread.start()
        connected_at = time.monotonic()
        for thread in threads:
            while thread.is_alive():
                thread.join(LISTEN_S)
                now = time.monotonic()
                is_heard = self._coordination.silent_s() < self._coordination.session_timeout_s / 2
                connected_at = now if is_heard and self._coordination.is_connected() else connected_at
                if now - connected_at > STOP_S:
                    # Threads that wait for an answer get an error at once.
                    self._coordination.close()
        self._coordination.close()

    def _on_event(self, event: Event) -> None:
        match event:
            case Watched(path):
                prefix = layout.tables(self._root) + "/"
                name, _, rest = path.removeprefix(prefix).partition("/")
                watching = self._tables.get(name) if path.startswith(prefix) else None
                if watching is not None and rest.startswith(("log/", "log.")):
                    watching.context.pull_signal.wake()
                elif watching is not None and rest.startswith("leader_election"):
                    watching.leader.wake()
                elif watching is not None and rest.startswith("replicas"):
                    watching.quorums.replicas.forget()
                elif watching is not None and rest.startswith("zero_copy_s3/merged"):
                    watching.progress.tell(rest.rpartition("/")[2])
                else:
                    self._wake.set()
            case Connected():
                self._wake.set()
                for table in list(self._tables.values()):
                    table.quorums.replicas.forget()
                    table.context.pull_signal.wake()
                    table.progress.tell()
            case SessionLost():
                self._lost.set()
                self._wake.set()
            case Suspended():
                for table in list(self._tables.values()):
                    table.quorums.replicas.forget()
                self.log.warning("coordination suspended")

    def _run(self) -> None:
        """Keep the session, and the set of hosted tables, up to date."""
        while not self._stopping:
            self._wake.wait()
            self._wake.clear()
            try:
                if self._lost.is_set():
                    self._new_session()
                if not self._stopping:
                    self._look_for_tables()
            except (ReplitreeError, OSError) as error:
                self.log.warning("coordination", problem=str(error))
                threading.Timer(RETRY_S, self._wake.set).start()
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and look again
                self.log.defect("looking for tables failed")
                threading.Timer(RETRY_S, self._wake.set).start()

    def _new_session(self) -> None:
        for table in list(self._tables.values()):
            table.availability.trouble(Evidence.SESSION, "the coordination session ended")
        # The mark is cleared before the new session begins, because that session may be lost at once, too.
        self._lost.clear()
        try:
            self._coordination.reconnect()
            # This is asked after a `Sync`, so the member that answers does not lag.
            self._has_gone_back |= self._coordination.has_gone_back()
            # Epochs, pointers and queues in memory are ahead of coordination, and parts on the disks may be, too: log indexes
            # would be used twice.  So nothing happens until an operator has started the servers again.  A table that is gone,
            # or was restored as another one, is left to `_look_for_tables`.
            for table in list(self._tables.values()) if self._has_gone_back else ():
                if self._is_there(table):
                    table.availability.halt(
                        "coordination lacks transactions that this server has seen: its data were put back to an earlier state;"
                        " stop all servers, and start them again when it has the state that it is to keep"
                    )
            self._has_gone_back = False
        except BaseException:
            self._lost.set()
            raise
        self.log.info("new session")
        for table in list(self._tables.values()):
            table.availability.session_began()

    def _look_for_tables(self) -> None:
        make_root(self._coordination, layout.tables(self._root))
        names = self._coordination.perform(Children(layout.tables(self._root), watch=True))
        # The node was deleted meanwhile, so no watch was set.
        if names is None:
            self._wake.set()
            names = ()
        for name, table in list(self._tables.items()):
            if self._coordination.perform(Exists(layout.dropped(table.replica.table), watch=True)):
                self._forget(name)
                self.log.info("table dropped", table=name)
                table.drop(DRAIN_S)
                self.metrics.forget(name)
                self._folders.discard(table.definition.folder_name)
            elif not self._is_there(table):
                # The nodes are gone and no drop was seen: the rows stay on disk for `replitree restore`.
                self._forget(name)
                self.log.error(
                    "table vanished from coordination; its parts are kept", table=name, folder=str(table.store.root)
                )
                table.stop(DRAIN_S)
                self.metrics.forget(name)
                self._folders.discard(table.definition.folder_name)
            elif table.availability.state is State.STOPPED and not self._stopping:
                self._fail(ReplicaBusy(table.availability.why_not_active()))
        new = [name for name in names if name not in self._tables]
        wanted = placed_here(self._coordination, self._root, self._config, new)
        for replica in [replica for name in wanted if (replica := self._join(name)) is not None]:
            if replica.availability.wait_started(self._config.session_timeout_s) is State.STOPPED:
                self._fail(ReplicaBusy(replica.availability.why_not_active()))
        # A server starts even if it can't announce its address now; it tries again later.
        try:
            announce(self._coordination, self._root, self._config.name, self.identity)
        except CoordinationUnavailable as error:
            self.log.warning("coordination", problem=str(error))
            threading.Timer(RETRY_S, self._wake.set).start()

    def _is_there(self, table: TableReplica) -> bool:
        """Whether coordination has this very table, not another one of its name."""
        try:
            found = self._find(table.definition.name)
        except UnsupportedFormat:
            return True
        if found is None:
            return False
        (place, definition), own = found, table.replica.table
        return place.incarnation == own.incarnation and definition.table_id == table.definition.table_id

    def _join(self, name: str) -> TableReplica | None:
        """Begin to host a table, if it is there."""
        if self._coordination.perform(Exists(layout.dropped(self._own_nodes(name)), watch=True)):
            return None
        found = self._find(name)
        if found is None:
            return None
        table, definition = found
        self._folders.add(definition.folder_name)
        replica = TableReplica(definition, Replica(table, self._config.name), self._context)
        replica.on_end = self._wake.set
        if self._trace is not None:
            replica.on_answer = partial(self._trace.told, table.path)
        replica.start()
        with self._lock:
            self._tables[name] = replica
        return replica

    def _own_nodes(self, name: str) -> TablePlace:
        """Return where a table's own nodes are, whichever of the tables that have had this name it is."""
        return TablePlace(hosted_path(self._root, name))

    def _find(self, name: str) -> tuple[TablePlace, TableDefinition] | None:
        """Look which table has this name, and how it is defined; None when there is none."""
        place = self._own_nodes(name)
        many = self._coordination.perform(GetMany((place.path, layout.metadata(place), layout.columns(place))))
        made, metadata, columns = many.nodes
        if metadata is None or columns is None:
            return None
        # A start decodes without the checks, which load modules: see `load_the_rest`.
        decode = decode_definition if self._started else decode_unchecked
        return layout.table_at(place.path, made), decode(metadata.value, columns.value)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._tables.pop(name, None)
        for replica in [
            each for each in list(self._peers) if each.table.name == name
        ]:  # other tables' threads add theirs
            self._peers.pop(replica, None)

    def _fail(self, error: ReplitreeError) -> None:
        if self.failure is None:
            self.failure = error
            self.on_failure()

    def _peer(self, replica: Replica, fresh: bool) -> Peer | None:
        """Find where a replica serves; `fresh` asks coordination again."""
        known = self._peers.get(replica)
        if known is not None and not fresh:
            return known
        node = self._coordination.perform(Get(layout.host(replica)))
        identity = decode_identity(node.value) if node is not None else None
        if identity is None:
            return None
        peer = Peer(identity.address, self._token, replica.table.name, self._tls)
        self._peers[replica] = peer
        return peer
