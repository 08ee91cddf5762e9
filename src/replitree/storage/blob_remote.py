"""A member of a blob group on another host: the client of `replitree blobd`.

Every request may be sent twice: a blob has its id, a fence its issuer, a collection its order, an opening its number.  So a
kept connection that was closed meanwhile is opened anew without a word.  An answer that does not come leaves the request in
doubt: it may still be done.  That is `Failed`, which is never taken for "not there".
"""

from __future__ import annotations

import http.client
import threading

from replitree.errors import BadInput
from replitree.storage.blob_member import Standing, Streams
from replitree.storage.blob_wire import (
    PATH,
    Admit,
    Answer,
    AskStanding,
    AskStreams,
    Question,
    Remember,
    decode_message,
    encode_message,
)
from replitree.tablet.effects import Overtaken
from replitree.tablet.member import (
    AskFence,
    Conflict,
    Contents,
    Done,
    Failed,
    FenceIs,
    Look,
    Raise,
    Reply,
    Request,
    Scan,
    Sweep,
    Swept,
    Write,
)

ANSWER_S_MAX = 5.0
"""How long a service may be silent, in seconds."""

_ANSWERS: dict[type, tuple[type, ...]] = {
    Write: (Done, Overtaken, Conflict, Swept),
    Raise: (Done, Overtaken),
    AskFence: (FenceIs,),
    Look: (Contents, Overtaken),
    Scan: (Contents, Overtaken),
    Sweep: (Done, Overtaken),
    AskStanding: (Standing,),
    Admit: (Done,),
    Remember: (Done,),
    AskStreams: (Streams,),
}
"""What each question may be answered with, besides `Failed`."""


class RemoteMember:
    """A member that a service has.  Any thread may use it; requests go one after the other.

    Parameters
    ----------
    address
        ``host:port`` of the service.
    token
        The shared secret.
    patience_s
        How long an answer is waited for, in seconds.
    """

    def __init__(self, address: str, token: str, patience_s: float = ANSWER_S_MAX) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        self._patience_s = patience_s
        self._turn = threading.Lock()
        self._kept: http.client.HTTPConnection | None = None

    def answer(self, request: Request) -> Reply:
        """Do what is asked, durably, and say so."""
        reply = self._ask(request)
        assert not isinstance(reply, Standing | Streams)
        return reply

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""
        reply = self._ask(AskStanding())
        assert isinstance(reply, Standing | Failed)
        return reply

    def admit(self, session: int) -> Done | Failed:
        """Remember that it takes part in an opening."""
        return self._done(Admit(session))

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember who takes part."""
        return self._done(Remember(seen))

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has, or had, blobs in which channels."""
        reply = self._ask(AskStreams())
        assert isinstance(reply, Streams | Failed)
        return reply

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._drop()

    def _done(self, question: Admit | Remember) -> Done | Failed:
        reply = self._ask(question)
        assert isinstance(reply, Done | Failed)
        return reply

    def _ask(self, question: Question) -> Answer:
        with self._turn:
            try:
                status, body = self._exchange(encode_message(question))
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                why = str(error) or type(error).__name__
                return Failed(
                    f"the blob service at {self._address} did not answer: {why}; what it was asked may be done"
                )
        if status != http.client.OK:
            return Failed(
                f"the blob service at {self._address} answered {status}: {body[:300].decode(errors='replace')}"
            )
        try:
            reply = decode_message(body)
        except BadInput as error:
            return Failed(f"the blob service at {self._address}: {error}")
        if isinstance(reply, (*_ANSWERS[type(question)], Failed)):
            answer: Answer = reply  # type: ignore[assignment]  # one of those that the table names
            return answer
        return Failed(f"the blob service at {self._address} answered something else than it was asked")

    def _exchange(self, body: bytes) -> tuple[int, bytes]:
        """Send a message and read the answer; once more where the kept connection was closed."""
        kept = self._kept
        try:
            return self._send(kept or self._connect(), body)
        except (ConnectionError, http.client.BadStatusLine):
            if kept is None:
                raise
            self._drop()
            return self._send(self._connect(), body)

    def _send(self, connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
        connection.request("POST", PATH, body, self._headers)
        with connection.getresponse() as response:
            return response.status, response.read()

    def _connect(self) -> http.client.HTTPConnection:
        self._kept = http.client.HTTPConnection(self._address, timeout=self._patience_s)
        return self._kept

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
