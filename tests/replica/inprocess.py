"""A whole cluster in one process: real replicas, real HTTP, real disks, and coordination in memory or by a real ZooKeeper."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

import pyarrow as pa

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import Coordination, make_root
from replitree.procedures import run
from replitree.protocol.core import layout
from replitree.protocol.core.effects import (
    Applied,
    Children,
    Commit,
    CoordinationEffect,
    Delete,
    Get,
    LogIndex,
    Procedure,
    Set,
    Version,
)
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.membership.table import create_table
from replitree.protocol.shares.table_store import sharing_nodes
from replitree.protocol.state.read import end_of_log
from replitree.replica.http.http_server import HttpServer
from replitree.replica.kit.config import Address, ServerConfig, server_contexts
from replitree.replica.perform.availability import State
from replitree.replica.server import Server
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table
from replitree.tls import NO_FILES, TlsFiles, split_address
from tests import waiting
from tests.last_turns import last_turns

T = TypeVar("T")
wait_for = waiting.wait_for
ROOT = "/replitree"
TOKEN = "0123456789abcdef0123456789abcdef"
NOWHERE = "zk://nowhere:1/replitree"
"""The URL of a cluster whose replicas and coordination are in this process."""

LEASE_S = 60.0
SCHEMA = "k bigint not null, v double, s string"


def rows(first: int, count: int = 10) -> pa.Table:
    """Rows of `SCHEMA` with the keys from `first` on."""
    keys = range(first, first + count)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "v": pa.array([key / 3 for key in keys], pa.float64()),
            "s": pa.array([str(key) for key in keys], pa.string()),
        }
    )


def as_stream(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


class Node:
    """One replica: its server, and its HTTP server on a loop of its own thread."""

    def __init__(
        self, name: str, folder: Path, connect: SharedTree | Callable[[], Coordination], **settings: Any
    ) -> None:
        self.name = name
        self._connect = connect if callable(connect) else lambda: MemoryCoordination(connect)
        self.coordination: Any = self._connect()
        token_file = folder / "token"
        token_file.write_text(TOKEN)
        token_file.chmod(0o600)
        self.config = ServerConfig(
            name=name,
            zookeeper="zk://unused",
            data=str(folder / name),
            token_file=str(token_file),
            insert_timeout_s=10.0,
            **settings,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server: Server | None = None
        self.address = self.on_loop(self._listen())

    def on_loop(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> str:
        is_secure = bool(self.config.tls_certificate)
        self.tls = server_contexts(
            self.config.tls_files,
            wants_certificates=self.config.tls_clients == "with_certificate",
            takes_clear_text=self.config.tls_plain_replicas,
        )
        self.http = HttpServer(self, TOKEN, self.config, self.tls if is_secure else None)
        self.fast_path = self.http.fast_path
        return str(Address("127.0.0.1", await self.http.listen("127.0.0.1", 0), is_secure))

    def start(self) -> None:
        is_secure, place = split_address(self.address)
        host, _, port = place.partition(":")
        address = Address(host, int(port), is_secure)
        self.server = Server(self.config, TOKEN, address, self.coordination, ROOT, tls=self.tls)
        self.server.start()

    def restart(self) -> None:
        """Stop the server and start another one in its place, with a session of its own."""
        assert self.server is not None
        self.server.stop(5.0)
        self.coordination = self._connect()
        self.start()

    def stop(self) -> None:
        """Stop the replica; its HTTP server still answers."""
        if self.server is not None:
            self.server.stop(5.0)

    def stop_listening(self) -> None:
        """Stop the HTTP server, when no other replica asks it any more."""
        self.on_loop(self.http.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.run_until_complete(last_turns())
        self._loop.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)

    def table(self, name: str = "t") -> TableReplica:
        assert self.server is not None
        return self.server.table(name)

    def end_of_log(self) -> LogIndex | None:
        """The index that the next entry will have."""
        table = self.table()
        return table.performer.look_up(end_of_log(table.replica.table))

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        token: str = TOKEN,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Send one request; return the status and the decoded JSON (or the raw body)."""
        connection = http.client.HTTPConnection(self.address, timeout=20)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {token}", **(headers or {})})
            answer = connection.getresponse()
            raw = answer.read()
            is_json = answer.getheader("Content-Type", "").startswith("application/json")
            return answer.status, json.loads(raw) if is_json else raw
        finally:
            connection.close()

    def insert(self, data: pa.Table, token: str | None = None, table: str = "t") -> tuple[int, Any]:
        query = f"?{urlencode({'token': token})}" if token else ""
        return self.request("POST", f"/v1/tables/{table}/insert{query}", as_stream(data))

    def post(self, what: str, body: dict[str, Any] | None = None, /, table: str = "t", **query: object) -> Any:
        """Send a command that must be taken, if not while the replica is just activating; return its answer."""
        path = f"/v1/tables/{table}/{what}" + (f"?{urlencode(query)}" if query else "")

        def taken() -> Any:
            status, answer = self.request("POST", path, json.dumps(body or {}).encode())
            assert status == 200 or answer["error"] == "ReadOnly", answer
            return [answer] if status == 200 else None

        (answer,) = waiting.wait_for(taken, f"{what} is taken")
        return answer

    def get(self, what: str, table: str = "t", **query: object) -> Any:
        """Ask for something that must be there."""
        path = f"/v1/tables/{table}/{what}" + (f"?{urlencode(query)}" if query else "")
        status, answer = self.request("GET", path)
        assert status == 200, answer
        return answer

    def contents(self, table: str = "t") -> dict[str, str]:
        """The visible parts with their content hashes."""
        replica = self.table(table)
        return {part: replica.store.manifest(part).content for part in replica.progress.visible()[1]}

    def keys(self, table: str = "t") -> list[int]:
        """The keys of all visible rows, sorted."""
        import pyarrow.parquet as pq

        replica, found = self.table(table), list[int]()
        with _leased_parts(replica) as parts:
            replica.store.bring(parts)
            for part in parts:
                for file in replica.store.manifest(part).files:
                    found += pq.read_table(replica.store.file_path(part, file.name), columns=["k"])["k"].to_pylist()
        return sorted(found)


