"""A cluster on this machine: an embedded ZooKeeper and replicas, each a process of its own, in one folder.

Guarantees:

* `open` returns when every replica serves; `close` stops all, replicas first, in order, and leaves the folder ready to
  be opened again.
* No process outlives this one, not even when it is killed (see `replitree.coordination.supervise`).
* One folder has one cluster at a time: a second one is refused.

::

    <folder>/cluster.json           url, token file and replicas, for `connect`
    <folder>/token                  the shared secret, readable by its owner only
    <folder>/zookeeper/…            unless another ZooKeeper is used
    <folder>/r1/{server.toml, server.log, data/…}

Absent on purpose: several machines.  Those run `replitree server` each, with a configuration file of their own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from typing_extensions import override

from replitree import private
from replitree.client.arguments import check_arguments
from replitree.client.connection import Connection
from replitree.client.transport.access import CLUSTER_FILE, Access, ClusterFile, ReplicaEntry, public_url
from replitree.client.transport.server_file import rewritten
from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.coordination.supervise import LOG_BYTES_MAX, LOG_FILES, Supervised
from replitree.coordination.url import parse_url
from replitree.errors import BadInput, ReplicaUnavailable, ReplitreeError
from replitree.protocol.core.layout import check_replica_name
from replitree.protocol.sharded.default_sharding import DefaultSharding
from replitree.tls import NO_FILES, TlsFiles

REPLICAS_MAX = 16
START_S_MAX = 60.0
"""How long a replica may take until it serves, in seconds; one with many parts looks at all of them first."""

READY_LOOK_S = 0.01
"""Pause between two looks whether a replica that starts is ready, in seconds."""

STOP_S_MAX = 30.0
"""How long a replica may take to finish what it has begun before it is killed, in seconds."""

KILL_S_MAX = 10.0
LAST_LINES = 5
TOKEN_FILE = "token"  # noqa: S105 - the name of a file
TOKENS_FILE = "tokens.json"
"""The named tokens of a local cluster."""

TLS_SETTINGS = ("tls_ca", "tls_certificate", "tls_key")
"""Settings of replicas that name files of TLS."""


@check_arguments
def local(
    replicas: int = 3, folder: str | os.PathLike[str] | None = None, *, shards: int | None = None
) -> LocalCluster:
    """Start a cluster on this machine and connect to it.

    Parameters
    ----------
    replicas
        How many; they are named ``r1``, ``r2``, ….  With `shards`: how many for each shard.
    folder
        Where everything goes, and stays; by default a temporary folder that `close` removes.
    shards
        Start `shards` times `replicas` replicas.  A sharded table that is created there gets so many shards, each with
        replicas of its own, unless its creator says otherwise (``docs/sharded-cluster.md``).

    Returns
    -------
    LocalCluster
        A `Connection` that also owns the processes: use it in a ``with`` statement, or call `close`.

    Raises
    ------
    JavaMissing
        ZooKeeper needs Java 17 or newer.
    ReplicaUnavailable
        A replica did not start; the message has its last words.
    BadInput
        `folder` is a file, or there would be more than 16 replicas.

    Examples
    --------
    ::

        with replitree.local(replicas=3) as cluster:
            table = cluster.create_table("events", "k bigint not null, v double", order_by="k")
            table.insert({"k": [1, 2], "v": [0.5, None]})
            print(table.to_arrow())
    """
    cluster = LocalCluster(folder, replicas, shards=shards)
    cluster.open()
    return cluster


@check_arguments
class LocalCluster(Connection):
    """A connection to a cluster on this machine, and the owner of its processes.

    Parameters
    ----------
    folder
        Where everything goes; None: a temporary folder, removed by `close`.
    replicas
        How many; with `shards`: how many for each shard.
    shards
        How many shards sharded tables get by default; None: the cluster is not started for them.
    zookeeper
        Url of a ZooKeeper to use instead of an embedded one.  The embedded one speaks TLS when the replicas have a certificate
        and authorities.
    durable
        False: the embedded ZooKeeper does not sync.  For tests only.
    settings
        More fields of the replicas' configuration, see `replitree.replica.kit.config.ServerConfig`.  They stay in their files.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        replicas: int = 3,
        *,
        shards: int | None = None,
        zookeeper: str | None = None,
        durable: bool = True,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        servers = replicas * (1 if shards is None else shards)
        if not 1 <= servers <= REPLICAS_MAX:
            product = "" if shards is None else f" ({shards} shards with {replicas} each)"
            raise BadInput(f"a local cluster has 1 to {REPLICAS_MAX} replicas, not {servers}{product}")
        names = tuple(f"r{number}" for number in range(1, servers + 1))
        self._hosting = None if shards is None else DefaultSharding(shards, replicas)
        super().__init__(Access(zookeeper or "zk://127.0.0.1", "", names))
        if zookeeper is not None:
            parse_url(zookeeper)
        self._temporary = folder is None
        self._folder = Path(tempfile.mkdtemp(prefix="replitree-") if folder is None else folder).absolute()
        # Clients that find them in `cluster.json` run in other folders.
        chosen = {
            key: str(Path(value).absolute()) if key in TLS_SETTINGS and isinstance(value, str) and value else value
            for key, value in (settings or {}).items()
        }
        self._processes = {name: _Process(name, self._folder / name, chosen) for name in names}
        self._zookeeper = None
        if zookeeper is None:
            files, is_mutual = self._server_files()
            self._zookeeper = EmbeddedZooKeeper(
                self._folder / "zookeeper",
                durable=durable,
                tls=files if files.ca else NO_FILES,
                wants_certificates=is_mutual,
            )

    @override
    def __enter__(self) -> Self:
        self.open()
        return self

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Where everything is."""
        return self._folder

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the replicas."""
        return tuple(self._processes)

    @property
    def processes(self) -> tuple[ReplicaEntry, ...]:
        """The replicas' processes; process id 0 when one does not run."""
        return tuple(process.entry() for process in self._processes.values())

    @property
    def zookeeper(self) -> EmbeddedZooKeeper | None:
        """The embedded ZooKeeper, or None when another one is used."""
        return self._zookeeper

    def open(self) -> None:
        """Start everything that does not run yet, and return when it serves.

        Raises
        ------
        JavaMissing, CoordinationUnavailable
            ZooKeeper did not start, or the folder is in use.
        ReplicaUnavailable
            A replica did not start.
        """
        if any(process.pid for process in self._processes.values()):
            return
        try:
            # Folders that are there already are closed to other users; the servers see to the ones below.
            open_to_group = {
                each.folder: each.setting("files_group_readable") is True for each in self._processes.values()
            }
            private.make_top(self._folder, group=any(open_to_group.values()))
            for folder, is_group in open_to_group.items():
                private.make_top(folder, group=is_group)
        except (FileExistsError, NotADirectoryError) as error:
            raise BadInput(f"{self._folder} is not a folder: name one that can be made, or that is there") from error
        try:
            token = make_token(self._folder / TOKEN_FILE)
            if self._zookeeper is not None:
                self._zookeeper.start()
            url = self._zookeeper.url if self._zookeeper is not None else self._access.url
            self._access = Access(url, token, self.names, self._tls_files())
            for process in self._processes.values():
                process.configure(url, self._folder / TOKEN_FILE)
                process.launch()
            for process in self._processes.values():
                process.wait_ready()
            if self._hosting is not None:
                from replitree.client.transport.hosting import write_default

                write_default(self.catalog, self._hosting)
            self._write_cluster_file()
        except BaseException:
            self.close()
            raise

    @override
    def close(self) -> None:
        """End the connection, stop replicas and ZooKeeper in order.  Harmless when called again."""
        super().close()
        with ThreadPoolExecutor(len(self._processes)) as pool:
            list(pool.map(_Process.stop, self._processes.values()))
        if self._zookeeper is not None:
            self._zookeeper.stop()
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self, name: str) -> None:
        """Kill a replica's process (SIGKILL) and return when it is gone."""
        self._process(name).kill()

    def stop(self, name: str) -> None:
        """Stop a replica in order: it finishes the inserts that it has taken."""
        self._process(name).stop()

    def start(self, name: str) -> None:
        """Start a replica that does not run, and return when it serves.

        Raises
        ------
        ReplicaUnavailable
            It did not start; the message has its last words.
        """
        process = self._process(name)
        process.launch()
        process.wait_ready()
        self._write_cluster_file()

    def launch(self, name: str) -> None:
        """Start a replica that does not run, and do not wait until it serves."""
        self._process(name).launch()
        self._write_cluster_file()

    def exit_status(self, name: str) -> int | None:
        """Return the exit status of a replica's process that has ended by itself; negative: the signal that ended it."""
        return self._process(name).exit_status

    def log_file(self, name: str) -> Path:
        """Return the file with a replica's log."""
        return self._process(name).log

    def renew_certificate(self) -> None:
        """Give a renewed certificate to the embedded ZooKeeper, if it speaks TLS; replicas look at theirs by themselves."""
        if self._zookeeper is not None:
            self._zookeeper.renew_certificate()

    def _server_files(self) -> tuple[TlsFiles, bool]:
        """Return what the replicas speak TLS with, and whether they want certificates."""
        first = next(iter(self._processes.values()))
        files = TlsFiles(*(str(first.setting(name) or "") for name in TLS_SETTINGS))
        return files, first.setting("tls_clients") == "with_certificate"

    def _tls_files(self) -> TlsFiles:
        """Return what a client of these replicas needs: their authority and, where they want one, a certificate of theirs."""
        files, is_mutual = self._server_files()
        return files if is_mutual else TlsFiles(files.ca)

    def _process(self, name: str) -> _Process:
        if name not in self._processes:
            raise BadInput(f"this cluster has no replica {name!r}; it has {', '.join(self._processes)}")
        return self._processes[name]

    def _write_cluster_file(self) -> None:
        content = ClusterFile(public_url(self._access.url), TOKEN_FILE, self.processes, self._access.tls)
        draft = self._folder / f".{CLUSTER_FILE}"
        private.write_file(draft, msgspec.json.format(msgspec.json.encode(content)))
        draft.replace(self._folder / CLUSTER_FILE)


