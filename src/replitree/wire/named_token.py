"""Named tokens: what a client sends when it has a name, a role and perhaps only some tables; and what servers keep of it.

::

    named.<name>.<secret>

Servers keep two hashes of the whole text, never the text: one is compared with what a client sends, and with the other the
client's tickets are signed (`replitree.wire.ticket`).  So a thief of the servers' file can sign tickets, which open files of
tables and uploads, and can't send the token itself.

The cluster's own token has no name.  It may do everything, and replicas use it among each other.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from enum import StrEnum
from typing import NamedTuple

from replitree.errors import BadInput

PREFIX = "named."
SECRET_BYTES = 32

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Role(StrEnum):
    """What a token is for; each includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Tell whether this role may do what another one is needed for.

        >>> Role.WRITE.covers(Role.READ), Role.READ.covers(Role.WRITE)
        (True, False)
        """
        order = tuple(Role)
        return order.index(self) >= order.index(needed)


class NamedToken(NamedTuple):
    """A token's name and its text."""

    name: str
    text: str

    @property
    def digest(self) -> str:
        """What a server compares."""
        return hashlib.sha256(b"token:" + self.text.encode()).hexdigest()

    @property
    def ticket_key(self) -> str:
        """What its tickets are signed with."""
        return hashlib.sha256(b"ticket:" + self.text.encode()).hexdigest()


def make_named_token(name: str) -> NamedToken:
    """Return a fresh token.

    Raises
    ------
    BadInput
        The name can't be one.
    """
    if _NAME.fullmatch(name) is None:
        raise BadInput(
            f"{name!r} can't be a token's name: use small letters, digits, _ and -, a letter or digit first, at most 63"
        )
    return NamedToken(name, f"{PREFIX}{name}.{secrets.token_urlsafe(SECRET_BYTES)}")


def read_named_token(text: str) -> NamedToken | None:
    """Return the named token that a text is; None for any other text, such as the cluster's own token.

    >>> read_named_token("named.etl.s3cret").name, read_named_token("s3cret")
    ('etl', None)
    """
    name, _, secret = text.removeprefix(PREFIX).partition(".")
    if not text.startswith(PREFIX) or not secret or _NAME.fullmatch(name) is None:
        return None
    return NamedToken(name, text)


__all__ = ["PREFIX", "NamedToken", "Role", "make_named_token", "read_named_token"]
