"""An S3 server in memory, for as much of S3 as our client speaks, that can lose answers, fail and lie.

It is for tests of what our side does with such answers; whether a real store takes our requests is tested with a real one.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from typing_extensions import override

BUCKET = "lake"
PAGE_OBJECTS = 3
"""Objects in one answer of a listing."""

_MODIFIED = "2026-01-01T00:00:00.000Z"


class Fault(Enum):
    """What happens to a request."""

    LOSE_ANSWER = auto()
    """It is done, and the connection closed."""

    CUT_ANSWER = auto()
    """It is done, and the connection closed in the middle of the answer."""

    ERROR_AFTER = auto()
    """It is done, and called failed."""

    SLOW_DOWN = auto()
    """It is not done; the client shall come back later."""

    CONFLICT = auto()
    """It is not done, for another one to the same object is under way."""

    DENY = auto()
    """It is not done: the credentials are refused."""


@dataclass
class State:
    """What the server has, and what it does wrong."""

    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    upload_keys: dict[str, str] = field(default_factory=dict)
    """Of all uploads that there ever were."""

    faults: deque[tuple[str, Fault]] = field(default_factory=deque)
    """Methods and faults: the next request with the first one's method suffers it."""

    honours_conditions: bool = True
    honours_matches: bool = True
    forgets_deletes: bool = False
    lists_the_newest: bool = True
    """Else a listing lacks the object that was written last."""

    spoils_uploads: bool = False
    """What was sent in pieces becomes an object of that size with other bytes."""

    refuses_uploads: int = 0
    """Status of the answer to whoever asks for uploads in pieces; 0: they are listed and ended."""

    generations: dict[str, int] = field(default_factory=dict)
    """Of each object that there ever was, the number of its last replacement, counted over all."""

    blocks: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Azure's uploads in pieces: by key."""

    tokens: set[str] | None = None
    """What the server of Google or Azure takes; None: everything."""

    keys: set[str] | None = None
    """The ids of the keys that the server of Amazon takes; None: all."""

    requests: list[str] = field(default_factory=list)
    """Method and path of each."""

    arrives: Callable[[str], None] = lambda _: None
    """Called with method and path of each request before it is done; while it waits others are done."""

    secrets: list[str] = field(default_factory=list)
    """Headers that prove who asks."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    def store(self, key: str, data: bytes) -> None:
        """Put an object in its place, as a new generation."""
        self.objects[key] = data
        self.generations[key] = max(self.generations.values(), default=1000) + 1


def meeting(count: int) -> Callable[[str], None]:
    """Let requests wait for each other, so many at a time: see `State.arrives`."""
    barrier = threading.Barrier(count)

    def arrives(_request: str) -> None:
        barrier.wait(60)

    return arrives


class S3Server:
    """The server, on a free port of this machine, with one bucket."""

    handler: type[Handler]
    """What answers requests; the class has Amazon's below."""

    def __init__(self) -> None:
        self.state = state = State()

        bound = type("Bound", (self.handler,), {"server_state": state})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def url(self, prefix: str = "tables", bucket: str = BUCKET) -> str:
        """Return the URL of a place in a bucket."""
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    path_begin = ""
    """What stands before the bucket in each path."""

    wbufsize = 1 << 16  # an answer in one packet
    disable_nagle_algorithm = True
    server_state: State

    @override
    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            self._serve()
            self.wfile.flush()

    @override
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        state = self.server_state
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, self._query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        bucket, _, self._key = unquote(path).removeprefix(self.path_begin).lstrip("/").partition("/")
        state.arrives(f"{self.command} {self.path}")
        with state.lock:
            state.requests.append(f"{self.command} {self.path}")
            state.secrets.append(self.headers.get("Authorization", ""))
            fault = None
            if state.faults and state.faults[0][0] == self.command:
                _, fault = state.faults.popleft()
            if fault is Fault.SLOW_DOWN:
                answer = error(503, "SlowDown")
            elif fault is Fault.CONFLICT:
                answer = error(409, "ConditionalRequestConflict")
            elif fault is Fault.DENY:
                answer = error(403, "AccessDenied")
            elif bucket != BUCKET:
                answer = error(404, "NoSuchBucket")
            else:
                answer = self._answer(body)
        self.close_connection |= fault in (Fault.LOSE_ANSWER, Fault.CUT_ANSWER)
        if fault is Fault.CUT_ANSWER:
            status, whole, headers = answer
            self._send(status, whole[: len(whole) // 2], {"Content-Length": str(len(whole))} | headers)
        if self.close_connection:
            return
        self._send(*(error(500, "InternalError") if fault is Fault.ERROR_AFTER else answer))

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        state, key = self.server_state, self._key
        if state.keys is not None and not any(f"Credential={each}/" in state.secrets[-1] for each in state.keys):
            return error(403, "ExpiredToken")
        if "uploads" in self._query or "uploadId" in self._query:
            return self._answer_upload(body)
        match self.command:
            case "PUT":
                if self.headers.get("If-None-Match") == "*" and state.honours_conditions and key in state.objects:
                    return error(412, "PreconditionFailed")
                wanted = self.headers.get("If-Match")
                if wanted is not None and state.honours_matches and wanted != _tag(state.objects.get(key)):
                    return error(412, "PreconditionFailed")
                state.store(key, body)
                return 200, b"", {"ETag": _tag(body)}
            case "POST":
                return self._delete([unquote(found) for found in re.findall(r"<Key>(.*?)</Key>", body.decode())])
            case "DELETE":
                self._delete([key])
                return 204, b"", {}
            case _ if not key:
                return self._list()
        if key not in state.objects:
            return error(404, "NoSuchKey")
        return self._read(state.objects[key])

    def _answer_upload(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        state, key, upload = self.server_state, self._key, self._query.get("uploadId", [""])[0]
        if state.refuses_uploads and self.command in ("GET", "DELETE"):
            return error(state.refuses_uploads, "NotOffered")
        if not upload:
            return self._list_uploads() if self.command == "GET" else self._begin_upload()
        if upload not in state.uploads:
            return error(404, "NoSuchUpload")
        match self.command:
            case "PUT":
                number = self._query["partNumber"][0]
                state.uploads[upload][int(number)] = body
                return 200, b"", {"ETag": f'"{number}"'}
            case "POST":
                pieces = state.uploads.pop(upload)
                whole = b"".join(piece for _, piece in sorted(pieces.items()))
                state.store(key, bytes(len(whole)) if state.spoils_uploads else whole)
                return _xml('<CompleteMultipartUploadResult><ETag>"m"</ETag></CompleteMultipartUploadResult>')
        del state.uploads[upload]
        return 204, b"", {}

    def _begin_upload(self) -> tuple[int, bytes, dict[str, str]]:
        state, name = self.server_state, f"upload-{len(self.server_state.upload_keys)}"
        state.uploads[name], state.upload_keys[name] = {}, self._key
        return _xml(f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>")

    def _delete(self, keys: list[str]) -> tuple[int, bytes, dict[str, str]]:
        for key in keys:
            if not self.server_state.forgets_deletes:
                self.server_state.objects.pop(key, None)
        return _xml(f"<DeleteResult>{''.join(f'<Deleted><Key>{key}</Key></Deleted>' for key in keys)}</DeleteResult>")

    def _list(self) -> tuple[int, bytes, dict[str, str]]:
        query = {name: values[0] for name, values in self._query.items()}
        after = query.get("continuation-token") or query.get("start-after", "")
        shown = list(self.server_state.objects)
        if not self.server_state.lists_the_newest:
            shown = shown[:-1]
        found = [key for key in sorted(shown) if key.startswith(query.get("prefix", "")) and key > after]
        page = found[:PAGE_OBJECTS]
        more = len(found) > len(page)
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_MODIFIED}</LastModified>"
            f"<Size>{len(self.server_state.objects[key])}</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        return _xml(f"<ListBucketResult>{token}{listed}</ListBucketResult>")

    def _list_uploads(self) -> tuple[int, bytes, dict[str, str]]:
        state, query = self.server_state, {name: values[0] for name, values in self._query.items()}
        after = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
        begun = sorted((state.upload_keys[name], name) for name in state.uploads)
        found = [each for each in begun if each[0].startswith(query.get("prefix", "")) and each > after]
        page = found[:PAGE_OBJECTS]
        listed = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{name}</UploadId><Initiated>{_MODIFIED}</Initiated></Upload>"
            for key, name in page
        )
        more = f"<IsTruncated>{str(len(found) > len(page)).lower()}</IsTruncated>"
        if page:
            more += (
                f"<NextKeyMarker>{page[-1][0]}</NextKeyMarker><NextUploadIdMarker>{page[-1][1]}</NextUploadIdMarker>"
            )
        return _xml(f"<ListMultipartUploadsResult>{more}{listed}</ListMultipartUploadsResult>")

    def _read(self, data: bytes) -> tuple[int, bytes, dict[str, str]]:
        headers = {"ETag": _tag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        wanted = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", self.headers.get("Range", ""))
        if wanted is None:
            return 200, data, headers
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        if first >= len(data):
            return error(416, "InvalidRange")
        return 206, data[first : last + 1], headers | {"Content-Range": f"bytes {first}-{last}/{len(data)}"}


def _tag(data: bytes | None) -> str:
    """Return the tag of an object; none has the one of nothing."""
    return "" if data is None else f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _xml(text: str) -> tuple[int, bytes, dict[str, str]]:
    return 200, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"}


def error(status: int, code: str) -> tuple[int, bytes, dict[str, str]]:
    return status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), {}


S3Server.handler = Handler
