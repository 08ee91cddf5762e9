"""Reading through the data source: plan on the driver, read on the executors.

One snapshot is taken when Spark asks for the partitions.  Its files, not its parts, are packed into about as many tasks
as there are cores, the largest first into the emptiest task.  A task opens files that lie on its machine, reads what is in an
object store there, with the credentials of its own environment, and fetches the others over HTTP.

The snapshot has a lease, which the planning process can't renew: it ends long before the job does.  So every task renews it
when it begins, and while it runs; after the last task it ends by itself.  A task that finds it lost fails: the frame is
too old, and has to be made again.

A *final* read cuts partitions, not files, into tasks (`replitree.spark.read.final`): rows with equal keys are merged by
one task.

Batches have exactly the schema that Spark asked for: the table's types, every column nullable.

Of a sharded table each task reads files of one shard; the snapshot is that of all shards.

Absent on purpose: order.  Rows come as the tasks come.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from replitree.client.read.final import final_groups
from replitree.client.read.near import near_folder
from replitree.client.read.part_cache import PartCache
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.sharded.sharded_table import ShardedTable, tables_of
from replitree.client.sharded.union import shards_of
from replitree.client.table import Table
from replitree.client.transport.http import HttpClient
from replitree.client.transport.lease import LeaseHandle, hold
from replitree.client.transport.stored import stored_parts, through_of
from replitree.errors import BadInput, LeaseLost, ReplitreeError, SnapshotExpired
from replitree.spark.read.final_units import FinalUnit, cut_group, pack, read_units
from replitree.spark.session.options import (
    columns,
    flag,
    number,
    open_connection,
    open_table,
    read_as_of,
    read_level,
    seconds,
    table_name,
)
from replitree.spark.session.types import columns_of, exchange_schema, spark_schema
from replitree.spark.session.written import include_written
from replitree.storage.parts.verified import CheckedFile, CheckedPart, StoredFile
from replitree.storage.rewrite.key_range import KeyRange
from replitree.storage.rewrite.read import scan_files
from replitree.storage.schema.definition import decode_definition
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.tls import NO_FILES, TlsFiles

TASK_BYTES = 128 << 20
"""Bytes of data files that one task reads, when there are more than the cores can take at once."""

LEASE_S = 600
"""How long the parts are kept after a task last renewed the lease, in seconds: tasks may wait for a free core."""

BATCH_ROWS = 65_536
"""Rows of a batch on its way to the JVM; much smaller and much larger ones are slower."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The plan of a read, which every task gets; `index` and `replica` are the snapshot's, -1 and "" before it is taken."""

    options: Mapping[str, str]
    definition: tuple[bytes, bytes] = field(repr=False)
    columns: tuple[str, ...]
    schema: StructType = field(repr=False)
    index: int = -1
    addresses: tuple[str, ...] = ()
    owner: str = ""
    ticket: str = field(default="", repr=False)
    lease: LeaseHandle | None = None
    replica: str = ""
    tls: TlsFiles = NO_FILES


@dataclass(frozen=True, slots=True)
class FileUnit:
    """One data file of a part on some machine."""

    part: SnapshotPart
    file: str
    machine: str


@dataclass(frozen=True, slots=True)
class GroupUnit:
    """A unit of a final read: the parts that are merged with each other, on some machine, and the rows wanted of them."""

    parts: tuple[SnapshotPart, ...]
    machine: str
    key_range: KeyRange | None


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one task: the plan, and the task's units.

    Spark takes its copy of the reader before it asks for the partitions, so only a partition knows the snapshot.
    """

    plan: ReadPlan
    units: tuple[FileUnit | GroupUnit, ...]


class FilesPartition(InputPartition):
    """The files of one task; its value is a `Task`."""

    def __init__(self, plan: ReadPlan, units: Sequence[FileUnit | GroupUnit]) -> None:
        super().__init__(Task(plan, tuple(units)))


def read_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of a read that does not say one."""
    with open_connection(options) as connection:
        definition = connection.table(table_name(options)).definition
    return spark_schema(definition, columns(options))


def plan_read(options: Mapping[str, str], schema: StructType) -> ReadPlan:
    """Plan a read of these columns.

    Raises
    ------
    SchemaMismatch
        The schema has columns that the table has not, or with other types.
    BadInput
        The condition can't be read.
    """
    with open_connection(options) as connection:
        definition = connection.table(table_name(options)).definition
    names = columns_of(schema, definition)
    if options.get("where"):
        parse_predicate(options["where"], definition)
    flag(options, "final")
    read_level(options)
    through_of(options.get("through"))
    return ReadPlan(dict(options), (definition.encode_metadata(), definition.encode_columns()), tuple(names), schema)


