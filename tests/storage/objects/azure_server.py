"""Azure Blob Storage in memory: as much of it as our client speaks, with the faults of `S3Server`.

Azurite, the emulator of Azure's makers, is an npm package with some hundred others below it, so only `make nightly` runs the
tests there (`tests.storage.objects.azurite`).

Source: Azure Storage, Blob service REST API: Put Blob, Put Block, Put Block List, Get Blob, List Blobs, Blob Batch; "Specifying
conditional headers".
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape

from typing_extensions import override

from tests.storage.objects.s3_server import BUCKET, PAGE_OBJECTS, Handler, S3Server, error

ACCOUNT = "example"
KEY = base64.b64encode(b"the key of an account that nobody has").decode()
_MODIFIED = format_datetime(datetime(2026, 1, 1, tzinfo=UTC), usegmt=True)
_BATCHED = re.compile(rb"Content-ID: (\d+)\r\n.*?DELETE (\S+) HTTP/1\.1", re.DOTALL | re.IGNORECASE)

Answer = tuple[int, bytes, dict[str, str]]


class _Handler(Handler):
    path_begin = f"/{ACCOUNT}"

    @override
    def _answer(self, body: bytes) -> Answer:
        state, key = self.server_state, self._key
        if (
            state.tokens is not None
            and self.headers.get("Authorization", "").removeprefix("Bearer ") not in state.tokens
        ):
            return error(401, "AuthenticationFailed")
        match (self.command, self._query.get("comp", [""])[0]):
            case ("GET", "list"):
                return self._list_blobs()
            case ("POST", "batch"):
                return self._batch(body)
            case ("PUT", "block"):
                state.blocks.setdefault(key, {})[self._query["blockid"][0]] = body
                return 201, b"", {}
            case ("PUT", "blocklist"):
                pieces = state.blocks.pop(key, {})
                names = re.findall(r"<(?:Uncommitted|Latest)>(.*?)</", body.decode())
                whole = b"".join(pieces[name] for name in names)
                state.store(key, bytes(len(whole)) if state.spoils_uploads else whole)
                return 201, b"", self._tags(key)
            case ("PUT", _):
                return self._put(body)
        if key not in state.objects:
            return error(404, "BlobNotFound")
        status, data, headers = self._read(state.objects[key])
        return status, data, headers | self._tags(key)

    def _put(self, body: bytes) -> Answer:
        state, key = self.server_state, self._key
        if self.headers.get("If-None-Match") == "*" and state.honours_conditions and key in state.objects:
            return error(409, "BlobAlreadyExists")
        wanted = self.headers.get("If-Match")
        is_same = key in state.objects and wanted == self._tags(key)["ETag"]
        if wanted is not None and state.honours_matches and not is_same:
            return error(412, "ConditionNotMet")
        state.store(key, body)
        return 201, b"", self._tags(key)

    def _tags(self, key: str) -> dict[str, str]:
        return {"ETag": f'"0x{self.server_state.generations[key]:X}"', "Last-Modified": _MODIFIED}

    def _batch(self, body: bytes) -> Answer:
        """Delete what the parts of a batch name; each has an answer of its own."""
        state, answers = self.server_state, b""
        for number, path in _BATCHED.findall(body):
            key = unquote(urlsplit(path.decode()).path).removeprefix(f"{self.path_begin}/{BUCKET}/")
            status = b"202 Accepted" if key in state.objects else b"404 The specified blob does not exist."
            if not state.forgets_deletes:
                state.objects.pop(key, None)
            answers += b"--answers\r\nContent-Type: application/http\r\nContent-ID: %b\r\n\r\n" % number
            answers += b"HTTP/1.1 %b\r\nx-ms-request-id: 1\r\nContent-Length: 0\r\n\r\n\r\n" % status
        return 202, answers + b"--answers--\r\n", {"Content-Type": "multipart/mixed; boundary=answers"}

    def _list_blobs(self) -> Answer:
        state = self.server_state
        prefix, marker = (self._query.get(name, [""])[0] for name in ("prefix", "marker"))
        assert "startFrom" not in self._query, "not every server understands it"
        shown = list(state.objects)[: None if state.lists_the_newest else -1]
        found = [key for key in sorted(shown) if key.startswith(prefix) and key >= marker]
        page, after = found[:PAGE_OBJECTS], found[PAGE_OBJECTS:]
        blobs = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{_MODIFIED}</Last-Modified>"
            f"<Etag>0x{state.generations[key]:X}</Etag><Content-Length>{len(state.objects[key])}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
            for key in page
        )
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="x" ContainerName="{BUCKET}">'
            f"<Blobs>{blobs}</Blobs><NextMarker>{escape(after[0]) if after else ''}</NextMarker></EnumerationResults>"
        )
        return 200, text.encode(), {"Content-Type": "application/xml"}


class AzureServer(S3Server):
    """The server, on a free port of this machine, with one account and one container."""

    handler = _Handler

    @override
    def url(self, prefix: str = "tables", bucket: str = BUCKET) -> str:
        return f"az://{bucket}/{prefix}?account={ACCOUNT}&endpoint={self.endpoint}"
