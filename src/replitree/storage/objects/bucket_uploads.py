"""Uploads in pieces that were begun in a bucket and not ended: they are found, and aborted.

The client library can do neither, so these two requests are made here and sent by the standard library: to S3 signed as
Amazon describes it (Signature Version 4), to Google Cloud Storage, whose XML API has the same requests, with a token.  A server
that does not offer them is told of: there a rule of the bucket ends uploads.  Azure ends uploads by itself, a week after their
last block.

Source: Amazon S3 API Reference, ``ListMultipartUploads``, ``AbortMultipartUpload``; "Authenticating Requests: Using the
Authorization Header".  Google Cloud Storage, XML API, multipart uploads.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from urllib.parse import quote, urlsplit

from replitree.errors import NotAuthorized, StoreError
from replitree.storage.objects.identity import Credential, headers_of
from replitree.storage.objects.location import AMAZON, GOOGLE, StoreLocation

_UPLOAD = re.compile(r"<Upload>(.*?)</Upload>", re.DOTALL)
_REFUSED = (http.client.UNAUTHORIZED, http.client.FORBIDDEN)
_NOT_OFFERED = (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED, http.client.NOT_IMPLEMENTED)
TRIES = 6
PAUSE_S = 0.05
REQUEST_S_MAX = 60
_SERVERS = {AMAZON: "https://s3.{region}.amazonaws.com", GOOGLE: "https://storage.googleapis.com"}


class UploadsNotListed(StoreError):
    """The server does not say which uploads were begun: there may be some, or none."""


@dataclass(frozen=True, slots=True)
class BegunUpload:
    """An upload that was begun: the object's key, the upload's id, and when, by the store's clock."""

    key: str
    upload: str
    begun: datetime


class MultipartUploads:
    """The uploads below one prefix of a bucket.

    Parameters
    ----------
    location
        The bucket, and the prefix of all keys.
    credential
        Returns what signs requests now.
    wait
        Waits so many seconds.
    """

    def __init__(
        self,
        location: StoreLocation,
        credential: Callable[[], Credential],
        *,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        server = urlsplit(location.endpoint or _SERVERS[location.scheme].format(region=location.region))
        self._is_plain = server.scheme == "http"
        self._host = server.netloc
        self._location, self._credential = location, credential
        self._wait = wait

    def begun(self, prefix: str) -> Iterator[BegunUpload]:
        """Yield the uploads whose keys begin with a prefix, which is below that of the location.

        Raises
        ------
        UploadsNotListed
            The server does not offer that: nothing is known.
        StoreError, NotAuthorized
            The store gives no answer, or refuses.
        """
        query = {"prefix": self._key(prefix), "uploads": ""}
        while True:
            status, text = self._ask("GET", "", query)
            if status in _NOT_OFFERED:
                raise UploadsNotListed(
                    f"{self._location} does not list uploads in pieces: {status} {_value(text, 'Code')}"
                )
            for found in _UPLOAD.findall(text):
                root = f"{self._location.prefix}/" if self._location.prefix else ""
                begun = datetime.fromisoformat(_value(found, "Initiated"))
                yield BegunUpload(_value(found, "Key").removeprefix(root), _value(found, "UploadId"), begun)
            # A page has at most a thousand uploads.
            if _value(text, "IsTruncated") != "true":
                return
            query["key-marker"] = _value(text, "NextKeyMarker")
            query["upload-id-marker"] = _value(text, "NextUploadIdMarker")

    def abort(self, key: str, upload: str) -> None:
        """End an upload without an object; one that has ended is no error.

        Raises
        ------
        StoreError, NotAuthorized
            The store gives no answer, does not offer that, or refuses.
        """
        status, text = self._ask("DELETE", self._key(key), {"uploadId": upload})
        # 404 here means that the upload has ended.
        if status in _NOT_OFFERED and status != http.client.NOT_FOUND:
            raise StoreError(f"{self._location} does not abort uploads in pieces: {status} {_value(text, 'Code')}")

    def _key(self, key: str) -> str:
        return f"{self._location.prefix}/{key}" if self._location.prefix else key

    # --- one request ----------------------------------------------------------------------------------------------------------

    def _ask(self, method: str, key: str, query: Mapping[str, str]) -> tuple[int, str]:
        """Send a request until an answer comes; return its status and text, also of "not there" and "not offered"."""
        # The signature covers the path as it is sent, so it is quoted once and used for both.
        path = f"/{self._location.place}/{quote(key)}".removesuffix("/")
        asked = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items()))
        kind = http.client.HTTPConnection if self._is_plain else http.client.HTTPSConnection
        problem = ""
        for number in range(TRIES):
            if number:
                # A request that lists or aborts may be sent twice without harm.
                self._wait(PAUSE_S * 2**number)
            try:
                # A new connection for each request: these are rare, and a kept one may have been closed by the server.
                connection = kind(self._host, timeout=REQUEST_S_MAX)
                try:
                    connection.request(method, f"{path}?{asked}", headers=self.signed(method, path, asked))
                    answer = connection.getresponse()
                    status, text = answer.status, answer.read().decode(errors="replace")
                finally:
                    connection.close()
            except (OSError, http.client.HTTPException) as error:
                problem = str(error)
                continue
            if status < http.client.BAD_REQUEST or status in _NOT_OFFERED:
                return status, text
            problem = f"{status} {_value(text, 'Code')}"
            if status in _REFUSED:
                raise NotAuthorized(f"{self._location} refuses to list or abort uploads: {problem}")
        raise StoreError(f"{self._location} did not list or abort uploads: {problem}; try again")

    def signed(self, method: str, path: str, query: str) -> dict[str, str]:
        """Return the headers of a request without a body; each try has its own, for a signature is good for minutes.

        Parameters
        ----------
        method, path, query
            As they are sent; the query in the order of its names.
        """
        return headers_of(self._credential(), self._host, method, path, query, self._location.region)


def _value(text: str, name: str) -> str:
    """Return the text of the first element of this name; empty when there is none."""
    found = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return "" if found is None else unescape(found[1].strip())


__all__ = ["BegunUpload", "MultipartUploads", "UploadsNotListed"]
