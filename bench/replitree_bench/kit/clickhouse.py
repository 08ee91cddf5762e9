"""The peer: a ClickHouse cluster of ReplicatedMergeTree tables, from Debian's package, on a ZooKeeper that is given.

Every replica is a process of its own on 127.0.0.1, on free ports, with its data below one folder, and ends with this process.
Settings are Debian's defaults; the configuration is written here so that a run depends on nothing below /etc.

Absent on purpose: anything that would make ClickHouse slower than its user sees it.
"""

from __future__ import annotations

import http.client
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

from replitree.client.cluster import READY_LOOK_S
from replitree.coordination.embedded import LOCALHOST, free_ports
from replitree.coordination.supervise import Supervised
from replitree.errors import ReplitreeError, TooManyParts

PROGRAM = "clickhouse-server"
START_S_MAX = 60.0
STOP_S_MAX = 30.0
QUERY_S_MAX = 300.0
_TOO_MANY_PARTS = "Too many parts"

_CONFIG = """<yandex>
  <logger><level>information</level><log>{home}/log/server.log</log><errorlog>{home}/log/error.log</errorlog></logger>
  <http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>
  <interserver_http_port>{interserver}</interserver_http_port><interserver_http_host>127.0.0.1</interserver_http_host>
  <listen_host>127.0.0.1</listen_host>
  <max_concurrent_queries>200</max_concurrent_queries><keep_alive_timeout>3600</keep_alive_timeout>
  <uncompressed_cache_size>104857600</uncompressed_cache_size><mark_cache_size>536870912</mark_cache_size>
  <path>{home}/data/</path><tmp_path>{home}/tmp/</tmp_path>
  <user_files_path>{home}/files/</user_files_path><format_schema_path>{home}/files/</format_schema_path>
  <users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
  <zookeeper><node><host>{zk_host}</host><port>{zk_port}</port></node></zookeeper>
  <macros><shard>{shard:02}</shard><replica>r{number}</replica></macros>
  <remote_servers><sharded>{shards}</sharded></remote_servers>
  <timezone>UTC</timezone>
</yandex>
"""
_USERS = """<yandex>
  <profiles><default>
    <max_memory_usage>10000000000</max_memory_usage><use_uncompressed_cache>0</use_uncompressed_cache>
    <load_balancing>random</load_balancing>
  </default></profiles>
  <users><default>
    <password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>
  </default></users>
  <quotas><default><interval><duration>3600</duration><queries>0</queries><errors>0</errors><result_rows>0</result_rows>
    <read_rows>0</read_rows><execution_time>0</execution_time></interval></default></quotas>
</yandex>
"""


@dataclass(frozen=True, slots=True)
class _Ports:
    http: int
    tcp: int
    interserver: int


class _Connections(threading.local):
    """Keep-alive connections of one thread, by port."""

    def __init__(self) -> None:
        self.open: dict[int, http.client.HTTPConnection] = {}


