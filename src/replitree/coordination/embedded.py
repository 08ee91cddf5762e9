"""A real ZooKeeper on this machine, from the jars that PySpark brings along: one server, or an ensemble for tests.

Guarantees:

* It listens on 127.0.0.1 only, on free ports, and is ready to serve when `start` returns.
* No server outlives the process that started it, not even when that is killed (`supervise` says how).
* One folder is served by one ensemble: a second one is refused while any server of the first still runs.
* What was committed is synced to disk before it is answered, unless the caller asked for the contrary (``durable=False``).
* The data stay in the folder.  So does the port of a single server, unless another process uses it by then.
* With a certificate its clients speak TLS with it, and it has no port in clear text for them.  It shows new connections a
  renewed certificate once `renew_certificate` was called.

Layout: ``<folder>/server-<i>/{lock, zoo.cfg, server.pem, data/, output.log}``, i from 1, as ZooKeeper numbers its servers.  In
Python they are counted from 0.

Absent on purpose: remote hosts, changes of the ensemble while it runs, and TLS between the members of an ensemble, which only
tests start.  An operator who needs those runs a ZooKeeper of their own.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from replitree import private
from replitree.coordination.supervise import Supervised
from replitree.coordination.url import ROOT_DEFAULT, SCHEME, SECURE_QUERY
from replitree.errors import BadInput, CoordinationUnavailable, ReplitreeError
from replitree.java import find_java
from replitree.tls import NO_FILES, SECURE, Contexts, TlsFailed, TlsFiles, open_connection

LOCALHOST = "127.0.0.1"

START_S_MAX = 60.0
"""How long servers may take to be ready, on a busy machine, in seconds.  An idle one takes less than one."""

STOP_S_MAX = 5.0
"""How long a server may take to end in order before it is killed, in seconds."""

LOCK_S_MAX = 5.0
"""How long to wait for the servers of an earlier owner to be gone, in seconds."""

PACKET_BYTES_MAX = 16 << 20
"""Largest request; ZooKeeper's own limit of 1 MiB is too small for the lists of a table with many parts."""

HEAP_MIB_MAX = 512

_LOOK_S = 0.01
_ASK_S_MAX = 2.0
_ASK_S_FIRST = (
    0.25,
    0.5,
    1.0,
)  # a server that is asked before it has loaded its data may never answer on that connection
_PORTS = range(15_000, 32_000)  # below the range from which systems take the ports of outgoing connections
_JARS = (
    "zookeeper-3.*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*",  # all that one server needs
    "snappy-java-*", "netty-*",  # and an ensemble, or TLS
)  # fmt: skip
JAVA_FLAGS: tuple[str, ...] = (
    f"-Xmx{HEAP_MIB_MAX}m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    f"-Djute.maxbuffer={PACKET_BYTES_MAX}",
    "-Dzookeeper.fastleader.maxNotificationInterval=1000",  # by default servers may look for each other once a minute only
)
"""Options of the Java of each server; tests add some of their own."""

