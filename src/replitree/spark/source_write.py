"""Writing through the data source: tasks stage, the driver commits once.

Order, and what is left behind when it ends there:

1. *plan*     columns are checked; an upload is opened if a replica shares a disk with us    an empty upload
2. *stage*    each task attempt writes part files under a name of its own                    garbage in scratch
3. *gather*   the files of the attempts that Spark chose become one part per partition       garbage in the upload
4. *mark*     a file says that a commit may have begun                                       the same
5. *commit*   with the job's token; a lost answer is settled by repeating it                 the insert

A job that overwrites does so in the commit: what was there is read until then, and by the job itself to its end.

What a job that overwrites takes the place of may be the session's to say; its tasks bring the answer.

`abort` comes when a task failed for good, and also when `commit` raised.  It removes the scratch folder; the upload
only when the mark of step 4 is not there, for otherwise it may be part of the table.  What nobody removes, the replica
does, some minutes after the driver's process has ended (`replitree.replica.upload_life`).

Without a shared disk, the files of an attempt travel in its message to the driver (`MESSAGE_BYTES_MAX`), which sends
them on.

Of a table in an object store, tasks put the files there (`replitree.spark.store_write`); step 3 then joins manifests only, and
the replica takes the objects over in step 5.  What no insert has, it deletes with the upload.

Absent on purpose: identity of a job beyond its token.  Spark runs a repeated job as a new one.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from replitree.client.catalog import ReplicaInfo
from replitree.client.http import HttpClient
from replitree.client.insert import TIMEOUT_S, InsertResult
from replitree.client.quorum import Quorum, quorum_of
from replitree.client.slices import cut
from replitree.client.staging import stage_slices
from replitree.client.stored import Through, through_of
from replitree.client.stored_upload import PutParts, Tags, put_parts
from replitree.client.table import Table
from replitree.client.upload import Overwrite, Upload, discard_upload, fresh_token, renewed, send_part
from replitree.errors import BadInput
from replitree.replica.uploads import LIFE_SUFFIX
from replitree.spark.columns import check_columns
from replitree.spark.driver import driver_process
from replitree.spark.options import flag, open_connection, open_table, seconds
from replitree.spark.store_write import check_partitions, joined, offered, reached, sent
from replitree.spark.write import SCRATCH_SUFFIX
from replitree.storage.adopt import adopt_files
from replitree.storage.definition import TableDefinition, decode_definition
from replitree.storage.manifest import FileEntry, PartManifest, data_file, decode_manifest
from replitree.storage.objects.shares import ShareObjects

MESSAGE_BYTES_MAX = 256 << 20
"""Bytes of part files that one task may send through the driver."""

MARK = "commit_may_have_begun"

OVERWRITE_MODES: Mapping[str, Overwrite] = {"static": "all", "dynamic": "partitions"}
"""Spark's names for what is overwritten."""

SESSION_MODE = "spark.sql.sources.partitionOverwriteMode"
"""What is overwritten by a job that does not say it.

Spark tells no planner of a Python source its session's settings, but every task those of its job."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One job.  Spark keeps the same plan for `commit` and `abort`, and gives each task a copy."""

    options: Mapping[str, str]
    definition: tuple[bytes, bytes] = field(repr=False)
    names: tuple[str, ...]
    token: str
    replica: str
    upload: str
    address: str
    path: str | None
    overwrite: Overwrite | Literal["session"] | None = None
    store: str = ""
    access: str = field(default="", repr=False)

    @property
    def through(self) -> Through | None:
        """What the job says of the way to the object store."""
        return through_of(self.options.get("through"))

    @property
    def folder(self) -> Path | None:
        """The upload's folder if tasks on its machine may write there."""
        return Path(self.path) if self.path is not None else None

    @property
    def overwrites(self) -> Overwrite | None:
        """What the insert takes the place of, once that is settled."""
        assert self.overwrite != "session"
        return self.overwrite

    @property
    def scratch(self) -> Path | None:
        """Where task attempts stage, beside the upload."""
        return Path(self.path + SCRATCH_SUFFIX) if self.path is not None else None


