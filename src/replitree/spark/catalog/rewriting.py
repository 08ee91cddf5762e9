"""Row-level statements: `UPDATE`, `MERGE INTO`, and the `DELETE`s that no mutation can do, as rewrites of whole parts.

Order, with what is left when the statement or the program ends there; `scala/RowLevel.scala` asks for the steps:

1. *begin*   a rewrite of all parts is begun: the statement reads these    a lease that ends, an empty upload that the replica
                                                                           removes
2. *write*   Spark's tasks write the rows that each part has afterwards,   garbage in the scratch folder, or in the store
             and the new rows, as Parquet files; of a table in an object
             store a task makes pieces of parts of its files and puts
             them there; else a task that does not see the folder sends
             its files to the replica
3. *adopt*   the files of a part become its result; rows that left their   garbage in the upload
             partition and new rows become one new part for each
             partition: here, or at the replica if it has the files; of
             pieces in the store only the manifests are joined
4. *commit*  one entry for all; the replica verifies every file            all of it is in the table, or nothing
5. *end*     the lease, the upload and the scratch folder go

Guarantees: a part is replaced only if Spark has read it, and only by rows that Spark has written for it.  A part whose rows
are as they were is left alone, and an entry without any part is not written.  After an `UPDATE` there are as many rows as
before.

Refused, each with its reason: tables whose policy makes something of several rows, as a statement would change versions that no
final read shows; parts that Spark's own scan can't read.

A task that does not reach the table's object store does as if there were none, and its log says so, as that of the planner does
at the commit; the replica makes pieces of its files, beside those of other tasks, and puts them as it commits.  The setting
``through`` of the catalog makes that an error (``store``), or leaves the store alone (``replica``).

Absent on purpose: another try after a conflict, as the rows were made of what was read, and only Spark can make them anew.
Tasks of a cluster read the parts at replicas, wherever they are.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.types import StructField, StructType

from replitree.client.change.rewrite import Isolation, RewritePlan, begun_rewrite
from replitree.client.insert.upload import send_file
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.sharded.insert.joint_rewrite import ShardedRewrite, begun_sharded_rewrite
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.sharded.union import ShardedSnapshot, not_yet, shards_of
from replitree.client.table import Table
from replitree.client.transport.stored import Through, through_of
from replitree.decoding import json_decoder
from replitree.errors import (
    BadInput,
    ConcurrentChange,
    LeaseLost,
    NotAuthorized,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
)
from replitree.spark.catalog.layouts import unreadable
from replitree.spark.catalog.row_files import RowFilesAnswer, RowFilesJob
from replitree.spark.catalog.shard_files import by_shard, labelled
from replitree.spark.session.columns import quoted
from replitree.spark.session.types import spark_type
from replitree.spark.store.remote import tls_option
from replitree.spark.write.write import writer_options
from replitree.spark.write.write_tasks import scratch_folder
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts.manifest import FileEntry, data_file
from replitree.storage.rewrite.row_level import StatementParts, StatementPieces, joined_pieces, statement_parts
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.schema.partition import UNPARTITIONED
from replitree.storage.schema.types import parse_type
from replitree.wire.errors_http import error_from

log = logging.getLogger(__name__)

BEGIN_S = 60.0
"""How long a replica may take to begin a rewrite, in seconds: it executes the log to its end first."""

COMMIT_S = 600.0
"""How long a replica may take to verify and commit a rewrite, in seconds."""

REWRITES_MAX = 64
"""Statements that change rows at the same time; more are begun ones whose end Spark did not tell, and the oldest is ended."""

ON_CLUSTERS = "have rows changed by UPDATE or MERGE on a cluster: run the statement with the master local"
"""What a sharded table can't do where tasks run elsewhere."""

ISOLATIONS: Mapping[str, Isolation] = {"snapshot": "snapshot", "serializable": "serializable"}


