"""A bucket whose objects are damaged, and the ways in which Spark reads large objects, without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.spark.read import source_read
from replitree.spark.session.types import spark_schema
from replitree.spark.store.blocks import Blocks, ServedObject
from replitree.storage.parts import checked_bytes
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import S3Server


@dataclass(frozen=True, slots=True)
class Object:
    """An object, as `hurt` damages a file."""

    objects: MutableMapping[str, bytes]
    key: str

    def read_bytes(self) -> bytes:
        """Return what it has.  Raises `FileNotFoundError`."""
        try:
            return self.objects[self.key]
        except KeyError as error:
            raise FileNotFoundError(self.key) from error

    def write_bytes(self, data: bytes) -> int:
        """Put other bytes in its place."""
        self.objects[self.key] = data
        return len(data)


class Bucket:
    """A server with a bucket, for which this process has credentials until it is closed."""

    def __init__(self) -> None:
        self.server = S3Server()
        self._before = {name: os.environ.get(name) for name in KEYS}
        os.environ.update(KEYS)

    def object(self, table_id: str, share: str, name: str) -> Object | None:
        """Return an object of a share; None when there is none."""
        end = f"/{table_id}/{share}/{name}"
        found = [key for key in list(self.server.state.objects) if key.endswith(end)]
        return Object(self.server.state.objects, found[0]) if found else None

    def close(self) -> None:
        """Stop the server."""
        self.server.close()
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def at_gateway(table: Table, where: str, timeout_s: float) -> pa.Table:
    """Read objects as the gateway streams them to Spark's JVM; parts that are not in the bucket as any reader does."""
    checked_bytes._kept.clear()  # noqa: SLF001 - sums objects are damaged, too
    snapshot = table.snapshot(timeout_s=timeout_s)
    found = [table.schema.empty_table()]
    for part in snapshot.select(where):
        if snapshot.stored is None or part.manifest.share_id is None or part.lacking:
            found += [pq.read_table(file.path) for file in snapshot.sound_files([part])]
            continue
        for file in part.manifest.files:
            replace = partial(snapshot.source.good_copy, part)
            source = ServedObject(snapshot.stored.objects.file(part.manifest, file, replace))
            with closing(Blocks()) as blocks:
                data = b"".join(blocks.stream(source, 0))
            found.append(pq.read_table(pa.BufferReader(data)))
    rows = pa.concat_tables([each.select(table.schema.names).cast(table.schema) for each in found])
    numbers = {name: int(text) for name, text in re.findall(r"(p|k) >?= (\d+)", where)}
    return rows.filter((pc.field("p") == numbers["p"]) & (pc.field("k") >= numbers.get("k", 0)))


def by_tasks(table: Table, connection: Connection, where: str) -> pa.Table:
    """Read as the tasks of ``format("replitree")`` do."""
    checked_bytes._kept.clear()  # noqa: SLF001 - as above
    options = {"table": "t", "where": where}
    with _connecting(connection):
        plan = source_read.plan_read(options, spark_schema(table.definition))
        _, partitions = source_read.plan_partitions(plan)
    batches = [batch for partition in partitions for batch in source_read.read_partition(partition)]
    found = pa.Table.from_batches(batches) if batches else table.schema.empty_table()
    return found.select(table.schema.names).cast(table.schema)


@contextmanager
def _connecting(connection: Connection) -> Iterator[None]:
    """Let the data source use a connection that is there, and that its end does not close."""

    @contextmanager
    def same(_: object) -> Iterator[Connection]:
        yield connection

    before = vars(source_read)["open_connection"]
    setattr(source_read, "open_connection", same)  # noqa: B010 - it is a function of the module
    try:
        yield
    finally:
        setattr(source_read, "open_connection", before)  # noqa: B010 - as above