class StagedMessage(WriterCommitMessage):
    """What one task attempt staged.

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
        self.session_mode = _session_mode()
        self.folder = folder
        self.manifests = tuple(manifest.encode() for manifest in manifests)
        self.files = dict(files)
        self.tags = tags

    def decoded(self) -> tuple[PartManifest, ...]:
        """Return the manifests."""
        return tuple(map(decode_manifest, self.manifests))


# --- plan -------------------------------------------------------------------------------------------------------------


def plan_write(options: Mapping[str, str], schema: StructType, *, overwrite: bool = False) -> WritePlan:
    """Check the columns and open an upload.

    Parameters
    ----------
    overwrite
        Take the place of what is in the table, or, with ``partitionoverwritemode=dynamic`` as an option or in the
        session, in the partitions that the rows belong to.

    Raises
    ------
    SchemaMismatch
        The rows' columns do not fit the table.
    BadInput
        An option is wrong, or the job has to go into an object store and can't.
    """
    replaced = _overwritten(options) if overwrite else None
    through = through_of(options.get("through"))
    if _quorum(options) is not None and overwrite:
        raise BadInput("a job that overwrites can't have a quorum: what it replaces would be gone if it failed")
    with open_connection(options) as connection:
        table = open_table(connection, options)
        if flag(options, "mergeschema"):
            table.merge_schema(to_arrow_schema(schema, timezone="UTC"))
        definition = table.definition
        names = check_columns(schema, definition)
        token = table.inserter.check_token(options.get("inserttoken"), deduplicate=True) or fresh_token()
        upload = table.inserter.open_upload(seconds(options, TIMEOUT_S), driver_process())
        shared = upload.folder is not None
        try:
            store = offered(upload, through)
        except BadInput:
            discard_upload(upload, table.http)
            raise
        if not shared and not store:  # it is opened again when there is something to send
            discard_upload(upload, table.http)
        elif shared:
            Path(str(upload.path) + SCRATCH_SUFFIX).mkdir()
        access = connection.access.token
    return WritePlan(
        dict(options),
        (definition.encode_metadata(), definition.encode_columns()),
        tuple(names),
        token,
        upload.replica.name,
        upload.id if shared or store else "",
        upload.replica.address,
        upload.path if shared else None,
        replaced,
        store,
        access,
    )


def _overwritten(options: Mapping[str, str]) -> Overwrite | Literal["session"]:
    """Return what a job that overwrites takes the place of: the option wins over the session's setting."""
    mode = options.get("partitionoverwritemode")
    return "session" if mode is None else _mode(mode)


def _mode(text: str) -> Overwrite:
    mode = OVERWRITE_MODES.get(text.lower())
    if mode is None:
        raise BadInput(f"option partitionOverwriteMode is static or dynamic, not {text!r}")
    return mode


def _session_mode() -> str | None:
    """Return the setting of the session whose task this is."""
    context = TaskContext.get()
    return context.getLocalProperty(SESSION_MODE) if context is not None else None


