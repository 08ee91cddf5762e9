"""Where coordination is: ``zk://[user:password@]host[:port][,host[:port]…][/path][?tls]``.

Guarantees:

* What `parse_url` returns can be used as it stands: at least one host, valid ports, a valid path that is not the root itself.
* The password is in `Credentials.password` and nowhere else: not in ``repr``, not in ``str``, not in a message of ours, not
  even when the url is wrong and can't be taken apart.

``?tls`` says that the servers are spoken to by TLS; what that is made with is no part of the url (`replitree.tls`).
Special characters in user and password are percent-encoded.  Credentials may also come from the environment, where no
process list shows them: ``REPLITREE_ZK_AUTH=user:password``.  Those of the url win.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from replitree.errors import BadInput

SCHEME = "zk://"
PORT_DEFAULT = 2181
ROOT_DEFAULT = "/replitree"
AUTH_VARIABLE = "REPLITREE_ZK_AUTH"

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""Characters that ZooKeeper refuses in a path."""

SECURE_QUERY = "?tls"
"""Ends a url whose servers speak TLS."""

_FORM = "zk://[user:password@]host[:port][,host[:port]]/path[?tls]"


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password, for ZooKeeper's digest scheme."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CoordinationUrl:
    """A url taken apart.  ``str`` gives it back without the password."""

    hosts: tuple[tuple[str, int], ...]
    root: str = ROOT_DEFAULT
    credentials: Credentials | None = None
    is_secure: bool = field(default=False, repr=False)

    @property
    def servers(self) -> str:
        """The servers as ZooKeeper clients want them: ``host:port,host:port``."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    def __str__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Return the url without the password."""
        user = f"{self.credentials.user}@" if self.credentials else ""
        return f"{SCHEME}{user}{self.servers}{self.root}{SECURE_QUERY if self.is_secure else ''}"


def parse_url(url: str, auth: str | None = None) -> CoordinationUrl:
    """Take a coordination url apart.

    Parameters
    ----------
    url
        ``zk://[user:password@]host[:port][,host[:port]…][/path][?tls]``; the path is `ROOT_DEFAULT` when there is none.
    auth
        ``user:password``, used when the url has none.  By default what ``REPLITREE_ZK_AUTH`` says.

    Raises
    ------
    BadInput
        It is not such a url; the message says which piece is wrong and never shows a password.

    Examples
    --------
    >>> parse_url("zk://me:secret@10.0.0.1:2181,10.0.0.2/lake", auth="")
    CoordinationUrl(hosts=(('10.0.0.1', 2181), ('10.0.0.2', 2181)), root='/lake', credentials=Credentials(user='me'))
    >>> str(parse_url("zk://localhost", auth="me:secret"))
    'zk://me@localhost:2181/replitree'
    >>> str(parse_url("zk://zk1:2281/lake?tls", auth=""))
    'zk://zk1:2281/lake?tls'
    """
    if not url.startswith(SCHEME):
        raise BadInput(f"a coordination url starts with {SCHEME} and has the form {_FORM}")
    # The password may hold an unencoded @ or /, so everything up to the last @ belongs to the credentials.
    secret, has_secret, public = url.removeprefix(SCHEME).rpartition("@")
    is_secure = public.endswith(SECURE_QUERY)
    servers, _, path = public.removesuffix(SECURE_QUERY).partition("/")
    credentials: Credentials | None = None
    if has_secret:
        user, colon, password = secret.partition(":")
        credentials = _check_credentials("the url", unquote(user), colon, unquote(password))
    elif auth := os.environ.get(AUTH_VARIABLE, "") if auth is None else auth:
        credentials = _check_credentials(AUTH_VARIABLE, *auth.partition(":"))
    hosts: list[tuple[str, int]] = []
    for server in servers.split(","):
        found = _HOST.fullmatch(server)
        # The text is not shown: a url without its @ has the password here.
        if found is None:
            raise BadInput(f"a server in the coordination url is not host or host:port; the form is {_FORM}")
        port = int(found["port"] or PORT_DEFAULT)
        if not 1 <= port <= 65535:
            raise BadInput("a port in the coordination url is not between 1 and 65535")
        hosts.append((found["host"], port))
    root, path = ROOT_DEFAULT, path.rstrip("/")
    if path:
        root, parts = f"/{path}", path.split("/")
        # ZooKeeper refuses these when a node is created; here the message says which part of the url is wrong.
        if "" in parts or "." in parts or ".." in parts or parts[0] == "zookeeper" or _UNPRINTABLE.search(path):
            raise BadInput(f"the path /{path!a} of the coordination url is not a path that ZooKeeper allows")
    return CoordinationUrl(tuple(hosts), root, credentials, is_secure)


def _check_credentials(where: str, user: str, colon: str, password: str) -> Credentials:
    if not (user and colon and password) or ":" in user:
        raise BadInput(f"the credentials in {where} must have the form user:password, without a colon in the user")
    return Credentials(user, password)
