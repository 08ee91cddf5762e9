"""A snapshot: the parts that a table has at one position of its number line, and how their rows get here.

Guarantees: a snapshot never changes.  Every insert below `index` is in it, whole inserts only.  Reading it twice gives
the same rows, or `SnapshotExpired` when parts of it are gone; never fewer rows.  Parts of older schema versions show the
columns of its definition.

Part files are opened where they lie when the replica runs on this machine, and when they are objects of a folder that is
here.  Otherwise they are brought into a folder that is removed when the process ends, checked against the checksums of
their manifests, and kept for the next read: from the table's object store, if they are there and this process reaches it
(`replitree.client.transport.stored`), else over HTTP from a replica.

Every byte that is read of a part file is verified (`replitree.storage.parts.verified`).  A file that is missing or damaged is
reported to the replica that has it, and the read goes on with a good copy from the store or from another replica
(`replitree.client.read.part_cache`).

A part that a merge, a mutation or a drop took out of the table stays on the replicas' disks for a while; with a *lease*
(`replitree.client.transport.lease`) it stays for as long as the snapshot needs it::

    with table.snapshot(lease_s=60) as snapshot:
        ...                        # however long it takes
    # the lease is let go

A *final* read shows what a merge of everything would leave: the table's policy is applied to rows with equal keys.

Absent on purpose: locks.  No writer waits for a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

import msgspec
from typing_extensions import override

from replitree import private
from replitree.client.arguments import check_arguments
from replitree.client.read.near import near_folder
from replitree.client.read.part_cache import NoGoodFile, ReplicaAccess, place_name, process_folder
from replitree.client.transport.catalog import this_machine
from replitree.client.transport.frames import frames
from replitree.client.transport.lease import Lease
from replitree.client.transport.stored import StoredParts, Through
from replitree.errors import BadInput, CorruptPart, ReplitreeError, RowsUnavailable, SnapshotExpired
from replitree.protocol.core.parts import parse_part
from replitree.storage.parts.manifest import PartManifest, manifest_problem
from replitree.storage.parts.part_folder import DamagedFile
from replitree.storage.parts.verified import CheckedFile, CheckedPart, Problem, is_whole_file, sound_path
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import layouts_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.read.scan import Scan
    from replitree.storage.sql.predicate import Predicate

FETCHES_MAX = 4
"""Files fetched at once."""

_T = TypeVar("_T")


class SnapshotPart(msgspec.Struct, frozen=True):
    """One part of a snapshot.

    Attributes
    ----------
    part
        Its name.
    path
        Its folder on the replica's machine.
    manifest
        What is in it.
    lacking
        Whether the replica that answered has the manifest only: the files are brought from a replica or store that has them.
    why
        Of a part that is lacking: what is wrong with it there.
    """

    part: str
    path: str
    manifest: PartManifest
    lacking: bool = False
    why: str = ""

    def check(self, replica: str) -> None:
        """Check the name and the manifest that a replica has sent.

        Raises
        ------
        BadInput
            The name is not that of a part.
        CorruptPart
            The manifest contradicts itself.
        """
        # Names of parts become names of folders here, so a damaged name must not get through.
        parse_part(self.part)
        problem = manifest_problem(self.manifest)
        if problem is not None:
            raise CorruptPart(f"replica {replica} sent a damaged manifest of {self.part}: {problem}")


class UnreadPart(msgspec.Struct, frozen=True):
    """A part of a snapshot that can't be read, and of which not even the manifest is known.

    Attributes
    ----------
    part
        Its name.
    partition_values
        Values of its partition; None: these are not known either.
    why
        What is wrong with it.
    content
        The content hash with which it is registered; empty: not known.
    """

    part: str
    partition_values: tuple[Scalar, ...] | None = None
    why: str = ""
    content: str = ""


class SnapshotBody(msgspec.Struct, frozen=True):
    """What a replica answers when it is asked for a snapshot.

    Attributes
    ----------
    tag
        Names this snapshot of this replica; "": the replica is older than tags, or parts are broken there.
    unchanged
        Whether the snapshot still has the tag that was asked about; False also from a replica that is older than tags.
    """

    index: int
    schema_version: int
    replica: str
    machine: str
    parts: tuple[SnapshotPart, ...]
    lease: str = ""
    lease_s: float = 0.0
    level: str = "eventual"
    unread: tuple[UnreadPart, ...] = ()
    tag: str = ""
    unchanged: bool = False

    @property
    def newest_version(self) -> int:
        """The schema version that a reader must know."""
        return max((self.schema_version, *(part.manifest.schema_version for part in self.parts)))

    def check(self) -> SnapshotBody:
        """Return this answer if it makes sense."""
        for part in self.parts:
            part.check(self.replica)
        for unread in self.unread:
            parse_part(unread.part)
        return self


class PartSource(Protocol):
    """Where the files of parts that are not on this machine come from."""

    def fetch(self, part: SnapshotPart) -> Path:
        """Bring a part's files here; return their folder."""

    def from_replicas(self) -> PartSource:
        """Return what brings everything from replicas, and nothing from an object store."""

    def good_copy(self, part: SnapshotPart, file: CheckedFile, problem: Problem) -> Path:
        """Bring a good copy of a file that is missing or damaged, and report that; return its path."""

    def good_part(self, part: SnapshotPart) -> CheckedPart:
        """Bring a part with the same rows from a replica that has them in other files."""

    def access(self) -> ReplicaAccess:
        """Return what a task needs to ask the replicas for files."""

    def into(self, folder: Path) -> PartSource:
        """Return what brings everything into this folder, a folder for each part (`place_name`)."""

    def report(self, part: str) -> bool:
        """Let the replica whose files are read check a part; it sets a damaged one aside and fetches another.

        False: the replica does not have the part any more, and will not fetch it.  True also when it did not answer.
        """


