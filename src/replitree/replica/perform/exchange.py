"""Part exchange, the receiving side: copy parts from other replicas over HTTP.

Small parts come several to an answer (a *bundle*), are checked in memory and made durable together; of a large part the bundle
holds only the manifest, and its files follow in ranges, in parallel, each range written where it belongs and resumed after an
interruption.  Memory is bounded by one small part, or `CHUNK_BYTES`, per thread.  A silent source delays a fetch only shortly:
it is given up, avoided for a while, and another replica that has the part is asked.  What arrives counts only after every file
has the checksum of its manifest and the manifest has the content hash that the log says.
"""

from __future__ import annotations

import errno
import http.client
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from replitree import private
from replitree.decoding import json_decoder
from replitree.errors import CorruptPart, ReplicaUnavailable, ReplitreeError, StoreError, UnsupportedFormat
from replitree.protocol.core.effects import Fetched, FetchPart, NotFetched, StoreFailed
from replitree.replica.perform.peer_connections import Closed, PeerConnections
from replitree.replica.perform.received_ahead import ReceivedAhead
from replitree.storage.disk.fetch import ReceivedPart
from replitree.storage.disk.store import PartStore
from replitree.storage.files.durable import file_bytes
from replitree.storage.parts.manifest import MANIFEST_BYTES_MAX, MANIFEST_FILE, FileEntry, PartManifest, decode_manifest
from replitree.tls import NO_FILES, Contexts

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT})

CHUNK_BYTES = 1 << 20
RANGE_BYTES = 32 << 20
"""Size of one ranged request for a large file."""

BUNDLE_PARTS_MAX = 64
BUNDLE_INLINE_BYTES = 4 << 20
"""A part of at most this size travels whole in a bundle."""

SOURCES_AT_ONCE = 4
"""Replicas that are asked for parts side by side."""

INCOMING = "incoming-"
"""Begins the name of a file that is not complete, and of the marks of its ranges."""

SILENCE_S_MAX = 5.0
"""A source that sends nothing for so long is given up: its process may be stopped, and others may have the part."""

AVOIDED_S = 10.0
"""… and it is not asked again for so long: whatever is fetched together waits for all its sources."""

IN_CLEAR = Contexts(NO_FILES)
"""Of a replica without files of TLS: it trusts the authorities of the operating system."""

T = TypeVar("T")

FRAME = struct.Struct("<I")

HEADER_BYTES_MAX = 64 << 10
"""Bytes of what precedes a part in a bundle."""

SHARES = "send_s3_metadata"
"""A replica that can take shares over asks with 1; the answer's cookie says so, too."""

SHARES_VERSION = "s3_metadata_version"
SHARES_VERSION_BORROWING = 2
"""From this form of that metadata on files may be borrowed of other parts' shares."""
SHARES_VERSION_NEWEST = SHARES_VERSION_BORROWING
"""The newest form that this version knows; a source sends no newer form than the one asked for."""


class BundleHeader(msgspec.Struct, frozen=True):
    """What precedes each part in a bundle: its name, its manifest's length (0: not here), and whether the files follow.

    `shared`: nothing follows, now or later; the data files are the objects of the share that the manifest names.
    """

    part: str
    manifest_bytes: int
    inline: bool
    shared: bool = False


class NotHere(http.client.HTTPException):
    """The source says that it does not have what it was asked for."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a source serves, and how to ask it."""

    address: str
    token: str
    table: str
    tls: Contexts = IN_CLEAR


@dataclass(slots=True)
class _Bundle:
    """What a bundle held: small parts, written and not yet durable; large ones, of which the files are still to come."""

    received: list[ReceivedPart] = field(default_factory=list)
    large: list[tuple[FetchPart, PartManifest]] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Fetched | NotFetched | StoreFailed] = field(default_factory=dict)
    elsewhere: list[FetchPart] = field(default_factory=list)
    """Parts of shares that can't be read from here: their data must be sent."""


