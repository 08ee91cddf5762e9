"""A real ZooKeeper by TLS, as docs/tls.md sets it up: the session, watches, the doctor's question, and what failures say."""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from replitree.client.admin.doctor_coordination import ask_servers
from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.coordination.port import make_root
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import BadInput, CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.tls import SECURE, Contexts, TlsFiles, open_connection
from tests.certificates import HOST, Authority
from tests.waiting import wait_for

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    return authority.issue("zookeeper")


@pytest.fixture(scope="module")
def running(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that wants certificates."""
    folder = tmp_path_factory.mktemp("zookeeper") / "a folder, ünusual = 1"
    with EmbeddedZooKeeper(folder, durable=False, tls=files, wants_certificates=True) as server:
        assert server.url == f"zk://{HOST}:{server.ports[0]}/replitree?tls"
        yield server


@pytest.fixture(scope="module")
def port(running: EmbeddedZooKeeper) -> int:
    """Return its port for TLS; it has no other."""
    return running.ports[0]


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


def test_client_without_certificate_hears_that_it_wants_one(port: int, files: TlsFiles) -> None:
    with pytest.raises(CoordinationUnavailable, match=f"{HOST}:{port} refused the connection: .* none was sent"):
        session(port, TlsFiles(files.ca), 3.0)


def test_new_connections_see_a_renewed_certificate_and_sessions_go_on(
    running: EmbeddedZooKeeper, port: int, authority: Authority, files: TlsFiles
) -> None:
    # As of a client that runs: while the new files do not fit each other, it goes on with the old ones.
    contexts = Contexts(files)

    def serial() -> object:
        with open_connection(f"{SECURE}{HOST}:{port}", contexts, 20) as connection:
            assert isinstance(connection, ssl.SSLSocket)
            return (connection.getpeercert() or {})["serialNumber"]

    with closing(session(port, files)) as zk:
        before, number = serial(), zk.session_id
        running.renew_certificate()
        assert serial() == before, "the files are as they were"
        new = authority.issue("next")
        shutil.copy(new.certificate, files.certificate)
        running.renew_certificate()
        assert serial() == before, "the certificate has no key yet"
        shutil.copy(new.key, files.key)
        running.renew_certificate()
        wait_for(lambda: serial() != before, "the new certificate is shown")
        zk.perform(fx.Sync("/"))
        assert zk.session_id == number


def test_embedded_server_that_its_clients_would_refuse_does_not_start(authority: Authority, tmp_path: Path) -> None:
    other_name = authority.issue("other-name", "r9.example")
    with pytest.raises(CoordinationUnavailable, match=r"is for another name: put 127\.0\.0\.1 into its subjectAltName"):
        EmbeddedZooKeeper(tmp_path, durable=False, tls=other_name).start()


def test_key_that_java_can_not_read_is_named(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("old-form")
    key = load_pem_private_key(Path(files.key).read_bytes(), None)
    Path(files.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    with pytest.raises(BadInput, match=rf"openssl pkcs8 -topk8 -nocrypt -in {files.key}"):
        EmbeddedZooKeeper(tmp_path, durable=False, tls=files).start()


def test_clear_text_at_the_port_for_tls_gives_no_session(port: int) -> None:
    with pytest.raises(CoordinationUnavailable, match="answered within"):
        ZooKeeperCoordination(f"zk://{HOST}:{port}/lake", connect_timeout_s=2.0)