@dataclass(frozen=True, slots=True)
class BegunStatement:
    """A statement that may commit.

    Attributes
    ----------
    id
        Names it for Spark's JVM.
    plan
        The rewrite; of a sharded table that of its first shard.
    snapshot
        What the statement reads: the parts that the rewrite may replace.
    folder
        Where Spark's tasks write.
    held
        Closed when it ends.
    store
        Id of the object store into which tasks put what they make; empty: into none.
    through
        What the session says of the way there.
    sharded
        The rewrite of a sharded table; None: it is of another one.
    """

    id: str
    plan: RewritePlan
    snapshot: Snapshot | ShardedSnapshot
    folder: Path
    held: ExitStack
    store: str = ""
    through: Through | None = None
    sharded: ShardedRewrite | None = None

    @property
    def sources(self) -> dict[str, SnapshotPart]:
        """The parts that may be replaced, by what Spark calls them."""
        if self.sharded is None:
            return {source.part: source for source in self.plan.sources}
        plans = self.sharded.plans.items()
        return {labelled(shard, source.part): source for shard, plan in plans for source in plan.sources}

    @property
    def described(self) -> dict[str, Any]:
        """What the JVM learns of it, beside its snapshot."""
        definition, upload = self.plan.definition, self.plan.upload
        stored = [
            StructField(column.stored_name, spark_type(parse_type(column.stored_type))) for column in definition.columns
        ]
        ticket = self.plan.table.http.ticket(upload.table, upload=upload.id)
        job = RowFilesJob(
            definition.encode_metadata().decode(),
            definition.encode_columns().decode(),
            upload.table,
            upload.id,
            upload.replica.name,
            upload.replica.address,
            ticket,
            self.store,
            {source.part: source.manifest.content_hash for source in self.plan.sources},
            self.through,
            self.plan.table.http.tls,
        )
        return {
            "rewrite": self.id,
            "folder": str(self.folder),
            # A task that does not see the folder sends its files there.
            "upload": [upload.replica.address, upload.route, ticket, tls_option(self.plan.table.http.tls)],
            # The process beside an executor puts files into the store by this.
            "job": msgspec.json.encode(job).decode() if self.store else "",
            "must_put": self.through == "store",
            "replica": upload.replica.name,
            "stored": StructType(stored).json(),
            "order_by": [quoted(name) for name in definition.order_by],
            "writer_options": writer_options(definition),
        }


