"""A cluster whose every link and every disk can be hurt: an ensemble of ZooKeeper servers and replicas, each a process.

::

    client ──────────────── front of r1 ── r1 ── r1>zk1, r1>zk2, r1>zk3 ── the ensemble
      (straight to the          │                                          zk1>zk2, zk2>zk1, …
       ensemble)          r2>r1, r3>r1, client>r1

Every replica reaches every server of the ensemble through a link of its own, and so do the servers each other, for elections
and for what follows (`tests.faults.ensemble`).  A replica advertises its front; who calls there
is told apart by the address that the call comes from, so ``r2>r1`` can be cut while ``client>r1`` is not.  The client asks the
ensemble without a link: what it reads there to keep the account must not lie.

A replica that ends by itself because it found no ZooKeeper, or no working disk, when it started is started again, as a service
manager does; any other end by itself is a failure of the run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from replitree.client.cluster import TOKEN_FILE, make_token
from replitree.client.connection import Connection, connect
from replitree.coordination.embedded import LOCALHOST, free_ports
from replitree.coordination.supervise import Supervised
from replitree.coordination.url import ROOT_DEFAULT, SCHEME
from tests.faults.disk import INJECTED, Disk
from tests.faults.ensemble import LinkedEnsemble
from tests.faults.proxy import Link, Network
from tests.waiting import wait_for

CLIENT = "client"
SESSION_TIMEOUT_S = 4.0
STOP_S_MAX = 40.0
KILL_S_MAX = 10.0
READY_S_MAX = 120.0
MAY_END = ("replitree server: no ZooKeeper at", "replitree server: ZooKeeper at", "ZooKeeper session ended", INJECTED)
"""Last words with which a process may end by itself before it was ready: whoever runs it starts it again."""

READY = '{"ready":true'
SERVER = ("-m", "tests.faults.process")


class FaultCluster:
    """Replicas, their ensemble, and what lies between.

    Parameters
    ----------
    folder
        Where everything goes.
    replicas, servers
        How many replicas, and servers of the ensemble.
    settings
        Further lines of every replica's configuration.
    mounted
        Whether every replica's data are on a file system of their own (needs root).
    pinned
        Replicas that know one server of the ensemble only, and which.
    commands
        What runs as the server of a replica instead of the usual, as the arguments of Python.
    """

    def __init__(
        self,
        folder: Path,
        replicas: int = 3,
        servers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        mounted: bool = False,
        pinned: Mapping[str, str] | None = None,
        commands: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.pinned = dict(pinned or {})
        self._commands = dict(commands or {})
        self.folder = folder.absolute()
        self.names = tuple(f"r{number}" for number in range(1, replicas + 1))
        self.servers = tuple(f"zk{number}" for number in range(1, servers + 1))
        self.network = Network()
        self.ensemble = LinkedEnsemble(self.folder / "zookeeper", servers, self.network, self._between_servers)
        self.disks = {name: Disk(self.folder / name, mounted=mounted) for name in self.names}
        self.session_timeout_s = SESSION_TIMEOUT_S
        self.settings = {"session_timeout_s": SESSION_TIMEOUT_S, **(settings or {})}
        self._links: dict[tuple[str, str], Link] = {}
        self._processes = {
            name: ReplicaProcess(self.folder / name, f"127.0.1.{number}")
            for number, name in enumerate(self.names, start=1)
        }
        self._listens: dict[str, str] = {}
        self._connection: Connection | None = None

    # --- life ---

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start everything, and return when every replica serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        token = make_token(self.folder / TOKEN_FILE)
        self.ensemble.start()
        ports = free_ports(len(self.names) * (2 + len(self.servers)))
        for name, process in self._processes.items():
            self.disks[name].mount()
            mine = [ports.pop() for _ in range(2 + len(self.servers))]
            self._lay_links(name, mine)
            command = self._commands.get(name, SERVER)
            process.configure(self._configuration(name, mine), self.disks[name].control, command)
            process.launch()
        for process in self._processes.values():
            process.wait_ready()
        self._connection = connect(self.ensemble.url, token)

    def close(self) -> None:
        """Stop everything; the folder stays, but for mounted disks."""
        if self._connection is not None:
            self._connection.close()
        self.heal()
        stopping = [threading.Thread(target=process.stop) for process in self._processes.values()]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        self.network.close()
        self.ensemble.stop()
        for disk in self.disks.values():
            disk.unmount()

    def _lay_links(self, name: str, ports: list[int]) -> None:
        front, own, *to_ensemble = ports
        callers = {self._processes[other].address: other for other in self.names if other != name}
        links = {address: self.link(other, name) for address, other in callers.items()}
        self.network.front({**links, "": self.link(CLIENT, name)}, front, own)
        for server, port, target in zip(self.servers, to_ensemble, self.ensemble.ports, strict=True):
            self.network.front({"": self.link(name, server)}, port, target)

    def _between_servers(self, source: int, target: int) -> Link:
        return self.link(self.servers[source], self.servers[target])

    def _configuration(self, name: str, ports: list[int]) -> dict[str, object]:
        front, own, *to_ensemble = ports
        self._listens[name] = f"{LOCALHOST}:{own}"
        known = (self.pinned[name],) if name in self.pinned else self.servers
        ports_of = dict(zip(self.servers, to_ensemble, strict=True))
        servers = ",".join(f"{LOCALHOST}:{ports_of[server]}" for server in known)
        return {
            "name": name,
            "zookeeper": f"{SCHEME}{servers}{ROOT_DEFAULT}",
            "data": str(self.folder / name / "data"),
            "listen": f"{LOCALHOST}:{own}",
            "advertise": f"{LOCALHOST}:{front}",
            "token_file": str(self.folder / TOKEN_FILE),
            "tables": ["*"],
            **self.settings,
        }

    # --- what there is ---

    @property
    def connection(self) -> Connection:
        """A client's connection."""
        assert self._connection is not None, "open() comes first"
        return self._connection

    def process(self, name: str) -> ReplicaProcess:
        """Return a replica's process."""
        return self._processes[name]

    def address(self, name: str) -> str:
        """Return where a replica listens, behind its front: for looking, not for the clients of a run."""
        return self._listens[name]

    def link(self, source: str, target: str) -> Link:
        """Return the link from a replica, a server or the client to a replica or a server."""
        if (source, target) not in self._links:
            self._links[source, target] = self.network.link(source, target)
        return self._links[source, target]

    def links(self, name: str, *others: str) -> tuple[Link, ...]:
        """Return the links of a replica or a server to or from these others; without others, all that it has."""
        return tuple(
            link
            for (source, target), link in sorted(self._links.items())
            if name in (source, target) and (not others or source in others or target in others)
        )

    def session_of(self, name: str) -> tuple[int, bytes] | None:
        """Return number and password of a replica's present session, as the ensemble told it."""
        connected = [link for link in self.links(name, *self.servers) if link.open_connections]
        sessions = [found for link in connected if (found := session_in(link.head)) is not None]
        return sessions[0] if sessions else None

    def heal(self) -> None:
        """Let every link through, every disk be good, every process run that was stopped."""
        for link in self._links.values():
            link.clear()
        for disk in self.disks.values():
            disk.mend()
        for process in self._processes.values():
            process.signal(signal.SIGCONT)
        for index in range(len(self.servers)):
            pid = self.ensemble.pid(index)
            if pid is not None:
                os.kill(pid, signal.SIGCONT)

    def look_after(self) -> int:
        """Start replicas again that gave up at their start; fail when one ended for another reason.  Returns how many."""
        return sum(process.look_after() for process in self._processes.values())


