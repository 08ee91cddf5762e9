"""Tasks that write: each stages the rows of one attempt, where the driver's end finds them (`spark.write.write_commit`).

============================  ===========================================================================================
the rows' files go            when
============================  ===========================================================================================
into the object store         the table's new parts do, and the task reaches it (`replitree.spark.write.store_write`)
into a folder of the upload   a replica's disk is this machine's
into the task's message       else, up to `MESSAGE_BYTES_MAX`
============================  ===========================================================================================

Guarantees: no two attempts write under the same name; what an attempt leaves that does not count goes with the upload.

Absent on purpose: commits.  A task knows nothing of the others.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from replitree import private
from replitree.client.insert.slices import cut
from replitree.client.insert.staging import stage_slices
from replitree.client.insert.stored_upload import Tags, put_parts
from replitree.client.insert.upload import Upload
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.client.transport.stored import Through
from replitree.errors import BadInput
from replitree.spark.write.store_write import reached
from replitree.storage.parts.manifest import PartManifest, decode_manifest
from replitree.storage.schema.definition import TableDefinition, decode_definition

MESSAGE_BYTES_MAX = 256 << 20
"""Bytes of part files that one task may send through the driver."""

SCRATCH_SUFFIX = "_scratch"
"""A folder beside an upload, on the same disk, which the replica removes with the uploads if the driver has
not."""

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
        How replicas are asked.
    replica, address, upload
        Whose upload it is, and its id; no id when tasks could do nothing with it.
    path
        The upload's folder, if the driver may write there; tasks try.
    store
        Id of the object store that tasks put into; empty: into none.
    through
        What the job says of the way there.
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
        assert self.upload, "it was opened when the job was planned"
        return Upload(self.table.name, self.upload, ReplicaInfo(self.replica, self.address), "", self.path)


def job_of(
    definition: TableDefinition,
    names: Sequence[str],
    http: HttpClient,
    upload: Upload,
    *,
    store: str,
    through: Through | None = None,
) -> WriteJob:
    """Return what tasks that fill an upload are given: see `WriteJob`."""
    is_shared = upload.folder is not None
    return WriteJob(
        (definition.encode_metadata(), definition.encode_columns()),
        tuple(names),
        http,
        upload.replica.name,
        upload.replica.address,
        upload.id if is_shared or store else "",
        upload.path if is_shared else None,
        store,
        through,
    )


class StagedMessage(WriterCommitMessage):
    """The files that one task attempt has staged.

    Attributes
    ----------
    folder
        Name of its folder in scratch; empty when the files are in `files`.
    manifests
        One for each part, encoded.
    files
        Contents by ``partition/file``, when there is no shared disk.
    tags
        When the files are in the object store: what that said of them.  None otherwise.
    session_mode
        The session's `SESSION_MODE`; None when it is not set.
    """

    def __init__(
        self,
        folder: str,
        manifests: Sequence[PartManifest],
        files: Mapping[str, bytes],
        tags: Tags | None = None,
    ) -> None:
        # The session's setting for overwrites: on a worker only the task's context has it.
        context = TaskContext.get()
        self.session_mode = context.getLocalProperty(SESSION_MODE) if context is not None else None
        self.folder = folder
        self.manifests = tuple(manifest.encode() for manifest in manifests)
        self.files = dict(files)
        self.tags = tags

    def decoded(self) -> tuple[PartManifest, ...]:
        """Return the manifests."""
        return tuple(map(decode_manifest, self.manifests))


def write_task(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> StagedMessage:
    """Stage one attempt's rows.

    Raises
    ------
    SchemaMismatch
        A column that may not be null has nulls.
    BadInput
        Without a shared disk: the rows are too many to travel through the driver.
    NotAuthorized, StoreError
        They have to go into the object store, which does not work here.
    """
    definition = job.table
    rows = _reader(job, batches)
    if rows is None:
        return StagedMessage("", (), {})
    objects = reached(definition, job.store, job.through, job.replica)
    if objects is not None:
        with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
            folder = Path(temporary) / "parts"
            # Not synced: the files are in the object store before the folder goes.
            manifests = stage_slices(cut(rows, definition), definition, folder, sync=False)
            put = put_parts(job.http, job.opened, objects, folder, manifests)
        return StagedMessage("", put.manifests, {}, put.tags)
    scratch = job.scratch
    if scratch is not None and scratch.is_dir():
        context = TaskContext.get()
        number = f"{context.partitionId()}-{context.taskAttemptId()}" if context is not None else "0-0"
        # By chance as well as by Spark's number of the attempt: another Spark context counts from 0 again.
        attempt = f"task-{number}-{secrets.token_hex(4)}"
        return StagedMessage(attempt, stage_slices(cut(rows, definition), definition, scratch / attempt), {})
    with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
        folder = Path(temporary) / "parts"
        manifests = stage_slices(cut(rows, definition), definition, folder)
        size = sum(manifest.bytes for manifest in manifests)
        # Before the files are read: the message is in this worker's memory as a whole, and in the driver's.
        if size > MESSAGE_BYTES_MAX:
            raise BadInput(
                f"a task has {size >> 20} MiB of rows, and executors that share no disk with a replica may send"
                f" {MESSAGE_BYTES_MAX >> 20} MiB each: repartition into more tasks, or run Spark where a replica runs"
            )
        contents = {
            f"{manifest.partition}/{file.name}": (folder / manifest.partition / file.name).read_bytes()
            for manifest in manifests
            for file in manifest.files
        }
        return StagedMessage("", manifests, contents)


def _reader(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader | None:
    """Give the rows as a stream under the table's own column names; None when there are none."""
    first = next(batches, None)
    if first is None:
        return None
    schema = pa.schema([field_.with_name(name) for field_, name in zip(first.schema, job.names, strict=True)])

    def renamed() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays(first.columns, schema=schema)
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, renamed())


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
    "MESSAGE_BYTES_MAX",
    "SCRATCH_SUFFIX",
    "SESSION_MODE",
    "StagedMessage",
    "WriteJob",
    "job_of",
    "scratch_folder",
    "write_task",
]
