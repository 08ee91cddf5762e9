"""Access to the page: a key that works once, then a cookie; and what every answer says to the browser.

Guarantees:

* The key in the address works once.  A person or program that finds it later in a terminal, a log or a browser's
  history gets nothing.
* The browser then has a cookie that scripts can't read (``HttpOnly``) and that no other site can make it send
  (``SameSite=Strict``).  It ends with this process.  The cluster's token never leaves this process.
* A request whose ``Host`` is not this machine's loopback is refused: a site that lets its own name point to 127.0.0.1 (DNS
  rebinding) reads nothing.  The port is not compared, because a tunnel may have another one.
* A request that another origin's page has made is refused (``Sec-Fetch-Site``), where the browser says so.
* The page runs no script and no style but its own files, asks no other server, and can't be framed.

Absent on purpose: users and roles.  The page shows what `replitree status` shows, and changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from types import MappingProxyType

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Hosts that a browser on this machine, or at the other end of a tunnel, asks for."""

KEY_BYTES = 32

HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
)
"""What every answer has, a refusal too."""


class Door:
    """The key that is still unused, and the cookie of the browser that used it.

    Parameters
    ----------
    key
        The key in the address.
    """

    def __init__(self, key: str) -> None:
        self._key: bytes | None = _digest(key)
        self._session: bytes | None = None

    def enter(self, key: str) -> str | None:
        """Use the key; return the value of the cookie, or None when it is wrong or was used before."""
        if self._key is None or not hmac.compare_digest(_digest(key), self._key):
            return None
        self._key = None
        cookie = new_key()
        self._session = _digest(cookie)
        return cookie

    def knows(self, cookie: str) -> bool:
        """Whether this is the value of the cookie."""
        return self._session is not None and hmac.compare_digest(_digest(cookie), self._session)


def new_key() -> str:
    """Return a key of `KEY_BYTES` random bytes, as text for an address."""
    return secrets.token_urlsafe(KEY_BYTES)


def is_local(host: str) -> bool:
    """Whether the header ``Host`` names this machine's loopback.

    >>> [is_local(host) for host in ("127.0.0.1:8890", "localhost", "[::1]:80", "evil.example:8890", "127.0.0.1.evil", "")]
    [True, True, True, False, False, False]
    """
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():
        host = name
    return host.lower() in LOOPBACK


def is_own(site: str | None) -> bool:
    """Whether a request was made by the page itself, or typed; by the header ``Sec-Fetch-Site``, None: there is none.

    >>> [is_own(site) for site in (None, "same-origin", "none", "same-site", "cross-site")]
    [True, True, True, False, False]
    """
    return site in {None, "same-origin", "none"}


def _digest(secret: str) -> bytes:
    # Digests have equal lengths, so a comparison tells nothing about the length of the secret either.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