_SETTINGS = """\
tickTime=500
initLimit=10
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""

_TLS_SETTINGS = """\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.type=PEM
ssl.keyStore.location={own}
ssl.trustStore.type=PEM
ssl.trustStore.location={ca}
ssl.clientAuth={wants}
ssl.protocol=TLSv1.3
ssl.enabledProtocols=TLSv1.3,TLSv1.2
"""
PKCS8 = b"-----BEGIN PRIVATE KEY-----"
"""Begins the only form of a private key that Java reads from PEM."""


class EmbeddedZooKeeper:
    """One ZooKeeper server, or an ensemble, with its data in a folder.

    Parameters
    ----------
    folder
        Where data, configuration and output go; made when it is not there.
    servers
        1, or 3 (any odd number) for an ensemble.
    root
        Path that `url` names.
    durable
        False leaves out the syncing of commits.  Only for tests: a crash of the machine then loses what was answered.
    tls
        Authorities, certificate and key, by which clients speak TLS with it; without a certificate they speak clear text.
    wants_certificates
        Whether it takes only clients with a certificate of the authorities.

    Raises
    ------
    JavaMissing
        From `start`: there is no Java 17 or newer.
    BadInput
        From `start`: a file of `tls` can't be read, or the key is not PKCS#8.
    CoordinationUnavailable
        From `start`: the folder is in use, or a server did not become ready in `START_S_MAX` seconds.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        servers: int = 1,
        *,
        root: str = ROOT_DEFAULT,
        durable: bool = True,
        tls: TlsFiles = NO_FILES,
        wants_certificates: bool = False,
    ) -> None:
        if servers < 1 or servers % 2 == 0:
            raise BadInput(f"an ensemble has an odd number of servers, not {servers}")
        self.folder = Path(folder).absolute()
        self._root = root
        self._durable = durable
        secured = _Secured(tls, wants_certificates=wants_certificates) if tls.certificate else None
        self._secured = secured
        self._servers = [_Server(self.folder / f"server-{number}", secured) for number in range(1, servers + 1)]

    @property
    def url(self) -> str:
        """Url of all servers, for `replitree.connect`."""
        places = ",".join(f"{LOCALHOST}:{server.port}" for server in self._servers)
        return f"{SCHEME}{places}{self._root}{'' if self._secured is None else SECURE_QUERY}"

    @property
    def ports(self) -> tuple[int, ...]:
        """Client port of each server."""
        return tuple(server.port for server in self._servers)

    def start(self) -> None:
        """Start all servers and return when each of them serves."""
        java = find_java()
        private.make_root(self.folder)
        try:
            count = len(self._servers)
            ports = free_ports(3 * count)
            if count == 1:
                # Clients that know the server find it again after a restart.
                ports[0] = self._servers[0].old_port() or ports[0]
            own = [(ports[count + index], ports[2 * count + index]) for index in range(count)]
            for index, server in enumerate(self._servers):
                # Before its files are written: the servers of an earlier owner may still read them.
                server.lock()
                # The ensemble as this server is to see it: each member's ports for followers and for elections.
                members = ""
                for other, both in enumerate(own if count > 1 else ()):
                    seen = both if other == index else tuple(self.port_between(index, other, port) for port in both)
                    members += f"server.{other + 1}={LOCALHOST}:{seen[0]}:{seen[1]}\n"
                server.configure(ports[index], members, index + 1)
            for server in self._servers:
                server.launch([str(java), *self._arguments(server)])
            self._wait_ready(range(len(self._servers)))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all servers and release the folder.  Harmless when nothing runs."""
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            server.wait()
            server.unlock()

    def renew_certificate(self) -> None:
        """Give the servers certificate and key as they are now, if their files have changed; else do nothing.

        Files that can't be used yet, as a certificate without its key, change nothing.
        """
        if self._secured is not None:
            for server in self._servers:
                with suppress(BadInput):
                    self._secured.write(server.folder)

    def start_server(self, index: int, *, wait: bool = True) -> None:
        """Start a server that was stopped or killed, on its old port.

        Parameters
        ----------
        index
            Which server, from 0.
        wait
            Return only when it serves.  An ensemble serves when most of its servers run.
        """
        server = self._servers[index]
        server.launch([str(find_java()), *self._arguments(server)])
        if wait:
            self._wait_ready([index])

    def stop_server(self, index: int) -> None:
        """Stop one server in order."""
        self._servers[index].terminate()
        self._servers[index].wait()

    def kill_server(self, index: int) -> None:
        """Kill one server (SIGKILL)."""
        self._servers[index].kill()
        self._servers[index].wait()

    def pid(self, index: int) -> int | None:
        """Return the process id of a running server's Java, or None."""
        return self._servers[index].pid

    def port_between(self, source: int, target: int, port: int) -> int:
        """Return where one server reaches a port of another: the port itself, unless tests put a link in between."""
        del source, target
        return port

    def leader(self) -> int | None:
        """Return the index of the server that leads (the only one leads), or None while there is none."""
        for index, server in enumerate(self._servers):
            if server.mode() in ("leader", "standalone"):
                return index
        return None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _arguments(self, server: _Server) -> list[str]:
        alone = len(self._servers) == 1
        main = "ZooKeeperServerMain" if alone else "quorum.QuorumPeerMain"
        sync = () if self._durable else ("-Dzookeeper.forceSync=no",)
        return [
            *JAVA_FLAGS,
            *sync,
            "-cp",
            find_jars(),
            f"org.apache.zookeeper.server.{main}",
            str(server.configuration),
        ]

    def _wait_ready(self, indexes: Iterable[int]) -> None:
        deadline = time.monotonic() + START_S_MAX
        for index in indexes:
            self._servers[index].wait_ready(deadline)


