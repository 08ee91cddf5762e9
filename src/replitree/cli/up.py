"""`replitree up`: a whole cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import override

from replitree.cli.options import DEFAULT_FOLDER
from replitree.cli.output import Output, console, counted
from replitree.errors import ReplitreeError

if TYPE_CHECKING:
    from replitree.client.cluster import LocalCluster

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
        where = f"http://{self.address}" if self.address else "not serving"
        what = f"{counted(self.tables, 'table')}  {counted(self.rows, 'row')}"
        return f"{self.name}  {self.state:<9}  {where}  process {self.pid or '-'}  {what}"


def up(
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", envvar="REPLITREE_DIR", help="Everything lies here, and stays.")
    ] = DEFAULT_FOLDER,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", help="How many replicas; they are named r1, r2, …")
    ] = 3,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper", metavar="zk://HOST:PORT/PATH", help="Use this ZooKeeper instead of an embedded one."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when everything serves, then nothing.")
    ] = False,
) -> None:
    """Start ZooKeeper and replicas on this machine; Ctrl-C stops all in order."""
    from replitree.client.cluster import LocalCluster

    with _stopped_by_signals() as stop, LocalCluster(folder, replicas, zookeeper=zookeeper) as cluster:
        _say_ready(cluster, as_json=as_json)
        if as_json:
            stop.wait()
        else:
            _watch(cluster, stop)
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


def _say_ready(cluster: LocalCluster, *, as_json: bool) -> None:
    lines = look(cluster)
    if as_json:
        replicas = [{"name": line.name, "address": line.address, "pid": line.pid} for line in lines]
        Output(as_json=True).json({"ready": True, "url": cluster.url, "dir": str(cluster.folder), "replicas": replicas})
        return
    print(f"cluster {cluster.url}")
    print(f"folder  {cluster.folder}")
    schema = "'id bigint not null, ts timestamp'"
    print(f"try     replitree table create events --schema {schema} --dir {cluster.folder}")
    print("Ctrl-C stops all\n", flush=True)


def _watch(cluster: LocalCluster, stop: threading.Event) -> None:
    """Show a line for each replica; on a terminal in place, elsewhere when something changed."""
    screen = console()
    if screen.is_terminal:
        from rich.live import Live

        with Live(console=screen, auto_refresh=False) as live:
            while not stop.is_set():
                live.update("\n".join(str(line) for line in look(cluster)), refresh=True)
                stop.wait(LOOK_S)
        return
    shown: dict[str, tuple[str, int]] = {}
    while not stop.is_set():
        for line in look(cluster):
            if shown.get(line.name) != (line.state, line.tables):
                shown[line.name] = (line.state, line.tables)
                print(line, flush=True)
        stop.wait(LOOK_S)


def look(cluster: LocalCluster) -> list[ReplicaLine]:
    """Return how each replica is now."""
    try:
        servers: dict[str, Any] = {server.name: server.answer or {} for server in cluster.servers()}
    except ReplitreeError:
        servers = {}  # ZooKeeper does not answer: what the processes are is still known
    lines = []
    for process in cluster.processes:
        tables = servers.get(process.name, {}).get("tables", [])
        bad = [str(table["state"]) for table in tables if table.get("state") != "active"]
        state = "ended" if not process.pid else bad[0] if bad else "serving"
        rows = sum(int(table.get("rows") or 0) for table in tables)
        address = _address(cluster.log_file(process.name), process.pid) if process.pid else ""
        lines.append(ReplicaLine(process.name, state, address, process.pid, len(tables), rows))
    return lines


@lru_cache(maxsize=64)
def _address(log: Path, _pid: int) -> str:
    """Return where a process said in its log that it serves; the last line that says so counts."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    ready = [line for line in lines if line.startswith('{"ready":true')]
    return str(json.loads(ready[-1]).get("address", "")) if ready else ""
