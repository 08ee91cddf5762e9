"""What stands before every request, whichever server has it: the token, the table that is meant, what an error looks like.

Nothing here, nor what it imports, needs the general HTTP server: a replica that starts does not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from replitree.errors import BadInput, ReplitreeError, StoreError
from replitree.replica.errors_http import body_of, status_of
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.table_replica import TableReplica
from replitree.replica.token import check_token

WAIT_S_DEFAULT = 30.0
WAIT_S_MAX = 300.0

encode_json = msgspec.json.Encoder(enc_hook=str).encode


class Answer(NamedTuple):
    """The answer to a request: its HTTP status, and JSON."""

    status: int
    body: bytes


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

    def authorize(self, header: str) -> None:
        """Raise `NotAuthorized` unless an ``Authorization`` header has the cluster's token."""
        check_token(header, self._token)

    def find(self, table: str) -> TableReplica:
        """Return a hosted table, or raise `TableNotFound`."""
        return self._tables.table(table)

    def answer_to(self, error: Exception, path: str) -> Answer:
        """Return the answer to a request that failed; a defect of ours is logged, and the server lives on."""
        if isinstance(error, ReplitreeError):
            return Answer(status_of(error), encode_json(body_of(error)))
        if isinstance(error, OSError):
            return Answer(507, encode_json(body_of(StoreError(f"disk: {error.strerror or error}"))))
        self.defect("request failed", path=path)
        return Answer(500, encode_json({"error": "ReplitreeError", "message": f"defect: {error!r}"}))

    def defect(self, event: str, **facts: object) -> None:
        """Log a defect of ours, with the error that is being handled."""
        self._tables.log.defect(event, **facts)


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
    if not (text.isascii() and text.isdigit()):
        raise BadInput(f"{name}={text!r} is not a number")
    return int(text)


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
        raise BadInput(f"{name}={text!r} is not a number of seconds")
    return min(most, found)


async def wait_until(table: TableReplica, condition: Callable[[], bool], wait_s: float) -> bool:
    """Wait until a condition on a table's progress holds; False when it does not in time.

    The condition is asked on the loop, whenever something has changed.
    """
    if condition():
        return True
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    listener = table.progress.listen(lambda: _call_soon(loop, event.set))
    table.pull_now()
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


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]) -> None:
    """Call back on the loop from any thread; nothing to do when the loop has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