@contextmanager
def _leased_parts(replica: TableReplica) -> Iterator[Sequence[str]]:
    """Give the visible parts, which stay where they are meanwhile."""
    while True:
        _, parts = replica.progress.visible()
        lease = replica.old_parts.lease(parts, LEASE_S)
        try:
            if set(parts) <= set(replica.progress.visible()[1]):
                yield parts
                return
        finally:
            replica.old_parts.release(lease)


class InProcessCluster:
    """Replicas r1 … rN over one tree in memory, or over what `connect` opens sessions with."""

    def __init__(
        self, folder: Path, replicas: int = 2, connect: Callable[[], Coordination] | None = None, **settings: Any
    ) -> None:
        self.folder = folder
        self.shared = SharedTree()
        self._open: SharedTree | Callable[[], Coordination] = connect or self.shared
        self._settings = settings
        self.admin: Any = connect() if connect else MemoryCoordination(self.shared)
        make_root(self.admin, layout.tables(ROOT))
        self.nodes: list[Node] = []
        for number in range(1, replicas + 1):
            self.add(f"r{number}")

    def add(self, name: str, **settings: Any) -> Node:
        """Start another replica."""
        node = Node(name, self.folder, self._open, **{**self._settings, **settings})
        self.nodes.append(node)
        node.start()
        return node

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure that touches only coordination."""
        return run(procedure, lambda effect: self.admin.perform(cast("CoordinationEffect", effect)))

    def create_table(
        self,
        name: str = "t",
        schema: str = SCHEMA,
        settings: TableSettings | None = None,
        incarnation: str = "",
        **keys: Any,
    ) -> TableDefinition:
        """Create a table and wait until all replicas are active; without an incarnation it is one of an earlier version."""
        definition = define_table(name, schema, settings=settings or TableSettings(), **{"order_by": ["k"], **keys})
        path = TablePlace(layout.table_path(ROOT, name), incarnation=incarnation)
        more = sharing_nodes(path) if definition.is_shared else ()
        self.run(create_table(path, definition.encode_metadata(), definition.encode_columns(), more))
        for node in self.nodes:
            wait_for(lambda node=node: self.is_active(node, name), f"{node.name} active")  # type: ignore[misc]
        return definition

    def is_active(self, node: Node, table: str = "t") -> bool:
        server = node.server
        return server is not None and table in server._tables and server.table(table).availability.state is State.ACTIVE  # noqa: SLF001

    def connect(self, tls: TlsFiles = NO_FILES) -> Connection:
        """Return a new connection of a client, which the caller closes."""
        return Connection(Access(NOWHERE, TOKEN, tls=tls), lambda: MemoryCoordination(self.admin.shared))

    def clean(self, first: int, table: str = "t") -> None:
        """Let coordination forget the entries below an index, as the cleaner does once every replica has pulled them."""
        self.wait_alike(table)
        place = self.nodes[0].table(table).replica.table
        entries = [layout.log_entry(place, LogIndex(index)) for index in range(first)]
        there = [path for path in entries if self.admin.perform(Get(path)) is not None]
        start = Set(
            layout.log(place), encode_log(place, LogIndex(first)), self.admin.perform(Get(layout.log(place))).version
        )
        assert isinstance(self.admin.perform(Commit(start, *(Delete(path, Version(0)) for path in there))), Applied)

    def wait_equal(self, keys: list[int], table: str = "t") -> None:
        """Wait until every replica shows exactly these keys."""
        for node in self.nodes:
            wait_for(lambda node=node: node.keys(table) == keys, f"{node.name} has all rows")  # type: ignore[misc]

    def wait_alike(self, table: str = "t") -> dict[str, str]:
        """Wait until nothing is left to do and all replicas have the same parts with the same content; return these."""

        def alike() -> bool:
            log = self.admin.perform(Children(layout.log(TablePlace(f"{layout.tables(ROOT)}/{table}"))))
            tail = int(log[-1].removeprefix("log-")) + 1 if log else 0
            tables = [node.table(table).progress for node in self.nodes]
            done = all(progress.queue_length() == 0 for progress in tables)
            if not done or log is None or {progress.index for progress in tables} != {tail}:
                return False
            return len({frozenset(node.contents(table).items()) for node in self.nodes}) == 1

        wait_for(alike, "all replicas are alike", 60.0)
        return self.nodes[0].contents(table)

    def close(self) -> None:
        for node in self.nodes:
            node.stop()
        for node in self.nodes:
            node.stop_listening()
        self.admin.close()
