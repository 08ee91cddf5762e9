"""Commands: what changes rows or columns that are in a table, asked of a replica that puts it into the log.

Every command has an id, and an end that is never a guess:

===========================================  =================================================================
what came back                               what happens
===========================================  =================================================================
an answer                                    it is returned: the command is in the log
not sent, or refused for now (`Unavailable`) it is certainly not in the log: the next replica is asked
no answer, or "outcome unknown"              *this* replica is asked again, with the same id, until time is up
any other error, and not in doubt            raised
time is up, or an error, while in doubt      `OutcomeUnknown` with the id
===========================================  =================================================================

A replica that finds an id in the log does not append it again.  In doubt no other replica is asked: the first request may
still be on its way through the first one, and two of them would update rows twice.

"In the log" and "done" are two things.  A command takes effect at its place in the log on every replica alike; rewriting
parts may take longer than a client waits.  `CommandResult.finished` says whether this replica has finished it.

Absent on purpose: undoing.  A mutation that is not finished can be killed; the parts that are done stay done.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.client.transport.routing import Router
from replitree.errors import BadInput, OutcomeUnknown, ReplicaUnavailable, ReplitreeError

COMMAND_S = 60.0
"""How long to wait until a command is finished, in seconds."""

ANSWER_S = 10.0
"""How much longer a replica may be silent than it may wait, in seconds."""

WAIT_S_MAX = 300.0
"""Longest time that a replica waits for one request, in seconds."""

ID_CHARACTERS_MAX = 200

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of a command.  It is in the log in any case.

    Attributes
    ----------
    id
        Names the command; repeated with the same id, it is not done twice.
    index
        Its position on the table's number line.
    applied
        Whether it changes any part; None when the replica that was asked has not come to it yet.
    finished
        The replica that was asked has executed it.  False: it will, and so will all others.
    removed, added
        How many parts it takes out and puts in; None while `applied` is.
    reason
        What it waits for, when it is not finished.
    schema_version
        Of an alter: the version of the columns from here on.
    shards
        Of a sharded table: (name of the shard, index of its entry) of each; None: the entry has left the log.  Then `index` is
        that in the first of them, `finished` is about all, and the parts are those of all.
    """

    id: str
    index: int
    applied: bool | None
    finished: bool
    removed: int | None = None
    added: int | None = None
    reason: str = ""
    schema_version: int | None = None
    shards: tuple[tuple[str, int | None], ...] = ()


class _InDoubt(Exception):
    """A request was sent to this replica, and what became of it is not known."""

    def __init__(self, replica: ReplicaInfo, error: ReplitreeError) -> None:
        super().__init__(str(error))
        self.replica = replica
        self.error = error


