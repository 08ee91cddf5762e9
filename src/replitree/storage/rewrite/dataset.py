"""Parts as a dataset of Arrow's, for engines that read Arrow: DuckDB, Polars, pandas and others.

Guarantees:

* The dataset has the table's columns under the names and with the types that readers see, whatever the schema version of a
  part: a column that was renamed is found (`replitree.storage.rewrite.renamed_footer`), one that was widened is cast by Arrow,
  one that was added since shows the default that it was added with.  Fields inside structs are treated likewise.
* There is one fragment for each data file, in the order of the parts; nearly every part has one file.  The fragment's
  ``partition_expression`` is what statistics prove of every row: a filter that contradicts it does not open the file.
* No file is opened, or brought here, before an engine asks for its rows.

Arrow takes a column's value from the ``partition_expression`` where that says ``==``: so a default needs no column in the file.

An engine's own filters are Arrow's; where these differ from Spark's is said in `replitree.storage.sql.predicate`.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from replitree.storage.parts.checked_files import file_system_of
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.parts.verified import CheckedFile, quiet_file
from replitree.storage.rewrite.renamed_footer import renamed_file
from replitree.storage.schema.columns import arrow_scalar
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import Layout, Origin, has_other_names, layouts_of
from replitree.storage.schema.types import is_nested
from replitree.storage.sql.predicate import Predicate, column_stats

_log = logging.getLogger(__name__)

Opener = Callable[[str, PartManifest, FileEntry], CheckedFile]
"""Returns a data file of a part on this machine; may take long, and raise what the reader is to see."""


Prepare = Callable[[Sequence[str]], None]
"""Brings parts of these names to this machine; raises what the reader is to see."""


@dataclass(slots=True)
class _Trouble:
    """The first error that a file of a dataset met while Arrow read it."""

    error: Exception | None = None

    def note(self, error: Exception) -> None:
        """Remember the first one; the others follow from it, or are about other files."""
        _log.warning("a data file can't be read: %s", error)
        self.error = self.error or error


@dataclass(frozen=True, slots=True)
class _LazyFile:
    """A data file that is looked for when it is opened."""

    entry: FileEntry
    find: Callable[[], CheckedFile]
    layout: Layout | None
    trouble: _Trouble

    def open(self) -> pa.NativeFile:
        """Open it for Arrow, with the names that readers see.

        An error makes the file an empty one, which Arrow refuses in words of its own.  An exception would end in a deadlock:
        Arrow's scheduler asks Python for its text under a lock that pyarrow's `Scanner.to_reader` waits for, with the GIL.
        """
        try:
            file = quiet_file(self.find(), self.trouble.note)
            return file if self.layout is None else renamed_file(file, self.layout)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader gets it: see `PartsDataset`
            self.trouble.note(error)
            return pa.BufferReader(b"")


class PartsDataset(ds.FileSystemDataset):  # type: ignore[misc]  # it has no types
    """A dataset that shows some of the columns of its files, and some of their rows.

    Engines ask a dataset for `schema` and for scanners; both are as if the files had nothing else.

    What can be found out before Arrow's threads begin is raised by `scanner`.  Of what a file meets later, Python's readers of
    the dataset raise the error itself; an engine that reads the scanner has Arrow's, which names the file, and the log has the
    reason.
    """

    _names: list[str]
    _every: ds.FileSystemDataset
    _prepare: Prepare
    _trouble: _Trouble

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the order wanted."""
        every = super().schema
        return pa.schema([every.field(name) for name in self._names])

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> ds.Scanner:  # noqa: A002 - Arrow's name
        """Return a scanner: see ``pyarrow.dataset.Dataset.scanner``.  The files that it opens are brought here now."""
        self._trouble.error = None
        found = super().scanner(self._names if columns is None else columns, filter, **options)
        own = self._scan_options.get("filter")
        both = own if filter is None else filter if own is None else own & filter
        self._prepare(list(dict.fromkeys(each.path.rpartition("/")[0] for each in self._every.get_fragments(both))))
        return found

    def filter(self, expression: pc.Expression) -> PartsDataset:
        """Return this dataset with fewer rows."""
        found: PartsDataset = super().filter(expression)
        found._names, found._every, found._prepare = self._names, self._every, self._prepare
        found._trouble = self._trouble
        return found

    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Read all rows: see ``pyarrow.dataset.Dataset.to_table``."""
        with self._told():
            return super().to_table(*arguments, **options)

    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read batch by batch: see ``pyarrow.dataset.Dataset.to_batches``."""
        with self._told():
            yield from super().to_batches(*arguments, **options)

    def head(self, *arguments: Any, **options: Any) -> pa.Table:
        """Read the first rows: see ``pyarrow.dataset.Dataset.head``."""
        with self._told():
            return super().head(*arguments, **options)

    def take(self, *arguments: Any, **options: Any) -> pa.Table:
        """Read rows by their positions: see ``pyarrow.dataset.Dataset.take``."""
        with self._told():
            return super().take(*arguments, **options)

    def count_rows(self, *arguments: Any, **options: Any) -> int:
        """Count rows: see ``pyarrow.dataset.Dataset.count_rows``."""
        with self._told():
            return int(super().count_rows(*arguments, **options))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise the error that a file met in place of the one that Arrow made of it."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            if self._trouble.error is not None:
                raise self._trouble.error from error
            raise