@dataclass(frozen=True, slots=True)
class _FileDownloads:
    """The files of a large part that are on their way, and the threads that fetch them."""

    folder: Path
    wanted: list[FileEntry]
    tasks: list[Future[None]]


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
    shares
        Whether parts are taken over by their metadata where the store is the same.
    """

    def __init__(
        self, store: PartStore, peer: Callable[[str, bool], Peer | None], threads: int, *, shares: bool = False
    ) -> None:
        self._store = store
        self.takes_shares = shares
        """Whether parts are taken over by their metadata; it changes with the table's storage."""
        self._peer = peer
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
        self._sources = ThreadPoolExecutor(SOURCES_AT_ONCE, thread_name_prefix="fetch-from")
        self._connections = PeerConnections(SILENCE_S_MAX)
        self._avoided: dict[str, float] = {}
        self._ahead = ReceivedAhead()
        self.received_bytes = 0
        """Bytes of manifests and data files that were received; counted without a lock, for measurements."""

    def close(self) -> None:
        """Stop fetching and close every connection, whichever thread opened it; later fetches are `NotFetched`."""
        # Refused connections end the tasks that wait in the pools at once.
        self._connections.refuse()
        for pool in (self._sources, self._pool):
            pool.shutdown(wait=True)
        self._connections.close()

    def begin(self, fetch: FetchPart) -> None:
        """Begin to receive a small part that `fetch` will be asked for soon; nothing is published before."""
        # With an object store nothing is begun: a share can be taken over only after its writer has registered the part.
        if self._store.shared.objects is None and not self._store.has_part(fetch.part):
            with suppress(Closed):
                self._ahead.begin(fetch, lambda: _submit(self._sources, self._receive, fetch))

    def manifest_of(self, source: str, part: str) -> PartManifest | None:
        """Ask a replica for the manifest of a part as it has it; None when it has none, or does not answer."""
        with suppress(ReplicaUnavailable):
            return self.find_manifest(source, part)
        return None

    def find_manifest(self, source: str, part: str) -> PartManifest | None:
        """Ask a replica for the manifest of a part as it has it; None when it says that it has none.

        Raises
        ------
        ReplicaUnavailable
            It gives no answer that can be read: it may have one.
        """
        peer = self._peer(source, False)
        if peer is None:
            raise ReplicaUnavailable(f"the address of replica {source} is not known")
        try:
            with closing(self._request(peer, "GET", f"/parts/{quote(part)}/manifest")) as answer:
                return decode_manifest(answer.read(), f"the manifest of {part} at {source}")
        except (OSError, http.client.HTTPException, ReplitreeError) as error:
            self._give_up(peer.address, error)
            if isinstance(error, NotHere):
                return None
            raise ReplicaUnavailable(f"replica {source} did not say where it has {part}: {error}") from error

    def have_checked(self, source: str, part: str) -> None:
        """Let a replica verify its own copy of a part; nothing happens when it does not answer."""
        peer = self._peer(source, False)
        if peer is not None:
            self._have_checked(peer, part)

    def fetch(self, fetches: Sequence[FetchPart]) -> tuple[Fetched | NotFetched | StoreFailed, ...]:
        """Fetch parts, several of one source in one request; one outcome for each, in order."""
        with self._ahead.taking(fetches) as received:
            outcomes: dict[str, Fetched | NotFetched | StoreFailed] = {
                each.part: Fetched(each.part) for each in received
            }
            try:
                if received:
                    self._store.fetched.publish(received)
            except StoreError as error:
                outcomes = {each.part: StoreFailed(str(error)) for each in received}
            for fetch in fetches:
                if fetch.part not in outcomes and self._store.content(fetch.part) == fetch.content_hash:
                    outcomes[fetch.part] = Fetched(fetch.part)
            if len(outcomes) > len(received):
                # An earlier try may have ended before it synced these names.
                self._store.sync_names()
            problem = "no source is known"
            for choice in range(max((len(fetch.sources) for fetch in fetches), default=0)):
                by_source: dict[str, list[FetchPart]] = {}
                for fetch in fetches:
                    if not isinstance(outcomes.get(fetch.part), Fetched) and choice < len(fetch.sources):
                        by_source.setdefault(fetch.sources[choice], []).append(fetch)
                try:
                    self._connections.check()
                    # Several sources at once; a single one without another thread.
                    if len(by_source) == 1:
                        ((source, wanted),) = by_source.items()
                        outcomes.update(self._fetch_all_from(source, wanted))
                    else:
                        tasks = [_submit(self._sources, self._fetch_all_from, *each) for each in by_source.items()]
                        outcomes.update({part: outcome for task in tasks for part, outcome in task.result().items()})
                except Closed as closed:
                    problem = str(closed)
                    break
            return tuple(outcomes.get(fetch.part, NotFetched(fetch.part, problem)) for fetch in fetches)

    def _receive(self, fetch: FetchPart) -> ReceivedPart | None:
        """Receive and sync a part that travels in a bundle; None when that does not work, and `fetch` is to find out why."""
        with suppress(OSError, http.client.HTTPException, ReplitreeError):
            peer = self._peer(fetch.sources[0], False)
            if peer is None:
                return None
            try:
                with closing(self._request(peer, "GET", f"/bundle?{urlencode([('part', fetch.part)])}")) as answer:
                    received = self._read_bundle(answer, {fetch.part: fetch}).received
            except (OSError, http.client.HTTPException, ReplitreeError) as error:
                # After any error the rest of the answer may still arrive on this connection.
                self._give_up(peer.address, error)
                return None
            return self._store.fetched.sync_received(received[0]) if received else None
        return None

    def _fetch_all_from(
        self, source: str, fetches: Sequence[FetchPart]
    ) -> dict[str, Fetched | NotFetched | StoreFailed]:
        """Fetch from one source, a bundle at a time."""
        outcomes: dict[str, Fetched | NotFetched | StoreFailed] = {}
        for first in range(0, len(fetches), BUNDLE_PARTS_MAX):
            outcomes.update(self._fetch_from(source, fetches[first : first + BUNDLE_PARTS_MAX]))
        return outcomes

    def _fetch_from(self, source: str, fetches: Sequence[FetchPart]) -> dict[str, Fetched | NotFetched | StoreFailed]:
        """Fetch from one source; what the source did not deliver is `NotFetched`."""
        outcomes: dict[str, Fetched | NotFetched | StoreFailed] = {}
        problem = "the source sent less than was asked for"
        try:
            # A kept connection or a known address may be out of date.
            for afresh in (False, True):
                peer = self._peer(source, afresh)
                if peer is None:
                    problem = f"the address of {source} is not known"
                    continue
                left = [fetch for fetch in fetches if fetch.part not in outcomes]
                try:
                    outcomes.update(self._bundle(peer, left))
                    break
                except (OSError, http.client.HTTPException) as error:
                    # These errors come from this replica's disk: another source would not help.
                    is_disk = isinstance(error, OSError) and error.errno in _DISK_ERRORS
                    if isinstance(error, Closed) or is_disk:
                        raise
                    problem = f"{source} at {peer.address}: {str(error) or type(error).__name__}"
                    self._give_up(peer.address, error)
        except StoreError as error:
            return {fetch.part: outcomes.get(fetch.part, StoreFailed(str(error))) for fetch in fetches}
        except OSError as error:
            return {fetch.part: outcomes.get(fetch.part, StoreFailed(f"disk: {error.strerror}")) for fetch in fetches}
        return {fetch.part: outcomes.get(fetch.part, NotFetched(fetch.part, problem)) for fetch in fetches}

    def _bundle(
        self, peer: Peer, fetches: Sequence[FetchPart], *, shares: bool = True
    ) -> dict[str, Fetched | NotFetched | StoreFailed]:
        """Ask for a bundle and publish its parts; a source that sent another content is asked to check its copy."""
        if not fetches:
            return {}
        wanted = {fetch.part: fetch for fetch in fetches}
        query = [("part", fetch.part) for fetch in fetches]
        asks = self.takes_shares and shares
        if asks:
            query += [(SHARES, "1"), (SHARES_VERSION, str(SHARES_VERSION_NEWEST))]
        with closing(self._request(peer, "GET", f"/bundle?{urlencode(query)}")) as answer:
            bundle = self._read_bundle(answer, wanted, shares=asks and _says_shares(answer))
        outcomes = bundle.outcomes
        # Parts whose shares can't be read from here are asked for again, with their data.
        outcomes.update(self._bundle(peer, bundle.elsewhere, shares=False))
        self._fetch_large(peer, bundle)
        if bundle.received:
            self._store.fetched.publish(bundle.received)
            outcomes.update({each.part: Fetched(each.part) for each in bundle.received})
        for part, problem in bundle.damaged.items():
            outcomes[part] = NotFetched(part, problem)
            self._have_checked(peer, part)
        return outcomes

    def _have_checked(self, peer: Peer, part: str) -> None:
        """Let a source check its own copy, which may be broken."""
        # The answer is not needed, and reading a large part may take the source longer than the limit.
        try:
            with closing(self._request(peer, "POST", f"/parts/{quote(part)}/check")) as answer:
                answer.read()
        except (OSError, http.client.HTTPException):
            self._connections.drop(peer.address)

    def _read_bundle(
        self, answer: http.client.HTTPResponse, wanted: dict[str, FetchPart], *, shares: bool = False
    ) -> _Bundle:
        """Read a bundle to its end; small parts are checked and written as they come.

        `shares`: they were asked for, and the answer's cookie says that they come.  What comes otherwise is an error.
        """
        bundle = _Bundle()
        for header, raw in _frames(answer):
            if header.shared and not shares:
                raise http.client.HTTPException(f"{header.part} came as a share, and that was not agreed on")
            if header.part not in wanted:
                raise http.client.HTTPException(f"{header.part} came and was not asked for")
            fetch = wanted[header.part]
            self.received_bytes += len(raw)
            try:
                manifest = decode_manifest(raw) if raw else None
            except (CorruptPart, UnsupportedFormat) as error:
                # Without the manifest it is not known where the next part begins.
                raise http.client.HTTPException(f"{header.part}: {error}") from error
            if manifest is None or manifest.content != fetch.content_hash:
                if header.inline and manifest is not None:
                    # The next part's header comes after the files of this one.
                    left = manifest.bytes
                    while left:
                        left -= len(_exactly(answer, min(left, CHUNK_BYTES)))
                bundle.outcomes[fetch.part] = NotFetched(fetch.part, "the source does not have it with this content")
            elif header.shared:
                self._take_over(bundle, fetch, raw, manifest)
            elif not header.inline:
                private.write_file(self._store.fetched.begin(fetch.part) / MANIFEST_FILE, raw)
                # Its files are asked for when this answer has been read to its end.
                bundle.large.append((fetch, manifest))
            elif manifest.bytes > BUNDLE_INLINE_BYTES:
                raise http.client.HTTPException(f"{fetch.part} is too large to travel in a bundle")
            else:
                files = [_exactly(answer, file.bytes) for file in manifest.files]
                self.received_bytes += manifest.bytes
                try:
                    received = self._store.fetched.receive(fetch.part, manifest, raw, fetch.content_hash, files)
                    bundle.received.append(received)
                except CorruptPart as error:
                    bundle.damaged[fetch.part] = str(error)
        return bundle

    def _take_over(self, bundle: _Bundle, fetch: FetchPart, raw: bytes, manifest: PartManifest) -> None:
        """Take a part over whose share can be read from here; of any other the data must be sent."""
        if not self._store.fetched.can_take_over(manifest):
            # The data of this part must be sent.
            bundle.elsewhere.append(fetch)
            return
        try:
            received = self._store.fetched.receive_shared(fetch.part, manifest, raw, fetch.content_hash)
            bundle.received.append(received)
        except CorruptPart as error:
            bundle.damaged[fetch.part] = str(error)

    def _fetch_large(self, peer: Peer, bundle: _Bundle) -> None:
        """Fetch large parts."""
        # The ranges of all parts are begun first: while one part is verified and synced, those of the next ones arrive.
        begun: list[tuple[FetchPart, _FileDownloads]] = []
        for fetch, manifest in bundle.large:
            folder = self._store.fetched.begin(fetch.part)
            # Ranges that are here already are not asked for again.
            wanted = [file for file in manifest.files if file_bytes(folder / file.name) != file.bytes]
            tasks = [
                _submit(self._pool, self._fetch_range, peer, fetch.part, file, first, folder)
                for file in wanted
                for first in range(0, file.bytes, RANGE_BYTES)
            ]
            begun.append((fetch, _FileDownloads(folder, wanted, tasks)))
        try:
            for fetch, files in begun:
                # A file gets its name after all of its ranges are here.
                problems = [problem for task in files.tasks if (problem := task.exception()) is not None]
                if problems:
                    raise problems[0]
                for file in files.wanted:
                    (files.folder / f"{INCOMING}{file.name}").replace(files.folder / file.name)
                    for mark in files.folder.glob(f"{INCOMING}{file.name}.*.done"):
                        mark.unlink()
                try:
                    self._store.fetched.finish(fetch.part, fetch.content_hash)
                    bundle.outcomes[fetch.part] = Fetched(fetch.part)
                except CorruptPart as error:
                    bundle.damaged[fetch.part] = str(error)
        finally:
            # The next try must not meet a thread that still writes into these folders.
            wait([task for _, files in begun for task in files.tasks])

    def _fetch_range(self, peer: Peer, part: str, file: FileEntry, first: int, folder: Path) -> None:
        """Fetch one range into a file of its own beside the target; `.done` ranges survive an interruption."""
        size = min(RANGE_BYTES, file.bytes - first)
        done = folder / f"{INCOMING}{file.name}.{first}.done"
        if done.exists():
            return
        target = folder / f"{INCOMING}{file.name}"
        private.touch(target)
        headers = {"Range": f"bytes={first}-{first + size - 1}"}
        try:
            with closing(
                self._request(peer, "GET", f"/parts/{quote(part)}/files/{quote(file.name)}", headers)
            ) as answer:
                self._write_range(answer, target, first, size)
        except Exception as error:
            # After any error the rest of the answer may still arrive on this connection.
            self._give_up(peer.address, error)
            raise
        private.touch(done)

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
        self.received_bytes += size
        # A connection can be used again only after its answer was read to the end.
        answer.read()

    def _request(
        self, peer: Peer, method: str, path: str, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send one request on this thread's kept connection and return the answer, unread."""
        if time.monotonic() < self._avoided.get(peer.address, 0.0):
            raise http.client.HTTPException("it was silent a moment ago")
        connection = self._connections.to(peer.address, peer.tls)
        all_headers = {"Authorization": f"Bearer {peer.token}", **(headers or {})}
        connection.request(method, f"/v1/tables/{quote(peer.table)}{path}", headers=all_headers)
        answer = connection.getresponse()
        if answer.status not in (200, 206):
            with closing(answer):
                text = answer.read(2000).decode(errors="replace")
            kind = NotHere if answer.status == http.HTTPStatus.GONE else http.client.HTTPException
            raise kind(f"HTTP {answer.status}: {text}")
        return answer

    def _give_up(self, address: str, error: Exception) -> None:
        """End this thread's connection to a source; one that was silent is avoided for a while."""
        if isinstance(error, TimeoutError):
            self._avoided[address] = time.monotonic() + AVOIDED_S
        self._connections.drop(address)


def _submit(pool: Executor, call: Callable[..., T], *arguments: object) -> Future[T]:
    """Give a pool something to do.

    Raises
    ------
    Closed
        It takes nothing any more.
    """
    try:
        return pool.submit(call, *arguments)
    except RuntimeError as error:
        raise Closed from error


def _says_shares(answer: http.client.HTTPResponse) -> bool:
    """Whether the cookie of an answer says that parts may come as shares."""
    cookies = answer.headers.get_all("Set-Cookie") or ()
    return any(cookie.partition(";")[0].strip() == f"{SHARES}=1" for cookie in cookies)


def _frames(answer: http.client.HTTPResponse) -> Iterator[tuple[BundleHeader, bytes]]:
    """Read the headers and manifests of a bundle; the caller reads the inline files in between.

    Raises
    ------
    http.client.HTTPException
        It ends early, or is no bundle.
    """
    while True:
        size = answer.read(FRAME.size)
        if not size:
            return
        if len(size) < FRAME.size or (header_bytes := FRAME.unpack(size)[0]) > HEADER_BYTES_MAX:
            raise http.client.HTTPException("the answer is no bundle of parts")
        try:
            header = json_decoder(BundleHeader).decode(_exactly(answer, header_bytes))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise http.client.HTTPException(f"the answer is no bundle of parts: {error}") from error
        if not 0 <= header.manifest_bytes <= MANIFEST_BYTES_MAX:
            raise http.client.HTTPException(f"{header.part[:80]} has a manifest of {header.manifest_bytes} bytes")
        yield header, _exactly(answer, header.manifest_bytes)


def _exactly(answer: http.client.HTTPResponse, size: int) -> bytes:
    data = answer.read(size) if size else b""
    if len(data) != size:
        raise http.client.IncompleteRead(data, size - len(data))
    return data


__all__ = ["BUNDLE_INLINE_BYTES", "FRAME", "BundleHeader", "Exchange", "Peer"]
