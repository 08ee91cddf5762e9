"""Tasks that write: each stages the rows of one attempt, where the driver's end finds them (`spark.write.write_commit`).

============================  ===========================================================================================
the rows' files go            when
============================  ===========================================================================================
into the object store         the table's new parts do, and the task reaches it (`replitree.spark.write.store_write`)
into a folder of the upload   the task finds the folder, which only the replica's machine and user have
to the replica, by HTTP       else; into the same folder
============================  ===========================================================================================

Guarantees: no two attempts write under the same name; what an attempt leaves that does not count goes with the upload.  No row
travels through the driver: a task's message has manifests only.

Absent on purpose: commits.  A task knows nothing of the others.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from replitree import private
from replitree.client.insert.stored_upload import Tags, put_parts
from replitree.client.insert.upload import Upload, send_file
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.client.transport.stored import Through
from replitree.spark.write.store_write import reached, sent
from replitree.storage.parts.manifest import PartManifest, decode_manifest
from replitree.storage.rewrite.slices import cut
from replitree.storage.rewrite.staging import stage_slices
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.wire.history_format import Ranges, check_numbers, to_ranges
from replitree.wire.upload_life import SCRATCH_SUFFIX

SESSION_MODE = "spark.sql.sources.partitionOverwriteMode"
"""Spark's setting of the overwrite mode, for a job without the option.

Spark tells no planner of a Python source its session's settings, but every task those of its job."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The part of a job that every task gets.

    Attributes
    ----------
    definition
        The table, as it is encoded.
    names
        The table's names of the columns that the rows have, in the rows' order.
    http
        How replicas are asked, with a ticket for the upload.
    replica, address, upload
        Whose upload it is, and its id.
    path
        The upload's folder, if the driver may write there; tasks try.
    store
        Id of the object store that tasks put into; empty: into none.
    through
        What the job says of the way there.
    number_by
        The column that numbers the rows in a history; None: the job is not recorded.
    """

    definition: tuple[bytes, bytes] = field(repr=False)
    names: tuple[str, ...]
    http: HttpClient = field(repr=False)
    replica: str
    address: str
    upload: str
    path: str | None
    store: str = ""
    through: Through | None = None
    number_by: str | None = None

    @property
    def table(self) -> TableDefinition:
        """The table."""
        return decode_definition(*self.definition)

    @property
    def folder(self) -> Path | None:
        """The upload's folder if tasks on its machine may write there."""
        return Path(self.path) if self.path is not None else None

    @property
    def scratch(self) -> Path | None:
        """Where task attempts stage, beside the upload."""
        return Path(self.path + SCRATCH_SUFFIX) if self.path is not None else None

    @property
    def opened(self) -> Upload:
        """The upload."""
        return Upload(self.table.name, self.upload, ReplicaInfo(self.replica, self.address), "", self.path)


def job_of(
    definition: TableDefinition,
    names: Sequence[str],
    http: HttpClient,
    upload: Upload,
    *,
    store: str,
    through: Through | None = None,
    number_by: str | None = None,
) -> WriteJob:
    """Return what tasks that fill an upload are given: see `WriteJob`.  They get a ticket in place of the client's token."""
    return WriteJob(
        (definition.encode_metadata(), definition.encode_columns()),
        tuple(names),
        HttpClient(http.ticket(definition.name, upload=upload.id), http.tls),
        upload.replica.name,
        upload.replica.address,
        upload.id,
        upload.path if upload.folder is not None else None,
        store,
        through,
        number_by,
    )


class StagedMessage(WriterCommitMessage):
    """The files that one task attempt has staged.

    Attributes
    ----------
    folder
        Name of its folder beside the upload; empty when the files are in the upload or in the object store.
    manifests
        One for each part, encoded.
    tags
        When the files are in the object store: what that said of them; empty when they were sent to the replica, which
        puts them there.  None otherwise.
    session_mode
        The session's `SESSION_MODE`; None when it is not set.
    numbers
        The numbers of its rows in the history of a job that is recorded.
    """

    def __init__(self, folder: str, manifests: Sequence[PartManifest], tags: Tags | None = None) -> None:
        self.session_mode = session_mode()
        self.folder = folder
        self.manifests = tuple(manifest.encode() for manifest in manifests)
        self.tags = tags
        self.numbers: Ranges = ()

    def decoded(self) -> tuple[PartManifest, ...]:
        """Return the manifests."""
        return tuple(map(decode_manifest, self.manifests))


