"""A real ZooKeeper by TLS, as docs/tls.md sets it up: the session, watches, the doctor's question, and what failures say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from replitree.client.admin.doctor_coordination import ask_servers
from replitree.coordination import embedded
from replitree.coordination.embedded import EmbeddedZooKeeper, free_ports
from replitree.coordination.port import make_root
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.tls import Contexts, TlsFiles
from tests.certificates import HOST, Authority

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("ca")).issue("zookeeper")


@pytest.fixture(scope="module")
def port(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A ZooKeeper that wants certificates; return its port for TLS."""
    folder = tmp_path_factory.mktemp("zookeeper")
    (secure,) = free_ports(1)
    both = folder / "zk1.pem"
    both.write_bytes(Path(files.certificate).read_bytes() + Path(files.key).read_bytes())
    more = (
        f"secureClientPort={secure}\nsecureClientPortAddress={HOST}\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={both}\nssl.trustStore.location={files.ca}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "_SETTINGS", embedded._SETTINGS + more)  # noqa: SLF001 - more lines of its file
        with EmbeddedZooKeeper(folder / "data", durable=False):
            yield secure


def session(port: int, files: TlsFiles, connect_s: float = 30.0, host: str = HOST) -> ZooKeeperCoordination:
    url = f"zk://{host}:{port}/lake?tls"
    return ZooKeeperCoordination(url, connect_timeout_s=connect_s, tls=Contexts(files))


def test_session_by_tls_reads_and_writes(port: int, files: TlsFiles) -> None:
    with closing(session(port, files)) as zk:
        make_root(zk, "/lake")
        value = os.urandom(300_000)
        assert isinstance(zk.perform(fx.Commit(fx.Create("/lake/a", value), fx.Create("/lake/b", b""))), fx.Applied)
        found = zk.perform(fx.GetMany(("/lake/a", "/lake/b", "/lake/none")))
        assert [each and each.value for each in found.nodes] == [value, b"", None]
        assert zk.perform(fx.Children("/lake")) == ("a", "b")
        zk.reconnect()
        assert zk.perform(fx.Exists("/lake/a"))


def test_doctor_asks_servers_by_tls(port: int, files: TlsFiles) -> None:
    (server,) = ask_servers([(HOST, port)], Contexts(files))
    assert (server.mode, server.reachable) == ("standalone", True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("other authority", "issued by none of the authorities"),
        ("other name", "is for another name: put localhost into its subjectAltName"),
    ],
)
def test_server_that_is_not_verified_is_no_server(
    port: int, files: TlsFiles, tmp_path: Path, change: str, message: str
) -> None:
    ca = Authority(tmp_path, "other").file if change == "other authority" else files.ca
    host = "localhost" if change == "other name" else HOST
    with pytest.raises(CoordinationUnavailable, match=message):
        session(port, TlsFiles(ca, files.certificate, files.key), 3.0, host)


def test_clear_text_at_the_port_for_tls_gives_no_session(port: int) -> None:
    with pytest.raises(CoordinationUnavailable, match="answered within"):
        ZooKeeperCoordination(f"zk://{HOST}:{port}/lake", connect_timeout_s=2.0)
