"""`replitree up`: a whole cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import override

from replitree.cli.cluster.page import PageOnDemand
from replitree.cli.cluster.restarts import Restarts
from replitree.cli.options import DEFAULT_FOLDER
from replitree.cli.output import Output, console, counted, plain
from replitree.errors import ReplitreeError

if TYPE_CHECKING:
    from replitree.client.cluster import LocalCluster

KEPT_S_MAX = 30.0
"""How long replicas that have just begun to serve have for saying what lies in their folders, in seconds."""

KEPT_LOOK_S = 0.2
"""Pause before those that have not said it are asked again, in seconds."""

LOG_FILES_MAX = 100
"""Log files of a replica that are looked through, at most."""

LOOK_S = 1.0
"""How often the state of the replicas is looked at, in seconds."""


@dataclass(frozen=True, slots=True)
class ReplicaLine:
    """What is shown of one replica."""

    name: str
    state: str
    address: str
    pid: int
    tables: int
    rows: int

    @override
    def __str__(self) -> str:
        from replitree.tls import split_address

        is_secure, place = split_address(self.address)
        where = f"{'https' if is_secure else 'http'}://{place}" if place else "not serving"
        what = f"{counted(self.tables, 'table')}  {counted(self.rows, 'row')}"
        return f"{self.name}  {self.state:<9}  {where}  process {self.pid or '-'}  {what}"


def up(
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", envvar="REPLITREE_DIR", help="Everything lies here, and stays.")
    ] = DEFAULT_FOLDER,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", metavar="N", help="How many replicas; they are named r1, r2, … With --shards: of each shard."
        ),
    ] = 3,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            metavar="N",
            min=1,
            help="Start N times --replicas replicas; sharded tables get N shards, each with replicas of its own.",
            show_default="no sharding",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper", metavar="zk://HOST:PORT/PATH", help="Use this ZooKeeper instead of an embedded one."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of all replicas, as in old_parts_lifetime_s=86400; it stays."
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Start a replica again that ends by itself.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when everything serves, then nothing.")
    ] = False,
) -> None:
    """Start ZooKeeper and replicas on this machine; Ctrl-C stops all in order."""
    from replitree.client.cluster import LocalCluster
    from replitree.client.transport.server_file import parse_setting

    chosen = dict(map(parse_setting, settings or ()))
    local = LocalCluster(folder, replicas, shards=shards, zookeeper=zookeeper, settings=chosen)

    def tell(line: str) -> None:
        print(plain(line), file=sys.stderr, flush=True)

    with _stopped_by_signals() as stop, local as cluster, PageOnDemand(cluster.folder, tell) as page:
        _say_ready(cluster, page.address, stop, is_sharded=shards is not None, as_json=as_json)
        restarts = Restarts(cluster, tell, time.monotonic()) if restart else None
        if as_json:
            while not stop.wait(LOOK_S):
                _look_after(cluster, restarts)
        else:
            _watch(cluster, stop, restarts)
            print("stopping: inserts that were taken are finished", flush=True)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set; a second signal while things start or stop is not needed and ignored."""
    stop = threading.Event()

    def handle(_number: int, _frame: object) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_ready(cluster: LocalCluster, page: str, stop: threading.Event, *, is_sharded: bool, as_json: bool) -> None:
    from replitree.client.admin.doctor_finding import listed

    kept, silent = kept_tables(cluster, stop)
    lines = look(cluster)
    if as_json:
        replicas = [{"name": line.name, "address": line.address, "pid": line.pid} for line in lines]
        ready = {"ready": True, "url": cluster.url, "dir": str(cluster.folder), "replicas": replicas, "page": page}
        Output(as_json=True).json({**ready, "kept_tables": kept, "kept_tables_unknown": silent})
        return
    print(f"cluster {cluster.url}")
    print(f"folder  {cluster.folder}")
    print(f"page    {page}")
    schema = "'id bigint not null, ts timestamp'"
    key = " --order-by id --shard-by id" if is_sharded else ""
    print(f"try     replitree table create events --schema {schema}{key} --dir {cluster.folder}")
    for table, names in kept.items():
        print(f"warning: the folders of {listed(names)} hold a table {table} that ZooKeeper does not have")
    if kept:
        print(
            f"         `replitree doctor --dir {cluster.folder}` says whether ZooKeeper has lost it, and how to restore it"
        )
    if silent:
        print(f"warning: {listed(silent)} did not say whether folders hold tables that ZooKeeper does not have")
        print(f"         `replitree doctor --dir {cluster.folder}` asks again")
    print("Ctrl-C stops all\n", flush=True)