class ClickHouse:
    """A cluster; replicas are numbered from 1.

    Parameters
    ----------
    folder
        Where the data lie.
    zookeeper
        ``host:port``.
    replicas
        How many.
    shards
        How many shards a Distributed table has: the first replicas host the first one.

    Raises
    ------
    ReplitreeError
        The program is not installed, or a replica does not answer.
    """

    def __init__(self, folder: Path, zookeeper: str, replicas: int = 2, shards: int = 1) -> None:
        self._folder = folder.absolute()
        self._zookeeper, self._shards = zookeeper, shards
        ports = iter(free_ports(3 * replicas))
        self._ports = [_Ports(next(ports), next(ports), next(ports)) for _ in range(replicas)]
        self._processes: list[Supervised] = []
        self._connections = _Connections()

    def __enter__(self) -> Self:
        program = find_program()
        try:
            for number in range(1, len(self._ports) + 1):
                self._processes.append(self._launch(program, number))
            for number in range(1, len(self._ports) + 1):
                self._wait_ready(number)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def replicas(self) -> range:
        """The numbers of the replicas."""
        return range(1, len(self._ports) + 1)

    @property
    def version(self) -> str:
        """Version of the server."""
        return self.query(1, "SELECT version()").strip()

    def create_table(self, name: str, root: str, settings: str = "") -> None:
        """Create the table of the measurements on all replicas.

        Parameters
        ----------
        name, root
            Its name, and the node of ZooKeeper below which its own lie.
        settings
            The end of the statement.
        """
        for number in self.replicas:
            self.query(
                number,
                f"CREATE TABLE {name} (d Date, k UInt64, v Float64, s String) "
                f"ENGINE=ReplicatedMergeTree('{root}/{name}','{{replica}}') "
                f"PARTITION BY toYYYYMM(d) ORDER BY k {settings}",
            )

    def create_distributed(self, name: str, root: str) -> None:
        """Create a Distributed table over all shards, and the table of each replica below it.

        Parameters
        ----------
        name, root
            Its name, and the node of ZooKeeper below which the shards' own lie.
        """
        for number in self.replicas:
            self.query(
                number,
                f"CREATE TABLE {name}_local (k UInt64, b UInt64) "
                f"ENGINE=ReplicatedMergeTree('{root}/{{shard}}', '{{replica}}') ORDER BY k",
            )
        for number in self.replicas:
            self.query(
                number, f"CREATE TABLE {name} AS {name}_local ENGINE=Distributed(sharded, default, {name}_local, k)"
            )

    def stop(self) -> None:
        """Stop all replicas."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            if process.wait(STOP_S_MAX) is None:
                process.kill()
                process.wait(STOP_S_MAX)
        self._processes.clear()

    def kill(self, number: int) -> None:
        """Kill a replica (SIGKILL)."""
        process = self._processes[number - 1]
        process.kill()
        process.wait(STOP_S_MAX)

    def start(self, number: int) -> None:
        """Start a replica that was killed, and wait until it answers."""
        self._processes[number - 1] = self._launch(find_program(), number)
        self._wait_ready(number)

    def _launch(self, program: str, number: int) -> Supervised:
        return Supervised([program, f"--config-file={self._configure(number)}"], self._log(number))

    def query(self, number: int, sql: str, **settings: object) -> str:
        """Run `sql` on a replica over this thread's kept connection and return the answer's text.

        Raises
        ------
        TooManyParts
            ClickHouse takes no insert until it has merged parts.
        ReplitreeError
            ClickHouse refused it.
        """
        port = self._ports[number - 1].http
        connection = self._connections.open.get(port)
        if connection is None:
            connection = http.client.HTTPConnection(LOCALHOST, port, timeout=QUERY_S_MAX)
            self._connections.open[port] = connection
        try:
            connection.request("POST", f"/?{urlencode(settings)}" if settings else "/", sql.encode())
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._connections.open.pop(port, None)
            raise
        if answer.status != 200:
            refusal = TooManyParts if _TOO_MANY_PARTS in text else ReplitreeError
            raise refusal(f"ClickHouse r{number}: {sql[:200]}: {text.strip()}")
        return text

    def coordination_requests(self) -> int:
        """Return how many requests all replicas have sent to ZooKeeper so far; keep-alive pings are not counted."""
        sql = "SELECT value FROM system.events WHERE event='ZooKeeperTransactions'"
        return sum(int(self.query(number, sql) or 0) for number in self.replicas)

    def _log(self, number: int) -> Path:
        return self._folder / f"r{number}" / "log" / "output.log"

    def _configure(self, number: int) -> Path:
        """Write the configuration of one replica; return its path."""
        home = self._folder / f"r{number}"
        for sub in ("data", "tmp", "files", "log"):
            (home / sub).mkdir(parents=True, exist_ok=True)
        host, _, port = self._zookeeper.rpartition(":")
        ports = self._ports[number - 1]
        of_shard = len(self._ports) // self._shards
        replicas = [f"<replica><host>{LOCALHOST}</host><port>{each.tcp}</port></replica>" for each in self._ports]
        shards = "".join(
            f"<shard><internal_replication>true</internal_replication>{''.join(replicas[first : first + of_shard])}</shard>"
            for first in range(0, len(replicas), of_shard)
        )
        text = _CONFIG.format(
            shard=1 + (number - 1) // of_shard,
            shards=shards,
            home=home,
            http=ports.http,
            tcp=ports.tcp,
            interserver=ports.interserver,
            zk_host=host,
            zk_port=port,
            number=number,
        )
        (home / "users.xml").write_text(_USERS)
        (home / "config.xml").write_text(text)
        return home / "config.xml"

    def _wait_ready(self, number: int) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            try:
                if self.query(number, "SELECT 1").strip() == "1":
                    return
            except (OSError, http.client.HTTPException):
                if self._processes[number - 1].poll() is not None:
                    break
                time.sleep(READY_LOOK_S)
        raise ReplitreeError(f"ClickHouse replica r{number} does not answer; see {self._log(number)}")


def find_program() -> str:
    """Return the path of the server's program.

    Raises
    ------
    ReplitreeError
        It is not installed; says how to.
    """
    found = shutil.which(PROGRAM)
    if found is None:
        raise ReplitreeError(
            f"{PROGRAM} is not installed, and --peer clickhouse compares with it: "
            "apt-get install clickhouse-server clickhouse-client, or run without --peer"
        )
    return found