def _decided(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> WritePlan:
    """Settle what is overwritten by what the tasks know of the session."""
    if plan.overwrite != "session":
        return plan
    modes = {message.session_mode for message in messages if isinstance(message, StagedMessage)} - {None}
    return replace(plan, overwrite=_mode(modes.pop() or "static") if modes else "all")


# --- tasks ------------------------------------------------------------------------------------------------------------


def write_task(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> StagedMessage:
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
    definition = decode_definition(*plan.definition)
    rows = _reader(plan, batches)
    if rows is None:
        return StagedMessage("", (), {})
    objects = reached(definition, plan.store, plan.through, plan.replica)
    if objects is not None:
        return _put_rows(plan, definition, objects, rows)
    scratch = plan.scratch
    if scratch is not None and scratch.is_dir():
        attempt = _attempt_name()
        return StagedMessage(attempt, stage_slices(cut(rows, definition), definition, scratch / attempt), {})
    with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
        folder = Path(temporary) / "parts"
        manifests = stage_slices(cut(rows, definition), definition, folder)
        return StagedMessage("", manifests, _contents(folder, manifests))


def _put_rows(
    plan: WritePlan, definition: TableDefinition, objects: ShareObjects, rows: pa.RecordBatchReader
) -> StagedMessage:
    """Put one attempt's rows into the object store."""
    http, upload = HttpClient(plan.access), _upload(plan, definition.name)
    with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
        folder = Path(temporary) / "parts"
        manifests = stage_slices(cut(rows, definition), definition, folder, sync=False)
        put = put_parts(http, upload, objects, folder, manifests)
    return StagedMessage("", put.manifests, {}, put.tags)


def _attempt_name() -> str:
    """Return a name that no other attempt has: Spark's number for it, and chance in case Spark counts anew."""
    context = TaskContext.get()
    number = f"{context.partitionId()}-{context.taskAttemptId()}" if context is not None else "0-0"
    return f"task-{number}-{secrets.token_hex(4)}"


def _reader(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader | None:
    """Give the rows as a stream under the table's own column names; None when there are none."""
    first = next(batches, None)
    if first is None:
        return None
    schema = pa.schema([field_.with_name(name) for field_, name in zip(first.schema, plan.names, strict=True)])

    def renamed() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays(first.columns, schema=schema)
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, renamed())


def _contents(folder: Path, manifests: Sequence[PartManifest]) -> dict[str, bytes]:
    size = sum(manifest.bytes for manifest in manifests)
    if size > MESSAGE_BYTES_MAX:
        raise BadInput(
            f"a task has {size >> 20} MiB of rows, and executors that share no disk with a replica may send"
            f" {MESSAGE_BYTES_MAX >> 20} MiB each: repartition into more tasks, or run Spark where a replica runs"
        )
    return {
        f"{manifest.partition}/{file.name}": (folder / manifest.partition / file.name).read_bytes()
        for manifest in manifests
        for file in manifest.files
    }


# --- the driver's end -------------------------------------------------------------------------------------------------


def commit_job(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Make what the chosen attempts staged one insert.

    Raises
    ------
    OutcomeUnknown
        It may have been inserted; run the job again with its token as ``inserttoken``.
    """
    plan = _decided(plan, messages)
    staged = [message for message in messages if isinstance(message, StagedMessage) and message.manifests]
    definition = decode_definition(*plan.definition)
    with open_connection(plan.options) as connection:
        table = open_table(connection, plan.options)
        if not staged:
            _discard(plan, table.http)
            if plan.overwrite == "all":
                table.emptied(InsertResult(None, 0, "empty", plan.token), seconds(plan.options, TIMEOUT_S))
        elif any(message.tags is not None for message in staged):
            _commit_stored(plan, table, definition, staged)
        elif plan.path is not None and all(message.folder for message in staged):
            _commit_shared(plan, table, definition, staged)
        else:
            _commit_remote(plan, table, definition, staged)


def _commit_stored(plan: WritePlan, table: Table, definition: TableDefinition, staged: Sequence[StagedMessage]) -> None:
    """Make an insert of what is in the object store; the files of other tasks are sent to the replica, which puts them."""
    upload, tasks = _upload(plan, definition.name), list[PutParts]()
    with tempfile.TemporaryDirectory(prefix="replitree-job-") as temporary:
        for number, message in enumerate(staged):
            if message.tags is not None:
                tasks.append(PutParts(message.decoded(), message.tags))
            else:
                folder = _unpacked(plan, message, Path(temporary) / f"{number}")
                tasks.append(sent(table.http, upload, folder, message.decoded()))
    parts = joined(definition, tasks)
    if plan.scratch is not None:
        (plan.scratch / MARK).touch()
    upload, timeout_s = replace(upload, tags=parts.tags), seconds(plan.options, TIMEOUT_S)
    table.inserter.commit(
        upload,
        parts.manifests,
        plan.token,
        timeout_s=timeout_s,
        overwrite=plan.overwrites,
        quorum=_quorum(plan.options),
    )
    _remove_scratch(plan)


def _commit_shared(plan: WritePlan, table: Table, definition: TableDefinition, staged: Sequence[StagedMessage]) -> None:
    folder, scratch = plan.folder, plan.scratch
    assert folder is not None
    assert scratch is not None
    manifests = gather(definition, [(scratch / message.folder, message) for message in staged], folder)
    (scratch / MARK).touch()
    upload = _upload(plan, definition.name)
    timeout_s = seconds(plan.options, TIMEOUT_S)
    table.inserter.commit(
        upload, manifests, plan.token, timeout_s=timeout_s, overwrite=plan.overwrites, quorum=_quorum(plan.options)
    )
    _remove_scratch(plan)


def _commit_remote(plan: WritePlan, table: Table, definition: TableDefinition, staged: Sequence[StagedMessage]) -> None:
    timeout_s = seconds(plan.options, TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="replitree-job-") as temporary:
        folders = [
            (_unpacked(plan, message, Path(temporary) / f"{number}"), message) for number, message in enumerate(staged)
        ]
        target = Path(temporary) / "parts"
        target.mkdir()
        manifests = gather(definition, folders, target)
        upload = table.inserter.open_upload(timeout_s)
        with renewed(upload, table.http):
            for manifest in manifests:
                send_part(table.http, upload, target / manifest.partition, manifest)
    _discard(plan, table.http)  # the one that not all tasks could reach
    table.inserter.commit(
        upload, manifests, plan.token, timeout_s=timeout_s, overwrite=plan.overwrites, quorum=_quorum(plan.options)
    )


def _unpacked(plan: WritePlan, message: StagedMessage, folder: Path) -> Path:
    """Return where the files of a task are: in scratch, or else in a folder here, unpacked from its message."""
    if plan.scratch is not None and message.folder:
        return plan.scratch / message.folder
    for name, content in message.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def gather(
    definition: TableDefinition, staged: Sequence[tuple[Path, StagedMessage]], target: Path
) -> tuple[PartManifest, ...]:
    """Move the files of all tasks into one part per partition; return the manifests by partition.

    A partition that one task wrote alone keeps its manifest.  Files of several tasks are read once more, for their
    content hash depends on all rows.
    """
    writers: dict[str, list[tuple[Path, PartManifest]]] = {}
    for folder, message in staged:
        for manifest in message.decoded():
            writers.setdefault(manifest.partition, []).append((folder / manifest.partition, manifest))
    check_partitions(definition, writers)
    manifests = []
    for partition, parts in sorted(writers.items()):
        if len(parts) == 1:
            manifests.append(_moved(*parts[0], target / partition))
        else:
            files = [folder / file.name for folder, manifest in parts for file in manifest.files]
            manifests.append(adopt_files(files, definition, target, partition))
    return tuple(manifests)


def _moved(source: Path, manifest: PartManifest, target: Path) -> PartManifest:
    target.mkdir()
    entries = []
    for number, file in enumerate(manifest.files):
        (source / file.name).rename(target / data_file(number))
        entries.append(FileEntry(data_file(number), file.rows, file.bytes, file.checksum))
    return msgspec.structs.replace(manifest, files=tuple(entries))


def abort_job(plan: WritePlan) -> None:
    """Remove what was staged, unless a commit may have begun: a replica discards no upload that it commits."""
    scratch = plan.scratch
    if scratch is None or not (scratch / MARK).exists():
        _discard(plan, HttpClient(plan.access))
    _remove_scratch(plan)


def _discard(plan: WritePlan, http: HttpClient) -> None:
    if plan.upload:
        discard_upload(_upload(plan, decode_definition(*plan.definition).name), http)
        _remove_scratch(plan)


def _remove_scratch(plan: WritePlan) -> None:
    """Remove what task attempts staged, and, when the upload is gone too, what says who wrote it."""
    if plan.scratch is not None and plan.path is not None:
        shutil.rmtree(plan.scratch, ignore_errors=True)
        if not Path(plan.path).exists():
            Path(plan.path + LIFE_SUFFIX).unlink(missing_ok=True)


def _upload(plan: WritePlan, table: str) -> Upload:
    assert plan.upload, "it was opened when the job was planned"
    return Upload(table, plan.upload, ReplicaInfo(plan.replica, plan.address), "", plan.path)


def _quorum(options: Mapping[str, str]) -> Quorum | None:
    """Return the quorum that the options of a job ask for.  Raises as `quorum_of`."""
    timeout_s = seconds(options, option="quorumtimeout") if "quorumtimeout" in options else None
    return quorum_of(options.get("quorum"), timeout_s)
