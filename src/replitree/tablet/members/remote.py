"""A member of a blob group on another host: the client of `replitree blobd`.

Every request may be sent twice: a blob has its id, a fence its issuer, a collection its order, an opening its number.  So a
kept connection that was closed meanwhile is opened anew without a word.  An answer that does not come leaves the request in
doubt: it may still be done.  That is `Failed`, which is never taken for "not there".
"""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import suppress

from replitree.errors import BadInput
from replitree.tablet.group.admission import (
    Admission,
    Admit,
    Answer,
    AskRules,
    AskStanding,
    AskStreams,
    Question,
    Remember,
    Rules,
    Standing,
    Streams,
)
from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.member import (
    AskBarrier,
    AskFence,
    BarrierIs,
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
from replitree.tablet.members.frames import FramedWrite
from replitree.tablet.members.group import PATIENCE_S, READ_PATIENCE
from replitree.tablet.members.wire import PATH, decode_message, encode_message
from replitree.tls import NO_FILES, Contexts, TlsFiles, open_connection, split_address

_ANSWERS: dict[type, tuple[type, ...]] = {
    Write: (Done, Overtaken, Conflict, Swept),
    Raise: (Done, Overtaken),
    AskFence: (FenceIs,),
    AskBarrier: (BarrierIs,),
    Look: (Contents, Overtaken),
    Scan: (Contents, Overtaken),
    Sweep: (Done, Overtaken),
    AskStanding: (Standing,),
    Admit: (Done,),
    Remember: (Done,),
    AskStreams: (Streams,),
    AskRules: (Rules,),
}
"""The answers to each kind of question, besides `Failed`."""


class RemoteMember:
    """A member that a service has.  Any thread may use it; requests go one after the other.

    Parameters
    ----------
    address
        ``host:port`` or ``https://host:port`` of the service.
    token
        The shared secret.
    patience_s
        How long an answer is waited for, in seconds; `READ_PATIENCE` times as long if blobs are to be read.
    tls
        What TLS is made with, where the address wants it.
    """

    def __init__(self, address: str, token: str, patience_s: float = PATIENCE_S, tls: TlsFiles = NO_FILES) -> None:
        self._address = address
        self._tls = Contexts(tls)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        self._patience_s = patience_s
        self._turn = threading.Lock()
        self._kept: http.client.HTTPConnection | None = None
        self._is_closed = False

    def answer(self, request: Request) -> Reply:
        """Carry out a request durably and answer it."""
        reply = self._ask(_plain(request))
        assert not isinstance(reply, Standing | Streams | Rules)
        return reply

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Carry out a request if the service still has the member that was admitted."""
        reply = self._ask(_plain(request), admission)
        assert not isinstance(reply, Standing | Streams | Rules)
        return reply

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""
        reply = self._ask(AskStanding())
        assert isinstance(reply, Standing | Failed)
        return reply

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening."""
        return self._done(Admit(session, stood))

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember each member's last session."""
        return self._done(Remember(seen))

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has, or had, blobs in which channels."""
        reply = self._ask(AskStreams())
        assert isinstance(reply, Streams | Failed)
        return reply

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""
        reply = self._ask(AskRules())
        assert isinstance(reply, Rules | Failed)
        return reply

    def close(self) -> None:
        """Close the connection for good, at once: a thread that waits for an answer is told that it does not come."""
        self._is_closed = True
        if self._turn.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._turn.release()
        elif (kept := self._kept) is not None and (sock := kept.sock) is not None:
            with suppress(OSError):  # it was closed just now
                sock.shutdown(socket.SHUT_RDWR)

    def _done(self, question: Admit | Remember) -> Done | Failed:
        reply = self._ask(question)
        assert isinstance(reply, Done | Failed)
        return reply

    def _ask(self, question: Question, admission: Admission | None = None) -> Answer:
        question = question.plain if isinstance(question, FramedWrite) else question
        with self._turn:
            answered = self._answered(question, admission)
        # Closed meanwhile: only this thread can close the connection that it has opened since.
        if self._is_closed:
            self.close()
        if isinstance(answered, Failed):
            return answered
        status, body = answered
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

    def _answered(self, question: Question, admission: Admission | None) -> tuple[int, bytes] | Failed:
        """Return the status and the body of the answer; or that none has come."""
        if self._is_closed:
            return Failed(f"the connection to the blob service at {self._address} was closed")
        patience_s = self._patience_s * (READ_PATIENCE if isinstance(question, Look | Scan) else 1)
        try:
            body, kept = encode_message(question, admission), self._kept
            # Once more where the kept connection was closed.
            try:
                return self._send(kept or self._connect(), body, patience_s)
            except (ConnectionError, http.client.BadStatusLine):
                # A fresh connection that fails is no idle one that the server closed: then nothing is sent twice.
                if kept is None or self._is_closed:
                    raise
                self._drop()
                return self._send(self._connect(), body, patience_s)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            why = str(error) or type(error).__name__
            return Failed(f"the blob service at {self._address} did not answer: {why}; what it was asked may be done")

    def _send(self, connection: http.client.HTTPConnection, body: bytes, patience_s: float) -> tuple[int, bytes]:
        # Sending has the short patience; only a read of a long log is waited for longer.
        _wait_for(connection, self._patience_s)
        connection.request("POST", PATH, body, self._headers)
        _wait_for(connection, patience_s)
        with connection.getresponse() as response:
            return response.status, response.read()

    def _connect(self) -> http.client.HTTPConnection:
        kept = self._kept = http.client.HTTPConnection(split_address(self._address)[1], timeout=self._patience_s)
        kept.sock = open_connection(self._address, self._tls, self._patience_s)
        return kept

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _wait_for(connection: http.client.HTTPConnection, patience_s: float) -> None:
    """Set how long a connection may be silent, if it is open."""
    sock: socket.socket | None = connection.sock
    if sock is not None:
        sock.settimeout(patience_s)


def _plain(request: Request) -> Request:
    return request.plain if isinstance(request, FramedWrite) else request
