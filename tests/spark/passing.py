"""A server in front of a replica that passes requests on, counts them, and does what a test says to the answers."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Self

from typing_extensions import override

CUT = "send the first half, then close the connection"
DAMAGE = "change a byte"
REFUSE = "close the connection"

OWN_HEADERS = frozenset({"connection", "content-length", "date", "server", "transfer-encoding"})
"""Headers of a connection, not of what is sent through it; and those that Python's server sends by itself."""

REPLICA_S_MAX = 300.0
"""How long the replica may take to answer, in seconds."""


class Passed(NamedTuple):
    """One request: its method, its path without the query, its range, and how many bytes were answered."""

    method: str
    path: str
    range: str
    bytes: int


class Passing:
    """Listens on a free port of 127.0.0.1; a context manager.

    Parameters
    ----------
    address
        Of the replica; of one that has not started yet, what finds it.
    answered
        Is called with each request that the replica has answered, and the port of its client, which has not heard the answer.
        False: it never does.
    """

    def __init__(
        self, address: str | Callable[[], str], answered: Callable[[Passed, int], bool] = lambda *_: True
    ) -> None:
        self.replica: Callable[[], str] = (lambda: address) if isinstance(address, str) else address
        self.answered = answered
        self.seen: list[Passed] = []
        self.script: deque[str] = deque()
        """What is done to the next answers with ranges of data files."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self._server.server_port}"

    def ranges(self) -> list[Passed]:
        """Return the requests for ranges so far, and forget all requests."""
        seen, self.seen = self.seen, []
        return [each for each in seen if each.range]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(passing: Passing) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in OWN_HEADERS}
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            replica = http.client.HTTPConnection(passing.replica(), timeout=REPLICA_S_MAX)
            replica.request(self.command, self.path, body=sent or None, headers=headers)
            answer = replica.getresponse()
            body = answer.read()
            replica.close()
            wanted = self.headers.get("Range", "")
            what = passing.script.popleft() if wanted and passing.script else ""
            shown = body[: len(body) // 2] if what == CUT else b"" if what == REFUSE else body
            if what == DAMAGE:
                shown = body[:100] + bytes([body[100] ^ 1]) + body[101:]
            passed = Passed(self.command, self.path.partition("?")[0], wanted, len(shown))
            passing.seen.append(passed)
            hears = passing.answered(passed, self.client_address[1]) and what != REFUSE
            if hears:
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in OWN_HEADERS:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(shown)
            self.close_connection = not hears or what == CUT

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the names that http.server looks for

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