def plan_partitions(plan: ReadPlan) -> tuple[ReadPlan, list[FilesPartition]]:
    """Take the snapshot and pack its files into tasks."""
    options = plan.options
    with open_connection(options) as connection:
        table = open_table(connection, options)
        as_of = read_as_of(options)
        if "minindex" not in options and as_of is None:
            include_written(table)
        # Of a sharded table the condition decides which shards are asked.
        where = {"where": options.get("where")} if isinstance(table, ShardedTable) else {}
        taken = table.snapshot(
            number(options, "minindex"),
            level=read_level(options),
            as_of=as_of,
            lease_s=LEASE_S if (asked := number(options, "lease")) is None else asked,
            timeout_s=seconds(options),
            **where,
        )
        tables = {each.name: each for each in tables_of(table)}
        shards = [_planned(plan, tables[each.definition.name], each) for each in shards_of(taken)]
    tasks = number(options, "partitions")
    if tasks is not None and tasks < 1:
        raise BadInput(f"option partitions is at least 1, not {tasks}")
    found = [(planned, *_units(snapshot, options)) for planned, snapshot in shards]
    total = sum(sum(sizes) for _, _, sizes in found)
    wanted = tasks or max(os.cpu_count() or 1, -(-total // TASK_BYTES))
    partitions = [
        FilesPartition(planned, packed)
        for planned, units, sizes in found
        # A task reads files of one shard: its ticket opens no others.
        for packed in pack(units, sizes, max(1, wanted * sum(sizes) // max(1, total)))
    ]
    return (shards[0][0] if shards else plan), partitions


def _planned(plan: ReadPlan, table: Table, snapshot: Snapshot) -> tuple[ReadPlan, Snapshot]:
    """Return the plan of a read of a snapshot, which may be that of one shard, and the snapshot as tasks read it."""
    # Of a read in the store each task finds out by itself whether it reaches it.
    if through_of(plan.options.get("through")) == "replica":
        snapshot = snapshot.through("replica")
    encoded = (snapshot.definition.encode_metadata(), snapshot.definition.encode_columns())
    if encoded != plan.definition:
        # The table was altered after Spark asked for its schema: its columns must still be there, with the same types.
        plan = replace(plan, definition=encoded, columns=tuple(columns_of(plan.schema, snapshot.definition)))
    replicas = table.replicas()
    planned = replace(
        plan,
        options={**plan.options, "table": table.name},
        index=snapshot.index,
        addresses=tuple(replica.address for replica in replicas if replica.address),
        owner=next((replica.address for replica in replicas if replica.name == snapshot.replica), ""),
        ticket=table.http.ticket(table.name, reads=True),
        lease=snapshot.lease.hand_over() if snapshot.lease is not None else None,
        replica=snapshot.replica,
        tls=table.http.tls,
    )
    return planned, snapshot


def _units(snapshot: Snapshot, options: Mapping[str, str]) -> tuple[list[FileUnit | GroupUnit], list[int]]:
    """Return what tasks can read by itself, and about how many bytes each is."""
    where, machine, definition = options.get("where"), snapshot.machine, snapshot.definition
    if not flag(options, "final") or definition.policy == PLAIN:
        files = [(part, file) for part in snapshot.select(where) for file in part.manifest.files]
        return [FileUnit(part, file.name, machine) for part, file in files], [file.bytes for _, file in files]
    predicate = parse_predicate(where, definition) if where else None
    snapshot.require(predicate)
    units: list[FileUnit | GroupUnit] = []
    sizes: list[int] = []
    for group in final_groups(snapshot.parts, definition, predicate):
        # Cut only where the files are: a task that fetches parts fetches all of them anyway.
        here = snapshot.checked(group) if snapshot.near(group) is not None else None
        size = sum(part.manifest.bytes for part in group)
        ranges = [unit.key_range for unit in cut_group(here, definition)] if here is not None else [None]
        units += [GroupUnit(group, machine, key_range) for key_range in ranges]
        sizes += [size // len(ranges)] * len(ranges)
    return units, sizes


def final_tasks(snapshot: Snapshot, schema: StructType, where: str | None) -> list[Task]:
    """Return the tasks of a final read of a snapshot that was taken already: each fetches what it can't open.

    Parameters
    ----------
    schema
        Of the columns wanted.
    where
        Only rows for which this condition is true.
    """
    definition, access = snapshot.definition, snapshot.source.access()
    options = {"table": definition.name, "final": "true"} | ({"where": where} if where is not None else {})
    plan = ReadPlan(
        options if snapshot.stored is not None else options | {"through": "replica"},
        (definition.encode_metadata(), definition.encode_columns()),
        tuple(schema.names),
        schema,
        snapshot.index,
        access.addresses,
        access.addresses[0] if access.addresses else "",
        access.ticket,
        tls=access.tls,
    )
    units, sizes = _units(snapshot, options)
    packed = pack(units, sizes, max(os.cpu_count() or 1, -(-sum(sizes) // TASK_BYTES)))
    return [Task(plan, tuple(some)) for some in packed]


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read one task's files, batch by batch; errors as `read_task`."""
    task: Task | None = partition.value
    # Spark makes a partition of nothing for an empty table.
    if task is not None:
        yield from read_task(task)


def read_task(task: Task) -> Iterator[pa.RecordBatch]:
    """Read one task's files, batch by batch.

    Raises
    ------
    SnapshotExpired
        A file is gone, or may go (`LeaseLost`): the frame is older than its parts are kept.
    """
    plan, units = task.plan, task.units
    # A context, so that the folder goes also when a LIMIT closes this generator early.
    with task_folder() as folder:
        http = HttpClient(plan.ticket, plan.tls)
        files = _TaskFiles(plan, http, folder)
        with leased(plan.lease, http) as check:
            for batch in _read(plan, units, files):
                check()
                yield batch


@contextmanager
def task_folder() -> Iterator[Path]:
    """Give the folder of a task: it is made when something is brought into it (`PartCache`), and removed in the end."""
    folder = Path(tempfile.gettempdir()) / f"replitree-task-{secrets.token_hex(8)}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _TaskFiles:
    """Where one task finds its files."""

    def __init__(self, plan: ReadPlan, http: HttpClient, folder: Path) -> None:
        self.definition = definition = decode_definition(*plan.definition)
        self._way = through_of(plan.options.get("through"))
        self._stored = stored_parts(definition) if self._way != "replica" else None
        self._cache = PartCache(http, table_name(plan.options), plan.addresses, folder, self._stored, plan.owner)

    def file(self, unit: FileUnit) -> CheckedFile | StoredFile:
        """Return where a data file is opened; it is brought when it can be opened nowhere.

        Raises
        ------
        ReplitreeError
            It shall be read in the store, which does not work here, or can't be had any more.
        """
        folder = self._folder(unit.part, unit.machine)
        entry = next(file for file in unit.part.manifest.files if file.name == unit.file)
        replace = partial(self._cache.good_copy, unit.part)
        if folder is not None:
            return CheckedFile(folder / unit.file, entry, replace)
        manifest = unit.part.manifest
        if self._stored is not None and manifest.share_id is not None and not unit.part.lacking:
            problem = self._stored.problem(manifest)
            if problem is None:
                return self._stored.objects.file(manifest, entry, replace)
            if self._way == "store":
                raise problem
        return CheckedFile(self._cache.fetch_file(unit.part, unit.file), entry, replace)

    def group(self, unit: GroupUnit) -> FinalUnit:
        """Return the parts of a final read, here.  Raises as `file`."""
        parts = [
            CheckedPart(
                self._folder(part, unit.machine) or self._cache.fetch(part),
                part.manifest,
                partial(self._cache.good_copy, part),
            )
            for part in unit.parts
        ]
        return FinalUnit(tuple(parts), unit.key_range, 0)

    def _folder(self, part: SnapshotPart, machine: str) -> Path | None:
        try:
            return near_folder(part, machine, self.definition.name, self._stored)
        except SnapshotExpired:
            # An executor may see other file systems than the replica of its machine; if the part is gone, replicas say so.
            return None


def _read(plan: ReadPlan, units: Sequence[FileUnit | GroupUnit], files: _TaskFiles) -> Iterator[pa.RecordBatch]:
    """Read units of one kind."""
    groups = [unit for unit in units if isinstance(unit, GroupUnit)]
    found = [(unit.part.manifest.schema_version, files.file(unit)) for unit in units if isinstance(unit, FileUnit)]
    definition, where = files.definition, plan.options.get("where")
    if found:
        predicate = parse_predicate(where, definition) if where else None
        # Files of one schema version are neighbours then, and one scan reads them.
        found.sort(key=lambda file: file[0])
        try:
            for scan in scan_files(
                found, definition, plan.columns, predicate, batch_rows=BATCH_ROWS, batches_ahead=2, files_ahead=1
            ):
                yield from exactly(scan.to_batches(), plan.schema)
        except FileNotFoundError as error:
            raise SnapshotExpired(f"a file of {definition.name} is gone ({error}); make the frame again") from error
    brought = (files.group(unit) for unit in groups)
    yield from exactly(read_units(brought, definition, plan.columns, where), plan.schema)


@contextmanager
def leased(handle: LeaseHandle | None, http: HttpClient) -> Iterator[Callable[[], None]]:
    """Renew the read's lease while a task runs, and leave it to the others; give what raises `LeaseLost` when it is lost."""
    if handle is None:
        yield lambda: None
        return
    asked_at = time.monotonic()
    try:
        handle.renew(http)
    except LeaseLost as error:
        raise LeaseLost(
            f"this frame is older than its lease of {handle.seconds:g} s ({error}); make the frame again, or give it more"
            f' time with .option("lease", seconds)'
        ) from error
    except ReplitreeError:
        # How old the lease is is not known: the next renewal comes soon.
        asked_at -= handle.seconds / 2
    lease = hold(handle, http, asked_at)
    try:
        yield lease.check
    finally:
        lease.hand_over()


def exactly(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Give batches the schema that Spark asked for."""
    target = exchange_schema(schema)
    for batch in batches:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            rows = batch.slice(first, BATCH_ROWS)
            columns = [
                column if column.type == wanted.type else column.cast(wanted.type)
                for column, wanted in zip(rows.columns, target, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=target)