class _Process:
    """One replica's process, its configuration and its log."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, object]) -> None:
        self.name = check_replica_name(name)
        self._settings = dict(settings)
        self.folder = folder
        self.config = folder / "server.toml"
        self.log = folder / "server.log"
        self._running: Supervised | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        return self._running.pid if self._running is not None and self._running.poll() is None else 0

    @property
    def exit_status(self) -> int | None:
        return self._running.poll() if self._running is not None else None

    def entry(self) -> ReplicaEntry:
        return ReplicaEntry(self.name, self.pid, str(self.folder / "data"), str(self.config))

    def setting(self, name: str) -> object:
        """Return the value that the replica's configuration has, or will have; None if none is given."""
        try:
            written = tomllib.loads(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            # There is no such file yet, or it is damaged: then `configure` raises the error.
            written = {}
        return {**written, **self._settings}.get(name)

    def configure(self, url: str, token_file: Path) -> None:
        """Write where everything is into the configuration, and the settings; all else stays as it is."""
        private.make_folder(self.folder, parents=True, exist_ok=True)
        managed = {
            "name": self.name,
            "zookeeper": url,
            "data": str(self.folder / "data"),
            "token_file": str(token_file),
            "tokens_file": str(token_file.with_name(TOKENS_FILE)),
            **self._settings,
        }
        before = self.config.read_text(encoding="utf-8") if self.config.exists() else ""
        _write_private(self.config, rewritten(before, managed, str(self.config)))

    def launch(self) -> None:
        if self.pid:
            raise BadInput(f"replica {self.name} runs already (process {self.pid})")
        self._release()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-m", "replitree.replica", "--config", str(self.config)]
        size, files = self.setting("log_bytes_max"), self.setting("log_files")
        self._running = Supervised(
            command,
            self.log,
            log_bytes_max=size if isinstance(size, int) else LOG_BYTES_MAX,
            log_files=files if isinstance(files, int) else LOG_FILES,
        )

    def wait_ready(self) -> None:
        """Wait until the replica's process has printed that it is ready."""
        deadline = time.monotonic() + START_S_MAX
        while not any(line.startswith('{"ready":true') for line in self._lines()):
            if not self.pid or time.monotonic() > deadline:
                state = f"was not ready after {START_S_MAX:.0f} s" if self.pid else "ended"
                lines = self._lines()
                # Lines for an operator say more than lines of JSON, which programs read.
                plain = [line for line in lines if line.strip() and not line.startswith("{")]
                end = " | ".join((plain or lines)[-LAST_LINES:]) or "(nothing)"
                raise ReplicaUnavailable(f"replica {self.name} {state}; its log is {self.log}: {end}")
            time.sleep(READY_LOOK_S)

    def stop(self) -> None:
        if self._running is not None:
            self._running.terminate()
            if self._running.wait(STOP_S_MAX) is None:
                self.kill()
            self._release()

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            if self._running.wait(KILL_S_MAX) is None:
                raise ReplitreeError(
                    f"process {self._running.pid} of replica {self.name} did not end within {KILL_S_MAX:.0f} s of SIGKILL: it"
                    " hangs in the kernel, mostly on a disk that does not answer; start the replica again when it is gone"
                )
            self._release()

    def _release(self) -> None:
        if self._running is not None:
            self._running.wait(KILL_S_MAX)
            self._running = None

    def _lines(self) -> list[str]:
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            is_rotated = os.fstat(log.fileno()).st_size < self._log_start
            log.seek(0 if is_rotated else self._log_start)
            return log.read().decode("utf-8", "replace").splitlines()


def make_token(path: Path) -> str:
    """Return the token in a file; make a file with a fresh one if there is none."""
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text(encoding="utf-8").strip()


def _write_private(path: Path, text: str) -> None:
    """Write a file with a secret, or with the path of one."""
    draft = path.with_name(f".{path.name}")
    # The mode is given when the file is created: a chmod afterwards would leave a moment in which others can open it.
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
