"""The files of a task of a row-level statement go into the object store.

Spark's writer in the JVM writes Parquet files of rows, which have no content hash and no statistics of ours.  So the JVM of an
executor starts a process beside itself (`replitree.spark.catalog.put_process`), and its tasks name their files.

Order, for the files of one task; whatever it leaves when it ends early, the replica removes with the upload, or fsck:

1. *reach*   the table's store, with the credentials of this process; if it does not, the task sends its files to the replica
2. *make*    results and new parts of the files, as the planner or the replica would (`replitree.storage.rewrite.row_level`); of
             a part whose rows are as they were nothing is made
3. *put*     the files, under names that no other task gets (`replitree.client.insert.stored_upload`)

The answer has manifests only, and travels with the task's message to the planner, which joins the pieces of all tasks and
commits (`replitree.spark.catalog.rewriting`).  A task that is repeated puts other objects; the commit deletes those that do not
count.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from replitree.client.insert.stored_upload import MadePart, put_named, reach
from replitree.client.insert.upload import Upload
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.client.transport.stored import Through
from replitree.decoding import json_decoder
from replitree.errors import BadInput, NotAuthorized, SchemaMismatch, StoreError
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite.row_level import StatementPieces, statement_parts
from replitree.storage.schema.definition import decode_definition
from replitree.tls import NO_FILES, TlsFiles
from replitree.wire.errors_http import body_of


class RowFilesJob(msgspec.Struct, frozen=True):
    """The part of a statement that every task gets, as text; it has a ticket.

    Attributes
    ----------
    metadata, columns
        The table, as it is encoded.
    table, upload, replica, address
        The upload that takes the files, and whose it is.
    ticket
        Opens that upload.
    store
        Id of the store.
    hashes
        The content hash of each part that the statement may change.
    through
        What the session says of the way there.
    tls
        Paths of what TLS with replicas is made with.
    """

    metadata: str
    columns: str
    table: str
    upload: str
    replica: str
    address: str
    ticket: str
    store: str
    hashes: dict[str, str]
    through: Through | None = None
    tls: TlsFiles = NO_FILES


class RowFilesRequest(msgspec.Struct, frozen=True):
    """One task's files, each as a part, "" for new rows, and a path; they are moved."""

    id: int
    job: str
    files: tuple[tuple[str, str], ...]


class RowFilesAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of them.

    Attributes
    ----------
    pieces
        What is in the store.
    problem
        Why they can't become parts; or why the store was not reached, when it has to be.
    missed
        Why the store was not reached: they are where they were.
    """

    pieces: StatementPieces | None = None
    problem: dict[str, str] = {}
    missed: str = ""


def put_row_files(request: RowFilesRequest) -> RowFilesAnswer:
    """Make pieces of a task's files, and put them into the store.

    Raises
    ------
    NotAuthorized, StoreError
        The store took something, and no more.
    ReplicaUnavailable, ReplitreeError
        The replica of the upload gives no names.
    """
    job = json_decoder(RowFilesJob).decode(request.job)
    definition = decode_definition(job.metadata.encode(), job.columns.encode())
    try:
        objects = reach(definition, job.store)
    except (NotAuthorized, StoreError) as error:
        # Not raised: an error of a task ends in a stack of Java's, and tells no user what to do.
        return RowFilesAnswer(problem=body_of(error)) if job.through == "store" else RowFilesAnswer(missed=str(error))
    files, new, made = dict[str, list[Path]](), list[Path](), dict[str, MadePart]()
    for part, path in request.files:
        (files.setdefault(part, []) if part else new).append(Path(path))

    def note(name: str, folder: Path, manifest: PartManifest) -> None:
        made[name] = MadePart(folder, manifest)

    # Beside the files, which are moved there: on another disk they would be copied.
    with tempfile.TemporaryDirectory(prefix="replitree-rewrite-", dir=Path(request.files[0][1]).parent) as temporary:
        try:
            # One file at a time: each task of the executor has its own request.
            parts = statement_parts(definition, job.hashes, files, new, Path(temporary) / "made", note, threads=1)
        except (BadInput, SchemaMismatch) as error:
            # Not raised here: Spark would try the task again, with the same end.
            return RowFilesAnswer(problem=body_of(error))
        upload = Upload(job.table, job.upload, ReplicaInfo(job.replica, job.address), "", None, job.store)
        named, tags = put_named(HttpClient(job.ticket, job.tls), upload, objects, made, is_rewrite=True)
    results = {part: named[part] if manifest is not None else None for part, manifest in parts.results.items()}
    inserts = {partition: named[partition] for partition in parts.inserts}
    same = tuple(sorted(files.keys() - results.keys()))
    return RowFilesAnswer(StatementPieces(results, inserts, parts.rows, same, tags))


__all__ = ["RowFilesAnswer", "RowFilesJob", "RowFilesRequest", "put_row_files"]
