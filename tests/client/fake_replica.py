"""A replica's HTTP server that does what a test tells it to, to see what the client makes of it.

It is not a model of a replica: the system tests run the client against real ones.  Here only the client's own decisions count,
so every answer is either scripted or the simplest one that a replica could give.
"""

from __future__ import annotations

import http.server
import json
import re
import secrets
import shutil
import socket
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pyarrow as pa
from typing_extensions import override

from replitree.client.transport.catalog import this_machine
from replitree.storage.parts.manifest import PartManifest
from replitree.wire.block_ids import token_block
from replitree.wire.identity import Identity

SERVE = "serve"
DROP_UNSEEN = "close the connection without looking at the request"
DROP_SERVED = "do what is asked for, then close the connection"


class Failure(msgspec.Struct, frozen=True):
    """An answer with an error."""

    status: int
    error: str
    message: str = "as the test said"


class Seen(msgspec.Struct, frozen=True):
    """A request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    authorization: str


class FakeReplica:
    """Serves on a free port of 127.0.0.1 until it is closed.

    Attributes
    ----------
    script
        What to do with the next requests; afterwards they are served.
    seen
        The requests so far.
    blocks
        Index of each insert that took place, by block id.
    snapshot
        What the snapshot route answers.
    pieces, attempts, gathered
        Of the last commit, of all files of tasks, and of those that became files of an upload.
    answers
        What other routes answer, by method and the end of the path: ``"POST mutations"``.
    """

    def __init__(self, name: str, uploads: Path, machine: str | None = None) -> None:
        self.name = name
        self.machine = this_machine() if machine is None else machine
        self.uploads = uploads
        self.script: deque[str | Failure] = deque()
        self.seen: list[Seen] = []
        self.blocks: dict[str, int] = {}
        self.manifests: tuple[PartManifest, ...] = ()
        self.pieces: dict[str, tuple[PartManifest, ...]] = {}
        self.attempts: set[str] = set()
        self.gathered: set[str] = set()
        self.snapshot: dict[str, object] = {}
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, object] = {}
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.connections: list[socket.socket] = []

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host if isinstance(host, str) else host.decode()}:{port}"

    @property
    def identity(self) -> bytes:
        """Value of the replica's `host` node."""
        return Identity(self.address, "0" * 32, self.machine, 1, 1).encode()

    def routes(self) -> list[str]:
        """The requests so far as text: method and last part of the path."""
        return [f"{seen.method} {seen.path.rpartition('/')[2]}" for seen in self.seen]

    def close(self) -> None:
        """End as a killed process does: nobody listens, every connection is cut."""
        self._server.shutdown()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    def serve(self, seen: Seen) -> tuple[int, bytes]:
        """Give the simplest answer that a replica could give."""
        answer = self.answers.get(f"{seen.method} {'/'.join(seen.path.split('/')[4:])}")
        if answer is not None:
            return _failure(answer) if isinstance(answer, Failure) else _json(answer)
        if seen.method == "POST" and seen.path.endswith("/insert"):
            rows = pa.ipc.open_stream(seen.body).read_all().num_rows
            return 200, self._insert(seen.query.get("token"), rows)
        if seen.method == "POST" and seen.path.endswith("/uploads"):
            upload = secrets.token_hex(16)
            (self.uploads / upload).mkdir(parents=True)
            return _json({"upload": upload, "path": str(self.uploads / upload), "machine": self.machine})
        if match := re.fullmatch(r".*/uploads/([0-9a-f]{32})/(?:tasks/([^/]+)/([^/]+)/([^/]+)|gather)", seen.path):
            return self._task_files(seen, *match.groups())
        if match := re.fullmatch(r".*/uploads/([0-9a-f]{32})(?:/([^/]+)/([^/]+)|/commit)?", seen.path):
            return self._upload(seen, *match.groups())
        if seen.path.endswith("/snapshot"):
            if "tag" in seen.query and "tag" in self.snapshot:
                is_same = seen.query["tag"] == self.snapshot["tag"]
                return _json({**self.snapshot, "parts": [], "unchanged": is_same})
            # A replica gives a lease only to a reader that asks for one.
            left_out = () if "lease_s" in seen.query else ("lease", "lease_s")
            return _json({name: value for name, value in self.snapshot.items() if name not in left_out})
        name = "/".join(seen.path.split("/")[-3:]).replace("/files/", "/")
        return (200, self.files[name]) if name in self.files else _failure(Failure(404, "TableNotFound"))

    def _upload(self, seen: Seen, upload: str, partition: str | None, file: str | None) -> tuple[int, bytes]:
        folder = self.uploads / upload
        if not folder.is_dir():
            return _failure(Failure(400, "BadInput", "there is no such upload"))
        if seen.method == "DELETE":
            shutil.rmtree(folder)
            shutil.rmtree(f"{folder}_scratch", ignore_errors=True)
            return _json({})
        if seen.method == "PUT" and partition and file:
            (folder / partition).mkdir(exist_ok=True)
            (folder / partition / file).write_bytes(seen.body)
            return _json({"bytes": len(seen.body)})
        manifests = msgspec.convert(json.loads(seen.body)["manifests"], tuple[PartManifest, ...])
        self.pieces = msgspec.convert(json.loads(seen.body).get("pieces", {}), dict[str, tuple[PartManifest, ...]])
        shutil.move(folder, self.uploads.parent / f"taken-{upload}")
        self.manifests = manifests
        return 200, self._insert(seen.query.get("token"), sum(manifest.rows for manifest in manifests))

    def _task_files(
        self, seen: Seen, upload: str, attempt: str | None, partition: str | None, file: str | None
    ) -> tuple[int, bytes]:
        scratch = self.uploads / f"{upload}_scratch"
        if attempt and partition and file:
            self.attempts.add(attempt)
            (scratch / attempt / partition).mkdir(parents=True, exist_ok=True)
            (scratch / attempt / partition / file).write_bytes(seen.body)
            return _json({"bytes": len(seen.body)})
        for named in json.loads(seen.body)["files"]:
            self.gathered.add(named["attempt"])
            (self.uploads / upload / named["partition"]).mkdir(exist_ok=True)
            source = scratch / named["attempt"] / named["partition"] / named["file"]
            if source.exists():
                source.rename(self.uploads / upload / named["partition"] / named["name"])
        shutil.rmtree(scratch, ignore_errors=True)
        return _json({})

    def _insert(self, token: str | None, rows: int) -> bytes:
        block = token_block(token) if token is not None else f"content-{len(self.blocks)}"
        known = self.blocks.get(block)
        index = self.blocks.setdefault(block, len(self.blocks))
        return json.dumps(
            {"outcome": "inserted" if known is None else "duplicate", "index": index, "rows": rows}
        ).encode()


def _json(body: object) -> tuple[int, bytes]:
    return 200, msgspec.json.encode(body)


def _failure(failure: Failure) -> tuple[int, bytes]:
    return failure.status, json.dumps({"error": failure.error, "message": failure.message, "token": ""}).encode()


def _handler(replica: FakeReplica) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        @override
        def setup(self) -> None:
            super().setup()
            replica.connections.append(self.connection)

        def answer(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen = Seen(self.command, parts.path, query, body, self.headers.get("Authorization", ""))
            replica.seen.append(seen)
            what = replica.script.popleft() if replica.script else SERVE
            if what == DROP_UNSEEN:
                self.hang_up()
                return
            status, answer = _failure(what) if isinstance(what, Failure) else replica.serve(seen)
            if what == DROP_SERVED:
                self.hang_up()
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the names that http.server looks for

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
