"""What stands before every request, whichever server has it: the token, the table that is meant, what an error looks like.

Nothing here, nor what it imports, needs the general HTTP server: a replica that starts does not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, Protocol

import msgspec

from replitree.errors import BadInput, ReplitreeError, StoreError
from replitree.replica.http.heads import METRICS
from replitree.replica.http.refusals import Refusals
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.kit.token import check_token
from replitree.replica.table.table_replica import TableReplica
from replitree.wire.errors_http import body_of, status_of
from replitree.wire.ticket import Ticket, read_ticket

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

    def status(self) -> dict[str, object]:
        """Return the status of the server and of every table it hosts."""

    def check_store(self, url: str, table: str) -> dict[str, object]:
        """Try an object store for a table; raise the error that it gives."""


class Gate:
    """Lets requests in.

    Parameters
    ----------
    tables
        The server.
    token
        The cluster's shared secret.
    """

    def __init__(self, tables: Tables, token: str) -> None:
        self._tables = tables
        self._token = token.encode()
        self._refusals = Refusals()

    def authorize(self, header: str) -> None:
        """Raise `NotAuthorized` unless an ``Authorization`` header has the cluster's token."""
        check_token(header, self._token)

    def admit(self, header: str) -> Ticket | None:
        """Return the ticket that a header has; None: it has the token.  Raises `NotAuthorized` when it has neither."""
        ticket = (
            read_ticket(header.removeprefix("Bearer "), self._token) if header.startswith("Bearer ticket.") else None
        )
        if ticket is None:
            check_token(header, self._token)
        return ticket

    def find(self, table: str) -> TableReplica:
        """Return a hosted table, or raise `TableNotFound`."""
        return self._tables.table(table)

    def public(self, action: str) -> tuple[JsonAnswer, str]:
        """Answer what needs no token, ``health`` or ``metrics``; also return the content type."""
        if action == METRICS:
            return JsonAnswer(HTTPStatus.OK, self._tables.metrics.render()), "text/plain; charset=utf-8"
        health = self._tables.health()
        status = HTTPStatus.OK if health["state"] in SERVING else HTTPStatus.SERVICE_UNAVAILABLE
        return JsonAnswer(status, encode_json(health)), "application/json"

    def ask_public(self, action: str, tell: Callable[[JsonAnswer, str], None]) -> None:
        """Give what `public` returns to `tell`, at once."""
        tell(*self.public(action))

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
