"""A snapshot: the parts that a table has at one position of its number line, and how their rows get here.

Guarantees: a snapshot never changes.  Every insert below `index` is in it, whole inserts only.  Reading it twice gives
the same rows, or `SnapshotExpired` when parts of it are gone; never fewer rows.  Parts of older schema versions show the
columns of its definition.

Part files are opened where they lie when the replica runs on this machine, and when they are objects of a folder that is
here.  Otherwise they are brought into a folder that is removed when the process ends, checked against the checksums of
their manifests, and kept for the next read: from the table's object store, if they are there and this process reaches it
(`replitree.client.stored`), else over HTTP from a replica.

A part that a merge, a mutation or a drop took out of the table stays on the replicas' disks for a while; with a *lease*
(`replitree.client.lease`) it stays for as long as the snapshot needs it::

    with table.snapshot(lease_s=60) as snapshot:
        ...                        # however long it takes
    # the lease is let go

A *final* read shows what a merge of everything would leave: the table's policy is applied to rows with equal keys.

Absent on purpose: locks.  Nobody waits for a reader.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import quote

import msgspec
import pyarrow as pa
import xxhash

from replitree.client.catalog import this_machine
from replitree.client.http import AnswerLost, HttpClient
from replitree.client.lease import Lease
from replitree.client.stored import StoredParts, Through
from replitree.errors import CorruptPart, ReplicaUnavailable, ReplitreeError, SnapshotExpired, StoreError
from replitree.protocol.parts import parse_part
from replitree.storage.definition import TableDefinition
from replitree.storage.durable import file_checksum
from replitree.storage.manifest import MANIFEST_FILE, PartManifest, manifest_problem
from replitree.storage.predicate_parser import parse_predicate
from replitree.storage.read import read_batches, read_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FETCHES_MAX = 4
"""Files fetched at once."""

FETCH_S_MAX = 60.0
"""Longest silence of a replica while it sends a file, in seconds."""


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
    """

    part: str
    path: str
    manifest: PartManifest


class SnapshotBody(msgspec.Struct, frozen=True):
    """What a replica answers when it is asked for a snapshot."""

    index: int
    schema_version: int
    replica: str
    machine: str
    parts: tuple[SnapshotPart, ...]
    lease: str = ""
    lease_s: float = 0.0
    level: str = "eventual"

    @property
    def newest_version(self) -> int:
        """The schema version that a reader must know."""
        return max((self.schema_version, *(part.manifest.schema_version for part in self.parts)))

    def check(self) -> SnapshotBody:
        """Return this answer if it makes sense: names in it become names of files here."""
        for part in self.parts:
            parse_part(part.part)
            problem = manifest_problem(part.manifest)
            if problem is not None:
                raise CorruptPart(f"replica {self.replica} sent a damaged manifest of {part.part}: {problem}")
        return self


