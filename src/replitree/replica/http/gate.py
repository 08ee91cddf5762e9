"""What stands before every request, whichever server has it: the token, the table that is meant, what an error looks like.

Nothing here, nor what it imports, needs the general HTTP server: a replica that starts does not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl

import msgspec

from replitree.errors import BadInput, NotPermitted, ReplitreeError, StoreError
from replitree.replica.audit import Audit
from replitree.replica.http.heads import INSERT, Head
from replitree.replica.http.refusals import Refusals
from replitree.replica.http.roles import INSERT_ROUTE, ROLES, SNAPSHOT_ROUTE, TABLE_PATH, permit
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.kit.tokens import EVERYTHING, Grant, TokenFile, check_token
from replitree.replica.table.table_replica import TableReplica
from replitree.wire.errors_http import body_of, status_of
from replitree.wire.named_token import PREFIX, Role, read_named_token
from replitree.wire.ticket import Ticket, read_ticket, signer_of

WAIT_S_DEFAULT = 30.0
WAIT_S_MAX = 300.0

DIGITS_MAX = 18
"""Digits of a number in a request: every log index has fewer, and Python refuses to read thousands."""

encode_json = msgspec.json.Encoder(enc_hook=str).encode


class JsonAnswer(NamedTuple):
    """The answer to a request: its HTTP status, and JSON."""

    status: int
    body: bytes


DEGRADED = "degraded"
"""State of a server of which every table is active and some lack parts."""

SERVING = ("ok", DEGRADED)
"""States of a server in which `/health` answers 200: it takes inserts, and reads of all that it does not lack."""


class Tables(Protocol):
    """What the HTTP servers need of the server around them."""

    @property
    def metrics(self) -> Metrics:
        """The server's metrics."""

    @property
    def log(self) -> Log:
        """The server's log."""

    def table(self, name: str) -> TableReplica:
        """Return a hosted table, or raise TableNotFound."""

    def health(self) -> dict[str, object]:
        """Return the server's state in a word, and each table's."""

    def waiting(self) -> dict[str, str]:
        """Return why tables do not serve reads yet, by table."""

    def status(self) -> dict[str, object]:
        """Return the status of the server and of every table it hosts."""

    def check_store(self, url: str, table: str) -> dict[str, object]:
        """Try an object store for a table; raise the error that it gives."""


class RequestGrant(NamedTuple):
    """What a request may do: what its token grants and, when it is a Spark task's, the ticket that was made of the token."""

    grant: Grant
    ticket: Ticket | None = None


