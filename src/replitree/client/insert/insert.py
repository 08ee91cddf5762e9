"""Insert: rows get into a table once, whatever happens on the way.

How, depends on how many they are:

* up to `REQUEST_ROWS_MAX` rows and `REQUEST_BYTES_MAX` bytes: one request, which the replica commits together with
  others;
* more: an *upload* (see `replitree.client.insert.upload`) in slices, and one commit for all of them.

Every insert has an identity by which replicas recognise it: the caller's token, else its content.  So it may be
repeated after a lost answer, by us within the time limit, and by the caller after `OutcomeUnknown`.  A batch of a stream is
recognised by its number, for as long as the table remembers the stream (`replitree.wire.sent_batch`).  With
``deduplicate=False`` an insert gets a token of its own, and equal rows are inserted again.  So does one that overwrites: the
same rows may have been in the table before, and are to be the only ones now.

Absent on purpose: batching of small inserts on this side; replicas do it for all their clients.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from replitree.client.insert.terms import InsertResult, Overwrite, Terms, Written, batch_of
from replitree.client.insert.upload import (
    InsertAnswer,
    Upload,
    commit_upload,
    discard_upload,
    fresh_token,
    insert_query,
    open_upload,
    renewed,
    send_part,
)
from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.client.transport.routing import ATTEMPT_S_MAX, Router
from replitree.errors import (
    BadInput,
    OutcomeUnknown,
    QuorumNotReached,
    ReplitreeError,
    TooFewReplicas,
    Unavailable,
)
from replitree.storage.parts.conform import check_sound
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite.slices import Slice, cut, is_stream
from replitree.storage.rewrite.staging import stage_slices
from replitree.storage.schema.definition import TableDefinition
from replitree.wire import tracing
from replitree.wire.block_ids import token_block
from replitree.wire.sent_batch import SentBatch
from replitree.wire.upload_life import Writer

# Rows of an insert up to this size go in one request: the replica encodes them, together with those of other clients.  Larger
# inserts are encoded here, so that the replica takes files and its memory stays bounded.
REQUEST_ROWS_MAX = 65_536
REQUEST_BYTES_MAX = 8 << 20

ELSEWHERE_S = 15.0
"""How long a commit is tried at one replica before everything is done again at another, in seconds, besides `stored_s`."""

STORED_BYTES_PER_S = 5_000_000
"""The slowest rate at which an object store may take committed files before the client gives the replica up."""


def stored_s(manifests: Sequence[PartManifest]) -> float:
    """Return how long a replica may take to store what it commits, in seconds.

    A large part that goes into an object store takes longer than any other answer.  A client that gave it up would begin again
    with another upload of the same rows, and so on without an end.
    """
    return sum(manifest.bytes for manifest in manifests) / STORED_BYTES_PER_S


class TableInserter:
    """Inserts into one table.  Any thread may use it.

    Parameters
    ----------
    definition
        The table.
    catalog, http, router
        The directory of the replicas, the connection to them, and the choice of one.
    written
        Takes note of every insert.
    """

    def __init__(
        self, definition: TableDefinition, catalog: Catalog, http: HttpClient, router: Router, written: Written
    ) -> None:
        self._definition = definition
        self._schema = definition.arrow_schema
        self._catalog = catalog
        self._http = http
        self._router = router
        self._written = written
        self._route = f"/v1/tables/{quote(definition.name)}/insert"

    @property
    def definition(self) -> TableDefinition:
        """The table, with the columns that rows are to have."""
        return self._definition

    @property
    def written(self) -> Written:
        """What was written through this connection into this table."""
        return self._written

    def insert(self, data: Any, terms: Terms) -> InsertResult:
        """Insert rows: see `Table.insert`."""
        with tracing.begin("insert", kind="client") as span:
            span.note(table=self._definition.name, token=terms.token)
            done = self._insert(data, terms)
            span.note(outcome=done.outcome, index=done.index, rows=done.rows)
            return done

    def _insert(self, data: Any, terms: Terms) -> InsertResult:
        is_table = isinstance(data, pa.Table | pa.RecordBatch) and data.schema.equals(self._schema)
        if is_table and 0 < data.num_rows <= REQUEST_ROWS_MAX:
            # The replica checks the rows again.  This check comes before the bytes are counted and written: a damaged array
            # would end the caller's process.
            check_sound(data)
            if _is_small(data):
                return self._send(data, terms)
        slices = cut(data, self._definition, terms.zone)
        first = next(slices, None)
        if first is None:
            return InsertResult(None, 0, "empty", terms.token)
        # Rows in another form or schema are counted after they were converted.
        if first.last and _is_small(first.rows):
            return self._send(first.rows, terms)
        # They are uploaded and committed; at another replica again while there is time, if the rows can be read again.
        slices, again = chain((first,), slices), not is_stream(data)
        deadline = time.monotonic() + terms.timeout_s
        while True:
            began = time.monotonic()
            upload, manifests = self.fill(slices, terms.timeout_s)
            stored = stored_s(manifests) if self._definition.is_shared else 0.0
            # The time limit is for waiting; writing files is work.
            deadline += time.monotonic() - began + stored
            left = max(1.0, deadline - time.monotonic())
            # An insert with a quorum stays with its replica, which alone knows its outcome.
            wait_s = min(left, ELSEWHERE_S + stored) if again and terms.quorum is None else left
            try:
                return self.commit(upload, manifests, replace(terms, timeout_s=wait_s))
            except (TooFewReplicas, QuorumNotReached):
                raise
            except (Unavailable, OutcomeUnknown):
                if not again or time.monotonic() >= deadline:
                    raise
            self._router.forget()
            slices = cut(data, self._definition, terms.zone)

    # --- one request --------------------------------------------------------------------------------------------------

    def _send(self, rows: pa.Table | pa.RecordBatch, terms: Terms) -> InsertResult:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write(rows)
        body, token = sink.getvalue(), terms.token
        path = self._route + insert_query(terms.batch or token, terms.overwrite, terms.quorum)
        attempt_s = ATTEMPT_S_MAX if terms.quorum is None else max(ATTEMPT_S_MAX, terms.quorum.answered_s)
        request = self._http.request

        def call(replica: ReplicaInfo, seconds: float) -> InsertAnswer:
            return request(replica.address, "POST", path, body, timeout_s=seconds, purpose="insert").decode(
                InsertAnswer
            )

        answer = self._router.ask(call, timeout_s=terms.timeout_s, token=terms.named, attempt_s=attempt_s)
        return self._result(answer, token)

    # --- an upload ----------------------------------------------------------------------------------------------------

    def fill(self, slices: Iterator[Slice], timeout_s: float) -> tuple[Upload, tuple[PartManifest, ...]]:
        """Open an upload of this table and write rows into it; return it with what it has.

        Parameters
        ----------
        slices
            The rows.
        timeout_s
            How long a replica may take to open it, in seconds.

        Raises
        ------
        Unavailable, TooManyParts
            As of `open_upload`; nothing was inserted, and the upload is gone.
        """
        upload = open_upload(self._router, self._http, self._definition.name, timeout_s=timeout_s)
        try:
            folder = upload.folder
            if folder is not None:
                return upload, stage_slices(slices, self._definition, folder)
            with renewed(upload, self._http), tempfile.TemporaryDirectory(prefix="replitree-upload-") as temporary:
                folder = Path(temporary) / "parts"
                # Not synced: the replica has the files before the folder goes.
                manifests = stage_slices(slices, self._definition, folder, sync=False)
                for manifest in manifests:
                    send_part(self._http, upload, folder / manifest.partition, manifest)
                return upload, manifests
        except BaseException:
            discard_upload(upload, self._http)
            raise

    def commit(self, upload: Upload, manifests: tuple[PartManifest, ...], terms: Terms) -> InsertResult:
        """Commit an upload of this table: see `commit_upload`.  One that was certainly not taken is discarded."""
        try:
            done = commit_upload(
                upload,
                manifests,
                terms.batch or terms.token,
                http=self._http,
                catalog=self._catalog,
                timeout_s=terms.timeout_s,
                overwrite=terms.overwrite,
                quorum=terms.quorum,
            )
            return self._result(done, terms.token)
        except OutcomeUnknown:
            # The upload stays: the replica may be about to take it.
            raise
        except ReplitreeError:
            discard_upload(upload, self._http)
            raise

    def open_upload(self, timeout_s: float, writer: Writer | None = None) -> Upload:
        """Open an upload of this table at a replica that answers; `writer` as `replitree.client.insert.upload.open_upload`."""
        return open_upload(self._router, self._http, self._definition.name, timeout_s=timeout_s, writer=writer)

    def _result(self, inserted: InsertAnswer, token: str | None) -> InsertResult:
        self._written.add(inserted.index, inserted.settled)
        return InsertResult(inserted.index, inserted.rows, inserted.outcome, token, inserted.settled, inserted.differs)

    @classmethod
    def names(
        cls,
        token: str | None,
        app_id: str | None,
        version: int | None,
        *,
        deduplicate: bool,
        overwrite: Overwrite | None = None,
    ) -> tuple[str | None, SentBatch | None]:
        """Return the token of an insert, or the batch of a stream that it is.  Raises as `check_token` and `batch_of`."""
        batch = batch_of(app_id, version, token, deduplicate=deduplicate)
        return None if batch else cls.check_token(token, deduplicate=deduplicate, overwrite=overwrite), batch

    @staticmethod
    def check_token(token: str | None, *, deduplicate: bool, overwrite: Overwrite | None = None) -> str | None:
        """Return the token to use: the caller's, a fresh one when content makes no duplicate, or None.

        Raises
        ------
        BadInput
            It is too long or empty, or contradicts `deduplicate`.
        """
        if token is None:
            # An overwrite is no duplicate of an earlier insert of the same rows: these are to be the only rows now.
            return None if deduplicate and overwrite is None else fresh_token()
        if not deduplicate:
            raise BadInput("a token is there to find duplicates: give a token, or deduplicate=False, not both")
        if not isinstance(token, str):
            raise BadInput(f"a token is text, not {token!r}")
        # The replica's own check, before any row is encoded.
        token_block(token)
        return token


def _is_small(rows: pa.Table | pa.RecordBatch) -> bool:
    return bool(rows.num_rows <= REQUEST_ROWS_MAX and rows.nbytes <= REQUEST_BYTES_MAX)


# `InsertResult` is here for `replitree.InsertResult`: the digests of explored models contain that package's text.
__all__ = ["ELSEWHERE_S", "REQUEST_BYTES_MAX", "REQUEST_ROWS_MAX", "InsertResult", "TableInserter", "stored_s"]
