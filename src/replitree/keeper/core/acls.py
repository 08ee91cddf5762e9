"""Access control lists, identities, and how a connection authenticates.

An ACL is stored as the bytes of its vector, as it is sent.  Identities belong to a connection, not to a session: each request
carries those that its connection had when it came, and they are compared with the ACL of the moment when it is applied.

Schemes: `world:anyone`; `auth`, which stands for the digests of the connection; `digest:user:base64(sha1(user:password))`;
`ip:address[/bits]`.  The identity `super` may do everything.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from functools import lru_cache
from typing import Final, NamedTuple

from replitree.keeper.core.wire import Code, Reader, Refused, buffer_bytes, int_bytes, vector_bytes

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16


class Identity(NamedTuple):
    """The name of a connection in one scheme."""

    scheme: bytes
    id: bytes


class Permission(NamedTuple):
    """One element of an ACL: what (bits) an identity may do."""

    bits: int
    identity: Identity


Identities = tuple[Identity, ...]

ANYONE: Final = Identity(b"world", b"anyone")
SUPER: Final = Identity(b"super", b"")


def encoded(acl: list[Permission]) -> bytes:
    """Return an ACL as it is sent and stored."""
    return vector_bytes(
        [int_bytes(each.bits) + buffer_bytes(each.identity.scheme) + buffer_bytes(each.identity.id) for each in acl]
    )


_OPEN: Final = [Permission(31, ANYONE)]
OPEN: Final = encoded(_OPEN)
READ_ONLY: Final = encoded([Permission(READ, ANYONE)])


def read_acl(reader: Reader) -> list[Permission] | None:
    """Read an ACL of a request, None for null; in an element, null is empty text."""
    # Nearly all requests have this one.
    if reader.data.startswith(OPEN, reader.at):
        reader.at += len(OPEN)
        return _OPEN

    def element() -> Permission:
        return Permission(reader.integer(), Identity(reader.text_or_none() or b"", reader.text_or_none() or b""))

    return reader.vector(element)


@lru_cache(maxsize=4096)
def decoded(acl: bytes) -> tuple[Permission, ...]:
    """Return the elements of a stored ACL."""
    return tuple(read_acl(Reader(acl)) or ())


def checked_acl(acl: list[Permission] | None, identities: Identities) -> bytes:
    """Return what to store for an ACL that a request asks for.

    Raises
    ------
    Refused
        `INVALID_ACL`: it is empty, or an element is malformed, or it asks for `auth` on a connection without a digest.
    """
    if acl is _OPEN:
        return OPEN
    found = list[Permission]()
    for each in dict.fromkeys(acl or ()):
        scheme, name = each.identity
        if scheme == b"auth":
            # An address is known of every connection: it does not count as having authenticated.
            mine = [identity for identity in identities if identity.scheme == b"digest"]
            if not mine:
                raise Refused(Code.INVALID_ACL)
            found.extend(Permission(each.bits, identity) for identity in mine)
        elif (
            each.identity == ANYONE
            or (scheme == b"digest" and _is_digest(name))
            or (scheme == b"ip" and _network(name))
        ):
            found.append(each)
        else:
            raise Refused(Code.INVALID_ACL)
    if not found:
        raise Refused(Code.INVALID_ACL)
    return encoded(found)


def permits(acl: bytes, bits: int, identities: Identities) -> bool:
    """Whether one of these identities may do one of these things.

    Parameters
    ----------
    acl
        A stored ACL.
    bits
        The permissions of which one is enough.
    identities
        Those of the connection.
    """
    if acl == OPEN or SUPER in identities:
        return True
    for each in decoded(acl):
        if each.bits & bits:
            if each.identity == ANYONE:
                return True
            if any(_matches(mine, each.identity) for mine in identities):
                return True
    return False


def shown(acl: bytes, identities: Identities) -> bytes:
    """Return an ACL as a reader may see it: without ADMIN the digests are hidden."""
    if permits(acl, ADMIN, identities):
        return acl
    return encoded([Permission(each.bits, _hidden(each.identity)) for each in decoded(acl)])


def _hidden(identity: Identity) -> Identity:
    user, colon, _ = identity.id.partition(b":")
    return Identity(identity.scheme, user + b":x") if colon and identity.scheme == b"digest" else identity


def _matches(mine: Identity, wanted: Identity) -> bool:
    if mine.scheme != wanted.scheme:
        return False
    if mine.scheme == b"ip":
        address, network = _network(mine.id), _network(wanted.id)
        return bool(address and network and address.version == network.version and address.network_address in network)
    return mine.id == wanted.id


def _is_digest(name: bytes) -> bool:
    # As Java splits: empty strings at the end do not count.
    return len(name.rstrip(b":").split(b":")) == 2


@lru_cache(maxsize=4096)
def _network(name: bytes) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    address, slash, bits = name.partition(b"/")
    try:
        found = ipaddress.ip_address(address.decode("ascii"))
        if slash and not bits.isdigit():
            return None
        return ipaddress.ip_network((found, int(bits) if slash else found.max_prefixlen), strict=False)
    except ValueError:
        return None


# --- authentication ----------------------------------------------------------------------------------------------------------


def digest_of(credentials: bytes) -> bytes:
    """Return the id of a user and a password.

    >>> digest_of(b"u:p")
    b'u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ='
    """
    # SHA-1 is what the protocol prescribes; the password never leaves this function.
    user = credentials.split(b":", 1)[0]
    return user + b":" + base64.b64encode(hashlib.sha1(credentials).digest())  # noqa: S324


def authenticated(scheme: bytes, credentials: bytes, super_digest: bytes | None) -> Identities:
    """Return the identities that a connection gains.

    Parameters
    ----------
    scheme
        `digest`, or `ip`, which adds nothing.
    credentials
        For `digest`, user and password with a colon between.
    super_digest
        The digest that makes a connection `super`; None if there is none.

    Raises
    ------
    Refused
        `AUTH_FAILED`: there is no such scheme.
    """
    if scheme == b"ip":
        return ()
    if scheme != b"digest":
        raise Refused(Code.AUTH_FAILED)
    mine = Identity(b"digest", digest_of(credentials))
    return (SUPER, mine) if mine.id == super_digest else (mine,)


def user_of(identity: Identity) -> bytes:
    """Return the name that `whoAmI` shows."""
    return identity.id.split(b":", 1)[0] if identity.scheme == b"digest" else identity.id
