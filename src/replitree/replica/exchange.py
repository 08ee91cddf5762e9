"""Part exchange, the receiving side: copy parts from other replicas over HTTP.

Small parts come several to an answer (a *bundle*); of a large part the bundle holds only the manifest, and its files follow in
ranges, in parallel, each range written where it belongs and resumed after an interruption.  Memory is bounded by
`CHUNK_BYTES` per thread.  What arrives counts only after every file has the checksum of its manifest and the manifest has the
content hash that the log says.
"""

from __future__ import annotations

import errno
import http.client
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec

from replitree.errors import CorruptPart, StoreError
from replitree.protocol.effects import Fetched, FetchPart, NotFetched, StoreFailed
from replitree.storage.disk import PartStore
from replitree.storage.durable import file_bytes
from replitree.storage.manifest import MANIFEST_FILE, FileEntry, PartManifest, decode_manifest

CHUNK_BYTES = 1 << 20
RANGE_BYTES = 32 << 20
"""Size of one ranged request for a large file."""

BUNDLE_PARTS_MAX = 64
BUNDLE_INLINE_BYTES = 4 << 20
"""A part of at most this size travels whole in a bundle."""

INCOMING = "incoming-"
"""Begins the name of a file that is not complete, and of the marks of its ranges."""

TIMEOUT_S = 20.0
FRAME = struct.Struct("<I")


