"""Mutate: a part becomes the part that a mutation leaves of it.

`mutate_part` does, in this order:

1. ask the manifest whether any row can be touched; then check every file against its checksum, so that a damaged file ends
   here: it is neither copied into a part with a new checksum, nor does it hide rows that are to be deleted
2. read the columns of the condition; when no row is touched, nothing is written, and the caller links the part under its new
   name
3. read the rows, some at a time, delete or change those for which the condition is true, and write the others as they are
4. write the manifest and sync, as `replitree.storage.parts.encode` does

Guarantees: the rows keep their order, and each data file of the source its sorted run (a file of which no row is left makes no
file).  Files of which no row is touched may be kept (`keep_files`): they are linked into the result as they are, and the others
written under names that the source does not have.  When all rows are deleted, the result is a part with one file and no rows.
The content hash is a function of the source's rows, the mutation and the definition.  Memory is bounded, whatever the size of
the part.  What fails or is cancelled leaves nothing behind.

All assignments see the old row, and are calculated only for the rows that the condition selects.  A row that has no value for
one fails the mutation of this part with `MutationFailed`, on every replica alike; nothing is guessed.

Absent on purpose: which parts, the result's name, free space on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from replitree.errors import BadInput, ReplitreeError
from replitree.storage.files.durable import store_errors
from replitree.storage.parts.encodings import columns_with_nan, leaf_types
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite.merge import ignore, never
from replitree.storage.rewrite.merge_runs import RunFile, read_run
from replitree.storage.rewrite.merge_sources import MergeSource, check_files, read_sources, run_files
from replitree.storage.rewrite.merge_write import PartWriter
from replitree.storage.schema.adapt import shown_values, stored_values
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.sql.expression import Truths, columns_of, evaluate, where_true
from replitree.storage.sql.expression_kernels import NoValueError
from replitree.storage.sql.mutation import (
    Assignment,
    CheckedMutation,
    MutationCommand,
    MutationKind,
    cannot_touch,
    check_mutation,
)

MUTATE_MEMORY_BYTES = 192 << 20
"""Bytes of memory that one mutation of a part may take beside those of the process."""

BATCH_SHARE = 16
"""Rows that are looked at together are about memory / 16: they exist as they came, as they become, and partly in between."""

GROUP_SHARE = 8
"""Rows that wait to be written are at most memory / 8; a row group has no more."""

KEPT_MIN = 0.25
"""Files are kept if they have at least so much of a part's bytes: what is replaced stays in the store as long as they do."""


class MutationCancelled(ReplitreeError):
    """The mutation was asked to stop; nothing of it is left, and it can be begun again."""


class MutationFailed(BadInput):
    """A row has no value for an expression of the mutation; the part stays as it is.  Kill the mutation, and mend it."""


def mutate_part(  # noqa: PLR0913 - each is an option of one mutation
    source: Path,
    definition: TableDefinition,
    mutation: MutationCommand,
    folder: Path,
    *,
    prefix: str = "",
    keep_files: bool = False,
    memory_bytes: int = MUTATE_MEMORY_BYTES,
    cancelled: Callable[[], bool] = never,
    progress: Callable[[int], None] = ignore,
) -> PartManifest | None:
    """Write what a part is after a mutation as a staged part, synced.

    Parameters
    ----------
    source
        Folder of the part.
    definition
        The table, with the schema version that the mutation was written for and the result gets; the source is not newer.
    mutation
        What to do.
    folder
        Where the result's folder goes, named by partition.  Made if missing; its parent must exist.
    prefix
        What the name of the result's folder begins with.
    keep_files
        Whether files of which no row is touched are kept; all are read in any case.
    memory_bytes
        Bytes of Arrow memory to stay below.
    cancelled
        Asked before every batch of rows; may be called by another thread.
    progress
        Told the number of the source's rows that are done, which never goes down.

    Returns
    -------
    PartManifest or None
        Of the staged part; None when the mutation touches no row, and nothing was written.

    Raises
    ------
    MutationCancelled
        `cancelled` said so.
    MutationFailed
        A row has no value for an expression, or null for a column that may not be null; names the part.
    CorruptPart
        The source is damaged or missing; names it.
    StoreError
        The disk is full or failing, or the source has a newer schema version.
    BadInput
        The mutation can't be used with this definition.
    """
    [found] = read_sources([source])
    if cannot_touch(found.manifest, mutation, definition):
        return None
    change = _PartMutation(check_mutation(mutation, definition), found)

    def step() -> None:
        if cancelled():
            raise MutationCancelled("the mutation was cancelled")

    # Before any row is read: a damaged file might hide rows that are to be deleted.
    check_files([found], step)
    # A first pass over few columns: most mutations touch few parts, and a part that is not touched is linked.
    survey = _survey(change, memory_bytes, step, whole=keep_files)
    if not survey.touched:
        return None
    kept = worth_keeping(found.manifest, survey.touched, definition) if keep_files else frozenset[str]()
    target = folder / f"{prefix}{found.manifest.partition}"
    with store_errors(f"write a mutated part into {folder}"):
        try:
            return _write(change, survey.with_nan, kept, target, memory_bytes, step, progress)
        finally:
            pa.default_memory_pool().release_unused()