class PartSource(Protocol):
    """Where the files of parts that are not on this machine come from."""

    def fetch(self, part: SnapshotPart) -> Path:
        """Bring a part's files here; return their folder."""

    def from_replicas(self) -> PartSource:
        """Return what brings everything from replicas, and nothing from an object store."""

    def into(self, folder: Path) -> PartSource:
        """Return what brings everything into this folder, a folder for each part (`place_name`)."""


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
        Who answered.
    parts
        By name.
    lease
        Keeps the parts, when there is one.
    stored
        Reads those that are in the table's object store there; None: none are, or they are read through a replica.
    """

    definition: TableDefinition
    index: int
    replica: str
    parts: tuple[SnapshotPart, ...]
    machine: str
    source: PartSource = field(repr=False, compare=False)
    lease: Lease | None = field(default=None, repr=False, compare=False)
    stored: StoredParts | None = field(default=None, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lost = self.lease is not None and self.lease.is_lost
        if lost and isinstance(error, Exception):
            self.check()  # that is why it failed, whatever it looked like
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

    def select(self, where: str | None = None) -> tuple[SnapshotPart, ...]:
        """Return the parts that can hold rows which `where` keeps, by the statistics in their manifests.

        Raises
        ------
        BadInput
            `where` is not a condition on this table's columns.
        """
        if where is None:
            return self.parts
        predicate = parse_predicate(where, self.definition)
        return tuple(part for part in self.parts if predicate.may_match(part.manifest))

    def folders(self, parts: Sequence[SnapshotPart]) -> list[Path]:
        """Return a readable folder for each of these parts, fetching what is not on this machine.

        Raises
        ------
        SnapshotExpired
            A part is gone; `LeaseLost` when the snapshot had a lease and lost it.
        """
        self.check()
        here = self.near(parts)
        if here is not None:
            return here
        with ThreadPoolExecutor(FETCHES_MAX, thread_name_prefix="replitree-fetch") as pool:
            return list(pool.map(self.source.fetch, parts))

    def files(self, where: str | None = None) -> list[Path]:
        """Return the data files of the parts that `where` may match, on this machine."""
        parts = self.select(where)
        return [
            folder / file.name
            for part, folder in zip(parts, self.folders(parts), strict=True)
            for file in part.manifest.files
        ]

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
        if final:
            schema = self.schema_of(columns)
            return pa.Table.from_batches(self._final_batches(columns, where), schema)
        return read_parts(self.folders(self.select(where)), self.definition, columns, where)

    def batches(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, final: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read rows batch by batch, in bounded memory; parameters and errors as `to_arrow`."""
        if final:
            found = self._final_batches(columns, where)
        else:
            found = iter(read_batches(self.folders(self.select(where)), self.definition, columns, where))
        for batch in found:
            self.check()
            yield batch

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
        read: Any = import_module(
            "replitree.spark.final" if final else "replitree.spark.read"
        )  # a layer above the client
        snapshot = self.through(through)
        frame: DataFrame = (read.final_df if final else read.snapshot_df)(snapshot, spark, columns, where)
        return frame

    def schema_of(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """Return the schema of a read of these columns.

        Raises
        ------
        BadInput
            A column is unknown.
        """
        names = self.definition.arrow_schema.names if columns is None else columns
        return pa.schema([self.definition.arrow_schema.field(self.definition.column(name).name) for name in names])

    def _final_batches(self, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
        from replitree.client.final import final_batches_of, final_groups

        predicate = parse_predicate(where, self.definition) if where is not None else None
        for group in final_groups(self.parts, self.definition, predicate):
            yield from final_batches_of(self.folders(group), self.definition, columns, predicate)


def local_folder(part: SnapshotPart, machine: str, table: str) -> Path | None:
    """Return a part's folder if it lies on this machine, or None.

    Raises
    ------
    SnapshotExpired
        It would lie here, but is gone.
    """
    if machine != this_machine():
        return None
    folder = Path(part.path)
    if not folder.is_dir():
        raise SnapshotExpired(f"part {part.part} of table {table} is gone from this machine; take a new snapshot")
    return folder


def near_folder(part: SnapshotPart, machine: str, table: str, stored: StoredParts | None) -> Path | None:
    """Return a part's folder if it lies on this machine, on a replica's disk or in the table's store, or None.

    Raises
    ------
    SnapshotExpired
        It would lie on a replica's disk here, but is gone.
    """
    folder = stored.folder(part.manifest) if stored is not None else None
    if folder is None or stored is None:
        return local_folder(part, machine, table)
    return _linked_folder(part, stored) if part.manifest.borrowed else folder


def _linked_folder(part: SnapshotPart, stored: StoredParts) -> Path:
    """Return a folder of this process with links to the objects of a part, which lie in the folders of several shares."""
    folder = process_folder() / f"{place_name(part)}-linked"
    folder.mkdir(exist_ok=True)
    for file in part.manifest.files:
        with suppress(FileExistsError):
            (folder / file.name).symlink_to(stored.path(part.manifest, file))
    draft = folder / f".{threading.get_ident()}"
    draft.write_bytes(part.manifest.encode())
    draft.replace(folder / MANIFEST_FILE)
    return folder


class PartCache:
    """Parts of one table that were brought here, kept for further reads.

    Parameters
    ----------
    http
        How to ask.
    table
        The table's name.
    addresses
        Whom to ask, in this order.
    folder
        Where they go; by default a folder that is removed when this process ends.
    stored
        Brings what is in the table's object store, if that is reached from here.
    """

    def __init__(
        self,
        http: HttpClient,
        table: str,
        addresses: Sequence[str],
        folder: Path | None = None,
        stored: StoredParts | None = None,
    ) -> None:
        self._stored = stored
        self._http = http
        self._table = table
        self._addresses = tuple(addresses)
        self._folder = folder

    def fetch(self, part: SnapshotPart) -> Path:
        """Bring a part's files here; return their folder.

        Raises
        ------
        SnapshotExpired
            No replica has the part any more.
        ReplicaUnavailable
            No replica answers.
        """
        for file in part.manifest.files:
            self.fetch_file(part, file.name)
        folder = self._place(part)
        (folder / MANIFEST_FILE).write_bytes(part.manifest.encode())
        return folder

    def from_replicas(self) -> PartCache:
        """Return what brings everything from replicas, and nothing from an object store."""
        return PartCache(self._http, self._table, self._addresses, self._folder)

    def into(self, folder: Path) -> PartCache:
        """Return what brings everything into this folder, a folder for each part (`place_name`)."""
        return PartCache(self._http, self._table, self._addresses, folder, self._stored)

    def fetch_file(self, part: SnapshotPart, name: str) -> Path:
        """Bring one data file of a part here; return its path.  Errors as `fetch`."""
        entry = next(file for file in part.manifest.files if file.name == name)
        target = self._place(part) / name
        if target.exists():
            return target
        descriptor, draft = tempfile.mkstemp(prefix="draft-", dir=target.parent)
        os.close(descriptor)
        try:
            if self._stored is None or not self._stored.bring(part.manifest, entry, Path(draft)):
                self._fetch_file(part, name, entry.checksum, Path(draft))
            Path(draft).replace(target)
        finally:
            Path(draft).unlink(missing_ok=True)
        return target

    def _place(self, part: SnapshotPart) -> Path:
        folder = (self._folder or process_folder()) / place_name(part)
        folder.mkdir(exist_ok=True)
        return folder

    def _fetch_file(self, part: SnapshotPart, name: str, checksum: str, target: Path) -> None:
        path = f"/v1/tables/{quote(self._table)}/parts/{quote(part.part)}/files/{quote(name)}"
        problem: ReplitreeError = ReplicaUnavailable("no replica is known")
        for address in self._addresses:
            try:
                with target.open("wb") as out:
                    self._http.download(address, path, out, timeout_s=FETCH_S_MAX)
                if file_checksum(target) == checksum:
                    return
                problem = CorruptPart(f"{part.part}/{name} arrived from {address} with another checksum")
            except AnswerLost as error:
                problem = ReplicaUnavailable(f"{error}; try again")
            except ReplitreeError as error:
                problem = error
        if isinstance(problem, ReplicaUnavailable) or type(problem) is StoreError:  # a corrupt part is one too
            raise problem
        raise SnapshotExpired(f"part {part.part} can't be had any more ({problem}); take a new snapshot") from problem


def place_name(part: SnapshotPart) -> str:
    """Return the name of a folder that nothing but this part has: equal rows may lie in different files."""
    return f"{part.part}-{xxhash.xxh3_128_hexdigest(part.manifest.encode())}"


_lock = threading.Lock()
_root: dict[int, Path] = {}


def process_folder() -> Path:
    """Return this process's folder for fetched parts; a forked process has one of its own."""
    with _lock:
        process = os.getpid()
        if process not in _root:
            _root.clear()
            _root[process] = Path(tempfile.mkdtemp(prefix="replitree-parts-"))
            atexit.register(_remove_cache, _root[process], process)
        return _root[process]


def _remove_cache(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