class DataFiles(list[Path]):
    """Paths of data files, for an engine that reads Parquet itself.

    Parameters
    ----------
    paths
        The files.
    schema
        Of the columns that the engine reads.
    problem
        Why files do not have these columns; empty: they have.
    """

    def __init__(self, paths: Iterable[Path], schema: pa.Schema, problem: str = "") -> None:
        super().__init__(paths)
        self._schema = schema
        self._problem = problem

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns, which all files have.

        Raises
        ------
        BadInput
            A file is older than one of them: it has the column under another name or type, or not at all.
        """
        if self._problem:
            raise BadInput(self._problem)
        return self._schema


class SoundFile(NamedTuple):
    """A data file of a part, as Spark's JVM reads it: what it reads at `path` is verified."""

    path: Path
    part: str
    file: CheckedFile


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The parts of a table at one position.  A context manager: it lets go of its lease, if it has one.

    Attributes
    ----------
    definition
        The table.
    index
        Every insert and drop below this log index is included, and every mutation that was asked for; of other mutations
        some parts may be done and others not yet.
    replica
        The replica that answered.
    parts
        By name.
    lease
        Keeps the parts, when there is one.
    stored
        Reads those that are in the table's object store there; None: none are, or they are read through a replica.
    unread
        Parts that can't be read: a read that needs one fails (`require`).
    others
        Parts that are read from other files with the same rows, by name: their own are damaged.
    tag
        What `Table.is_unchanged` takes; "": whether it changes can't be asked.
    """

    definition: TableDefinition
    index: int
    replica: str
    parts: tuple[SnapshotPart, ...]
    machine: str
    source: PartSource = field(repr=False, compare=False)
    lease: Lease | None = field(default=None, repr=False, compare=False)
    stored: StoredParts | None = field(default=None, repr=False, compare=False)
    unread: tuple[UnreadPart, ...] = ()
    others: dict[str, CheckedPart] = field(default_factory=dict, repr=False, compare=False)
    tag: str = field(default="", repr=False, compare=False)

    @override
    def __repr__(self) -> str:
        what = f"{len(self.parts):,} parts, {self.rows:,} rows"
        return f"<Snapshot of {self.definition.name} at {self.index:,} ({self.replica}): {what}>"

    def _repr_html_(self) -> str:
        from replitree.client.read.shown import snapshot_html

        return snapshot_html(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lost = self.lease is not None and self.lease.is_lost
        if lost and isinstance(error, Exception):
            # If the lease was lost, parts have gone: that is the error to report, whatever the read ran into.
            self.check()
        self.close()

    def close(self) -> None:
        """Let go of the lease, if there is one.  May be called again."""
        if self.lease is not None:
            self.lease.release()

    def check(self) -> None:
        """Do nothing, unless the snapshot had a lease and lost it.

        Raises
        ------
        LeaseLost
            The parts may go at any time.
        """
        if self.lease is not None:
            self.lease.check()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(part.manifest.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        """Size of all data files."""
        return sum(part.manifest.bytes for part in self.parts)

    @property
    def is_local(self) -> bool:
        """Whether the files lie on this machine and can be read."""
        if not self.parts:
            return self.machine == this_machine()
        try:
            return self.near(self.parts[:1]) is not None
        except SnapshotExpired:
            # The part has left this machine; reading it raises, with the reason.
            return False

    def near(self, parts: Sequence[SnapshotPart]) -> list[Path] | None:
        """Return the folder of each of these parts if all of them lie on this machine, else None.

        Raises
        ------
        SnapshotExpired
            One would lie here, but is gone.
        """
        found = [near_folder(part, self.machine, self.definition.name, self.stored) for part in parts]
        here = [folder for folder in found if folder is not None]
        return here if len(here) == len(parts) else None

    def through(self, way: Through | None) -> Self:
        """Return this snapshot with its objects read in one way.

        Parameters
        ----------
        way
            ``"store"``: in the store itself; ``"replica"``: through a replica; None: in whichever way works.

        Raises
        ------
        ReplitreeError
            They shall be read in the store, and that does not work from here: why.
        """
        if way == "replica":
            return replace(self, stored=None, source=self.source.from_replicas())
        if way == "store" and self.stored is not None:
            shared = next((part.manifest for part in self.parts if part.manifest.share_id is not None), None)
            problem = None if shared is None else self.stored.problem(shared)
            if problem is not None:
                raise problem
        return self

    @check_arguments
    def select(self, where: str | None = None) -> tuple[SnapshotPart, ...]:
        """Return the parts that can hold rows which `where` keeps, by the statistics in their manifests.

        Raises
        ------
        BadInput
            `where` is not a condition on this table's columns.
        RowsUnavailable
            A part that can hold such rows can't be read.
        """
        predicate = self._predicate(where)
        self.require(predicate)
        if predicate is None:
            return self.parts
        return tuple(part for part in self.parts if predicate.may_match(part.manifest))

    def require(self, predicate: Predicate | None) -> None:
        """Do nothing when no part that can't be read can hold rows which a condition keeps.

        Raises
        ------
        RowsUnavailable
            One can; says which, and what to do.
        """
        if not self.unread:
            return
        from replitree.storage.parts.partition_bounds import bounds_manifest

        for unread in self.unread:
            partition = parse_part(unread.part).partition
            bounds = bounds_manifest(self.definition, partition, unread.partition_values)
            if predicate is None or predicate.may_match(bounds):
                raise rows_unavailable(unread.part, self.definition.name, unread.why)

    def folders(self, parts: Sequence[SnapshotPart]) -> list[Path]:
        """Return a readable folder for each of these parts, fetching what is not on this machine.

        Raises
        ------
        SnapshotExpired
            A part is gone; `LeaseLost` when the snapshot had a lease and lost it.
        RowsUnavailable
            A part is broken or gone on every replica that answers.
        """
        self.check()
        here: list[Path | None] = []
        for part in parts:
            folder: Path | None = None
            # A part on this machine may be gone by now: its replica may have found it broken and moved it aside.
            with suppress(SnapshotExpired):
                folder = near_folder(part, self.machine, self.definition.name, self.stored)
            here.append(folder)
        wanted = [part for part, folder in zip(parts, here, strict=True) if folder is None]
        if not wanted:
            return [folder for folder in here if folder is not None]

        def fetch(part: SnapshotPart) -> Path:
            try:
                return self.source.fetch(part)
            except ReplitreeError as error:
                if not part.lacking:
                    raise
                # Its replica has said already that the rows are gone: its reason says more than a failed request.
                raise rows_unavailable(part.part, self.definition.name, part.why or str(error)) from error

        with ThreadPoolExecutor(FETCHES_MAX, thread_name_prefix="replitree-fetch") as pool:
            fetched = pool.map(fetch, wanted)
            return [next(fetched) if folder is None else folder for folder in here]

    def checked(self, parts: Sequence[SnapshotPart]) -> list[CheckedPart]:
        """Return these parts on this machine, for readers that verify what they read.  Raises as `folders`."""
        wanted = [part for part in parts if part.part not in self.others]
        folders = dict(zip((part.part for part in wanted), self.folders(wanted), strict=True))
        return [
            self.others.get(part.part) or CheckedPart(folders[part.part], part.manifest, partial(self._good_copy, part))
            for part in parts
        ]

    def _good_copy(self, part: SnapshotPart, file: CheckedFile, problem: Problem) -> Path:
        """Bring a good copy of a file; from here on the whole part is read beside it, for its replica sets the other aside."""
        path = self.source.good_copy(part, file, problem)
        self.others[part.part] = CheckedPart(path.parent, part.manifest, partial(self.source.good_copy, part))
        return path

    def good(self, read: Callable[[], _T]) -> _T:
        """Read; when a file is damaged at every replica that has it, read the rows of its part from another replica's files.

        Parameters
        ----------
        read
            Reads what `checked` returns; may be called several times.

        Raises
        ------
        CorruptPart
            No replica has good files with the rows of a part.
        """
        while True:
            try:
                return read()
            except NoGoodFile as damage:
                known = self.others.get(damage.part.part)
                if known is not None and known.manifest != damage.part.manifest:
                    raise
                self.others[damage.part.part] = self.source.good_part(damage.part)

    @check_arguments
    def files(self, where: str | None = None, *, columns: Sequence[str] | None = None) -> DataFiles:
        """Return the data files of the parts that `where` may match, on this machine; every byte of them is verified now.

        Files of other machines and of object stores are brought here first.

        Parameters
        ----------
        where
            Spark SQL condition; it leaves out parts, and filters no rows.
        columns
            Which columns an engine will read: refuse files that have them under other names or types.

        Returns
        -------
        DataFiles
            The paths, and `DataFiles.schema` of these columns.

        Raises
        ------
        BadInput
            A column is unknown, `where` can't be read, or a file has `columns` under other names or types.
        CorruptPart
            A part is damaged, and no replica has good files with its rows.
        SnapshotExpired
            A part is gone; `LeaseLost` when the snapshot had a lease and lost it.
        """
        schema, parts = self.schema_of(columns), self.select(where)
        layouts = layouts_of(self.definition, (part.manifest.schema_version for part in parts))
        problem = ""
        for part in parts:
            other = next(
                (
                    o.column.name
                    for o in layouts[part.manifest.schema_version]
                    if o.column.name in schema.names and not o.is_plain
                ),
                None,
            )
            if other is not None:
                problem = (
                    f"the files of part {part.part} are older than column {other!r} is now: it has another name or type"
                    " there, or is missing. Read scan() or dataset(), which show it, or leave the column out"
                )
                break
        if problem and columns is not None:
            raise BadInput(problem)
        return DataFiles((file.path for part in self.whole(parts) for file in part.files), schema, problem)

    @check_arguments
    def dataset(self, columns: Sequence[str] | None = None, where: str | None = None) -> Dataset:
        """Return the rows as a dataset of Arrow's, with a fragment for each data file: for DuckDB, Polars, pandas and others.

        It has the columns as they are at this snapshot, also of parts that are older than a column.  Statistics of the
        parts are the fragments' ``partition_expression``: an engine's filter opens only the files that can have rows for it.
        A file is opened, and brought here if it is elsewhere, when an engine reads it; every byte is verified.

        The dataset holds the snapshot, and with it the lease if there is one.

        Parameters
        ----------
        columns
            Names, in the order wanted; all by default.
        where
            Spark SQL condition: other rows are not in the dataset.

        Raises
        ------
        BadInput
            A column is unknown, `where` can't be read, or has to be calculated for each row; `scan` can do that.
        RowsUnavailable
            A part that can hold such rows can't be read.
        """
        from replitree.client.read.dataset import dataset_of

        return dataset_of((self,), self.definition, columns, where)

    @check_arguments
    def scan(self, columns: Sequence[str] | None = None, where: str | None = None, *, final: bool = False) -> Scan:
        """Return a scan of this snapshot: see `Table.scan`."""
        from replitree.client.read.read_options import ReadOptions
        from replitree.client.read.scan import Scan, ScanSource

        source = ScanSource(lambda: self.definition, lambda _: self, self)
        found = Scan(source, columns, ReadOptions(where=where, final=final))
        found.check()
        return found

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of Arrow's C data interface."""
        return self.definition.arrow_schema.__arrow_c_schema__()

    @check_arguments
    def count_rows(self, parts: Sequence[SnapshotPart], predicate: Predicate) -> int:
        """Count the rows of parts that a condition keeps.  Raises as `to_arrow`."""
        from replitree.storage.rewrite.read import read_batches

        columns = predicate.columns[:1] or (self.definition.columns[0].name,)

        def count() -> int:
            return sum(
                batch.num_rows for batch in read_batches(self.checked(parts), self.definition, columns, predicate)
            )

        return self.good(count)

    def sound_files(self, parts: Sequence[SnapshotPart]) -> list[SoundFile]:
        """Return the data files of parts, on this machine, for Spark's JVM, as `storage.parts.verified.sound_path` does.

        Raises
        ------
        CorruptPart
            A part is damaged, and no replica has good files with its rows.
        SnapshotExpired
            A part is gone; `LeaseLost` when the snapshot had a lease and lost it.
        """

        def link_of(part: SnapshotPart, file: CheckedFile) -> Path:
            folder = process_folder() / f"{place_name(part.part, part.manifest)}-sound"
            private.make_folder(folder, exist_ok=True)
            return folder / file.entry.name

        def sound() -> list[SoundFile]:
            return [
                SoundFile(sound_path(file, partial(link_of, part)), part.part, file)
                for part, checked in zip(parts, self.checked(parts), strict=True)
                for file in checked.files
            ]

        return self.good(sound)

    def whole(self, parts: Sequence[SnapshotPart]) -> list[CheckedPart]:
        """Verify every byte of parts; return each with good files, on this machine.  Raises as `sound_files`."""

        def whole() -> list[CheckedPart]:
            checked = self.checked(parts)
            for part, each in zip(parts, checked, strict=True):
                broken = next((file.path for file in each.files if not is_whole_file(file)), None)
                if broken is not None and part.part not in self.others:
                    problem = DamagedFile(f"{broken} is missing or has changed", broken)
                    copies = [self.source.good_copy(part, file, problem) for file in each.files]
                    self.others[part.part] = CheckedPart(copies[0].parent, part.manifest)
            return self.checked(parts)

        return self.good(whole)

    @check_arguments
    def to_arrow(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, final: bool = False
    ) -> pa.Table:
        """Read rows.

        Parameters
        ----------
        columns
            Names, in the order wanted; all by default.
        where
            Spark SQL condition; parts that can't match are not opened.
        final
            Apply the table's policy first: of rows with equal keys one is left.

        Raises
        ------
        BadInput
            A column is unknown, or `where` can't be read.
        SnapshotExpired
            Parts are gone; `LeaseLost` when the snapshot had a lease and lost it.
        """
        import pyarrow as pa

        from replitree.storage.rewrite.read import read_parts

        if final:
            schema = self.schema_of(columns)
            return self.good(lambda: pa.Table.from_batches(self._final_batches(columns, where), schema))
        parts = self.select(where)
        return self.good(lambda: read_parts(self.checked(parts), self.definition, columns, where))

    @check_arguments
    def batches(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, final: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read rows batch by batch, in bounded memory; parameters and errors as `to_arrow`."""
        from replitree.storage.rewrite.read import read_batches

        parts = self.select(where)

        def begin() -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
            if final:
                found = self._final_batches(columns, where)
            else:
                found = iter(read_batches(self.checked(parts), self.definition, columns, where))
            return next(found, None), found

        batch, found = self.good(begin)
        while batch is not None:
            self.check()
            yield batch
            batch = next(found, None)

    @check_arguments
    def to_df(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        final: bool = False,
        through: Through | None = None,
    ) -> DataFrame:
        """Give the rows to Spark: see `Table.to_df`."""
        frame: DataFrame = frames().read(self.through(through), spark, columns, where, final=final)
        return frame

    @check_arguments
    def schema_of(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """Return the schema of a read of these columns.

        Raises
        ------
        BadInput
            A column is unknown.
        """
        import pyarrow as pa

        selected = self.definition.selected(columns)
        return pa.schema([self.definition.arrow_schema.field(column.name) for column in selected])

    def _predicate(self, where: str | None) -> Predicate | None:
        if where is None:
            return None
        # With expressions and their kernels, which a read of everything does not need.
        from replitree.storage.sql.predicate_parser import parse_predicate

        return parse_predicate(where, self.definition)

    def _final_batches(self, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
        from replitree.client.read.final import final_batches_of, final_groups

        predicate = self._predicate(where)
        self.require(predicate)
        for group in final_groups(self.parts, self.definition, predicate):
            yield from final_batches_of(self.checked(group), self.definition, columns, predicate)


def rows_unavailable(part: str, table: str, why: str) -> RowsUnavailable:
    """Return the error of a read that needs a part which no replica can send."""
    told = f" ({why})" if why else ""
    return RowsUnavailable(
        f"part {part} of table {table} is broken or gone{told}, and no replica sent its rows; reads that need none of partition"
        f" {parse_part(part).partition} still work. Start the replicas that are not running, then run: replitree doctor"
    )


__all__ = [
    "DataFiles",
    "PartSource",
    "Snapshot",
    "SnapshotBody",
    "SnapshotPart",
    "SoundFile",
]