class _Secured:
    """What servers speak TLS with."""

    def __init__(self, files: TlsFiles, *, wants_certificates: bool) -> None:
        self._files = files
        self._wants = "need" if wants_certificates else "none"
        self.contexts = Contexts(files)
        """Those of a client, for the question whether a server serves."""

    def write(self, folder: Path) -> Path:
        """Write certificate and key into the one file that ZooKeeper reads, unless it has them already; return it.

        Raises
        ------
        BadInput
            A file can't be used; the message names it.
        """
        own, draft = folder / "server.pem", folder / ".server.pem"
        try:
            key, certificate = (Path(file).read_bytes() for file in (self._files.key, self._files.certificate))
        except OSError as error:
            raise BadInput(f"can't read {error.filename}: {error.strerror}") from error
        both = certificate.rstrip() + b"\n" + key
        if own.exists() and own.read_bytes() == both:
            return own
        # Of two files that do not fit each other none is written: ZooKeeper would take no connection.
        Contexts(self._files).server()
        if PKCS8 not in key:
            raise BadInput(
                f"{self._files.key} has a key that Java can't read: the embedded ZooKeeper needs PKCS#8, which"
                f" `openssl pkcs8 -topk8 -nocrypt -in {self._files.key} -out NEW` writes"
            )
        private.write_file(draft, both)
        draft.replace(own)
        return own

    def settings(self, folder: Path) -> str:
        """Return the lines of a server's configuration.  Raises as `write`."""
        ca = Path(self._files.ca).absolute()
        return _TLS_SETTINGS.format(own=_in_ascii(self.write(folder)), ca=_in_ascii(ca), wants=self._wants)


