"""A server in front of a replica that passes requests for parts on, counts them, and does what a test says to the answers."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections import deque
from typing import NamedTuple, Self

from typing_extensions import override

CUT = "send the first half, then close the connection"
DAMAGE = "change a byte"
REFUSE = "close the connection"


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
        Of the replica.
    """

    def __init__(self, address: str) -> None:
        self.replica = address
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
            headers = {name: self.headers[name] for name in ("Authorization", "Range") if name in self.headers}
            replica = http.client.HTTPConnection(passing.replica, timeout=30)
            replica.request(self.command, self.path, headers=headers)
            answer = replica.getresponse()
            body = answer.read()
            replica.close()
            wanted = headers.get("Range", "")
            what = passing.script.popleft() if wanted and passing.script else ""
            sent = body[: len(body) // 2] if what == CUT else b"" if what == REFUSE else body
            if what == DAMAGE:
                sent = body[:100] + bytes([body[100] ^ 1]) + body[101:]
            passing.seen.append(Passed(self.command, self.path.partition("?")[0], wanted, len(sent)))
            if what != REFUSE:
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(sent)
            self.close_connection = what in (CUT, REFUSE)

        do_GET = do_POST = answer  # noqa: N815 - the names that http.server looks for

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