class Commander:
    """Sends the commands of one table.  Any thread may use it.

    Parameters
    ----------
    table
        The table's name.
    catalog, http, router
        The directory of the replicas, the connection to them, and the choice of one.
    """

    def __init__(self, table: str, catalog: Catalog, http: HttpClient, router: Router) -> None:
        self._table = table
        self._catalog = catalog
        self._http = http
        self._router = router

    def command(
        self, verb: str, body: dict[str, Any], command_id: str | None = None, *, timeout_s: float
    ) -> CommandResult:
        """Put a command into the log, and wait until a replica has executed it.

        Parameters
        ----------
        verb
            Last part of the route.
        body
            What is asked for, without the id.
        command_id
            Of an earlier try; a fresh one by default.
        timeout_s
            How long to wait for it, in seconds.

        Raises
        ------
        BadInput
            It makes no sense; it is not in the log.
        Unavailable
            No replica takes it; it is not in the log.
        OutcomeUnknown
            It may be in the log; the error's token is its id.
        """
        known_as = check_id(command_id)
        encoded = msgspec.json.encode({**body, "id": known_as})

        def send(replica: ReplicaInfo, seconds: float) -> CommandResult:
            path = self._path(verb, wait_s=f"{_wait_s(seconds):.1f}")
            answer = self._http.request(replica.address, "POST", path, encoded, timeout_s=seconds)
            return answer.decode(CommandResult)

        def first(replica: ReplicaInfo, seconds: float) -> CommandResult:
            try:
                return send(replica, seconds)
            except (AnswerLost, OutcomeUnknown) as error:
                raise _InDoubt(replica, error) from error

        total_s = timeout_s + ANSWER_S
        deadline = time.monotonic() + total_s
        try:
            return self._router.ask(first, timeout_s=total_s, attempt_s=total_s)
        except _InDoubt as doubt:
            # Only this replica can say whether its own request got into the log.
            same = Router(self._catalog, self._table, doubt.replica.name)
            left = max(1.0, deadline - time.monotonic())
            try:
                return same.ask(send, timeout_s=left, attempt_s=left, token=known_as)
            except ReplitreeError as error:
                reason = doubt.error if isinstance(error, OutcomeUnknown) else error
                raise OutcomeUnknown(
                    f"the command may be in the log: {doubt.replica.name} can't say so ({reason}). Repeat it with"
                    f" the id {known_as}: it will not be done twice.",
                    known_as,
                ) from error

    def once(
        self,
        verb: str,
        body: dict[str, Any],
        kind: type[_T],
        hint: str,
        *,
        timeout_s: float,
        at: str | None = None,
        **query: str,
    ) -> tuple[str, _T]:
        """Ask one replica for something that it must not do twice.

        Parameters
        ----------
        verb, body, **query
            The request.
        kind
            Type of the answer.
        hint
            How to find out what became of it.
        timeout_s
            How long the replica may take, in seconds.
        at
            Ask the replica of this name, and no other one.

        Returns
        -------
        tuple
            The replica that answered, and its answer.

        Raises
        ------
        OutcomeUnknown
            It may have happened.
        """

        def send(replica: ReplicaInfo, seconds: float) -> tuple[str, _T]:
            path = self._path(verb, wait_s=f"{_wait_s(seconds):.1f}", **query)
            try:
                return replica.name, self._request(replica, "POST", path, body, seconds, kind)
            except (AnswerLost, OutcomeUnknown) as error:
                raise _InDoubt(replica, error) from error

        router = self._router if at is None else Router(self._catalog, self._table, at)
        # `_InDoubt` is no outcome that the router knows, so the router raises it instead of asking another replica.
        try:
            return router.ask(send, timeout_s=timeout_s + ANSWER_S, attempt_s=timeout_s + ANSWER_S)
        except _InDoubt as doubt:
            raise OutcomeUnknown(
                f"replica {doubt.replica.name} may have carried the command out ({doubt.error}); {hint}", ""
            ) from doubt

    def ask(
        self,
        method: str,
        verb: str,
        kind: type[_T],
        body: dict[str, Any] | None = None,
        *,
        timeout_s: float,
        known_as: str | None = None,
    ) -> tuple[str, _T]:
        """Ask any replica for something that does no harm when it is asked for again.

        Parameters
        ----------
        method, verb, body
            The request.
        kind
            Type of the answer.
        timeout_s
            How long a replica may take, in seconds.
        known_as
            The id that the request carries, by which it takes place once; None: the request may be repeated without an id.

        Returns
        -------
        tuple
            The replica that answered, and its answer.

        Raises
        ------
        OutcomeUnknown
            A request with an id may have been carried out; the error's token is the id.
        """

        def send(replica: ReplicaInfo, seconds: float) -> tuple[str, _T]:
            path = self._path(verb, wait_s=f"{_wait_s(seconds):.1f}")
            return replica.name, self._request(replica, method, path, body, seconds, kind)

        total_s = timeout_s + ANSWER_S
        return self._router.ask(send, timeout_s=total_s, token=known_as, attempt_s=total_s)

    def ask_at(self, replica: ReplicaInfo, method: str, verb: str, kind: type[_T], *, timeout_s: float) -> _T:
        """Ask this replica, once; parameters as `ask`.

        Raises
        ------
        ReplicaUnavailable
            It does not answer.
        """
        if not replica.address:
            raise ReplicaUnavailable(f"replica {replica.name} has never been active")
        try:
            return self._request(replica, method, self._path(verb), None, timeout_s, kind)
        except AnswerLost as error:
            raise ReplicaUnavailable(f"{error}; try again") from error

    def replicas(self) -> tuple[ReplicaInfo, ...]:
        """Return the replicas that would be asked, in their order."""
        return self._router.replicas()

    def _request(
        self, replica: ReplicaInfo, method: str, path: str, body: dict[str, Any] | None, seconds: float, kind: type[_T]
    ) -> _T:
        encoded = msgspec.json.encode(body) if body is not None else b""
        return self._http.request(replica.address, method, path, encoded, timeout_s=seconds).decode(kind)

    def _path(self, verb: str, **query: str) -> str:
        text = f"?{urlencode(query)}" if query else ""
        return f"/v1/tables/{quote(self._table)}/{verb}{text}"


def check_id(command_id: str | None) -> str:
    """Return the id to use: the caller's, or a fresh one.

    Raises
    ------
    BadInput
        It is empty or too long.
    """
    if command_id is None:
        return secrets.token_hex(16)
    if not 1 <= len(command_id) <= ID_CHARACTERS_MAX:
        raise BadInput(f"a command's id has 1 to {ID_CHARACTERS_MAX} characters, not {len(command_id)}")
    return command_id


def _wait_s(seconds: float) -> float:
    """Return how long a replica that may be silent for `seconds` may wait."""
    return min(WAIT_S_MAX, max(0.0, seconds - ANSWER_S))
