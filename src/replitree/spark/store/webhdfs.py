"""The part of WebHDFS that Hadoop's client needs to read files: status, blocks, and bytes from a position on.

A file is opened in two steps: without a position the client is sent on, to the same server, and then says one wherever
it jumps to.  It names no length, and closes the connection when it has enough; so an answer is read from the store
only as far as the client takes it.

Absent on purpose: everything that changes a file, folders in folders, TLS (nothing leaves the machine), a ``Content-Type`` of
answers (the shaded client of Hadoop 3.5 lacks a class that reads it).

Source: Hadoop's WebHDFS REST API; ``WebHdfsFileSystem.ReadRunner``.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import override

from replitree.errors import CorruptPart, ReplitreeError

PREFIX = "/webhdfs/v1"
BLOCK_SIZE = 128 << 20
"""The size of blocks that Hadoop hears of; nothing depends on it."""

SEND_BYTES = 256 << 10
"""The bytes of an answer that the system may hold before the client takes them."""

IDLE_S_MAX = 75.0
"""A connection without a request for so long is closed, in seconds."""

_OFFSET = re.compile(r"[0-9]{1,18}")


class Files(Protocol):
    """The files that are served."""

    def lets_in(self, headers: Iterable[str]) -> bool:
        """Whether a request with headers of these names may read."""

    def size(self, path: str) -> int | None:
        """Bytes of the file at a path; None when there is none."""

    def sizes(self, path: str) -> Mapping[str, int] | None:
        """Bytes of the files in the folder at a path, by name; None when there is none."""

    def stream(self, path: str, first: int) -> Iterator[memoryview]:
        """Give a file's bytes from a position on.  Raises `ReplitreeError` when it can't be read (any more)."""


class FileServer(ThreadingHTTPServer):
    """Serves files on a free port of this machine.

    Parameters
    ----------
    files
        What is served.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, files: Files) -> None:
        class Handler(_WebHdfsHandler):
            serves = files

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def authority(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.server_port}"

    @override
    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if isinstance(request, socket.socket):
            # The client names no length, and closes the connection when it has enough: little is sent in advance.
            request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        super().process_request(request, client_address)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients close when they have enough."""


class _WebHdfsHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # A head and a small answer go in one packet.
    wbufsize = 1 << 14
    timeout = IDLE_S_MAX
    serves: Files

    def do_GET(self) -> None:
        """Answer one request."""
        asked = urlsplit(self.path)
        path = unquote(asked.path).removeprefix(PREFIX)
        query = {name.lower(): values[-1] for name, values in parse_qs(asked.query).items()}
        op, size, folder = query.get("op", "").upper(), self.serves.size(path), self.serves.sizes(path)
        if not self.serves.lets_in(self.headers.keys()):
            self._refuse(
                HTTPStatus.UNAUTHORIZED, "AccessControlException", "only the session that was given it reads it"
            )
        elif folder is not None and op in _OF_FOLDERS:
            self._say(HTTPStatus.OK, _OF_FOLDERS[op](folder))
        elif size is None:
            self._refuse(HTTPStatus.NOT_FOUND, "FileNotFoundException", f"{path} is not served here")
        elif op in _OF_FILES:
            self._say(HTTPStatus.OK, _OF_FILES[op](size))
        elif op == "OPEN":
            self._open(path, size, query.get("offset"))
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "UnsupportedOperationException", f"{op} is not done here")

    def _open(self, path: str, size: int, offset: str | None) -> None:
        # The first of two steps: the client expects to be sent to the server that has the bytes, which is this one.
        if offset is None:
            self._head(HTTPStatus.TEMPORARY_REDIRECT, 0, f"http://{self.headers.get('Host', '')}{self.path}")
            return
        if not _OFFSET.fullmatch(offset) or int(offset) > size:
            self._refuse(HTTPStatus.BAD_REQUEST, "IllegalArgumentException", f"the file has {size} bytes")
            return
        stream = self.serves.stream(path, int(offset))
        # The first block before the head: after it an error could only cut the answer short.
        try:
            first = next(stream, b"")
        except CorruptPart as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "ChecksumException", str(error))
            return
        except ReplitreeError as error:
            self._refuse(HTTPStatus.NOT_FOUND, "FileNotFoundException", str(error))
            return
        self._head(HTTPStatus.OK, size - int(offset))
        # Without a time limit: a task may keep a file open for as long as it works on what it has read.
        self.connection.settimeout(None)
        try:
            self.wfile.write(first)
            for block in stream:
                self.wfile.write(block)
        except ReplitreeError:
            # The answer ends before its length, which the client notices.
            self.close_connection = True
        self.connection.settimeout(IDLE_S_MAX)

    def _say(self, status: HTTPStatus, body: object) -> None:
        data = json.dumps(body).encode()
        self._head(status, len(data))
        self.wfile.write(data)

    def _refuse(self, status: HTTPStatus, kind: str, why: str) -> None:
        packages = {
            "AccessControlException": "org.apache.hadoop.security",
            "ChecksumException": "org.apache.hadoop.fs",
            "FileNotFoundException": "java.io",
        }
        name = f"{packages.get(kind, 'java.lang')}.{kind}"
        self._say(status, {"RemoteException": {"exception": kind, "javaClassName": name, "message": why}})

    def _head(self, status: HTTPStatus, length: int, location: str | None = None) -> None:
        # Without a `Content-Type`: the shaded client of Hadoop 3.5 lacks a class that reads it.
        self.send_response_only(status)
        self.send_header("Content-Length", str(length))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _status(size: int, name: str = "", *, files: int | None = None) -> dict[str, object]:
    """Say what a file is, or a folder of so many files."""
    return {
        "accessTime": 0,
        "blockSize": BLOCK_SIZE if files is None else 0,
        "childrenNum": files or 0,
        "fileId": 0,
        "group": "",
        "length": size,
        "modificationTime": 0,
        "owner": "",
        "pathSuffix": name,
        "permission": "444" if files is None else "555",
        "replication": 1 if files is None else 0,
        "storagePolicy": 0,
        "type": "FILE" if files is None else "DIRECTORY",
    }


def _listing(sizes: Mapping[str, int]) -> object:
    return {"FileStatuses": {"FileStatus": [_status(size, name) for name, size in sizes.items()]}}


_OF_FILES: dict[str, Callable[[int], object]] = {
    "GETFILESTATUS": lambda size: {"FileStatus": _status(size)},
    "LISTSTATUS": lambda size: _listing({"": size}),
    "GETFILEBLOCKLOCATIONS": lambda size: {
        "BlockLocations": {
            "BlockLocation": [
                {
                    "cachedHosts": [],
                    "corrupt": False,
                    "hosts": ["localhost"],
                    "length": size,
                    "names": ["localhost:0"],
                    "offset": 0,
                    "storageTypes": ["DISK"],
                    "topologyPaths": ["/default/localhost"],
                }
            ]
        }
    },
}

_OF_FOLDERS: dict[str, Callable[[Mapping[str, int]], object]] = {
    "GETFILESTATUS": lambda sizes: {"FileStatus": _status(0, files=len(sizes))},
    "LISTSTATUS": _listing,
}


__all__ = ["FileServer", "Files"]
