"""The blob service: a member of a blob group, in a directory of this host, for those who are on others.

One kind of request, a message of `blob_wire`, and the cluster's token on each.  A request that has come is done, whether
somebody still waits for its answer or not.  `GET /health` says which member it is, without a token.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial

from aiohttp import web

from replitree.errors import BadInput, NotAuthorized, ReplitreeError
from replitree.replica.errors_http import body_of, status_of
from replitree.replica.listening import why_not_listening
from replitree.replica.token import check_token
from replitree.storage.blob_member import BlobMember
from replitree.storage.blob_wire import MESSAGE_BYTES_MAX, PATH, decode_question, encode_message
from replitree.tablet.admission import (
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
from replitree.tablet.member import AskBarrier, AskFence, Failed, Look, Raise, Scan, Sweep, Write

SHUTDOWN_S = 5.0
"""How long requests that are being served may take to end when the service stops."""


class BlobService:
    """Serves a member over HTTP.

    Parameters
    ----------
    member
        Who answers.
    token
        The shared secret.

    Raises
    ------
    NotAuthorized
        The secret is empty.
    """

    def __init__(self, member: BlobMember, token: str) -> None:
        if not token:
            raise NotAuthorized("a blob service needs a token: write one into the file that --token-file names")
        self._member = member
        self._token = token.encode()
        self._runner: web.AppRunner | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen for connections and return the port.

        Raises
        ------
        BadInput
            The address can't be listened on.
        """
        app = web.Application(client_max_size=MESSAGE_BYTES_MAX)
        app.add_routes([web.post(PATH, self._serve), web.get("/health", self._health)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self.close()
            raise BadInput(why_not_listening(host, port, error)) from error
        bound: int = self._runner.addresses[0][1]
        return bound

    async def close(self) -> None:
        """Listen no more, and close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        standing = await asyncio.to_thread(self._member.standing)
        is_well = isinstance(standing, Standing)
        body = {"incarnation": standing.incarnation} if isinstance(standing, Standing) else {"problem": standing.reason}
        return web.json_response(body, status=200 if is_well else 503)

    async def _serve(self, request: web.Request) -> web.Response:
        try:
            check_token(request.headers.get("Authorization", ""), self._token)
            question, admission = decode_question(await request.read())
        except ReplitreeError as error:
            return web.Response(
                text=json.dumps(body_of(error)), status=status_of(error), content_type="application/json"
            )
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