class Rewriting:
    """The statements of one catalog that have begun and not ended.  Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, BegunStatement] = {}

    def begin(self, table: Table, through: str | None = None) -> BegunStatement:
        """Begin a statement.

        Parameters
        ----------
        table
            Its rows are to be changed.
        through
            How rows get into the table's object store, as the catalog's setting says it: ``store``, tasks put them there;
            ``replica``; by default there if a task reaches it, else through a replica.

        Raises
        ------
        BadInput
            Statements can't change rows of this table; says why, and what to do.
        Unavailable
            No replica begins a rewrite.
        """
        way, policy = through_of(through), table.definition.policy
        if policy != PLAIN:
            raise BadInput(
                f"table {table.name} has the policy {policy.text}: a statement would change single versions of rows, and a"
                " final read may show others. Insert new versions of the rows, or delete and update by a condition:"
                ' replitree sql "UPDATE …"'
            )
        with ExitStack() as stack:
            sharded, plan, snapshot = _begun(table, stack)
            parts = [part for shard in shards_of(snapshot) for part in shard.parts]
            problem = unreadable(plan.definition, {part.manifest.schema_version for part in parts})
            if problem:
                raise BadInput(
                    f"table {table.name} has {problem.partition(':')[0]}, and the scan that this statement needs can't read"
                    ' their older files: change the rows by a condition, replitree sql "UPDATE …". If a column has another type'
                    f" only, replitree optimize {table.name} --final writes new files"
                )
            upload = plan.upload.folder
            folder = (
                stack.enter_context(scratch_folder(upload))
                if upload is not None
                else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replitree-rewrite-")))
            )
            # The tasks of a statement on a sharded table put nothing into the store: its replicas do.
            store = "" if way == "replica" or sharded is not None else plan.store
            if way == "store" and not store:
                raise BadInput(
                    f"replica {plan.upload.replica.name} takes no rewrite of table {table.name} from an object store: new parts"
                    " go to local disks, or the replica is of an earlier version; leave the catalog's setting through out"
                )
            begun = BegunStatement(secrets.token_hex(8), plan, snapshot, folder, stack.pop_all(), store, way, sharded)
        with self._lock:
            oldest = next(iter(self._begun)) if len(self._begun) >= REWRITES_MAX else ""
            self._begun[begun.id] = begun
        self.end(oldest)
        return begun

    def end(self, statement: str) -> None:
        """Let go of what a statement has; of one that has ended, do nothing."""
        with self._lock:
            begun = self._begun.pop(statement, None)
        if begun is not None:
            begun.held.close()

    def commit(
        self,
        statement: str,
        kind: str,
        parts: Sequence[str],
        written: Sequence[tuple[str, str]],
        isolation: str,
        told: Sequence[str] = (),
    ) -> list[tuple[str, int | None]]:
        """Make parts of what Spark has written, and commit them as one entry, of a sharded table by one commit.

        Returns
        -------
        list
            The table's id, or that of each shard that has changed, and the index of the entry; None: no row has changed.

        Parameters
        ----------
        statement, kind
            From `begin`, and ``UPDATE``, ``MERGE`` or ``DELETE``.
        parts
            The parts that Spark has read.
        written
            Files of rows that a part has afterwards, each as part and place; of new rows the part is "".  A place is a path, or
            ``<attempt>/<partition>/<file>`` of a file that a task has sent.
        isolation
            ``snapshot`` or ``serializable``; empty: the former.
        told
            What became of the files of each task that was to put them into the object store (`RowFilesAnswer`, as JSON); those
            of a task that did not reach it are in `written`.

        Raises
        ------
        ConcurrentChange, LeaseLost
            Others have changed what the statement has read; nothing was changed.
        SchemaMismatch, BadInput
            The rows are not such as the table may have; nothing was changed.
        StoreError, NotAuthorized
            A task does not reach the object store, and has to; nothing was changed.
        OutcomeUnknown
            It may have taken place.
        """
        wanted = ISOLATIONS.get(isolation or "snapshot")
        if wanted is None:
            raise BadInput(f"the setting isolation of the catalog is {' or '.join(ISOLATIONS)}, not {isolation!r}")
        with self._lock:
            begun = self._begun.get(statement)
        if begun is None:
            raise ConcurrentChange(f"{kind} was ended before its commit and has changed nothing: run it again")
        plan, sharded, sources = begun.plan, begun.sharded, begun.sources
        if sharded is not None and wanted == "serializable":
            raise BadInput(
                f"{kind} has changed nothing: a statement on the sharded table {sharded.table.name} relies on the rows that it"
                " changes, and on no others: leave the catalog's setting isolation out"
            )
        files: dict[str, list[str]] = {part: [] for part in parts}
        new: list[str] = []
        for part, place in written:
            (files.setdefault(part, []) if part else new).append(place)
        try:
            pieces = _pieces(plan, kind, told)
            for part in (part for piece in pieces for part in (*piece.results, *piece.same)):
                files.setdefault(part, [])
            _check(sources, kind, parts, files)
            read = sum(source.manifest.rows for part, source in sources.items() if part in files)
            put = _put(begun, files, new, pieces)
            if (kind == "UPDATE" and put != read) or (kind == "DELETE" and put > read):
                raise _defect(kind, f"it has read {read} rows and written {put}")
            if sharded is not None:
                done = dict(sharded.commit(timeout_s=COMMIT_S).shards) if sharded.changed else {}
                tables = [each.definition for each in sharded.plans.values()]
                return [(each.table_id, done[each.name]) for each in tables if each.name in done]
            if not plan.results and not plan.inserts:
                return [(plan.definition.table_id, None)]
            return [(plan.definition.table_id, plan.commit(isolation=wanted, timeout_s=COMMIT_S).index)]
        except (ConcurrentChange, LeaseLost) as error:
            raise ConcurrentChange(f"{kind} has changed nothing, run it again: {error}") from error
        except OutcomeUnknown as error:
            reason = f"{kind} may have taken place; look at the rows before you run it again: {error}"
            raise OutcomeUnknown(reason, error.token) from error
        except SchemaMismatch as error:
            # The text may begin with a file, which the user of SQL does not know.
            text = str(error)
            reason = text.partition(".parquet: ")[2] if text.startswith("/") else text
            raise SchemaMismatch(f"{kind} has changed nothing: {reason}") from error


def _pieces(plan: RewritePlan, kind: str, told: Sequence[str]) -> list[StatementPieces]:
    """Return what tasks have put into the object store; a log says which did not reach it.

    Raises
    ------
    SchemaMismatch, BadInput
        The rows of one are not such as the table may have.
    StoreError, NotAuthorized
        One does not reach the store, and has to.
    """
    answers = [json_decoder(RowFilesAnswer).decode(each) for each in told]
    for each in answers:
        if each.problem:
            error = error_from(each.problem)
            if isinstance(error, StoreError | NotAuthorized):
                advice = f"leave the catalog's setting through out, and the rows go through replica {plan.upload.replica.name}"
                raise type(error)(f"{kind} has changed nothing: {error}; {advice}")
            raise error
    missed = [each.missed for each in answers if each.missed]
    if missed:
        why = "%s: the rows of %d of %d tasks of %s on table %s go through replica %s"
        log.warning(why, missed[0], len(missed), len(answers), kind, plan.table.name, plan.upload.replica.name)
    return [each.pieces for each in answers if each.pieces is not None]


def _begun(table: Table, held: ExitStack) -> tuple[ShardedRewrite | None, RewritePlan, Snapshot | ShardedSnapshot]:
    """Begin a rewrite; return it, of a sharded table with that of its first shard, and what the statement reads."""
    if isinstance(table, ShardedTable):
        sharded = held.enter_context(begun_sharded_rewrite(table, timeout_s=BEGIN_S))
        return sharded, sharded.plans[min(sharded.plans)], sharded.snapshot
    plan = held.enter_context(begun_rewrite(table, timeout_s=BEGIN_S))
    shown = plan.table.snapshot(timeout_s=BEGIN_S)
    return None, plan, replace(shown, definition=plan.definition, index=plan.index, parts=plan.sources, tag="")


def _check(sources: Mapping[str, object], kind: str, parts: Sequence[str], files: Mapping[str, object]) -> None:
    """Refuse what no statement can have read: a defect must lose no rows."""
    problem = ""
    if not files.keys() <= sources.keys():
        problem = "it has read parts that it did not begin with"
    elif len(files) > len(parts):
        problem = "it has written rows of parts that it has not read"
    if problem:
        raise _defect(kind, problem)


def _defect(kind: str, problem: str) -> BadInput:
    return BadInput(f"{kind} has changed nothing, because of a defect of replitree: {problem}; please report it")


def _put(
    begun: BegunStatement,
    files: Mapping[str, Sequence[str]],
    new: Sequence[str],
    pieces: Sequence[StatementPieces],
) -> int:
    """Put results and new parts into the upload of a rewrite; return the rows of all files.

    A place with a slash in front is a path here; others are of files that tasks have sent.  If there is one of those, or if
    tasks have put pieces into the object store, the replica makes the parts, and gets the files that are here, too.
    """
    plan = begun.plan
    if begun.sharded is not None:
        return _put_by_shard(begun, begun.sharded, files, new)
    count = sum(map(len, files.values())) + len(new)
    if pieces:
        tasks = list(pieces)
        if count:
            left = {part: some for part, some in files.items() if some}
            made = _sent(begun, left, new, is_stored=True)
            same = tuple(left.keys() - made.results.keys())
            tasks.append(StatementPieces(made.results, made.inserts, made.rows, same))
        for task in tasks:
            for name, tags in task.tags.items():
                plan.tags.setdefault(name, {}).update(tags)
        made = joined_pieces(files, tasks)
    elif all(place.startswith("/") for some in (*files.values(), new) for place in some):
        made = statement_parts(
            plan.definition,
            {source.part: source.manifest.content_hash for source in plan.sources},
            {part: list(map(Path, some)) for part, some in files.items()},
            list(map(Path, new)),
            begun.folder / "made",
            plan.put_files,
        )
    else:
        made = _sent(begun, files, new)
    plan.results.update(made.results)
    plan.inserts.update(made.inserts)
    return made.rows


def _put_by_shard(
    begun: BegunStatement, sharded: ShardedRewrite, files: Mapping[str, Sequence[str]], new: Sequence[str]
) -> int:
    """Put the results and new parts of each shard into the upload of its rewrite; return the rows of all files."""
    if not all(place.startswith("/") for some in (*files.values(), new) for place in some):
        raise not_yet(sharded.table.name, ON_CLUSTERS)
    paths, rows = {part: list(map(Path, some)) for part, some in files.items()}, 0
    definition = sharded.table.definition
    found = by_shard(definition, sharded.shard_map, paths, list(map(Path, new)), begun.folder / "by_shard")
    for shard, its in found.items():
        if not its.files and not its.new:
            continue
        plan = sharded.plans[shard]
        hashes = {source.part: source.manifest.content_hash for source in plan.sources}
        folder = begun.folder / f"made_{shard}"
        made = statement_parts(plan.definition, hashes, its.files, its.new, folder, plan.put_files)
        plan.results.update(made.results)
        plan.inserts.update(made.inserts)
        rows += made.rows
    return rows


def _sent(
    begun: BegunStatement, files: Mapping[str, Sequence[str]], new: Sequence[str], *, is_stored: bool = False
) -> StatementParts:
    """Let the replica make parts, or pieces beside those in the store, of files that tasks have sent, and of those here."""
    plan, sent = begun.plan, dict[str, str]()
    here = [place for some in (*files.values(), new) for place in some if place.startswith("/")]
    for number, place in enumerate(here):
        # As if a task had sent it.
        path = Path(place)
        file = FileEntry(data_file(number), 0, path.stat().st_size, file_checksum(path))
        send_file(plan.table.http, plan.upload, UNPARTITIONED, path, file, "planner")
        sent[place] = f"planner/{UNPARTITIONED}/{file.name}"
    there = {part: [sent.get(place, place) for place in some] for part, some in files.items()}
    return plan.adopt_sent(there, [sent.get(place, place) for place in new], is_stored=is_stored, timeout_s=COMMIT_S)


__all__ = ["BegunStatement", "Rewriting"]