class BundleHeader(msgspec.Struct, frozen=True):
    """What precedes each part in a bundle: its name, its manifest's length (0: not here), and whether the files follow."""

    part: str
    manifest_bytes: int
    inline: bool


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a source serves, and how to ask it."""

    address: str
    token: str
    table: str


class _Connections(threading.local):
    """Keep-alive connections of one thread, by address."""

    def __init__(self) -> None:
        self.open: dict[str, http.client.HTTPConnection] = {}


class Exchange:
    """Fetches parts of one table.

    Parameters
    ----------
    store
        Where parts go.
    peer
        Finds a replica's address from its name; None when it is not known.
    threads
        Ranges fetched at once.
    """

    def __init__(self, store: PartStore, peer: Callable[[str, bool], Peer | None], threads: int) -> None:
        self._store = store
        self._peer = peer
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
        self._connections = _Connections()
        self._opened: set[http.client.HTTPConnection] = set()

    def close(self) -> None:
        """Stop fetching and close every connection, whichever thread opened it."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for connection in list(self._opened):
            connection.close()

    def fetch(self, fetches: Sequence[FetchPart]) -> tuple[Fetched | NotFetched | StoreFailed, ...]:
        """Fetch parts, several of one source in one request; one outcome for each, in order."""
        outcomes: dict[str, Fetched | NotFetched | StoreFailed] = {}
        for fetch in fetches:
            if self._store.has_part(fetch.part) and self._store.manifest(fetch.part).content_hash == fetch.content_hash:
                outcomes[fetch.part] = Fetched(fetch.part)
        for attempt in range(max((len(fetch.sources) for fetch in fetches), default=0)):
            by_source: dict[str, list[FetchPart]] = {}
            for fetch in fetches:
                if not isinstance(outcomes.get(fetch.part), Fetched) and attempt < len(fetch.sources):
                    by_source.setdefault(fetch.sources[attempt], []).append(fetch)
            for source, wanted in by_source.items():
                for first in range(0, len(wanted), BUNDLE_PARTS_MAX):
                    outcomes.update(self._fetch_from(source, wanted[first : first + BUNDLE_PARTS_MAX]))
        return tuple(outcomes.get(fetch.part, NotFetched(fetch.part, "no source is known")) for fetch in fetches)

    def _fetch_from(self, source: str, fetches: Sequence[FetchPart]) -> dict[str, Fetched | NotFetched | StoreFailed]:
        """Fetch from one source; what the source did not deliver is `NotFetched`."""
        outcomes: dict[str, Fetched | NotFetched | StoreFailed] = {}
        problem = "the source sent less than was asked for"
        try:
            for attempt in (False, True):  # a kept connection or a known address may be out of date: once more, afresh
                peer = self._peer(source, attempt)
                if peer is None:
                    problem = f"the address of {source} is not known"
                    continue
                left = [fetch for fetch in fetches if fetch.part not in outcomes]
                try:
                    outcomes.update(self._bundle(peer, left))
                    break
                except (OSError, http.client.HTTPException) as error:
                    if isinstance(error, OSError) and error.errno is not None and _is_disk_error(error):
                        raise
                    problem = f"{source} at {peer.address}: {str(error) or type(error).__name__}"
                    self._drop(peer.address)
        except StoreError as error:
            return {fetch.part: outcomes.get(fetch.part, StoreFailed(str(error))) for fetch in fetches}
        except OSError as error:
            return {fetch.part: outcomes.get(fetch.part, StoreFailed(f"disk: {error.strerror}")) for fetch in fetches}
        return {fetch.part: outcomes.get(fetch.part, NotFetched(fetch.part, problem)) for fetch in fetches}

    def _bundle(self, peer: Peer, fetches: Sequence[FetchPart]) -> dict[str, Fetched | NotFetched | StoreFailed]:
        """Ask for a bundle, stage what it holds, and publish it all with one sync of the folder."""
        if not fetches:
            return {}
        wanted = {fetch.part: fetch for fetch in fetches}
        query = urlencode([("part", fetch.part) for fetch in fetches])
        answer = self._request(peer, "GET", f"/bundle?{query}")
        outcomes: dict[str, Fetched | NotFetched | StoreFailed] = {}
        large: list[tuple[FetchPart, PartManifest]] = []
        staged: list[FetchPart] = []
        for header, raw in _frames(answer):
            fetch = wanted[header.part]
            manifest = decode_manifest(raw) if raw else None
            if manifest is None or manifest.content_hash != fetch.content_hash:
                if header.inline and manifest is not None:
                    _skip(answer, sum(file.bytes for file in manifest.files))
                outcomes[header.part] = NotFetched(header.part, "the source does not have it with this content")
            elif header.inline:
                self._receive(answer, header.part, manifest, raw)
                staged.append(fetch)
            else:
                (self._store.begin_fetch(header.part) / MANIFEST_FILE).write_bytes(raw)
                large.append((fetch, manifest))
        for fetch, manifest in large:
            self._fetch_files(peer, fetch.part, manifest)
            staged.append(fetch)
        for fetch in staged:
            outcomes[fetch.part] = self._finish(peer, fetch)
        self._store.sync_names()
        return outcomes

    def _receive(self, answer: http.client.HTTPResponse, part: str, manifest: PartManifest, raw: bytes) -> None:
        """Write the files that follow in a bundle."""
        folder = self._store.begin_fetch(part)
        for file in manifest.files:
            with (folder / file.name).open("wb") as out:
                left = file.bytes
                while left:
                    chunk = answer.read(min(left, CHUNK_BYTES))
                    if not chunk:
                        raise http.client.IncompleteRead(b"")
                    out.write(chunk)
                    left -= len(chunk)
        (folder / MANIFEST_FILE).write_bytes(raw)

    def _finish(self, peer: Peer, fetch: FetchPart) -> Fetched | NotFetched:
        """Verify and publish what was fetched; a source that sent something else is told to check its copy."""
        try:
            self._store.finish_fetch(fetch.part, fetch.content_hash, sync_names=False)
        except CorruptPart as error:
            self._request(peer, "POST", f"/parts/{quote(fetch.part)}/check").read()
            return NotFetched(fetch.part, str(error))
        return Fetched(fetch.part)

    def _fetch_files(self, peer: Peer, part: str, manifest: PartManifest) -> None:
        """Fetch the files of a large part by ranges, in parallel; ranges that are here already are not asked for again."""
        folder = self._store.begin_fetch(part)
        wanted = [file for file in manifest.files if file_bytes(folder / file.name) != file.bytes]
        tasks = [
            self._pool.submit(self._fetch_range, peer, part, file, first, folder)
            for file in wanted
            for first in range(0, file.bytes, RANGE_BYTES)
        ]
        problems = [problem for task in tasks if (problem := task.exception()) is not None]
        if problems:
            raise problems[0]
        for file in wanted:
            (folder / f"{INCOMING}{file.name}").replace(folder / file.name)
            for mark in folder.glob(f"{INCOMING}{file.name}.*.done"):
                mark.unlink()

    def _fetch_range(self, peer: Peer, part: str, file: FileEntry, first: int, folder: Path) -> None:
        """Fetch one range into a file of its own beside the target; `.done` ranges survive an interruption."""
        size = min(RANGE_BYTES, file.bytes - first)
        done = folder / f"{INCOMING}{file.name}.{first}.done"
        if done.exists():
            return
        target = folder / f"{INCOMING}{file.name}"
        target.touch()
        headers = {"Range": f"bytes={first}-{first + size - 1}"}
        try:
            answer = self._request(peer, "GET", f"/parts/{quote(part)}/files/{quote(file.name)}", headers)
            self._write_range(answer, target, first, size)
        except BaseException:
            self._drop(peer.address)
            raise
        done.touch()

    def _write_range(self, answer: http.client.HTTPResponse, target: Path, first: int, size: int) -> None:
        buffer = memoryview(bytearray(min(CHUNK_BYTES, size)))
        with target.open("r+b") as out:
            out.seek(first)
            left = size
            while left:
                n = answer.readinto(buffer[: min(len(buffer), left)])
                if not n:
                    raise http.client.IncompleteRead(b"", left)
                out.write(buffer[:n])
                left -= n
        answer.read()

    def _request(
        self, peer: Peer, method: str, path: str, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send one request on this thread's kept connection and return the answer, unread."""
        connection = self._connections.open.get(peer.address)
        if connection is None:
            connection = http.client.HTTPConnection(peer.address, timeout=TIMEOUT_S)
            self._connections.open[peer.address] = connection
            self._opened.add(connection)
        all_headers = {"Authorization": f"Bearer {peer.token}", **(headers or {})}
        connection.request(method, f"/v1/tables/{quote(peer.table)}{path}", headers=all_headers)
        answer = connection.getresponse()
        if answer.status not in (200, 206):
            text = answer.read(2000).decode(errors="replace")
            raise http.client.HTTPException(f"HTTP {answer.status}: {text}")
        return answer

    def _drop(self, address: str) -> None:
        connection = self._connections.open.pop(address, None)
        if connection is not None:
            self._opened.discard(connection)
            connection.close()


def _frames(answer: http.client.HTTPResponse) -> Iterator[tuple[BundleHeader, bytes]]:
    """Read the headers and manifests of a bundle; the caller reads the inline files in between."""
    while True:
        size = answer.read(FRAME.size)
        if not size:
            return
        header = msgspec.json.decode(_exactly(answer, FRAME.unpack(size)[0]), type=BundleHeader)
        yield header, _exactly(answer, header.manifest_bytes)


def _exactly(answer: http.client.HTTPResponse, size: int) -> bytes:
    data = answer.read(size) if size else b""
    if len(data) != size:
        raise http.client.IncompleteRead(data, size - len(data))
    return data


def _skip(answer: http.client.HTTPResponse, size: int) -> None:
    while size:
        size -= len(_exactly(answer, min(size, CHUNK_BYTES)))


def _is_disk_error(error: OSError) -> bool:
    """Whether an error came from the disk and not from the network."""
    return error.errno in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


__all__ = ["BUNDLE_INLINE_BYTES", "FRAME", "BundleHeader", "Exchange", "Peer"]
