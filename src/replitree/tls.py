"""TLS: the one place that makes SSL contexts, for servers and for clients, and the sentences about handshakes that fail.

Guarantees:

* TLS 1.2 is the oldest version that is spoken.  A client verifies the server's certificate and its host name, always.
* A client that was given a CA file, or a certificate, speaks to no server in clear text (`Contexts.is_strict`), unless it is
  told to while a cluster is changed over.
* Files that change are read anew when the next connection begins, at most once in `LOOK_S` seconds.  Connections that are open
  go on with what they began with.  While the new files can't be used (a certificate whose key has not been replaced yet), new
  connections get the old ones, and `Contexts.problem` says why.
* Only paths travel to other processes (`TlsFiles`).  The bytes of a key are in no object of this module.

An address ``host:port`` is served in clear text, ``https://host:port`` by TLS: that is what replicas write into coordination.

Absent on purpose: revocation lists, and keys with a passphrase, which a server that starts at night can't ask for.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from typing_extensions import override

from replitree.errors import BadInput

SECURE = "https://"
"""Begins the address of a server that speaks TLS."""

LOOK_S = 1.0
"""Seconds between two looks whether the files have changed."""

HANDSHAKE_BYTE = 0x16
"""The first byte that a client of TLS sends, and no client of HTTP does."""

HANDSHAKE_S = 10.0
"""Seconds that a handshake may take at a client."""

_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
"""Codes of OpenSSL for what is wrong with a certificate."""

_REFUSED = {
    "CERTIFICATE_REQUIRED": "it wants a certificate from its clients, and none was sent",
    "UNKNOWN_CA": "it does not know the CA that has issued our certificate",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "BAD_CERTIFICATE": "it refused our certificate, or wants one and none was sent",
    "UNSUPPORTED_CERTIFICATE": "our certificate is not one for clients",
    "CERTIFICATE_UNKNOWN": "it refused our certificate",
    "HANDSHAKE_FAILURE": "it wants a certificate from its clients, or has no cipher in common with us",
    "PROTOCOL_VERSION": "it has no version of TLS in common with us",
}
"""What the alerts of a server mean, by the end of OpenSSL's name for them."""


