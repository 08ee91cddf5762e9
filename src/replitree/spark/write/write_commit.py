"""The driver's end of a job that writes: what its tasks have staged becomes one insert, or nothing.

Order, after the tasks (`replitree.spark.write.write_tasks`); whatever is left when it ends early goes with the upload:

1. *gather*   the files of the attempts that Spark chose become one part per partition: on this disk by this process, else by
              the replica, which renames them, while manifests are joined here; of what is in the object store the same
2. *mark*     a file beside the upload says that a commit may have begun
3. *commit*   with the job's token; a lost answer is settled by repeating it
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from replitree import private
from replitree.client.insert.stored_upload import PutParts
from replitree.client.insert.terms import InsertResult, Terms
from replitree.client.insert.upload import Upload, discard_upload, gather_files
from replitree.client.table import Table
from replitree.client.transport.http import HttpClient
from replitree.spark.write.store_write import check_partitions, joined, sent
from replitree.spark.write.write_tasks import StagedMessage, WriteJob
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.joined import joined_manifest
from replitree.storage.parts.manifest import FileEntry, PartManifest, data_file
from replitree.storage.schema.definition import TableDefinition
from replitree.wire.staged_file import StagedFile
from replitree.wire.upload_life import LIFE_SUFFIX

MARK = "commit_may_have_begun"


def commit_staged(
    job: WriteJob, table: Table, messages: Sequence[WriterCommitMessage | None], terms: Terms
) -> InsertResult:
    """Make what the chosen attempts staged one insert.

    Raises
    ------
    OutcomeUnknown
        It may have been inserted; run the job again with its token.
    """
    staged = [message for message in messages if isinstance(message, StagedMessage) and message.manifests]
    if not staged:
        discard_job(job, table.http)
        nothing = InsertResult(None, 0, "empty", terms.token)
        return table.emptied(nothing, terms.timeout_s) if terms.overwrite == "all" else nothing
    upload, manifests = gathered(job, table.http, staged)
    result = table.inserter.commit(upload, manifests, terms)
    remove_scratch(job)
    return result


def gathered(
    job: WriteJob, http: HttpClient, staged: Sequence[StagedMessage]
) -> tuple[Upload, tuple[PartManifest, ...]]:
    """Make what tasks have staged the files of an upload that can be committed; return it with the manifests of its parts.

    When some tasks have put objects into the store, the files of the others are sent to the replica, which puts them.

    Raises
    ------
    BadInput
        The rows belong to too many partitions.
    ReplicaUnavailable
        The replica did not do its part; nothing was inserted.
    """
    if any(message.tags is not None for message in staged):
        return _gathered_objects(job, http, staged)
    if job.path is not None:
        folder, scratch = job.folder, job.scratch
        assert folder is not None
        assert scratch is not None
        manifests = gather(job.table, [(scratch / message.folder, message) for message in staged], folder)
        # From here on `abort_job` discards nothing: the replica may be taking the upload.
        private.touch(scratch / MARK)
        return job.opened, manifests
    # Tasks have left the files at the replica, of which this process sees nothing.
    files: list[StagedFile] = []
    pieces: dict[str, list[PartManifest]] = {}
    for message in staged:
        for manifest in message.decoded():
            some = pieces.setdefault(manifest.partition, [])
            named: list[FileEntry] = []
            for number, file in enumerate(manifest.files, sum(len(piece.files) for piece in some)):
                named.append(FileEntry(data_file(number), file.rows, file.bytes, file.checksum))
                files.append(StagedFile(message.folder, manifest.partition, file.name, data_file(number)))
            some.append(msgspec.structs.replace(manifest, files=tuple(named)))
    check_partitions(job.table, pieces)
    gather_files(http, job.opened, files)
    several = {partition: tuple(some) for partition, some in pieces.items() if len(some) > 1}
    manifests = tuple(joined_manifest(some) for _, some in sorted(pieces.items()))
    return replace(job.opened, pieces=several), manifests


def _gathered_objects(
    job: WriteJob, http: HttpClient, staged: Sequence[StagedMessage]
) -> tuple[Upload, tuple[PartManifest, ...]]:
    upload, tasks = job.opened, list[PutParts]()
    for message in staged:
        if message.tags is not None:
            tasks.append(PutParts(message.decoded(), message.tags))
        else:
            assert job.scratch is not None
            tasks.append(sent(http, upload, job.scratch / message.folder, message.decoded()))
    parts = joined(job.table, tasks)
    if job.scratch is not None:
        private.touch(job.scratch / MARK)
    return replace(upload, tags=parts.tags), parts.manifests


def gather(
    definition: TableDefinition, staged: Sequence[tuple[Path, StagedMessage]], target: Path
) -> tuple[PartManifest, ...]:
    """Move the files of all tasks into one part per partition; return the manifests by partition.

    A partition that one task wrote alone keeps its manifest, and its files their names.  Files of several tasks are read once
    more, for their content hash depends on all rows.
    """
    writers: dict[str, list[tuple[Path, PartManifest]]] = {}
    for folder, message in staged:
        for manifest in message.decoded():
            writers.setdefault(manifest.partition, []).append((folder / manifest.partition, manifest))
    check_partitions(definition, writers)
    manifests = []
    for partition, parts in sorted(writers.items()):
        if len(parts) == 1:
            [(source, manifest)] = parts
            source.rename(target / partition)
            manifests.append(manifest)
        else:
            files = [folder / file.name for folder, manifest in parts for file in manifest.files]
            manifests.append(adopt_files(files, definition, target, partition))
    return tuple(manifests)


def discard_job(job: WriteJob, http: HttpClient) -> None:
    """Discard the upload of a job, and what its tasks have staged."""
    discard_upload(job.opened, http)
    remove_scratch(job)


def remove_scratch(job: WriteJob) -> None:
    """Remove what task attempts staged, and, when the upload is gone too, what says who wrote it."""
    if job.scratch is not None and job.path is not None:
        shutil.rmtree(job.scratch, ignore_errors=True)
        if not Path(job.path).exists():
            Path(job.path + LIFE_SUFFIX).unlink(missing_ok=True)


__all__ = ["MARK", "commit_staged", "discard_job", "gather", "gathered", "remove_scratch"]