def parts_dataset(
    parts: Mapping[str, PartManifest],
    definition: TableDefinition,
    columns: Sequence[str] | None,
    find: Opener,
    prepare: Prepare,
    where: Predicate | None = None,
) -> PartsDataset:
    """Return a dataset of parts.

    Parameters
    ----------
    parts
        The manifest of each, by name.
    definition
        The table.
    columns
        Names, in the order wanted; all by default.
    find
        Finds a data file when an engine opens it.
    prepare
        Brings parts here before a scan of them begins.
    where
        Which rows; nothing of it is calculated for each row.

    Raises
    ------
    BadInput
        A column is unknown.
    StoreError
        A part is newer than the definition.
    """
    names = [column.name for column in definition.selected(columns)]
    needed = dict.fromkeys([*names, *(where.columns if where is not None else ())])
    # A filter by "not null" would be simplified away, before anything is checked.
    schema = pa.schema([definition.arrow_schema.field(name).with_nullable(True) for name in needed])
    layouts = layouts_of(definition, (manifest.schema_version for manifest in parts.values()))
    is_renamed = has_other_names(definition)
    trouble = _Trouble()
    files: dict[str, _LazyFile] = {}
    proved: dict[str, pc.Expression] = {}
    for name, manifest in parts.items():
        layout = layouts[manifest.schema_version]
        facts = guarantee(manifest, definition, layout)
        for entry in manifest.files:
            path = f"{name}/{entry.name}"
            files[path] = _LazyFile(
                entry, partial(find, name, manifest, entry), layout if is_renamed else None, trouble
            )
            proved[path] = facts
    form, system = ds.ParquetFileFormat(), file_system_of(files)
    fragments = [form.make_fragment(path, system, partition_expression=facts) for path, facts in proved.items()]
    found = PartsDataset(fragments, schema, form, system)
    # Arrow makes copies without `__init__`, which could take these.
    found._names, found._every, found._prepare = names, ds.FileSystemDataset(fragments, schema, form, system), prepare  # noqa: SLF001
    found._trouble = trouble  # noqa: SLF001
    return found if where is None else found.filter(where.to_arrow())


# --- what statistics prove ----------------------------------------------------------------------------------------------------


def guarantee(manifest: PartManifest, definition: TableDefinition, layout: Layout) -> pc.Expression:
    """Return what is true of every row of a part, as an expression over the columns that readers see.

    Parameters
    ----------
    manifest
        Of the part.
    definition
        The table.
    layout
        Of the part's files.
    """
    facts = [fact for origin in layout for fact in _facts(manifest, definition, origin)]
    return reduce(operator.and_, facts) if facts else pc.scalar(True)


def _facts(manifest: PartManifest, definition: TableDefinition, origin: Origin) -> Iterator[pc.Expression]:
    """Give what is true of one column's values."""
    column = origin.column
    field = pc.field(column.name)
    if origin.stored_type is None:
        value = column.initial_scalar
        yield field == pc.scalar(value) if value.is_valid else field.is_null()
        return
    stats = column_stats(manifest, definition, column.name)
    # Statistics of no rows prove nothing.
    if stats is None or not manifest.rows:
        return
    if stats.nulls == manifest.rows:
        yield field.is_null()
        return
    for compare, bound in ((operator.ge, stats.low), (operator.le, stats.high)):
        if bound is None or is_nested(column.arrow_type):
            continue
        try:
            limit = arrow_scalar(column.arrow_type, bound)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # The bound is of another type than the column is now.
            continue
        fact = compare(field, pc.scalar(limit))
        # To Arrow a bound alone says that there are no nulls.
        yield fact | field.is_null() if stats.nulls else fact


__all__ = ["Opener", "PartsDataset", "Prepare", "guarantee", "parts_dataset"]
