"""The blob service: a member of a blob group, in a directory of this host, for those who are on others.

One kind of request, a message of `members.wire`, and the cluster's token on each.  A request that has come is done, whether its
client still waits for the answer or not.  `GET /health` says which member it is, without a token.

Connections have the limits of a replica's server (`replitree.replica.http.connections`): the token is checked as soon
as a head has come, before a body is received; heads and bodies must come in time; a new connection without the token
replaces the oldest.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from replitree.errors import BadInput, NotAuthorized, ReplitreeError
from replitree.replica.http.bodies import HeldBytes
from replitree.replica.http.connections import Connections, ServedConnection, WaitingConnection, stop_listening
from replitree.replica.http.gate import JsonAnswer
from replitree.replica.http.heads import Head
from replitree.replica.http.listening import why_not_listening
from replitree.replica.http.received import RECEIVED, Received, read_whole
from replitree.replica.http.refusals import Refusals, kinds_only
from replitree.replica.kit.config import IDLE_S_MAX
from replitree.replica.kit.logs import Log
from replitree.replica.kit.tokens import EVERYTHING, Grant, check_token
from replitree.tablet.group.admission import (
    Admission,
    Admit,
    Answer,
    AskRules,
    AskStanding,
    AskStreams,
    Question,
    Remember,
    Standing,
)
from replitree.tablet.group.member import AskBarrier, AskFence, Failed, Look, Raise, Scan, Sweep, Write
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.wire import MESSAGE_BYTES_MAX, PATH, decode_question, encode_message
from replitree.tls import Contexts
from replitree.wire.errors_http import body_of, status_of

CONNECTIONS_MAX = 1024
CONNECTIONS_WITHOUT_TOKEN_MAX = 64

BODIES_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
"""Bytes of messages that are in memory at once; a message beyond that is answered with 503."""

SHUTDOWN_S = 5.0
"""How long requests that are being served may take to end when the service stops."""


class BlobService:
    """Serves a member over HTTP.

    Parameters
    ----------
    member
        The member that answers.
    token
        The shared secret.
    tls
        With which every connection begins; None: all are in clear text.

    Raises
    ------
    NotAuthorized
        The secret is empty.
    """

    def __init__(self, member: BlobMember, token: str, tls: Contexts | None = None) -> None:
        if not token:
            raise NotAuthorized("a blob service needs a token: write one into the file that --token-file names")
        self._tls = tls
        self._member = member
        self._front = _Front(member, token.encode())
        self._held = HeldBytes(BODIES_BYTES_MAX)
        self._received = Received(self._held)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._all: Connections | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen for connections and return the port.

        Raises
        ------
        BadInput
            The address can't be listened on.
        """
        app = web.Application()
        app[RECEIVED] = self._received
        app.add_routes([web.post(PATH, self._serve), web.get("/health", self._health)])
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_S,
            keepalive_timeout=IDLE_S_MAX,
            # Members send no compressed bodies, and the size of a decompressed one would have no limit.
            auto_decompress=False,
            logger=kinds_only(partial(self._front.refused, None)),
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        limits = _Limits(CONNECTIONS_MAX, CONNECTIONS_WITHOUT_TOKEN_MAX)
        everyone = self._all = Connections(limits, self._front, self._held, _Loaded(self._runner), tls=self._tls)
        try:
            self._listener = await loop.create_server(lambda: ServedConnection(everyone, loop), host, port)
        except OSError as error:
            await self.close()
            raise BadInput(why_not_listening(host, port, error)) from error
        everyone.begin(loop)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop to listen, and close every connection."""
        if self._listener is not None:
            await stop_listening(self._listener)
        if self._all is not None:
            self._all.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        answer = await self._front.health()
        return web.Response(body=answer.body, status=answer.status, content_type="application/json")

    async def _serve(self, request: web.Request) -> web.Response:
        try:
            self._front.admit(request.headers.get("Authorization", ""))
            if "Content-Encoding" in request.headers:
                raise BadInput("messages about blobs are sent as they are, without a Content-Encoding")
            question, admission = decode_question(await read_whole(request, MESSAGE_BYTES_MAX))
        except ReplitreeError as error:
            answer = self._front.answer_to(error, PATH)
            return web.Response(body=answer.body, status=answer.status, content_type="application/json")
        finally:
            self._received.give_back(request)
        reply = await asyncio.shield(asyncio.to_thread(self._reply, question, admission))
        return web.Response(body=encode_message(reply), content_type="application/octet-stream")

    def _reply(self, question: Question | Answer, admission: Admission | None) -> Answer:
        match question:
            case Write() | Raise() | AskFence() | AskBarrier() | Look() | Scan() | Sweep():
                as_admitted = partial(self._member.answer_as, admission) if admission else self._member.answer
                return as_admitted(question)
            case AskStanding():
                return self._member.standing()
            case Admit(session, stood):
                return self._member.admit(session, stood)
            case Remember(seen):
                return self._member.remember(seen)
            case AskStreams():
                return self._member.streams()
            case AskRules():
                return self._member.rules()
            case _:
                return Failed(f"a member is not asked {type(question).__name__}")


@dataclass(frozen=True, slots=True)
class _Limits:
    connections_max: int
    connections_without_token_max: int


class _Front:
    """What connections need: the token, health, errors."""

    def __init__(self, member: BlobMember, token: bytes) -> None:
        self._member = member
        self._token = token
        self._refusals = Refusals()
        self._asking: asyncio.Task[JsonAnswer] | None = None

    def authorize(self, head: Head) -> Grant:
        self.admit(head.authorization)
        return EVERYTHING

    def served(self, grant: Grant, head: Head, status: int) -> None:
        """Record nothing: members record their requests as blobs."""

    def admit(self, header: str) -> None:
        check_token(header, self._token)

    def ask_health(self, tell: Callable[[JsonAnswer], None], *, asks_ready: bool) -> None:
        """Answer the state, also when readiness is asked: there are no tables to wait for."""
        del asks_ready
        self._health_task().add_done_callback(lambda asked: None if asked.cancelled() else tell(asked.result()))

    async def health(self) -> JsonAnswer:
        """Return the answer to ``GET /health``."""
        return await asyncio.shield(self._health_task())

    def _health_task(self) -> asyncio.Task[JsonAnswer]:
        """Return the running look at the member, or begin one."""
        # All requests share one look: while a disk hangs, each look would keep a thread.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._look())
        return self._asking

    async def _look(self) -> JsonAnswer:
        standing = await asyncio.to_thread(self._member.standing)
        if isinstance(standing, Standing):
            return JsonAnswer(200, json.dumps({"incarnation": standing.incarnation}).encode())
        return JsonAnswer(503, json.dumps({"problem": standing.reason}).encode())

    def refused(self, peer: object, reason: str) -> None:
        self._refusals.note(Log(), peer, reason)

    def answer_to(self, error: Exception, path: str) -> JsonAnswer:
        del path
        found = error if isinstance(error, ReplitreeError) else ReplitreeError(f"defect: {error!r}")
        return JsonAnswer(status_of(found), json.dumps(body_of(found)).encode())


class _Loaded:
    """The general server, which is there from the beginning."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    def protocol(self) -> asyncio.Protocol | None:
        assert self._runner.server is not None, "the runner is set up before the service listens"
        return self._runner.server()

    def when_loaded(self, connection: WaitingConnection) -> None:
        raise AssertionError(f"{connection!r} waits for a server that is loaded")

    def connections(self) -> int:
        return 0 if self._runner.server is None else len(self._runner.server.connections)