class _Server:
    """One server: its folder, its port, its process."""

    def __init__(self, folder: Path, secured: _Secured | None = None) -> None:
        self.folder = folder
        self._secured = secured
        self.configuration = folder / "zoo.cfg"
        self.output = folder / "output.log"
        self.port = 0
        self._process: Supervised | None = None
        self._lock: int | None = None

    def lock(self) -> None:
        """Take the folder, or wait for the servers of a dead owner to be gone.

        The lock belongs to the open file, which warden and Java inherit: it is free when the last of them is gone.
        """
        if self._lock is not None:
            return
        private.make_folder(self.folder, parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

        def try_lock() -> bool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        # The lock is inherited by warden and Java: it is free when the last of them is gone, not when the owner is.
        if not _wait_until(try_lock, time.monotonic() + LOCK_S_MAX):
            os.close(lock)
            raise CoordinationUnavailable(
                f"{self.folder} is in use by the ZooKeeper of another process; stop that one or choose another folder"
            )
        self._lock = lock

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def old_port(self) -> int | None:
        """Return the port that the server had the last time, if it is free."""
        with suppress(OSError):
            text = self.configuration.read_text("utf-8", "replace")
            found = re.search(r"^(?:secureC|c)lientPort=([0-9]+)$", text, re.MULTILINE)
            if found is not None and _is_free(int(found[1])):
                return int(found[1])
        return None

    def configure(self, port: int, members: str, number: int) -> None:
        self.port = port
        data = self.folder / "data"
        private.make_folder(data, exist_ok=True)
        private.write_file(data / "myid", f"{number}\n".encode())
        name = "clientPort" if self._secured is None else "secureClientPort"
        place = f"dataDir={_escaped(data)}\n{name}={port}\n{name}Address={LOCALHOST}\n"
        place += "" if self._secured is None else self._secured.settings(self.folder)
        private.write_file(self.configuration, (_SETTINGS + place + members).encode())

    def launch(self, command: list[str]) -> None:
        if self.pid is not None:
            return
        assert self._lock is not None, "start() comes first"
        self._process = Supervised(command, self.output, keep=(self._lock,))

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def ended(self) -> bool:
        return self.pid is None

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def wait(self) -> None:
        """Wait until the process is gone; one that does not end in order is killed."""
        if self._process is None:
            return
        if self._process.wait(STOP_S_MAX) is None:
            self._process.kill()
            if self._process.wait(STOP_S_MAX) is None:
                raise ReplitreeError(
                    f"process {self._process.pid} of ZooKeeper did not end within {STOP_S_MAX:.0f} s of SIGKILL: it hangs in"
                    f" the kernel, mostly on a disk that does not answer; {self.folder} can be used again when it is gone"
                )
        self._process = None

    def wait_ready(self, deadline: float) -> None:
        """Wait until it serves."""
        # Short at first: a server that is asked too early may never answer on that connection.
        patience_s = itertools.chain(_ASK_S_FIRST, itertools.repeat(_ASK_S_MAX))
        in_time = _wait_until(lambda: self.mode(next(patience_s)) or self.ended, deadline)
        if not in_time or self.ended:
            raise CoordinationUnavailable(
                f"the embedded ZooKeeper did not start ({'it ended' if in_time else f'not in {START_S_MAX:.0f} s'});"
                f" its output is in {self.output}: {self.last_words()}"
            )

    def mode(self, patience_s: float = _ASK_S_MAX) -> str | None:
        """Return ``leader``, ``follower`` or ``standalone``, or None while it does not serve."""
        if self.ended:
            return None
        contexts = None if self._secured is None else self._secured.contexts
        for line in ask(self.port, "srvr", patience_s, contexts).splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return None

    def last_words(self) -> str:
        with suppress(OSError):
            lines = [line for line in self.output.read_text("utf-8", "replace").splitlines() if "SLF4J" not in line]
            return " | ".join(lines[-5:]) or "(nothing)"
        return "(no output)"


def ask(port: int, word: str, patience_s: float = _ASK_S_MAX, tls: Contexts | None = None) -> str:
    """Ask a ZooKeeper on this machine one of its four-letter words; empty when it does not answer in `patience_s` seconds.

    Parameters
    ----------
    port, word
        Where, and which.
    patience_s
        How long an answer may take, in seconds.
    tls
        What TLS is made with; None: it is asked in clear text.

    Raises
    ------
    CoordinationUnavailable
        Its certificate is not one that its clients would take: waiting does not change that.
    """
    try:
        place = f"{'' if tls is None else SECURE}{LOCALHOST}:{port}"
        with open_connection(place, tls or Contexts(NO_FILES), patience_s) as connection:
            connection.settimeout(patience_s)
            connection.sendall(word.encode())
            with connection.makefile("rb") as answer:
                return answer.read().decode("utf-8", "replace")
    except TlsFailed as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise CoordinationUnavailable(f"the embedded ZooKeeper can't be used: {error}") from error
    except OSError:
        pass
    return ""


def _escaped(path: Path) -> str:
    """Return a path for a Java properties file, in which a backslash would change its meaning."""
    return str(path).replace("\\", "\\\\")


def _in_ascii(path: Path) -> str:
    """Return a path for a Java properties file, which is read as Latin-1: the file is there already, unlike ``dataDir``."""
    units = _escaped(path).encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 0x80 else f"\\u{code:04x}" for code in codes)


def find_jars() -> str:
    """Return the class path of ZooKeeper: the jars of it that PySpark brings along.

    Raises
    ------
    CoordinationUnavailable
        PySpark is not installed, or comes without ZooKeeper.
    """
    spec = find_spec("pyspark")  # where it is, without importing it
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    jars = sorted(jar for pattern in _JARS for jar in folder.glob(f"{pattern}.jar")) if folder else []
    if not any(jar.name.startswith("zookeeper-3") for jar in jars):
        raise CoordinationUnavailable(
            f"no ZooKeeper in {folder or 'pyspark, which is not installed'}: pip install 'replitree[spark]',"
            " or use a ZooKeeper of your own: zk://host:port/path"
        )
    return os.pathsep.join(map(str, jars))


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 on which no process listens.

    They are chosen at random, so that processes that look at the same time rarely find the same ones, and below the range
    of outgoing connections, so that a server that is down for a while finds its port free again.
    """
    found: set[int] = set()
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        if _is_free(port):
            found.add(port)
    return sorted(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server itself does: connections of an earlier one may still linger on the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except (OSError, OverflowError):
            return False
    return True


def _wait_until(condition: Callable[[], object], deadline: float) -> bool:
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True
