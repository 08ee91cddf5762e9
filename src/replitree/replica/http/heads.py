"""Heads of HTTP requests, as far as the fast path reads them: is it a plain request, which token does it have, is it public.

The general server reads a head that is not plain once more.  The token is looked for in every head, by a strict rule: its
header stands there once, exactly.  A head that two parsers may read differently has no token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

INSERT, SNAPSHOT = "insert", "snapshot"

_PLAIN = re.compile(rb"(POST|GET) /v1/tables/([A-Za-z0-9_-]+)/(insert|snapshot)(?:\?([!-~]*))? HTTP/1\.1")
_METHODS = {INSERT: b"POST", SNAPSHOT: b"GET"}
_HEADER = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([ -~]*?)[ \t]*")
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"content-encoding", b"connection", b"trailer"})
_REQUEST = re.compile(rb"[A-Z]+ [!-~]+ HTTP/1\.[01]")
_PUBLIC = re.compile(rb"(GET|HEAD) /health(?:\?([!-~]*))? HTTP/1\.([01])")
_AUTHORIZATION = re.compile(rb"\r\nauthorization:[ \t]*([ -~]*?)[ \t]*(?=\r\n|\Z)", re.IGNORECASE)
_MENTIONED = re.compile(rb"\r\n[ \t]*authorization", re.IGNORECASE)
_ENDS_OR_HAS_BODY = re.compile(
    rb"\r\n(?:connection:[ \t]*close|content-length:[ \t]*[1-9]|transfer-encoding)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a plain request says."""

    action: str
    table: str
    query: str
    authorization: str
    length: int
    traceparent: str = ""


def parse_head(head: bytes) -> Head | None:
    r"""Read a request's head, without the empty line at its end; None when the general server has to read it.

    >>> parse_head(b"POST /v1/tables/t/insert?token=a HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 7")
    Head(action='insert', table='t', query='token=a', authorization='Bearer x', length=7, traceparent='')
    >>> parse_head(b"GET /health HTTP/1.1")
    """
    line, *rest = head.split(b"\r\n")
    asked = _PLAIN.fullmatch(line)
    if asked is None or asked[1] != _METHODS[action := asked[3].decode()]:
        return None
    headers: dict[bytes, bytes] = {}
    for text in rest:
        found = _HEADER.fullmatch(text)
        if found is None or (name := found[1].lower()) in headers or name in _UNUSUAL:
            return None
        headers[name] = found[2]
    length = headers.get(b"content-length", b"0" if action == SNAPSHOT else b"")
    if not (length.isdigit() and len(length) < 10):
        return None
    authorization = headers.get(b"authorization", b"").decode()
    trace = headers.get(b"traceparent", b"").decode()
    return Head(action, asked[2].decode(), (asked[4] or b"").decode(), authorization, int(length), trace)


def is_request(head: bytes) -> bool:
    """Tell whether a head begins as a request of HTTP/1.0 or 1.1."""
    return _REQUEST.match(head.split(b"\r\n", 1)[0] + b" ") is not None and b"\n" not in head.replace(b"\r\n", b"")


def authorization_of(head: bytes) -> str:
    r"""Return the ``Authorization`` header of any head; "" unless it stands there once, in ASCII.

    >>> authorization_of(b"GET / HTTP/1.1\r\nAUTHORIZATION:  Bearer x ")
    'Bearer x'
    >>> authorization_of(b"GET / HTTP/1.1\r\nAuthorization : Bearer x")
    ''
    """
    found = _AUTHORIZATION.findall(head)
    return found[0].decode() if len(found) == 1 == len(_MENTIONED.findall(head)) else ""


class Public(NamedTuple):
    """A request that needs no token: whether its connection stays open, whether it wants the body, and what it asks."""

    stays: bool
    wants_body: bool
    asks_ready: bool


def read_public(head: bytes) -> Public | None:
    r"""Return how a request asks for `/health`, which needs no token; None for any other request.

    >>> read_public(b"GET /health HTTP/1.1\r\nHost: x")
    Public(stays=True, wants_body=True, asks_ready=False)
    >>> read_public(b"GET /v1/status HTTP/1.1")
    """
    asked = _PUBLIC.fullmatch(head.split(b"\r\n", 1)[0])
    if asked is None:
        return None
    stays = asked[3] == b"1" and _ENDS_OR_HAS_BODY.search(head) is None
    return Public(stays, asked[1] == b"GET", asks_ready=asked[2] == b"ready")
