"""Replicas and clients by TLS: real handshakes on real sockets, and what each failure says."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from replitree.client.transport.http import HttpClient
from replitree.errors import BadInput, ReplicaUnavailable
from replitree.tls import LOOK_S, NO_FILES, Contexts, TlsFiles, open_connection, split_address
from tests.certificates import Authority
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, rows
from tests.waiting import wait_for


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_of(files: TlsFiles, **more: object) -> dict[str, Any]:
    return {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key, **more}


@contextmanager
def one_server(folder: Path, **settings: Any) -> Iterator[Node]:
    """Start a replica without tables."""
    cluster = InProcessCluster(folder, 1, **settings)
    try:
        yield cluster.nodes[0]
    finally:
        cluster.close()


def health(address: str, tls: TlsFiles = NO_FILES) -> int:
    """Ask a replica how it is, on a fresh connection; return the status."""
    with closing(HttpClient(TOKEN, tls)) as client:
        return client.request(address, "GET", "/health", timeout_s=20).status


def test_replicas_and_clients_speak_tls(tmp_path: Path, authority: Authority) -> None:
    files = authority.issue()
    cluster = InProcessCluster(tmp_path, 2, **settings_of(files))
    try:
        cluster.create_table()
        with closing(cluster.connect(TlsFiles(authority.file))) as connection:
            table = connection.table("t")
            table.insert(rows(0, 1000), token="one")
            table.insert(rows(1000, 200_000), token="two")
            assert len(table.to_arrow()) == 201_000
            assert all(each.address.startswith("https://127.0.0.1:") for each in table.replicas())
        # The other replica has fetched the parts, by TLS: no other port is open.
        for node in cluster.nodes:
            wait_for(lambda node=node: len(node.keys()) == 201_000, f"{node.name} has all rows")  # type: ignore[misc]
    finally:
        cluster.close()


def test_replica_that_wants_certificates_takes_the_authority_s_clients_and_its_peers(
    tmp_path: Path, authority: Authority
) -> None:
    own = authority.issue()
    cluster = InProcessCluster(tmp_path, 2, **settings_of(own, tls_clients="with_certificate"))
    try:
        cluster.create_table()
        with closing(cluster.connect(authority.issue("client", "client.example"))) as connection:
            connection.table("t").insert(rows(0, 10))
        cluster.wait_equal(list(range(10)))
        address = cluster.nodes[0].address
        with pytest.raises(ReplicaUnavailable, match="it wants a certificate from its clients, and none was sent"):
            health(address, TlsFiles(authority.file))
        stranger = Authority(tmp_path, "other").issue("stranger", "client.example")
        with pytest.raises(ReplicaUnavailable, match="it does not know the CA that has issued our certificate"):
            health(address, TlsFiles(authority.file, stranger.certificate, stranger.key))
        ended = authority.issue("ended", "client.example", ended=True)
        with pytest.raises(ReplicaUnavailable, match="our certificate has expired"):
            health(address, ended)
    finally:
        cluster.close()


def test_certificate_of_another_authority_is_refused(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path, "other")
    with one_server(tmp_path, **settings_of(authority.issue())) as node:
        assert health(node.address, TlsFiles(authority.file)) == 200
        with pytest.raises(ReplicaUnavailable, match=rf"issued by none of the authorities in {other.file}"):
            health(node.address, TlsFiles(other.file))
        with pytest.raises(ReplicaUnavailable, match="no authority that this machine trusts"):
            health(node.address)


def test_expired_certificate_is_refused(tmp_path: Path, authority: Authority) -> None:
    settings = settings_of(authority.issue(ended=True))
    with one_server(tmp_path, **settings) as node, pytest.raises(ReplicaUnavailable, match="expired: renew it there"):
        health(node.address, TlsFiles(authority.file))


def test_certificate_for_another_name_is_refused(tmp_path: Path, authority: Authority) -> None:
    settings = settings_of(authority.issue(host="r9.example"))
    why = r"is for another name: put 127\.0\.0\.1 into its subjectAltName"
    with one_server(tmp_path, **settings) as node, pytest.raises(ReplicaUnavailable, match=why):
        health(node.address, TlsFiles(authority.file))


def test_client_in_clear_text_hears_that_the_port_speaks_tls(tmp_path: Path, authority: Authority) -> None:
    with one_server(tmp_path, **settings_of(authority.issue())) as node:
        place = split_address(node.address)[1]
        with closing(http.client.HTTPConnection(place, timeout=20)) as connection:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            assert (answer.status, b"this port speaks TLS only" in answer.read()) == (400, True)
        with pytest.raises(BadInput, match="this port speaks TLS only"), closing(HttpClient(TOKEN)) as client:
            client.request(place, "GET", "/v1/status", timeout_s=20).content()


def test_client_of_tls_hears_that_the_port_speaks_clear_text(tmp_path: Path, authority: Authority) -> None:
    with one_server(tmp_path) as node:
        with pytest.raises(ReplicaUnavailable, match="answers in clear text, without TLS"):
            health(f"https://{node.address}", TlsFiles(authority.file))
        with pytest.raises(ReplicaUnavailable, match="speaks clear text, and this client wants TLS"):
            health(node.address, TlsFiles(authority.file))
        assert health(node.address) == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused(tmp_path: Path, authority: Authority) -> None:
    with one_server(tmp_path, **settings_of(authority.issue())) as node:
        context = ssl.create_default_context(cafile=authority.file)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        host, _, port = split_address(node.address)[1].partition(":")
        with (
            socket.create_connection((host, int(port)), 20) as plain,
            pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
        ):
            context.wrap_socket(plain, server_hostname=host)


def serial(address: str, authority: Authority) -> Any:
    """Return the number of the certificate that a server shows to a new connection."""
    with closing(open_connection(address, Contexts(TlsFiles(authority.file)), 20)) as connection:
        assert isinstance(connection, ssl.SSLSocket)
        shown = connection.getpeercert()
        assert shown is not None
        return shown["serialNumber"]


def test_new_files_are_read_and_open_connections_stay(tmp_path: Path, authority: Authority) -> None:
    files = authority.issue()
    trusted = TlsFiles(authority.file)
    with one_server(tmp_path, **settings_of(files)) as node, closing(HttpClient(TOKEN, trusted)) as client:
        assert client.request(node.address, "GET", "/health", timeout_s=20).status == 200
        (kept,) = client._kept.connections.open.values()  # noqa: SLF001 - the connection itself must stay
        before = serial(node.address, authority)
        authority.issue()
        wait_for(lambda: serial(node.address, authority) != before, "the new certificate is shown")
        assert client.request(node.address, "GET", "/health", timeout_s=20).status == 200
        assert list(client._kept.connections.open.values()) == [kept]  # noqa: SLF001


def test_certificate_without_its_key_yet_does_not_end_the_service(tmp_path: Path, authority: Authority) -> None:
    files = authority.issue()
    with one_server(tmp_path, **settings_of(files)) as node:
        before = serial(node.address, authority)
        new = authority.issue("next")
        shutil.copy(new.certificate, files.certificate)
        # The first connection after `LOOK_S` seconds makes the server look.
        wait_for(lambda: serial(node.address, authority) and node.tls.problem, "the mistake is found", 20 * LOOK_S)
        assert "does not hold a certificate with the key in" in node.tls.problem
        assert serial(node.address, authority) == before
        shutil.copy(new.key, files.key)
        wait_for(lambda: serial(node.address, authority) != before, "the new pair is used")
        assert not node.tls.problem


def test_connections_before_the_handshake_count_as_those_without_the_token(
    tmp_path: Path, authority: Authority
) -> None:
    settings = settings_of(authority.issue(), connections_without_token_max=4)
    with one_server(tmp_path, **settings) as node:
        host, _, port = split_address(node.address)[1].partition(":")
        silent = [socket.create_connection((host, int(port)), 20) for _ in range(8)]
        try:
            # A client that says what it wants is served all the same, and the oldest silent ones are gone.
            assert health(node.address, TlsFiles(authority.file)) == 200
            assert silent[0].recv(1) == b""
            wait_for(lambda: len(node.fast_path.connections) <= 5, "the oldest are closed")
        finally:
            for each in silent:
                each.close()
        wait_for(lambda: not node.fast_path.connections, "closed connections are forgotten")


def test_garbage_after_the_first_byte_ends_a_handshake(tmp_path: Path, authority: Authority) -> None:
    with one_server(tmp_path, **settings_of(authority.issue())) as node:
        host, _, port = split_address(node.address)[1].partition(":")
        with socket.create_connection((host, int(port)), 20) as connection:
            connection.sendall(b"\x16" + os.urandom(400))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(100):
                pass
        assert health(node.address, TlsFiles(authority.file)) == 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.key, "does not hold a certificate with the key"),
        (lambda files: files.ca + ".none", "can't read"),
    ],
)
def test_file_that_is_not_what_it_should_be_is_named(authority: Authority, change: Any, message: str) -> None:
    files = authority.issue()
    with pytest.raises(BadInput, match=message):
        Contexts(TlsFiles(files.ca, change(files), files.key)).server()