class TlsFiles(msgspec.Struct, frozen=True):
    """The paths of PEM files; an empty one is not there.

    Attributes
    ----------
    ca
        Certificates of the authorities that are trusted; without it a client trusts those of the operating system.
    certificate, key
        The own certificate, with those between it and the authority, and its private key.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""

    def check(self, names: tuple[str, str, str]) -> TlsFiles:
        """Return these files when they fit each other; `names`: of the three settings, for the message.

        Raises
        ------
        BadInput
            A certificate has no key, or a key no certificate.
        """
        if bool(self.certificate) != bool(self.key):
            given, missing = (names[1], names[2]) if self.certificate else (names[2], names[1])
            raise BadInput(f"{given} is set and {missing} is not: a certificate and its key are given together")
        return self


NO_FILES = TlsFiles()
"""Nothing is given: a client trusts the authorities of the operating system."""


class Contexts:
    """The SSL contexts of one set of files.  Any thread may use them.

    Parameters
    ----------
    files
        What they are made of.
    wants_certificates
        Whether a server takes only clients with a certificate of the CA.
    takes_clear_text
        Whether a client that has files connects to servers in clear text all the same.

    Raises
    ------
    BadInput
        From `client` and `server`, the first time: a file can't be read, or is no such file; the message names it.
    """

    def __init__(self, files: TlsFiles, *, wants_certificates: bool = False, takes_clear_text: bool = False) -> None:
        self.files = files
        self.is_strict = files != NO_FILES and not takes_clear_text
        """Whether a client refuses servers that speak clear text."""
        self.problem: str = ""
        self._wants_certificates = wants_certificates
        self._lock = threading.Lock()
        self._made: dict[bool, ssl.SSLContext] = {}
        self._stamps: tuple[object, ...] = ()
        self._looked_at = -LOOK_S

    def client(self) -> ssl.SSLContext:
        """Return the context of a connection that begins now, as its client."""
        return self._current(is_server=False)

    def server(self) -> ssl.SSLContext:
        """Return the context of a connection that begins now, as its server."""
        return self._current(is_server=True)

    def _current(self, *, is_server: bool) -> ssl.SSLContext:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_S or is_server not in self._made:
                self._looked_at = now
                # The stamps are taken before the files are read: a change in between is seen at the next look.
                stamps = tuple(map(_stamp, (self.files.ca, self.files.certificate, self.files.key)))
                if stamps != self._stamps or self.problem or is_server not in self._made:
                    self._renew(is_server=is_server)
                    self._stamps = stamps
            return self._made[is_server]

    def _renew(self, *, is_server: bool) -> None:
        try:
            made = {role: self._make(is_server=role) for role in {is_server, *self._made}}
        except BadInput as error:
            if is_server not in self._made:
                raise
            self.problem = str(error)
            return
        self._made, self.problem = made, ""

    def _make(self, *, is_server: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if is_server:
            context.sslobject_class = _ServerSide
            # Nothing may come on an idle connection: a client takes that for its end (`replitree.client.transport.http`).
            context.num_tickets = 0
            context.verify_mode = ssl.CERT_REQUIRED if self._wants_certificates else ssl.CERT_NONE
        files = self.files
        if files.ca:
            _read_file(files.ca, "certificates of authorities", lambda: context.load_verify_locations(files.ca))
        elif not is_server:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if files.certificate:
            _read_file(files.key, "a private key", lambda: None)

            def load() -> None:
                context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)

            _read_file(files.certificate, f"a certificate with the key in {files.key}", load)
        return context


class _ServerSide(ssl.SSLObject):
    """A server's side of one connection: when a handshake fails the client is told why.

    asyncio throws the alert away that OpenSSL has written for the client, unless the handshake seems to go on.
    """

    _failure: ssl.SSLError | None = None

    @override
    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._failure = error
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the alert is sent first") from error


class TlsFailed(OSError):
    """There is no connection by TLS, and nothing was sent; the message is a sentence that says what to do."""


def open_connection(address: str, contexts: Contexts, connect_s: float) -> socket.socket:
    """Connect to a server as its address says, and verify it.

    Parameters
    ----------
    address
        ``host:port`` or ``https://host:port``.
    contexts
        What a connection by TLS is made with.
    connect_s
        How long the server may take to accept the connection, in seconds.

    Raises
    ------
    TlsFailed
        It speaks no TLS, or is not the one that it should be; or a file of ours can't be used.
    OSError
        It does not answer.
    """
    is_secure, place = split_address(address)
    if contexts.is_strict and not is_secure:
        raise TlsFailed(
            f"{address} speaks clear text, and this client wants TLS (tls_ca): give its server tls_certificate and tls_key"
        )
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    connection = socket.create_connection((host, int(port)), connect_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_secure:
            connection.settimeout(HANDSHAKE_S)
            connection = contexts.client().wrap_socket(connection, server_hostname=host)
    except BadInput as error:
        connection.close()
        raise TlsFailed(str(error)) from error
    except OSError as error:
        connection.close()
        why = why_failed(error, place, contexts.files.ca)
        raise TlsFailed(why or f"no TLS with {place}: {error.strerror or error}") from error
    return connection


def refusal(error: Exception, address: str, connection: socket.socket) -> str | None:
    """Return why a server has refused our certificate when the first request was on its way; None: it has not.

    By TLS 1.3 a server says so only then.  It has read nothing of the request: certainly nothing was done.
    """
    if isinstance(error, ConnectionError) and isinstance(connection, ssl.SSLSocket):
        # The server's last words may still lie here.
        try:
            connection.recv(1)
        except OSError as last:
            error = last
    is_alert = isinstance(error, ssl.SSLError) and any((error.reason or "").endswith(each) for each in _REFUSED)
    return why_failed(error, split_address(address)[1]) if is_alert else None


def _stamp(path: str) -> object:
    """Return what changes with a file."""
    try:
        found = Path(path).stat() if path else None
    except OSError as error:
        return error.errno
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def _read_file(path: str, what: str, read: Callable[[], object]) -> None:
    try:
        # OpenSSL's own message has no path.
        with Path(path).open("rb"):
            read()
    except ssl.SSLError as error:
        raise BadInput(f"{path} does not hold {what}, as PEM: {error.reason or error}") from error
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror or error}") from error


def _no_passphrase() -> str:
    raise BadInput(
        "the private key has a passphrase, which a server can't ask for: `openssl pkey -in KEY -out NEW` removes it"
    )


def split_address(address: str) -> tuple[bool, str]:
    """Return whether an address is served by TLS, and its ``host:port``.

    >>> split_address("https://r1.example:9000"), split_address("127.0.0.1:9000")
    ((True, 'r1.example:9000'), (False, '127.0.0.1:9000'))
    """
    return address.startswith(SECURE), address.removeprefix(SECURE)


def why_failed(error: Exception, address: str, ca: str = "") -> str | None:
    """Return what is wrong between a client and a server, and what to do, in a sentence; None: it is not about TLS.

    Parameters
    ----------
    error
        What a handshake, or the first read after it, has raised.
    address
        Of the server.
    ca
        The file of the authorities that the client trusts.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _why_not_verified(error, address, ca)
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "PACKET_LENGTH_TOO_LONG"):
            return f"{address} answers in clear text, without TLS: give its server tls_certificate and tls_key"
        for end, meaning in _REFUSED.items():
            if reason.endswith(end):
                return f"{address} refused the connection: {meaning}; see tls_certificate and tls_key of the client"
        return f"no TLS with {address}: {reason or error}"
    return None


def _why_not_verified(error: ssl.SSLCertVerificationError, address: str, ca: str) -> str:
    if error.verify_code == _EXPIRED:
        return f"the certificate of {address} has expired: renew it there; the server reads new files by itself"
    if error.verify_code == _NOT_YET:
        return f"the certificate of {address} is not valid yet: compare the clocks of both machines"
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        host = address.rpartition(":")[0]
        return (
            f"the certificate of {address} is for another name: put {host} into its subjectAltName, or let the server advertise"
            " a name that is there"
        )
    known = f"none of the authorities in {ca}" if ca else "no authority that this machine trusts (tls_ca names others)"
    return f"the certificate of {address} was issued by {known}: {error.verify_message}"


__all__ = [
    "HANDSHAKE_BYTE",
    "LOOK_S",
    "NO_FILES",
    "SECURE",
    "Contexts",
    "TlsFailed",
    "TlsFiles",
    "open_connection",
    "refusal",
    "split_address",
    "why_failed",
]
