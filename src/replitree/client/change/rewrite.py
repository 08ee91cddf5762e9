"""Rewrites: parts that a caller has made of others take their place, all at once, if nothing has changed meanwhile.

The order; a caller that dies on the way leaves an upload that the replica removes, and parts that are merged later:

1. *begin*   a replica, the leader if it answers, says where the table stands, and keeps the parts for us: they are not merged
2. *make*    the results, each under its source's name, and new parts, in one upload; here, or by tasks that write or send
             files, or put them into the table's object store (`replitree.client.insert.stored_upload`)
3. *commit*  one log entry.  It counts if every source is still there under its name, and if what the caller relies on is
             unchanged; otherwise it changes nothing on any replica (`ConcurrentChange`), and the caller begins again

Guarantees: all of a rewrite is in the table, or nothing.  A rewrite counts only for the rows that its caller has read: no
mutation, merge or other rewrite in between is overwritten.  Repeated with the same id, it is not done twice.

*Isolation.*  ``"snapshot"``: only the sources must be unchanged.  ``"serializable"``: no rows have come to the partitions, and
none were changed there, since they were read.  Drops of other parts are not noticed.

Absent on purpose: a quorum.  Until another replica has fetched the new parts, the replica that took them has the only copy.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec

from replitree import private
from replitree.client.change.command import CommandResult
from replitree.client.change.reserved import Reservation, reserve
from replitree.client.insert.upload import Upload, discard_upload, renewed, send_file
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.transport.frames import note_for_frames
from replitree.client.transport.http import AnswerLost
from replitree.client.transport.lease import Lease
from replitree.errors import BadInput, ConcurrentChange, ReplicaUnavailable, Unavailable
from replitree.protocol.core.entries import EVERY_PARTITION, Unchanged
from replitree.protocol.core.parts import parse_part
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite.row_level import StatementParts
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.client.table import Table

TRIES = 3
"""How often a rewrite is made before its caller hears that others change the same parts all the time."""

Isolation: TypeAlias = Literal["snapshot", "serializable"]


class _BeginAnswer(Reservation, frozen=True, kw_only=True):
    """What a replica answers to a begin."""

    lease: str
    index: int
    opened: tuple[int, ...] = ()
    sources: tuple[SnapshotPart, ...] = ()
    takes_stored: bool = False


@dataclass(slots=True)
class RewritePlan:
    """A rewrite that was begun: what may be rewritten, and where what is made of it goes.

    Attributes
    ----------
    table
        The table at the replica that takes the rewrite.
    definition
        The table, with the columns of the results.
    machine
        Where that replica runs.
    index, opened
        The position of the log at which `sources` are the table, but for the inserts that are open there.
    sources
        The parts that may be rewritten.
    lease
        Keeps and reserves them.
    upload
        Takes the files: of a result below its source's name, of a new part below its partition's.
    store
        Id of the object store into which tasks may put the files instead; empty if they may not, or the replica is of an
        earlier version.  All parts of a rewrite go there then, but for those without rows.
    results, inserts
        What was put here by `put_result` and `put_inserts`.
    tags
        Of the files in the store: what it said of them when they were put, by the part's name and the file's.
    """

    table: Table
    definition: TableDefinition
    machine: str
    index: int
    opened: tuple[int, ...]
    sources: tuple[SnapshotPart, ...]
    lease: Lease
    upload: Upload
    store: str = ""
    results: dict[str, PartManifest | None] = field(default_factory=dict)
    inserts: dict[str, PartManifest] = field(default_factory=dict)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)

    def put_result(self, source: str, rows: pa.Table) -> None:
        """Put what takes the place of a source: rows in the table's schema, of the source's partition; none at all is possible.

        Raises
        ------
        BadInput
            The rows are of other partitions: `put_inserts` takes those.
        StoreError, ReplicaUnavailable
            They could not be written, or sent.
        """
        partition = parse_part(source).partition
        if source not in {each.part for each in self.sources}:
            raise BadInput(f"{source} is not among the parts of this rewrite")
        if source in self.results:
            raise BadInput(f"{source} has its result already")
        with tempfile.TemporaryDirectory(prefix="replitree-rewrite-") as scratch:
            made = stage_table(rows, self.definition, Path(scratch)) if rows.num_rows else ()
            if any(manifest.partition != partition for manifest in made):
                raise BadInput(f"rows that leave partition {partition} do not belong into the result of {source}")
            for manifest in made:
                self.put_files(source, Path(scratch) / partition, manifest)
        self.results[source] = made[0] if made else None

    def put_inserts(self, rows: pa.Table) -> None:
        """Put new rows, or rows that belong to another partition now; once.  Raises as `put_result`."""
        with tempfile.TemporaryDirectory(prefix="replitree-rewrite-") as scratch:
            for manifest in stage_table(rows, self.definition, Path(scratch)) if rows.num_rows else ():
                if manifest.partition in self.inserts:
                    raise BadInput("the new rows of a rewrite come at once")
                self.put_files(manifest.partition, Path(scratch) / manifest.partition, manifest)
                self.inserts[manifest.partition] = manifest

    def put_files(self, name: str, made: Path, manifest: PartManifest) -> None:
        """Put the files of a part that was made elsewhere; `results` or `inserts` then has to have its manifest.

        Parameters
        ----------
        name
            Of a result its source, of a new part its partition.
        made
            The folder of the files, from which they are moved.

        Raises
        ------
        StoreError, ReplicaUnavailable
            They could not be moved, or sent.
        """
        folder = self.upload.folder
        if folder is None:
            for file in manifest.files:
                send_file(self.table.http, self.upload, name, made / file.name, file)
            return
        private.make_folder(folder / name, exist_ok=True)
        for file in manifest.files:
            shutil.move(made / file.name, folder / name / file.name)
            private.fit(folder / name / file.name)

    def adopt_sent(
        self, files: Mapping[str, Sequence[str]], new: Sequence[str], *, is_stored: bool = False, timeout_s: float
    ) -> StatementParts:
        """Let the replica make results and new parts of files that tasks have sent to it.

        Parameters
        ----------
        files, new
            The places of the files of each part that was read, and of those with new rows: ``<attempt>/<partition>/<file>``.
        is_stored
            Other tasks have put theirs into the store: what is made are pieces beside those.
        timeout_s
            How long the replica may take, in seconds: it reads all rows.

        Raises
        ------
        SchemaMismatch, BadInput
            The rows are not such as the table may have; nothing was done.
        Unavailable
            The replica did not do it, or does not say so: nothing is in the table, and the rewrite is begun again.
        """
        body = {
            "upload": self.upload.id,
            "schema_version": self.definition.schema_version,
            "hashes": {each.part: each.manifest.content_hash for each in self.sources if each.part in files},
            "files": files,
            "new": new,
        } | ({"is_stored": True} if is_stored else {})
        route = f"/v1/tables/{quote(self.upload.table)}/rewrites/adopt"
        address = self.upload.replica.address
        try:
            answer = self.table.http.request(address, "POST", route, msgspec.json.encode(body), timeout_s=timeout_s)
            return answer.decode(StatementParts)
        except (AnswerLost, ReplicaUnavailable) as error:
            raise Unavailable(
                f"the replica made no parts of the rows that tasks sent; nothing was changed: {error}"
            ) from error

    def commit(
        self,
        results: Mapping[str, PartManifest | None] | None = None,
        inserts: Sequence[PartManifest] | None = None,
        *,
        isolation: Isolation = "snapshot",
        partitions: Sequence[str] | None = None,
        command_id: str | None = None,
        timeout_s: float,
    ) -> CommandResult:
        """Put the rewrite into the log.

        Parameters
        ----------
        results, inserts
            The manifests of what is in the upload, by their sources, and of the new parts; by default what was put here.
            None in the place of a manifest: the source loses all its rows.
        isolation, partitions
            What must be unchanged, and in which partitions; by default in all.
        command_id
            Names the rewrite; a fresh one by default.
        timeout_s
            How long to wait for it, in seconds.

        Raises
        ------
        ConcurrentChange
            Something has changed since it was begun; nothing was done.
        BadInput
            The files are not what the manifests say; nothing was done.
        Unavailable
            It is certainly not in the log.
        OutcomeUnknown
            It may be in the table; the error's token is its id.
        """
        self.lease.check()
        relied = Unchanged(tuple(partitions) if partitions is not None else (EVERY_PARTITION,), self.index, self.opened)
        body: dict[str, Any] = {
            "upload": self.upload.id,
            "schema_version": self.definition.schema_version,
            "results": msgspec.to_builtins(dict(self.results if results is None else results)),
            "inserts": msgspec.to_builtins(tuple(self.inserts.values() if inserts is None else inserts)),
            "unchanged": msgspec.to_builtins(relied) if isolation == "serializable" else None,
        } | ({"tags": self.tags} if self.tags else {})
        done = self.table.commander.command("rewrites/commit", body, command_id, timeout_s=timeout_s)
        # As of other commands, only finished ones are noted: later reads through the table's connection show them.
        if done.finished:
            self.table.inserter.written.add(done.index)
            note_for_frames(self.table, done.index)
        return done


@contextmanager
def begun_rewrite(
    table: Table,
    sources: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    *,
    timeout_s: float,
) -> Iterator[RewritePlan]:
    """Begin a rewrite, and keep its parts until the end; what is not committed by then is removed.

    Parameters
    ----------
    sources
        Names of parts, from an earlier snapshot; None: all, or all of some `partitions`.
    timeout_s
        How long a replica may take, in seconds.

    Raises
    ------
    ConcurrentChange
        One of the parts has left the table.
    Unavailable
        No replica answers, or the columns are being changed at the same time.
    """
    body: dict[str, Any] = {"sources": sources, "partitions": partitions}
    taker, begun, lease = reserve(table, "rewrites/begin", _BeginAnswer, body, timeout_s=timeout_s)
    if lease is None:
        raise Unavailable(f"replica {begun.replica} keeps no parts for a rewrite: nothing was begun; try again")
    try:
        definition = taker.refresh()
        if definition.schema_version != begun.schema_version:
            raise Unavailable(f"the columns of {table.name} are being changed: try again")
        for source in begun.sources:
            source.check(begun.replica)
        upload = taker.inserter.open_upload(timeout_s)
        try:
            with renewed(upload, table.http):
                store = upload.store if begun.takes_stored else ""
                yield RewritePlan(
                    taker, definition, begun.machine, begun.index, begun.opened, begun.sources, lease, upload, store
                )
        finally:
            # After a commit there is no upload any more to be discarded.
            discard_upload(upload, table.http)
    finally:
        lease.release()


def rewrite(
    table: Table,
    make: Callable[[RewritePlan], None],
    sources: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    *,
    isolation: Isolation = "snapshot",
    timeout_s: float,
) -> CommandResult:
    """Rewrite parts of a table; if others have changed them meanwhile, begin again, up to `TRIES` times.

    Parameters
    ----------
    make
        Reads the sources of a plan and puts what it makes of them.  It is called again for another try.
    sources, partitions
        As of `begun_rewrite`.  Parts that are named are not looked for again: with `sources` there is one try.
    isolation, timeout_s
        As of `RewritePlan.commit`; the time is that of each try.

    Raises
    ------
    ConcurrentChange
        Others change the same parts all the time; nothing was done.
    BadInput, Unavailable, OutcomeUnknown
        As `RewritePlan.commit`.
    """
    tries = 1 if sources is not None else TRIES
    for left in reversed(range(tries)):
        try:
            with begun_rewrite(table, sources, partitions, timeout_s=timeout_s) as plan:
                make(plan)
                return plan.commit(isolation=isolation, partitions=partitions, timeout_s=timeout_s)
        except ConcurrentChange:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


__all__ = ["Isolation", "RewritePlan", "begun_rewrite", "rewrite"]