def _write(
    change: _PartMutation,
    with_nan: frozenset[str],
    kept: frozenset[str],
    target: Path,
    memory_bytes: int,
    step: Callable[[], None],
    progress: Callable[[int], None],
) -> PartManifest:
    table, source = change.table, change.source.manifest
    files, _ = run_files([change.source], table, table.arrow_schema.names)
    taken = frozenset(file.name for file in source.files) if kept else frozenset[str]()
    group_bytes = max(1, memory_bytes // GROUP_SHARE)
    done = 0

    def rows_of(file: RunFile) -> Generator[pa.RecordBatch, None, None]:
        nonlocal done
        with closing(_batches(file, memory_bytes)) as batches:
            for rows in batches:
                step()
                yield rows
                done += rows.num_rows
                progress(done)

    with PartWriter(target, table, with_nan=with_nan, group_bytes=group_bytes, taken=taken) as writer:
        for file, entry in zip(files, source.files, strict=True):
            with closing(rows_of(file)) as batches:
                if entry.name in kept:
                    writer.link(file.path, entry.placed(None), batches)
                    continue
                for rows in batches:
                    # A batch of which every row is deleted makes no row group.
                    left = change.applied(rows)
                    if left.num_rows:
                        writer.write(left)
            writer.end_run()
        return writer.finish(source.partition, source.partition_values, sync=True)


def worth_keeping(source: PartManifest, touched: frozenset[str], definition: TableDefinition) -> frozenset[str]:
    """Return the names of those files of a part that the result of a mutation has as they are.

    Parameters
    ----------
    source
        The part.
    touched
        Files of it that have rows which the mutation touches.
    definition
        The table as the result has it: a part has the rows of one schema version.

    Returns
    -------
    frozenset
        All files that are not touched; none if the rows are of an older version, or too little would be kept (`KEPT_MIN`).
    """
    left = [file for file in source.files if file.name not in touched]
    # A few kept bytes would keep all objects of the old share in the store.
    is_enough = sum(file.bytes for file in left) >= source.bytes * KEPT_MIN
    is_same = source.schema_version == definition.schema_version
    return frozenset(file.name for file in left) if left and is_enough and is_same else frozenset()


@dataclass(frozen=True, slots=True)
class _Survey:
    """The files whose rows will change, and the columns that may get NaN.

    Attributes
    ----------
    touched
        Names of the files that have such rows; some of them, where that is not asked for.
    with_nan
        Parquet paths of the leaf columns of the result that may have NaN.
    """

    touched: frozenset[str]
    with_nan: frozenset[str]


def _survey(change: _PartMutation, memory_bytes: int, step: Callable[[], None], *, whole: bool) -> _Survey:
    """Look at the rows that will change, without changing them.

    Parameters
    ----------
    whole
        Whether all files are looked at, in any case.
    """
    table, entries = change.table, change.source.manifest.files
    _, with_nan = run_files([change.source], table, table.arrow_schema.names)
    files, _ = run_files([change.source], table, change.surveyed)
    touched: set[str] = set()
    for file, entry in zip(files, entries, strict=True):
        with closing(_batches(file, memory_bytes)) as batches:
            for rows in batches:
                step()
                chosen = change.chosen(rows)
                if not chosen.any():
                    continue
                touched.add(entry.name)
                # One row is enough, unless the new values may bring
                # NaN, which the writer must know before its first row.
                if not change.floats:
                    break
                with_nan |= columns_with_nan(change.new_floats(rows, chosen))
        if touched and not whole and not change.floats:
            break
    return _Survey(frozenset(touched), with_nan)


def _batches(file: RunFile, memory_bytes: int) -> Generator[pa.RecordBatch, None, None]:
    with closing(read_run(file, max(1, memory_bytes // BATCH_SHARE))) as tables:
        for table in tables:
            yield from table.combine_chunks().to_batches()


class _PartMutation:
    """A mutation of one part: what becomes of some of its rows.  Rows come and go with the columns' stored names."""

    def __init__(self, checked: CheckedMutation, source: MergeSource) -> None:
        self.source = source
        self.table = checked.definition.stored
        self._checked = checked
        self._columns = {column.stored_name: column for column in checked.definition.columns}
        self.floats = tuple(
            a
            for a in checked.assignments
            if any(pa.types.is_floating(leaf) for _, leaf in leaf_types("", a.column.arrow_type))
        )

    @property
    def surveyed(self) -> tuple[str, ...]:
        """Stored names of the columns that `chosen` and `new_floats` look at; at least one."""
        used = {*self._checked.predicate.columns, *(name for a in self.floats for name in columns_of(a.expression))}
        found = tuple(stored for stored, column in self._columns.items() if column.name in used)
        return found or self.table.arrow_schema.names[:1]

    def chosen(self, rows: pa.RecordBatch) -> Truths:
        """Tell which rows are touched."""
        try:
            return where_true(self._checked.predicate, self._named(rows))
        except NoValueError as error:
            raise MutationFailed(
                f"the condition {self._checked.mutation.where} has no value in a row of {self.source.part.name}: {error}"
            ) from error

    def new_floats(self, rows: pa.RecordBatch, chosen: Truths) -> pa.Table:
        """Give the new values of the columns with floating-point numbers, for the chosen rows."""
        selected = self._named(rows).filter(pa.array(chosen))
        return pa.table({a.column.stored_name: self._stored(a, selected) for a in self.floats})

    def applied(self, rows: pa.RecordBatch) -> pa.Table:
        """Give what the rows become."""
        chosen = self.chosen(rows)
        if not chosen.any():
            return pa.Table.from_batches([rows])
        if self._checked.mutation.kind is MutationKind.DELETE:
            return pa.Table.from_batches([rows.filter(pa.array(~chosen))])
        selected = self._named(rows).filter(pa.array(chosen))
        columns = {name: rows.column(name) for name in rows.schema.names}
        for assignment in self._checked.assignments:
            name = assignment.column.stored_name
            old, new = columns[name], self._stored(assignment, selected)
            if not chosen.all():
                # One `take` over both: Arrow has no assignment to some rows.
                places = np.arange(len(old))
                places[chosen] = len(old) + np.arange(len(new))
                new = pa.concat_arrays([old, new]).take(pa.array(places))
            columns[name] = new
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)])

    def _stored(self, assignment: Assignment, rows: pa.RecordBatch) -> pa.Array:
        """Give the new values as data files have them."""
        column = assignment.column
        what = f"{column.name} = {assignment.text} has no value in a row of {self.source.part.name}"
        try:
            values = evaluate(assignment.expression, rows)
        except NoValueError as error:
            raise MutationFailed(f"{what}: {error}") from error
        if values.null_count and not column.nullable:
            raise MutationFailed(f"{what}: it is null, and the column may not be")
        return stored_values(assignment.column, values)

    def _named(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Give rows the names that people use, also inside of columns."""
        columns = [self._columns[name] for name in rows.schema.names]
        values = [shown_values(column, array) for array, column in zip(rows.columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(values, names=[column.name for column in columns])
