"""Row-level statements: `UPDATE`, `MERGE INTO`, and the `DELETE`s that no mutation can do, as rewrites of whole parts.

Order, with what is left when the statement or the program ends there; `scala/RowLevel.scala` asks for the steps:

1. *begin*   a rewrite of all parts is begun: the statement reads these    a lease that ends, an empty upload that the replica
                                                                           removes
2. *write*   Spark's tasks write the rows that each part has afterwards,   garbage in the scratch folder
             and the new rows, as Parquet files
3. *adopt*   the files of a part become its result; rows that left their   garbage in the upload
             partition and new rows become one new part for each partition
4. *commit*  one entry for all; the replica verifies every file            all of it is in the table, or nothing
5. *end*     the lease, the upload and the scratch folder go

Guarantees: a part is replaced only if Spark has read it, and only by rows that Spark has written for it.  A part whose rows
are as they were is left alone, and an entry without any part is not written.  After an `UPDATE` there are as many rows as
before.

Refused, each with its reason: tables whose policy makes something of several rows, as a statement would change versions that no
final read shows; parts that Spark's own scan can't read; on a cluster, parts in an object store.  A task fails when its
executor can't write into the folder.

Absent on purpose: another try after a conflict.  The rows were made of what was read, and only Spark can make them anew.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from replitree import private
from replitree.client.change.rewrite import Isolation, RewritePlan, begun_rewrite
from replitree.client.insert.slices import cut
from replitree.client.insert.staging import stage_slices
from replitree.client.read.snapshot import Snapshot
from replitree.client.table import Table
from replitree.errors import BadInput, ConcurrentChange, LeaseLost, OutcomeUnknown, SchemaMismatch
from replitree.protocol.core.parts import parse_part
from replitree.spark.catalog.layouts import unreadable
from replitree.spark.session.columns import quoted
from replitree.spark.session.types import spark_type
from replitree.spark.write.write import writer_options
from replitree.spark.write.write_tasks import scratch_folder
from replitree.storage.parts.adopt import adopt_files, file_batches
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.schema.partition import UNPARTITIONED, split_by_partition
from replitree.storage.schema.types import parse_type

BEGIN_S = 60.0
"""How long a replica may take to begin a rewrite, in seconds: it executes the log to its end first."""

COMMIT_S = 600.0
"""How long a replica may take to verify and commit a rewrite, in seconds."""

REWRITES_MAX = 64
"""Statements that change rows at the same time; more are begun ones whose end Spark did not tell, and the oldest is ended."""

ISOLATIONS: Mapping[str, Isolation] = {"snapshot": "snapshot", "serializable": "serializable"}


@dataclass(frozen=True, slots=True)
class BegunStatement:
    """A statement that may commit.

    Attributes
    ----------
    id
        Names it for Spark's JVM.
    plan
        The rewrite.
    snapshot
        What the statement reads: the parts that the rewrite may replace.
    folder
        Where Spark's tasks write.
    held
        Closed when it ends.
    """

    id: str
    plan: RewritePlan
    snapshot: Snapshot
    folder: Path
    held: ExitStack

    @property
    def described(self) -> dict[str, Any]:
        """What the JVM learns of it, beside its snapshot."""
        definition = self.plan.definition
        stored = [
            StructField(column.stored_name, spark_type(parse_type(column.stored_type))) for column in definition.columns
        ]
        return {
            "rewrite": self.id,
            "folder": str(self.folder),
            "stored": StructType(stored).json(),
            "order_by": [quoted(name) for name in definition.order_by],
            "writer_options": writer_options(definition),
        }


class Rewriting:
    """The statements of one catalog that have begun and not ended.  Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, BegunStatement] = {}

    def begin(self, table: Table, *, is_local: bool) -> BegunStatement:
        """Begin a statement.

        Parameters
        ----------
        table
            Its rows are to be changed.
        is_local
            Whether the JVM that asks runs all tasks itself.

        Raises
        ------
        BadInput
            Statements can't change rows of this table; says why, and what to do.
        Unavailable
            No replica begins a rewrite.
        """
        policy = table.definition.policy
        if policy != PLAIN:
            raise BadInput(
                f"table {table.name} has the policy {policy.text}: a statement would change single versions of rows, and a"
                " final read may show others. Insert new versions of the rows, or delete and update by a condition:"
                ' replitree sql "UPDATE …"'
            )
        with ExitStack() as stack:
            plan = stack.enter_context(begun_rewrite(table, timeout_s=BEGIN_S))
            problem = unreadable(plan.definition, {source.manifest.schema_version for source in plan.sources})
            if problem:
                raise BadInput(
                    f"table {table.name} has {problem.partition(':')[0]}, and the scan that this statement needs can't read"
                    ' their older files: change the rows by a condition, replitree sql "UPDATE …". If a column has another type'
                    f" only, replitree optimize {table.name} --final writes new files"
                )
            if not is_local and any(source.manifest.share_id is not None for source in plan.sources):
                raise BadInput(
                    f"executors of a cluster can't rewrite rows of {table.name} that are in an object store: use a session with"
                    ' master local[*], or a condition that replitree sql "DELETE …" takes'
                )
            shown = plan.table.snapshot(timeout_s=BEGIN_S)
            snapshot = replace(shown, definition=plan.definition, index=plan.index, parts=plan.sources, tag="")
            upload = plan.upload.folder
            folder = (
                stack.enter_context(scratch_folder(upload))
                if upload is not None
                else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replitree-rewrite-")))
            )
            begun = BegunStatement(secrets.token_hex(8), plan, snapshot, folder, stack.pop_all())
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
    ) -> tuple[str, int | None]:
        """Make parts of what Spark has written, and commit them as one entry.

        Returns
        -------
        tuple
            The table's id, and the index of the entry; None: no row has changed.

        Parameters
        ----------
        statement, kind
            From `begin`, and ``UPDATE``, ``MERGE`` or ``DELETE``.
        parts
            The parts that Spark has read.
        written
            Files of rows that a part has afterwards, each as part and path; of new rows the part is "".
        isolation
            ``snapshot`` or ``serializable``; empty: the former.

        Raises
        ------
        ConcurrentChange, LeaseLost
            Others have changed what the statement has read; nothing was changed.
        SchemaMismatch, BadInput
            The rows are not such as the table may have; nothing was changed.
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
        plan = begun.plan
        files: dict[str, list[Path]] = {part: [] for part in parts}
        new: list[Path] = []
        for part, path in written:
            (files.setdefault(part, []) if part else new).append(Path(path))
        _check_rows(plan, kind, parts, files, new)
        try:
            _put(begun, files, new)
            if not plan.results and not plan.inserts:
                return plan.definition.table_id, None
            return plan.definition.table_id, plan.commit(isolation=wanted, timeout_s=COMMIT_S).index
        except (ConcurrentChange, LeaseLost) as error:
            raise ConcurrentChange(f"{kind} has changed nothing, run it again: {error}") from error
        except OutcomeUnknown as error:
            reason = f"{kind} may have taken place; look at the rows before you run it again: {error}"
            raise OutcomeUnknown(reason, error.token) from error
        except SchemaMismatch as error:
            # The text may begin with a file, which the user of SQL does not know.
            text = str(error)
            reason = text.partition(".parquet: ")[2] if text.startswith(str(begun.folder)) else text
            raise SchemaMismatch(f"{kind} has changed nothing: {reason}") from error


def _check_rows(
    plan: RewritePlan, kind: str, parts: Sequence[str], files: Mapping[str, Sequence[Path]], new: Sequence[Path]
) -> None:
    """Refuse what no statement can have written: a defect must lose no rows."""
    read = sum(source.manifest.rows for source in plan.sources if source.part in files)
    written = sum(pq.read_metadata(path).num_rows for some in (*files.values(), new) for path in some)
    problem = ""
    if not files.keys() <= {source.part for source in plan.sources}:
        problem = "it has read parts that it did not begin with"
    elif len(files) > len(parts):
        problem = "it has written rows of parts that it has not read"
    elif (kind == "UPDATE" and written != read) or (kind == "DELETE" and written > read):
        problem = f"it has read {read} rows and written {written}"
    if problem:
        raise BadInput(f"{kind} has changed nothing, because of a defect of replitree: {problem}; please report it")


def _put(begun: BegunStatement, files: Mapping[str, Sequence[Path]], new: Sequence[Path]) -> None:
    """Put results and new parts into the upload of a rewrite."""
    plan, made = begun.plan, begun.folder / "made"
    private.make_folder(made)
    definition, sources = plan.definition, {source.part: source.manifest for source in plan.sources}
    partitions = {part: parse_part(part).partition for part in files}

    def result(part: str) -> tuple[PartManifest | None, bool]:
        """Make the result of a part; tell whether rows have left its partition."""
        some, partition = files[part], partitions[part]
        if not some:
            return None, False
        if _partitions(some, definition) == {partition}:
            return adopt_files(some, definition, made / part, partition, sync=False), False
        stayed = _staged(_rows(some, definition, partition, stay=True), definition, made / part)
        return next(iter(stayed), None), True

    with ThreadPoolExecutor(os.cpu_count() or 1, "adopt") as pool:
        results = dict(zip(files, pool.map(result, files), strict=True))
    for part, (manifest, _) in results.items():
        if manifest is not None:
            # The hash is that of all rows in their order: the statement has changed none of them.
            if manifest.content_hash == sources[part].content_hash:
                continue
            plan.put_files(part, made / part / partitions[part], manifest)
        plan.results[part] = manifest
    left = [part for part, (_, has_left) in results.items() if has_left]
    if new and not left and not definition.partition_by:
        brought: Sequence[PartManifest] = (adopt_files(new, definition, made / "new", sync=False),)
    else:
        rows = (_rows(files[part], definition, partitions[part], stay=False) for part in left)
        brought = _staged(chain(_batches(new, definition), *rows), definition, made / "new")
    for manifest in brought:
        plan.put_files(manifest.partition, made / "new" / manifest.partition, manifest)
        plan.inserts[manifest.partition] = manifest


def _partitions(files: Sequence[Path], definition: TableDefinition) -> set[str]:
    """Return the partitions of the rows in files; only the columns are read that decide it."""
    columns = list(dict.fromkeys(transform.column for transform in definition.stored.partition_by))
    if not columns:
        return {UNPARTITIONED}
    found = set()
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=columns):
                rows = pa.Table.from_batches([batch])
                found |= {each.partition for each in split_by_partition(rows, definition.stored)}
    return found


def _batches(files: Sequence[Path], definition: TableDefinition) -> Iterator[pa.RecordBatch]:
    for path in files:
        yield from file_batches(path, definition.stored)


def _rows(
    files: Sequence[Path], definition: TableDefinition, partition: str, *, stay: bool
) -> Iterator[pa.RecordBatch]:
    """Read the rows that are in a partition, or those that have left it."""
    for batch in _batches(files, definition):
        for each in split_by_partition(pa.Table.from_batches([batch]), definition.stored):
            if (each.partition == partition) is stay:
                yield from each.rows.to_batches()


def _staged(batches: Iterator[pa.RecordBatch], definition: TableDefinition, folder: Path) -> tuple[PartManifest, ...]:
    """Sort rows and write them as one part for each partition."""
    stored = definition.stored
    reader = pa.RecordBatchReader.from_batches(stored.arrow_schema, batches)
    return stage_slices(cut(reader, stored), stored, folder, sync=False)


__all__ = ["BegunStatement", "Rewriting"]