def session_mode() -> str | None:
    """Return the session's setting for overwrites: on a worker only the task's context has it; None: it is not set."""
    context = TaskContext.get()
    return context.getLocalProperty(SESSION_MODE) if context is not None else None


def write_task(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> StagedMessage:
    """Stage one attempt's rows, and number them if the job is recorded.

    Raises
    ------
    BadInput
        The column that numbers the rows in a history has what can't number them.
    SchemaMismatch
        A column that may not be null has nulls.
    ReplicaUnavailable
        A file did not get to the replica.
    NotAuthorized, StoreError
        They have to go into the object store, which does not work here.
    """
    if job.number_by is None:
        return _stage(job, batches)
    place, found = job.names.index(job.number_by), list[int]()

    def numbered() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(place).to_pylist()
            check_numbers(numbers, job.names[place], job.table.name)
            found.extend(numbers)
            yield batch

    # Of the rows as they are staged: calculated once more, they might be others.
    message = _stage(job, numbered())
    message.numbers = to_ranges(found)
    return message


def _stage(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> StagedMessage:
    definition = job.table
    first = next(batches, None)
    if first is None:
        return StagedMessage("", ())
    # Under the table's own column names.
    schema = pa.schema([field_.with_name(name) for field_, name in zip(first.schema, job.names, strict=True)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chain((first,), batches))
    rows = pa.RecordBatchReader.from_batches(schema, renamed)
    objects = reached(definition, job.store, job.through, job.replica)
    if objects is not None:
        with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
            folder = Path(temporary) / "parts"
            # Not synced: the files are in the object store before the folder goes.
            manifests = stage_slices(cut(rows, definition), definition, folder, sync=False)
            put = put_parts(job.http, job.opened, objects, folder, manifests)
        return StagedMessage("", put.manifests, put.tags)
    context = TaskContext.get()
    number = f"{context.partitionId()}-{context.taskAttemptId()}" if context is not None else "0-0"
    # By chance as well as by Spark's number of the attempt: another Spark context counts from 0 again.
    attempt = f"task-{number}-{secrets.token_hex(4)}"
    # The folder's name is the upload's, so no other machine has it by chance.
    scratch = job.scratch
    try:
        is_here = scratch is not None and scratch.is_dir() and os.access(scratch, os.W_OK | os.X_OK)
    except PermissionError:
        # The replica's folders are private to its user.
        is_here = False
    if scratch is not None and is_here:
        return StagedMessage(attempt, stage_slices(cut(rows, definition), definition, scratch / attempt))
    with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
        folder = Path(temporary) / "parts"
        # Not synced: the replica has the files before the folder goes.
        manifests = stage_slices(cut(rows, definition), definition, folder, sync=False)
        if job.store:
            put = sent(job.http, job.opened, folder, manifests)
            return StagedMessage("", put.manifests, put.tags)
        for manifest in manifests:
            for file in manifest.files:
                path = folder / manifest.partition / file.name
                send_file(job.http, job.opened, manifest.partition, path, file, attempt)
    return StagedMessage(attempt, manifests)


@contextmanager
def scratch_folder(upload: Path) -> Iterator[Path]:
    """Make the scratch folder of an upload, and remove it in the end."""
    scratch = upload.with_name(upload.name + SCRATCH_SUFFIX)
    try:
        private.make_folder(scratch)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


__all__ = [
    "SESSION_MODE",
    "StagedMessage",
    "WriteJob",
    "job_of",
    "scratch_folder",
    "session_mode",
    "write_task",
]
