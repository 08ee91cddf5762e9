"""Reading through the data source: plan on the driver, read on the executors.

One snapshot is taken when Spark asks for the partitions.  Its files, not its parts, are packed into about as many tasks
as there are cores, the largest first into the emptiest task.  A task opens files that lie on its machine, and fetches
the others over HTTP.

Batches have exactly the schema that Spark asked for: the table's types, every column nullable.

Absent on purpose: order.  Rows come as the tasks come.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from replitree.client.http import HttpClient
from replitree.client.snapshot import PartCache, SnapshotPart, local_folder
from replitree.errors import BadInput
from replitree.spark.options import number, open_connection, open_table, seconds, table_name
from replitree.spark.types import columns_of, exchange_schema, spark_schema
from replitree.storage.definition import TableDefinition, decode_definition
from replitree.storage.predicate_parser import parse_predicate

TASK_BYTES = 128 << 20
"""Bytes of data files that one task reads, when there are more than the cores can take at once."""

BATCH_ROWS = 65_536
"""Rows of a batch on its way to the JVM; much smaller and much larger ones are slower."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every task needs to know; `index` is the snapshot's, -1 before it is taken."""

    options: Mapping[str, str]
    definition: tuple[bytes, bytes] = field(repr=False)
    columns: tuple[str, ...]
    schema: StructType = field(repr=False)
    index: int = -1
    addresses: tuple[str, ...] = ()
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class FileUnit:
    """One data file of a part on some machine."""

    part: SnapshotPart
    file: str
    machine: str


class FilesPartition(InputPartition):
    """The files of one task."""

    def __init__(self, units: Sequence[FileUnit]) -> None:
        super().__init__(tuple(units))


def read_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of a read that does not say one."""
    with open_connection(options) as connection:
        definition = connection.catalog.definition(table_name(options))
    return spark_schema(definition, _columns_option(options))


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
        definition = connection.catalog.definition(table_name(options))
    names = columns_of(schema, definition)
    if options.get("where"):
        parse_predicate(options["where"], definition)
    return ReadPlan(dict(options), (definition.encode_metadata(), definition.encode_columns()), tuple(names), schema)


def plan_partitions(plan: ReadPlan) -> tuple[ReadPlan, list[FilesPartition]]:
    """Take the snapshot and pack its files into tasks."""
    options = plan.options
    with open_connection(options) as connection:
        table = open_table(connection, options)
        snapshot = table.snapshot(number(options, "minindex"), timeout_s=seconds(options))
        addresses = tuple(replica.address for replica in table.replicas() if replica.address)
        token = connection.access.token
    parts = snapshot.select(options.get("where"))
    units = [FileUnit(part, file.name, snapshot.machine) for part in parts for file in part.manifest.files]
    sizes = [file.bytes for part in parts for file in part.manifest.files]
    tasks = number(options, "partitions")
    if tasks is not None and tasks < 1:
        raise BadInput(f"option partitions is at least 1, not {tasks}")
    packed = pack(units, sizes, tasks or max(os.cpu_count() or 1, -(-sum(sizes) // TASK_BYTES)))
    planned = replace(plan, index=snapshot.index, addresses=addresses, token=token)
    return planned, [FilesPartition(task) for task in packed]


def pack(units: Sequence[FileUnit], sizes: Sequence[int], tasks: int) -> list[list[FileUnit]]:
    """Distribute files over at most `tasks` tasks of about equal size; no task is empty."""
    packed: list[list[FileUnit]] = [[] for _ in range(min(tasks, len(units)))]
    loads = [0] * len(packed)
    for number_ in sorted(range(len(units)), key=lambda i: (-sizes[i], i)):
        lightest = loads.index(min(loads))
        packed[lightest].append(units[number_])
        loads[lightest] += sizes[number_]
    return packed


def read_partition(plan: ReadPlan, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read one task's files, batch by batch.

    Raises
    ------
    SnapshotExpired
        A file is gone: the frame is older than the parts are kept.
    """
    units: tuple[FileUnit, ...] = partition.value or ()  # Spark makes a partition of nothing for an empty table
    if not units:
        return
    definition = decode_definition(*plan.definition)
    with tempfile.TemporaryDirectory(prefix="replitree-task-") as folder:  # also when a LIMIT ends the task early
        cache = PartCache(HttpClient(plan.token), table_name(plan.options), plan.addresses, Path(folder))
        files = [str(_file(unit, definition, cache)) for unit in units]
        yield from _scan(plan, definition, files)


def _scan(plan: ReadPlan, definition: TableDefinition, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.dataset as ds

    nullable = pa.schema([column.with_nullable(True) for column in definition.arrow_schema])
    where = plan.options.get("where")
    scanner = ds.dataset(files, schema=nullable, format=ds.ParquetFileFormat()).scanner(
        columns=list(plan.columns),
        filter=parse_predicate(where, definition).to_arrow() if where else None,
        batch_size=BATCH_ROWS,
        batch_readahead=2,
        fragment_readahead=1,
    )
    target = exchange_schema(plan.schema)
    for batch in scanner.to_batches():
        if batch.num_rows:
            columns = [column.cast(wanted.type) for column, wanted in zip(batch.columns, target, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=target)


def _file(unit: FileUnit, definition: TableDefinition, cache: PartCache) -> Path:
    folder = local_folder(unit.part, unit.machine, definition.name)
    return folder / unit.file if folder is not None else cache.fetch_file(unit.part, unit.file)


def _columns_option(options: Mapping[str, str]) -> list[str] | None:
    text = options.get("columns")
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInput("option columns names no column: leave it out for all")
    return names
