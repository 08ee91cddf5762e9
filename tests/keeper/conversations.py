"""Random conversations of two clients with a server: valid requests, broken ones, and ones that are cut short.

A conversation is drawn from a seed alone, and knows of no answer: both servers hear the same bytes, but for sessions and
passwords, which each server has given itself.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from replitree.keeper.core.acls import OPEN
from replitree.keeper.core.wire import Op, int_bytes
from tests.keeper.frames import (
    acl_bytes,
    auth_body,
    create_body,
    create_ttl_body,
    multi_body,
    request,
    set_body,
    set_watches_body,
    text,
    versioned,
    watched,
)

CLIENTS = 2
STEPS = (8, 20)
TOGETHER_MAX = 4

DIGEST = "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="
_DATA = (None, b"", b"x", b"yy", b"z" * 300)
_VERSIONS = (-1, -1, -1, -1, 0, 0, 1, 2, -2, 2**31 - 1)
_BAD_ACLS = (
    int_bytes(0),
    int_bytes(-1),
    acl_bytes((31, "foo", "bar")),
    acl_bytes((31, "digest", "nocolon")),
    acl_bytes((31, "digest", "a:b:")),
    acl_bytes((31, "world", "somebody")),
    acl_bytes((31, "ip", "127.0.0.1/40")),
    acl_bytes((31, "ip", "here")),
    acl_bytes((31, "super", "")),
    acl_bytes((31, None, "x")),
)
_ACLS = (
    acl_bytes((31, "auth", "")),
    acl_bytes((31, "auth", "ignored"), (1, "world", "anyone")),
    acl_bytes((31, "digest", DIGEST)),
    acl_bytes((1, "world", "anyone"), (31, "digest", DIGEST), (1, "world", "anyone")),
    acl_bytes((31, "ip", "127.0.0.1")),
    acl_bytes((31, "ip", "127.0.0.0/8")),
    acl_bytes((31, "ip", "10.0.0.0/8"), (1, "world", "anyone")),
    acl_bytes((1, "world", "anyone")),
    acl_bytes((8 | 4, "world", "anyone")),
    acl_bytes((0, "world", "anyone")),
)
_BAD_NAMES = (
    "",
    "/",
    "a//b",
    ".",
    "..",
    "a/.",
    "a/..",
    "a\x01",
    "a\x7f",
    "é\x85",
    "\ue000",
    "\ufff0",
    "a\x00b",
)
_GOOD_NAMES = ("a", "b", "é", "a b", "...", ".a", "\u4e2d")


@dataclass(frozen=True)
class Step:
    """What one client sends at once.

    Attributes
    ----------
    client
        Which one.
    data
        Requests.
    ops
        Their types by xid.
    pings
        How many of them are pings.
    closes
        Whether the server closes the connection: then no ping comes behind.
    resumes
        Open a connection first, that resumes the client's session.
    """

    client: int
    data: bytes = b""
    ops: dict[int, int] = field(default_factory=dict)
    pings: int = 0
    closes: bool = False
    resumes: bool = False


class Drawing:
    """Draws the steps of one conversation."""

    def __init__(self, seed: int, root: str) -> None:
        self._random = random.Random(seed)
        self._root = root
        self._xid = 0

    def steps(self) -> list[Step]:
        """Return the conversation."""
        first = Step(0, request(1, Op.CREATE, create_body(self._root)), {1: Op.CREATE})
        self._xid = 1
        return [first, *(self._step() for _ in range(self._random.randint(*STEPS)))]

    def _step(self) -> Step:
        client = self._random.randrange(CLIENTS)
        if self._random.random() < 0.06:
            return Step(client, resumes=True)
        if self._random.random() < 0.08:
            op, body, closes = self._lonely()
            xid = self._next_xid()
            return Step(client, request(xid, op, body), {xid: op}, closes=closes)
        data, ops, pings = b"", dict[int, int](), 0
        for _ in range(self._random.choice((1, 1, 1, 2, TOGETHER_MAX))):
            op, body = self._request()
            xid = self._next_xid()
            if self._random.random() < 0.04 and op != Op.CREATE_TTL:
                body = self._broken(body)
            ops[xid] = op
            pings += op == Op.PING
            data += request(xid, op, body)
        return Step(client, data, ops, pings)

    def _next_xid(self) -> int:
        self._xid += 1
        return self._xid

    def _lonely(self) -> tuple[int, bytes, bool]:
        """A request that no other may follow at once: it closes the connection, or its reply may overtake others."""
        return self._random.choice(
            (
                (Op.AUTH, auth_body("digest", b"u:p"), False),
                (Op.AUTH, auth_body("digest", b"u:p"), False),
                (Op.AUTH, auth_body("digest", b"v:q"), False),
                (Op.AUTH, auth_body("digest", b"nocolon"), False),
                (Op.AUTH, auth_body("digest", b"super:test"), False),
                (Op.AUTH, auth_body("ip", b"1.2.3.4"), False),
                (Op.AUTH, auth_body("foo", b"x"), True),
                (Op.AUTH, auth_body("world", b"anyone"), True),
                (Op.CLOSE_SESSION, b"", True),
                (Op.CLOSE_SESSION, b"ignored", True),
                (Op.CHECK, versioned(self._path()), True),
                (999, b"", True),
                (0, b"", True),
            )
        )

    def _request(self) -> tuple[int, bytes]:
        draw = self._random.random()
        if draw < 0.45:
            return self._change()
        if draw < 0.55:
            return Op.MULTI, self._multi()
        if draw < 0.75:
            return self._read()
        if draw < 0.92:
            return self._watch()
        return self._random.choice(
            (
                (Op.PING, b""),
                (Op.SYNC, text(self._path())),
                (Op.WHO_AM_I, b""),
                (Op.GET_EPHEMERALS, text(self._random.choice(("", "/", " ", self._root, self._path(), None)))),
                (Op.GET_ALL_CHILDREN_NUMBER, text(self._random.choice(("/", self._root, self._path())))),
                (Op.RECONFIG, text("") + text("") + text("") + b"\xff" * 8),
                (Op.MULTI_READ, self._multi_read()),
            )
        )

    def _path(self) -> str:
        """A path that is likely to exist."""
        draw = self._random.random()
        if draw < 0.05:
            return self._random.choice(
                ("/", "", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "relative", "/nowhere")
            )
        if draw < 0.1:
            return f"{self._root}/{self._random.choice(_BAD_NAMES)}"
        names = [
            "",
            "/a",
            "/a",
            "/b",
            "/a/b",
            "/a/a",
            "/b/a",
            f"/{self._random.choice(_GOOD_NAMES)}",
            "/a/s0000000000",
            "/s0000000001",
        ]
        return self._root + self._random.choice(names)

    def _acl(self) -> bytes:
        draw = self._random.random()
        return OPEN if draw < 0.8 else self._random.choice(_ACLS if draw < 0.93 else _BAD_ACLS)

    def _change(self) -> tuple[int, bytes]:
        draw = self._random.random()
        if draw < 0.45:
            return self._creation()
        if draw < 0.65:
            return Op.DELETE, versioned(self._path(), self._random.choice(_VERSIONS))
        if draw < 0.92:
            return Op.SET_DATA, set_body(self._path(), self._random.choice(_DATA), self._random.choice(_VERSIONS))
        return Op.SET_ACL, text(self._path()) + self._acl() + int_bytes(self._random.choice(_VERSIONS))

    def _creation(self) -> tuple[int, bytes]:
        flags = self._random.choice((0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, -1))
        path, data = self._path(), self._random.choice(_DATA)
        if flags in (2, 3, 6):
            path = self._random.choice((f"{self._root}/", f"{self._root}/s", f"{self._root}/a/s", path))
        op = self._random.choice((Op.CREATE, Op.CREATE, Op.CREATE2, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL))
        if op == Op.CREATE_TTL:
            # With other flags ZooKeeper 3.9.5 stops for good.
            ttl_ms = self._random.choice((1, 10**9, 2**40 - 1, 2**40, 0, -1))
            return op, create_ttl_body(path, ttl_ms, self._random.choice((5, 6)), data, self._acl())
        if op == Op.CREATE_CONTAINER and flags in (1, 3):
            # Until it is applied, ZooKeeper takes it for an ephemeral node, which can't have children: a race.
            flags -= 1
        return op, create_body(path, data, self._acl(), flags)

    def _multi(self) -> bytes:
        operations = list[tuple[int, bytes]]()
        for _ in range(self._random.randint(0, 4)):
            if self._random.random() < 0.2:
                operations.append((Op.CHECK, versioned(self._path(), self._random.choice(_VERSIONS))))
                continue
            op, body = self._change()
            operations.append((op, body))
        return multi_body(*operations)

    def _multi_read(self) -> bytes:
        ops = (Op.GET_DATA, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN, Op.GET_DATA, Op.EXISTS)
        count = self._random.randint(0, 3)
        return multi_body(
            *((self._random.choice(ops), watched(self._path(), watch=self._flip())) for _ in range(count))
        )

    def _read(self) -> tuple[int, bytes]:
        op = self._random.choice(
            (Op.EXISTS, Op.EXISTS, Op.GET_DATA, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2, Op.GET_ACL)
        )
        if op == Op.GET_ACL:
            return op, text(self._path())
        return op, watched(self._path(), watch=self._flip())

    def _watch(self) -> tuple[int, bytes]:
        draw = self._random.random()
        if draw < 0.4:
            op = self._random.choice((Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2))
            return op, watched(self._path(), watch=True)
        if draw < 0.65:
            return Op.ADD_WATCH, text(self._path()) + int_bytes(self._random.choice((0, 0, 0, 1, 1, 1, 2, -1)))
        if draw < 0.85:
            op = self._random.choice((Op.CHECK_WATCHES, Op.REMOVE_WATCHES))
            return op, text(self._path()) + int_bytes(self._random.choice((1, 2, 3, 4, 5, 0, 9)))
        op = self._random.choice((Op.SET_WATCHES, Op.SET_WATCHES2))
        # Zxids of the two servers differ: nothing that was seen, or everything.
        vectors = [
            [self._path() for _ in range(self._random.choice((0, 0, 1, 2)))]
            for _ in range(3 if op == Op.SET_WATCHES else 5)
        ]
        return op, set_watches_body(self._random.choice((0, 2**62)), *vectors)

    def _flip(self) -> bool:
        return self._random.random() < 0.5

    def _broken(self, body: bytes) -> bytes:
        draw, at = self._random.random(), self._random.randrange(len(body) + 1)
        if draw < 0.5:
            return body[:at]
        if draw < 0.7:
            return body + bytes(self._random.randrange(256) for _ in range(3))
        return body[:at] + bytes([self._random.randrange(256)]) + body[at + 1 :]