def _watch(cluster: LocalCluster, stop: threading.Event, restarts: Restarts | None) -> None:
    """Show a line for each replica; on a terminal in place, elsewhere when something changed."""
    screen = console()
    if screen.is_terminal:
        from rich.live import Live
        from rich.text import Text

        with Live(console=screen, auto_refresh=False) as live:
            while not stop.is_set():
                _look_after(cluster, restarts)
                live.update(Text("\n".join(str(line) for line in look(cluster))), refresh=True)
                stop.wait(LOOK_S)
        return
    shown: dict[str, tuple[str, int]] = {}
    while not stop.is_set():
        _look_after(cluster, restarts)
        for line in look(cluster):
            if shown.get(line.name) != (line.state, line.tables):
                shown[line.name] = (line.state, line.tables)
                print(line, flush=True)
        stop.wait(LOOK_S)


def _look_after(cluster: LocalCluster, restarts: Restarts | None) -> None:
    """Start replicas again that have ended, if that is wanted, and give ZooKeeper a renewed certificate."""
    cluster.renew_certificate()
    if restarts is not None:
        restarts.look(time.monotonic())


def kept_tables(cluster: LocalCluster, stop: threading.Event) -> tuple[dict[str, list[str]], list[str]]:
    """Ask the replicas which tables lie in their folders and are not in ZooKeeper.

    Returns
    -------
    kept, silent
        The tables, each with the replicas that have parts of it; and the replicas that did not answer within `KEPT_S_MAX`.
    """
    end = time.monotonic() + KEPT_S_MAX
    while True:
        try:
            answered = {server.name: server for server in cluster.look_over().servers if not server.problem}
        except ReplitreeError:
            # Only a warning depends on it: the cluster serves without.
            answered = {}
        silent = [name for name in cluster.names if name not in answered]
        # A replica that has just begun to serve may need longer for an answer than one of these looks waits.
        if not silent or time.monotonic() >= end or stop.wait(KEPT_LOOK_S):
            break
    kept: dict[str, list[str]] = {}
    for name, server in sorted(answered.items()):
        for table in server.kept_tables:
            kept.setdefault(table.table, []).append(name)
    return dict(sorted(kept.items())), silent


def look(cluster: LocalCluster) -> list[ReplicaLine]:
    """Return how each replica is now."""
    try:
        servers = {server.name: server for server in cluster.servers()}
    except ReplitreeError:
        # Without ZooKeeper the processes themselves are still known.
        servers = {}
    lines = []
    for process in cluster.processes:
        server = servers.get(process.name)
        answer: dict[str, Any] = (server.answer if server is not None else None) or {}
        tables = answer.get("tables", [])
        bad = [str(table["state"]) for table in tables if table.get("state") != "active"]
        state = "ended" if not process.pid else bad[0] if bad else "serving"
        rows = sum(int(table.get("rows") or 0) for table in tables)
        address = server.address if server is not None and server.active else ""
        if process.pid and not address:
            address = logged_address(cluster.log_file(process.name), process.pid)
        lines.append(ReplicaLine(process.name, state, address if process.pid else "", process.pid, len(tables), rows))
    return lines


def logged_address(log: Path, pid: int) -> str:
    """Return the address that a replica's log has, also after rotations of the log; "" when it has none.

    Parameters
    ----------
    log
        The newest log file; the older ones have its name and a number.
    pid
        The replica's process: an address that was found is remembered as long as it runs.
    """
    try:
        return _logged_address(log, pid)
    except LookupError:
        return ""


@lru_cache(maxsize=64)
def _logged_address(log: Path, _pid: int) -> str:
    """Return the address in the last line that has one.  Raises `LookupError` for none, which is not remembered."""
    for path in (log, *(log.with_name(f"{log.name}.{number}") for number in range(1, LOG_FILES_MAX))):
        try:
            with path.open("rb") as file:
                ready = [line for line in file if line.startswith(b'{"ready":true')]
        except OSError:
            # The log was rotated a moment ago, or has fewer lines.
            continue
        if ready:
            return str(json.loads(ready[-1]).get("address", ""))
    raise LookupError(log)
