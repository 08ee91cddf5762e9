"""A small HTTP server for one machine, on this machine only: it has no authentication.

Any process answers ``GET /status``; one that does not lead says there how often it was not elected, and why.  Commands and
reads are answered by the leader, and so is ``POST /snapshot``, by which members forget what was damaged before.

Errors have a body ``{"error": …, "message": …}``: 503 says that certainly nothing was done, 504 that it is not known, 400
that it was no command.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from replitree.errors import BadInput, CommandUnknown, NotLeader, ReplitreeError
from replitree.machines.apis import Answer, Api
from replitree.machines.standing_by import SEED_BITS
from replitree.tablet.runtime.tablet import Tablet

HOST = "127.0.0.1"
BODY_BYTES_MAX = 1 << 20
IDLE_S = 60.0
"""A connection without a request for so long, in seconds, is closed."""


class Service:
    """Serves a machine for as long as its tablet is led here, and says so when it is not.

    Parameters
    ----------
    api
        The machine.
    port
        Where to listen; 0: any.

    Raises
    ------
    BadInput
        The port can't be listened on.

    Attributes
    ----------
    tablet
        While it is led here.
    is_standing
        Whether this process is about to lead.
    failures, failure
        How often it stood and was not elected since there was a leader; why not, the last time.
    seed
        What this candidate has drawn for the next vote.
    away
        Tells which members of the group do not do what they are asked.
    """

    def __init__(self, api: Api, port: int = 0) -> None:
        self.api = api
        self.tablet: Tablet[Any] | None = None
        self.is_standing = False
        self.failures = 0
        self.failure: ReplitreeError | None = None
        self.seed = secrets.randbits(SEED_BITS)
        self.away: Callable[[], tuple[int, ...]] = tuple
        service = self

        class Handler(_ServiceHandler):
            of = service

        try:
            self._server = ThreadingHTTPServer((HOST, port), Handler)
        except OSError as error:
            raise BadInput(
                f"can't listen on {HOST}:{port} ({error.strerror}): name another port, or 0 for a free one"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def not_elected(self, error: ReplitreeError) -> None:
        """Take that this process stood and was not elected."""
        self.failures += 1
        self.failure = error
        self.draw()

    def draw(self) -> None:
        """Draw anew for the next vote."""
        self.seed = secrets.randbits(SEED_BITS)

    def leader_found(self) -> None:
        """Take that this process, or another one, leads."""
        self.failures, self.failure = 0, None

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def status(self) -> Mapping[str, Any]:
        """Return the role of this process, and what it knows of the tablet."""
        tablet = self.tablet
        if tablet is None:
            why = (
                {"error": None, "reason": None}
                if self.failure is None
                else {"error": type(self.failure).__name__, "reason": str(self.failure)}
            )
            role = "candidate" if self.is_standing else "standby"
            return {"machine": self.api.path, "role": role, "seed": self.seed, "failures": self.failures, **why}
        found = tablet.status()
        return {
            "machine": self.api.path,
            "role": "leader" if found.is_leading else "deposed",
            "generation": found.generation,
            "step": found.step,
            "confirmed": found.confirmed,
            "snapshot": "{}:{}".format(*found.snapshot),
            "commands": found.commands,
            "is_mended": found.is_mended,
            "away": list(self.away()),
            "reason": found.reason,
        }

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Answer a request."""
        try:
            return self._answer(method, path, body)
        except BadInput as error:
            return HTTPStatus.BAD_REQUEST, _told(error)
        except CommandUnknown as error:
            return HTTPStatus.GATEWAY_TIMEOUT, _told(error)
        except ReplitreeError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _told(error)

    def _answer(self, method: str, path: str, body: bytes) -> Answer:
        words = path.strip("/").split("/")
        if (method, words) == ("GET", ["status"]):
            return HTTPStatus.OK, self.status()
        if (method, words) == ("POST", ["snapshot"]):
            return HTTPStatus.OK, {"is_made": self._leading().snapshot()}
        if len(words) != 2 or words[0] != self.api.path or method not in ("GET", self.api.method):
            raise BadInput(
                f"no such request: GET or {self.api.method} /{self.api.path}/NAME, GET /status or POST /snapshot"
            )
        tablet = self._leading()
        if method == "GET":
            return HTTPStatus.OK, {**self.api.look(tablet.read(), words[1]), "generation": tablet.generation}
        status, said = self.api.answer(tablet.execute(self.api.command(words[1], body)))
        return status, {**said, "generation": tablet.generation}

    def _leading(self) -> Tablet[Any]:
        if self.tablet is None:
            why = "" if self.failure is None else f"; when it stood last it was not elected: {self.failure}"
            raise NotLeader(f"this process does not lead the tablet: ask another one{why}")
        return self.tablet


def _told(error: ReplitreeError) -> Mapping[str, str]:
    return {"error": type(error).__name__, "message": str(error)}


class _ServiceHandler(BaseHTTPRequestHandler):
    """One connection."""

    of: Service
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_S
    wbufsize = -1

    def _do(self) -> None:
        size = self.headers.get("Content-Length", "0")
        # `isdigit` alone takes superscripts, which `int` refuses, and digits of other scripts.
        if not size.isascii() or not size.isdigit() or int(size) > BODY_BYTES_MAX:
            # The body was not read: what follows on the connection would be taken for a request.
            self.close_connection = True
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": "BadInput", "message": "the body is too large"})
            return
        self._send(*self.of.answer(self.command, self.path, self.rfile.read(int(size))))

    do_GET = do_PUT = do_POST = _do  # noqa: N815 - names that the server looks for

    def _send(self, status: int, said: Mapping[str, Any]) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: requests are not logged."""