class ReplicaProcess:
    """One replica's process, which is meant to run or not."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self.log = folder / "server.log"
        self._config = folder / "server.toml"
        self._command: list[str] = []
        self._running: Supervised | None = None
        self._wanted = False
        self._log_start = 0
        self._lock = threading.RLock()

    @property
    def pid(self) -> int:
        """Process id, or 0 when it does not run."""
        running = self._running
        return running.pid if running is not None and running.poll() is None else 0

    def configure(self, lines: Mapping[str, object], disk: Path, command: Sequence[str]) -> None:
        """Write the configuration; `command` is what runs, as the arguments of Python."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        self._config.write_text(text, encoding="utf-8")
        self._command = [sys.executable, *command, self.address, str(disk), str(self._config)]

    def launch(self) -> None:
        """Start it, unless it runs."""
        with self._lock:
            self._wanted = True
            if self.pid:
                return
            self._log_start = self.log.stat().st_size if self.log.exists() else 0
            self._running = Supervised(self._command, self.log)

    def kill(self) -> None:
        """Kill it (SIGKILL), and return when it is gone."""
        with self._lock:
            self._wanted = False
            if self._running is not None:
                self._running.kill()
                assert self._running.wait(KILL_S_MAX) is not None, f"process {self._running.pid} can't be killed"

    def stop(self) -> None:
        """Stop it in order (SIGTERM)."""
        with self._lock:
            self._wanted = False
            if self._running is not None:
                self._running.terminate()
                if self._running.wait(STOP_S_MAX) is None:
                    self.kill()

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        with suppress(ProcessLookupError):
            if pid := self.pid:
                os.kill(pid, number)

    def look_after(self) -> bool:
        """Start it again if it gave up at its start; True if so."""
        with self._lock:
            if not self._wanted or self.pid or self._running is None:
                return False
            code = self._running.wait(KILL_S_MAX)
            words = self.words()
            gave_up = not _says_ready(words) and any(reason in line for line in words[-1:] for reason in MAY_END)
            assert gave_up, (
                f"{self.folder.name} ended by itself with {code}; its log is {self.log}: {' | '.join(words[-5:])}"
            )
            self.launch()
            return True

    def is_ready(self) -> bool:
        """Whether it runs and has said that it serves."""
        return bool(self.pid) and _says_ready(self.words())

    def wait_ready(self) -> None:
        """Wait until it serves."""
        wait_for(self.is_ready, f"{self.folder.name} serves; its log is {self.log}", READY_S_MAX)

    def words(self) -> list[str]:
        """Return what it has written since it was launched."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace").splitlines()


def _says_ready(words: Sequence[str]) -> bool:
    return any(line.startswith(READY) for line in words)


def session_in(head: bytes) -> tuple[int, bytes] | None:
    """Read number and password of a session from a ZooKeeper's first answer.

    Length, version and time-out (4 bytes each), number (8), length and bytes of the password (4 + 16).
    """
    if len(head) < 40:
        return None
    number = int.from_bytes(head[12:20], "big", signed=True)
    return (number, head[24:40]) if number else None
