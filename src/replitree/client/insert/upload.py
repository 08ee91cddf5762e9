"""Uploads: the way into a table for more rows than one request should carry.

Order, with what a crash or a failure between two steps leaves:

1. *open*     the replica makes an empty folder                          after: a folder that the replica removes
              (`replitree.wire.upload_life`)
2. *fill*     part files are written into it, or sent to it              after: garbage in that folder
3. *commit*   the manifests and the token: one insert, all or nothing    an answer that is lost leaves a doubt
4. *settle*   in doubt, the commit is repeated with the same token, and the token is looked up in coordination

An upload belongs to one replica and can be committed there only.  Its files are never part of the table before the
commit.

Absent on purpose: resuming an upload after its client died; repeat the insert with the same token.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from replitree.client.insert.quorum import InsertQuorum
from replitree.client.insert.terms import Overwrite
from replitree.client.transport.catalog import Catalog, ReplicaInfo, this_machine
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.client.transport.lease import Lease, LeaseHandle
from replitree.client.transport.routing import Router
from replitree.errors import BadInput, ReplicaUnavailable, ReplitreeError
from replitree.protocol.core.effects import BlockId
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.wire.identity import process_started
from replitree.wire.sent_batch import SentBatch
from replitree.wire.staged_file import StagedFile
from replitree.wire.upload_life import Writer

OPEN_S_MAX = 15.0
SEND_S_MAX = 120.0
"""Longest silence of a replica while it receives a file, in seconds."""

SIGN_S = 180.0
"""Longest silence of an upload's writer towards another machine's replica, in seconds; it signs several times as often."""

SEND_TRIES = 3


class InsertAnswer(msgspec.Struct, frozen=True):
    """What a replica answers to an insert; `settled` is where its quorum ended, if it has one.

    `differs`: it is a duplicate by its token, and the rows are others.
    """

    outcome: str
    rows: int
    index: int | None = None
    settled: int | None = None
    differs: bool = False


class _Opened(msgspec.Struct, frozen=True):
    """What a replica answers to the opening of an upload."""

    upload: str
    machine: str
    path: str | None = None
    store: str = ""


class _Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    manifests: tuple[PartManifest, ...]
    tags: Mapping[str, Mapping[str, str]] = {}
    pieces: Mapping[str, tuple[PartManifest, ...]] = {}


@dataclass(frozen=True, slots=True)
class Upload:
    """An open upload.

    Attributes
    ----------
    table, id
        Its table's name, and its own.
    replica
        Whose it is.
    machine, path
        On which machine its folder lies, and where; no path when it can be reached over HTTP only.
    store
        Id of the object store into which its files may be put instead (`replitree.client.insert.stored_upload`); empty
        if they may not, or the replica is of an earlier version.
    tags
        Of the files that were put there: what the store said of them, by partition and name.
    pieces
        Of a part that several tasks wrote: a manifest for the files of each, by partition.
    """

    table: str
    id: str
    replica: ReplicaInfo
    machine: str
    path: str | None
    store: str = ""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pieces: Mapping[str, tuple[PartManifest, ...]] = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        """Its folder if this process can write there as the replica's user, else None."""
        if self.path is None or self.machine != this_machine():
            return None
        folder = Path(self.path)
        try:
            # A file of another user, root too, would be closed to the replica.
            is_own = folder.is_dir() and folder.stat().st_uid == os.geteuid()
            return folder if is_own and os.access(folder, os.W_OK | os.X_OK) else None
        except OSError:
            # This process may not look into the replica's folders: the files are sent to the replica.
            return None

    @property
    def route(self) -> str:
        """Its path in the replica's API."""
        return f"/v1/tables/{quote(self.table)}/uploads/{self.id}"


def this_process() -> Writer:
    """Return who this process is, for the replica that keeps an upload for it."""
    return Writer(this_machine(), os.getpid(), process_started(os.getpid()) or 0)


def open_upload(
    router: Router, http: HttpClient, table: str, *, timeout_s: float, writer: Writer | None = None
) -> Upload:
    """Open an upload at a replica that answers.

    Parameters
    ----------
    writer
        The process that will commit it; this one by default.

    Raises
    ------
    Unavailable
        No replica takes one now.
    TooManyParts
        The table takes no inserts before its parts are merged.
    """
    body = msgspec.json.encode(writer if writer is not None else this_process())

    def call(replica: ReplicaInfo, seconds: float) -> Upload:
        route = f"/v1/tables/{quote(table)}/uploads"
        answer = http.request(replica.address, "POST", route, body, timeout_s=seconds)
        opened = answer.decode(_Opened)
        return Upload(table, opened.upload, replica, opened.machine, opened.path, opened.store)

    return router.ask(call, timeout_s=timeout_s, attempt_s=OPEN_S_MAX)


@contextmanager
def renewed(upload: Upload, http: HttpClient) -> Iterator[None]:
    """Renew an upload from a thread while it is being written."""
    # A replica on this machine sees whether the process of the writer lives.
    if upload.machine == this_machine():
        yield
        return

    def renew() -> None:
        http.request(upload.replica.address, "POST", upload.route, b"", timeout_s=OPEN_S_MAX).decode(dict[str, Any])

    handle = LeaseHandle(upload.replica.address, upload.table, upload.id, SIGN_S)
    renewal = Lease(handle, renew, lambda: None)
    try:
        yield
    finally:
        renewal.release()


def send_part(http: HttpClient, upload: Upload, folder: Path, manifest: PartManifest) -> None:
    """Send the data files of one part to an upload's replica.

    Parameters
    ----------
    folder
        Where the files are.

    Raises
    ------
    ReplicaUnavailable
        A file did not get there; nothing was inserted.
    """
    for file in manifest.files:
        send_file(http, upload, manifest.partition, folder / file.name, file)