class Gate:
    """Lets requests in.

    Parameters
    ----------
    tables
        The server.
    token
        The cluster's shared secret.
    tokens_file
        File of the named tokens; None: there are none.
    audit
        Takes the records of changes; None: nothing does.

    Raises
    ------
    BadInput
        The file of tokens can't be used.
    """

    def __init__(self, tables: Tables, token: str, tokens_file: Path | None = None, audit: Audit | None = None) -> None:
        self._tables = tables
        self._token = token.encode()
        self._named = TokenFile(
            tokens_file, lambda why: tables.log.error("named tokens stay as they were", problem=why)
        )
        self._refusals = Refusals()
        self._audit = audit

    def authorize(self, head: Head) -> Grant:
        """Return what the token of a plain request grants.  Raises `NotAuthorized` when it does not allow the request."""
        grant, route = self._granted(head.authorization), _route(head)
        try:
            permit(grant, route, head.table)
        except NotPermitted as error:
            self.answered(grant, route, head.table, "", status_of(error))
            raise
        return grant

    def served(self, grant: Grant, head: Head, status: int) -> None:
        """Take note that a plain request was answered."""
        if head.action == INSERT:
            self.answered(grant, INSERT_ROUTE, head.table, dict(parse_qsl(head.query)).get("token", ""), status)

    def answered(self, grant: Grant, route: tuple[str, str], table: str, known_as: str, status: int) -> None:
        """Record a request that was answered, if it is one that changes something, or was not permitted."""
        if self._audit is not None and (ROLES[route] is not Role.READ or status == HTTPStatus.FORBIDDEN):
            what = f"{route[0]} {route[1].removeprefix(TABLE_PATH).removeprefix('/')}"
            self._audit.note(grant.name, what, table, known_as, status)

    def admit(self, header: str) -> RequestGrant:
        """Return what an ``Authorization`` header may do.  Raises `NotAuthorized` when it has neither token nor ticket."""
        text = header.removeprefix("Bearer ")
        if header.startswith("Bearer ticket."):
            name = signer_of(text)
            signer = self._named.signer(name) if name else (EVERYTHING, self._token)
            ticket = None if signer is None else read_ticket(text, signer[1])
            if signer is not None and ticket is not None:
                return RequestGrant(signer[0], ticket)
        return RequestGrant(self._granted(header))

    def _granted(self, header: str) -> Grant:
        named = read_named_token(header.removeprefix("Bearer ")) if header.startswith(f"Bearer {PREFIX}") else None
        grant = None if named is None else self._named.grant(named)
        if grant is None:
            check_token(header, self._token)
        return grant or EVERYTHING

    def find(self, table: str) -> TableReplica:
        """Return a hosted table, or raise `TableNotFound`."""
        return self._tables.table(table)

    def health(self, *, asks_ready: bool = False) -> JsonAnswer:
        """Answer what needs no token: the state, or whether all tables serve reads."""
        if asks_ready:
            waiting = self._tables.waiting()
            status = HTTPStatus.SERVICE_UNAVAILABLE if waiting else HTTPStatus.OK
            return JsonAnswer(status, encode_json({"ready": not waiting, "waiting": waiting}))
        health = self._tables.health()
        status = HTTPStatus.OK if health["state"] in SERVING else HTTPStatus.SERVICE_UNAVAILABLE
        return JsonAnswer(status, encode_json(health))

    def ask_health(self, tell: Callable[[JsonAnswer], None], *, asks_ready: bool) -> None:
        """Give what `health` returns to `tell`, at once."""
        tell(self.health(asks_ready=asks_ready))

    def refused(self, peer: object, reason: str) -> None:
        """Log that a request was refused before it was served; of many only some, and never what it says."""
        self._refusals.note(self._tables.log, peer, reason)

    def answer_to(self, error: Exception, path: str) -> JsonAnswer:
        """Return the answer to a request that failed; a defect of ours is logged, and the server lives on."""
        if isinstance(error, ReplitreeError):
            return JsonAnswer(status_of(error), encode_json(body_of(error)))
        if isinstance(error, OSError):
            return JsonAnswer(507, encode_json(body_of(StoreError(f"disk: {error.strerror or error}"))))
        self.defect("request failed", path=path)
        return JsonAnswer(500, encode_json({"error": "ReplitreeError", "message": f"defect: {error!r}"}))

    def defect(self, event: str, **facts: object) -> None:
        """Log a defect of ours, with the error that is being handled."""
        self._tables.log.defect(event, **facts)


def _route(head: Head) -> tuple[str, str]:
    return INSERT_ROUTE if head.action == INSERT else SNAPSHOT_ROUTE


def whole_number(text: str) -> int | None:
    """Return a number of decimal digits, at most `DIGITS_MAX`; None for any other text."""
    return int(text) if len(text) <= DIGITS_MAX and text.isascii() and text.isdigit() else None


def shortened(text: str) -> str:
    """Return what an error shows of a number that was refused.

    >>> shortened("12345678901234567890")
    '123456789012345678…'
    """
    return text if len(text) <= DIGITS_MAX else f"{text[:DIGITS_MAX]}…"


def number(query: Mapping[str, str], name: str, default: int) -> int:
    """Return a number of a query.

    Raises
    ------
    BadInput
        It is not one.
    """
    text = query.get(name, "")
    if not text:
        return default
    found = whole_number(text)
    if found is None:
        raise BadInput(f"{name}={shortened(text)!r} is not a number of at most {DIGITS_MAX} digits")
    return found


def seconds(query: Mapping[str, str], name: str, default: float, most: float = WAIT_S_MAX) -> float:
    """Return a number of seconds of a query, `most` if it is more.

    Raises
    ------
    BadInput
        It is not one.
    """
    text = query.get(name, "")
    try:
        found = float(text) if text else default
    except ValueError:
        found = -1.0
    if not found >= 0.0:
        raise BadInput(f"{name}={shortened(text)!r} is not a number of seconds")
    return min(most, found)


async def wait_until(
    table: TableReplica, condition: Callable[[], bool], wait_s: float, *, hurries: bool = True
) -> bool:
    """Wait until a condition on a table's progress holds; False when it does not in time.

    The condition is asked on the loop, whenever something has changed.  `hurries`: the replica looks at once for new entries,
    which costs a request to coordination; otherwise it waits until coordination tells of them.
    """
    if condition():
        return True
    event, loop = asyncio.Event(), asyncio.get_running_loop()

    def wake() -> None:
        # Another thread calls this, maybe after the loop has ended.
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    listener = table.progress.listen(wake)
    if hurries:
        table.context.pull_signal.hurry()
    try:
        deadline = loop.time() + wait_s
        while not condition():
            await asyncio.wait_for(event.wait(), max(0.0, deadline - loop.time()))
            event.clear()
    except TimeoutError:
        return condition()
    finally:
        table.progress.unlisten(listener)
    return True