def send_file(http: HttpClient, upload: Upload, partition: str, path: Path, file: FileEntry, attempt: str = "") -> None:
    """Send one data file to an upload's replica.

    Parameters
    ----------
    path
        Where the file is.
    file
        Its name in the upload, its size and its checksum.
    attempt
        Of a Spark task: the name of its attempt.  The file is no part of the upload before `gather` names it.

    Raises
    ------
    ReplicaUnavailable
        It did not get there; nothing was inserted.
    """
    address, size = upload.replica.address, file.bytes
    place = f"tasks/{attempt}/{quote(partition)}" if attempt else quote(partition)
    route = f"{upload.route}/{place}/{file.name}?checksum={file.checksum}"
    problem: ReplitreeError = ReplicaUnavailable(f"{address} does not answer")
    # Sending a part again is harmless: it is the same bytes under the same name.
    for _ in range(SEND_TRIES):
        try:
            with path.open("rb") as body:
                http.request(address, "PUT", route, body, timeout_s=SEND_S_MAX, length=size).decode(dict[str, int])
        except (AnswerLost, ReplicaUnavailable) as error:
            problem = error
        else:
            return
    raise ReplicaUnavailable(f"a file of the insert could not be sent ({problem}); nothing was inserted, try again")


def gather_files(http: HttpClient, upload: Upload, files: Sequence[StagedFile]) -> None:
    """Make files that tasks' attempts have sent the files of an upload; those of other attempts are removed.

    Raises
    ------
    ReplicaUnavailable
        The replica did not do it; nothing was inserted.
    BadInput
        A file is not there, or the upload is gone.
    """
    body = msgspec.json.encode({"files": files})
    problem: ReplitreeError = ReplicaUnavailable(f"{upload.replica.address} does not answer")
    # Again is harmless: what was renamed stays as it is.
    for _ in range(SEND_TRIES):
        try:
            http.request(upload.replica.address, "POST", f"{upload.route}/gather", body, timeout_s=SEND_S_MAX).decode(
                dict[str, Any]
            )
        except (AnswerLost, ReplicaUnavailable) as error:
            problem = error
        else:
            return
    raise ReplicaUnavailable(
        f"the files of the insert's tasks were not gathered ({problem}); nothing was inserted, try again"
    )


def commit_upload(
    upload: Upload,
    manifests: Sequence[PartManifest],
    token: str | SentBatch | None,
    *,
    http: HttpClient,
    catalog: Catalog,
    timeout_s: float,
    overwrite: Overwrite | None = None,
    quorum: InsertQuorum | None = None,
) -> InsertAnswer:
    """Make an upload an insert.

    Parameters
    ----------
    manifests
        One for each part, at least one.
    token
        Or the batch of a stream that it is.  None: the content decides what is a duplicate.
    overwrite
        What the insert takes the place of, if anything.
    quorum
        How many replicas must have the rows before it counts.

    Raises
    ------
    OutcomeUnknown
        It may have become one.
    StreamReplaced
        It did not: the stream belongs to another query.
    Unavailable
        It certainly did not.
    BadInput
        The files are not what the manifests say, or the upload is gone.
    """
    body = msgspec.json.encode(_Commit(tuple(manifests), upload.tags, upload.pieces))
    query = insert_query(token, overwrite, quorum)

    def call(replica: ReplicaInfo, seconds: float) -> InsertAnswer:
        answer = http.request(replica.address, "POST", f"{upload.route}/commit{query}", body, timeout_s=seconds)
        try:
            return answer.decode(InsertAnswer)
        except BadInput:
            # The upload may be gone because an earlier try, whose answer was lost, took it.
            # What has become of a batch, the replica has found out itself.
            if isinstance(token, SentBatch):
                raise
            found, index = catalog.find_block(upload.table, block_of(manifests, token))
            # A repeated request with the token waits for the quorum and gets its outcome.
            if not found or quorum is not None:
                raise
            return InsertAnswer("duplicate", sum(manifest.rows for manifest in manifests), index)

    router = Router(catalog, upload.table, upload.replica.name)
    named = token.name if isinstance(token, SentBatch) else token or ""
    return router.ask(call, timeout_s=timeout_s, token=named, attempt_s=timeout_s)


def insert_query(token: str | SentBatch | None, overwrite: Overwrite | None, quorum: InsertQuorum | None = None) -> str:
    """Return what an insert says of itself in the query of its request.

    >>> insert_query("load 7", "all")
    '?token=load%207&overwrite=all'
    >>> insert_query(SentBatch("etl", 7), None)
    '?stream=etl&batch=7'
    >>> insert_query(None, None)
    ''
    """
    said = token.said() if isinstance(token, SentBatch) else {} if token is None else {"token": token}
    said |= {} if overwrite is None else {"overwrite": overwrite}
    said |= quorum.said() if quorum is not None else {}
    return f"?{urlencode(said, quote_via=quote, safe='')}" if said else ""


def discard_upload(upload: Upload, http: HttpClient) -> None:
    """Delete an upload that was not committed.  A failure leaves it to the replica's sweep."""
    with suppress(ReplitreeError):
        http.request(upload.replica.address, "DELETE", upload.route, timeout_s=OPEN_S_MAX)


def block_of(manifests: Sequence[PartManifest], token: str | None) -> BlockId:
    """Return the deduplication id that a replica gives an upload."""
    from replitree.wire.block_ids import content_block, token_block

    if token is not None:
        return token_block(token)
    return content_block(tuple(manifest.content_hash for manifest in manifests))


def fresh_token() -> str:
    """Return a token that no other insert has."""
    return f"unique-{secrets.token_hex(16)}"
